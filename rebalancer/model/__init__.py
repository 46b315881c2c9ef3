"""The cluster as frozen values: what kube-scheduler, the controllers and the Eviction API read of it.

Pure: no clock, files, network or randomness. Names follow the Kubernetes API; quantities are integers
(milli-units for cpu, base units otherwise); times are seconds since the epoch, UTC.
"""
