"""What became of each move, and of the cycle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from rebalancer.engine.agreement import Comparison
from rebalancer.errors import UserError
from rebalancer.model.reason import Finding, Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.history.ledger import Fate as Fate
from rebalancer.prevention.steering import CostChange, Steering

# What came of the request to evict one pod.


class Result(StrEnum):
    """How an eviction ended."""

    EVICTED = "evicted"
    """The server took it, or it was read back as taken."""
    MIGRATING = "migrating"
    """Its controller moves it to another node and then ends it: a virtual machine of KubeVirt."""
    RELEASED = "released"
    """Replace first: its ReplicaSet was made to let go of it; it is evicted when its replacement is there."""
    WOULD_EVICT = "would-evict"
    """Dry run: recorded only, or accepted by the server's own dry run."""
    GONE = "already-gone"
    """There is no such pod any more, or another one of its name."""
    TERMINATING = "already-terminating"
    """Somebody else was quicker; not an eviction of ours."""
    BLOCKED = "budget-exhausted"
    STALE_BUDGET = "budget-stale"
    SEVERAL_BUDGETS = "several-budgets"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    """Flow control, also after waiting."""
    REFUSED = "refused"
    """By a webhook or a policy of admission; or any other 4xx: the request itself is wrong."""
    UNASKED = "webhook-unreachable"
    """A webhook that has to be asked could not be: nothing was done."""
    HELD = "held"
    """Not sent, or not sent again after a try that came to nothing: the last look or a gate forbade it, or a
    stop was asked for."""
    FAILED = "failed"
    """The server tried and failed, or was not reached; the pod was seen to be still there."""
    UNKNOWN = "unknown"
    """Perhaps evicted, and it cannot be found out: nothing more may be evicted on this knowledge."""


class Failed(Struct, frozen=True):
    """A request that was not accepted: HTTP status (0: no answer), class of the error, a sentence, and when,
    in seconds after the first request."""

    status: int
    error: str
    message: str
    seconds: float


class Eviction(Struct, frozen=True, eq=False, kw_only=True):
    """The result of evicting one pod.

    `message` is a sentence. `read_back`: no answer came, and the result was read from the pod. `posts`: how
    many requests were sent. `status`: HTTP status of the last answer, 0 if there was none. `failed`: the
    requests that were not accepted, in order; `unanswered`: nothing says that the API server refused one of
    them, and it may be carried out late. `error`: the last error that counted; of a release that was undone,
    what refused the eviction at its end. `reason`: what forbade the first or a further request.
    """

    result: Result
    message: str
    read_back: bool = False
    posts: int = 0
    status: int = 0
    failed: tuple[Failed, ...] = ()
    unanswered: bool = False
    error: UserError | None = None
    reason: Reason | None = None

    @property
    def evicted(self) -> bool:
        """Whether the pod goes because of this eviction, now or once it has moved or been replaced."""
        return self.released or self.result in (Result.EVICTED, Result.MIGRATING)

    @property
    def released(self) -> bool:
        """Whether it is to be evicted once its replacement is there."""
        return self.result is Result.RELEASED

    @property
    def tried(self) -> bool:
        """Whether anything was asked of the server, or recorded instead."""
        return self.posts > 0 or self.result is Result.WOULD_EVICT


class Outcome(Struct, frozen=True, eq=False, kw_only=True):
    """What became of one move.

    `message` is a sentence. `replacement`, `node`: the pod that replaced the victim and its node, "" if
    none was seen. `gates`: scheduling gates that it had and its template has not. `expected`: whether the
    node is one of the planned destinations, and constraints count it as planned; None: not known, or it
    was not waited for and is not Ready. `at`: monotonic time of the eviction. `seconds`: from then until
    the replacement was Ready; `scheduled`: until it was first seen on a node, None if it was not.
    """

    move: Move
    status: Fate
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
        """Whether this process evicted the pod, or released it."""
        return self.eviction is not None and self.eviction.evicted

    @property
    def kept(self) -> bool:
        """Whether it was released, and is there still."""
        return self.eviction is not None and self.eviction.released

    @property
    def as_planned(self) -> bool:
        """Whether the replacement runs on the node that the rest of the plan counts on."""
        return self.status is Fate.DONE and self.expected is not False and self.node == self.move.predicted

    @property
    def prediction(self) -> str:
        """How the prediction held.

        hit: on the predicted node. alternative: on another planned destination. miss: on any other node, or
        not counted there.
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
    WAITING = "waiting"
    """What is left waits: until when is said."""
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
    def says(self) -> str:
        """The message, and of a wait what shortens it."""
        remedy = self.reason.remedy if self.reason is not None else ""
        waits = self.end in (End.WAITING, End.CAPPED) and remedy
        return f"{self.message} ({remedy})" if waits else self.message

    @property
    def evicted(self) -> int:
        """Pods that this cycle evicted."""
        return sum(o.evicted and not o.kept for o in self.outcomes)

    @property
    def failed(self) -> int:
        """Moves that failed."""
        return sum(o.status is Fate.FAILED for o in self.outcomes)

    @property
    def mispredicted(self) -> int:
        """Replacements that run on no planned destination, or are not counted there."""
        return sum(o.expected is False for o in self.outcomes)

    @property
    def ok(self) -> bool:
        """Whether everything that was tried succeeded."""
        return self.failed == 0 and self.end is not End.ABORTED


# What became of the deletion costs that keep a ReplicaSet's spread when it shrinks.


class CostResult(StrEnum):
    """What became of one pod's cost."""

    WRITTEN = "written"
    RECORDED = "would-write"
    """Dry run."""
    CHANGED = "changed"
    """The pod has changed since it was looked at: it is looked at again."""
    GONE = "gone"
    """The pod is gone."""
    FAILED = "failed"
    """The API server refused it or did not answer; it is tried again."""


