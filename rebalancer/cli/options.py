"""Options of several commands, as annotated types."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from rebalancer.cli.console import progress

if TYPE_CHECKING:
    from rebalancer.kube.connection import Connection
    from rebalancer.model.snapshot import Snapshot
    from rebalancer.planner.plan import Plan, PlanOptions
    from rebalancer.runtime.commands.source import Loaded, Source
    from rebalancer.runtime.live.once import Reviewed
    from rebalancer.settings import Settings


# How a command reaches the cluster: five options that many commands have, declared once.

_PANEL = "Cluster"


@dataclass(frozen=True)
class Reach:
    """Which cluster, and as which user; as in kubectl."""

    kubeconfig: Annotated[
        str | None,
        typer.Option("--kubeconfig", metavar="FILE", help="As in kubectl.", rich_help_panel=_PANEL),
    ] = None
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="As in kubectl.", rich_help_panel=_PANEL)
    ] = None
    impersonate: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="USER", help="Impersonate a user, as in kubectl.", rich_help_panel=_PANEL
        ),
    ] = None
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--as-group",
            metavar="GROUP",
            help="Impersonate a member of this group (repeatable).",
            rich_help_panel=_PANEL,
        ),
    ] = None
    debug: Annotated[bool, typer.Option("--debug", hidden=True, help="Show a traceback with an error.")] = (
        False
    )


USUAL = Reach()


def reaches_a_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `reach` is, for typer, the options that it stands for."""
    hints = get_type_hints(Reach, include_extras=True)
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(USUAL, name), annotation=hints[name]
        )
        for name in hints
    ]
    said = get_type_hints(command, include_extras=True)
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=said[p.name])
        for p in inspect.signature(command).parameters.values()
    ]
    at = next(i for i, p in enumerate(parameters) if p.name == "reach")
    parameters[at : at + 1] = options

    @wraps(command)
    def flat(**given: Any) -> None:
        reach = Reach(**{name: given.pop(name) for name in hints})
        command(**given, reach=reach)

    vars(flat)["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {p.name: p.annotation for p in parameters}
    return flat


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
    reach: Reach,
    *files: list[str] | None,
    now: float | None = None,
    namespaces: tuple[str, ...] = (),
) -> Source:
    """The source of the cluster: files, or an API server, of which `namespaces` are read (empty: all)."""
    from rebalancer.runtime.commands.source import Source

    return Source(
        snapshots=tuple(path for paths in files for path in paths or ()),
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


def settings_of(config: Path | None, namespaces: list[str] | None = None, every: bool = False) -> Settings:
    """The settings, for these namespaces."""
    from rebalancer.settings import load_settings

    return load_settings(config, flags=scope_of(namespaces, every))


def read(source: Source, named: Sequence[str] = ()) -> Loaded:
    """The cluster; a terminal shows how far that has come. `named`: namespaces that must exist."""
    from rebalancer.model.snapshot import check_namespaces
    from rebalancer.runtime.commands.source import load_snapshot

    with progress("reading the cluster") as tell:
        loaded = load_snapshot(source, tell)
    check_namespaces(loaded.snapshot, named)
    return loaded


def planned(snapshot: Snapshot, planning: PlanOptions) -> Plan:
    """The plan, without findings."""
    from rebalancer.planner import plan

    with progress(f"planning for {len(snapshot.pods):,} pods"):
        return plan(snapshot, planning)


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


# Spellings that kubectl's users have in their fingers.

_SHORT_WITH_EQUALS = re.compile(r"-[A-Za-z]=.*", re.DOTALL)


class KubectlCommand(TyperCommand):
    """A command that takes `-o=json` as `-o json` and `--dry-run` as `--dry-run=client`, and says in plain
    words what is wrong with a value. typer has no options with an optional value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes the equals sign out; what stands behind `--` is left alone."""
        end = args.index("--") if "--" in args else len(args)
        spelled = [f"{a[:2]}{a[3:]}" if _SHORT_WITH_EQUALS.fullmatch(a) else a for a in args[:end]]
        spelled = ["--dry-run=client" if a == "--dry-run" else a for a in spelled]
        try:
            return super().parse_args(ctx, [*spelled, *args[end:]])
        except typer.BadParameter as e:
            if wrong := getattr(e.__cause__, "errors", None):  # of pydantic, with which typer converts values
                from rebalancer.settings.field_types import phrase

                e.message = phrase(wrong()[0])
            raise


# What `once` and `run` have in common: options that allow or forbid evictions, and logging.

_STALE = 3600.0
"""Seconds after which a reviewed plan is worth a word."""
Execute = Annotated[
    bool,
    typer.Option("--execute", help="Evict, as with evictions.enabled: true. Without it no pod is evicted."),
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


def is_dry(dry_run: str) -> bool:
    """Whether --dry-run forbids evictions."""
    return dry_run not in ("", "none")


def flags(
    namespaces: list[str] | None, every: bool, *, execute: bool, dry_run: str, ledger_namespace: str
) -> dict[str, Any]:
    """The flags as settings. --dry-run has precedence over everything else."""
    if dry_run not in ("", "none", "client", "server"):
        raise typer.BadParameter(f"{dry_run!r} is neither client nor server", param_hint="--dry-run")
    dry = is_dry(dry_run)
    said = scope_of(namespaces, every)
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


def connected(reach: Reach) -> AbstractContextManager[Connection]:
    """A connection to the cluster that these options mean."""
    from rebalancer.runtime.commands import source

    return source.connected(source_of(reach))


@contextmanager
def reached(
    config: Path | None, reach: Reach, *, least: str = "warning"
) -> Iterator[tuple[Settings, Connection]]:
    """The settings, and a connection to the cluster. `least`: severity from which on is logged."""
    settings = settings_of(config)
    set_up_logging(settings, least=least)
    with connected(reach) as connection:
        yield settings, connection


def set_up_logging(settings: Settings, *, least: str = "") -> None:
    """Starts logging to standard error. `least` overrides the configured level."""
    from rebalancer.telemetry.logs import set_up

    set_up(least or settings.telemetry.log_level, settings.telemetry.log_format)


def doubts(reviewed: Reviewed, context: str, now: float) -> Iterator[str]:
    """What speaks against carrying out a reviewed plan here and now."""
    from rebalancer.report.text import ago

    if reviewed.cluster and not reviewed.cluster_id and reviewed.cluster != context:
        yield f"{reviewed.source} is of {reviewed.cluster}, this is {context}"
    age = now - reviewed.captured_at if reviewed.captured_at is not None else 0.0
    if abs(age) > _STALE:
        yield f"{reviewed.source} speaks of {ago(age)}; each of its evictions is judged anew"
