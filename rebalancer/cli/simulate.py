"""`rebalancer simulate`: the plan played forward in an embedded cluster, on request after a change."""

from __future__ import annotations

import sys
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode

if TYPE_CHECKING:
    from rebalancer.runtime.observer import Observer

EXAMPLES = """\b
Examples:
  # What would `once --execute` do, and how would it end?
  rebalancer simulate --snapshot cluster.json.gz
  # What if a zone failed, with twice as many pods of one workload?
  rebalancer simulate --snapshot cluster.json.gz --scale shop/web=12 --fail-domain zone=eu-west-1a
  # Would three more nodes help?
  rebalancer simulate --snapshot cluster.json.gz --add-nodes 3 --like node-7
"""


class Form(StrEnum):
    """How a simulation is shown."""

    TABLE = "table"
    JSON = "json"


def simulate(
    snapshot: options.Snapshots = None,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", metavar="NS/NAME=N", help="Give a workload N replicas first (repeatable)."),
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option("--drain", metavar="NODE", help="Drain a node first, within budgets (repeatable)."),
    ] = None,
    fail_domain: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-domain",
            metavar="KEY=VALUE",
            help="Let the nodes with this label stop answering first; zone=… for the well-known key.",
        ),
    ] = None,
    add_nodes: Annotated[
        int | None, typer.Option("--add-nodes", metavar="N", min=1, help="Add N empty nodes first.")
    ] = None,
    like: Annotated[str, typer.Option("--like", metavar="NODE", help="What added nodes are like.")] = "",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of the scheduler's choice among equal nodes.")
    ] = 0,
    output: Annotated[Form, typer.Option("--output", "-o")] = Form.TABLE,
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Play the plan forward in an embedded cluster made from a snapshot: what would come of it.

    No real cluster is changed. Changes are made in the order: nodes added, scaled, drained, failed.
    """
    if (add_nodes is None) != (not like):
        raise typer.BadParameter("--add-nodes N and --like NODE go together")
    from rebalancer.cli import acting
    from rebalancer.report.output import to_json
    from rebalancer.report.simulation import to_table
    from rebalancer.runtime.capture import capture
    from rebalancer.runtime.daemon import stop_on_signals
    from rebalancer.runtime.simulate import simulate as play
    from rebalancer.runtime.simulation_report import document
    from rebalancer.runtime.whatif import Changes
    from rebalancer.settings import load_settings, plan_options

    settings = load_settings(config, flags=options.scope_of(namespace))
    acting.set_up_logging(settings, least="error")
    captured = capture(options.source_of(snapshot, kubeconfig, context, impersonate))
    stop = threading.Event()
    with stop_on_signals(stop):
        simulated = play(
            captured.snapshot,
            captured.objects(),
            options=plan_options(settings),
            changes=Changes(
                add_nodes=(add_nodes, like) if add_nodes else None,
                scale=tuple(scale or ()),
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


def _say(text: str) -> None:
    from rebalancer.report.text import clean

    typer.echo(clean(text), err=True)


def _progress() -> Observer:
    from rebalancer.planner.plan import Move, Plan
    from rebalancer.report.text import plural
    from rebalancer.runtime.observer import Observer
    from rebalancer.runtime.outcome import CycleReport

    class Progress(Observer):
        """A line for each cycle, plan and wave."""

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
