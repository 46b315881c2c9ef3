"""One cycle: snapshot → plan → waves → outcome. Knows the cluster only through what it is given.

clock            time, and the wish to stop
parts            what a cycle is made of
snapshot_checks  whether a snapshot says enough to act on
loop             the cycle itself
carrying_out     a plan, move by move; flight: how far its moves are; evicting: one of them, after a last look
replacements     waiting until victims are gone and replacements Ready
domains_left     what a move takes a pod out of
next_step        what follows a plan
gates/           whether something may be done now
memory/          what is known of former cycles
"""
