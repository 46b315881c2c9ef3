"""Messages to webhooks: a bounded queue and a thread for each receiver, so that no cycle waits for one.

The URL is a secret: it is read from its file for each message, and no log line has more of it than the host.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from msgspec import Struct

from rebalancer import __version__

log = logging.getLogger(__name__)

DELIVERED, FAILED, FULL, EXIT = "delivered", "failed", "queue-full", "exit"
RESULTS = (DELIVERED, FAILED, FULL, EXIT)
_TRIES = 3
_PAUSE = 1.0
"""Seconds before the second try; the third waits twice as long."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_BLANKS = " \t\r\n"


class Receiver(Struct, frozen=True):
    """`name`: for logs and metrics. `url_file`: holds the URL. `timeout`: of one request, in seconds."""

    name: str
    url_file: str
    timeout: float = 5.0


class Mailbox:
    """Sends bodies to one receiver, in order. `capacity`: beyond it the oldest is dropped and counted."""

    def __init__(self, receiver: Receiver, *, capacity: int = 50, pause: float = _PAUSE) -> None:
        self.receiver = receiver
        self._capacity = capacity
        self._pause = pause
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._results: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._thread: threading.Thread | None = None
        self._failing = False

    def put(self, body: bytes) -> None:
        """Queues a message; returns at once."""
        with self._changed:
            if self._closed.is_set():
                return
            if len(self._waiting) >= self._capacity:
                self._waiting.popleft()
                self._results[FULL] += 1
            self._waiting.append(body)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self.receiver.name, daemon=True)
                self._thread.start()

    def results(self) -> Mapping[str, int]:
        """How many messages came to what."""
        with self._changed:
            return dict(self._results)

    def close(self, within: float) -> None:
        """Sends what is queued, for so many seconds at most; the rest is counted as lost."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._busy, within)
            lost = len(self._waiting) + self._busy
            self._results[EXIT] += lost
            self._waiting.clear()
            self._closed.set()
            self._changed.notify_all()
        if lost:
            log.warning("%d messages for %s were not sent before the end", lost, self.receiver.name)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
                if self._closed.is_set():
                    return
                body = self._waiting.popleft()
                self._busy = True
            why = self._deliver(body)
            with self._changed:
                if self._closed.is_set():
                    return  # counted as lost
                self._say(why)
                self._busy = False
                self._results[FAILED if why else DELIVERED] += 1
                self._changed.notify_all()

    def _say(self, why: str) -> None:
        """Once that nothing arrives, and once that it does again."""
        if why and not self._failing:
            log.warning("messages do not reach %s: %s", self.receiver.name, why)
        elif not why and self._failing:
            log.info("messages reach %s again", self.receiver.name)
        self._failing = bool(why)

    def _deliver(self, body: bytes) -> str:
        """ "" if the receiver took it, else why not."""
        why = ""
        for attempt in range(_TRIES):
            if attempt and self._closed.wait(self._pause * attempt):
                break
            why, again = self._post(body)
            if not again:
                break
        return why

    def _post(self, body: bytes) -> tuple[str, bool]:
        """Why it was not taken, and whether another try may help."""
        r = self.receiver
        try:
            url = Path(r.url_file).read_text(encoding="utf-8").strip(_BLANKS)
        except (OSError, UnicodeDecodeError) as e:
            return f"{r.url_file} cannot be read: {getattr(e, 'strerror', None) or 'it is no text'}", False
        host = urlsplit(url).hostname or ""
        if not url.startswith(("https://", "http://")) or not host:
            return f"{r.url_file} holds no URL", False
        headers = {"Content-Type": "application/json", "User-Agent": f"rebalancer/{__version__}"}
        pool = _pool(url, host)
        # A total of time, as a receiver that sends a byte a second would be waited for without end.
        timeout = urllib3.Timeout(total=r.timeout)
        try:
            answer = pool.request(
                "POST", url, body=body, headers=headers, timeout=timeout, retries=False, redirect=False,
                preload_content=False,
            )  # fmt: skip
            answer.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as e:
            # Their texts may have the URL, which is a secret.
            return f"{host}: {_plain(e)}", True
        finally:
            pool.clear()
        if 200 <= answer.status < 300:
            return "", False
        return f"{host} answers {answer.status}", answer.status in _AGAIN


def _pool(url: str, host: str) -> Any:
    """One that goes through the proxy of the environment, where there is one."""
    proxy = getproxies().get(urlsplit(url).scheme)
    if proxy and not proxy_bypass(host):
        return urllib3.ProxyManager(proxy)
    return urllib3.PoolManager()


def _plain(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    if isinstance(error, urllib3.exceptions.SSLError):
        return "its certificate is not trusted, or it speaks no TLS"
    return "no connection"


class Mailboxes:
    """The receivers of this process; they may change while it runs."""

    def __init__(self, receivers: tuple[Receiver, ...] = ()) -> None:
        self._boxes = {r.name: Mailbox(r) for r in receivers}
        self._earlier: dict[str, Counter[str]] = {}

    def change(self, receivers: tuple[Receiver, ...]) -> None:
        """Takes over other receivers. What is queued for those that go is lost, and counted."""
        new = {r.name: r for r in receivers}
        for name, box in list(self._boxes.items()):
            if new.get(name) != box.receiver:
                box.close(0)
                self._earlier.setdefault(name, Counter()).update(box.results())
                del self._boxes[name]
        for name, receiver in new.items():
            if name not in self._boxes:
                self._boxes[name] = Mailbox(receiver)

    def put(self, name: str, body: bytes) -> None:
        """Queues a message for a receiver, if there is one of that name."""
        if (box := self._boxes.get(name)) is not None:
            box.put(body)

    def results(self) -> dict[tuple[str, str], int]:
        """How many messages came to what, by receiver and result."""
        found: dict[tuple[str, str], int] = {}
        for name in {*self._boxes, *self._earlier}:
            counted = Counter(self._earlier.get(name, Counter()))
            if name in self._boxes:
                counted.update(self._boxes[name].results())
            found |= {(name, result): counted[result] for result in RESULTS}
        return found

    def close(self, within: float = 2.5) -> None:
        """Ends all, within so many seconds together."""
        end = time.monotonic() + within
        for box in self._boxes.values():
            box.close(max(0.0, end - time.monotonic()))
