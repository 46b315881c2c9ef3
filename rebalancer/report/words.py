"""The report in sentences: what is at risk now, and what it would be after the plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct

from rebalancer.model.reason import ReasonCode, listing, plural
from rebalancer.outcome import CostOutcome, SteeringReport
from rebalancer.planner.plan import Move
from rebalancer.policy.history.waits import end_of, is_wait
from rebalancer.report.document import DrillReport, Report, Wait
from rebalancer.report.failing_domains import DomainLoss, NamespaceGrade, Risk
from rebalancer.report.formats import Color
from rebalancer.report.text import duration, percent, short_key

LEGEND = (
    "Excess: differences beyond maxSkew, in sum. Grade: the worst workload's avoidable loss: A up to 5%, "
    "F over 50%; no A with a violation."
)
WORTH = (
    "SAVES: pods fewer that go with the fullest domain, for each eviction of the workload. AWAY: about how "
    "long the pod is missing for that."
)


def at_rest(report: Report) -> bool:
    """Whether nothing is violated and no namespace could do better."""
    return not report.summary.violated and all(n.grade == "A" for n in report.namespaces)


def lead(report: Report) -> str:
    """The worst loss that could be avoided, and why it stays, then what the plan mends; "" if none could."""
    avoidable = [r for r in report.risks if r.lost > r.best]
    if not avoidable:
        return ""
    # What nobody asked to be spread comes after what somebody did.
    worst = max(avoidable, key=lambda r: (r.spread, r.lost - r.best, r.lost))
    mended = max(report.risks, key=lambda r: (r.lost - r.planned, r.lost))
    s = report.summary
    takes = f"in about {duration(s.expected_seconds)}"
    if waiting := sum(e.move.waits is not None for e in report.evictions):
        takes = f"({waiting:,} of them later)" if waiting < s.evictions else "later"
    after = f"after {plural(s.evictions, 'eviction')} {takes}"
    if worst.planned < worst.lost:
        return f"Losing {_domain(worst)} takes {_share(worst)}; {after} it takes {percent(worst.planned)}."
    said = f"Losing {_domain(worst)} takes {_share(worst)} ({_kept_by(report, worst)})"
    if mended.planned >= mended.lost:
        return f"{said}; {percent(worst.best)} would be possible."
    other = f" and {_share(mended)}"
    if _domain(mended) != _domain(worst):
        other = f"; losing {_domain(mended)} takes {_share(mended)}"
    return f"{said}{other}, {percent(mended.planned)} {after}."


def _domain(r: Risk) -> str:
    return f"{short_key(r.topology_key)} {r.domain or '(none)'}"


def _share(r: Risk) -> str:
    return f"{percent(r.lost)} of {r.namespace}/{r.workload.rpartition('/')[2]}"


_KEEPS = {
    ReasonCode.PDB_EXHAUSTED: "stays so: its PodDisruptionBudget lets no pod go",
    ReasonCode.NOT_REPLACED_FIRST: "stays so: its PodDisruptionBudget lets no pod go",
    ReasonCode.PINNED_BY_VOLUME: "stays so: volumes hold its pods there",
    ReasonCode.NO_FEASIBLE_NODE: "stays so: there is no room elsewhere",
}


def _kept_by(report: Report, r: Risk) -> str:
    """Why a workload's loss stays, as far as one of its constraints says."""
    if not r.spread:
        return "no constraint spreads it"
    mine = (
        c
        for c in report.constraints
        if c.residual_excess and c.constraint.namespace == r.namespace and r.workload in c.workloads
    )
    reason = next((reason for c in mine for reason in c.reasons), None)
    if reason is None:
        return "its constraint allows that"
    stays = f"{'waits' if is_wait(reason) else 'stays so'}: {reason.code}"
    return _KEEPS.get(reason.code, stays)


# What is waited for, by whoever acts without being asked.


def waits(report: Report) -> list[str]:
    """A sentence for each kind of wait: what waits, until when at the latest, and what goes on now."""
    found: dict[str, list[Wait]] = {}
    for w in report.waits:
        found.setdefault(w.reason.code.value, []).append(w)
    said = []
    for several in found.values():
        last = max(several, key=lambda w: end_of(w.reason))
        owners = [w.owner.partition("/")[2] for w in several if w.owner]
        who = f"`rebalancer run` leaves {listing(owners, 3)} alone" if owners else "Nothing is evicted now"
        message, remedy = last.reason.message, last.reason.remedy
        more = f" ({remedy})" if remedy and not message.endswith(remedy) else ""
        said.append(f"{who}: {message}{more}.")
    return said + later(e.move for e in report.evictions)


