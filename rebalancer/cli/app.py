"""The commands, and the options and help that all of them have."""

from __future__ import annotations

from types import ModuleType
from typing import Annotated

import typer

from rebalancer import __version__
from rebalancer.cli.commands import evict, explain, files, prevent, report, what_if
from rebalancer.cli.options import KubectlCommand

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


def _add(name: str, module: ModuleType) -> None:
    """Lists the command with its whole first sentence, which typer would cut."""
    command = getattr(module, name)
    summary = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
    examples = getattr(module, f"{name.upper()}_EXAMPLES", None)
    app.command(epilog=examples, cls=KubectlCommand, short_help=summary)(command)


for _name, _module in (
    ("report", report),
    ("lint", files),
    ("fix", prevent),
    ("explain", explain),
    ("once", evict),
    ("snapshot", files),
    ("simulate", what_if),
    ("drill", what_if),
    ("room", what_if),
    ("run", evict),
    ("pause", evict),
    ("resume", evict),
    ("approve", evict),
    ("refuse", evict),
    ("history", explain),
    ("demo", what_if),
    ("bug_report", files),
    ("version", report),
):
    _add(_name, _module)
app.add_typer(prevent.app, name="prevent")
app.add_typer(files.app, name="config")
