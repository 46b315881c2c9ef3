"""The commands, and what holds for all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from rebalancer import __version__
from rebalancer.cli import demo as demo_command
from rebalancer.cli import explain as explain_command
from rebalancer.cli import history as history_command
from rebalancer.cli import lint as lint_command
from rebalancer.cli import once as once_command
from rebalancer.cli import run as run_command
from rebalancer.cli import simulate as simulate_command
from rebalancer.cli import snapshot as snapshot_command
from rebalancer.cli.acting import ActingCommand
from rebalancer.cli.config import app as config_app
from rebalancer.cli.report import EXAMPLES, report

_EXAMPLES = """\b
Examples:
  # Watch it mend an embedded cluster; needs no Kubernetes
  rebalancer demo
\b
  # What is out of balance, and the fewest evictions that mend it (changes nothing)
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
    "Nothing is evicted unless configuration says `evictions.enabled: true` or the command line --execute.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    # Plain help: it costs no import of the terminal library and reads the same in a pipe.
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


app.command(epilog=EXAMPLES)(report)
app.command(epilog=lint_command.EXAMPLES)(lint_command.lint)
app.command(epilog=explain_command.EXAMPLES)(explain_command.explain)
app.command(epilog=once_command.EXAMPLES, cls=ActingCommand)(once_command.once)
app.command(epilog=snapshot_command.EXAMPLES)(snapshot_command.snapshot)
app.command(epilog=simulate_command.EXAMPLES)(simulate_command.simulate)
app.command(epilog=run_command.EXAMPLES, cls=ActingCommand)(run_command.run)
app.command(epilog=history_command.EXAMPLES)(history_command.history)
app.command(epilog=demo_command.EXAMPLES)(demo_command.demo)
app.add_typer(config_app, name="config")
