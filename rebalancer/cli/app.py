"""The commands, and the options and help that all of them have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperCommand

from rebalancer import __version__
from rebalancer.cli.commands import evict as once_command
from rebalancer.cli.commands import evict as pause_command
from rebalancer.cli.commands import evict as run_command
from rebalancer.cli.commands import explain as explain_command
from rebalancer.cli.commands import explain as history_command
from rebalancer.cli.commands import files as lint_command
from rebalancer.cli.commands import files as snapshot_command
from rebalancer.cli.commands import prevent as fix_command
from rebalancer.cli.commands import report as version_command
from rebalancer.cli.commands import what_if as demo_command
from rebalancer.cli.commands import what_if as drill_command
from rebalancer.cli.commands import what_if as room_command
from rebalancer.cli.commands import what_if as simulate_command
from rebalancer.cli.commands.files import app as config_app
from rebalancer.cli.commands.prevent import app as prevent_app
from rebalancer.cli.commands.report import EXAMPLES, report
from rebalancer.cli.options import ActingCommand, KubectlCommand

_EXAMPLES = """\b
Examples:
  # Watch it repair an embedded cluster; no Kubernetes is needed
  rebalancer demo
\b
  # What is out of balance, and the fewest evictions that repair it (changes nothing)
  rebalancer report
\b
  # The same from a file that kubectl wrote, without access to the cluster
  kubectl get nodes,pods,rs,deploy,sts,pdb,pv,pvc -A -o json > cluster.json
  rebalancer report --snapshot cluster.json
\b
  # In CI: fail when a constraint is violated, keep the report
  rebalancer report --exit-code -o json --output-file report.json
\b
Exit codes: 0 fine, 1 error, 2 wrong usage, 3 violations (with --exit-code), 4 some evictions failed
"""

app = typer.Typer(
    name="rebalancer",
    help="Restores Kubernetes topology spread with the fewest evictions, proved by simulation.\n\n"
    "Nothing is evicted unless the configuration sets `evictions.enabled: true` or --execute is given.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    # Plain help does not import the terminal library, and looks the same in a pipe.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rebalancer {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with an error (also after a command).")
    ] = False,
) -> None:
    pass


def _add(command: Callable[..., None], examples: str = "", cls: type[TyperCommand] = KubectlCommand) -> None:
    """Lists the command with its whole first sentence, which typer would cut."""
    summary = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
    app.command(epilog=examples or None, cls=cls, short_help=summary)(command)


_add(report, EXAMPLES)
_add(lint_command.lint, lint_command.LINT_EXAMPLES)
_add(fix_command.fix, fix_command.EXAMPLES)
_add(explain_command.explain, explain_command.EXPLAIN_EXAMPLES)
_add(once_command.once, once_command.ONCE_EXAMPLES, ActingCommand)
_add(snapshot_command.snapshot, snapshot_command.SNAPSHOT_EXAMPLES)
_add(simulate_command.simulate, simulate_command.SIMULATE_EXAMPLES)
_add(drill_command.drill, drill_command.DRILL_EXAMPLES)
_add(room_command.room, room_command.ROOM_EXAMPLES)
_add(run_command.run, run_command.RUN_EXAMPLES, ActingCommand)
_add(pause_command.pause, pause_command.PAUSE_EXAMPLES)
_add(pause_command.resume, pause_command.RESUME_EXAMPLES)
_add(pause_command.approve, pause_command.APPROVE_EXAMPLES)
_add(pause_command.refuse, pause_command.REFUSE_EXAMPLES)
_add(history_command.history, history_command.HISTORY_EXAMPLES)
_add(demo_command.demo, demo_command.DEMO_EXAMPLES)
_add(snapshot_command.bug_report)
_add(version_command.version)
app.add_typer(prevent_app, name="prevent")
app.add_typer(config_app, name="config")
