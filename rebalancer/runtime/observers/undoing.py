"""Who undoes what this tool does, measured from what became of its evictions, and named as far as it is
known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rebalancer.model.finding import Finding, Severity
from rebalancer.model.node import NODEPOOL
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.plan import Plan
from rebalancer.policy.history.ledger import Entry
from rebalancer.policy.history.resting_owners import returns
from rebalancer.policy.history.tally import DAY
from rebalancer.policy.history.undone_moves import Account
from rebalancer.policy.limits.caps import PER_DAY
from rebalancer.report.wording.text import plural
from rebalancer.runtime.observers.neighbours import NeighbourCode, descheduler_pod

Today = Callable[[str], Sequence[Entry]]
"""The evictions of an owner's pods (Kind/namespace/name) within a day."""


def undone(snapshot: Snapshot, plan: Plan, moves: Account, today: Today) -> tuple[Finding, ...]:
    """What the plan of a cluster, beside the week's moves and the day's evictions, shows of it."""
    return (*_removals(snapshot, moves), *_used_up(snapshot, plan, today))


def _removals(snapshot: Snapshot, moves: Account) -> tuple[Finding, ...]:
    """That consolidation and spread contradict each other, measured by what became of the week's moves."""
    if not moves.contradicts:
        return ()
    return (
        Finding(
            Severity.WARNING,
            NeighbourCode.UNDOING.value,
            "Cluster",
            f"{_remover(snapshot)} undid {moves.undone} of {moves.moves} moves "
            "this week: it removed the nodes on which the replacements had landed",
            "let it keep nodes in every zone (Karpenter: consolidationPolicy WhenEmpty, or a disruption "
            "budget of the NodePool), or accept the skew with a larger maxSkew",
        ),
    )


def _used_up(snapshot: Snapshot, plan: Plan, today: Today) -> Iterator[Finding]:
    """Owners that have had all their evictions of a day, and whose violations came back after them."""
    waiting = {m.owner.key: m.owner for m in plan.moves if m.waits is not None and PER_DAY in m.waits.numbers}
    for key, owner in sorted(waiting.items()):
        entries = today(key)
        if (times := returns(entries)) < 1:
            continue
        yield Finding(
            Severity.WARNING,
            NeighbourCode.LOOP.value,
            key,
            f"{plural(len(entries), 'pod')} of it were evicted within a day, and its violation has come back "
            f"{plural(times, 'time')}: {'; '.join(_others(snapshot, owner, entries))}",
            "keep that from undoing the spread, or accept the skew with a larger maxSkew; it goes on when "
            "today's evictions are a day old (evictions.maxPerOwnerPerDay)",
        )


def _others(snapshot: Snapshot, owner: Workload, entries: Sequence[Entry]) -> list[str]:
    """Those who have changed the owner's pods meanwhile, as far as it shows."""
    found = [
        f"HorizontalPodAutoscaler {a.metadata.name} scales it"
        for a in snapshot.autoscalers
        if a.spec.min_replicas < a.spec.max_replicas
        and a.metadata.namespace == owner.namespace
        and (a.spec.scale_target_ref.kind, a.spec.scale_target_ref.name) == (owner.kind, owner.metadata.name)
    ]
    if any(e.removed for e in entries):
        found.append(f"{_remover(snapshot)} removed nodes on which its replacements had landed")
    if _rolled_out(snapshot, owner):
        found.append("it was rolled out")
    if (pod := descheduler_pod(snapshot.pods)) is not None:
        found.append(f"a descheduler runs ({pod.key})")
    return found or ["something else moves its pods, which leaves no trace that is read here"]


def _remover(snapshot: Snapshot) -> str:
    return "Karpenter" if any(NODEPOOL in n.labels for n in snapshot.nodes) else "an autoscaler"


def _rolled_out(snapshot: Snapshot, owner: Workload) -> bool:
    """Whether a revision of it began within a day."""
    return any(
        w.metadata.creation_timestamp is not None
        and snapshot.now - w.metadata.creation_timestamp.timestamp() < DAY
        for w in snapshot.workloads
        if snapshot.owner_of(w.namespace, w.owner) is owner
    )
