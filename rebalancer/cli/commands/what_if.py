"""`rebalancer simulate`: carries out the plan in an embedded cluster, if wanted after a change to it."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rebalancer.cli import options
from rebalancer.cli.console import ExitCode, progress, sandbox_needed
from rebalancer.cli.options import USUAL, Reach, reaches_a_cluster
from rebalancer.model.reason import clean, plural

if TYPE_CHECKING:
    from rebalancer.outcome import Observer
    from rebalancer.runtime.commands.source import Source
    from rebalancer.settings import Settings


SIMULATE_EXAMPLES = """\b
Examples:
  # What would `once --execute` do, and how would it end?
  rebalancer simulate --snapshot cluster.json.gz
  # What if a zone failed, with twice as many pods of one workload?
  rebalancer simulate --snapshot cluster.json.gz --scale shop/web=12 --fail-domain zone=eu-west-1a
  # Would a restart repair what evictions cannot? It replaces all pods, and takes no budget into account
  rebalancer simulate --snapshot cluster.json.gz --restart shop/web
\b
  # Would three more nodes help?
  rebalancer simulate --snapshot cluster.json.gz --add-nodes 3 --like node-7
\b
  # A month of scale-ins, rollouts, node replacements and an outage: what would prevention save?
  rebalancer simulate --snapshot cluster.json.gz --days 30 --seed 7 -o html > month.html
"""


def _scale(text: str) -> str:
    workload, _, number = text.rpartition("=")
    if not workload.rpartition("/")[2] or not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is not NAMESPACE/NAME=REPLICAS")
    return text


def _domain(text: str) -> str:
    key, _, value = text.partition("=")
    if not key or not value:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE such as zone=eu-west-1a")
    return text


@reaches_a_cluster
def simulate(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            metavar="NS/NAME=N",
            parser=_scale,
            help="First scale a workload to N replicas (repeatable).",
        ),
    ] = None,
    restart: Annotated[
        list[str] | None,
        typer.Option(
            "--restart",
            metavar="NS/NAME",
            help="First restart a Deployment or StatefulSet: a rolling update of all its pods (repeatable).",
        ),
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option("--drain", metavar="NODE", help="First drain a node, within budgets (repeatable)."),
    ] = None,
    fail_domain: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-domain",
            metavar="KEY=VALUE",
            parser=_domain,
            help="First let the nodes with this label fail; zone=… stands for the well-known key.",
        ),
    ] = None,
    add_nodes: Annotated[
        int | None, typer.Option("--add-nodes", metavar="N", min=1, help="First add N empty nodes.")
    ] = None,
    like: Annotated[str, typer.Option("--like", metavar="NODE", help="The node that added nodes copy.")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            parser=_domain,
            help="A label of added nodes; zone=… stands for the well-known key (repeatable).",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed for the scheduler's choice among equal nodes.")
    ] = 0,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            metavar="N",
            min=1,
            max=365,
            help="Play so many days of ordinary life instead: under nothing, evictions, prevention, both.",
        ),
    ] = None,
    output: Annotated[
        Literal["table", "json", "html"], typer.Option("--output", "-o", help="html is for --days.")
    ] = "table",
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Carry out the plan in an embedded copy of the cluster, and show how that ends.

    No real cluster is changed. Changes are made in this order: nodes are added, workloads scaled and
    restarted, nodes drained, domains failed.
    """
    if (add_nodes is None) != (not like):
        raise typer.BadParameter("--add-nodes N and --like NODE go together")
    changes = (scale, restart, drain, fail_domain, add_nodes, label)
    if days is not None and any(changes):
        raise typer.BadParameter("--days plays a life of its own: give it without changes")
    if days is None and output == "html":
        raise typer.BadParameter("-o html is for --days")
    if label and add_nodes is None:
        raise typer.BadParameter("--label is for --add-nodes")
    from rebalancer.model.snapshot import check_namespaces
    from rebalancer.report.output import to_json
    from rebalancer.report.simulated import to_table
    from rebalancer.runtime.commands.source import capture
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.settings import plan_options

    settings = options.settings_of(config, namespace, all_namespaces)
    source = options.source_of(reach, files, snapshot)
    if days is not None:
        _month(source, settings, days, seed, output)
        return
    with sandbox_needed("simulate"):
        from rebalancer.runtime.commands.simulate import Changes
        from rebalancer.runtime.commands.simulate import simulate as play

    options.set_up_logging(settings, least="error")
    captured = capture(source)
    check_namespaces(captured.snapshot, namespace or ())
    stop = threading.Event()
    with stop_on_signals(stop):
        shown, interrupted = play(
            captured.snapshot,
            captured.objects(),
            options=plan_options(settings),
            changes=Changes(
                add_nodes=(add_nodes, like) if add_nodes else None,
                labels=tuple(label or ()),
                scale=tuple(scale or ()),
                restart=tuple(restart or ()),
                drain=tuple(drain or ()),
                fail_domains=tuple(fail_domain or ()),
            ),
            seed=seed,
            observers=[_progress()],
            stop=stop,
            tell=_say,
        )
    sys.stdout.write(to_json(shown) if output == "json" else to_table(shown, sys.stdout))
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _month(source: Source, settings: Settings, days: int, seed: int, output: str) -> None:
    from rebalancer.report.output import to_json
    from rebalancer.report.simulated import month_table, to_html
    from rebalancer.runtime.commands.reports import month
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.settings import plan_options

    loaded = load_snapshot(source)
    played = month(loaded.snapshot, plan_options(settings), days=days, seed=seed, tell=_say)
    if output == "table":
        sys.stdout.write(month_table(played, sys.stdout))
    else:
        sys.stdout.write(to_json(played) if output == "json" else to_html(played))


