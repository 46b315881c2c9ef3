"""An embedded cluster over real HTTP, for the demo and what-if runs. Not in the image.

storage      objects with their history
registry     what the API server asks of each change: admission, defaults, validation, deletion, eviction
server       the API over HTTP; discovery, for a visiting kubectl
controllers  what a cluster does by itself
cluster      all of it together; the cluster of the demo
"""

from rebalancer.sandbox.cluster import Cluster
from rebalancer.sandbox.objects import copied, is_ready, set_condition
from rebalancer.sandbox.registry import Store, bind, evict
from rebalancer.sandbox.resources import ApiError
from rebalancer.sandbox.server import ApiServer
from rebalancer.sandbox.storage import Event

__all__ = [
    "ApiError",
    "ApiServer",
    "Cluster",
    "Event",
    "Store",
    "bind",
    "copied",
    "evict",
    "is_ready",
    "set_condition",
]
