"""What the tool tells of itself. The only place that imports opentelemetry.

metrics       cycles as counters, histograms and gauges
logs          structured logs with trace ids; the level can be changed at run time
start         all of it, switched on once and off once; spans on their way: bounded, counted, never waited for

Importing the package loads nothing of opentelemetry; `start` does.
"""
