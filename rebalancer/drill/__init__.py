"""The drill: every node and every domain fails, one at a time, replayed on the engine.

lost        which pods go with the nodes, and what their owners make of it
replay      one failure, pod by pod; all failures, today and after a plan
"""

from rebalancer.drill.lost import Drill, Drilled, Failure, WorkloadLoss, failures
from rebalancer.drill.replay import drill

__all__ = ["Drill", "Drilled", "Failure", "WorkloadLoss", "drill", "failures"]
