"""The last look before an eviction: is the move still right, with the cluster as it is now?

`LastLook.why_not` is the one entry. Each question has a file of its own: the pod, its owner, the budgets,
the nodes, the room that the replacement needs, and whether the watch that tells of them is up to date.
"""
