"""Where the scheduler would place a pod, and why not elsewhere: the content of `rebalancer explain`.

Every format renders this. Its JSON names are part of `rebalancer/v1`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import IO, Literal

import numpy as np
from msgspec import Struct

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.engine.branches import within
from rebalancer.engine.certainty import assumptions, newer
from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import NARROWED, Diagnosis, Framework, Frameworks, Scores, preempt, summary
from rebalancer.engine.plugins.plugin import Rejection
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import HOSTNAME, ZONE
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import clean, listing, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.groups import Groups
from rebalancer.planner.cluster.simulation import key_of
from rebalancer.planner.plan import ConstraintResult, Move, Plan
from rebalancer.policy.history.ledger import COVERED
from rebalancer.policy.replacement import Replacements
from rebalancer.report.formats import API_VERSION
from rebalancer.report.output import render_lines
from rebalancer.report.terminal import Rows
from rebalancer.report.text import WHOLE, Names, short_key, short_names

# Whether a plan evicts a pod, and why or why not.


class PodInPlan(Struct, frozen=True, rename="camel"):
    """What a plan does with one pod. `says` is the whole sentence.

    `decision`: it is evicted; it stays although its constraints could use its move, for `reason`; or no move
    of it is looked for. `wave` is 0 unless it is evicted.
    """

    decision: Literal["evicted", "stays", "not-needed"]
    says: str
    wave: int = 0
    reason: str = ""
    remedy: str = ""


def pod_in_plan(plan: Plan, pod: Pod) -> PodInPlan:
    """What the plan of the pod's cluster does with it."""
    move = next((m for m in plan.moves if m.pod is pod), None)
    if move is not None:
        return PodInPlan("evicted", _evicted(move, plan), wave=move.wave)
    blocked = next((b.reason for b in plan.blocked if b.pod is pod), None)
    if blocked is not None:
        after = f", after the plan's {plural(len(plan.moves), 'eviction')}" if plan.moves else ""
        says = f"The plan leaves it where it is{after}: {blocked.code.value}: {blocked.message}."
        return PodInPlan("stays", says, reason=blocked.code.value, remedy=blocked.remedy)
    violated = {
        i: c
        for i, c in enumerate(plan.constraints)
        if c.in_scope and c.excess and c.constraint.counts(pod.namespace, pod.template.labels)
    }
    if not violated:
        return PodInPlan("not-needed", "The plan does not concern it: no violated constraint counts it.")
    over = listing(f"{short_key(c.constraint.topology_key)} {_over(c)}" for c in violated.values())
    if not any(violated.keys() & set(m.fixes) for m in plan.moves):
        return PodInPlan("not-needed", f"No eviction of it was planned: the excess in {over} stays.")
    return PodInPlan("not-needed", f"The plan does not need it: the excess is in {over}, and others go.")


def _evicted(move: Move, plan: Plan) -> str:
    wave = f"wave {move.wave} of {len(plan.waves)}"
    likely = "" if move.certain else ", likely"
    where = listing(move.destinations)
    return f"The plan evicts it in {wave}; its replacement goes to {where}{likely} ({move.reason})."


def _over(c: ConstraintResult) -> str:
    """The domains that hold more than is allowed."""
    # The minimum may be lower than that of these domains: there are fewer than minDomains.
    allowed = max(c.domains.values(), default=0) - c.skew + c.constraint.max_skew
    return listing(d for d, n in c.domains.items() if n > allowed)


PRE_FILTER = "PreFilter"
"""Used in place of a plugin's name for nodes that were excluded before any plugin looked at them."""
NEW = "does not exist yet; judged as if it were created now"


class NodeVerdict(Struct, frozen=True, rename="camel"):
    """One node.

    `rejections`: the one that decides, then those of the plugins that would also reject the node; none = the
    node takes the pod. `scores`: weighted, by plugin; empty if nothing was scored.
    """

    node: str
    domains: dict[str, str]
    fits: bool
    rejections: tuple[Rejection, ...] = ()
    scores: dict[str, int] = {}
    score: int | None = None


