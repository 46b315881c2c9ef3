"""The content of a fleet's report: the report of each cluster, and what they come to together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.model.quantity import rfc3339
from rebalancer.model.reason import plural
from rebalancer.report import text, words
from rebalancer.report.document import SHAPES, Report, Summary
from rebalancer.report.failing_domains import NamespaceGrade
from rebalancer.report.formats import API_VERSION
from rebalancer.report.output import members


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
    risk in a sentence, or what its constraints come to. `summary`: its figures; `reported_at`: when a report
    was made that a file has: of such a cluster they are all there is, and `report` is null."""

    name: str
    error: str = ""
    grade: str = ""
    planned_grade: str = ""
    lead: str = ""
    summary: Summary | None = None
    reported_at: str = ""
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
        summary=report.summary,
        report=report,
    )


class _Told(Struct, rename="camel"):
    """What is read of a report that was written as JSON."""

    summary: Summary
    generated_at: str
    captured_at: str = ""
    cluster: str = ""
    namespaces: tuple[NamespaceGrade, ...] = ()


def of_report(name: str, written: bytes) -> ClusterReport:
    """The entry of a cluster of which there is a report as JSON; `name`: of the file, if the report has no
    name of the cluster. Raises UserError."""
    try:
        told = msgspec.json.decode(written, type=_Told)
    except msgspec.MsgspecError as e:
        raise UserError(f"{name}: not a report as this version reads it: {e}", "make the report again") from e
    s, made = told.summary, told.captured_at or told.generated_at
    said = f"{s.violated:,} of {plural(s.constraints, 'constraint')} violated at {made}"
    return ClusterReport(
        name=told.cluster or name,
        grade=max((n.grade for n in told.namespaces), default=""),
        planned_grade=max((n.planned_grade for n in told.namespaces), default=""),
        lead=f"{said}; {plural(s.evictions, 'eviction')} would leave an excess of {s.residual_excess:,}",
        summary=s,
        reported_at=made,
    )


def build_fleet(clusters: Sequence[ClusterReport], *, generated_at: float) -> FleetReport:
    """The report of a fleet. `generated_at`: seconds since the epoch."""
    read = [c.summary for c in clusters if c.summary is not None]
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
    broken = sum(1 for c in fleet.clusters if c.summary is not None and c.summary.violated)
    have = "has" if broken == 1 else "have"
    said = f"{broken} of {plural(s.clusters, 'cluster')} {have} violated constraints"
    if broken:
        said += (
            f", excess {s.excess:,}; {plural(s.evictions, 'eviction')} bring it down to {s.residual_excess:,}"
        )
    if s.unreadable:
        said += f"; {s.unreadable} could not be read"
    return said + "."


def cells(c: ClusterReport) -> tuple[str, ...]:
    """What each format says of a cluster, in the order of the columns."""
    if c.summary is None:
        return c.name, "?", "", "", "", "", "", c.error
    s = c.summary
    excess = f"{s.excess:,} → {s.residual_excess:,}" if s.excess != s.residual_excess else f"{s.excess:,}"
    grade = c.grade if c.grade == c.planned_grade else f"{c.grade} → {c.planned_grade}"
    figures = (f"{s.nodes:,}", f"{s.pods:,}", f"{s.violated:,} of {s.constraints:,}")
    return c.name, grade or "–", *figures, excess, f"{s.evictions:,}", c.lead


def _worst_first(c: ClusterReport) -> tuple[bool, int, int, str]:
    if c.summary is None:
        return False, 0, 0, c.name
    return True, -ord(c.grade or "A"), -c.summary.excess, c.name


# The JSON Schema of the report: docs/report.schema.json is this, and a test keeps it so.


def to_schema() -> str:
    """As indented JSON. Fields may be added in later versions, which is why none is forbidden."""
    (found, _), components = msgspec.json.schema_components(
        [_described(Report), _described(FleetReport)], ref_template="#/$defs/{name}"
    )
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of rebalancer/v1",
        **found,
        "$defs": components,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


@cache
def _described(kind: type[Struct]) -> type[Struct]:
    """A kind that has the fields which the JSON has of this one."""
    shape = SHAPES.get(kind)
    own = {} if shape else {f.encode_name: f.default for f in msgspec.structs.fields(kind)}
    return msgspec.defstruct(
        shape.name if shape else kind.__name__,
        [
            (f"_{i}", _told(of), msgspec.field(name=name, default=own.get(name, _default(of))))
            for i, (name, of, _) in enumerate(members(kind))
        ],
        namespace={"__doc__": shape.says if shape else kind.__doc__},
        kw_only=True,
    )


def _default(of: Any) -> Any:
    return msgspec.UNSET if msgspec.UnsetType in get_args(of) else msgspec.NODEFAULT


def _told(of: Any) -> Any:
    """A type in which each kind is what is told of it."""
    if isinstance(of, type) and issubclass(of, Struct):
        return _described(of)
    origin, inner = get_origin(of), tuple(map(_told, get_args(of)))
    if origin in (UnionType, Union):
        return reduce(or_, inner)
    return origin[inner] if origin is tuple else of
