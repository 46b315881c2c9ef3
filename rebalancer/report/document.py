"""The content of the report. Every format renders this and nothing else; its JSON is a public interface.

The names belong to `rebalancer/v1`: fields may be added, but are never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from heapq import nlargest
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import fields as struct_fields
from msgspec.structs import replace

from rebalancer.drill import Drill, Drilled
from rebalancer.drill.lost import Breach, Honored, WorkloadLoss
from rebalancer.findings.survey import shown
from rebalancer.model.quantity import rfc3339
from rebalancer.model.reason import Finding, Reason, Remedy
from rebalancer.planner.pace import Pace, WavePace
from rebalancer.planner.plan import Between, ConstraintResult, Move, Refusal
from rebalancer.policy.options import Method
from rebalancer.report.failing_domains import DomainLoss, NamespaceGrade, Risk
from rebalancer.report.formats import API_VERSION, quantities
from rebalancer.room.search import Enlarged, ForPods, NewNodes, Room

# The drill as a document: what every failure comes to, the worst ones in full.
#
# Names are part of `rebalancer/v1`: fields may be added, but are never renamed.

WORST = 10


class FailureReport(Struct, frozen=True, rename="camel"):
    """One failure: all nodes with `key`=`value`, or the node `value` where `key` is "node".

    `lost`: pods that go with the nodes. Of these `pending` find no other node, `held` are not made again
    while the nodes are silent (StatefulSets), and `gone` have no owner that makes them again. `budgets`: how
    many are breached, `lasting`: how many of them stay so. `planned…`: the same after the plan, -1 without
    one. `least_pending`, `most_pending`: where the nodes fail all at once (`pending`), or in other orders.
    `workloads`, `breached`, `honored`: in full for the worst failures only; of others there are none.
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
    workloads: tuple[WorkloadLoss, ...] = ()
    breached: tuple[Breach, ...] = ()
    least_pending: int = 0
    most_pending: int = 0
    honored: Honored | None = None
    planned_least: int = -1
    planned_most: int = -1

    @property
    def name(self) -> str:
        """As in `zone b`."""
        return f"{self.key.rpartition('/')[2]} {self.value}"

    @property
    def says_pending(self) -> str:
        """The fewest and the most, as in `6–8`."""
        return span(self.least_pending, self.most_pending)

    @property
    def says_planned(self) -> str:
        """The fewest and the most after the plan."""
        return span(self.planned_least, self.planned_most)


def span(least: int, most: int) -> str:
    """One number, or two."""
    return f"{least:,}" if least == most else f"{least:,}–{most:,}"


class DrillReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """`manner`: whether the nodes fall "silent", or are "removed". `waiting`: pods that no node takes before
    anything fails. `worst`: those of `failures`, which are in order of key and name, that are worst as the
    cluster is or after the plan, again, with their workloads; what is worst as it is comes first."""

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
        return max((f.most_pending for f in self.failures), default=0)


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
    bad = [i for i, (now, then) in enumerate(pairs) if any(now.badness[:2]) or (then and then.badness[0])]
    shown = nlargest(worst, bad, key=lambda i: (_worst(*pairs[i]), -i))
    shown.sort(key=lambda i: pairs[i][0].badness, reverse=True)
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
        orders=tuple(
            {w: n for w, n in order.items() if w.split("/")[1] in namespaces} for order in drilled.orders
        ),
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
        workloads=today.workloads if full else (),
        breached=today.breaches if full else (),
        least_pending=today.least,
        most_pending=today.most,
        honored=today.honored if full else None,
        planned_least=after.least if after is not None else -1,
        planned_most=after.most if after is not None else -1,
    )