class Spread(Struct, frozen=True, rename="camel"):
    """One of the pod's spread constraints: how many pods the scheduler counts in each eligible domain."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    selector: str | None
    counts_itself: bool
    domains: dict[str, int]


class Placement(Struct, frozen=True, kw_only=True, rename="camel"):
    """The scheduler's view of one pod.

    `situation`: a sentence that says what was asked. `node`: where the pod is now, "" if it has no node.
    `winners`: the best-scored nodes, of which the scheduler takes one at random. `message`: what
    kube-scheduler writes into its event, "" if a node takes the pod. `recorded`: the message of the pod's own
    condition. `preemption`: nodes on which removing pods of lower priority would make room. `warnings`: what
    is missing in the snapshot. `plan`: what a plan for the cluster does with the pod; everything else is said
    of the cluster before any eviction. `since`: of a pod that runs and that no node takes, since when its
    workload has had such pods, "" if the ledger does not know.
    """

    api_version: str = API_VERSION
    kind: str = "Placement"
    namespace: str
    pod: str
    situation: str
    node: str
    profile: str
    nodes: int
    fitting: int
    winners: tuple[str, ...]
    message: str
    recorded: str
    preemption: tuple[str, ...]
    constraints: tuple[Spread, ...]
    verdicts: tuple[NodeVerdict, ...]
    uncertain: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    plan: PodInPlan | None = None
    since: str = ""


def explain_pod(
    snapshot: Snapshot, pod: Pod, config: SchedulerConfig | None = None, *, replacement: bool = False
) -> Placement:
    """How the scheduler judges a pod now, be it in the snapshot or not.

    A pod that has a node is judged as if it had left it and were to be placed again. `replacement`: judge the
    pod that its owner would make after an eviction instead, as the planner does: while the evicted pod still
    holds its resources, or, for a StatefulSet, when it is gone.
    """
    state = ClusterState.of(snapshot, config)
    frameworks = Frameworks(state)
    owner = snapshot.owner_of(pod.namespace, pod.owner)
    template = pod.template
    if replacement and owner is not None:
        template = Replacements(snapshot).of(template, owner)
    held = replacement and (owner is None or owner.kind != "StatefulSet")
    known = any(p is pod for p in snapshot.pods)
    situation = _situation(pod, state, replacement=replacement, held=held) if known else NEW
    with _vacated(state, pod, held=held) if known else nullcontext():
        return _Explained(snapshot, state, frameworks.of(template), template).placement(
            pod, situation, template is not pod.template
        )


@contextmanager
def _vacated(state: ClusterState, pod: Pod, *, held: bool) -> Iterator[None]:
    """The cluster without the pod and its nomination. `held`: the pod terminates and still holds its
    resources."""
    key = key_of(pod)
    if key not in state.pods:
        with state.unhindered(key):
            yield
    elif held:
        state.terminate(key)
        yield
        state.restore(key)
    else:
        with state.removed([key]):
            yield


def _situation(pod: Pod, state: ClusterState, *, replacement: bool, held: bool) -> str:
    placed = key_of(pod) in state.pods
    if replacement and placed:
        room = "while it still holds its room" if held else "after it is gone"
        return f"is on {pod.node_name}; judged is its replacement after an eviction, {room}"
    if placed:
        return f"is on {pod.node_name}; judged as if it were to be placed again now, its own place vacated"
    if pod.finished:
        return f"has ended ({pod.phase}); judged as if it were to be placed now"
    if pod.node_name:
        return f"is on {pod.node_name}, which is not in the snapshot; judged as if it were to be placed now"
    return "waits for a node"


class _Explained:
    """Asks the engine about one pod in one state of the cluster."""

    def __init__(
        self, snapshot: Snapshot, state: ClusterState, framework: Framework, template: PodTemplate
    ) -> None:
        self._snapshot = snapshot
        self._state = state
        self._framework = framework
        self._template = template

    def placement(self, pod: Pod, situation: str, changed: bool) -> Placement:
        framework, template, table = self._framework, self._template, self._state.table
        diagnosis = framework.diagnose(template)
        feasible = framework.feasible(template)
        fitting = int(np.count_nonzero(feasible))
        # If only one node is left, upstream does not score.
        scores = framework.score(template, feasible) if fitting > 1 else None
        winners: tuple[str, ...] = ()
        if fitting:
            best = feasible if scores is None else feasible & (scores.totals == scores.totals[feasible].max())
            winners = tuple(table.names[i] for i in np.flatnonzero(best))
        message = ""
        openable: tuple[str, ...] = ()
        if not fitting:
            preemption = preempt(framework, template, diagnosis) if table.size else None
            message = summary(diagnosis, table.size, preemption)
            openable = tuple(table.names[i] for i in (preemption.possible if preemption else ()))
        doubt = newer(framework.state.version)
        notes = [a for a in assumptions(framework.state, framework.profile) if a != doubt]
        if changed:
            notes.append("the replacement differs from the pod: its owner's template has changed")
        if fitting > (most := framework.profile.nodes_to_find(table.size)):
            notes.append(
                f"the scheduler stops after {most:,} nodes that fit, beginning where it last stopped, and "
                f"scores only these: the winners are the best of all {fitting:,}"
            )
        return Placement(
            namespace=pod.namespace,
            pod=pod.name,
            situation=situation,
            node=pod.node_name,
            profile=framework.profile.scheduler_name,
            nodes=table.size,
            fitting=fitting,
            winners=winners,
            message=message,
            recorded=pod.unschedulable,
            preemption=openable,
            constraints=tuple(self._spread()),
            verdicts=tuple(self._verdicts(diagnosis, scores)),
            uncertain=(*((doubt,) if doubt else ()), *framework.uncertainties(template)),
            assumptions=tuple(notes),
            warnings=self._snapshot.warnings,
        )

    def _spread(self) -> Iterator[Spread]:
        for hard in (True, False):
            groups = Groups(self._state, (), hard=hard, soft=not hard)
            for i in groups.carried(self._template):
                group, c = groups.all[i], groups.all[i].constraint
                counts = map(int, group.counts(self._state))
                yield Spread(
                    topology_key=c.topology_key,
                    max_skew=c.max_skew,
                    when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
                    selector=str(c.selector) if c.selector is not None else None,
                    counts_itself=c.counts(self._template.namespace, self._template.labels),
                    domains=dict(zip(group.names, counts, strict=True)),
                )

    def _verdicts(self, diagnosis: Diagnosis, scores: Scores | None) -> Iterator[NodeVerdict]:
        keys = self._keys()
        for row, node in enumerate(self._state.table.nodes):
            refusals = tuple(self._refusals(diagnosis, row))
            fits = not refusals
            yield NodeVerdict(
                node=node.name,
                domains={k: node.labels[k] for k in keys if k in node.labels},
                fits=fits,
                rejections=refusals,
                scores={n: int(v[row]) for n, v in scores.by_plugin.items()} if fits and scores else {},
                score=int(scores.totals[row]) if fits and scores else None,
            )

    def _keys(self) -> tuple[str, ...]:
        """The topology keys of the pod's constraints; the zone if it has none."""
        constraints = (
            *self._state.constraints(self._template, True),
            *self._state.constraints(self._template, False),
        )
        keys = (c.topology_key for c in constraints)
        return tuple(dict.fromkeys(keys)) or (ZONE,)

    def _refusals(self, diagnosis: Diagnosis, row: int) -> Iterator[Rejection]:
        first = diagnosis.prefilter or diagnosis.nodes[row]
        if first is None:
            return
        if first is NARROWED:
            reasons = tuple(
                f"node(s) didn't satisfy plugin(s) [{' '.join(diagnosis.narrowed_by)}]" for _ in first.reasons
            )
            yield Rejection(PRE_FILTER, first.code, reasons)
        else:
            yield first
        for name in self._framework.profile.filters:
            found = diagnosis.by_plugin[name].get(row)
            if found is not None and name != first.plugin:
                yield found


