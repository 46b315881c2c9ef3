"""The drill as a document: what every failure comes to, the worst ones in full.

Names are part of `rebalancer/v1`: fields may be added, but are never renamed.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import nlargest

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.drill import Drill, Drilled
from rebalancer.drill.results import Breach, WorkloadLoss
from rebalancer.report.api_version import API_VERSION

WORST = 10


class BudgetReport(Struct, frozen=True, rename="camel"):
    """A PodDisruptionBudget that is breached: its healthy pods when the nodes fail (`healthy`), and when the
    replacements that find a node are Ready (`after`); `needed`: what it asks for."""

    budget: str
    healthy: int
    after: int
    needed: int


class LossReport(Struct, frozen=True, rename="camel"):
    """A workload (Kind/namespace/name) and what it loses. `pods`: how many ran; `lost` = `replaced` +
    `pending` + `held` + `gone`. `why`: what shuts which nodes to the pending ones; `counts_dead`: a
    constraint that shuts some counts the nodes that are down as empty (nodeTaintsPolicy Ignore)."""

    workload: str
    pods: int
    lost: int
    replaced: int
    pending: int
    held: int
    gone: int
    why: str
    counts_dead: bool


class FailureReport(Struct, frozen=True, rename="camel"):
    """One failure: all nodes with `key`=`value`, or the node `value` where `key` is "node".

    `lost`: pods that go with the nodes. Of these `pending` find no other node, `held` are not made again
    while the nodes are silent (StatefulSets), and `gone` have no owner that makes them again. `budgets`: how
    many are breached, `lasting`: how many of them stay so. `planned…`: the same after the plan, -1 without
    one. `workloads`, `breached`: in full for the worst failures only; of others there are none.
    """

    key: str
    value: str
    nodes: int
    lost: int
    replaced: int
    pending: int
    held: int
    gone: int
    budgets: int
    lasting: int
    planned_lost: int
    planned_pending: int
    planned_lasting: int
    workloads: tuple[LossReport, ...] = ()
    breached: tuple[BudgetReport, ...] = ()

    @property
    def name(self) -> str:
        """As in `zone b`."""
        return f"{self.key.rpartition('/')[2]} {self.value}"


class DrillReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """`manner`: whether the nodes fall "silent", or are "removed". `waiting`: pods that no node takes before
    anything fails. `worst`: the first failures of `failures`, which are in order of key and name, again, the
    worst first, with their workloads."""

    api_version: str = API_VERSION
    kind: str = "Drill"
    source: str
    manner: str
    keys: tuple[str, ...]
    waiting: int
    planned: bool
    worst: tuple[FailureReport, ...]
    failures: tuple[FailureReport, ...]

    @property
    def most_pending(self) -> int:
        """Pending after the worst failure, as the cluster is."""
        return max((f.pending for f in self.failures), default=0)


def build_drill(
    drill: Drill, *, source: str = "", namespaces: Collection[str] = (), worst: int = WORST
) -> DrillReport:
    """The document. `namespaces`: whose workloads it is about, all if there are none; `worst`: how many
    failures are told in full."""
    planned = drill.planned or ((None,) * len(drill.today))
    pairs = [
        (_seen(a, namespaces), _seen(b, namespaces) if b is not None else None)
        for a, b in zip(drill.today, planned, strict=True)
    ]
    bad = [i for i, (today, after) in enumerate(pairs) if today.badness[1] or (after and after.badness[1])]
    shown = nlargest(worst, bad, key=lambda i: (_worst(*pairs[i]), -i))
    return DrillReport(
        source=source,
        manner=drill.manner,
        keys=drill.keys,
        waiting=drill.waiting,
        planned=bool(drill.planned),
        worst=tuple(_failure(*pairs[i], full=True) for i in shown),
        failures=tuple(_failure(today, after, full=False) for today, after in pairs),
    )


def _worst(today: Drilled, after: Drilled | None) -> tuple[int, ...]:
    return max(today.badness, after.badness) if after is not None else today.badness


def _seen(drilled: Drilled, namespaces: Collection[str]) -> Drilled:
    if not namespaces:
        return drilled
    return replace(
        drilled,
        workloads=tuple(w for w in drilled.workloads if w.workload.split("/")[1] in namespaces),
        breaches=tuple(b for b in drilled.breaches if b.budget.partition("/")[0] in namespaces),
    )


def _failure(today: Drilled, after: Drilled | None, *, full: bool) -> FailureReport:
    return FailureReport(
        key=today.failure.key,
        value=today.failure.value,
        nodes=today.nodes,
        lost=today.lost,
        replaced=sum(w.replaced for w in today.workloads),
        pending=today.pending,
        held=today.held,
        gone=today.gone,
        budgets=len(today.breaches),
        lasting=sum(b.lasting for b in today.breaches),
        planned_lost=after.lost if after is not None else -1,
        planned_pending=after.pending if after is not None else -1,
        planned_lasting=sum(b.lasting for b in after.breaches) if after is not None else -1,
        workloads=tuple(map(_loss, today.workloads)) if full else (),
        breached=tuple(map(_breach, today.breaches)) if full else (),
    )


def _loss(w: WorkloadLoss) -> LossReport:
    return LossReport(w.workload, w.pods, w.lost, w.replaced, w.pending, w.held, w.gone, w.why, w.counts_dead)


def _breach(b: Breach) -> BudgetReport:
    return BudgetReport(b.budget, b.healthy, b.after, b.needed)
