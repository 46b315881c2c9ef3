"""Moves and outcomes as tests of a cycle need them."""

from __future__ import annotations

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Eviction, Fate, Outcome, Result
from rebalancer.planner.plan import Move
from tests.support.build import nodes, snapshot, workload

WEB = snapshot(*nodes(a=1, b=2, c=2), workload("web").placed({"a-0": 4}), workload("db").placed({"a-0": 2}))


def move(name: str = "web-00000", s: Snapshot = WEB, wave: int = 1, *, certain: bool = True) -> Move:
    """A move of that pod to zone b."""
    pod = next(p for p in s.pods if p.name == name)
    owner = s.owner_of(pod.namespace, pod.owner)
    assert owner is not None
    return Move(
        pod=pod,
        owner=owner,
        replacement=pod.template,
        destinations=("b-0", "b-1"),
        predicted="b-0",
        certain=certain,
        wave=wave,
        fixes=(),
        reason="",
    )


def evicted(name: str = "web-00000", *, on: str = "b-0", ready: bool = True) -> Outcome:
    """A pod was evicted, and its replacement is on that node; "": on none that anybody saw."""
    return Outcome(
        move=move(name),
        status=Fate.DONE if ready else Fate.FAILED,
        message=f"{name} went to {on or 'nowhere'}",
        eviction=Eviction(result=Result.EVICTED, message="", posts=1),
        node=on,
        expected=(on in ("b-0", "b-1")) if on else None,
    )


def left(name: str, code: ReasonCode) -> Outcome:
    """A pod was not evicted."""
    reason = Reason(code, f"{name}: {code}")
    return Outcome(move=move(name), status=Fate.SKIPPED, message=reason.message, reason=reason)


def recorded(name: str) -> Outcome:
    """A dry run."""
    eviction = Eviction(result=Result.WOULD_EVICT, message="")
    return Outcome(move=move(name), status=Fate.RECORDED, message="", eviction=eviction)
