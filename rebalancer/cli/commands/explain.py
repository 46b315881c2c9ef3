"""`rebalancer explain`: where the scheduler would put a pod, node by node."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from msgspec.structs import replace

from rebalancer.cli import options
from rebalancer.cli.console import ExitCode, progress
from rebalancer.cli.options import USUAL, Reach, reaches_a_cluster
from rebalancer.model.node import HOSTNAME
from rebalancer.model.reason import clean

if TYPE_CHECKING:
    from rebalancer.runtime.commands.remembered import HistoryLine
    from rebalancer.runtime.commands.source import Source


# `rebalancer explain --compare`: whether the scheduler does what the engine says.


def seconds_of(text: str) -> float:
    """The seconds of --watch."""
    from rebalancer.settings.field_types import parse_duration

    try:
        return parse_duration(text)
    except ValueError as e:
        raise typer.BadParameter(str(e), param_hint="--watch") from e


def explain_compare(source: Source, settings: Path | None, watch: str, *, json: bool) -> None:
    """Compares and prints; exit code 3 if the scheduler did once what the engine says it would not do."""
    from rebalancer.engine.agreement import Comparison
    from rebalancer.report.explained import agreement_report, line, total
    from rebalancer.report.output import to_json
    from rebalancer.runtime.commands.explain import compare_refusals, compare_watched
    from rebalancer.settings import plan_options

    seconds = seconds_of(watch) if watch else 0.0
    config = plan_options(options.settings_of(settings)).scheduler

    def tell(comparison: Comparison) -> None:
        if not json:
            sys.stdout.write(line(comparison) + "\n")
            sys.stdout.flush()

    if watch:
        with progress(f"watching the scheduler for {watch}"):
            report = agreement_report(compare_watched(source, config, seconds, tell))
    else:
        with progress("reading the cluster and the scheduler's events"):
            report = agreement_report(compare_refusals(source, config))
        for comparison in report.comparisons:
            tell(comparison)
    if json:
        sys.stdout.write(to_json(report))
    else:
        hint = (
            ""
            if report.compared or watch
            else (": the scheduler refused no pod in the last minute; --watch 5m sees what it does meanwhile")
        )
        sys.stdout.write(f"{total(report)}{hint}\n")
        if watch:
            sys.stdout.write(f"{report.verdict}\n")
    if report.disagrees:
        raise typer.Exit(ExitCode.VIOLATIONS)


EXPLAIN_EXAMPLES = """\b
Examples:
  # Why is it Pending?
  rebalancer explain shop/web-5d8f9c7b4-x2k7p
  # Every node, with everything that rejects the pod there
  rebalancer explain shop/web-5d8f9c7b4-x2k7p -o wide
  # Where would its replacement go after an eviction?
  rebalancer explain shop/web-5d8f9c7b4-x2k7p --replacement
  # A pod that does not exist yet
  rebalancer explain --pod-file deployment.yaml --snapshot cluster.json
  # Does the tool know this cluster's scheduler?
  rebalancer explain --compare --watch 5m
