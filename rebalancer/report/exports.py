"""A report, and a fleet's, in each format."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import IO, Any, NamedTuple

from msgspec import UNSET

from rebalancer.errors import UserError
from rebalancer.model.reason import Finding, clean, listing, plural
from rebalancer.planner.plan import ConstraintResult
from rebalancer.report import text, words
from rebalancer.report.document import DrillReport, Report
from rebalancer.report.failing_domains import Risk
from rebalancer.report.fleet import FleetReport, cells
from rebalancer.report.fleet import headline as fleet_headline
from rebalancer.report.formats import Format
from rebalancer.report.missing_room import section as room
from rebalancer.report.output import json_pieces, render_lines, render_table, to_builtins, to_json
from rebalancer.report.words import Showing, beyond_reach, headline
from rebalancer.yaml import to_yaml

# GitHub's Markdown, for pull requests and chat. Names are never read as markup.

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!$])")
_MOST_ROWS = 50
_MOST_RISKS = 10


def to_markdown(report: Report) -> str:
    """The whole report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "## Topology spread"
    yield ""
    if lead := words.lead(report):
        yield f"**{escape(lead)}**"
        yield ""
    yield f"**{escape(text.headline(report))}**"
    yield ""
    yield from (line for wait in words.waits(report) for line in (escape(wait), ""))
    yield f"{escape(text.facts(report))} · {report.generated_at}"
    if skewed := text.out_of_scope(report):
        yield ""
        yield escape(skewed)
    violated = text.worst_first(report.constraints)
    yield from _violated(violated)
    yield from _overview(report)
    yield from _risks([r for r in report.risks if r.lost > r.best])
    yield from _evictions(report)
    yield from _stays(report, [c for c in violated if c.reasons])
    groups = text.blocked_groups(report.blocked, 3)
    if groups:
        yield from _heading(f"Not evicted: {plural(len(report.blocked), 'pod')}")
        yield from _table(
            ("pods", "reason", "for example", "message"),
            ((str(len(g.pods)), g.reason, code(listing(g.pods)), escape(g.message)) for g in groups),
        )
    if report.room is not UNSET:
        yield from _heading("Room that is missing")
        yield from (f"{escape(line)}  " for line in room(report.room))
    if report.drill is not UNSET:
        yield from _drill(report.drill)
    if report.findings:
        yield from _heading("Findings")
        for g in text.found_groups(report.findings):
            first = g.findings[0]
            whose = code(first.object)
            if more := g.more(10):
                whose += f" (and {escape(more)})"
            yield f"- **{g.severity}** {g.code}: {whose}: {escape(text.says(first))}"
            yield from _remedy(first.remedy)
    for title, sentences in (("Assumed", report.assumptions), ("Not known", report.warnings)):
        if sentences:
            yield from _heading(title)
            yield from (f"- {escape(s)}" for s in sentences)


def _violated(violated: Sequence[ConstraintResult]) -> Iterator[str]:
    if not violated:
        return
    yield from _heading("Violated constraints")
    yield from _table(
        ("workload", "key", "maxSkew", "domains now → planned", "lost with the fullest", "status"),
        (
            (
                code(text.name_of(c)),
                code(text.short_key(c.constraint.topology_key)),
                str(c.constraint.max_skew),
                code(text.change(c)),
                f"{text.percent(c.worst_domain_loss)}, best {text.percent(c.best_domain_loss)}",
                c.status,
            )
            for c in violated
        ),
    )


def _risks(avoidable: Sequence[Risk]) -> Iterator[str]:
    if not avoidable:
        return
    yield from _heading("Lost with the fullest domain")
    yield from _table(
        ("workload", "domain", "pods", "lost now", "planned", "at best"),
        (
            (
                code(f"{r.namespace}/{r.workload}"),
                code(f"{text.short_key(r.topology_key)} {r.domain}"),
                str(r.pods),
                *(text.percent(share) for share in (r.lost, r.planned, r.best)),
            )
            for r in avoidable
        ),
        _MOST_RISKS,
    )


def _evictions(report: Report) -> Iterator[str]:
    if not report.evictions:
        return
    yield from _heading(f"Plan: {plural(len(report.evictions), 'eviction')}")
    yield from _table(
        ("wave", "evict", "from", "to", "why"),
        (
            (
                str(e.move.wave),
                code(e.move.pod.key),
                code(e.move.pod.node_name),
                code(listing(e.move.destinations)) + ("" if e.move.certain else " (likely)"),
                escape(e.move.reason),
            )
            for e in report.evictions
        ),
    )


