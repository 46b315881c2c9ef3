"""Reports of one cluster and of several, failures, missing room, a month: made, and not yet written."""

from __future__ import annotations

import gzip
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rebalancer.drill import Drill, drill
from rebalancer.drill.lost import NODE, Manner
from rebalancer.errors import UserError
from rebalancer.findings import plan_with_findings
from rebalancer.manifests.documents import SUFFIXES, manifests_in
from rebalancer.model.reason import listing
from rebalancer.model.snapshot import Snapshot, check_namespaces, check_readable
from rebalancer.month import Lived, Variant, play, restart_findings
from rebalancer.planner import PlanOptions
from rebalancer.planner.pace import Throttle, pace
from rebalancer.planner.plan import Plan
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.report.building import build_report
from rebalancer.report.document import Report, build_drill, in_namespaces, of_workloads
from rebalancer.report.fleet import ClusterReport, FleetReport, build_fleet, of_cluster, of_report
from rebalancer.report.text import full_key
from rebalancer.room import LOOKED_FOR_UNASKED, Room, room
from rebalancer.runtime.commands.explain import parse_selector, pods_of
from rebalancer.runtime.commands.source import Source, load_snapshot, with_label_users
from rebalancer.runtime.observers.neighbours import neighbours
from rebalancer.settings import Settings, plan_options

if TYPE_CHECKING:
    from rebalancer.report.simulated import MonthReport
    from rebalancer.runtime.commands.remembered import Remembered

_BEGINS = 200
"""Bytes of a file by which a report is known."""


def _some(what: str, names: Iterable[str]) -> str:
    """What there is instead, for a person who mistyped."""
    return f"{what} are {listing(sorted(set(names)), 5)}"


def drilled(
    snapshot: Snapshot,
    options: PlanOptions,
    *,
    plan: Plan | None,
    nodes: bool = False,
    domains: Sequence[str] = (),
    manner: Manner = "silent",
) -> Drill:
    """Lets fail, one at a time: every node (`nodes`), every domain of the labels, or that of KEY=VALUE; all
    of them if neither is asked for. Raises UserError if no node has a label, or that value of it."""
    check_readable(snapshot)
    keys = [*([NODE] if nodes else []), *map(full_key, domains)]
    for asked in keys:
        key, _, value = asked.partition("=")
        if key == NODE:
            if value and all(n.name != value for n in snapshot.nodes):
                raise UserError(
                    f"no node is called {value}", _some("nodes", (n.name for n in snapshot.nodes))
                )
            continue
        values = {n.labels[key] for n in snapshot.nodes if key in n.labels}
        if not values:
            raise UserError(
                f"no node has the label {key}", _some("labels", (k for n in snapshot.nodes for k in n.labels))
            )
        if value and value not in values:
            raise UserError(f"no node has the label {asked}", _some(f"values of {key}", values))
    return drill(
        snapshot,
        keys=keys,
        manner=manner,
        plan=plan,
        scheduler=options.scheduler,
        on_progress=options.on_progress,
    )


# What `room` does, and the report where it is cheap: the nodes that are missing.


def missing_room(snapshot: Snapshot, options: PlanOptions, plan: Plan, *, asked: bool = False) -> Room | None:
    """None where the plan leaves no excess, or where the cluster is large and nobody asked."""
    if not asked and (not plan.residual_excess or len(snapshot.pods) > LOOKED_FOR_UNASKED):
        return None
    return room(snapshot, options, plan)


# The report of one cluster.

