"""Cycles one after the other in a process that stays.

service    all of it together
schedule   cycles at intervals, until a signal
health     probes and /metrics
"""
