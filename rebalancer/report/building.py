"""The report of a plan: its content, built once for all formats.

Everything except `generatedAt` and `summary.seconds` follows from the snapshot and the settings alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from heapq import merge
from itertools import groupby

from msgspec import UNSET

from rebalancer.findings import order
from rebalancer.model.node import Node
from rebalancer.model.quantity import rfc3339
from rebalancer.model.reason import Finding, Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.pace import AT_ONCE, Throttle, chains, pace
from rebalancer.planner.plan import Move, Plan
from rebalancer.report.document import DrillReport, EvictionReport, Fix, Report, Summary, Wait
from rebalancer.report.failing_domains import domain_losses, grades, risks, workload_pods
from rebalancer.room.search import Room
from rebalancer.spread.constraint import resolve


def build_report(
    plan: Plan,
    snapshot: Snapshot,
    *,
    generated_at: float,
    seconds: float,
    cluster: str = "",
    around: Iterable[Finding] = (),
    namespaces: Collection[str] = (),
    drill: DrillReport | None = None,
    throttle: Throttle = AT_ONCE,
    room: Room | None = None,
    waits: Iterable[tuple[str, Reason]] = (),
) -> Report:
    """The report of a plan for a snapshot.

    `generated_at`: seconds since the epoch. `seconds`: how long all of it took. `cluster`: the
    name of the context, "" for files. `around`: findings about other tools that move pods, which are not part
    of the plan. `namespaces`: whose workloads the zones are about, all if there are none. `drill`: what
    failures leave Pending, where it was asked for. `throttle`: what holds evictions back beside the plan.
    `room`: what room is missing, where it was looked for. `waits`: owner and reason of what the daemon waits
    for.
    """
    domains = _DomainsOfNodes(snapshot.nodes)
    workloads = workload_pods(plan, snapshot)
    at_risk = risks(workloads, snapshot)
    took, first = pace(plan, snapshot, throttle), _waits_for(plan)
    in_view = [w for w in workloads if not namespaces or w.namespace in namespaces]
    return Report(
        generated_at=rfc3339(generated_at),
        cluster=cluster,
        source=snapshot.source,
        assumptions=plan.assumptions,
        warnings=snapshot.warnings,
        summary=Summary(
            nodes=len(snapshot.nodes),
            pods=len(snapshot.pods),
            constraints=len(plan.constraints),
            violated=plan.violated,
            excess=plan.excess,
            evictions=len(plan.moves),
            lower_bound=plan.lower_bound,
            optimal=plan.optimal,
            residual_excess=plan.residual_excess,
            seconds=round(seconds, 3),
            unreadable=sum(r.unreadable for r in snapshot.reads),
            soft_ignored=_soft_ignored(plan, snapshot),
            expected_seconds=took.seconds,
            waves=len(took.waves),
            waves_bound=plan.waves_bound,
            takes_longest=took.longest,
            least_excess=plan.least_excess,
            least_exact=plan.least_exact,
            between=plan.between,
            undecided=snapshot.undecided,
        ),
        constraints=plan.constraints,
        evictions=tuple(
            _eviction(move, plan, domains, first.get(move.pod.key, ()), took.away[move.pod.uid])
            for move in sorted(plan.moves, key=lambda m: (m.wave, m.pod.namespace, m.pod.name))
        ),
        blocked=tuple(sorted(plan.blocked, key=lambda b: (b.pod.namespace, b.pod.name, b.reason.code))),
        findings=tuple(merge(plan.findings, sorted(around, key=order), key=order)),
        risks=at_risk,
        cluster_id=snapshot.cluster_id,
        captured_at=rfc3339(snapshot.now) if snapshot.now else "",
        waves=took.waves,
        domains=domain_losses(in_view, snapshot),
        namespaces=grades(at_risk, plan.constraints),
        drill=drill if drill is not None else UNSET,
        room=room if room is not None and room.nodes else UNSET,
        pending=tuple(
            sorted(p.key for p in snapshot.pods if not (p.node_name or p.finished or p.terminating))
        ),
        waits=tuple(Wait(owner, reason) for owner, reason in waits),
    )


def _soft_ignored(plan: Plan, snapshot: Snapshot) -> int:
    """How many soft constraints pods carry themselves, unless the plan looked at them."""
    if any(not c.constraint.hard for c in plan.constraints):
        return 0
    templates = {id(p.template): p.template for p in snapshot.pods if not p.finished}
    return len(
        {
            resolve(c, t)
            for t in templates.values()
            for c in t.spread
            if c.when_unsatisfiable == "ScheduleAnyway"
        }
    )


class _DomainsOfNodes:
    """The domains of nodes by a key; "" for a node that has none. Thousands of moves have thousands of
    nodes each."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = tuple(nodes)
        self._by_key: dict[str, defaultdict[str, str]] = {}

    def among(self, nodes: Iterable[str], key: str) -> tuple[str, ...]:
        """Each once, in the order of the nodes."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = defaultdict(str)
            found.update((n.name, n.labels.get(key, "")) for n in self._nodes)
        return tuple(dict.fromkeys(map(found.__getitem__, nodes)))


def _waits_for(plan: Plan) -> dict[str, tuple[str, ...]]:
    """By a pod that moves: the pods that move before it in its chain, those of the wave next to its own."""
    found: dict[str, tuple[str, ...]] = {}
    for chain in chains(plan, plan.moves):
        before: tuple[str, ...] = ()
        for _, moves in groupby(chain, key=lambda m: m.wave):
            now = tuple(sorted(m.pod.key for m in moves))
            found.update(dict.fromkeys(now, before))
            before = now
    return found


def _awaited(move: Move, key: str) -> tuple[str, ...]:
    """The domains of this key in which a node has to be added."""
    return tuple(d.partition("=")[2] for d in move.awaits if d.startswith(f"{key}="))


def _eviction(
    move: Move, plan: Plan, domains: _DomainsOfNodes, waits_for: tuple[str, ...], away: int
) -> EvictionReport:
    keys = [(i, plan.constraints[i].constraint.topology_key) for i in move.fixes]
    landing = (move.predicted, *move.destinations)
    return EvictionReport(
        move,
        tuple(
            Fix(
                i,
                key,
                domains.among((move.pod.node_name,), key)[0],
                _awaited(move, key) or domains.among(landing, key),
            )
            for i, key in keys
        ),
        waits_for,
        away,
    )
