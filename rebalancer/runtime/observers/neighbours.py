"""What a cluster has that evictions must be seen beside: other programs that move pods, a scheduler that is
newer than all known rules. Two programs that work against each other never end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter

from msgspec.structs import replace

from rebalancer.findings.survey import FindingCode
from rebalancer.model.node import KARPENTER_TAINTS, NODEPOOL, is_leaving
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Finding, Reason, ReasonCode, Severity, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.outcome import Observer
from rebalancer.planner.plan import Plan
from rebalancer.policy.caps import PER_DAY
from rebalancer.policy.history.ledger import DAY, Entry
from rebalancer.policy.history.waits import Account, returns
from rebalancer.policy.options import COMPONENT, NAME, OURS


class NeighbourCode(StrEnum):
    """Each that is looked for; the same word in report, log and documentation."""

    DESCHEDULER = "descheduler-present"
    REBALANCERS = "several-rebalancers"
    CONSOLIDATING = "karpenter-consolidating"
    KARPENTER = "karpenter-present"
    STUCK = "drift-stuck"
    DRAIN = "drain-running"
    UNDOING = "autoscaler-undoes-moves"
    LOOP = "evictions-are-undone"
    OUT = "domain-out"
    FORBIDDEN = "may-not-evict"


_LOUD = frozenset({FindingCode.NEWER_VERSION.value, NeighbourCode.UNDOING.value, NeighbourCode.LOOP.value})
"""Findings of a plan that the log is told of too, once by code."""
_LOUD_EACH = frozenset(
    {FindingCode.UNCLEAR_ANNOTATION.value, FindingCode.MATCHES_NOTHING.value, NeighbourCode.OUT.value}
)
"""Findings that the log is told of too, once by what they say, with how many say it."""
_EVICTING = ("daemon", "cycle")
"""Components of an installation that may evict, as the manifests call them."""
_MADE_ANEW = ("ReplicaSet", "Job")
"""Kinds of owners of which there is another with each rollout, or each run."""
Find = Callable[[str, str, str], Workload | None]
"""The owner of that kind, namespace and name, where it is known."""


def neighbours(snapshot: Snapshot) -> tuple[Finding, ...]:
    """The neighbours that a snapshot shows."""
    return (
        *_descheduler(snapshot),
        *_rebalancers(snapshot),
        *_karpenter(snapshot),
        *_drains(snapshot),
    )


def held_by_descheduler(pods: Collection[Pod]) -> Reason | None:
    """Why nothing is evicted beside a descheduler, unless policy says otherwise; None if there is none.

    Whether its spread plugin is on stands in a ConfigMap that may not be read; its own chart turns it on.
    """
    found = descheduler_pod(pods)
    if found is None:
        return None
    return Reason(
        ReasonCode.DESCHEDULER,
        f"a descheduler runs in this cluster ({found.key}): two that spread pods undo each other's work",
        {},
        "turn off its RemovePodsViolatingTopologySpreadConstraint and set evictions.besideDescheduler: evict",
    )


def descheduler_pod(pods: Collection[Pod]) -> Pod | None:
    """A pod of a descheduler, if one runs."""
    return next(iter(_of_program(pods, "descheduler")), None)


def _of_program(pods: Collection[Pod], what: str) -> list[Pod]:
    """The pods that run a program, or have just run it."""
    such = {id(template) for template in set(map(attrgetter("template"), pods)) if _runs(template, what)}
    return [p for p in pods if id(p.template) in such and not _over(p)] if such else []


def _descheduler(snapshot: Snapshot) -> Iterable[Finding]:
    found = descheduler_pod(snapshot.pods)
    if found is not None:
        yield Finding(
            Severity.WARNING,
            NeighbourCode.DESCHEDULER.value,
            f"Pod/{found.key}",
            "a descheduler runs in this cluster: what one evicts the other may evict again",
            "turn off its RemovePodsViolatingTopologySpreadConstraint; until evictions.besideDescheduler is "
            "set to evict, nothing is evicted beside it",
        )


_TURN, _ACTS = 20.0, 12.0
"""Seconds of a turn, and for how many of them its installation acts: then others see where its pods went."""


def turn(pods: Collection[Pod], find: Find, home: str, host: str, now: float) -> float:
    """Seconds until the installation that runs on `host`, in the namespace `home`, may evict, 0 if it may.

    Several installations, which may not read each other's leases, would fill the same room at the same
    moment. So they take turns, in the order of their names, by the API server's clock.
    """
    there = _installations(pods, find)
    here = sorted(i for i in there if i[0] == home) or [(home, "")]
    # Who has no pod there, as on a terminal, acts for an installation of its namespace.
    mine = next((i for i in here if host in there.get(i, ())), here[0])
    where = sorted({mine, *there})
    if len(where) == 1:
        return 0.0
    # Rounded: who waits until its turn is not to be a moment early.
    since = round(now - _TURN * where.index(mine), 3) % (_TURN * len(where))
    return 0.0 if since < _ACTS else _TURN * len(where) - since


def _installations(pods: Collection[Pod], find: Find) -> dict[tuple[str, str], set[str]]:
    """The installations that show, by namespace and name, with the hosts on which they run.

    The name is that of a Deployment or CronJob: it stays when pods are made anew. "": of pods that do not say
    that they evict, as those that report; they are one installation, where their namespace has no other.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for p in _of_program(pods, OURS):
        owner = find(p.owner.kind, p.namespace, p.owner.name) if p.owner is not None else None
        top = (owner and owner.owner) or p.owner
        evicts = p.template.labels.get(COMPONENT) in _EVICTING
        name = top.name if evicts and top is not None and top.kind not in _MADE_ANEW else ""
        # Longer names of hosts are cut: kubernetes pkg/kubelet/kubelet_pods.go.
        found.setdefault((p.namespace, name), set()).add(p.name[:63].rstrip("-."))
    named = {namespace for namespace, name in found if name}
    return {i: hosts for i, hosts in found.items() if i[1] or i[0] not in named}


