"""The clock and the request to stop. Both are passed in: tests use a clock of their own, a signal sets the
stop.

A machine's clock may be wrong, and so may an API server's. Where the two differ by more than a minute, each
rule takes the more cautious time. Mostly that is the earlier: a pause is not over yet, a pod not old enough,
an eviction not long ago. What is written down for later cycles bears the later time, for the same reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from operator import attrgetter
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan

APART = 60.0
"""Seconds by which two clocks may differ."""


class Clock(Protocol):
    """All times and durations are in seconds."""

    def now(self) -> float:
        """Seconds since the epoch, UTC: the earliest that it may be."""
        ...

    def latest(self) -> float:
        """The latest that it may be: the same, unless two clocks disagree."""
        ...

    def doubt(self) -> str:
        """Why it is not known what time it is, in a sentence; "" if it is."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that is never set."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleeps until the time is over or a stop is asked for. True: stop now."""
        ...

    def linger(self, seconds: float) -> bool:
        """Sleeps the whole time, also when a stop is asked for. Always False."""
        ...

    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        ...


class RateLimit:
    """When the next pod may be released or evicted: one for all of a cycle. `rates`: how many a second, by
    each of the settings in force; None: as many as can be."""

    def __init__(self, clock: Clock, rates: Callable[[], Iterable[float | None]] = tuple) -> None:
        self._clock, self._rates, self._sent_at = clock, rates, -math.inf

    @property
    def next_at(self) -> float:
        """The earliest moment for it, of the monotonic clock."""
        rates = [r for r in self._rates() if r]
        return self._sent_at + (1 / min(rates) if rates else 0.0)

    def sent(self) -> None:
        """A request was sent."""
        self._sent_at = self._clock.monotonic()


class StopAskedError(Exception):
    """A stop was asked for in the middle of something that may be given up."""


class SignOfLife(Struct, frozen=True):
    """What planning calls again and again: a sign of life, and the end of it when a stop is asked for."""

    clock: Clock

    def __call__(self) -> None:
        """Raises StopAskedError."""
        if self.clock.stopping():
            raise StopAskedError


class SystemClock:
    """The machine's clock, beside the API server's. A signal, or the caller, sets `stop`.

    `server`: what the API server's clock shows, None while it does not say; without it there is one clock.
    `used` is told of each use.
    """

    def __init__(
        self,
        stop: threading.Event | None = None,
        server: Callable[[], float | None] | None = None,
        used: Callable[[], None] = lambda: None,
    ) -> None:
        self.stop = stop or threading.Event()
        self._server = server
        self._used = used

    def now(self) -> float:
        self._used()
        return min(self._both())

    def latest(self) -> float:
        return max(self._both())

    def doubt(self) -> str:
        if self._server is None:
            return ""
        if self._server() is None:
            return (
                "whether this machine's clock is right: the API server's answers have no Date; "
                "pauses, windows, caps and ages go by this clock alone"
            )
        here, there = self._both()
        if here == there:
            return ""
        how = "ahead of" if here > there else "behind"
        return (
            f"what time it is: this machine's clock is {abs(here - there) / 60:,.0f} min {how} the API "
            "server's; pauses, windows, caps and ages go by whichever of the two is more cautious; set the "
            "wrong one"
        )

    def _both(self) -> tuple[float, float]:
        here, there = time.time(), self._server() if self._server is not None else None
        return (here, there) if there is not None and abs(here - there) > APART else (here, here)

    def monotonic(self) -> float:
        from rebalancer.kube.connection import steady  # here, as a report of a file needs no client

        self._used()
        return steady()  # goes on while the machine sleeps

    def wait(self, seconds: float) -> bool:
        self._used()
        stop = self.stop.wait(seconds)
        self._used()
        return stop

    def linger(self, seconds: float) -> bool:
        self._used()
        time.sleep(seconds)
        self._used()
        return False

    def stopping(self) -> bool:
        self._used()
        return self.stop.is_set()


# The domains that a pod leaves. Caps count by them, and the ledger records them.


def domains_left(snapshot: Snapshot, plan: Plan) -> Callable[[Move], list[str]]:
    """For a move of the plan: the domains (key=value) that the pod leaves, by the constraints that the move
    mends."""
    labels = {n.name: n.labels for n in snapshot.nodes}

    def left(move: Move) -> list[str]:
        here = labels.get(move.pod.node_name, {})
        keys = (plan.constraints[i].constraint.topology_key for i in move.fixes)
        return [f"{k}={here[k]}" for k in dict.fromkeys(keys) if k in here]

    return left


def domains_reached(
    plan: Plan, labels: Mapping[str, Mapping[str, str]], move: Move, nodes: Iterable[str]
) -> frozenset[str]:
    """The domains (key=value) of the constraints that the move mends, on these nodes."""
    keys = {plan.constraints[i].constraint.topology_key for i in move.fixes}
    if move.awaits:
        return frozenset(d for d in move.awaits if d.partition("=")[0] in keys)
    return frozenset(f"{key}={labels.get(node, {}).get(key, '')}" for key in keys for node in nodes)


# Whether a snapshot says enough to act on, and has what somebody named.

_MOST = 0.05
"""Share of the nodes or pods that may be unreadable. Everybody counts, so what is missed shifts every skew:
one odd object is told and left out, but a format that is not understood is no cluster in balance."""
_LISTED = 8


def warned(snapshot: Snapshot, doubt: str) -> Snapshot:
    """The snapshot, with one more sentence about what is not known, if there is one."""
    return replace(snapshot, warnings=(*snapshot.warnings, doubt)) if doubt else snapshot


def check_readable(snapshot: Snapshot) -> None:
    """Raises UserError where too many of the nodes or pods could not be read."""
    for read in snapshot.reads:
        lost, every = read.unreadable, read.objects + read.unreadable
        if read.kind in ("Node", "Pod") and lost and (not read.objects or lost > max(1, _MOST * every)):
            where = snapshot.source or "the cluster"
            raise UserError(
                f"{lost:,} of {every:,} {read.kind.lower()}s in {where} could not be read, so nothing can be "
                f"said of its balance: {_first(snapshot, read.kind)}",
                "take the snapshot again, or mend these objects",
            )
    _check_nodes(snapshot)


def _check_nodes(snapshot: Snapshot) -> None:
    """Raises UserError where most pods run on nodes that were not read.

    A few are told of and left out: a node that is gone keeps its pods for a while.
    """
    on_node = Counter(map(attrgetter("node_name"), snapshot.pods))
    del on_node[""]
    placed = on_node.total()
    lost = placed - sum(on_node[n.name] for n in snapshot.nodes)
    if 2 * lost > placed:
        where = snapshot.source or "the cluster"
        raise UserError(
            f"{lost:,} of {placed:,} pods in {where} run on nodes that are not in it, so nothing can be "
            "said of its balance",
            "take nodes and pods of the whole cluster together, for example with `rebalancer snapshot`",
        )


def check_namespaces(snapshot: Snapshot, names: Iterable[str]) -> None:
    """Raises UserError for a name that no namespace has."""
    known = set(snapshot.namespaces)
    if "Namespace" not in snapshot.kinds:
        known = {p.namespace for p in snapshot.pods} | {w.namespace for w in snapshot.workloads}
    only = snapshot.read_namespaces
    for name in names:
        if only and name not in only:
            raise UserError(
                f"namespace {name} is not read: scope.readNamespaces has {', '.join(sorted(only))} only",
                "name one of these, or add it there",
            )
        if name not in known and name not in only:
            similar = get_close_matches(name, sorted(known), 3)
            some = ", ".join(similar or sorted(known)[:_LISTED])
            more = "" if similar or len(known) <= _LISTED else f" and {len(known) - _LISTED:,} more"
            what = "similar" if similar else "there are"
            raise UserError(
                f"no namespace {name} in {snapshot.source or 'the cluster'}",
                f"{what}: {some}{more}",
            )


def _first(snapshot: Snapshot, kind: str) -> str:
    """The warning about the first of them."""
    return next((w for w in snapshot.warnings if kind in w and "malformed" in w), "see the warnings")
