"""Every change of a store, checked against the budgets."""

from __future__ import annotations

from tests.support.sandbox import Event, Store
from tests.support.scheduler.budget import budgets_of, status
from tests.support.scheduler.plain import Json, key_of, ready, terminating
from tests.support.scheduler.state import State


class BudgetWatch:
    """Learns of every change as it happens, under the store's lock: nothing escapes between two samples.

    `broken`: budgets with fewer healthy pods than they demand, at the moment when one was lost. `checked`:
    how many such losses there were.
    """

    def __init__(self, store: Store) -> None:
        self.broken: list[str] = []
        self.checked = 0
        self._store = store
        self._owners: list[Json] = []
        self._end = store.subscribe(self._changed)

    def close(self) -> None:
        self._end()

    def _changed(self, event: Event) -> None:
        if event.resource.kind != "Pod" or event.old is None:
            return
        pod = event.old.obj
        lost = event.type == "DELETED" or not ready(event.obj) or terminating(event.obj)
        if not ready(pod) or terminating(pod) or not lost:
            return
        self.checked += 1
        kinds = ("PodDisruptionBudget", "ReplicaSet", "StatefulSet", "Deployment")
        namespace = pod["metadata"]["namespace"]
        objects = [o for kind in ("Pod", *kinds) for o in self._store.list(kind, namespace)]
        state = State.of(objects)
        for budget in budgets_of(state, pod):
            now = status(state, budget)
            if now["currentHealthy"] < now["desiredHealthy"]:
                name = budget["metadata"]["name"]
                figures = f"{now['currentHealthy']} of {now['desiredHealthy']}"
                self.broken.append(f"{name}: {figures} healthy without {key_of(pod)}")
