"""The circuit breaker: when nothing is evicted because the cluster is unwell, or a cycle ended badly.

What can be looked at is looked at before each eviction, and nothing of it lasts once it is over: nodes that
are NotReady, pods that evictions may have left without a node, replacements that do not start. What only
shows when it is tried (an API server that fails, replacements that do not become Ready) opens the breaker for
a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.workload import Workload
from rebalancer.policy.history.ledger import HOUR, Circuit, Fate, Ledger
from rebalancer.policy.options import Limit

_DOUBLINGS = 3
"""Each further trip in a row doubles the pause, so many times at most."""
_FEW = 3
"""So many displaced pods are allowed where a percentage of a small cluster would be less."""
_ASTRAY = 3
"""So many owners in a row: one or two may have reasons of their own."""
_SKEW = 60.0
"""Seconds that the clocks of two machines may well differ."""


class CircuitLimits(Struct, frozen=True, kw_only=True):
    """`not_ready`: nodes that may be NotReady. `displaced`: pods that may be Pending because of evictions; a
    percentage is of the cluster's pods, and means three at least. `late`: with so many replacements that are
    late nothing more is evicted. `pause`: seconds without evictions after the first trip, doubled by each
    further one in a row. `scope`: the namespaces of who trips it; () = all."""

    not_ready: Limit = Limit(percent=20)
    displaced: Limit = Limit(percent=1)
    late: int = 3
    pause: float = 600.0
    scope: tuple[str, ...] = ()

    def pause_after(self, trips: int) -> float:
        """Seconds without evictions after so many trips in a row."""
        return float(self.pause * 2 ** min(max(trips - 1, 0), _DOUBLINGS))

    def most_displaced(self, pods: int) -> int:
        """How many displaced pods a cluster of so many may have."""
        allowed = self.displaced.of(pods)
        return allowed if self.displaced.number is not None else max(_FEW, allowed)


def too_many_not_ready(nodes: Collection[Node], limits: CircuitLimits) -> Reason | None:
    """Why nothing is evicted while so many nodes are NotReady."""
    not_ready, limit = sum(not n.ready for n in nodes), limits.not_ready
    # A share is rounded down, to one at least: of six nodes two may be a zone.
    most = min(limit.of(len(nodes)), limit.share(len(nodes)))
    if not_ready <= most:
        return None
    return Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"{not_ready} of {len(nodes)} nodes are NotReady, at most {most} may be",
        {"notReady": not_ready, "nodes": len(nodes), "most": most},
        "mend the nodes; the limit is breaker.maxNotReadyNodes",
    )


UNASKED_FOR = 1800.0
"""Seconds after which what workloads say of their pods may be their own, if others' were made since.
Their controllers say it once, try again every 17 min at least, and take it back when that succeeds."""


def not_made(
    workloads: Iterable[Workload], pods: Iterable[Pod], now: float
) -> tuple[Reason | None, frozenset[str]]:
    """Why nothing is evicted while the API server cannot ask a webhook, or fails inside, for new pods; and
    the namespaces of which that says nothing. A webhook may be asked about some alone, and be gone for
    months: it is not about those in which nothing is refused, and a pod was made since the last began to be.
    """
    since = {w.counted_as: w.unasked_since for w in workloads if w.unasked_since is not None}
    refused, last = sorted(since), max(since.values(), default=now)
    made = {p.namespace for p in pods if now - last >= UNASKED_FOR and _made_since(p, last + _SKEW)}
    if not refused or (len(refused) == 1 and made):
        return None, frozenset()
    kind, namespace, name = refused[0].split("/")
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    reason = Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"the API server refuses new pods of {kind} {namespace}/{name}{more}, as it cannot ask a webhook or "
        "fails inside: it may refuse others, too",
        {"refused": len(refused)},
        f"kubectl -n {namespace} describe {kind.lower()} {name} says which; it ends when pods are made",
    )
    return reason, frozenset(made - {key.split("/")[1] for key in refused})


def too_many_displaced(displaced: Collection[str], most: int) -> Reason | None:
    """Why nothing is evicted while so many pods (namespace/name) may be Pending because of evictions."""
    if len(displaced) <= most:
        return None
    return Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"{len(displaced)} pods are Pending, at most {most} may be, that evictions of the last hour may have "
        f"left without a node: {min(displaced)}, …",
        {"displaced": len(displaced), "most": most},
        "make room for them; it goes on as soon as they run or are gone; the limit is breaker.maxDisplaced",
    )


def too_many_late(late: Mapping[str, str], most: int) -> Reason | None:
    """Why nothing is evicted while so many replacements (namespace/name → what it waits for) do not start."""
    if len(late) < most:
        return None
    some = ", ".join(f"{pod} ({why})" for pod, why in sorted(late.items())[:_FEW])
    return Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"{len(late)} replacements do not start in time: {some}{', …' if len(late) > _FEW else ''}",
        {"late": len(late), "most": most},
        "look at their events, or at their owners' where there is no new pod: image, network, volumes, "
        "admission; it goes on as soon as they are Ready or no longer wanted; the limit is breaker.maxLate",
    )


def too_many_unsettled(waiting: Mapping[str, str], most: int) -> Reason | None:
    """Why nothing is evicted while so many replacements of earlier cycles are not Ready yet."""
    if len(waiting) < most:
        return None
    some = ", ".join(sorted(waiting)[:_FEW])
    return Reason(
        ReasonCode.CLUSTER_UNWELL,
        f"{len(waiting)} replacements of earlier cycles are not Ready yet: {some}",
        {"waiting": len(waiting), "most": most},
        "it goes on as soon as they are Ready, or no longer wanted",
    )


def all_astray(ledger: Ledger, cycle: str) -> str:
    """That no replacement of the last few owners went as predicted, however long ago, the last one in this
    cycle; "" where one did. Another of the same owner tells nothing more of the cluster, and one that may go
    elsewhere by what was planned tells nothing where it does."""
    since = takewhile(lambda e: e.fate is not Fate.DONE, reversed(ledger.entries))
    astray = [e for e in since if e.fate is Fate.ELSEWHERE and not e.likely]
    if len({e.owner for e in astray}) < _ASTRAY or astray[0].cycle != cycle:
        return ""
    return f"none of the last {_ASTRAY} owners' replacements went as predicted; the last: {astray[0].message}"


def tripped(circuit: Circuit, why: str, *, now: float, limits: CircuitLimits) -> Circuit:
    """The circuit after another trip, which shortens none before: another process may have longer pauses."""
    trips = circuit.trips + 1
    until = max(circuit.until, now + limits.pause_after(trips))
    every = not limits.scope or (circuit.trips > 0 and not circuit.scope)
    scope = () if every else tuple(sorted({*circuit.scope, *limits.scope}))
    return Circuit(until=until, trips=trips, reason=why, opened=now, scope=scope)


def covers(circuit: Circuit, limits: CircuitLimits) -> bool:
    """Whether these limits are of who looks at all that the circuit was opened for."""
    return not limits.scope or (bool(circuit.scope) and set(circuit.scope) <= set(limits.scope))


def from_now(circuit: Circuit, *, now: float, limits: CircuitLimits) -> Circuit:
    """The circuit; one that would be open for longer than any trip can mean ends `sooner`, a pause from now.

    It was opened by a clock that was ahead, or this one is behind. It is neither closed for that, nor open
    until such a time comes. `until` stays, so that a clock that is behind closes nothing for the others.
    """
    if not circuit.trips or not _too_far(circuit, circuit.until, now, limits):
        return circuit
    if circuit.sooner and not _too_far(circuit, circuit.sooner, now, limits):
        return circuit
    return replace(circuit, sooner=now + limits.pause_after(circuit.trips))


def still_open(circuit: Circuit, *, now: float, limits: CircuitLimits) -> Reason | None:
    """Why nothing is evicted yet, and when evicting is tried again; None if the breaker is closed."""
    until, why = circuit.until, circuit.reason
    if circuit.sooner and _too_far(circuit, until, now, limits):
        why += (
            f" (its end lies {(until - now) / HOUR:,.1f} h ahead, by a clock that was wrong or a longer "
            f"breaker.pause; shortened to {limits.pause_after(circuit.trips):,.0f} s)"
        )
        until = circuit.sooner
    if not circuit.trips or now >= until:
        return None
    again = datetime.fromtimestamp(until, UTC)
    return Reason(
        ReasonCode.CIRCUIT_OPEN,
        f"the circuit breaker is open: {why}; it is tried again at {again:%H:%M:%S}Z",
        {"until": int(until), "trips": circuit.trips},
        "mend the cause; `rebalancer once --execute` does not wait",
    )


def unread(ledger: Ledger, where: str, *, now: float) -> Reason | None:
    """Why nothing is evicted for now: a ledger could not be read, and nobody knows what it forbade."""
    if now >= ledger.unread:
        return None
    again = datetime.fromtimestamp(ledger.unread, UTC)
    return Reason(
        ReasonCode.CIRCUIT_OPEN,
        f"{where} could not be read, so that nobody knows which caps are used up and whether the circuit "
        f"breaker is open: nothing is evicted before {again:%H:%M:%S}Z",
        {"until": int(ledger.unread)},
        f"wait, or delete {where} to begin as in a first run, with the canary",
    )


def _too_far(circuit: Circuit, end: float, now: float, limits: CircuitLimits) -> bool:
    """Whether an end lies further ahead than the circuit's last trip can mean."""
    return end - now > limits.pause_after(circuit.trips) + _SKEW


