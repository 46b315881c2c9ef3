"""`rebalancer version`: which version this is, and which schedulers it knows."""

from __future__ import annotations

import json
import platform
from enum import StrEnum
from typing import Annotated

import typer

from rebalancer import __version__
from rebalancer.cli import options


class Form(StrEnum):
    """Output formats."""

    TEXT = "text"
    JSON = "json"


def version(
    output: Annotated[Form, typer.Option("--output", "-o", help="Output format.")] = Form.TEXT,
    debug: options.Debug = False,  # noqa: ARG001
) -> None:
    """Show the version."""
    if output is Form.JSON:
        typer.echo(json.dumps({"version": __version__, "python": platform.python_version()}, indent=2))
    else:
        typer.echo(f"rebalancer {__version__}")
