"""`rebalancer explain`: where the scheduler would put a pod, node by node."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.commands.showing.explain_compare import explain_compare
from rebalancer.cli.progress import progress
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

EXAMPLES = """\b
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


class Form(StrEnum):
    """An output format."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


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
    output: Annotated[Form, typer.Option("--output", "-o")] = Form.TABLE,
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
        live = options.source_of(None, reach)
        explain_compare(live, config, watch, json=output is Form.JSON)
        return
    if not pod and pod_file is None:
        raise typer.BadParameter("a pod or --pod-file is needed")
    if pod_file == "-" and "-" in (snapshot or ()):
        raise typer.BadParameter("standard input can be the snapshot or the pod, not both")
    if pod_file is not None and replacement:
        raise typer.BadParameter("--replacement is of a pod that exists")
    from msgspec.structs import replace

    from rebalancer.planner import plan
    from rebalancer.report.explain.placement import explain_pod
    from rebalancer.report.explain.pod_in_plan import pod_in_plan
    from rebalancer.report.explain.table import to_table
    from rebalancer.report.output import to_json
    from rebalancer.report.wording.times import rfc3339
    from rebalancer.runtime.commands.explain.find_pod import find_pod
    from rebalancer.runtime.commands.explain.pod_file import choose, read_pods
    from rebalancer.runtime.commands.remembered import remembered
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.settings import load_settings, plan_options

    settings = load_settings(config)
    planning = plan_options(settings)
    source = options.source_of(snapshot, reach, namespaces=settings.scope.read_namespaces)
    with progress("reading the cluster") as tell:
        loaded = load_snapshot(source, tell).snapshot
    if pod_file is not None:
        path = pod_file if pod_file == "-" else Path(pod_file)
        chosen = choose(read_pods(path, loaded), pod, "stdin" if pod_file == "-" else pod_file)
    else:
        chosen = find_pod(loaded, pod, namespace)
    placement = explain_pod(loaded, chosen, planning.scheduler, replacement=replacement)
    if pod_file is None:
        with progress(f"planning for {len(loaded.pods):,} pods"):
            placement = replace(placement, plan=pod_in_plan(plan(loaded, planning), chosen))
        if chosen.node_name and not placement.fitting and not source.snapshots:
            at = remembered(settings, source, loaded).since(loaded, chosen)
            placement = replace(placement, since=rfc3339(at) if at is not None else "")
    if output is Form.JSON:
        sys.stdout.write(to_json(placement))
    else:
        sys.stdout.write(to_table(placement, wide=output is Form.WIDE))