# Is there a scheduler that works? Without one, every replacement would stay Pending.
#
# A scheduler that has looked at a pod says so in the pod's condition PodScheduled, whatever came of it. So
# pods without one for half a minute mean that nobody looks at them, or that the queue is as long as that.

PATIENCE = 30.0
"""Seconds that a scheduler may take to look at a pod for the first time."""
_SCHEDULED = frozenset(
    {
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("", "ReplicationController"),
        ("batch", "Job"),
    }
)
"""API group and kind of the owners whose pods are bound by a scheduler. Kubernetes' own DaemonSets have left
that to it since 1.12. Whoever makes pods by hand or by a controller of an add-on often names the node."""


def overlooked(pods: Iterable[Pod], now: float) -> Mapping[str, Sequence[Pod]]:
    """Name of a scheduler → its pods that it should have looked at by now."""
    found: dict[str, list[Pod]] = defaultdict(list)
    for p in pods:
        if p.node_name or p.judged or p.created is None or now - p.created < PATIENCE:
            continue
        if p.waits and not _held_back(p):
            found[p.template.scheduler_name].append(p)
    return found


def judged_since(pods: Iterable[Pod], time: float) -> bool:
    """Whether a scheduler has looked at one of these pods, which was created after that time.

    A pod on a node does not tell by itself who put it there: a kubelet says PodScheduled too, of its own
    (static) pods and of those whose maker named the node, as `kubectl debug node/…` does.
    """
    return any(
        p.created is not None
        and p.created > time
        and (bool(p.unschedulable) or (bool(p.node_name) and _by_scheduler(p)))
        for p in pods
    )


