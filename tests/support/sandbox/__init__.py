"""The sandbox as tests use it: with users and rights, faults on order, patches, and a log of all requests."""

from rebalancer.sandbox import ApiError, Event, Store, bind, copied, evict, is_ready, set_condition
from tests.support.sandbox.api_server import ApiServer
from tests.support.sandbox.cluster import Cluster
from tests.support.sandbox.faults import Cut, Delay, Fault, Garbage, Gone, Reply, Until

__all__ = [
    "ApiError",
    "ApiServer",
    "Cluster",
    "Cut",
    "Delay",
    "Event",
    "Fault",
    "Garbage",
    "Gone",
    "Reply",
    "Store",
    "Until",
    "bind",
    "copied",
    "evict",
    "is_ready",
    "set_condition",
]
