"""What the tool tells of itself: traces, metrics, logs. The only place that imports opentelemetry.

options     what is sent where
seen        what of evictions, outcomes and reports is looked at (values of the packages above and beside)
names       span names, attributes, and where they are defined
labels      constraints, moves and plans as attributes
spans       a cycle as a trace
metrics     a cycle as counters, histograms and gauges
gauges      the state between cycles
delivery    spans on their way: bounded, counted, never waited for
exposition  metrics as text: /metrics and the textfile
current     the span that a thread is in, for logs and annotations
tree        a trace as a tree in the terminal
logs        structured logs with trace ids; the level can be changed at run time
start       all of it, switched on once and off once

Importing the package loads nothing of opentelemetry; `start` does.
"""
