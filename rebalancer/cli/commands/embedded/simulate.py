"""`rebalancer simulate`: carries out the plan in an embedded cluster, if wanted after a change to it."""

from __future__ import annotations

import sys
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster
from rebalancer.cli.sandbox_extra import sandbox_needed

if TYPE_CHECKING:
    from rebalancer.outcome.observer import Observer
    from rebalancer.runtime.commands.source import Source
    from rebalancer.settings import Settings

EXAMPLES = """\b
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


class Form(StrEnum):
    """An output format."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


def _scale(text: str) -> str:
    workload, _, number = text.rpartition("=")
    if not workload.rpartition("/")[2] or not number.isdigit():
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
    output: Annotated[Form, typer.Option("--output", "-o", help="html is for --days.")] = Form.TABLE,
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
    if days is None and output is Form.HTML:
        raise typer.BadParameter("-o html is for --days")
    if label and add_nodes is None:
        raise typer.BadParameter("--label is for --add-nodes")
    from rebalancer.cli import acting
    from rebalancer.report.output import to_json
    from rebalancer.report.simulation import to_table
    from rebalancer.runtime.commands.capture import capture
    from rebalancer.runtime.cycle.snapshot_checks import check_namespaces
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.settings import load_settings, plan_options

    if days is not None:
        sources = options.source_of([*(files or ()), *(snapshot or ())], reach)
        _month(
            sources,
            load_settings(config, flags=options.scope_of(namespace, all_namespaces)),
            days,
            seed,
            output,
        )
        return
    with sandbox_needed("simulate"):
        from rebalancer.runtime.commands.simulation.simulate import simulate as play
        from rebalancer.runtime.commands.simulation.simulation_report import document
        from rebalancer.runtime.commands.simulation.whatif import Changes

    settings = load_settings(config, flags=options.scope_of(namespace, all_namespaces))
    acting.set_up_logging(settings, least="error")
    captured = capture(options.source_of([*(files or ()), *(snapshot or ())], reach))
    check_namespaces(captured.snapshot, namespace or ())
    stop = threading.Event()
    with stop_on_signals(stop):
        simulated = play(
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
    shown = document(simulated)
    sys.stdout.write(to_json(shown) if output is Form.JSON else to_table(shown))
    if simulated.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _month(source: Source, settings: Settings, days: int, seed: int, output: Form) -> None:
    from rebalancer.report.month.document import to_table
    from rebalancer.report.month.page import to_html
    from rebalancer.report.output import to_json
    from rebalancer.runtime.commands.simulation.month import month
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.settings import plan_options

    loaded = load_snapshot(source)
    played = month(loaded.snapshot, plan_options(settings), days=days, seed=seed, tell=_say)
    write = {Form.JSON: to_json, Form.HTML: to_html, Form.TABLE: to_table}[output]
    sys.stdout.write(write(played))


def _say(text: str) -> None:
    from rebalancer.report.wording.text import clean

    typer.echo(clean(text), err=True)


def _progress() -> Observer:
    from rebalancer.outcome.cycle import CycleReport
    from rebalancer.outcome.observer import Observer
    from rebalancer.planner.plan import Move, Plan
    from rebalancer.report.wording.text import plural

    class Progress(Observer):
        """Prints a line for each cycle, plan and wave."""

        number, waves = 0, 0

        def on_cycle(self, number: int) -> None:
            """Counts."""
            self.number = number

        def on_plan(self, snapshot: object, plan: Plan) -> None:  # noqa: ARG002
            """How many evictions."""
            self.waves = len(plan.waves)
            if plan.moves:
                _say(f"cycle {self.number}: {plural(len(plan.moves), 'eviction')} planned")

        def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
            """Where it is."""
            _say(f"cycle {self.number}: wave {wave} of {self.waves}, {plural(len(moves), 'eviction')}")

        def on_report(self, report: CycleReport) -> None:
            """How it ended."""
            _say(f"cycle {self.number}: {report.end.value} after {report.seconds:.1f} s")

    return Progress()
