"""The content of the report. Every format renders this and nothing else; its JSON is a public interface.

The names belong to `rebalancer/v1`: fields may be added, but are never renamed. Everything except
`generatedAt` and `summary.seconds` follows from the snapshot and the settings alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from heapq import merge

from msgspec import UNSET, Struct, UnsetType, field

from rebalancer.findings import order
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.node import Node
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import ConstraintResult, Move, Plan, Status
from rebalancer.planner.results.pace import AT_ONCE, Gait, pace
from rebalancer.report.api_version import API_VERSION
from rebalancer.report.drilled.document import DrillReport
from rebalancer.report.failing_domains.grades import NamespaceGrade, grades
from rebalancer.report.failing_domains.risk import Risk, risks
from rebalancer.report.failing_domains.workload_pods import workload_pods
from rebalancer.report.failing_domains.zones import DomainLoss, domain_losses
from rebalancer.report.pace import WaveReport, waves
from rebalancer.report.room.document import RoomReport
from rebalancer.spread.constraint import resolve


class BetweenReport(Struct, frozen=True, rename="camel"):
    """How much excess stays that some placement would not have, for one cause: "not-placed", "forbidden",
    "not-walkable" or "search-gave-up"; `message` says it in words."""

    cause: str
    excess: int
    message: str


class Summary(Struct, frozen=True, rename="camel"):
    """Figures of the whole cluster.

    `violated`, `excess` and `residual_excess` are about the constraints in scope. `lower_bound`: no plan
    reaches the best final state with fewer evictions. `unreadable`: objects that were left out.
    `soft_ignored`: ScheduleAnyway constraints that settings leave out. `expected_seconds`: how long carrying
    out the plan may take; `takes_longest`: why no less, "" if nothing keeps it to more than one wave.
    `waves_bound`: waves that budgets, shares of owners, and moves that depend on landings take at least.
    `least_excess`: no placement of the pods that may move leaves less excess of hard constraints;
    `least_exact`: one leaves as little, as far as room goes. `between`: why the plan leaves more, by cause.
    """

    nodes: int
    pods: int
    constraints: int
    violated: int
    excess: int
    evictions: int
    lower_bound: int
    optimal: bool
    residual_excess: int
    seconds: float
    unreadable: int = 0
    soft_ignored: int = 0
    expected_seconds: int = 0
    waves: int = 0
    waves_bound: int = 0
    takes_longest: str = ""
    least_excess: int = 0
    least_exact: bool = True
    between: tuple[BetweenReport, ...] = ()


class Why(Struct, frozen=True, rename="camel"):
    """A reason with its figures."""

    code: str
    message: str
    numbers: dict[str, int]
    remedy: str


class ConstraintReport(Struct, frozen=True, rename="camel"):
    """A constraint now and after the plan. `selector` is in kubectl's -l syntax, None if absent.

    `worst_domain_loss`: the share of its pods that are lost if the fullest domain fails. `best_domain_loss`:
    the smallest such share that a placement can have. `least_excess`: no placement leaves this constraint
    less, whatever becomes of others; there only where some excess stays.
    """

    namespace: str
    workloads: tuple[str, ...]
    selector: str | None
    topology_key: str
    max_skew: int
    min_domains: int
    when_unsatisfiable: str
    domains: Mapping[str, int]
    after: Mapping[str, int]
    skew: int
    excess: int
    residual_excess: int
    status: Status
    reasons: tuple[Why, ...]
    worst_domain_loss: float
    best_domain_loss: float
    in_scope: bool
    least_excess: int | UnsetType = UNSET


class Destination(Struct, frozen=True, rename="camel"):
    """Where the replacement can land; `certain` = nowhere else. `predicted`: the node that the plan
    assumes."""

    nodes: tuple[str, ...]
    certain: bool
    predicted: str


class Fix(Struct, frozen=True, rename="camel"):
    """A constraint that an eviction helps: its index in `constraints`, the domain that the pod leaves, and
    the domains in which the replacement can land, the predicted one first."""

    constraint: int
    topology_key: str
    source: str = field(name="from")
    targets: tuple[str, ...] = field(name="to")


class JointReport(Struct, frozen=True, rename="camel"):
    """Evictions that go out together, in this order (namespace/name). `waitingIfBrokenOff`: so many
    replacements find no node if not all of them go; `gain`: by so much the excess falls at least."""

    number: int
    pods: tuple[str, ...]
    waiting_if_broken_off: int
    gain: int


class EvictionReport(Struct, frozen=True, rename="camel"):
    """One eviction of the plan. Evictions of one wave may be in flight together. `owner` is Kind/name.
    `waits`: the cap that leaves it to a later cycle; there only where one does. `joint`: the joint move that
    it is a part of; there only where it is."""

    namespace: str
    pod: str
    uid: str
    owner: str
    node: str
    destination: Destination
    wave: int
    fixes: tuple[Fix, ...]
    reason: str
    waits: Why | UnsetType = UNSET
    joint: JointReport | UnsetType = UNSET


class BlockedReport(Struct, frozen=True, rename="camel"):
    """A pod that could have been evicted and is not."""

    namespace: str
    pod: str
    reason: str
    message: str
    remedy: str


class FindingReport(Struct, frozen=True, rename="camel"):
    """A problem that no eviction cures. `remedy`: YAML to paste, or a command. `field`: its place in the
    object. `numbers`: figures of the message; there only where it has some. `since`: when it was seen first;
    there only where the ledger remembers."""

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str
    field: str = ""
    numbers: Mapping[str, int] | UnsetType = UNSET
    since: str | UnsetType = UNSET

    @property
    def says(self) -> str:
        """The message, and since when it is so."""
        return self.message if self.since is UNSET else f"{self.message} (so since {self.since})"


class Report(Struct, frozen=True, rename="camel", kw_only=True):
    """The whole report.

    `warnings`: what could not be read, with the consequences. `cluster_id`: the uid of namespace kube-system,
    "" if it is not known. `captured_at`: the time that the report speaks of. `drill`: there only where it was
    asked for. `room`: there only where nodes are missing.
    """

    api_version: str = API_VERSION
    kind: str = "Report"
    generated_at: str
    cluster: str
    source: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    summary: Summary
    constraints: tuple[ConstraintReport, ...]
    evictions: tuple[EvictionReport, ...]
    blocked: tuple[BlockedReport, ...]
    findings: tuple[FindingReport, ...]
    risks: tuple[Risk, ...] = ()
    cluster_id: str = ""
    captured_at: str = ""
    waves: tuple[WaveReport, ...] = ()
    domains: tuple[DomainLoss, ...] = ()
    namespaces: tuple[NamespaceGrade, ...] = ()
    drill: DrillReport | UnsetType = UNSET
    room: RoomReport | UnsetType = UNSET

    @property
    def by_wave(self) -> dict[int, list[EvictionReport]]:
        """The evictions of each wave, in the order of the waves."""
        found: dict[int, list[EvictionReport]] = {}
        for eviction in sorted(self.evictions, key=lambda e: e.wave):
            found.setdefault(eviction.wave, []).append(eviction)
        return found


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
    gait: Gait = AT_ONCE,
    room: RoomReport | None = None,
) -> Report:
    """The report of a plan for a snapshot.

    `generated_at`: seconds since the epoch. `seconds`: how long reading and planning took. `cluster`: the
    name of the context, "" for files. `around`: findings about other tools that move pods, which are not part
    of the plan. `namespaces`: whose workloads the zones are about, all if there are none. `drill`: what
    failures leave Pending, where it was asked for. `gait`: what holds evictions back beside the plan. `room`:
    what room is missing, where it was looked for.
    """
    domains = _DomainsOfNodes(snapshot.nodes)
    workloads = workload_pods(plan, snapshot)
    at_risk = risks(workloads, snapshot)
    took = pace(plan, snapshot, gait)
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
            between=tuple(BetweenReport(b.cause.value, b.excess, b.cause.words) for b in plan.between),
        ),
        constraints=tuple(map(_constraint, plan.constraints)),
        evictions=tuple(
            _eviction(move, plan, domains)
            for move in sorted(plan.moves, key=lambda m: (m.wave, m.pod.namespace, m.pod.name))
        ),
        blocked=tuple(
            BlockedReport(b.pod.namespace, b.pod.name, b.reason.code.value, b.reason.message, b.reason.remedy)
            for b in sorted(plan.blocked, key=lambda b: (b.pod.namespace, b.pod.name, b.reason.code))
        ),
        findings=tuple(_finding(f) for f in merge(plan.findings, sorted(around, key=order), key=order)),
        risks=at_risk,
        cluster_id=snapshot.cluster_id,
        captured_at=rfc3339(snapshot.now) if snapshot.now else "",
        waves=waves(took),
        domains=domain_losses(in_view, snapshot),
        namespaces=grades(at_risk, plan.constraints),
        drill=drill if drill is not None else UNSET,
        room=room if room is not None and room.missing else UNSET,
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


def _finding(f: Finding) -> FindingReport:
    since = rfc3339(f.since) if f.since is not None else UNSET
    return FindingReport(
        f.severity, f.code, f.object, f.message, f.remedy, f.field, f.numbers or UNSET, since
    )


def rfc3339(seconds: float) -> str:
    """A time as in the Kubernetes API: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _constraint(result: ConstraintResult) -> ConstraintReport:
    c = result.constraint
    return ConstraintReport(
        namespace=c.namespace,
        workloads=result.workloads,
        selector=str(c.selector) if c.selector is not None else None,
        topology_key=c.topology_key,
        max_skew=c.max_skew,
        min_domains=c.min_domains,
        when_unsatisfiable=c.when_unsatisfiable,
        domains=result.domains,
        after=result.after,
        skew=result.skew,
        excess=result.excess,
        residual_excess=result.residual_excess,
        status=result.status,
        reasons=tuple(map(_why, result.reasons)),
        worst_domain_loss=round(result.worst_domain_loss, 4),
        best_domain_loss=round(result.best_domain_loss, 4),
        in_scope=result.in_scope,
        least_excess=result.least_excess if result.least_excess is not None else UNSET,
    )


def _why(reason: Reason) -> Why:
    return Why(reason.code.value, reason.message, dict(reason.numbers), reason.remedy)


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


def _eviction(move: Move, plan: Plan, domains: _DomainsOfNodes) -> EvictionReport:
    keys = [(i, plan.constraints[i].constraint.topology_key) for i in move.fixes]
    landing = (move.predicted, *move.destinations)
    return EvictionReport(
        namespace=move.pod.namespace,
        pod=move.pod.name,
        uid=move.pod.uid,
        owner=f"{move.owner.kind}/{move.owner.name}",
        node=move.pod.node_name,
        destination=Destination(move.destinations, move.certain, move.predicted),
        wave=move.wave,
        fixes=tuple(
            Fix(
                i,
                key,
                domains.among((move.pod.node_name,), key)[0],
                domains.among(landing, key),
            )
            for i, key in keys
        ),
        reason=move.reason,
        waits=_why(move.waits) if move.waits is not None else UNSET,
        joint=JointReport(j.number, j.pods, j.waiting, j.gain) if (j := move.joint) is not None else UNSET,
    )
