"""An embedded cluster: an API server over HTTP for the demo, tests and what-if runs."""

from rebalancer.sandbox.cluster import Cluster
from rebalancer.sandbox.errors import ApiError
from rebalancer.sandbox.eviction import evict
from rebalancer.sandbox.faults import Cut, Delay, Fault, Garbage, Gone, Reply
from rebalancer.sandbox.history import Event
from rebalancer.sandbox.objects import copied, is_ready, set_condition
from rebalancer.sandbox.server import ApiServer
from rebalancer.sandbox.store import Store
from rebalancer.sandbox.subresources import bind

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
    "bind",
    "copied",
    "evict",
    "is_ready",
    "set_condition",
]
