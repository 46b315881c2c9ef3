"""What may forbid evicting at any moment: asked before a plan is carried out, and before every eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rebalancer.kube.brakes import Brakes
from rebalancer.kube.ledger import Place
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.annotations import paused
from rebalancer.policy.windows import Window, outside
from rebalancer.runtime.clock import Clock


class Gate:
    """Open by default; override what is of interest. Both may raise KubeError, which ends the cycle."""

    def closed(self) -> Reason | None:
        """Why nothing at all may be evicted now."""
        return None

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        """Why this pod may not be evicted now, although others may."""
        return None


class Gates(Gate):
    """Several, asked in order: the cheap ones first."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    def closed(self) -> Reason | None:
        """The first that is closed."""
        return next((r for g in self._gates if (r := g.closed()) is not None), None)

    def bars(self, pod: Pod) -> Reason | None:
        """The first that bars the way."""
        return next((r for g in self._gates if (r := g.bars(pod)) is not None), None)


class WindowGate(Gate):
    """Maintenance windows."""

    def __init__(self, windows: Sequence[Window], clock: Clock) -> None:
        self._windows = windows
        self._clock = clock

    def closed(self) -> Reason | None:
        """Outside of every window."""
        return outside(self._windows, self._clock.now())


class TimeGate(Gate):
    """The most time that a cycle may evict for, in seconds since this was made."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def closed(self) -> Reason | None:
        """The time is up."""
        if self._clock.monotonic() < self._until:
            return None
        return Reason(
            ReasonCode.CYCLE_TIME,
            f"the cycle has taken {self._seconds:.0f} s, which is all it may",
            {"seconds": int(self._seconds)},
            "the next cycle goes on; see schedule.maxCycleTime",
        )


class LeaderGate(Gate):
    """Still the leader? `leading` must answer from its own clock, without asking anybody."""

    def __init__(self, leading: Callable[[], bool]) -> None:
        self._leading = leading

    def closed(self) -> Reason | None:
        """Not the leader, or not for certain."""
        if self._leading():
            return None
        return Reason(ReasonCode.NOT_LEADING, "this instance is not the leader any more")

    def bars(self, pod: Pod) -> Reason | None:  # noqa: ARG002
        """The same: whatever was asked for this pod's sake before may have taken its time."""
        return self.closed()


class PauseGate(Gate):
    """People's brake: the annotation on the lease and on namespaces, read fresh each time."""

    def __init__(self, brakes: Brakes, lease: Place | None, clock: Clock) -> None:
        self._brakes = brakes
        self._lease = lease
        self._clock = clock

    def closed(self) -> Reason | None:
        """The lease carries the annotation."""
        if self._lease is None:
            return None
        there = self._brakes.lease(self._lease.namespace, self._lease.name)
        return self._paused(f"lease {self._lease.name} -n {self._lease.namespace}", there)

    def bars(self, pod: Pod) -> Reason | None:
        """The pod's namespace carries it."""
        name = pod.namespace
        return self._paused(f"namespace {name}", self._brakes.namespace(name))

    def _paused(self, what: str, annotations: Mapping[str, str]) -> Reason | None:
        return paused(what, annotations, self._clock.now())


class Circuitry(Protocol):
    """`rebalancer.runtime.memory.Memory`, as far as the breaker is concerned."""

    def circuit_open(self) -> Reason | None:
        """Why the breaker is open."""
        ...


class CircuitGate(Gate):
    """The circuit breaker that an earlier cycle opened."""

    def __init__(self, memory: Circuitry) -> None:
        self._memory = memory

    def closed(self) -> Reason | None:
        """Open, as one says of breakers."""
        return self._memory.circuit_open()
