"""The last look: every question about one move, in order, with the cluster as it is now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rebalancer.kube.errors import ForbiddenError
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.workload import PodDisruptionBudget, Workload
from rebalancer.planner.plan import Move
from rebalancer.runtime.last_look import budgets, owner, pod
from rebalancer.runtime.last_look.room import Room
from rebalancer.runtime.last_look.watch_age import WatchAge


class Reads(Protocol):
    """`rebalancer.kube.read.objects.Objects`, as far as it is needed here. Methods raise KubeError."""

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        ...

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        """The owner of that kind and name."""
        ...

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        """All budgets of a namespace."""
        ...


class LastLook:
    """Answers for the moves of one plan, made from the snapshot that `room` knows.

    What concerns the whole cluster (nodes, room) is asked of the watch, once that is known to be up to date;
    what concerns the one pod (its owner, its budgets, itself) is read from the API server.
    """

    def __init__(self, reads: Reads, watch_age: WatchAge, room: Room) -> None:
        self._reads = reads
        self._room = room
        self._watch_age = watch_age
        watch_age.begin()

    def why_not(self, move: Move, in_flight: int = 0) -> Reason | None:
        """Why the move is not right any more; None if it is.

        `in_flight`: how many pods of the same owner this wave has evicted already; so many may be missing.
        Raises KubeError where the cluster cannot be asked.
        """
        return self._watch_age.why_not() or self._room.why_not(move) or self._as_read(move, in_flight)

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as the plan or the last look has them."""
        return tuple(sorted({*move.destinations, *self._room.destinations(move)}))

    def beside(self, move: Move, others: Sequence[Move], unplaced: Collection[str]) -> bool:
        """Whether the move may be in flight beside others that it was not planned beside."""
        return self._room.beside(move, others, unplaced)

    def _as_read(self, move: Move, in_flight: int) -> Reason | None:
        """The owner, its own owner, the budgets and the pod, read at the same time to be quick."""
        victim, planned = move.pod, self._room.owner_of(move.pod.namespace, move.pod.owner)
        parent = self._room.owner_of(planned.namespace, planned.owner) if planned is not None else None
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="look") as pool:
            the_owner = pool.submit(self._owner, planned)
            the_parent = pool.submit(self._owner, parent)
            the_budgets = pool.submit(self._budgets, victim.namespace)
            the_pod = pool.submit(self._reads.pod, victim.namespace, victim.name)
        if planned is not None and planned.kind in RESOURCES:
            live = the_owner.result()
            reason = owner.why_not(planned, live)
            if reason is None and live is not None:
                reason = owner.short_of_pods(planned, live, in_flight)
            if reason is not None:
                return reason
        if parent is not None and parent.kind in RESOURCES:
            reason = owner.why_not(parent, the_parent.result())
            if reason is not None:
                return reason
        return budgets.why_not(victim, the_budgets.result()) or pod.why_not(victim, the_pod.result())

    def _owner(self, planned: Workload | None) -> Workload | None:
        if planned is None or planned.kind not in RESOURCES:
            return None
        return self._reads.workload(planned.kind, planned.namespace, planned.name)

    def _budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        try:
            return self._reads.budgets(namespace)
        except ForbiddenError:
            return ()  # said once, when the snapshot was read; the API server still keeps them
