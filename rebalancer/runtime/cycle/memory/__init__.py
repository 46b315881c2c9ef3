"""What is known of former cycles, and what follows from it for this one.

memory         the ledger as a cycle uses it; fates: what it says of an outcome
shared_ledger  the same ledger in the cluster: read, written, claimed
stabilization  violations that have not lasted long enough
undone         owners whose moves the removal of nodes has undone
verdicts       decisions of a newer scheduler, counted as they come
"""
