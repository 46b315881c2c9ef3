"""What `once` and `run` have in common: options that allow or forbid evictions, and logging."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rebalancer.cli import options
from rebalancer.cli.habits import KubectlCommand
from rebalancer.cli.reach import Reach

if TYPE_CHECKING:
    from rebalancer.kube.client.config import ClusterOptions
    from rebalancer.runtime.live.single.reviewed import Reviewed
    from rebalancer.settings import Settings

_STALE = 3600.0
"""Seconds after which a reviewed plan is worth a word."""
Execute = Annotated[
    bool,
    typer.Option("--execute", help="Evict, as with evictions.enabled: true. Without it nothing is changed."),
]
DryRun = Annotated[
    str,
    typer.Option(
        "--dry-run",
        metavar="[=client|server]",
        show_default=False,
        help="Evict nothing, whatever the configuration says. server: ask the API server whether it would "
        "allow each planned eviction.",
    ),
]
Trace = Annotated[
    bool,
    typer.Option("--trace", help="Print the trace of each cycle as a tree, to standard error."),
]


LedgerNamespace = Annotated[
    str,
    typer.Option(
        "--ledger-namespace",
        metavar="NAME",
        help="Where ledger, brake and lease are (ledger.namespace); needed only if several might be meant.",
    ),
]


class ActingCommand(KubectlCommand):
    """A command whose --dry-run without a value means --dry-run=client, as in kubectl.

    typer has no options with an optional value.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replaces --dry-run by --dry-run=client."""
        end = args.index("--") if "--" in args else len(args)
        spelled = ["--dry-run=client" if a == "--dry-run" else a for a in args[:end]]
        return super().parse_args(ctx, [*spelled, *args[end:]])


def flags(
    namespaces: list[str] | None, every: bool, *, execute: bool, dry_run: str, ledger_namespace: str
) -> dict[str, Any]:
    """The flags as settings. --dry-run has precedence over everything else."""
    if dry_run not in ("", "none", "client", "server"):
        raise typer.BadParameter(f"{dry_run!r} is neither client nor server", param_hint="--dry-run")
    dry = dry_run not in ("", "none")
    said = options.scope_of(namespaces, every)
    if dry or execute:
        said["evictions"] = {"enabled": not dry}
    if dry:
        said["prevention"] = {"dryRun": True}
    if ledger_namespace:
        said["ledger"] = {"namespace": ledger_namespace}
    return said


def settings_file(config: Path | None) -> Path | None:
    """The file that the settings come from, if any."""
    return config or (Path(path) if (path := os.environ.get("REBALANCER_CONFIG")) else None)


def cluster_options(reach: Reach) -> ClusterOptions:
    """Which cluster to connect to, and as which user."""
    from rebalancer.kube.client.config import ClusterOptions

    return ClusterOptions(
        kubeconfig=reach.kubeconfig or "",
        context=reach.context or "",
        impersonate=reach.impersonate or "",
        impersonate_groups=tuple(reach.groups or ()),
    )


def set_up_logging(settings: Settings, *, least: str = "") -> None:
    """Starts logging to standard error. `least` overrides the configured level."""
    from rebalancer.telemetry.logs import set_up

    set_up(least or settings.telemetry.log_level, settings.telemetry.log_format)


def doubts(reviewed: Reviewed, context: str, now: float) -> Iterator[str]:
    """What speaks against carrying out a reviewed plan here and now."""
    from rebalancer.report.wording.text import ago

    if reviewed.cluster and not reviewed.cluster_id and reviewed.cluster != context:
        yield f"{reviewed.source} is of {reviewed.cluster}, this is {context}"
    age = now - reviewed.captured_at if reviewed.captured_at is not None else 0.0
    if abs(age) > _STALE:
        yield f"{reviewed.source} speaks of {ago(age)}; each of its evictions is judged anew"
