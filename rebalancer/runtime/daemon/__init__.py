"""Cycles one after the other in a process that stays.

service    all of it together
schedule   cycles at intervals, until a signal
trigger    when they start
reload     settings that change meanwhile
health     probes and /metrics
heartbeat  whether the loop still moves
"""
