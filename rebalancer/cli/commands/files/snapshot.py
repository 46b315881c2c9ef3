"""`rebalancer snapshot`: writes a cluster into one file, from which anybody can make the same plan."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.progress import progress
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

EXAMPLES = """\b
Examples:
  rebalancer snapshot -o cluster.json.gz
  rebalancer report --snapshot cluster.json.gz
\b
  # To show it to others: names become pseudonyms, and everything that no plan needs is left out
  rebalancer snapshot --redact -o cluster.json.gz
  # A file that exists already
  rebalancer snapshot --snapshot cluster.json.gz --redact -o redacted.json.gz
"""


@reaches_a_cluster
def snapshot(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE|-", help="Compressed if the name ends with .gz.")
    ],
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Replace names by pseudonyms, and leave out what no plan needs."),
    ] = False,
    snapshot: options.Snapshots = None,
    now: options.Now = None,
    reach: Reach = USUAL,
) -> None:
    """Write everything that a plan depends on into one file, with the time at which it was read.

    A report from the file gives the same plan as one from the cluster at that time.
    """
    from rebalancer.report.wording.text import clean, plural
    from rebalancer.runtime.commands.capture import write_captured

    source = options.source_of(snapshot, reach, now)
    with progress(f"writing the cluster to {output}"):
        written = write_captured(source, output, redact=redact, stdout=lambda: sys.stdout.buffer)
    for warning in written.warnings:
        typer.echo(clean(f"warning: {warning}"), err=True)
    typer.echo(
        clean(
            f"{output}: {plural(written.objects, 'object')}, {plural(written.nodes, 'node')}, "
            f"{plural(written.pods, 'pod')}" + (", redacted" if redact else "")
        ),
        err=True,
    )
