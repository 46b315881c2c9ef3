"""The scheduler's view of the cluster, changed pod by pod: nodes, and what placed pods hold on them.

cluster         nodes with their pods, and the constraints of a pod over them
pods_on_nodes   pods come and go: what they hold on their nodes
interpod_terms  affinity terms of placed pods
storage         claims, volumes and classes; volume_use: those that placed pods use
"""