def _drill(drill: DrillReport) -> Iterator[str]:
    yield from _heading("If a node or a domain fails")
    yield escape(headline(drill))
    if drill.worst:
        yield ""
        planned = ("Pending after the plan",) if drill.planned else ()
        yield from _table(
            ("if it fails", "nodes", "pods lost", "Pending", *planned, "budgets breached"),
            (
                (
                    code(f.name),
                    *(str(n) for n in (f.nodes, f.lost, f.says_pending)),
                    *((f.says_planned,) if drill.planned else ()),
                    str(f.budgets),
                )
                for f in drill.worst
            ),
        )


def _overview(report: Report) -> Iterator[str]:
    if len(report.domains) > 1:
        yield from _heading("If a zone fails")
        yield from _table(
            ("zone", "goes with it: now → planned"),
            ((code(d.domain), escape(words.zone_says(d))) for d in report.domains),
        )
    if report.namespaces:
        yield from _heading("Namespaces")
        yield from _table(
            ("grade", "namespace", "why"),
            (
                (words.grade_letters(n), code(n.namespace), escape(words.grade_says(n)))
                for n in report.namespaces
            ),
            _MOST_RISKS,
        )
        yield ""
        yield escape(words.LEGEND)


def _stays(report: Report, left: Sequence[ConstraintResult]) -> Iterator[str]:
    if not left:
        return
    yield from _heading("What stays, and why")
    for said in (beyond_reach(report), text.moment(report)):
        if said:
            yield escape(said)
            yield ""
    for c in left[:_MOST_ROWS]:
        whose = f"{code(text.name_of(c))} {code(text.short_key(c.constraint.topology_key))}"
        yield f"- {whose}, excess {c.residual_excess}"
        for why in c.reasons:
            remedy = f" → {escape(why.remedy)}" if why.remedy else ""
            yield f"  - **{why.code}** {escape(why.message)}{remedy}"


def _remedy(remedy: str) -> Iterator[str]:
    """A remedy: a command in its line, YAML in a block that can be opened. Nothing in it can end the
    block."""
    if not remedy:
        return
    if "\n" not in remedy:
        yield f"  → {code(remedy)}"
        return
    runs = re.findall(r"`+", remedy)
    fence = "`" * max(3, *(len(run) + 1 for run in runs), 3)
    yield f"  {fence}yaml"
    yield from (f"  {clean(line)}" for line in remedy.split("\n"))
    yield f"  {fence}"


def _heading(title: str) -> Iterator[str]:
    yield ""
    yield f"### {title}"
    yield ""


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]], most: int = _MOST_ROWS) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    left = 0
    for number, row in enumerate(rows):
        if number < most:
            yield f"| {' | '.join(row)} |"
        else:
            left += 1
    if left:
        yield ""
        yield f"… and {left:,} more; the JSON has all."


def escape(words: str) -> str:
    """Text that is escaped, so that nothing in it is markup, a mention, a link or a line break."""
    plain = clean(" ".join(words.split("\n"))).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", plain).replace("@", "&#64;").replace("://", ":&#47;/")


def code(words: str) -> str:
    """A name as a code span, which may stand in a table cell. A backtick in the name does not end the
    span."""
    plain = clean(words).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain.strip() else "—"


# The report as objects of openreports.io, which viewers of policy reports show: `… | kubectl apply -f -`.
#
# One Report for each namespace and a ClusterReport for what belongs to none, as a List.

API_VERSION = "openreports.io/v1alpha1"
_SOURCE = "rebalancer"
_LONGEST = 1024
_MOST_RESULTS = 1000
"""Of one report: with more it could become larger than what an API server stores."""
_WORST_FIRST = {"error": 0, "fail": 1, "warn": 2, "skip": 3, "pass": 4}
_SEVERITIES = {"error": "high", "warning": "medium", "info": "info"}
_RESULTS = {"error": "fail", "warning": "warn", "info": "skip"}
_APPS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
_API = {
    **dict.fromkeys(_APPS, "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    "PodDisruptionBudget": "policy/v1",
    **dict.fromkeys(("Pod", "Node", "Namespace", "ReplicationController"), "v1"),
}
Json = dict[str, Any]


def to_openreports(report: Report) -> Json:
    """A List of objects to apply."""
    when = {"seconds": int(datetime.fromisoformat(report.generated_at).timestamp()), "nanos": 0}
    by: dict[str, list[Json]] = {"": []}
    for c in report.constraints:
        if c.in_scope:
            by.setdefault(c.constraint.namespace, []).append({**_constraint(c), "timestamp": when})
    for f in report.findings:
        parts = f.object.split("/")
        by.setdefault(parts[1] if len(parts) == 3 else "", []).append({**_finding(f), "timestamp": when})
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [_object(namespace, results) for namespace, results in sorted(by.items())],
    }


