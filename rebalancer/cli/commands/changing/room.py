"""`rebalancer room`: the fewest nodes that would cure what room forbids."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from rebalancer.cli import options
from rebalancer.cli.progress import progress
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

EXAMPLES = """\b
Examples:
  # Which nodes are missing, so that every constraint can hold?
  rebalancer room
\b
  # The same for a cluster in a file, for a script
  rebalancer room --snapshot cluster.json.gz -o json
\b
  # As objects that ask an autoscaler to hold this room ready
  rebalancer room -o capacitybuffer
"""


class Form(StrEnum):
    """An output format."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    CAPACITYBUFFER = "capacitybuffer"


@reaches_a_cluster
def room(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
    output: Annotated[Form, typer.Option("--output", "-o")] = Form.TEXT,
    now: options.Now = None,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Show the fewest nodes that would cure an excess which stays for want of room or of domains.

    Changes nothing. Where an excess stays for other reasons, no node is named.
    """
    from rebalancer.planner import plan as plan_of
    from rebalancer.report.output import to_builtins, to_json
    from rebalancer.report.room.buffers import to_buffers
    from rebalancer.report.room.words import section
    from rebalancer.report.wording.text import clean
    from rebalancer.runtime.commands.room import missing_room
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.runtime.cycle.snapshot_checks import check_namespaces, check_readable
    from rebalancer.settings import load_settings, plan_options
    from rebalancer.yaml import to_yaml

    settings = load_settings(config, flags=options.scope_of(namespace, all_namespaces))
    source = options.source_of([*(files or ()), *(snapshot or ())], reach, now)
    with progress("reading the cluster"):
        loaded = load_snapshot(source)
    check_readable(loaded.snapshot)
    check_namespaces(loaded.snapshot, namespace or ())
    planning = plan_options(settings)
    with progress(f"planning for {len(loaded.snapshot.pods):,} pods"):
        planned = plan_of(loaded.snapshot, planning)
    with progress("looking for the fewest nodes"):
        found = missing_room(loaded.snapshot, planning, planned, asked=True)
    assert found is not None
    objects, left_out = to_buffers(found)
    if output is Form.JSON:
        sys.stdout.write(to_json(found))
    elif output is Form.YAML:
        sys.stdout.write(to_yaml(to_builtins(found)))
    elif output is Form.CAPACITYBUFFER:
        sys.stdout.write("---\n".join(map(to_yaml, objects)))
    else:
        for line in section(found):
            typer.echo(clean(line))
    if output is Form.CAPACITYBUFFER:
        for sentence in left_out:
            typer.echo(clean(f"not asked for: {sentence}"), err=True)
