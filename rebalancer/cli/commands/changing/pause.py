"""`rebalancer pause` and `resume`: the brake, for an incident."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

if TYPE_CHECKING:
    from rebalancer.kube.client.connection import Connection
    from rebalancer.kube.coordination.place import Place
    from rebalancer.runtime.commands.pausing import Done
    from rebalancer.settings import Settings

Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", metavar="NAME", help="The brake in this namespace only. Default: all."),
]
LONGEST = 3650 * 86400.0
"""Seconds that a pause may last: what is longer is a slip of the hand."""
PAUSE_EXAMPLES = """\b
Examples:
  # No evictions until somebody says `rebalancer resume`
  rebalancer pause --reason "incident 4711"
  # No evictions for two hours; the pause ends by itself
  rebalancer pause --for 2h
"""
RESUME_EXAMPLES = """\b
Examples:
  # Evictions are allowed again, as far as the settings allow them
  rebalancer resume
"""


@reaches_a_cluster
def pause(
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Ends by itself after this time, such as 2h or 90m."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; reports and logs show it.")
    ] = "",
    namespace: Namespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Pause all evictions in the cluster, of the daemon, the CronJob and `once`.

    Sets every brake that it finds, and ends when each running instance has shown that it saw it. It takes
    effect before the next eviction. Replacements that are on their way are not affected.
    """
    from rebalancer.policy.annotations import pause_value
    from rebalancer.report.wording.text import clean
    from rebalancer.runtime.commands.pausing import pause_all
    from rebalancer.settings.field_types import format_duration, parse_duration

    lasts = None
    if for_ is not None:
        try:
            lasts = parse_duration(for_)
        except ValueError as e:
            raise typer.BadParameter(str(e), param_hint="--for") from e
        if not 0 < lasts <= LONGEST:
            raise typer.BadParameter("it must be longer than 0s and at most 3650d", param_hint="--for")

    def value(now: float) -> str:
        return pause_value(None if lasts is None else now + lasts, " ".join(reason.split()))

    with _reached(config, reach) as (settings, connection):
        done = pause_all(settings, connection, value, namespace=namespace)
    until = "until `rebalancer resume`" if lasts is None else f"for {format_duration(lasts)}"
    paused = "evictions are paused"
    if done.not_set:
        paused = "evictions are paused only in part"
    elif done.not_seen:
        paused = "the brake is set"
    if done.brakes:
        typer.echo(f"{paused} {until}: {_named(done.brakes)}")
    for who in done.seen_by:
        typer.echo(f"seen by {clean(who)}")
    _end(done)


@reaches_a_cluster
def resume(
    namespace: Namespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """End the pause of all evictions. Creates the brake where an installation lacks it."""
    from rebalancer.runtime.commands.pausing import resume_all

    with _reached(config, reach) as (settings, connection):
        done = resume_all(settings, connection, namespace=namespace)
    if done.lifted:
        typer.echo(f"the pause is over{' only in part' if done.not_set else ''}: {_named(done.lifted)}")
    elif done.brakes:
        typer.echo(f"nothing was paused: {_named(done.brakes)}")
    _end(done)


@contextmanager
def _reached(config: Path | None, reach: Reach) -> Iterator[tuple[Settings, Connection]]:
    from rebalancer.kube.client.connection import Connection
    from rebalancer.settings import load_settings

    settings = load_settings(config)
    acting.set_up_logging(settings, least="warning")
    connection = Connection(acting.cluster_options(reach))
    try:
        yield settings, connection
    finally:
        connection.close()


def _named(places: Sequence[Place]) -> str:
    return ", ".join(map(str, places))


def _end(done: Done) -> None:
    """Says what is not as it should be; then the exit code is 4."""
    from rebalancer.report.wording.text import clean

    for problem in (*done.not_set, *done.not_seen):
        typer.echo(clean(f"error: {problem}"), err=True)
    if done.not_set or done.not_seen:
        raise typer.Exit(ExitCode.SOME_FAILED)
