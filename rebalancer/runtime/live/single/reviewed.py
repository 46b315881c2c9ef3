"""A plan that somebody reviewed: the report's JSON, carried out exactly as far as it still holds.

The planner itself judges what still holds: it plans the cluster of now and may move no other pod. So a
reviewed eviction that is no longer needed, would no longer help or would now do harm is not in its plan, and
nothing else is either. Order and waves follow from the cluster of now.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import Approved, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.runtime.live.assembly import Planning

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
    cluster_id: str = ""
    captured_at: str = ""


class Reviewed(Struct, frozen=True, eq=False):
    """The approved evictions. `source`: where they stand; `cluster`: the context that the report was made of,
    "" if it was a file; `cluster_id`: the uid of that cluster's kube-system, "" if it is not known;
    `captured_at`: the time that it speaks of, in seconds since the epoch, None if it does not say."""

    evictions: tuple[ReviewedEviction, ...]
    cluster: str = ""
    cluster_id: str = ""
    captured_at: float | None = None
    source: str = "the plan"

    def check_cluster(self, snapshot: Snapshot) -> None:
        """Raises UserError if the report is of another cluster, as far as both tell."""
        here = snapshot.cluster_id
        if self.cluster_id and here and self.cluster_id != here:
            named = f" ({self.cluster})" if self.cluster else ""
            raise UserError(
                f"{self.source} was made for another cluster{named}: namespace kube-system has uid "
                f"{self.cluster_id} there, {here} here",
                "choose the context it was made for, or make a report of this cluster",
            )


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
    return Reviewed(
        evictions=report.evictions,
        cluster=report.cluster,
        cluster_id=report.cluster_id,
        captured_at=_time(report.captured_at),
        source=path.name,
    )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


class ReviewedPlanner:
    """Plans within what was approved. `plan` is the planner.

    The observer is told, once, of each approved eviction that is not carried out; not of one that was planned
    before and whose pod is gone by now.
    """

    def __init__(self, reviewed: Reviewed, plan: Planning, observer: Observer) -> None:
        self._reviewed = reviewed
        self._plan = plan
        self._observer = observer
        self._planned: set[str] = set()
        self._told: set[str] = set()

    def __call__(self, snapshot: Snapshot) -> Plan:
        """The plan of the approved evictions that still hold. Raises UserError for another cluster's."""
        self._reviewed.check_cluster(snapshot)
        by_uid = {p.uid: p for p in snapshot.pods}
        owners = Owners(snapshot, PolicyOptions())
        open_: dict[str, ReviewedEviction] = {}
        rejected: dict[str, Reason] = {}
        for e in self._reviewed.evictions:
            reason = _changed(e, by_uid.get(e.uid), owners)
            if reason is None:
                open_[e.uid] = e
            elif e.uid not in self._planned:
                rejected[e.uid] = reason
        plan = self._plan(snapshot, Approved(frozenset(open_), self._reviewed.source))
        moves = {m.pod.uid for m in plan.moves}
        blocked = {b.pod.uid: b.reason for b in plan.blocked}
        rejected |= {uid: blocked.get(uid, _NOT_NEEDED) for uid in open_ if uid not in moves}
        approved = {e.uid: e for e in self._reviewed.evictions}
        for uid in [u for u in rejected if u not in self._told]:
            self._told.add(uid)
            self._observer.on_rejected(approved[uid].namespace, approved[uid].pod, rejected[uid])
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
