"""How kinds are watched."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.kube.client.retry import Backoff
from rebalancer.kube.read.served import ADD_ON_PATIENCE


class WatchOptions(Struct, frozen=True, kw_only=True):
    """How kinds are watched; all times in seconds.

    `timeout`: the server ends a watch after a random time between these. `silence`: without a byte for so
    long the connection is dead. It is longer than `timeout`, as a server has no bookmark for a watch that
    began with the newest version it knows of this kind. `list_silence`: the same of a streaming list, in
    which there is always something to come; `add_on_patience`: of any list of a kind that a cluster need not
    have. `healthy`: what lasts that long
    counts as success. `backoff`: between attempts, those of a kind that may not be read included, and within
    a list between the tries of a page. `turn`: a list waits no longer for those of other kinds.
    `streaming`: lists are streamed where offered.
    `close_timeout`, `close_silence`: the same of a watch that follows closely.
    """

    timeout: tuple[int, int] = (90, 140)
    silence: float = 150.0
    list_silence: float = 30.0
    add_on_patience: float = ADD_ON_PATIENCE
    healthy: float = 10.0
    page_size: int = 500
    backoff: Backoff = Backoff(tries=3, first=0.5, cap=30.0)
    turn: float = 10.0
    streaming: bool = True
    close_timeout: int = 3
    close_silence: float = 6.0


class Offer:
    """Whether this server offers streaming lists: learned once, for all kinds."""

    def __init__(self, streaming: bool) -> None:
        self.streaming = streaming
