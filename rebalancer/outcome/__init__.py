"""What came of evicting, and how a cycle tells of it: below everything that acts, reports or measures.

eviction  the request to evict one pod
cycle     a move with its replacement, and the cycle as a whole
steering  deletion costs that were written
observer  what a cycle tells while it runs
"""
