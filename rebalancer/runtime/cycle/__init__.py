"""One cycle: snapshot → plan → waves → outcome. Knows the cluster only through what it is given.

clock          time, and the wish to stop
parts          what a cycle is made of
loop           the cycle itself
wave           evicting the moves of one wave, each after a fresh look
replacements   waiting until victims are gone and replacements Ready
domains_left   what a move takes a pod out of
next_step      what follows a wave
gates          what may forbid evicting at any moment
memory         what is known of former cycles
stabilization  violations that have not lasted long enough
"""
