"""What may forbid evictions at any moment. Asked before a plan is carried out and before every eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rebalancer.kube.coordination.brakes import Brakes
from rebalancer.kube.coordination.place import Place
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.annotations import paused
from rebalancer.policy.limits.windows import Window, outside
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.memory.memory import Memory

FRESH = 1.0
"""Seconds that may pass between the beginning of a last look and the request."""


class Gate:
    """Open by default. Subclasses override what they need. `closed` and `bars` may raise KubeError, which
    ends the cycle."""

    def begin(self) -> None:
        """`closed` will be asked in a moment: reads what takes a request, beside what others read. In any
        thread. What went wrong is for `closed` to raise."""

    def closed(self) -> Reason | None:
        """Why nothing at all may be evicted now."""
        return None

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        """Why this pod may not be evicted now, although others may."""
        return None


class Gates(Gate):
    """Several gates, asked in order; the first that is closed answers. Put the cheap ones first."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    def begin(self) -> None:
        for g in self._gates:
            g.begin()

    def closed(self) -> Reason | None:
        return next((r for g in self._gates if (r := g.closed()) is not None), None)

    def bars(self, pod: Pod) -> Reason | None:
        return next((r for g in self._gates if (r := g.bars(pod)) is not None), None)


class WindowGate(Gate):
    """Closed outside of maintenance windows."""

    def __init__(self, windows: Sequence[Window], clock: Clock) -> None:
        self._windows = windows
        self._clock = clock

    def closed(self) -> Reason | None:
        return outside(self._windows, self._clock.now(), self._clock.latest())


class TimeGate(Gate):
    """Closed when the cycle has taken `seconds` since this gate was made."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def closed(self) -> Reason | None:
        if self._clock.monotonic() < self._until:
            return None
        return Reason(
            ReasonCode.CYCLE_TIME,
            f"the cycle has taken {self._seconds:.0f} s, which is all it may",
            {"seconds": int(self._seconds)},
            "the next cycle goes on; see schedule.maxCycleTime",
        )


class LeaderGate(Gate):
    """Closed when this process does not lead. `leading` must answer from its own clock, without a request."""

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading

    def closed(self) -> Reason | None:
        if self._leading():
            return None
        return Reason(ReasonCode.NOT_LEADING, "this instance is not the leader any more")

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        """Asks again: what was asked for this pod before may have taken long."""
        return self.closed()


class PauseGate(Gate):
    """Closed by the brake, which is read for each answer. Namespaces that are paused are for the last look.

    A brake that is missing or may not be read closes as well. `lease`: the lease's annotations as last seen,
    which paused everything in earlier versions and still do.
    """

    def __init__(
        self, brakes: Brakes, brake: Place, clock: Clock, lease: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._brakes = brakes
        self._brake = brake
        self._clock = clock
        self._lease = lease
        self._begun: tuple[float, Mapping[str, str] | KubeError] | None = None

    def begin(self) -> None:
        at = self._clock.monotonic()
        try:
            self._begun = at, self._brakes.everything(self._brake)
        except KubeError as e:
            self._begun = at, e

    def closed(self) -> Reason | None:
        what = f"configmap {self._brake.name} -n {self._brake.namespace}"
        begun, self._begun = self._begun, None
        try:
            # What was read for a look that went no further may be old by now.
            if begun is None or self._clock.monotonic() - begun[0] >= FRESH:
                there = self._brakes.everything(self._brake)
            elif isinstance(begun[1], KubeError):
                raise begun[1]
            else:
                there = begun[1]
        except NotFoundError:
            say = f"{self._brake}, by which people pause evictions, is missing"
            return _unseen(f"{say}; `rebalancer resume` creates it", "`rebalancer resume` creates it")
        except ForbiddenError as e:
            return _unseen(f"whether evictions are paused cannot be seen: {e.message}", e.remedy)
        now = self._clock.now()
        return paused(what, there, now, "`rebalancer resume`") or paused("lease", self._lease(), now)


def _unseen(message: str, remedy: str) -> Reason:
    return Reason(ReasonCode.NO_BRAKE, message, remedy=remedy)


class CircuitGate(Gate):
    """Closed while the circuit breaker is open because of an earlier cycle."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def closed(self) -> Reason | None:
        return self._memory.circuit_open()


class RivalGate(Gate):
    """Closed while another rebalancer acts on the same ledger."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def closed(self) -> Reason | None:
        return self._memory.rival()
