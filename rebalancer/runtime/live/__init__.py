"""A cycle on a cluster that is there: its parts made for an API server.

assembly    the parts of a cycle, for a connection and perhaps a watch cache
cached      the cluster as the watch cache has it
configured  settings → options of a cycle
reviewed    a plan that somebody approved, from a report's JSON
once        one cycle
places      where brake, ledger and lease are
leading     the lease, taken for a cycle
newest      settings that change in the middle of a cycle
session     what a single cycle needs around it
"""
