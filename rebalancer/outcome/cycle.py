"""What became of each move, and of the cycle."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rebalancer.model.reason import Reason
from rebalancer.outcome.eviction import Eviction
from rebalancer.planner.plan import Move, Plan


class MoveStatus(StrEnum):
    """How a move ended."""

    EVICTED = "evicted"
    """Evicted; what comes of it is not known yet. No observer sees this one."""
    DONE = "done"
    """Evicted; the replacement is Ready, or was not waited for."""
    RECORDED = "recorded"
    """Dry run: it would have been evicted."""
    SKIPPED = "skipped"
    """Not evicted, because it was no longer valid; `reason` says why."""
    FAILED = "failed"
    """The eviction failed, or its replacement did not become Ready in time."""


class Outcome(Struct, frozen=True, eq=False, kw_only=True):
    """What became of one move.

    `message` is a sentence. `replacement`, `node`: the pod that replaced the victim and its node, "" if none
    was seen. `gates`: scheduling gates that it had and its template has not. `expected`: whether the node is
    one of the planned destinations; None: not known. `at`: monotonic time of the eviction. `seconds`: from
    then until the replacement was Ready; `scheduled`: until it was first seen on a node, None if it was not.
    """

    move: Move
    status: MoveStatus
    message: str
    reason: Reason | None = None
    eviction: Eviction | None = None
    replacement: str = ""
    node: str = ""
    gates: tuple[str, ...] = ()
    expected: bool | None = None
    scheduled: float | None = None
    at: float = 0.0
    seconds: float = 0.0

    @property
    def evicted(self) -> bool:
        """Whether this process evicted the pod."""
        return self.eviction is not None and self.eviction.evicted

    @property
    def as_planned(self) -> bool:
        """Whether the replacement runs on the node that the rest of the plan counts on."""
        return self.status is MoveStatus.DONE and self.node == self.move.predicted

    @property
    def prediction(self) -> str:
        """How the prediction held.

        hit: on the predicted node. alternative: on another planned destination. miss: on any other node.
        unknown: no replacement was seen.
        """
        if self.expected is None:
            return "unknown"
        if not self.expected:
            return "miss"
        return "hit" if self.node == self.move.predicted else "alternative"


class End(StrEnum):
    """Why a cycle ended."""

    COMPLETE = "complete"
    """Nothing is left to do."""
    UNKNOWN = "unknown"
    """An excess is left, and kinds may not be read: whether an eviction would help is not known."""
    RECORDED = "recorded"
    """Dry run: the plan was gone through."""
    CAPPED = "capped"
    """A cap of the policy was reached; the next cycle goes on."""
    STOPPED = "stopped"
    """A stop was asked for."""
    HELD = "held"
    """Evicting is not allowed at present: a window, a pause, a lost lease, an open breaker."""
    NO_PROGRESS = "no-progress"
    """What is left is blocked at present."""
    UNSTABLE = "unstable"
    """The cluster changed, or behaved otherwise than predicted, more often than a cycle re-plans."""
    ABORTED = "aborted"
    """Going on would be unsafe or useless: no rights, an unwell API server, replacements that fail."""


class CycleReport(Struct, frozen=True, eq=False, kw_only=True):
    """A cycle: the first and the last plan, all outcomes, and why it ended.

    `reason`: what held or capped it. Its number `until`, if there, is the time of the next try in epoch
    seconds.
    """

    end: End
    message: str
    reason: Reason | None = None
    first: Plan | None = None
    last: Plan | None = None
    plans: int = 0
    outcomes: tuple[Outcome, ...] = ()
    seconds: float = 0.0

    @property
    def evicted(self) -> int:
        """Pods that this cycle evicted."""
        return sum(o.evicted for o in self.outcomes)

    @property
    def failed(self) -> int:
        """Moves that failed."""
        return sum(o.status is MoveStatus.FAILED for o in self.outcomes)

    @property
    def mispredicted(self) -> int:
        """Replacements that run on no planned destination."""
        return sum(o.expected is False for o in self.outcomes)

    @property
    def ok(self) -> bool:
        """Whether everything that was tried succeeded."""
        return self.failed == 0 and self.end is not End.ABORTED
