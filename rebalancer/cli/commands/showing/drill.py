"""`rebalancer drill`: what the failure of each node and each domain would leave Pending. Changes nothing."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.progress import progress
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

EXAMPLES = """\b
Examples:
  # Every node and every zone (or other domain of a constraint) fails, one at a time
  rebalancer drill
\b
  # Zones alone, from a file; fail if one of them would leave more than 20 pods Pending
  rebalancer drill --snapshot cluster.json.gz --domain zone --max-pending 20
\b
  # One zone, and one node
  rebalancer drill --domain zone=b --domain hostname=node-7
\b
  # As after the autoscaler has deleted the nodes: StatefulSets replace their pods, too
  rebalancer drill --node --removed
"""


class Form(StrEnum):
    """An output format."""

    TABLE = "table"
    JSON = "json"


@reaches_a_cluster
def drill(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
    node: Annotated[bool, typer.Option("--node", help="Every node fails, one at a time.")] = False,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain",
            metavar="KEY[=VALUE]",
            help="Every domain of this label fails, or the one of that value; zone stands for the well-known "
            "key, and so do region and hostname (repeatable).",
        ),
    ] = None,
    each: Annotated[
        bool,
        typer.Option("--each", help="Nodes and the domains of all spread constraints. This is the default."),
    ] = False,
    removed: Annotated[
        bool,
        typer.Option("--removed", help="The nodes are deleted. By default they only stop answering."),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan/--no-plan", help="Try again as the plan would leave the cluster.")
    ] = True,
    max_pending: Annotated[
        int | None,
        typer.Option(
            "--max-pending",
            metavar="N",
            min=0,
            help="Exit with 3 if a failure leaves more than N pods Pending, as the cluster is.",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Tell the N worst in full.")] = 10,
    output: Annotated[Form, typer.Option("--output", "-o")] = Form.TABLE,
    now: options.Now = None,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Let every node and every domain fail, one at a time, and show which pods find no other node.

    Nothing is changed: failures are replayed on the scheduler's own rules, today and after the plan.
    """
    if each and (node or domain):
        raise typer.BadParameter("--each is --node and every --domain: give it alone")
    from rebalancer.planner import plan as plan_of
    from rebalancer.report.drilled.document import build_drill
    from rebalancer.report.drilled.table import to_table
    from rebalancer.report.output import to_json
    from rebalancer.runtime.commands.drill import drilled
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.runtime.cycle.snapshot_checks import check_namespaces
    from rebalancer.settings import load_settings, plan_options

    settings = load_settings(config, flags=options.scope_of(namespace, all_namespaces))
    source = options.source_of(
        [*(files or ()), *(snapshot or ())], reach, now, settings.scope.read_namespaces
    )
    with progress("reading the cluster") as tell:
        loaded = load_snapshot(source, tell)
    check_namespaces(loaded.snapshot, namespace or ())
    planning = plan_options(settings)
    planned = None
    if plan:
        with progress(f"planning for {len(loaded.snapshot.pods):,} pods"):
            planned = plan_of(loaded.snapshot, planning)
    with progress(f"letting {len(loaded.snapshot.nodes):,} nodes fail, one at a time"):
        found = drilled(
            loaded.snapshot,
            planning,
            plan=planned,
            nodes=node,
            domains=domain or (),
            manner="removed" if removed else "silent",
        )
    shown = build_drill(
        found, source=loaded.snapshot.source, namespaces=settings.scope.namespaces.include, worst=top
    )
    sys.stdout.write(to_json(shown) if output is Form.JSON else to_table(shown))
    if max_pending is not None and shown.most_pending > max_pending:
        raise typer.Exit(ExitCode.VIOLATIONS)
