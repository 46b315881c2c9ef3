"""What the tool tells of itself. The only place that imports opentelemetry.

traces        a cycle as a trace
metrics       cycles as counters, histograms and gauges
logs          structured logs with trace ids; the level can be changed at run time
options       what is sent, as settings have it
destinations  where to, by `OTEL_…` variables and options
delivery      spans on their way: bounded, counted, never waited for
start         all of it, switched on once and off once

Importing the package loads nothing of opentelemetry; `start` does.
"""
