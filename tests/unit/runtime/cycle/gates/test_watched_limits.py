"""What keeps a move waiting and passes by itself, by the budgets and owners that the watch shows."""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.kube.errors import CacheNotReadyError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import PodDisruptionBudget, ResourceQuota, Workload
from rebalancer.runtime.cycle.gates import WatchedLimits
from tests.support.build import nodes, pdb, snapshot, workload
from tests.unit.runtime.cycle.made import move


def cluster(allowed: int) -> Snapshot:
    """Pods of which a budget lets so many go."""
    return snapshot(
        *nodes(a=1, b=2),
        workload("web").placed({"a-0": 4}),
        pdb("web", {"app": "web"}, max_unavailable=allowed),
    )


class Watched(WatchCache):
    """The watch shows another cluster than the plan was made for, or is not ready."""

    def __init__(self, shows: Snapshot) -> None:
        self.shows = shows
        self.ready = True

    def budgets(self, namespace: str) -> tuple[PodDisruptionBudget, ...]:
        if not self.ready:
            raise CacheNotReadyError("PodDisruptionBudget: stale", kinds=("PodDisruptionBudget",))
        return tuple(b for b in self.shows.budgets if b.metadata.namespace == namespace)

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:  # noqa: ARG002
        return ()

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        return self.shows.workloads_by_name.get((kind, namespace, name))


PLANNED = cluster(allowed=1)
MOVE = move("web-00000", PLANNED)


def test_a_move_waits_for_room_in_its_budget() -> None:
    watched = Watched(PLANNED)
    limits = WatchedLimits(watched, PLANNED)
    assert limits.allow(MOVE)
    watched.shows = cluster(allowed=0)
    assert not limits.allow(MOVE)
    watched.shows = PLANNED
    assert limits.allow(MOVE)


def test_after_a_refusal_a_move_waits_until_budget_or_owner_have_changed() -> None:
    watched = Watched(PLANNED)
    limits = WatchedLimits(watched, PLANNED)
    limits.refused(MOVE)
    assert not limits.allow(MOVE)
    changed = [replace(w, metadata=replace(w.metadata, resource_version="newer")) for w in PLANNED.workloads]
    watched.shows = replace(PLANNED, workloads=tuple(changed))
    assert limits.allow(MOVE)


def test_while_the_watch_is_behind_a_move_waits() -> None:
    watched = Watched(PLANNED)
    limits = WatchedLimits(watched, PLANNED)
    watched.ready = False
    assert not limits.allow(MOVE)
    assert not limits.as_planned([MOVE])


def test_budgets_are_as_planned_when_they_allow_as_much_again() -> None:
    watched = Watched(cluster(allowed=0))
    limits = WatchedLimits(watched, PLANNED)
    assert not limits.as_planned([MOVE])
    watched.shows = PLANNED
    assert limits.as_planned([MOVE])


def test_a_dry_run_is_not_limited() -> None:
    limits = WatchedLimits(None, cluster(allowed=0))
    assert limits.allow(MOVE)
    assert limits.admit(MOVE, ())
