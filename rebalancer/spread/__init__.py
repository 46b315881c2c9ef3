"""Topology spread: constraints resolved, pods counted per node and domain, skew and excess.

constraint     what a constraint in a pod means: its selector after matchLabelKeys, its policies; its skew
nodes          the nodes as columns: labels, taints, affinity
tally          pods per node that a selector matches, kept up to date
arrays         numpy types, and columns that are copied when written
"""