def _say(text: str) -> None:

    typer.echo(clean(text), err=True)


def _progress() -> Observer:
    from rebalancer.outcome import CycleReport, Observer
    from rebalancer.planner.plan import Plan

    class Progress(Observer):
        """Prints a line for each cycle and plan."""

        number = 0

        def on_cycle(self, number: int) -> None:
            """Counts."""
            self.number = number

        def on_plan(self, snapshot: object, plan: Plan) -> None:  # noqa: ARG002
            """How many evictions."""
            if plan.moves:
                _say(f"cycle {self.number}: {plural(len(plan.moves), 'eviction')} planned")

        def on_report(self, report: CycleReport) -> None:
            """How it ended."""
            _say(f"cycle {self.number}: {report.end.value} after {report.seconds:.1f} s")

    return Progress()


# `rebalancer demo`: the daemon on an embedded cluster, live.

DEMO_EXAMPLES = """\b
Examples:
  # Watch a daemon repair a cluster after a zone outage (half a minute, no Kubernetes needed)
  rebalancer demo
  # The same, and each cycle's trace as a tree
  rebalancer demo --trace
  # The broken cluster without the daemon, to try the other commands on (docs/tutorial.md)
  rebalancer demo --by-hand
"""


def demo(
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed for ties between nodes and for start-up times.")
    ] = 1,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="Evict nothing: leave the broken cluster to you, until interrupted."),
    ] = False,
    trace: options.Trace = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Give up after this many seconds.")
    ] = 55.0,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the daemon at work on an embedded cluster.

    None of your clusters is touched. An interrupt ends the demo between two evictions.
    """
    with sandbox_needed("demo"):
        from rebalancer.cli import live_view
        from rebalancer.cli.live_view import Board
        from rebalancer.runtime.commands.simulate import demo_cluster, run_demo
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.telemetry.start import TelemetryOptions, telemetry_for

    console = live_view.console()
    live = live_view.is_live(console) and not trace
    stop = threading.Event()
    live_view.announce(console, by_hand=by_hand)
    with stop_on_signals(stop), demo_cluster(seed) as (cluster, kubeconfig):
        nodes, pods = len(cluster.store.list("Node")), len(cluster.store.list("Pod"))
        figures = f"{plural(nodes, 'node')}, {plural(pods, 'pod')}"
        live_view.introduce(console, cluster.url, str(kubeconfig), figures)
        if by_hand:
            console.print(f"In another terminal: export KUBECONFIG={kubeconfig}", soft_wrap=True)
            console.print("It stays until you interrupt.")
            stop.wait()
            return
        board = Board(cluster, None if live else lambda line: live_view.print_line(console, line))
        telemetry_on = telemetry_for(TelemetryOptions(cluster="demo"), print_traces=trace)
        with live_view.shown(console, board) if live else nullcontext(), telemetry_on as telemetry:
            observers = [*telemetry.observers, board]
            result = run_demo(cluster, kubeconfig, stop=stop, observers=observers, timeout=timeout)
        live_view.conclude(console, board, result)
    if result.interrupted and not result.converged:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not result.converged:
        raise typer.Exit(ExitCode.ERROR)


# `rebalancer drill`: what the failure of each node and each domain would leave Pending. Changes nothing.

DRILL_EXAMPLES = """\b
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
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o")] = "table",
    now: options.Now = None,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Let every node and every domain fail, one at a time, and show which pods find no other node.

    Nothing is changed: failures are replayed on the scheduler's own rules, today and after the plan.
    """
    from rebalancer.report.document import build_drill
    from rebalancer.report.output import render_lines, to_json
    from rebalancer.report.terminal import lines
    from rebalancer.runtime.commands.reports import drilled
    from rebalancer.settings import plan_options

    settings = options.settings_of(config, namespace, all_namespaces)
    source = options.source_of(reach, files, snapshot, now=now, namespaces=settings.scope.read_namespaces)
    loaded = options.read(source, namespace or ())
    planning = plan_options(settings)
    planned = options.planned(loaded.snapshot, planning) if plan else None
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
    sys.stdout.write(to_json(shown) if output == "json" else render_lines(lines(shown), sys.stdout))
    if max_pending is not None and shown.most_pending > max_pending:
        raise typer.Exit(ExitCode.VIOLATIONS)


# `rebalancer room`: the fewest nodes that would cure what room forbids.

ROOM_EXAMPLES = """\b
Examples:
  # Which nodes are missing, so that every constraint can hold?
  rebalancer room
