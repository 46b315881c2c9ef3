"""An embedded cluster over real HTTP, for the demo and what-if runs. Not in the image.

api          resources, objects, selectors, refusals
storage      objects with their history
registry     what the API server asks of each change: admission, defaults, validation, deletion, eviction
kubectl      discovery and tables, for a visiting kubectl
server       the API over HTTP
controllers  what a cluster does by itself
cluster      all of it together; outage: the cluster of the demo
"""

from rebalancer.sandbox.api.errors import ApiError
from rebalancer.sandbox.api.objects import copied, is_ready, set_condition
from rebalancer.sandbox.cluster import Cluster
from rebalancer.sandbox.registry.binding import bind
from rebalancer.sandbox.registry.eviction import evict
from rebalancer.sandbox.registry.store import Store
from rebalancer.sandbox.server.api_server import ApiServer
from rebalancer.sandbox.storage.history import Event

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
