"""kube-scheduler's filters and scores over all nodes at once. Pure.

state/      the scheduler's view of a cluster, changed pod by pod
framework   a profile's plugins over it; what it remembers of the templates asked about; what follows where
            nothing fits
plugins/    the plugins
config      the plugins there are; the scheduler's configuration
version     where versions differ; template_rules: what they read out of a pod
certainty   why a prediction may not hold; agreement: whether the scheduler does what was predicted
"""
