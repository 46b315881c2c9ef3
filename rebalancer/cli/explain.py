"""`rebalancer explain`: where the scheduler would put a pod, node by node."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.progress import progress

EXAMPLES = """\b
Examples:
  # Why is it Pending?
  rebalancer explain shop/web-5d8f9c7b4-x2k7p
  # Every node with everything that speaks against it
  rebalancer explain shop/web-5d8f9c7b4-x2k7p -o wide
  # Where would its replacement go after an eviction?
  rebalancer explain shop/web-5d8f9c7b4-x2k7p --replacement
  # A pod that does not exist yet
  rebalancer explain --pod-file deployment.yaml --snapshot cluster.json
"""


class Form(StrEnum):
    """How a placement is shown."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


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
        typer.Option("--replacement", help="The pod that its owner would make after an eviction, instead."),
    ] = False,
    output: Annotated[Form, typer.Option("--output", "-o")] = Form.TABLE,
    snapshot: options.Snapshots = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Of a pod named without one.")
    ] = "",
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show for one pod which nodes take it, which reject it and why, and how the others score.

    A pod that has a node is judged as if it were to be placed again now. Nothing is changed.
    """
    if not pod and pod_file is None:
        raise typer.BadParameter("a pod or --pod-file is needed")
    if pod_file == "-" and "-" in (snapshot or ()):
        raise typer.BadParameter("standard input can be the snapshot or the pod, not both")
    if pod_file is not None and replacement:
        raise typer.BadParameter("--replacement is of a pod that exists")
    from rebalancer.report.output import to_json
    from rebalancer.report.placement import explain_pod
    from rebalancer.report.placement_table import to_table
    from rebalancer.runtime.find_pod import find_pod
    from rebalancer.runtime.pod_file import choose, read_pods
    from rebalancer.runtime.source import load_snapshot
    from rebalancer.settings import load_settings, plan_options

    scheduler = plan_options(load_settings(config)).scheduler
    source = options.source_of(snapshot, kubeconfig, context, impersonate)
    with progress("reading the cluster"):
        loaded = load_snapshot(source).snapshot
    if pod_file is not None:
        path = pod_file if pod_file == "-" else Path(pod_file)
        chosen = choose(read_pods(path, loaded), pod, "stdin" if pod_file == "-" else pod_file)
    else:
        chosen = find_pod(loaded, pod, namespace)
    placement = explain_pod(loaded, chosen, scheduler, replacement=replacement)
    if output is Form.JSON:
        sys.stdout.write(to_json(placement))
    else:
        sys.stdout.write(to_table(placement, wide=output is Form.WIDE))
