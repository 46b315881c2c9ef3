"""The content of a fleet's report: the report of each cluster, and what they come to together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rebalancer.report.api_version import API_VERSION
from rebalancer.report.document import Report
from rebalancer.report.wording import text, words
from rebalancer.report.wording.times import rfc3339


class FleetSummary(Struct, frozen=True, rename="camel"):
    """Sums over the clusters that could be read. `unreadable`: those that could not."""

    clusters: int
    unreadable: int
    nodes: int
    pods: int
    constraints: int
    violated: int
    excess: int
    evictions: int
    residual_excess: int


class ClusterReport(Struct, frozen=True, rename="camel"):
    """One cluster. `name`: its context, or the name of its file. `error`: why there is no report of it.
    `grade`: of its worst namespace, "" without any; `planned_grade`: the same after the plan. `lead`: its
    risk in a sentence, or what its constraints come to."""

    name: str
    error: str = ""
    grade: str = ""
    planned_grade: str = ""
    lead: str = ""
    report: Report | None = None


class FleetReport(Struct, frozen=True, rename="camel", kw_only=True):
    """The whole document; the worst cluster first, those without a report before all."""

    api_version: str = API_VERSION
    kind: str = "FleetReport"
    generated_at: str
    summary: FleetSummary
    clusters: tuple[ClusterReport, ...]


def of_cluster(name: str, report: Report) -> ClusterReport:
    """The entry of a cluster."""
    grades = [n.grade for n in report.namespaces]
    planned = [n.planned_grade for n in report.namespaces]
    return ClusterReport(
        name=name,
        grade=max(grades, default=""),
        planned_grade=max(planned, default=""),
        lead=words.lead(report) or text.headline(report),
        report=report,
    )


def build_fleet(clusters: Sequence[ClusterReport], *, generated_at: float) -> FleetReport:
    """The report of a fleet. `generated_at`: seconds since the epoch."""
    read = [c.report.summary for c in clusters if c.report is not None]
    return FleetReport(
        generated_at=rfc3339(generated_at),
        summary=FleetSummary(
            clusters=len(clusters),
            unreadable=len(clusters) - len(read),
            nodes=sum(s.nodes for s in read),
            pods=sum(s.pods for s in read),
            constraints=sum(s.constraints for s in read),
            violated=sum(s.violated for s in read),
            excess=sum(s.excess for s in read),
            evictions=sum(s.evictions for s in read),
            residual_excess=sum(s.residual_excess for s in read),
        ),
        clusters=tuple(sorted(clusters, key=_worst_first)),
    )


def headline(fleet: FleetReport) -> str:
    """What the fleet comes to, in a sentence."""
    s = fleet.summary
    broken = sum(1 for c in fleet.clusters if c.report is not None and c.report.summary.violated)
    said = f"{broken} of {text.plural(s.clusters, 'cluster')} have violated constraints"
    if broken:
        said += (
            f", excess {s.excess:,}; {text.plural(s.evictions, 'eviction')} bring it down to "
            f"{s.residual_excess:,}"
        )
    if s.unreadable:
        said += f"; {s.unreadable} could not be read"
    return said + "."


def cells(c: ClusterReport) -> tuple[str, ...]:
    """What each format says of a cluster, in the order of the columns."""
    if c.report is None:
        return c.name, "?", "", "", "", "", "", c.error
    s = c.report.summary
    excess = f"{s.excess:,} → {s.residual_excess:,}" if s.excess != s.residual_excess else f"{s.excess:,}"
    grade = c.grade if c.grade == c.planned_grade else f"{c.grade} → {c.planned_grade}"
    figures = (f"{s.nodes:,}", f"{s.pods:,}", f"{s.violated:,} of {s.constraints:,}")
    return c.name, grade or "–", *figures, excess, f"{s.evictions:,}", c.lead


def _worst_first(c: ClusterReport) -> tuple[bool, int, int, str]:
    if c.report is None:
        return False, 0, 0, c.name
    return True, -ord(c.grade or "A"), -c.report.summary.excess, c.name
