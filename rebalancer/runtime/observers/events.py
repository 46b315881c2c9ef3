"""Kubernetes Events on evicted pods and their owners, for `kubectl describe`."""

from __future__ import annotations

from typing import Literal

from rebalancer.kube.events import EventRecorder, Regarding
from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.outcome.eviction import Eviction
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Move

EventSetting = Literal["all", "evictions", "none"]
EVICTED = "EvictedForSpread"
ASTRAY = "ReplacementAstray"
FAILED = "RebalancingFailed"
_ACTION = "Evict"


class EventObserver(Observer):
    """Writes what was evicted. With `failures` also what did not go as planned, on the owner."""

    def __init__(self, recorder: EventRecorder, *, failures: bool) -> None:
        self._recorder = recorder
        self._failures = failures

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        if not eviction.evicted:
            return
        to = ", ".join(move.destinations[:3])
        more = f" or {len(move.destinations) - 3} more" if len(move.destinations) > 3 else ""
        sure = "" if move.certain else " (likely)"
        note = f"from {move.pod.node_name} to {to}{more}{sure}: {move.reason}"
        pod, owner = _pod(move), _owner(move)
        self._recorder.record(pod, reason=EVICTED, action=_ACTION, note=f"evicted {note}", related=owner)
        self._recorder.record(
            owner, reason=EVICTED, action=_ACTION, note=f"evicted pod {move.pod.name} {note}", related=pod
        )

    def on_outcome(self, outcome: Outcome) -> None:
        """A replacement that went elsewhere or failed, an eviction that was refused."""
        if not self._failures:
            return
        failed = outcome.status is MoveStatus.FAILED
        if failed or outcome.expected is False:
            self._recorder.record(
                _owner(outcome.move),
                reason=FAILED if failed else ASTRAY,
                action=_ACTION,
                note=outcome.message,
                kind="Warning",
                related=_pod(outcome.move),
            )


def _pod(move: Move) -> Regarding:
    return Regarding("Pod", move.pod.namespace, move.pod.name, move.pod.uid)


def _owner(move: Move) -> Regarding:
    meta = move.owner.metadata
    return Regarding(move.owner.kind, meta.namespace, meta.name, meta.uid)
