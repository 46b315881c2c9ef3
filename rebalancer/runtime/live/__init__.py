"""A cycle on a cluster that is there: its parts made for an API server.

assembly    the parts of a cycle, for a connection and perhaps a watch cache; the cluster as that has it, and
            its plan for as long as nothing changes
checks      all that can stop an eviction, in order
configured  settings → options of a cycle, and settings that change in the middle of one
places      where brake, ledger and lease are; the lease, taken for a cycle
once        one cycle for a person or a CronJob
agreement   what the scheduler does, beside what the engine says
"""
