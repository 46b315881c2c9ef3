"""One pod to evict, and what the server was asked."""

from __future__ import annotations

from typing import Any

from rebalancer.kube.reading import Objects
from rebalancer.model.pod import Pod
from tests.support.build import node, workload
from tests.support.sandbox import ApiServer

WEB = (
    node("a-0").zone("a"),
    node("b-0").zone("b"),
    workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
)


def posts(server: ApiServer) -> int:
    return sum(1 for a in server.accesses if a.subresource == "eviction")


def victim(read: Objects) -> Pod:
    pod = read.pod("default", "web-00000")
    assert pod is not None
    return pod


def budget_status(*, retry_after: int = 0, processing: bool = False) -> dict[str, Any]:
    """As recorded: exhausted without Retry-After, stale with one."""
    cause = (
        "The disruption budget web is still being processed by the server."
        if processing
        else "The disruption budget web needs 4 healthy pods and has 4 currently"
    )
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "details": details,
        "code": 429,
    }
