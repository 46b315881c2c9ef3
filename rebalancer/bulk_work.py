"""What makes work on many values cheap: nothing is asked twice, and no garbage is collected meanwhile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Generic, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])
T = TypeVar("T")

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


def remembered(by: Callable[..., Hashable] = id) -> Callable[[Method], Method]:
    """A method that works out its answer once for all arguments of one key, by default for each object.

    The arguments are kept with the answer, so that no other object can get the identity of one of them. All
    answers are forgotten with the object whose method it is.
    """

    def made(ask: Method) -> Method:
        place = f"{ask.__name__}, remembered"

        @wraps(ask)
        def known(self: Any, *asked: Any) -> Any:
            key = by(*asked)
            try:
                return self.__dict__[place][key][1]
            except KeyError:
                found = ask(self, *asked)
                self.__dict__.setdefault(place, {})[key] = asked, found
                return found

        return cast("Method", known)

    return made


class Recent(Generic[T]):
    """The answers to the last few questions, by their keys: a search comes back to where it was."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Hashable, T] = {}

    def of(self, key: Hashable, ask: Callable[[], T]) -> T:
        """The answer, asked for if it is not among the last."""
        found = self._known.pop(key) if key in self._known else ask()
        self._known[key] = found
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return found
