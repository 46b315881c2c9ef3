"""The drill: every node and every domain fails, one at a time, replayed on the engine.

failure     what fails: a node, or all nodes with one value of a label
at_rest     the cluster before anything fails: what could be placed is placed
lost        which pods go with the nodes, and what their owners make of it
placing     the scheduler, one Pending pod after the other
replay      one failure, pod by pod
surely      nodes whose pods are known to find others, without a replay
budgets     PodDisruptionBudgets that are breached
results     what comes of it
drill       all failures, today and after a plan
"""

from rebalancer.drill.drill import drill
from rebalancer.drill.lost import Drill, Drilled, Failure, WorkloadLoss, failures

__all__ = ["Drill", "Drilled", "Failure", "WorkloadLoss", "drill", "failures"]