Shows = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""Around what takes a while: says what it is, and is told how far it has come."""


@contextmanager
def nothing_shown(_: str) -> Iterator[Callable[[str], None]]:
    """Nobody is watching."""
    yield lambda _: None


def report_of(
    settings: Settings,
    source: Source,
    named: Sequence[str] = (),
    *,
    drill: bool = False,
    whose: str = "",
    selector: str = "",
    shows: Shows = nothing_shown,
) -> Report:
    """The report of one cluster. `named`: namespaces that must exist; `drill`: with what failures leave.
    `whose`: a workload (deploy/web), and `selector`: labels of pods, of which alone it is then."""
    began = time.perf_counter()
    with shows("reading the cluster") as tell:
        loaded = load_snapshot(source, tell)
    check_namespaces(loaded.snapshot, named)
    planning = with_label_users(source, loaded.snapshot, plan_options(settings))
    ledger = _remembered(settings, source)
    with shows(f"planning for {len(loaded.snapshot.pods):,} pods"):
        if ledger is None:
            planned = plan_with_findings(loaded.snapshot, planning)
        else:
            planned, planning = ledger.plan(loaded.snapshot, planning)
    failures = None
    if drill:
        with shows(f"letting {len(loaded.snapshot.nodes):,} nodes fail, one at a time"):
            found = drilled(loaded.snapshot, planning, plan=planned)
        failures = build_drill(
            found, source=loaded.snapshot.source, namespaces=settings.scope.namespaces.include
        )
    throttle = Throttle(settings.evictions.per_second or None, ledger.canary if ledger is not None else 0)
    document = build_report(
        planned,
        loaded.snapshot,
        generated_at=source.clock(),
        seconds=0.0,
        cluster=loaded.cluster,
        around=(*neighbours(loaded.snapshot), *restart_findings(loaded.snapshot, planning, planned)),
        namespaces=settings.scope.namespaces.include,
        drill=failures,
        throttle=throttle,
        room=missing_room(loaded.snapshot, planning, planned),
        waits=ledger.waits(loaded.snapshot, planned) if ledger is not None else (),
    )
    # All that it took: advice may take as long as the plan.
    took = replace(document.summary, seconds=round(time.perf_counter() - began, 3))
    document = replace(document, summary=took)
    if only := settings.scope.namespaces.include:
        document = in_namespaces(document, only)
    if not (whose or selector):
        return document
    namespace = named[0] if len(named) == 1 else ""
    return _part_of(document, loaded.snapshot, planned, throttle, whose, selector, namespace)


def _part_of(
    document: Report,
    snapshot: Snapshot,
    planned: Plan,
    throttle: Throttle,
    whose: str,
    selector: str,
    namespace: str,
) -> Report:
    """What the report says of one workload, or of the pods with such labels."""
    wanted = parse_selector(selector)
    found = (
        pods_of(snapshot, whose, namespace)
        if whose
        else [p for p in snapshot.pods if wanted.matches(p.template.labels)]
    )
    owners = Owners(snapshot, PolicyOptions())
    tops = [owners.top(owner) for p in found if (owner := owners.of(p)) is not None]
    workloads = {(w.namespace, f"{w.kind}/{w.name}") for w in tops}
    keys, mine = {p.key for p in found}, {w.key for w in tops}
    part = replace(
        planned,
        moves=tuple(m for m in planned.moves if m.pod.key in keys),
        demands=tuple(d for d in planned.demands if d.owner in mine),
    )
    lasts = pace(part, snapshot, throttle)
    return of_workloads(document, workloads, keys, whose or f"-l {selector}", lasts)


def _remembered(settings: Settings, source: Source) -> Remembered | None:
    """What the ledger says. Files have none, and need no client."""
    if source.snapshots:
        return None
    from rebalancer.runtime.commands.remembered import remembered

    return remembered(settings, source)


# The report of several clusters: by context, or by the files of a directory.

Named = tuple[str, Source]


def sources_of(contexts: str, like: Source) -> list[Named]:
    """A source for each context of a list a,b,c. Raises UserError if one is named twice, or none is."""
    names = [c.strip() for c in contexts.split(",") if c.strip()]
    if not names:
        raise UserError("--contexts names no context", "for example --contexts prod-eu,prod-us")
    if twice := {n for n in names if names.count(n) > 1}:
        raise UserError(f"--contexts names {min(twice)} twice")
    return [(name, replace(like, context=name)) for name in names]


def sources_in(folder: Path, like: Source) -> list[Named]:
    """A source for each snapshot or report in a directory: a file, or a folder of files that are one
    cluster."""
    try:
        entries = sorted(e for e in folder.iterdir() if not e.name.startswith("."))
    except OSError as e:
        why = e.strerror.lower() if e.strerror else str(e)
        raise UserError(f"{folder}: {why}", "--fleet takes a directory of snapshots and reports") from e
    found = [e for e in entries if (manifests_in(e) if e.is_dir() else _is_manifest(e))]
    if not found:
        raise UserError(
            f"{folder}: no snapshot in this directory",
            f"it is searched for {', '.join(SUFFIXES)} and their .gz",
        )
    return [(_name(e), replace(like, snapshots=(str(e),))) for e in found]


def fleet_report(
    sources: Iterable[Named], report_of: Callable[[Source], Report], *, generated_at: float, jobs: int = 1
) -> FleetReport:
    """`jobs` clusters side by side, each in a process; one that cannot be read is an entry with its error.
    With more than one, `report_of` has to be a function that another process can be given."""
    entry = partial(_entry, report_of)
    if jobs == 1:
        return build_fleet([entry(named) for named in sources], generated_at=generated_at)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return build_fleet(list(pool.map(entry, sources)), generated_at=generated_at)


def _entry(report_of: Callable[[Source], Report], named: Named) -> ClusterReport:
    name, source = named
    try:
        if len(source.snapshots) == 1 and (written := _report_in(Path(source.snapshots[0]))) is not None:
            return of_report(name, written)
        return of_cluster(name, report_of(source))
    except UserError as e:
        return ClusterReport(name=name, error=str(e))


_REPORT = re.compile(rb'\s*\{\s*"apiVersion":\s*"rebalancer/v1",\s*"kind":\s*"Report"')
"""How a report as JSON begins."""


def _report_in(file: Path) -> bytes | None:
    """The report that the file has; None if it has something else, a snapshot say."""
    if not file.name.removesuffix(".gz").endswith(".json") or not file.is_file():
        return None
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as opened:
            begins = opened.read(_BEGINS)
            return begins + opened.read() if _REPORT.match(begins) else None
    except (OSError, EOFError, zlib.error):
        # What is wrong with it is said by who reads snapshots.
        return None


def _is_manifest(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith(SUFFIXES)


def _name(entry: Path) -> str:
    name = entry.name.removesuffix(".gz") if entry.is_file() else entry.name
    return next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)


# A month of a snapshot under every variant, as a document.


def month(
    snapshot: Snapshot,
    options: PlanOptions,
    *,
    days: int,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
) -> MonthReport:
    """Plays it four times with the same events. `tell` is called with progress in words."""
    from rebalancer.report.simulated import build_month

    check_readable(snapshot)
    lived: list[Lived] = []
    for variant in Variant:
        tell(f"{days} days under {variant.value}")
        lived.append(play(snapshot, options, variant, days=days, draw=Random(seed).random))
    return build_month(lived, source=snapshot.source, seed=seed, days=days)
