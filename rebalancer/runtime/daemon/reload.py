"""Settings that change while the daemon runs. They are checked when noticed, and taken over between two
cycles. What they forbid binds at once: `rebalancer.runtime.live.newest`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rebalancer.errors import UserError
from rebalancer.outcome.observer import Observer
from rebalancer.runtime.live.assembly import LiveOptions
from rebalancer.runtime.live.newest import Newest, content_of, usable
from rebalancer.settings import Settings

log = logging.getLogger(__name__)

_FIXED = (
    "leader_election", "brake", "health.address", "ledger", "telemetry.otlp", "telemetry.cluster_name",
    "scope.read_namespaces",
)  # fmt: skip
"""Groups, and single settings, that are in force from the start of the process to its end: who it is to
others, what it listens on or is connected to, and what it watches."""


class Reloader:
    """Watches the settings file by its content.

    `settings`: those in force. `load` reads and checks all sources, and raises UserError. `follow` is called
    with settings that are taken over.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        *,
        file: Path | None,
        observer: Observer,
        follow: Callable[[Settings], object] = lambda _: None,
    ) -> None:
        self.settings = settings
        self._wanted = settings
        self._load = load
        self.file = file
        self._observer = observer
        self._follow = follow
        self._content = content_of(self.file)
        self._asked = threading.Event()
        self._by_signal = False
        # `look` and `take` are called in different threads.
        self._lock = threading.Lock()
        self._new: Settings | None = None

    def ask(self) -> None:
        """Asks for a look at all sources (SIGHUP), even if the file is the same. Safe in a signal handler."""
        self._asked.set()

    def look(self) -> None:
        """Reads changed settings and keeps them for `take`. What cannot be used is reported and dropped."""
        content = content_of(self.file)
        asked = self._asked.is_set()
        if content == self._content and not asked:
            return
        self._asked.clear()
        self._content = content
        try:
            new = usable(self._load)
        except UserError as e:
            with self._lock:
                self._new = None
            self._observer.on_reload(str(e))
            return
        with self._lock:
            self._new, self._by_signal = new, self._by_signal or asked

    def take(self, accept: Callable[[Settings], object] = lambda _: None) -> Settings | None:
        """The new settings, once, or None. Called between two cycles.

        After a signal they always count as new, because other files that they name may have changed. `accept`
        raises UserError if they cannot be used after all; they are refused then.
        """
        with self._lock:
            new, self._new = self._new, None
            asked, self._by_signal = self._by_signal, False
        if new is None or (new == self._wanted and not asked):
            return None
        told, self._wanted = self._wanted, new
        if late := _late(new, told):
            log.warning("%s: what changed there is in force after the next start only", ", ".join(late))
        now = _in_force(new, self.settings)
        if now == self.settings and not asked:
            return None
        try:
            usable(lambda: accept(now))
        except UserError as e:
            self._observer.on_reload(str(e))
            return None
        if changed := [*_differing(now.plain(), self.settings.plain())]:
            log.info("settings that changed: %s", ", ".join(changed))
        self.settings = now
        self._follow(now)
        self._observer.on_reload("")
        return now

    def newest(self, options: Callable[[Settings], LiveOptions]) -> Newest:
        """What the file says at any moment, for a cycle at work: it is not in force yet."""
        return Newest(self.file, self._load, options)


def _in_force(new: Settings, old: Settings) -> Settings:
    """The new settings, with the old values of what cannot change while the process runs."""
    for place in _FIXED:
        group, _, field = place.partition(".")
        kept = getattr(old, group)
        if field:
            kept = getattr(new, group).model_copy(update={field: getattr(kept, field)})
        new = new.model_copy(update={group: kept})
    return new


def _late(new: Settings, old: Settings) -> list[str]:
    """What changed and needs a restart."""
    return [*_differing(new.plain(), _in_force(new, old).plain())]


def _differing(new: Mapping[str, Any], old: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Dotted names as YAML has them. Never the values, which may be secret."""
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            yield from _differing(value, before, f"{above}{key}.")
        elif value != before:
            yield above + key