def _rebalancers(snapshot: Snapshot) -> Iterable[Finding]:
    """Several installations. Each may see lease and ledger of its own only, so they do not stop each other;
    but everybody sees their pods."""
    where = sorted(_installations(snapshot.pods, lambda *key: snapshot.workloads_by_name.get(key)))
    if len(where) > 1:
        said = ("/".join(filter(None, i)) for i in where[:3])
        yield Finding(
            Severity.WARNING,
            NeighbourCode.REBALANCERS.value,
            "Namespace/" + where[1][0],
            f"{len(where)} rebalancers run ({', '.join(said)}): they take turns to evict, and none knows of "
            "the others' caps and pauses",
            "keep one; or give them one lease, ledger and brake (namespace and name in leaderElection, "
            "ledger, brake, with their rights), or scopes that do not overlap",
        )


def _karpenter(snapshot: Snapshot) -> Iterable[Finding]:
    going = sorted(_disrupted(snapshot))
    if going:
        yield Finding(
            Severity.WARNING,
            NeighbourCode.CONSOLIDATING.value,
            f"Node/{going[0]}",
            f"Karpenter is taking away {plural(len(going), 'node')}: pods move meanwhile, plans may not hold",
            "let it finish; a disruption budget of the NodePool keeps it to other hours than these",
        )
    elif any(NODEPOOL in n.labels for n in snapshot.nodes):
        yield Finding(
            Severity.INFO,
            NeighbourCode.KARPENTER.value,
            "Node/" + min(n.name for n in snapshot.nodes if NODEPOOL in n.labels),
            "Karpenter manages nodes here and may consolidate them: it packs, this spreads",
            "give its NodePools a disruption budget, or keep them to other hours than schedule.windows",
        )

    late = {name for name, _, until in snapshot.outgoing if until <= snapshot.now} - snapshot.going
    stuck = sorted(late.intersection(n.name for n in snapshot.nodes))
    if stuck:
        yield Finding(
            Severity.WARNING,
            NeighbourCode.STUCK.value,
            f"Node/{stuck[0]}",
            f"Karpenter is to replace {plural(len(stuck), 'node')} (drifted or expired), and has not "
            "for an hour or longer: they count as nodes that stay",
            "look for what holds it: its events on the node, a disruption budget of 0, do-not-disrupt",
        )


def _disrupted(snapshot: Snapshot) -> set[str]:
    return {n.name for n in snapshot.nodes if any(t.key in KARPENTER_TAINTS for t in n.spec.taints)}


def _drains(snapshot: Snapshot) -> Iterable[Finding]:
    """A node that is cordoned, or that the cluster-autoscaler gives up, whose pods are going. A DaemonSet's
    are not counted: they stay through a drain, and go when they are updated."""
    emptied = {n.name for n in snapshot.nodes if is_leaving(n)} - _disrupted(snapshot)
    leaving = Counter(
        p.node_name
        for p in snapshot.pods
        if p.terminating
        and p.node_name in emptied
        and not (p.owner is not None and p.owner.kind == "DaemonSet")
    )
    if leaving:
        node, pods = min(leaving.items())
        yield Finding(
            Severity.WARNING,
            NeighbourCode.DRAIN.value,
            f"Node/{node}",
            f"a drain: {plural(pods, 'pod')} of this node, which takes no new ones, "
            + ("is going" if pods == 1 else "are going")
            + (f"; {plural(len(leaving), 'node')} in all" if len(leaving) > 1 else ""),
            "nothing: budgets are shared with it, and nodes that change end a wave",
        )


def _over(pod: Pod) -> bool:
    """Whether its program runs no more. A CronJob often has only the finished pod of its last run."""
    return pod.finished and not (pod.owner is not None and pod.owner.kind == "Job")


def _runs(template: PodTemplate, what: str) -> bool:
    """Whether pods of this template run that program."""
    labels = template.labels
    if labels.get(NAME) == what or labels.get("app") == what or labels.get("k8s-app") == what:
        return True
    return any(
        c.image.rsplit("/", 1)[-1].partition(":")[0].partition("@")[0] == what for c in template.containers
    )


