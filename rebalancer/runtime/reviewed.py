"""A plan that somebody reviewed: the report's JSON, carried out exactly as far as it still holds.

The planner itself judges what still holds: it plans the cluster of now with every other pod protected. So a
reviewed eviction that is no longer needed, would no longer help or would now do harm is not in its plan, and
nothing else is either. Order and waves follow from the cluster of now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan
from rebalancer.policy.annotations import EVICT
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners

_KIND = "Report"
_API = "rebalancer/v1"


class ReviewedEviction(Struct, frozen=True, rename="camel"):
    """One of the report's `evictions`; `owner` is Kind/name."""

    namespace: str
    pod: str
    uid: str
    owner: str = ""
    node: str = ""
    wave: int = 1

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.pod}"


class _Report(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    evictions: tuple[ReviewedEviction, ...]
    cluster: str = ""


class Reviewed(Struct, frozen=True, eq=False):
    """The approved evictions; `cluster` is the context that the report was made of, "" if it was a file."""

    evictions: tuple[ReviewedEviction, ...]
    cluster: str = ""


def read_reviewed(path: Path) -> Reviewed:
    """A report's JSON. Raises UserError naming the file and the field."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=_Report)
    except OSError as e:
        raise UserError(f"{path}: cannot be read: {(e.strerror or str(e)).lower()}") from e
    except msgspec.DecodeError as e:
        raise UserError(
            f"{path} is no report: {e}", "make one with `rebalancer report -o json --output-file FILE`"
        ) from e
    if (report.api_version, report.kind) != (_API, _KIND):
        raise UserError(
            f"{path} is a {report.kind} of {report.api_version}, not a {_KIND} of {_API}",
            "make one with `rebalancer report -o json --output-file FILE`",
        )
    for i, eviction in enumerate(report.evictions):
        if not eviction.uid:
            raise UserError(
                f"{path}: evictions[{i}] ({eviction.key}) has no uid: which pod was meant cannot be told",
                "make the report from a live cluster, or from a snapshot with uids",
            )
    return Reviewed(report.evictions, report.cluster)


class ReviewedPlanner:
    """Plans within what was approved. `rejected`: per uid, why an approved eviction is not carried out.

    `plan` is the planner. After a call, `rejected` speaks of that snapshot; what a former call planned is not
    counted as rejected when its pod is gone.
    """

    def __init__(self, reviewed: Reviewed, plan: Callable[[Snapshot], Plan]) -> None:
        self._reviewed = reviewed
        self._plan = plan
        self._planned: set[str] = set()
        self.rejected: dict[str, tuple[ReviewedEviction, Reason]] = {}

    def __call__(self, snapshot: Snapshot) -> Plan:
        """The plan of the approved evictions that still hold."""
        self.rejected = {}
        by_uid = {p.uid: p for p in snapshot.pods}
        owners = Owners(snapshot, PolicyOptions())
        open_: dict[str, ReviewedEviction] = {}
        for e in self._reviewed.evictions:
            reason = _changed(e, by_uid.get(e.uid), owners)
            if reason is None:
                open_[e.uid] = e
            elif e.uid not in self._planned:
                self.rejected[e.uid] = (e, reason)
        plan = self._plan(_only(snapshot, frozenset(open_)))
        moves = {m.pod.uid for m in plan.moves}
        blocked = {b.pod.uid: b.reason for b in plan.blocked}
        for uid, e in open_.items():
            if uid not in moves:
                self.rejected[uid] = (e, blocked.get(uid, _NOT_NEEDED))
        self._planned |= moves
        return plan


_NOT_NEEDED = Reason(ReasonCode.NOT_NEEDED, "its eviction is not needed any more, or no longer helps")


def _changed(e: ReviewedEviction, pod: Pod | None, owners: Owners) -> Reason | None:
    if pod is None or (pod.namespace, pod.name) != (e.namespace, e.pod):
        return Reason(ReasonCode.CHANGED_SINCE_PLAN, f"pod {e.key} of uid {e.uid} is gone")
    if pod.terminating:
        return Reason(ReasonCode.TERMINATING, f"pod {e.key} is being deleted already")
    if e.node and pod.node_name != e.node:
        return Reason(ReasonCode.CHANGED_SINCE_PLAN, f"pod {e.key} is on {pod.node_name}, not on {e.node}")
    owner = _owner(pod, owners)
    if e.owner and owner != e.owner:
        return Reason(
            ReasonCode.CHANGED_SINCE_PLAN, f"pod {e.key} belongs to {owner or 'nobody'}, not to {e.owner}"
        )
    return None


def _owner(pod: Pod, owners: Owners) -> str:
    """Kind/name as a report has it: the Deployment's, where the pod's ReplicaSet has one."""
    owner = owners.of(pod)
    if owner is not None:
        top = owners.top(owner)
        return f"{top.kind}/{top.name}"
    return f"{pod.owner.kind}/{pod.owner.name}" if pod.owner is not None else ""


def _only(snapshot: Snapshot, uids: frozenset[str]) -> Snapshot:
    """The snapshot with every other pod protected, in the way that its owner could have done it."""
    pods = tuple(
        p if p.uid in uids else msgspec.structs.replace(p, annotations={**p.annotations, EVICT: "false"})
        for p in snapshot.pods
    )
    return msgspec.structs.replace(snapshot, pods=pods)
