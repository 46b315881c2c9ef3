"""Decisions of the scheduler beside the engine's answers: counted as they come, from any thread.

They show what may be relied on where a scheduler is newer than all known rules.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rebalancer.engine.agreement import Comparison
from rebalancer.engine.agreement import Result as Verdict
from rebalancer.engine.branches import within
from rebalancer.engine.config import Witness
from rebalancer.engine.version import ServerVersion
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.history.ledger import COVERED, ENOUGH, Agreed, Shown, shown_key

_APART = 60.0
_TOLD = {Verdict.AGREES: True, Verdict.DISAGREES: False}
"""The results that say something about where pods land."""


class Verdicts:
    """Comparisons that the ledger has not counted yet. More than `ENOUGH` of them are never of use."""

    def __init__(self) -> None:
        self._new: deque[bool] = deque(maxlen=2 * ENOUGH)
        self._listening = False
        self._lock = threading.Lock()
        self._shown: dict[tuple[str, ...], tuple[int, str]] = {}
        self._missed: dict[tuple[str, ...], None] = {}
        """By version, profile and branch: of what nothing is shown any more that was before."""
        self._counted = set[tuple[tuple[str, ...], str]]()
        self._counted_at = 0.0

    def listen(self) -> Callable[[Comparison], None]:
        """What to call with each comparison. From then on these alone count."""
        self._listening = True
        return self._compared

    def landed(self, *, agrees: bool) -> None:
        """A replacement runs on a planned node, or on another. Where somebody compares all pods, it is among
        those."""
        if not self._listening:
            self._new.append(agrees)

    def counted(self, agreed: Agreed) -> Agreed:
        """With those that have come since the last time."""
        while self._new:
            agreed = agreed.after(agrees=self._new.popleft())
        return agreed

    def shown(self, now: float) -> dict[tuple[str, ...], tuple[int, str]]:
        """By version, profile and branch: how many decisions were as predicted since the last time; and which
        was not, then how many since that one. By whose decisions they are, too: how many show the branch.
        Pods of one owner are no evidence apart: of those of a minute one counts."""
        with self._lock:
            found, self._shown = self._shown, {}
            if now - self._counted_at >= _APART:
                self._counted.clear()
                self._counted_at = now
        return found

    def taken_down(self, before: Mapping[str, Shown], now: float) -> dict[str, Shown]:
        """What was shown `before`, with what has come since the last time."""
        with self._lock:
            missed, self._missed = self._missed, {}
        new = self.shown(now)
        shown = {
            key: Shown(now) if s.agrees and any(_shows(key.split("|"), which) for which in missed) else s
            for key, s in before.items()
        }
        for parts, (agrees, said) in new.items():
            key = shown_key(*parts)
            shown[key] = shown.get(key, Shown()).after(agrees, said, now)
        return shown

    def _compared(self, comparison: Comparison) -> None:
        c, agrees = comparison, _TOLD.get(comparison.result)
        if agrees is None:
            return
        with self._lock:
            for branch in c.missed if agrees else c.branches:
                missed = c.version, c.profile, branch
                self._missed[missed] = None
                self._shown = {k: s for k, s in self._shown.items() if not _shows(k, missed)}
            if not c.certain:
                return
            self._new.append(agrees)
            for branch in c.branches:
                key: tuple[str, ...] = (c.version, c.profile, branch)
                if not agrees:
                    self._shown[key] = 0, f"{c.namespace}/{c.pod}: {c.message}"
                else:
                    self._count(key, c.owner)
            for branch in c.shown if agrees and c.scheduler else ():
                self._count((c.version, c.profile, branch, c.scheduler), c.owner)

    def _count(self, key: tuple[str, ...], owner: str) -> None:
        if not owner or (key, owner) not in self._counted:
            self._counted.add((key, owner))
            number, why = self._shown.get(key, (0, ""))
            self._shown[key] = number + 1, why


def _shows(key: Sequence[str], which: tuple[str, ...]) -> bool:
    """Whether it was shown, by key, of this version, profile and branch, or of one that reads more."""
    return len(key) == 4 and tuple(key[:2]) == which[:2] and within(key[2], which[2])


def witness(shown: Mapping[str, Shown], version: str, scheduler: Callable[[], str]) -> Witness:
    """What the decisions of this version's scheduler have shown so far. `scheduler`: which one decides now,
    as comparisons name it; "" where none may count as known."""
    own = [(key.split("|"), s) for key, s in shown.items() if key.startswith(f"{version}|")]
    here = {(k[1], k[2]): s for k, s in own if len(k) == 3}
    enough = [k for k, s in own if len(k) == 4 and s.agrees == COVERED]
    now = scheduler() if enough else ""
    return Witness(
        covered=frozenset((k[1], k[2]) for k in enough if now and k[3] == now),
        doubted={
            where: f"the scheduler did otherwise than predicted, and until {COVERED} decisions in a row on "
            f"{where[1]!r} are as predicted, or planner.schedulerConfig is another, what rests on it is "
            f"likely: {s.disagreed}"
            for where, s in here.items()
            if s.disagreed
        },
    )


def release_beyond(snapshot: Snapshot) -> str:
    """The server's minor release, as "1.37", if it is newer than all known rules, else ""."""
    version = ServerVersion.parse(snapshot.server_version)
    return f"{version.minor[0]}.{version.minor[1]}" if version.newer_by else ""
