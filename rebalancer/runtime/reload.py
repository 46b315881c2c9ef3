"""Settings that change while the daemon runs: noticed, checked, and taken over between two cycles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from rebalancer.errors import UserError
from rebalancer.runtime.observer import Observer
from rebalancer.settings import Settings

log = logging.getLogger(__name__)

_FIXED = ("leader_election", "health.address", "ledger", "telemetry.otlp", "telemetry.cluster_name")
"""Groups, and single settings, that are in force from the start of the process to its end: who it is to
others, and what it listens on or is connected to."""


class Reloader:
    """Watches a file by its content: a ConfigMap's mount changes by exchanged symbolic links.

    `settings` are those in force. `load` reads and checks all sources and raises UserError; `ask` (SIGHUP)
    looks again whatever the file says.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        *,
        file: Path | None,
        observer: Observer,
    ) -> None:
        self.settings = settings
        self._wanted = settings
        self._load = load
        self._file = file
        self._observer = observer
        self._content = self._digest()
        self._asked = threading.Event()
        self._by_signal = False
        # `look` and `take` are called in different threads.
        self._lock = threading.Lock()
        self._new: Settings | None = None

    def ask(self) -> None:
        """Look at the next opportunity; safe in a signal handler."""
        self._asked.set()

    def look(self) -> None:
        """Reads changed settings and remembers them until `take`; an invalid one is told and dropped."""
        content = self._digest()
        asked = self._asked.is_set()
        if content == self._content and not asked:
            return
        self._asked.clear()
        self._content = content
        try:
            new = self._load()
        except UserError as e:
            with self._lock:
                self._new = None
            self._observer.on_reload(str(e))
            return
        with self._lock:
            self._new, self._by_signal = new, self._by_signal or asked

    def take(self, accept: Callable[[Settings], object] = lambda _: None) -> Settings | None:
        """The new settings, once, where there are any; between two cycles.

        Asked for by a signal they count as new in any case: other files that they name may have changed.
        `accept` raises UserError where they cannot be used after all; they are refused then.
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
            accept(now)
        except UserError as e:
            self._observer.on_reload(str(e))
            return None
        if changed := [*_differing(now.plain(), self.settings.plain())]:
            log.info("settings that changed: %s", ", ".join(changed))
        self.settings = now
        self._observer.on_settings(now)
        self._observer.on_reload("")
        return now

    def _digest(self) -> str:
        if self._file is None:
            return ""
        try:
            return sha256(self._file.read_bytes()).hexdigest()
        except OSError as e:
            return f"cannot be read: {e.strerror}"


def _in_force(new: Settings, old: Settings) -> Settings:
    """The new settings, but for what cannot change while the process runs."""
    for place in _FIXED:
        group, _, field = place.partition(".")
        kept = getattr(old, group)
        if field:
            kept = getattr(new, group).model_copy(update={field: getattr(kept, field)})
        new = new.model_copy(update={group: kept})
    return new


def _late(new: Settings, old: Settings) -> list[str]:
    """What differs and cannot change while the process runs."""
    return [*_differing(new.plain(), _in_force(new, old).plain())]


def _differing(new: Mapping[str, Any], old: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Dotted names, as YAML has them; never the values, which may be nobody's business."""
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            yield from _differing(value, before, f"{above}{key}.")
        elif value != before:
            yield above + key
