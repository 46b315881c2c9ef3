"""The loop: snapshot → plan → waves → outcome, once or as a daemon.

clock     time, and the wish to stop
observer  what the loop tells: for logs, a live view, telemetry
logged    the same in the log
outcome   what became of each move, and of a cycle
wave      evicting the moves of one wave, each after a fresh look
settle    waiting until victims are gone and replacements Ready
parts     what a cycle is made of
cycle     the loop itself
memory    what is known of former cycles
young     violations that have not lasted long enough
reviewed  a plan that somebody approved, from a report's JSON
source    where the cluster comes from
live      the parts above, made for a live cluster
once      one cycle
daemon    cycles at intervals
"""