class Rejected(Struct, frozen=True):
    """Nodes that the same plugin rejects for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: tuple[str, ...]


def rejected(placement: Placement) -> list[Rejected]:
    """The nodes that reject the pod, grouped by the rejection that decides; the largest group first."""
    by: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for v in placement.verdicts:
        if not v.fits:
            by.setdefault((v.rejections[0].plugin, v.rejections[0].reasons), []).append(v.node)
    found = [Rejected(plugin, reasons, tuple(nodes)) for (plugin, reasons), nodes in by.items()]
    return sorted(found, key=lambda r: (-len(r.nodes), r.plugin, r.reasons))


def ranked(placement: Placement) -> list[NodeVerdict]:
    """The nodes that take the pod, the best first."""
    return sorted((v for v in placement.verdicts if v.fits), key=lambda v: (-(v.score or 0), v.node))


def scoring(placement: Placement) -> list[str]:
    """The plugins that scored, in the profile's order."""
    return list(dict.fromkeys(name for v in placement.verdicts for name in v.scores))


def histogram(domains: Mapping[str, int]) -> str:
    """The counts; for many domains, how many domains have how many pods."""
    many = Counter(domains.values())
    return ", ".join(f"{many[n]:,} with {n:,}" for n in sorted(many, reverse=True))


