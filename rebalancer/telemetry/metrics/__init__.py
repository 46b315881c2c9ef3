"""Cycles as figures.

counters    what happened: counters and histograms
gauges      the state between cycles
exposition  all of it as text: /metrics and the textfile
"""
