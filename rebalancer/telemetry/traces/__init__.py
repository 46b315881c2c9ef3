"""A cycle as a trace.

spans       cycle → snapshot, plan, waves → evictions → replacements
attributes  constraints, moves and plans as attributes of spans
names       of spans and attributes
current     the span that a thread is in, for logs and annotations
sampling    which cycles are traced
tree        a trace as a tree in the terminal
"""