def later(moves: Iterable[Move]) -> list[str]:
    """A sentence for each kind of cap that leaves evictions of a plan to a later cycle."""
    every, found = list(moves), dict[str, list[Move]]()
    for m in every:
        if m.waits is not None:
            found.setdefault(m.waits.remedy, []).append(m)
    said = []
    for remedy, several in found.items():
        reasons = [m.waits for m in several if m.waits is not None]
        last = max(reasons, key=end_of)
        more = len({r.message for r in reasons}) - 1
        others = f", and {plural(more, 'other cap')} until then at the latest" if more else ""
        go = "goes" if len(several) == 1 else "go"
        going = f"{len(several):,} of {plural(len(every), 'eviction')} {go} later"
        said.append(f"{going}: {last.message}{others}{f' ({remedy})' if remedy else ''}.")
    return said


def zone_says(d: DomainLoss) -> str:
    """What goes with a zone, now and after the plan."""
    parts = [f"{_change(d.pods, d.planned_pods, 'pod')} on {plural(d.nodes, 'node')}"]
    if d.whole or d.planned_whole:
        parts.append(f"{_change(d.whole, d.planned_whole, 'workload')} lost altogether")
    if d.beyond or d.planned_beyond:
        lose = "loses more than it must" if d.planned_beyond == 1 else "lose more than they must"
        parts.append(f"{_change(d.beyond, d.planned_beyond, 'workload')} {lose}")
    if d.worst:
        share = (
            percent(d.lost) if d.lost == d.planned_lost else f"{percent(d.lost)} → {percent(d.planned_lost)}"
        )
        parts.append(f"worst {workload_name(d.worst)} {share}")
    return ", ".join(parts)


def grade_says(g: NamespaceGrade) -> str:
    """Why a namespace has its grade."""
    if not g.worst:
        lose = "loses no more than it must" if g.workloads == 1 else "lose no more than they must"
        says = (
            f"{plural(g.workloads, 'workload')} {lose}" if g.workloads else "no workload has two running pods"
        )
    else:
        after = f" → {percent(g.planned_avoidable)}" if g.planned_avoidable != g.avoidable else ""
        name = workload_name(g.worst)
        says = f"{name} loses {percent(g.avoidable)}{after} of its pods more than it must"
    if g.violated or g.planned_violated:
        says += f"; {_change(g.violated, g.planned_violated, 'constraint')} violated"
    return says


def grade_letters(g: NamespaceGrade) -> str:
    """D → A."""
    return g.grade if g.grade == g.planned_grade else f"{g.grade} → {g.planned_grade}"


def workload_name(name: str) -> str:
    """namespace/name of namespace/Kind/name, name of Kind/name."""
    namespace, _, rest = name.partition("/")
    kind, slash, last = rest.rpartition("/")
    return f"{namespace}/{last}" if slash and kind else rest


def _change(now: int, then: int, noun: str) -> str:
    return plural(now, noun) if now == then else f"{now:,} → {plural(then, noun)}"


# What no placement can beat, in sentences.


def beyond_reach(report: Report) -> str:
    """How much of the excess that stays no placement can avoid, and why the rest stays; "" if none does."""
    s = report.summary
    if not s.residual_excess or report.selection:
        return ""
    least = f"no placement of the pods that may move leaves less than {s.least_excess:,}"
    if not s.between:
        return f"Excess {s.residual_excess:,} stays: {least}."
    rest = "; ".join(f"for {b.excess:,} of it {b.cause.words}" for b in s.between)
    return f"Excess {s.residual_excess:,} stays, and {least}. As to the rest, {rest}."


# What to do with a report: commands that act on the cluster that it is of, and on no other.

IN_CLUSTER = "in-cluster"


class Command(Struct, frozen=True):
    """How the report was asked for. `program`: as it was called; `flags`: those that choose the cluster, the
    user, the settings and the namespaces, as they were given."""

    program: str = "rebalancer"
    flags: tuple[str, ...] = ()

    def line(self, verb: str, *arguments: str, context: str = "") -> str:
        """A command to paste; `context` is named unless the flags name one."""
        named = any(f == "--context" or f.startswith("--context=") for f in self.flags)
        pinned = ("--context", context) if context and not named else ()
        return shlex.join((*self.program.split(), verb, *self.flags, *pinned, *arguments))


AS_CALLED = Command()


