"""An embedded cluster: an API server over HTTP for the demo, tests and what-if runs."""

from rebalancer.sandbox.errors import ApiError
from rebalancer.sandbox.faults import Cut, Delay, Fault, Garbage, Gone, Reply
from rebalancer.sandbox.history import Event
from rebalancer.sandbox.server import ApiServer
from rebalancer.sandbox.store import Store

__all__ = ["ApiError", "ApiServer", "Cut", "Delay", "Event", "Fault", "Garbage", "Gone", "Reply", "Store"]
