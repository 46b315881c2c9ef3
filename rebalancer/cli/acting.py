"""What `once` and `run` share: options that allow evictions, and logging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rebalancer.cli import options

if TYPE_CHECKING:
    from rebalancer.kube.config import ClusterOptions
    from rebalancer.settings import Settings

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
        help="Evict nothing, whatever the configuration says. server: the API server is asked for its "
        "verdict on each planned eviction by itself.",
    ),
]
Trace = Annotated[
    bool,
    typer.Option("--trace", help="Print the trace of each cycle as a tree, to standard error."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--as-group",
        metavar="GROUP",
        help="Act as a member of this group (repeatable).",
        rich_help_panel="Cluster",
    ),
]


class ActingCommand(TyperCommand):
    """A command whose --dry-run means --dry-run=client, as kubectl's does; typer knows no optional values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Spells it out."""
        end = args.index("--") if "--" in args else len(args)
        spelled = ["--dry-run=client" if a == "--dry-run" else a for a in args[:end]]
        return super().parse_args(ctx, [*spelled, *args[end:]])


def flags(namespaces: list[str] | None, *, execute: bool, dry_run: str) -> dict[str, Any]:
    """What the flags say, as settings. --dry-run wins over everything."""
    if dry_run not in ("", "none", "client", "server"):
        raise typer.BadParameter(f"{dry_run!r} is neither client nor server", param_hint="--dry-run")
    dry = dry_run not in ("", "none")
    said = options.scope_of(namespaces)
    if dry or execute:
        said["evictions"] = {"enabled": not dry}
    return said


def cluster_options(
    kubeconfig: str | None, context: str | None, impersonate: str | None, groups: list[str] | None
) -> ClusterOptions:
    """Which cluster, and as whom."""
    from rebalancer.kube.config import ClusterOptions

    return ClusterOptions(
        kubeconfig=kubeconfig or "",
        context=context or "",
        impersonate=impersonate or "",
        impersonate_groups=tuple(groups or ()),
    )


def set_up_logging(settings: Settings, *, least: str = "") -> None:
    """Logs to standard error. `least` overrides the configured level."""
    from rebalancer.telemetry.logs import set_up

    set_up(least or settings.telemetry.log_level, settings.telemetry.log_format)
