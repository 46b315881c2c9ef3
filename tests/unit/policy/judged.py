"""What policy says of a built cluster's pods, and small changes to what builders make."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from tests.support.build import OwnerBuilder, nodes, objects, replica_set
from tests.support.build import decoded as snapshot_of
from tests.support.scheduler.plain import Json

__all__ = ["cluster", "code", "judged", "merged", "patched", "pods", "web"]


def web() -> OwnerBuilder:
    """Three pods of a ReplicaSet, which may be evicted as they are."""
    return replica_set("web").placed({"a-0": 2, "b-0": 1})


def merged(base: Json, changes: Json) -> Json:
    """The object with changes, dicts merged deeply; None takes a field away."""
    out = deepcopy(base)
    for key, value in changes.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        else:
            out[key] = deepcopy(value)
    return out


def patched(kind: str, changes: Json, *things: Any, name: str = "") -> list[Json]:
    """The objects of these builders, with changes to those of a kind (and of a name)."""
    return [
        merged(o, changes) if o["kind"] == kind and name in ("", o["metadata"]["name"]) else o
        for o in objects(*things)
    ]


def cluster(*things: Any) -> Snapshot:
    """A snapshot of two nodes and these."""
    return snapshot_of(objects(nodes(a=1, b=1), *things))


def pods(snapshot: Snapshot, name: str = "") -> list[Pod]:
    """The pods whose name starts so."""
    return [p for p in snapshot.pods if p.name.startswith(name)]


def judged(*things: Any, options: PolicyOptions | None = None, pod: str = "web") -> Reason | None:
    """What policy says of the first pod whose name starts with `pod`."""
    snapshot = cluster(*things)
    reason = Evictable(snapshot, options or PolicyOptions()).why_not(pods(snapshot, pod)[0])
    if reason is not None:
        assert isinstance(reason.message, str)
        assert isinstance(reason.remedy, str)
        assert all(isinstance(figure, int) for figure in reason.numbers.values())
    return reason


def code(*things: Any, options: PolicyOptions | None = None, pod: str = "web") -> ReasonCode | None:
    """The reason's code."""
    reason = judged(*things, options=options, pod=pod)
    return reason.code if reason is not None else None
