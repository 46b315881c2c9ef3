"""A cycle on a cluster that is there: its parts made for an API server.

assembly    the parts of a cycle, for a connection and perhaps a watch cache
cached      the cluster as the watch cache has it; last_plan: its plan, for as long as nothing changes
configured  settings → options of a cycle; newest: settings that change in the middle of a cycle
places      where brake, ledger and lease are; leading: the lease, taken for a cycle
agreement   what the scheduler does, beside what the engine says; follower: a thread that follows the pods
notifying   who is told by webhook
single/     one cycle, as a person or a CronJob runs it
"""
