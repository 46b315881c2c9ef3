"""The cluster as frozen values: what kube-scheduler, the controllers and the Eviction API read of it.

Pure: no clock, files, network or randomness. Names follow the Kubernetes API; quantities are integers
(milli-units for cpu, base units otherwise); times are seconds since the epoch, UTC.

snapshot       the whole cluster at one time
pod, node, workload, storage  the objects, as far as they are read; object_meta: what all of them have
selectors      label selectors and node selectors
kinds          which kinds are read; missing_kinds: what cannot be known without one
reason         why something is not done; finding: what no eviction cures
decode/        JSON of API objects → these values
"""