def _object(namespace: str, results: list[Json]) -> Json:
    labels = {"app.kubernetes.io/managed-by": _SOURCE}
    counts = Counter(r["result"] for r in results)
    kept = sorted(results, key=lambda r: _WORST_FIRST[r["result"]])[:_MOST_RESULTS]
    return {
        "apiVersion": API_VERSION,
        "kind": "Report" if namespace else "ClusterReport",
        "metadata": {
            "name": "topology-spread",
            **({"namespace": namespace} if namespace else {}),
            "labels": labels,
        },
        "source": _SOURCE,
        "summary": {k: counts[k] for k in ("pass", "fail", "warn", "error", "skip")},
        "results": kept,
    }


def _constraint(c: ConstraintResult) -> Json:
    key, most = c.constraint.topology_key, c.constraint.max_skew
    said = f"{text.short_key(key)}: skew {c.skew}, maxSkew {most}: {text.change(c)}"
    if c.reasons and c.residual_excess:
        said += f"; excess {c.residual_excess} stays: {c.reasons[0].message}"
    return _result(
        "topology-spread-constraint",
        key,
        "fail" if c.excess else "pass",
        "high" if c.residual_excess else "medium" if c.excess else "info",
        said,
        [_reference(c.constraint.namespace, w) for w in c.workloads],
        {
            "status": c.status,
            "excess": str(c.excess),
            "residualExcess": str(c.residual_excess),
            "worstDomainLoss": text.percent(c.worst_domain_loss),
            "bestDomainLoss": text.percent(c.best_domain_loss),
        },
    )


def _finding(f: Finding) -> Json:
    kind, _, rest = f.object.partition("/")
    namespace, _, name = rest.rpartition("/")
    severity = f.severity.value
    more = {"remedy": f.remedy[:_LONGEST]} if f.remedy else {}
    subject = _reference(namespace, f"{kind}/{name}")
    return _result(f.code, f.field, _RESULTS[severity], _SEVERITIES[severity], text.says(f), [subject], more)


def _result(
    policy: str,
    rule: str,
    result: str,
    severity: str,
    message: str,
    subjects: list[Json],
    properties: dict[str, str],
) -> Json:
    found: Json = {
        "source": _SOURCE,
        "policy": policy,
        **({"rule": rule} if rule else {}),
        "category": "Availability",
        "severity": severity,
        "result": result,
        "scored": True,
        "message": clean(message)[:_LONGEST],
    }
    if subjects:
        found["resources"] = subjects
    if properties:
        found["properties"] = properties
    return found