"""


@reaches_a_cluster
def explain(
    pod: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]POD", help="Optional with --pod-file.", show_default=False)
    ] = "",
    pod_file: Annotated[
        str | None,
        typer.Option(
            "--pod-file",
            metavar="FILE|-",
            help="A pod that does not exist yet: the manifest of a Pod, Deployment, StatefulSet, …",
        ),
    ] = None,
    replacement: Annotated[
        bool,
        typer.Option(
            "--replacement", help="Judge the pod that its owner would make after an eviction instead."
        ),
    ] = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare what the scheduler said of pods in the last minute with what this tool says.",
        ),
    ] = False,
    watch: Annotated[
        str,
        typer.Option(
            "--watch", metavar="DURATION", help="With --compare: compare what it does meanwhile, 5m say."
        ),
    ] = "",
    output: Annotated[Literal["table", "wide", "json"], typer.Option("--output", "-o")] = "table",
    snapshot: options.Snapshots = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace, if POD does not name one.")
    ] = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Show which nodes take a pod, which reject it and why, and how the scheduler scores those that take it.

    A pod that has a node is judged as if it were to be placed now. Nothing is changed.
    """
    if compare or watch:
        if not compare or pod or pod_file or replacement or snapshot:
            raise typer.BadParameter(
                "--compare [--watch DURATION] goes with a live cluster, not with one pod"
            )
        live = options.source_of(reach)
        explain_compare(live, config, watch, json=output == "json")
        return
    if not pod and pod_file is None:
        raise typer.BadParameter("a pod or --pod-file is needed")
    if pod_file == "-" and "-" in (snapshot or ()):
        raise typer.BadParameter("standard input can be the snapshot or the pod, not both")
    if pod_file is not None and replacement:
        raise typer.BadParameter("--replacement is of a pod that exists")

    from rebalancer.model.quantity import rfc3339
    from rebalancer.report.explained import explain_pod, pod_in_plan, to_table
    from rebalancer.report.output import to_json
    from rebalancer.runtime.commands.explain import choose, find_pod, read_pods
    from rebalancer.runtime.commands.remembered import remembered
    from rebalancer.runtime.commands.source import with_label_users
    from rebalancer.settings import plan_options

    settings = options.settings_of(config)
    planning = plan_options(settings)
    source = options.source_of(reach, snapshot, namespaces=settings.scope.read_namespaces)
    loaded = options.read(source).snapshot
    if pod_file is not None:
        path = pod_file if pod_file == "-" else Path(pod_file)
        chosen = choose(read_pods(path, loaded), pod, "stdin" if pod_file == "-" else pod_file)
    else:
        chosen = find_pod(loaded, pod, namespace)
    placement = explain_pod(loaded, chosen, planning.scheduler, replacement=replacement)
    if pod_file is None:
        made = options.planned(loaded, with_label_users(source, loaded, planning))
        found = pod_in_plan(made, chosen)
        known = remembered(settings, source) if found.wave and not source.snapshots else None
        if known is not None and (waits := known.waits_for(loaded, made, chosen)) is not None:
            says = f"{found.says} `rebalancer run` does not yet: {waits.message} ({waits.remedy})."
            found = replace(found, says=says)
        placement = replace(placement, plan=found)
        if chosen.node_name and not placement.fitting and not source.snapshots:
            at = remembered(settings, source).since(loaded, chosen)
            placement = replace(placement, since=rfc3339(at) if at is not None else "")
    if output == "json":
        sys.stdout.write(to_json(placement))
    else:
        sys.stdout.write(to_table(placement, wide=output == "wide", stream=sys.stdout))


# `rebalancer history`: why was my pod evicted?

HISTORY_EXAMPLES = """\b
Examples:
  # Everything that is remembered
  rebalancer history
  # Why was this pod evicted? What became of this workload?
  rebalancer history shop/web-7d9f-x2x
  rebalancer history deploy/web -n shop
"""


@reaches_a_cluster
def history(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[NAMESPACE/POD|OWNER]", help="A pod or an owner, with or without its namespace or kind."
        ),
    ] = "",
    output: Annotated[
        Literal["text", "json"],
        typer.Option("-o", "--output", help="text for people, json for one JSON object a line."),
    ] = "text",
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Show which pods were evicted, why, and how it went, from the ledger and from events."""
    from rebalancer.cli.lines import say
    from rebalancer.kube.config_maps import Ledgers
    from rebalancer.kube.errors import KubeError
    from rebalancer.kube.patches import EventNote, read_events
    from rebalancer.policy.history.ledger import Ledger
    from rebalancer.report.text import short_names
    from rebalancer.runtime.commands.remembered import history_of
    from rebalancer.runtime.live.places import places_of

    wait = threading.Event().wait
    problems: list[KubeError] = []
    ledger = Ledger()
    events: tuple[EventNote, ...] = ()
    with options.reached(config, reach, least="error") as (settings, connection):
        place = places_of(settings, connection, wait=wait).ledger
        try:
            ledger = Ledgers(connection, place, writer="", wait=wait).load()
        except KubeError as e:
            problems.append(e)
        try:
            events = tuple(
                e for n in (namespace or [""]) for e in read_events(connection, wait=wait, namespace=n)
            )
        except KubeError as e:
            problems.append(e)
    if len(problems) == 2:
        raise problems[0]
    for problem in problems:
        print(clean(f"warning: {problem}"), file=sys.stderr)
    found = [p for p in history_of(ledger, events, what) if not namespace or p.namespace in namespace]
    if output == "json":
        for p in found:
            print(msgspec.json.encode(p).decode())
        return
    short = short_names({HOSTNAME: {n for p in found for n in (p.node, p.predicted, p.landed) if n}})
    for p in found:
        for line in _lines(p):
            say(line, short)
    if short.note and sys.stdout.isatty():
        say(short.note)
    if not found:
        about = f" about {what}" if what else ""
        say(f"nothing is remembered{about}: neither in {place} nor in events, which last about an hour")


def _lines(p: HistoryLine) -> list[str]:
    """The lines about one eviction."""
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(p.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    parts = [f"{when}  {p.fate:<10}  {p.namespace}/{p.pod} of {p.owner or 'nobody'}"]
    if p.node:
        parts.append(p.path)
    parts += [text for text in (p.reason, p.message) if text]
    return [parts[0], *(f"    {part}" for part in parts[1:])]