# The scheduler's decisions beside the engine's answers, as something to read.
#
# The JSON names are part of `rebalancer/v1`.


class BranchEvidence(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the decisions say of one branch of a plugin's rule."""

    version: str
    profile: str
    branch: str
    agrees: int
    disagrees: int


class BranchShown(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many decisions in a row have shown something that verdicts rest on; `enough`: as many as it takes
    to make moves certain on a version that is not known."""

    version: str
    profile: str
    branch: str
    decisions: int
    enough: bool


class AgreementReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """All comparisons, how many came to what, and what that says and shows of each branch."""

    api_version: str = API_VERSION
    kind: str = "Agreement"
    compared: int
    results: dict[str, int]
    verdict: str
    evidence: tuple[BranchEvidence, ...]
    shown: tuple[BranchShown, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def disagrees(self) -> bool:
        """Whether the scheduler did once what the engine says it would not do."""
        return self.results[Result.DISAGREES.value] > 0


def agreement_report(comparisons: Iterable[Comparison]) -> AgreementReport:
    """Every result is counted, those that did not occur too."""
    found = tuple(comparisons)
    counts = Counter(c.result for c in found)
    told = (Result.AGREES, Result.DISAGREES)
    by_branch: dict[tuple[str, str, str], Counter[Result]] = defaultdict(Counter)
    for c in found:
        for branch in c.branches if c.certain and c.result in told else ():
            by_branch[c.version, c.profile, branch][c.result] += 1
    evidence = tuple(
        BranchEvidence(
            version=version,
            profile=profile,
            branch=branch,
            agrees=n[Result.AGREES],
            disagrees=n[Result.DISAGREES],
        )
        for (version, profile, branch), n in sorted(by_branch.items())
    )
    shown = _shown(found)
    return AgreementReport(
        compared=len(found),
        results={r.value: counts[r] for r in Result},
        verdict=_verdict(counts, evidence, sum(s.enough for s in shown)),
        evidence=evidence,
        shown=shown,
        comparisons=found,
    )


def _shown(comparisons: Iterable[Comparison]) -> tuple[BranchShown, ...]:
    in_a_row: Counter[tuple[str, str, str]] = Counter()
    for c in comparisons:
        for wrong in c.branches if c.result is Result.DISAGREES else c.missed:
            for key in [k for k in in_a_row if k[:2] == (c.version, c.profile) and within(k[2], wrong)]:
                del in_a_row[key]
        in_a_row.update((c.version, c.profile, s) for s in (c.shown if c.certain else ()))
    return tuple(
        BranchShown(version=version, profile=profile, branch=branch, decisions=n, enough=n >= COVERED)
        for (version, profile, branch), n in sorted(in_a_row.items())
    )


def _verdict(counts: Counter[Result], evidence: Sequence[BranchEvidence], enough: int) -> str:
    wrong = [e.branch for e in evidence if e.disagrees]
    if counts[Result.DISAGREES]:
        where = f" in {'; '.join(wrong)}" if wrong else ""
        return (
            f"the scheduler does otherwise than predicted{where}: give its configuration as "
            "planner.schedulerConfig"
        )
    if not evidence:
        return "nothing can be said of the scheduler's rules yet: watch it for longer"
    others = counts[Result.OTHER_REASONS]
    told = f"; {plural(others, 'pod')} refused for other reasons than predicted" if others else ""
    seen = plural(len(evidence), "branch", "branches")
    often = f", {enough} things shown in {COVERED} decisions in a row or more" if enough else ""
    return f"no decision disagrees; {seen} of the rules seen{often}{told}"


def line(c: Comparison) -> str:
    """One comparison."""
    decision = f"bound to {c.node}" if c.node else "refused"
    unsure = "" if c.certain else "; the engine was not certain"
    return clean(f"{c.result.value:13} {c.namespace}/{c.pod}: {c.message or decision}{unsure}")


def total(report: AgreementReport) -> str:
    """All of them in a sentence."""
    if not report.compared:
        return "nothing to compare"
    parts = ", ".join(f"{result} {n}" for result, n in report.results.items() if n)
    return f"{plural(report.compared, 'decision')} of the scheduler compared: {parts}"


# `explain` for a terminal: nodes grouped by verdict, or (`wide`) every node with all that plugins say.

_MOST = 10
"""How many of the nodes that fit are listed if not `wide`."""
_MOST_DOMAINS = 12


def to_table(placement: Placement, *, wide: bool = False, stream: IO[str] | None = None) -> str:
    """The placement as text without colours, fitted to where it is written."""
    short = WHOLE if wide else _short(placement)
    lines: list[str | Rows] = [*map(short.within, _head(placement)), *_spread(placement, short)]
    lines += [*_fitting(placement, short, wide), *_rejecting(placement, short, wide)]
    lines += ["", short.note] if short.note else []
    lines += _rest("Uncertain, because", placement.uncertain)
    lines += _rest("Assumed", placement.assumptions)
    if wide:
        lines += _rest("Not known", placement.warnings)
    elif placement.warnings:
        lines.append(f"  {plural(len(placement.warnings), 'warning')} of what the snapshot lacks: -o wide")
    return render_lines(lines, stream, wide=wide)


def _short(p: Placement) -> Names:
    keys = _keys(p.verdicts)
    domains = {k: {v.domains[k] for v in p.verdicts if k in v.domains} for k in keys}
    return short_names({HOSTNAME: {v.node for v in p.verdicts}, **domains})


def _head(p: Placement) -> list[str]:
    lines = [f"{p.namespace}/{p.pod} {p.situation}."]
    if p.fitting:
        verb = "takes" if p.fitting == 1 else "take"
        lines.append(f"{p.fitting:,} of {plural(p.nodes, 'node')} {verb} it. {_winner(p)}")
    else:
        lines.append(f"No node takes it: {p.message}")
        if p.since:
            lines.append(f"Its workload has pods that no node would take again: so since {p.since}.")
        if p.preemption:
            where = f"{plural(len(p.preemption), 'node')}: {listing(p.preemption)}"
            lines.append(f"Preempting pods of lower priority would make room on {where}.")
    if p.plan is not None:
        lines.append("This is said of the cluster as it is now, before any eviction. " + p.plan.says)
        lines += [f"→ {p.plan.remedy}"] if p.plan.remedy else []
    if p.recorded and p.recorded != p.message:
        lines.append(f"The scheduler itself last said: {p.recorded}")
    return lines


def _winner(p: Placement) -> str:
    if p.fitting == 1:
        return f"It goes to {p.winners[0]}."
    best = next(v.score for v in p.verdicts if v.node == p.winners[0])
    if len(p.winners) == 1:
        return f"Best is {p.winners[0]}, with a score of {best:,}."
    return f"{len(p.winners):,} tie at a score of {best:,}, one of them at random: {listing(p.winners, 6)}."


def _spread(p: Placement, short: Names) -> list[str | Rows]:
    rows = (
        (short_key(c.topology_key), str(c.max_skew), c.when_unsatisfiable, *_counted(c, short))
        for c in p.constraints
    )
    table = Rows(("KEY", "MAX SKEW", "IF NOT", "PODS COUNTED NOW", "SELECTOR"), rows, ["MAX SKEW"])
    return ["", "Its spread constraints", table] if table.rows else []


def _counted(c: Spread, short: Names) -> tuple[str, str]:
    if not c.domains:
        counts = "no eligible domain"
    elif len(c.domains) > _MOST_DOMAINS:
        counts = f"{len(c.domains):,} domains: {histogram(c.domains)}"
    else:
        counts = " ".join(f"{short.of(c.topology_key, d) or '(none)'}={n}" for d, n in c.domains.items())
    itself = "" if c.counts_itself else " (not the pod itself)"
    return counts, ("(none)" if c.selector is None else c.selector or "(empty)") + itself


def _fitting(p: Placement, short: Names, wide: bool) -> list[str | Rows]:
    nodes = ranked(p)
    if not nodes:
        return []
    shown = nodes if wide else nodes[:_MOST]
    plugins, keys = scoring(p), _keys(shown)
    numbers = ["SCORE", *plugins] if plugins else []
    rows = (
        (
            *_place(v, keys, short),
            *([str(v.score)] if plugins else []),
            *(str(v.scores.get(name, "")) for name in plugins),
        )
        for v in shown
    )
    more = f"  and {len(nodes) - len(shown):,} more (-o wide)"
    table = Rows(("NODE", *(short_key(k).upper() for k in keys), *numbers), rows, numbers)
    return ["", "Takes it", table, *([more] if len(shown) < len(nodes) else [])]


def _place(v: NodeVerdict, keys: Sequence[str], short: Names) -> tuple[str, ...]:
    return short.of(HOSTNAME, v.node), *(short.of(k, v.domains.get(k, "")) for k in keys)


def _keys(nodes: Sequence[NodeVerdict]) -> list[str]:
    """The topology keys that get a column; that of the host does not, because it is the node's name."""
    return [k for k in dict.fromkeys(k for v in nodes for k in v.domains) if short_key(k) != "hostname"]


def _rejecting(p: Placement, short: Names, wide: bool) -> list[str | Rows]:
    if wide:
        nodes = [v for v in p.verdicts if not v.fits]
        keys = _keys(nodes)
        head = ("NODE", *(short_key(k).upper() for k in keys), "REJECTED BY", "ALSO BY")
        rows = [(*_place(v, keys, short), _said(v.rejections[:1]), _said(v.rejections[1:])) for v in nodes]
    else:
        head = ("NODES", "PLUGIN", "REASON", "FOR EXAMPLE")
        rows = [
            (f"{len(g.nodes):,}", g.plugin, ", ".join(g.reasons), short.within(listing(g.nodes)))
            for g in rejected(p)
        ]
    return ["", "Rejects it", Rows(head, rows, ["NODES"])] if rows else []


def _said(refusals: Sequence[Rejection]) -> str:
    return "; ".join(f"{r.plugin}: {', '.join(r.reasons)}" for r in refusals)


def _rest(title: str, sentences: Iterable[str]) -> list[str]:
    found = [f"  {s}" for s in sentences]
    return ["", title, *found] if found else []
