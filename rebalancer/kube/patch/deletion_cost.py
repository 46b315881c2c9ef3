"""Writes the deletion cost of a pod, and nothing else, under a field manager of its own.

Rule: kubernetes staging/src/k8s.io/apiserver, PATCH of a resource: uid and resourceVersion in a merge patch
are preconditions. So nothing is written over what somebody else has set after this tool looked.
"""

from __future__ import annotations

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.errors import ConflictError, ForbiddenError, KubeError, NotFoundError, Target
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.deletion_cost import DELETION_COST, MANAGER
from rebalancer.outcome.steering import CostOutcome, CostResult
from rebalancer.prevention.scale_in.steering import CostChange

_PODS = RESOURCES["Pod"]
_READ_TIMEOUT = 15.0


class CostWriter:
    """Writes to one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, change: CostChange) -> CostOutcome:
        """What became of it. Raises ForbiddenError: no other pod may be written to either."""
        pod = change.pod
        metadata = {
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": {DELETION_COST: str(change.cost) if change.cost else None},
        }
        try:
            self._connection.request(
                "PATCH",
                _PODS.path(pod.namespace, pod.name),
                Target("patch", _PODS, pod.namespace, pod.name),
                query={"fieldManager": MANAGER},
                body={"metadata": metadata},
                read_timeout=_READ_TIMEOUT,
                content_type="application/merge-patch+json",
            )
        except NotFoundError:
            return CostOutcome(change, CostResult.GONE)
        except ForbiddenError:
            raise
        except ConflictError:
            return CostOutcome(change, CostResult.CHANGED)
        except KubeError as e:
            return CostOutcome(change, CostResult.FAILED, e.message)
        return CostOutcome(change, CostResult.WRITTEN)
