"""What became of each move, and of the cycle."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rebalancer.kube.eviction import Eviction
from rebalancer.model.reason import Reason
from rebalancer.planner.plan import Move, Plan


class MoveStatus(StrEnum):
    """How a move ended."""

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

    `message` is a sentence. `replacement` and `node`: the pod that came for it and where it runs, "" if none
    was seen. `expected`: whether that is one of the destinations of the plan, None if there is nothing to
    compare. `seconds` from the eviction until the replacement was Ready, `scheduled` until it was first seen
    on a node, None if it was not.
    """

    move: Move
    status: MoveStatus
    message: str
    reason: Reason | None = None
    eviction: Eviction | None = None
    replacement: str = ""
    node: str = ""
    expected: bool | None = None
    scheduled: float | None = None
    seconds: float = 0.0

    @property
    def evicted(self) -> bool:
        """Whether the pod was evicted by us, whatever came of it."""
        return self.eviction is not None and self.eviction.evicted

    @property
    def as_planned(self) -> bool:
        """Whether the replacement runs on the very node that the rest of the plan counts with."""
        return self.status is MoveStatus.DONE and self.node == self.move.predicted


class End(StrEnum):
    """Why a cycle ended."""

    COMPLETE = "complete"
    """Nothing is left to do."""
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
    """A cycle: the first plan and the last, everything that was done, and why it ended. `reason`: what held
    or capped it; its number `until` (epoch seconds), if there, is when it is tried again."""

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
        """Pods that we evicted."""
        return sum(o.evicted for o in self.outcomes)

    @property
    def failed(self) -> int:
        """Moves that failed."""
        return sum(o.status is MoveStatus.FAILED for o in self.outcomes)

    @property
    def mispredicted(self) -> int:
        """Replacements that landed on none of the planned nodes."""
        return sum(o.expected is False for o in self.outcomes)

    @property
    def ok(self) -> bool:
        """Whether everything that was tried succeeded."""
        return self.failed == 0 and self.end is not End.ABORTED
