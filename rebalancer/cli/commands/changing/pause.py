"""`rebalancer pause` and `resume`: the brake, for an incident."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

if TYPE_CHECKING:
    from rebalancer.kube.client.config import ClusterOptions

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
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Pause all evictions in the cluster, of the daemon, the CronJob and `once`.

    It takes effect before the next eviction. Replacements that are on their way are not affected.
    """
    from rebalancer.policy.annotations import pause_value
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

    where, _ = _set(value, config, acting.cluster_options(reach))
    until = "until `rebalancer resume`" if lasts is None else f"for {format_duration(lasts)}"
    typer.echo(f"evictions are paused {until}: {where}")


@reaches_a_cluster
def resume(
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """End the pause of all evictions. Creates the brake where an installation lacks it."""
    where, before = _set(None, config, acting.cluster_options(reach))
    typer.echo(f"the pause is over: {where}" if before else f"nothing was paused: {where}")


def _set(
    value: Callable[[float], str] | None, config: Path | None, cluster: ClusterOptions
) -> tuple[str, str]:
    """Where the brake is, and what it said before; "" for nothing. `value`: of the time now, by the API
    server's clock: this machine's may be wrong."""
    from rebalancer.kube.client.connection import Connection
    from rebalancer.kube.coordination.brakes import server_time, set_brake
    from rebalancer.runtime.live.places import places_of
    from rebalancer.settings import load_settings

    settings = load_settings(config)
    acting.set_up_logging(settings, least="warning")
    connection = Connection(cluster)
    try:
        places = places_of(settings, connection, wait=threading.Event().wait)
        said = None if value is None else value(server_time(connection) or time.time())
        before = set_brake(connection, places.brake, said) or ""
    finally:
        connection.close()
    return str(places.brake), before
