"""The report in sentences: what is at risk now, and what it would be after the plan."""

from __future__ import annotations

from rebalancer.report.document import Report
from rebalancer.report.failing_domains.grades import NamespaceGrade
from rebalancer.report.failing_domains.risk import Risk
from rebalancer.report.failing_domains.zones import DomainLoss
from rebalancer.report.wording.text import duration, percent, plural, short_key

LEGEND = (
    "Excess: how far domains differ beyond maxSkew, in sum. Grade: the worst workload's avoidable loss; A is "
    "up to 5% of its pods, F over 50%."
)


def at_rest(report: Report) -> bool:
    """Whether nothing is violated and no namespace could do better."""
    return not report.summary.violated and all(n.grade == "A" for n in report.namespaces)


def lead(report: Report) -> str:
    """The worst loss that the plan mends, else the worst that could be avoided; "" if none could."""
    mended = [r for r in report.risks if r.planned < r.lost]
    if mended:
        worst = max(mended, key=lambda r: (r.lost - r.planned, r.lost))
        s = report.summary
        after = f"after {plural(s.evictions, 'eviction')} in about {duration(s.expected_seconds)}"
        return f"{_loss(worst)}; {after} it takes {percent(worst.planned)}."
    avoidable = [r for r in report.risks if r.lost > r.best]
    if avoidable:
        worst = max(avoidable, key=lambda r: (r.lost - r.best, r.lost))
        return f"{_loss(worst)}; {percent(worst.best)} would be possible."
    return ""


def _loss(r: Risk) -> str:
    domain = f"{short_key(r.topology_key)} {r.domain or '(none)'}"
    return f"Losing {domain} takes {percent(r.lost)} of {r.namespace}/{r.workload.rpartition('/')[2]}"


def zone_says(d: DomainLoss) -> str:
    """What goes with a zone, now and after the plan."""
    parts = [f"{_change(d.pods, d.planned_pods, 'pod')} on {plural(d.nodes, 'node')}"]
    if d.whole or d.planned_whole:
        parts.append(f"{_change(d.whole, d.planned_whole, 'workload')} altogether")
    if d.beyond or d.planned_beyond:
        parts.append(f"more than it must of {_change(d.beyond, d.planned_beyond, 'workload')}")
    if d.worst:
        share = (
            percent(d.lost) if d.lost == d.planned_lost else f"{percent(d.lost)} → {percent(d.planned_lost)}"
        )
        parts.append(f"worst {workload_name(d.worst)} {share}")
    return ", ".join(parts)


def grade_says(g: NamespaceGrade) -> str:
    """Why a namespace has its grade."""
    if not g.worst:
        one = g.workloads == 1
        says = f"{plural(g.workloads, 'workload')}, {'which loses' if one else 'which lose'} no more than "
        says += "it must" if one else "they must"
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
