"""Shows on standard error what the command is waiting for, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from rebalancer.errors import UserError


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows `what` with a spinner until the block ends, how long that has taken, and what the block tells.

    If standard error is not a terminal, shows nothing.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda come: shown.update(task, description=f"{what}: {come}")


# Exit codes, and the name that the program was called by.


class ExitCode(IntEnum):
    """The exit code of the process. 2 comes from the argument parser; 130 is what shells use for an
    interrupt."""

    OK = 0
    ERROR = 1
    USAGE = 2
    VIOLATIONS = 3
    SOME_FAILED = 4
    INTERRUPTED = 130


def program_name(argv0: str) -> str:
    """What the user typed: kubectl runs a plugin by its file name."""
    name = Path(argv0).stem
    return name.replace("-", " ") if name.startswith("kubectl-") else "rebalancer"


# What a command says that needs the embedded cluster where it is not installed.

_PARTS = ("rebalancer.sandbox", "starlette", "uvicorn")


@contextmanager
def sandbox_needed(command: str) -> Iterator[None]:
    """Around the imports of a command that runs the embedded cluster. Raises UserError without it."""
    try:
        yield
    except ModuleNotFoundError as e:
        missing = next((part for part in _PARTS if f"{e.name}.".startswith(f"{part}.")), "")
        if not missing:
            raise
        raise UserError(
            f"`rebalancer {command}` runs an embedded cluster, and {missing} is not installed here",
            "on your machine: pip install 'kube-rebalancer[sandbox]'; the image has no embedded cluster",
        ) from e
