"""Cycles as figures.

counters    what happened: counters and histograms
gauges      the state between cycles; state: what is known, and its values
exposition  all of it as text: /metrics and the textfile
"""
