"""kube-scheduler's plugins, one file each under upstream's name.

plugin       what a plugin is here; registry: all of them by name; normalize: what several scores share
"""