def made_since(pods: Iterable[Pod], time: float) -> bool:
    """Whether one of these pods was made by Kubernetes' own controllers after that time."""
    return any(_made_since(p, time) for p in pods)


def _made_since(pod: Pod, time: float) -> bool:
    return pod.created is not None and pod.created > time and _by_scheduler(pod)


def silent(scheduler: str, pods: Sequence[Pod]) -> Reason:
    """Why nothing is evicted while these pods of a scheduler are overlooked."""
    first = min(pods, key=lambda p: (p.created or 0.0, p.key))
    many = f"{len(pods)} pods wait" if len(pods) > 1 else "a pod waits"
    return Reason(
        ReasonCode.SCHEDULER_SILENT,
        f"{many} for scheduler {scheduler}, which has not looked at {first.key} for {PATIENCE:.0f} s or more",
        {"pods": len(pods)},
        f"look whether scheduler {scheduler} runs, what it logs, and how long its queue is",
    )


def expired(name: str, holder: str, renewed: str) -> Reason:
    """Why nothing is evicted while nobody renews the lease of the scheduler, or of the controllers."""
    scheduler = name == "kube-scheduler"
    return Reason(
        ReasonCode.SCHEDULER_SILENT if scheduler else ReasonCode.CLUSTER_UNWELL,
        f"no {'scheduler' if scheduler else 'controller'} works: nobody renews lease kube-system/{name}, "
        f"last {holder or 'nobody'}, {renewed or 'never'}",
        {},
        f"look whether {name} runs; a lease that it does not use any more counts until a pod that is younger "
        f"and not made by hand has been {'scheduled' if scheduler else 'made'}: delete it",
    )


def _by_scheduler(pod: Pod) -> bool:
    """Whether pods of such an owner get their node from a scheduler."""
    if pod.owner is None:
        return False
    group = pod.owner.api_version.rpartition("/")[0]
    return (group, pod.owner.kind) in _SCHEDULED


def _held_back(pod: Pod) -> bool:
    """Whether a plugin may keep it out of the queue, of which no condition tells."""
    return pod.template.resource_claims or bool(pod.template.scheduling_group)