def _reference(namespace: str, workload: str) -> Json:
    kind, name = workload.partition("/")[0], workload.rpartition("/")[2]
    found = {"apiVersion": _API[kind]} if kind in _API else {}
    return {**found, "kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


# The report's constraints as CSV, for spreadsheets: a row for each.

_COLUMNS = (
    "namespace",
    "workloads",
    "topologyKey",
    "whenUnsatisfiable",
    "maxSkew",
    "skew",
    "excess",
    "residualExcess",
    "status",
    "inScope",
    "domains",
    "after",
    "worstDomainLoss",
    "bestDomainLoss",
    "evictions",
    "reasons",
    "selector",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(report: Report) -> str:
    """Comma-separated, with a head. No cell is a formula."""
    return _csv(_COLUMNS, rows(report))


def _csv(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return buffer.getvalue()


def rows(report: Report) -> Iterator[list[object]]:
    """A row for each constraint."""
    evictions = [0] * len(report.constraints)
    for e in report.evictions:
        for f in e.fixes:
            evictions[f.constraint] += 1
    for c, moves in zip(report.constraints, evictions, strict=True):
        row = (
            c.constraint.namespace,
            " ".join(c.workloads),
            c.constraint.topology_key,
            c.constraint.when_unsatisfiable,
            c.constraint.max_skew,
            c.skew,
            c.excess,
            c.residual_excess,
            c.status,
            str(c.in_scope).lower(),
            text.counts(c.domains),
            text.counts(c.after),
            round(c.worst_domain_loss, 4),
            round(c.best_domain_loss, 4),
            moves,
            " ".join(r.code for r in c.reasons),
            c.selector or "",
        )
        yield [cell(v) if isinstance(v, str) else v for v in row]


def cell(words: str) -> str:
    """Text that no spreadsheet takes for a formula, and no terminal for a command."""
    plain = clean(words)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain


# A fleet's report.

_HEADS = ("CLUSTER", "GRADE", "NODES", "PODS", "VIOLATED", "EXCESS", "EVICTIONS", "AT RISK")


def _fleet_table(fleet: FleetReport, stream: IO[str] | None) -> str:
    from rebalancer.report.terminal import Rows

    rows = Rows(_HEADS, map(cells, fleet.clusters), ("NODES", *_HEADS[4:7]))
    more = "The report of one cluster: --context NAME, or its file."
    return render_lines((fleet_headline(fleet), "", rows, "", more), stream)


def _fleet_markdown(fleet: FleetReport) -> str:
    rows = (tuple(map(escape, cells(c))) for c in fleet.clusters)
    table = _table(tuple(map(str.lower, _HEADS)), rows, len(fleet.clusters))
    head = ("## Topology spread of a fleet", "", f"**{escape(fleet_headline(fleet))}**", "")
    return "\n".join((*head, *table)) + "\n"


def _fleet_csv(fleet: FleetReport) -> str:
    """The constraints of all clusters, with the cluster in the first column."""
    read = ((cell(c.name), rows(c.report)) for c in fleet.clusters if c.report is not None)
    return _csv(("cluster", *_COLUMNS), ((name, *row) for name, own in read for row in own))


def _fleet_html(fleet: FleetReport) -> str:
    """A page: a row for each cluster. Every value is escaped."""
    from rebalancer.report.page import filled

    rows = [(c, cells(c)) for c in fleet.clusters]
    return filled("fleet", headline=fleet_headline(fleet), fleet=fleet, rows=rows)


# All formats.


class Renderer(NamedTuple):
    """How a format is written: a report, and a fleet's; None where the format knows a single cluster only."""

    report: Callable[[Report, IO[str] | None, Showing], str]
    fleet: Callable[[FleetReport, IO[str] | None], str] | None


def _html(report: Report, _: IO[str] | None, showing: Showing) -> str:
    from rebalancer.report.page import to_html

    return to_html(report, showing.command)


RENDERERS = {
    Format.TABLE: Renderer(render_table, _fleet_table),
    Format.WIDE: Renderer(partial(render_table, wide=True), _fleet_table),
    Format.JSON: Renderer(lambda r, *_: to_json(r), lambda f, _: to_json(f)),
    Format.YAML: Renderer(lambda r, *_: to_yaml(to_builtins(r)), lambda f, _: to_yaml(to_builtins(f))),
    Format.MARKDOWN: Renderer(lambda r, *_: to_markdown(r), lambda f, _: _fleet_markdown(f)),
    Format.HTML: Renderer(_html, lambda f, _: _fleet_html(f)),
    Format.CSV: Renderer(lambda r, *_: to_csv(r), lambda f, _: _fleet_csv(f)),
    Format.OPENREPORTS: Renderer(lambda r, *_: to_yaml(to_openreports(r)), None),
}


def render(
    document: Report | FleetReport,
    format: Format,
    *,
    stream: IO[str] | None = None,
    showing: Showing | None = None,
) -> str:
    """The document in a format. Raises UserError for a fleet in a format that knows a single cluster only.

    `stream`: where it will be written, which decides on the width and, unless `showing` does, the colours of
    tables. None: a fixed width and no colours.
    """
    known = RENDERERS[format]
    if isinstance(document, Report):
        return known.report(document, stream, showing or Showing())
    if known.fleet is None:
        raise UserError(f"-o {format.value} is of one cluster", "ask for each cluster by itself")
    return known.fleet(document, stream)


def write(report: Report, format: Format, file: IO[bytes], *, showing: Showing | None = None) -> None:
    """Writes the report as UTF-8, JSON in pieces: that of a large cluster has hundreds of megabytes."""
    if format is not Format.JSON:
        file.write(render(report, format, showing=showing).encode())
        return
    for piece in json_pieces(report):
        file.write(piece)
