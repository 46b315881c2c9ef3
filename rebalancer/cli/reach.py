"""How a command reaches the cluster: five options that many commands have, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

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
