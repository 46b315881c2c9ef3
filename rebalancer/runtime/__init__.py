"""What runs: a cycle, the daemon around it, and the work of single commands.

Each imports only what stands above it in this list.

cycle      snapshot → plan → waves → outcome, with everything passed in
observers  who listens to a cycle
last_look  what is asked of the cluster just before an eviction
live       a cycle on a live cluster
daemon     cycles in a process that stays
commands   what single commands do besides a cycle
"""
