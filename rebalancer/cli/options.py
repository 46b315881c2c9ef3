"""Options of several commands, as annotated types."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rebalancer.cli.reach import Reach

if TYPE_CHECKING:
    from rebalancer.runtime.commands.source import Source


def parse_time(text: str) -> float:
    """An RFC 3339 time as seconds since the epoch."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as e:
        raise typer.BadParameter(f"{text!r} is no RFC 3339 time such as 2026-01-31T12:00:00Z") from e
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def existing_file(path: Path | None) -> Path | None:
    """A file that is there: one that is not is wrong usage, said before anything starts."""
    if path is not None and not path.exists():
        raise typer.BadParameter(f"{path}: no such file")
    return path


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings (YAML); see `rebalancer config show`.",
        callback=existing_file,
    ),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Show and evict in this namespace only (repeatable). Every pod still counts.",
    ),
]
AllNamespaces = Annotated[
    bool,
    typer.Option(
        "--all-namespaces", "-A", help="All namespaces: the default, whatever the configuration says."
    ),
]
Snapshots = Annotated[
    list[str] | None,
    typer.Option(
        "--snapshot",
        metavar="FILE|DIR|-",
        help="Read the cluster from the output of `kubectl get … -A -o json|yaml`: a file, a directory, or - "
        "for standard input; .gz is allowed (repeatable).",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE|DIR|-]", help="As --snapshot.", show_default=False),
]
Now = Annotated[
    float | None,
    typer.Option(
        "--now",
        metavar="TIME",
        parser=parse_time,
        help="The time from which ages are computed, RFC 3339. Default: the newest time in the snapshot; "
        "for a live cluster, now.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", hidden=True, help="Show a traceback with an error.")]


def source_of(
    snapshots: list[str] | None,
    reach: Reach,
    now: float | None = None,
    namespaces: tuple[str, ...] = (),
) -> Source:
    """The source of the cluster: files, or an API server, of which `namespaces` are read (empty: all)."""
    from rebalancer.runtime.commands.source import Source

    return Source(
        snapshots=tuple(snapshots or ()),
        now=now,
        kubeconfig=reach.kubeconfig or "",
        context=reach.context or "",
        impersonate=reach.impersonate or "",
        groups=tuple(reach.groups or ()),
        namespaces=namespaces,
    )


def scope_of(namespaces: list[str] | None, every: bool = False) -> dict[str, Any]:
    """--namespace and --all-namespaces as settings."""
    if namespaces and every:
        raise typer.BadParameter("--namespace and --all-namespaces exclude each other")
    return {"scope": {"namespaces": {"include": namespaces or []}}} if namespaces or every else {}


def given(
    *,
    config: Path | None,
    reach: Reach,
    namespaces: list[str] | None,
    every: bool,
) -> tuple[str, ...]:
    """The options that choose cluster, user, settings and namespaces, to be given to another command."""
    said: list[str] = []
    for name, value in (
        ("--config", config),
        ("--kubeconfig", reach.kubeconfig),
        ("--context", reach.context),
        ("--as", reach.impersonate),
        *(("--as-group", group) for group in reach.groups or ()),
        *(("-n", namespace) for namespace in namespaces or ()),
    ):
        said += (name, str(value)) if value else ()
    return (*said, "-A") if every else tuple(said)
