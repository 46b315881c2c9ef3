"""Settings that change while the daemon runs: noticed, checked, and taken over between two cycles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from rebalancer.errors import UserError
from rebalancer.runtime.observer import Observer
from rebalancer.settings import Settings

log = logging.getLogger(__name__)

_FIXED = ("leader_election", "health", "ledger", "telemetry")
"""Groups that are in force from the start of the process to its end."""


class Reloader:
    """Watches a file by its content: a ConfigMap's mount changes by exchanged symbolic links.

    `load` reads and checks all sources and raises UserError; `ask` (SIGHUP) looks again whatever the file
    says.
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
        self._load = load
        self._file = file
        self._observer = observer
        self._content = self._digest()
        self._asked = threading.Event()
        self._new: Settings | None = None

    def ask(self) -> None:
        """Look at the next opportunity; safe in a signal handler."""
        self._asked.set()

    def look(self) -> None:
        """Reads changed settings and remembers them until `take`; an invalid one is told and dropped."""
        content = self._digest()
        if content == self._content and not self._asked.is_set():
            return
        self._asked.clear()
        self._content = content
        try:
            self._new = self._load()
        except UserError as e:
            self._new = None
            self._observer.on_reload(str(e))

    def take(self) -> Settings | None:
        """The new settings, once, where there are any; between two cycles."""
        new, self._new = self._new, None
        if new is None or new == self.settings:
            return None
        late = [g for g in _FIXED if getattr(new, g) != getattr(self.settings, g)]
        for group in late:
            name = Settings.model_fields[group].alias or group
            log.warning("what changed under %s is in force after the next start only", name)
        self.settings = new
        self._observer.on_reload("")
        return new

    def _digest(self) -> str:
        if self._file is None:
            return ""
        try:
            return sha256(self._file.read_bytes()).hexdigest()
        except OSError as e:
            return f"cannot be read: {e.strerror}"
