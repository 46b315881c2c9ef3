"""Topology spread: constraints resolved, pods counted per node and domain, skew and excess.

constraint     what a constraint in a pod means: its selector after matchLabelKeys, its policies
defaults       default constraints of a scheduler profile
nodes          the nodes as columns: labels, taints, affinity
layout         the domains of a key over the eligible nodes
tally          pods per node that a selector matches, kept up to date
domain_counts  the same by domain
skew           skew and excess of such counts
per_domain     counts by the name of a domain, as a plan shows them
arrays         numpy types, and columns that are copied when written
"""