\b
  # The same for a cluster in a file, for a script
  rebalancer room --snapshot cluster.json.gz -o json
\b
  # As objects that ask an autoscaler to hold this room ready: cluster-autoscaler, Karpenter
  rebalancer room -o capacitybuffer
  rebalancer room -o placeholder
"""


@reaches_a_cluster
def room(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
    output: Annotated[
        Literal["text", "json", "yaml", "capacitybuffer", "placeholder"], typer.Option("--output", "-o")
    ] = "text",
    now: options.Now = None,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Show the fewest nodes that would cure an excess which stays for want of room or of domains.

    Changes nothing. Where an excess stays for other reasons, no node is named.
    """
    from rebalancer.report.missing_room import (
        BUFFER_NOTES,
        PLACEHOLDER_NOTES,
        section,
        to_buffers,
        to_placeholders,
    )
    from rebalancer.report.output import to_builtins, to_json
    from rebalancer.runtime.commands.reports import missing_room
    from rebalancer.settings import plan_options
    from rebalancer.yaml import to_yaml

    settings = options.settings_of(config, namespace, all_namespaces)
    source = options.source_of(reach, files, snapshot, now=now, namespaces=settings.scope.read_namespaces)
    loaded = options.read(source, namespace or ())
    planning = plan_options(settings)
    planned = options.planned(loaded.snapshot, planning)
    with progress("looking for the fewest nodes"):
        found = missing_room(loaded.snapshot, planning, planned, asked=True)
    assert found is not None
    asks = {
        "capacitybuffer": (to_buffers, BUFFER_NOTES),
        "placeholder": (to_placeholders, PLACEHOLDER_NOTES),
    }
    if output == "json":
        sys.stdout.write(to_json(found))
    elif output == "yaml":
        sys.stdout.write(to_yaml(to_builtins(found)))
    elif output in asks:
        made, notes = asks[output]
        objects, left_out = made(found)
        if objects:
            sys.stdout.write("".join(f"# {line}\n" for line in notes) + "---\n".join(map(to_yaml, objects)))
        for sentence in left_out:
            typer.echo(clean(f"not asked for: {sentence}"), err=True)
    else:
        for line in section(found):
            typer.echo(clean(line))
