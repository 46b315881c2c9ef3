"""The checks: each looks for one kind of mistake in workloads, constraints, nodes or budgets.

effect         constraints that do not do what people expect
selecting      what a constraint selects
together       requirements that cannot hold together
node_labels    labels that nodes lack, and too few domains
domains        domains that are down, closed or full
volumes        spread that volumes forbid
namespaces     affinity terms that reach more namespaces than they say
budgets        PodDisruptionBudgets that are missing, several, or never met
scheduler      a scheduler that does nothing; newer_versions: one that is newer than all known rules
replacing/     pods whose replacement would find no node
"""
