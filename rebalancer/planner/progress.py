"""Signs of life from planning, which may take minutes: a function that is called again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

OnProgress = Callable[[], None]
"""What it raises ends the planning."""
T = TypeVar("T")


def unwatched() -> None:
    """Nobody follows the planning."""


def told(things: Iterable[T], on_progress: OnProgress, every: int = 1) -> Iterator[T]:
    """The things; a sign of life before one in `every`."""
    for i, thing in enumerate(things):
        if i % every == 0:
            on_progress()
        yield thing