class Summary(Struct, frozen=True, rename="camel"):
    """Figures of the whole cluster.

    `violated`, `excess` and `residual_excess` are about the constraints in scope. `lower_bound`: no plan
    reaches the best final state with fewer evictions. `unreadable`: objects that were left out.
    `soft_ignored`: ScheduleAnyway constraints that settings leave out. `expected_seconds`: how long carrying
    out the plan may take; `takes_longest`: why no less, "" if nothing keeps it to more than one wave.
    `waves_bound`: waves that budgets, shares of owners, and moves that depend on landings take at least.
    `least_excess`: no placement of the pods that may move leaves less excess of hard constraints;
    `least_exact`: one leaves as little, as far as room goes. `between`: why the plan leaves more, by cause.
    `undecided`: kinds that may not be read, without which it is not known what else would help.
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
    between: tuple[Between, ...] = ()
    undecided: tuple[str, ...] = ()


class Destination(Struct, frozen=True, rename="camel"):
    """Where the replacement can land; `certain` = nowhere else. `predicted`: the node that the plan
    assumes. A node that Karpenter has yet to add is called "new node of NodePool …"."""

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


class EvictionReport(Struct, frozen=True):
    """A move, and the constraints that it helps. `waits_for`: the pods, namespace/name, whose replacements
    have to be there first; each waits for others in its turn. `away`: seconds until its own is Ready."""

    move: Move
    fixes: tuple[Fix, ...]
    waits_for: tuple[str, ...] = ()
    away: int = 0

    @property
    def owner(self) -> str:
        """Kind/name."""
        return f"{self.move.owner.kind}/{self.move.owner.name}"


class Wait(Struct, frozen=True):
    """What `rebalancer run` waits for before it evicts: `owner` is Kind/namespace/name, "" for everything.
    Its number `until`, if there, is when that is over, in epoch seconds; `once --execute` may not wait."""

    owner: str
    reason: Reason


class Report(Struct, frozen=True, rename="camel", kw_only=True):
    """The whole report.

    `warnings`: what could not be read, with the consequences. `cluster_id`: the uid of namespace kube-system,
    "" if it is not known. `captured_at`: the time that the report speaks of. `drill`: there only where it was
    asked for. `room`: there only where nodes are missing. `pending`: pods (namespace/name) without a node.
    `selection`: the workload or the labels that were asked for; constraints, evictions, blocked pods,
    findings, risks and their figures are of these alone then.
    `waits`: as the ledger and the brake of a live cluster say.
    """

    api_version: str = API_VERSION
    kind: str = "Report"
    generated_at: str
    cluster: str
    source: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    summary: Summary
    constraints: tuple[ConstraintResult, ...]
    evictions: tuple[EvictionReport, ...]
    blocked: tuple[Refusal, ...]
    findings: tuple[Finding, ...]
    risks: tuple[Risk, ...] = ()
    cluster_id: str = ""
    captured_at: str = ""
    waves: tuple[WavePace, ...] = ()
    domains: tuple[DomainLoss, ...] = ()
    namespaces: tuple[NamespaceGrade, ...] = ()
    drill: DrillReport | UnsetType = UNSET
    room: Room | UnsetType = UNSET
    pending: tuple[str, ...] = ()
    selection: str = ""
    waits: tuple[Wait, ...] = ()

    @property
    def by_wave(self) -> dict[int, list[EvictionReport]]:
        """The evictions of each wave, in the order of the waves."""
        found: dict[int, list[EvictionReport]] = {}
        for eviction in sorted(self.evictions, key=lambda e: e.move.wave):
            found.setdefault(eviction.move.wave, []).append(eviction)
        return found


# A report cut down to some namespaces: what is theirs, judged over the whole cluster.

_NAMESPACED = 3
"""Parts of Kind/namespace/name."""


def in_namespaces(report: Report, names: Collection[str]) -> Report:
    """The report without what belongs to other namespaces; findings about nodes stay.

    Nodes, pods and zones are the whole cluster's. A plan evicts in these namespaces only (see
    `PolicyOptions.namespaces_include`), so that its figures need no other count.
    """
    cut = _cut(
        report,
        constraint=lambda c: c.constraint.namespace in names,
        pod=lambda p: p.partition("/")[0] in names,
        workload=lambda w: w.partition("/")[0] in names,
        finding=lambda f: _shown(f, names),
    )
    cut = replace(cut, summary=replace(report.summary, constraints=len(cut.constraints)))
    # The plan moves no other pod, but may mend a constraint elsewhere.
    return replace(cut, evictions=_within(cut, report, lambda _: True))


def of_workloads(
    report: Report, workloads: Collection[tuple[str, str]], pods: Collection[str], said: str, took: Pace
) -> Report:
    """The report without what is of other workloads, (namespace, Kind/name), and other pods, and without
    zones and grades. Nodes and pods are the whole cluster's. `said`: how these were chosen; `took`: how long
    their moves take."""
    keys = {f"{namespace}/{name}" for namespace, name in workloads}
    objects = {"/".join((w.partition("/")[0], n, w.partition("/")[2])) for n, w in workloads}
    cut = _cut(
        report,
        constraint=lambda c: any(f"{c.constraint.namespace}/{w}" in keys for w in c.workloads),
        pod=lambda p: p in pods,
        workload=lambda w: w in keys,
        finding=lambda f: f.object in objects,
    )
    evictions = _within(cut, report, lambda e: e.move.pod.key in pods)
    in_scope = [c for c in cut.constraints if c.in_scope]
    # Of a part it is not known what the fewest are.
    summary = replace(
        report.summary,
        constraints=len(cut.constraints),
        violated=sum(c.excess > 0 for c in in_scope),
        excess=sum(c.excess for c in in_scope),
        residual_excess=sum(c.residual_excess for c in in_scope),
        evictions=len(evictions),
        lower_bound=0,
        optimal=False,
        least_excess=sum(c.least_excess or 0 for c in in_scope),
        least_exact=False,
        between=(),
        expected_seconds=took.seconds,
        waves=len(took.waves),
        waves_bound=min(1, len(took.waves)),
        takes_longest=took.longest,
    )
    cut = replace(cut, selection=said, evictions=evictions, summary=summary, waves=took.waves)
    return replace(cut, domains=(), namespaces=())


def _within(
    cut: Report, whole: Report, shown: Callable[[EvictionReport], bool]
) -> tuple[EvictionReport, ...]:
    """Evictions with those of their constraints that are left, by the numbers that they have now."""
    number = {id(c): i for i, c in enumerate(cut.constraints)}
    index = {i: number[id(c)] for i, c in enumerate(whole.constraints) if id(c) in number}

    def fixes(e: EvictionReport) -> tuple[Fix, ...]:
        return tuple(replace(f, constraint=index[f.constraint]) for f in e.fixes if f.constraint in index)

    return tuple(replace(e, fixes=fixes(e)) for e in whole.evictions if shown(e))


def _cut(
    report: Report,
    *,
    constraint: Callable[[ConstraintResult], bool],
    pod: Callable[[str], bool],
    workload: Callable[[str], bool],
    finding: Callable[[Finding], bool],
) -> Report:
    """With what is said of these alone. `pod`: namespace/name; `workload`: namespace/Kind/name."""
    shown = tuple(r for r in report.risks if workload(f"{r.namespace}/{r.workload}"))
    spaces = {r.namespace for r in shown} | {
        c.constraint.namespace for c in report.constraints if constraint(c)
    }
    return replace(
        report,
        constraints=tuple(c for c in report.constraints if constraint(c)),
        blocked=tuple(b for b in report.blocked if pod(b.pod.key)),
        findings=tuple(f for f in report.findings if finding(f)),
        risks=shown,
        namespaces=tuple(n for n in report.namespaces if n.namespace in spaces),
        pending=tuple(p for p in report.pending if pod(p)),
        waits=tuple(w for w in report.waits if not w.owner or workload(_of_namespace(w.owner))),
    )


def _of_namespace(owner: str) -> str:
    """namespace/Kind/name of Kind/namespace/name."""
    kind, namespace, name = owner.split("/", 2)
    return f"{namespace}/{kind}/{name}"


def _shown(finding: Finding, names: Collection[str]) -> bool:
    parts = finding.object.split("/")
    return len(parts) != _NAMESPACED or parts[1] in names


# What the JSON has of the objects that the program itself works with.

_T = TypeVar("_T")
Field = tuple[str, Any, Callable[[Any], object]]


class Shape(Struct, frozen=True):
    """`name`, `says`: the kind in the schema. `fields`: the name of each, its type, and how it is found."""

    name: str
    says: str
    fields: tuple[Field, ...]


def shape(
    kind: type[_T], name: str, says: str, *fields: str | tuple[str, Any, Callable[[_T], object]]
) -> tuple[type[_T], Shape]:
    """A field that is a string is an attribute of that name, with the type that it has there."""
    own = {f.name: f.type for f in struct_fields(kind)}  # type: ignore[arg-type]
    given = ((_camel(f), own.get(f, Any), attrgetter(f)) if isinstance(f, str) else f for f in fields)
    return kind, Shape(name, says, tuple(given))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


SHAPES: dict[type, Shape] = dict(
    (
        shape(
            Reason,
            "Why",
            """A reason with its figures.""",
            ("code", str, lambda r: r.code.value),
            "message",
            "numbers",
            "remedy",
        ),
        shape(
            Between,
            "BetweenReport",
            """How much excess stays that some placement would not have, for one cause: "not-placed",
    "forbidden", "not-walkable" or "search-gave-up"; `message` says it in words.""",
            ("cause", str, lambda b: b.cause.value),
            "excess",
            ("message", str, lambda b: b.cause.words),
        ),
        shape(
            ConstraintResult,
            "ConstraintReport",
            """A constraint now and after the plan. `selector` is in kubectl's -l syntax, None if absent.
    `worst_domain_loss`: the share of its pods that are lost if the fullest domain fails. `best_domain_loss`:
    the smallest such share that a placement can have. `least_excess`: no placement leaves this constraint
    less, whatever becomes of others; there only where some excess stays.""",
            ("namespace", str, lambda c: c.constraint.namespace),
            "workloads",
            ("selector", str | None, lambda c: c.selector),
            ("topologyKey", str, lambda c: c.constraint.topology_key),
            ("maxSkew", int, lambda c: c.constraint.max_skew),
            ("minDomains", int, lambda c: c.constraint.min_domains),
            ("whenUnsatisfiable", str, lambda c: c.constraint.when_unsatisfiable),
            "domains",
            "after",
            "skew",
            "excess",
            "residual_excess",
            "status",
            "reasons",
            ("worstDomainLoss", float, lambda c: round(c.worst_domain_loss, 4)),
            ("bestDomainLoss", float, lambda c: round(c.best_domain_loss, 4)),
            "in_scope",
            ("leastExcess", int | UnsetType, lambda c: UNSET if c.least_excess is None else c.least_excess),
        ),
        shape(
            EvictionReport,
            "EvictionReport",
            """One eviction of the plan. Evictions of one wave may be in flight together. `owner` is
    Kind/name. `waits`: the cap that leaves it to a later cycle; there only where one does.
    `waitsFor`: the pods, namespace/name, whose replacements have to be there first; likewise. `worth`: how
    many pods fewer go with the fullest domain, for each eviction of the owner; `secondsAway`: about how long
    the pod is missing for that. `method`: "replaceFirst" where the replacement comes before the eviction;
    absent otherwise.""",
            ("namespace", str, lambda e: e.move.pod.namespace),
            ("pod", str, lambda e: e.move.pod.name),
            ("uid", str, lambda e: e.move.pod.uid),
            ("owner", str, lambda e: e.owner),
            ("node", str, lambda e: e.move.pod.node_name),
            (
                "destination",
                Destination,
                lambda e: Destination(e.move.destinations, e.move.certain, e.move.predicted),
            ),
            ("wave", int, lambda e: e.move.wave),
            "fixes",
            ("reason", str, lambda e: e.move.reason),
            ("waits", Reason | UnsetType, lambda e: e.move.waits or UNSET),
            ("waitsFor", tuple[str, ...] | UnsetType, lambda e: e.waits_for or UNSET),
            ("worth", float, lambda e: round(e.move.worth, 2)),
            (
                "method",
                Method | UnsetType,
                lambda e: UNSET if e.move.method is Method.EVICT else e.move.method,
            ),
            ("secondsAway", int, lambda e: e.away),
        ),
        shape(
            Refusal,
            "BlockedReport",
            """A pod that could have been evicted and is not.""",
            ("namespace", str, lambda b: b.pod.namespace),
            ("pod", str, lambda b: b.pod.name),
            ("reason", str, lambda b: b.reason.code.value),
            ("message", str, lambda b: b.reason.message),
            ("remedy", str, lambda b: b.reason.remedy),
        ),
        shape(
            Remedy,
            "RemedyReport",
            """A change of `object` that was replayed and helps: `before` and `after`. `before` is empty for a
    node that is new. `pending`, `stuck`, `excess`: of the workload, before and after: Pending pods without
    a node, running ones that could not be replaced, excess.""",
            ("object", str, lambda r: r.change.object),
            ("before", Mapping[str, Any], lambda r: shown(r.change.before)),
            ("after", Mapping[str, Any], lambda r: shown(r.change.after)),
            "does",
            "gives_up",
            ("pending", tuple[int, ...], lambda r: r.pending),
            ("stuck", tuple[int, ...], lambda r: r.stuck),
            ("excess", tuple[int, ...], lambda r: r.excess),
        ),
        shape(
            Finding,
            "FindingReport",
            """A problem that no eviction cures. `remedy`: YAML to paste, or a command: what was replayed
    (`remedies`), else advice, which promises nothing. `untried`: changes beyond the bound of advice. `field`:
    its place in the object. `numbers`: figures of the message; there only where it has some. `since`: when it
    was seen first; there only where the ledger remembers.""",
            "severity",
            "code",
            "object",
            "message",
            "remedy",
            ("field", str | UnsetType, lambda f: f.field),
            ("numbers", Mapping[str, int] | UnsetType, lambda f: f.numbers or UNSET),
            ("since", str | UnsetType, lambda f: UNSET if f.since is None else rfc3339(f.since)),
            ("remedies", tuple[Remedy, ...] | UnsetType, lambda f: f.remedies or UNSET),
            ("untried", int | UnsetType, lambda f: f.untried or UNSET),
        ),
        shape(
            WavePace,
            "WaveReport",
            """One wave. `expected_seconds`: until its last replacement is Ready, as its workloads' pods were
    before; a StatefulSet's starts only when the evicted pod is gone.""",
            "wave",
            "evictions",
            ("expectedSeconds", int, lambda w: w.seconds),
        ),
        shape(
            WorkloadLoss,
            "LossReport",
            """A workload (Kind/namespace/name) and what it loses. `pods`: how many ran; `lost` = `replaced` +
    `pending` + `held` + `gone`. `why`: what shuts which nodes to the pending ones; `counts_dead`: a
    constraint that shuts some counts the nodes that are down as empty (nodeTaintsPolicy Ignore).""",
            "workload",
            "pods",
            "lost",
            "replaced",
            "pending",
            "held",
            "gone",
            "why",
            "counts_dead",
        ),
        shape(
            Honored,
            "HonoredReport",
            """The failure replayed with `nodeTaintsPolicy: Honor` in the hard constraints of `workloads`, and
    with `minDomains` as low as the domains that are left, if `minDomains`. `pending`: replacements without a
    node, before and after; `loss`: the largest share of a workload's pods in one domain then.""",
            "workloads",
            "min_domains",
            ("pending", tuple[int, ...], lambda h: h.pending),
            ("loss", tuple[float, ...], lambda h: tuple(round(x, 4) for x in h.loss)),
        ),
        shape(
            Breach,
            "BudgetReport",
            """A PodDisruptionBudget that is breached: its healthy pods when the nodes fail (`healthy`), and
    when the replacements that find a node are Ready (`after`); `needed`: what it asks for.""",
            "budget",
            "healthy",
            "after",
            "needed",
        ),
        shape(
            ForPods,
            "PodsReport",
            """Pods that would go to a new node. `workload` is Kind/namespace/name.""",
            "workload",
            "pods",
        ),
        shape(
            NewNodes,
            "NewNodesReport",
            """Equal new nodes. `domains`: their labels by topology key. `like`: a node that has the shape.
    `taints`: its own, as kubectl writes them. `free`: what each must have left for pods, as quantities; empty
    if that depends on the order of evictions. `unlike`: keys of `domains` that the node `like` has
    otherwise.""",
            ("nodes", int, lambda n: n.number),
            "domains",
            "like",
            ("taints", tuple[str, ...], lambda n: tuple(map(str, n.taints))),
            ("free", Mapping[str, str], lambda n: quantities(n.free)),
            "unlike",
            "pods",
        ),
        shape(
            Enlarged,
            "InsteadReport",
            """What would do as well: any one of `nodes` with so much `more`.""",
            "nodes",
            ("more", Mapping[str, str], lambda i: quantities(i.more)),
        ),
        shape(
            Room,
            "RoomReport",
            """What room is missing, over all workloads together. `excess`: what the plan leaves. `missing`:
    the `nodes` that would cure it, or what of it room can cure. `least`: what no placement with any such
    nodes beats. `left`: what the plan with these leaves, after so many `evictions`. `mends`: workloads,
    namespace/Kind/name, whose constraints then hold, or hold better. `proved`: no fewer nodes do, and no more
    do better. `searched`: nothing was left out for the time it would take. `waiting`: Pending pods, which
    want room too and are not counted here.""",
            ("apiVersion", str, lambda _: API_VERSION),
            ("kind", str, lambda _: "Room"),
            "source",
            "excess",
            ("nodes", int, lambda r: r.number),
            ("missing", tuple[NewNodes, ...], lambda r: r.nodes),
            ("instead", Enlarged | UnsetType, lambda r: r.instead or UNSET),
            "least",
            "left",
            "evictions",
            "mends",
            "proved",
            "searched",
            "waiting",
        ),
    )
)