class NeighbourWatch(Observer):
    """Reports each neighbour, and a scheduler that is too new, once, and again if it comes back."""

    def __init__(self, tell: Observer) -> None:
        self._tell = tell
        self._there: frozenset[str] = frozenset()
        self._seen: tuple[object, object] = (None, None)
        self._said: frozenset[str] = frozenset()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        if self._seen[0] is snapshot.pods and self._seen[1] is snapshot.nodes:
            return
        self._seen = snapshot.pods, snapshot.nodes
        found = {f.code: f for f in neighbours(snapshot)}
        for code, finding in found.items():
            if code not in self._there:
                self._tell.on_notice(finding)
        self._there = frozenset(found)

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        loud = {f.code: f for f in plan.findings if f.code in _LOUD}
        loud |= {f"{f.code} {f.object} {f.message}": f for f in plan.findings if f.code in _LOUD_EACH}
        new = [f for said, f in loud.items() if said not in self._said]
        for (_, message), times in Counter((f.code, f.message) for f in new).items():
            first = next(f for f in new if f.message == message)
            more = f"; the same of {plural(times - 1, 'other object')}" if times > 1 else ""
            self._tell.on_notice(replace(first, message=message + more))
        self._said = frozenset(loud)


# Who undoes what this tool does, measured from what became of its evictions, and named as far as it is
# known.

Today = Callable[[str], Sequence[Entry]]
"""The evictions of an owner's pods (Kind/namespace/name) within a day."""


def undone(snapshot: Snapshot, plan: Plan, moves: Account, today: Today) -> tuple[Finding, ...]:
    """What the plan of a cluster, beside the week's moves and the day's evictions, shows of it."""
    return (*_removals(snapshot, moves), *_used_up(snapshot, plan, today))


def _removals(snapshot: Snapshot, moves: Account) -> tuple[Finding, ...]:
    """That the removal of nodes and spread contradict each other, by what became of the week's moves."""
    if not moves.contradicts:
        return ()
    return (
        Finding(
            Severity.WARNING,
            NeighbourCode.UNDOING.value,
            "Cluster",
            f"{moves.undone} of {moves.moves} moves of this week were undone, at {moves.disturbances} times: "
            f"nodes became fewer soon after where the replacements had landed, by {_remover(snapshot)}",
            "where it was an autoscaler, let it keep nodes in every zone (Karpenter: consolidationPolicy "
            "WhenEmpty, or a disruption budget of the NodePool), or accept the skew with a larger maxSkew",
        ),
    )


def out_domains(out: Mapping[str, Reason]) -> Iterator[Finding]:
    """The domains that are out."""
    for domain, reason in out.items():
        yield Finding(
            Severity.WARNING,
            NeighbourCode.OUT.value,
            f"Domain/{domain}",
            f"what its opening could change {reason.message}; its pods count for spread and budgets",
            reason.remedy,
            numbers=reason.numbers,
        )


def closed(namespaces: Mapping[str, Reason]) -> Iterator[Finding]:
    """The namespaces in which nothing may be evicted, or cannot be asked for."""
    for name, reason in namespaces.items():
        remedy = f"{reason.remedy}, or leave the namespace out (scope.namespaces.exclude)"
        code = NeighbourCode.FORBIDDEN.value
        yield Finding(Severity.ERROR, code, f"Namespace/{name}", reason.message, remedy)


def _used_up(snapshot: Snapshot, plan: Plan, today: Today) -> Iterator[Finding]:
    """Owners that have had all their evictions of a day, and whose violations came back after them."""
    waiting = {m.owner.key: m.owner for m in plan.moves if m.waits is not None and PER_DAY in m.waits.numbers}
    for key, owner in sorted(waiting.items()):
        entries = today(owner.counted_as)
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
    """Who else has changed the owner's pods since these evictions, as far as it shows."""
    found = [
        f"HorizontalPodAutoscaler {a.metadata.name} scales it"
        for a in snapshot.autoscalers
        if a.spec.min_replicas < a.spec.max_replicas
        and a.metadata.namespace == owner.namespace
        and (a.spec.scale_target_ref.kind, a.spec.scale_target_ref.name) == (owner.kind, owner.metadata.name)
    ]
    if any(e.removed for e in entries):
        found.append(f"nodes on which its replacements had landed went, by {_remover(snapshot)}")
    if _rolled_out(snapshot, owner):
        found.append("it was rolled out")
    if (pod := descheduler_pod(snapshot.pods)) is not None:
        found.append(f"a descheduler runs ({pod.key})")
    return found or ["something else moves its pods, which leaves no trace that is read here"]


def _remover(snapshot: Snapshot) -> str:
    karpenter = any(NODEPOOL in n.labels for n in snapshot.nodes)
    return "Karpenter or an outage" if karpenter else "an autoscaler, an upgrade or an outage"


def _rolled_out(snapshot: Snapshot, owner: Workload) -> bool:
    """Whether a revision of it began within a day."""
    return any(
        w.metadata.creation_timestamp is not None
        and snapshot.now - w.metadata.creation_timestamp.timestamp() < DAY
        for w in snapshot.workloads
        if snapshot.owner_of(w.namespace, w.owner) is owner
    )