class CostOutcome(Struct, frozen=True, eq=False):
    """One pod's cost. `message`: what went wrong, "" if nothing did. `version`: of the pod with it, if it was
    written."""

    change: CostChange
    result: CostResult
    message: str = ""
    version: str = ""


class SteeringReport(Struct, frozen=True, eq=False, kw_only=True):
    """One look at all owners that are steered. `waiting`: changes that come later. `disputed`: owners
    that are left alone for a while, as somebody changes their costs back."""

    steering: Steering
    outcomes: tuple[CostOutcome, ...] = ()
    waiting: int = 0
    disputed: tuple[str, ...] = ()

    def count(self, result: CostResult) -> int:
        """How many outcomes are of that kind."""
        return sum(o.result is result for o in self.outcomes)


class Proposal(Struct, frozen=True):
    """A plan that waits for approval in a ConfigMap. `text`: it, for people; `command`: what approves it."""

    namespace: str
    name: str
    evictions: int
    command: str
    text: str


# What a cycle and the daemon tell to those who listen: logs, the live view, telemetry.

log = logging.getLogger(__name__)


class Observer:
    """Override what is of interest. Called in the cycle's thread, in this order; should return quickly."""

    def on_cycle(self, number: int) -> None:
        """A cycle begins; they count from 1."""

    def on_reading(self) -> None:
        """The cluster is about to be read; once for each plan."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """The cluster was read; planning begins."""

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """A plan was made from that snapshot. Happens again in a cycle when the cluster does not behave as
        planned."""

    def on_proposal(self, proposal: Proposal) -> None:
        """A plan was shown that nobody has approved yet."""

    def on_rejected(self, namespace: str, pod: str, reason: Reason) -> None:
        """An eviction of a reviewed plan is not carried out."""

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """The first move of a wave starts; waves overlap."""

    def on_move(self, move: Move) -> None:
        """A move's turn has come: a last look follows, then it is carried out or skipped."""

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """An eviction was tried; its outcome follows once the replacement is Ready."""

    def on_outcome(self, outcome: Outcome) -> None:
        """It is known what became of a move, evicted or not."""

    def on_wave_end(self, wave: int) -> None:
        """All outcomes of the wave are known, or no more of it follows in this plan."""

    def on_report(self, report: CycleReport) -> None:
        """The cycle is over."""

    def on_error(self, error: Exception) -> None:
        """The cycle ended in an error instead: the cluster could not be read, or a bug."""

    def on_leading(self, leading: bool) -> None:
        """This instance became the leader, or no longer is; from the thread of the election, at any time."""

    def on_breaker(self, open_: bool, why: str) -> None:
        """The circuit breaker opened, so that nothing is evicted, or stops nothing any more. The
        latter is told after each cycle until one has shown that all is well."""

    def on_held(self, reason: Reason) -> None:
        """There is something to do, and evicting is not allowed now."""

    def on_notice(self, finding: Finding) -> None:
        """Another program moves pods in this cluster. Told once as long as it is there."""

    def on_comparison(self, comparison: Comparison) -> None:
        """What the scheduler did with a pod, beside what the engine says of it; from a thread of its own."""

    def on_steering(self, report: SteeringReport) -> None:
        """Scale-ins were looked at, and there is news; in the daemon from a thread of its own."""

    def on_reload(self, problem: str) -> None:
        """Changed settings were taken over (""), or refused because of `problem`."""


class Observers(Observer):
    """Tells several observers. One that fails is logged and ignored: no eviction depends on a display."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def _tell(self, method: str, *args: object) -> None:
        for observer in self._observers:
            try:
                getattr(observer, method)(*args)
            except Exception:
                log.exception("%s.%s failed", type(observer).__name__, method)


def _passed_on(method: str) -> Callable[..., None]:
    def tell(self: Observers, *args: object) -> None:
        self._tell(method, *args)

    return tell


for _method in [name for name in vars(Observer) if name.startswith("on_")]:
    setattr(Observers, _method, _passed_on(_method))
