"""Garbage collection held off while hundreds of thousands of values are made that stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_at_work = 0
_was_on = True


@contextmanager
def bulk_work() -> Iterator[None]:
    """No collection until the last of all blocks that are at work has ended.

    The collector would look through everything that was made so far, again and again, and find nothing to
    free: values are freed by their reference counts, and what a plan is made with refers to nothing in
    circles. Safe in several threads and within itself; a decorator, too.
    """
    global _at_work, _was_on
    with _lock:
        if _at_work == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _at_work += 1
    try:
        yield
    finally:
        with _lock:
            _at_work -= 1
            if _at_work == 0 and _was_on:
                gc.enable()
