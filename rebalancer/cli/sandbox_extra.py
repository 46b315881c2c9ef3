"""What a command says that needs the embedded cluster where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.errors import UserError

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