def next_steps(report: Report, command: Command = AS_CALLED) -> list[str]:
    """A sentence each. The plan of a file is carried out as a reviewed one, which knows its cluster."""
    steps = []
    context = "" if report.cluster == IN_CLUSTER else report.cluster
    if report.evictions and all(e.move.waits is not None for e in report.evictions):
        steps.append("Nothing was changed. `once --execute` would evict nothing now: see above.")
    elif report.evictions and report.selection:
        carry = command.line("once", "--plan", "plan.json", "--execute", context=context or "CONTEXT")
        steps.append(
            "Nothing was changed. `once --execute` carries out the whole plan; this part of it: "
            f"-o json --output-file plan.json, then {carry}"
        )
    elif report.evictions and report.cluster:
        steps.append(
            f"Nothing was changed. To carry it out: {command.line('once', '--execute', context=context)}"
        )
        review = command.line("once", "--plan", "plan.json", "--execute", context=context)
        steps.append(f"To review it first: -o json --output-file plan.json, then {review}")
    elif report.evictions:
        carry = command.line("once", "--plan", "plan.json", "--execute", context="CONTEXT")
        steps.append(
            "Nothing was changed. To carry it out on the cluster that this is of: "
            f"-o json --output-file plan.json, then {carry}"
        )
    if report.blocked or any(c.residual_excess for c in report.constraints):
        steps.append("Every pod and constraint with its reason: -o wide, or -o json")
    return steps


# How much of a report is shown, and to whom.


class Showing(Struct, frozen=True, kw_only=True):
    """`summary`: the verdict, zones and grades alone. `top`: so many rows of each list, where not all are
    asked for (wide). `plan`: the verdict and the plan alone. `command`: how the report was asked for."""

    color: Color = Color.AUTO
    command: Command = AS_CALLED
    summary: bool = False
    plan: bool = False
    top: int = 50


# The drill in a sentence.


def headline(report: DrillReport) -> str:
    """The worst failure in a sentence, and what the plan makes of it."""
    if not report.failures:
        return "No node can fail: there is none."
    tried = f"{plural(len(report.failures), 'failure')} tried"
    if not report.worst:
        return f"{tried}: whatever fails, every replacement finds a node."
    first = max(report.failures, key=lambda f: (f.most_pending, f.lost - f.replaced))
    pods = "pod" if first.most_pending == 1 else "pods"
    now = f"losing {first.name} leaves {first.says_pending} {pods} Pending"
    if not first.most_pending:
        now = (
            f"losing {first.name} takes {plural(first.lost - first.replaced, 'pod')} that nothing makes again"
        )
        return f"{tried}: every replacement finds a node; {now}."
    if not report.planned:
        return f"{tried}. Today {now}."
    worst = max(report.failures, key=lambda f: f.planned_most)
    then = f"after the plan {first.says_planned}"
    if worst.planned_most > first.planned_most:
        then += f" (the worst will be {worst.name} with {worst.says_planned})"
    return f"{tried}. Today {now}, {then}."


# Deletion costs as lines of text.

NAMESPACES_HIDDEN = (
    "namespaces may not be listed, and theirs could say rebalancer.io/scale-in; grant `list` on namespaces, "
    "or annotate the Deployments"
)


def steering_lines(report: SteeringReport) -> Iterator[str]:
    """Each pod whose cost was to be changed, then the sums."""
    steering = report.steering
    if steering.held_back:
        yield f"scale-ins are not steered: {steering.held_back}"
    if steering.unknown:
        yield f"{plural(steering.unknown, 'workload')} left as they are: {NAMESPACES_HIDDEN}"
    for outcome in report.outcomes:
        yield f"  {_line(outcome)}"
    if steering.foreign:
        yield f"{plural(steering.foreign, 'pod')} left alone: somebody else has set their deletion cost"
    for by, owners in sorted(steering.kept.items()):
        said = f"{plural(owners, 'workload')} left alone: the rebalancer with the brake {by} steers"
        yield f"{said}; if it is gone, `rebalancer prevent off` removes its costs"
    for owner in report.disputed:
        yield f"{owner} left alone for some minutes: somebody changes its deletion costs back"
    unproved = sum(o.order is not None and not o.order.proved for o in steering.owners)
    if unproved:
        yield f"{plural(unproved, 'workload')}: the order is good, and was not proved to be the best"
    if report.waiting:
        yield f"{plural(report.waiting, 'pod')} wait for their turn"


def _line(outcome: CostOutcome) -> str:
    change = outcome.change
    before = "none" if change.before is None else str(change.before)
    cost = str(change.cost) if change.cost else "none"
    said = f"; {outcome.message}" if outcome.message else ""
    return f"{outcome.result.value}: {change.pod.key}: deletion cost {before} -> {cost}{said}"
