"""PodDisruptionBudgets: the disruption controller's and the Eviction API's arithmetic, plainly."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from tests.support.scheduler.plain import (
    Json,
    controller_of,
    finished,
    labels_of,
    namespace_of,
    ready,
    selects,
    terminating,
)
from tests.support.scheduler.state import State


def covers(budget: Json, pod: Json) -> bool:
    """Whether the budget selects the pod: an absent selector nothing, an empty one the namespace."""
    selector = budget["spec"].get("selector")
    return (
        selector is not None
        and namespace_of(budget) == namespace_of(pod)
        and selects(selector, labels_of(pod))
    )


def budgets_of(state: State, pod: Json) -> list[Json]:
    """The budgets that select the pod, by name."""
    found = state.kind("PodDisruptionBudget").items()
    return [budget for _, budget in sorted(found) if covers(budget, pod)]


def status(state: State, budget: Json) -> Json:
    """The status that the disruption controller would write."""
    pods = [p for p in state.pods.values() if covers(budget, p) and not finished(p)]
    healthy = sum(1 for p in pods if ready(p) and not terminating(p))
    spec = budget["spec"]
    if spec.get("maxUnavailable") is not None:
        expected = _scale(state, pods)
        desired = max(0, expected - _of(spec["maxUnavailable"], expected))
    elif isinstance(spec.get("minAvailable"), str):
        expected = _scale(state, pods)
        desired = _of(spec["minAvailable"], expected)
    else:
        expected = len(pods)
        desired = spec.get("minAvailable", 1)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 0),
    }


def _of(figure: int | str, total: int) -> int:
    """A number, or a percentage rounded up."""
    if isinstance(figure, int):
        return figure
    return ceil(int(figure.rstrip("%")) * total / 100)


def _scale(state: State, pods: Iterable[Json]) -> int:
    """The replicas that the pods' controllers should have."""
    owners = {}
    for p in pods:
        ref = controller_of(p)
        if ref is not None:
            owners[ref["kind"], f"{namespace_of(p)}/{ref['name']}"] = ref
    found = 0
    for key in owners:
        owner = state.others.get(key)
        if owner is not None:
            found += owner["spec"].get("replicas", 1)
    return found


def with_status(objects: list[Json]) -> list[Json]:
    """The objects; budgets without a status get the one that the controller would write."""
    state = State.of(objects)
    return [
        {**o, "status": status(state, o)} if o["kind"] == "PodDisruptionBudget" and "status" not in o else o
        for o in objects
    ]


class Ledger:
    """What the budgets still allow while evictions go on; replacements do not give back until Ready."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._status: dict[str, Json] = {}

    def evict(self, pod: Json) -> str:
        """Books one eviction; what the Eviction API would say against it, "" if nothing."""
        budgets = budgets_of(self._state, pod)
        if not budgets:
            return ""
        if len(budgets) > 1:
            return "several budgets"
        (budget,) = budgets
        name = f"{namespace_of(budget)}/{budget['metadata']['name']}"
        if name not in self._status:
            self._status[name] = status(self._state, budget)
        now = self._status[name]
        if not ready(pod):
            if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                return ""
            if now["currentHealthy"] >= now["desiredHealthy"] > 0:
                return ""
        if budget["metadata"].get("generation", 0) > (budget.get("status") or {}).get(
            "observedGeneration", 0
        ):
            return f"budget {name} is stale"
        if now["disruptionsAllowed"] <= 0:
            return f"budget {name} is exhausted"
        now["disruptionsAllowed"] -= 1
        now["currentHealthy"] -= 1
        return ""
