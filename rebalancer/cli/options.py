"""Options that several commands share, as annotated types."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rebalancer.runtime.source import Source

_CLUSTER = "Cluster"


def parse_time(text: str) -> float:
    """An RFC 3339 time as seconds since the epoch."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as e:
        raise typer.BadParameter(f"{text!r} is no RFC 3339 time such as 2026-01-31T12:00:00Z") from e
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings (YAML); see `rebalancer config show`."),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Evict in this namespace only (repeatable). Every pod still counts.",
    ),
]
Snapshots = Annotated[
    list[str] | None,
    typer.Option(
        "--snapshot",
        metavar="FILE|DIR|-",
        help="Read the cluster from what `kubectl get … -A -o json|yaml` printed: a file, a directory or "
        "- for standard input, .gz too (repeatable).",
    ),
]
Now = Annotated[
    float | None,
    typer.Option(
        "--now",
        metavar="TIME",
        parser=parse_time,
        help="The clock for ages, RFC 3339. Default: the newest time in the snapshot; live, the present.",
    ),
]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", metavar="FILE", help="As kubectl's.", rich_help_panel=_CLUSTER)
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="As kubectl's.", rich_help_panel=_CLUSTER)
]
Impersonate = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="Act as this user, as kubectl's.", rich_help_panel=_CLUSTER),
]
Debug = Annotated[bool, typer.Option("--debug", hidden=True, help="Show a traceback with an error.")]


def source_of(
    snapshots: list[str] | None,
    kubeconfig: str | None,
    context: str | None,
    impersonate: str | None,
    now: float | None = None,
) -> Source:
    """Where the cluster is read from: files, or an API server."""
    from rebalancer.runtime.source import Source

    return Source(
        snapshots=tuple(snapshots or ()),
        now=now,
        kubeconfig=kubeconfig or "",
        context=context or "",
        impersonate=impersonate or "",
    )


def scope_of(namespaces: list[str] | None) -> dict[str, Any]:
    """What --namespace says, as settings."""
    return {"scope": {"namespaces": {"include": namespaces}}} if namespaces else {}
