"""The scheduler's view of the cluster, changed pod by pod: nodes, and what placed pods hold on them.

cluster         nodes as columns, and all that follows
host_ports      ports in use
interpod_terms  affinity terms of placed pods
storage         claims, volumes and classes; volume_use: those that placed pods use
"""
