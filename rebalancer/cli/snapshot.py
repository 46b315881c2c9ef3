"""`rebalancer snapshot`: a cluster into one file from which its plan can be made again, anywhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.progress import progress

EXAMPLES = """\b
Examples:
  rebalancer snapshot -o cluster.json.gz
  rebalancer report --snapshot cluster.json.gz
\b
  # To be shown to others: names become pseudonyms, everything that no plan needs is left out
  rebalancer snapshot --redact -o cluster.json.gz
  # A file that exists already
  rebalancer snapshot --snapshot cluster.json.gz --redact -o redacted.json.gz
"""


def snapshot(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE|-", help="Compressed if the name ends with .gz.")
    ],
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Pseudonyms for names and label values; nothing that no plan needs."),
    ] = False,
    snapshot: options.Snapshots = None,
    now: options.Now = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    impersonate: options.Impersonate = None,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Write everything that a plan rests on into one file, with the time of reading.

    A report from the file gives the same plan as one from the cluster at that time.
    """
    from rebalancer.manifests.redact import redact as redacted
    from rebalancer.manifests.writing import plain, write_snapshot
    from rebalancer.report.text import clean, plural
    from rebalancer.runtime.capture import capture

    source = options.source_of(snapshot, kubeconfig, context, impersonate, now)
    with progress("reading the cluster"):
        captured = capture(source)
    found = captured.snapshot
    for warning in found.warnings:
        typer.echo(clean(f"warning: {warning}"), err=True)
    with progress(f"writing {output}"):
        count = write_snapshot(
            output,
            redacted(captured.objects) if redact else plain(captured.objects()),
            captured_at=found.now,
            kinds=found.kinds,
            server_version=found.server_version,
            redacted=redact,
            stdout=lambda: sys.stdout.buffer,
        )
    typer.echo(
        clean(
            f"{output}: {plural(count, 'object')}, {plural(len(found.nodes), 'node')}, "
            f"{plural(len(found.pods), 'pod')}" + (", redacted" if redact else "")
        ),
        err=True,
    )
