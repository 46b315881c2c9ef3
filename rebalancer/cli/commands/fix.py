"""`rebalancer fix`: what keeps spread through rollouts, added to manifests."""

from __future__ import annotations

from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.exits import ExitCode

EXAMPLES = """\b
Examples:
  # What would be changed
  rebalancer fix deploy/
  # Change the files; comments and layout stay
  rebalancer fix --write deploy/
  # A filter
  rebalancer fix - < deployment.yaml > fixed.yaml
"""


def fix(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|DIR|-...", help="YAML or JSON; - is standard input.")
    ],
    write: Annotated[bool, typer.Option("--write", help="Change the files, instead of showing how.")] = False,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Add matchLabelKeys: [pod-template-hash] to manifests, so that rollouts keep the spread.

    Deployments only, and only constraints that select their own pods and by which nothing tells revisions
    apart yet. Comments and layout stay. The exit code is 1 if something has to be changed by hand.
    """
    from rebalancer.manifests.files import Text, texts
    from rebalancer.report.text import clean, plural
    from rebalancer.runtime.commands.fix import fixed

    mended, trouble = 0, False
    for text in texts(files):
        piped = text.name == "stdin"
        found = fixed(Text(text.name, bytes(text.data)))
        for problem in found.problems:
            trouble = True
            typer.echo(clean(f"error: {problem}"), err=True)
        mended += len(found.workloads)
        if piped:
            typer.echo(found.after, nl=False)
        elif write and found.workloads:
            _write(found.file, found.after)
            typer.echo(clean(f"{found.file}: {', '.join(found.workloads)}"))
        elif found.workloads:
            typer.echo(found.diff, nl=False)
    said = "mended" if write else "would be mended; --write does it" if mended else "would be mended"
    typer.echo(f"{plural(mended, 'workload')} {said}", err=True)
    if trouble:
        raise typer.Exit(ExitCode.ERROR)


def _write(path: str, text: str) -> None:
    from rebalancer.output_file import output_file

    with output_file(path) as file:
        file.write(text.encode())
