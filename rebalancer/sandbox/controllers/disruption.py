"""The status of PodDisruptionBudgets.

Rule: pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from rebalancer.sandbox.api.objects import Object, is_ready, seconds_of, set_condition
from rebalancer.sandbox.api.resources import PDBS, PODS, resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.loop import Controller
from rebalancer.sandbox.registry.eviction import covers
from rebalancer.sandbox.storage.history import Event

DELETION_TIMEOUT = 120.0
"""Seconds for which an eviction that no deletion followed is counted against the budget."""

_SCALABLE = tuple(resolve(k) for k in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"))


class Disruption(Controller):
    """Counts healthy pods and tells how many may be disrupted."""

    def notice(self, event: Event) -> None:
        if event.resource is PDBS:
            if event.type != "DELETED":
                self.loop.add(self, event.record.key)
        elif event.resource is PODS or (event.resource in _SCALABLE and _rescaled(event)):
            namespace = event.obj["metadata"]["namespace"]
            for record in self.store.collection(PDBS).scan(namespace):
                if event.resource is not PODS or any(
                    covers(record.obj, r.obj) for r in (event.record, event.old) if r is not None
                ):
                    self.loop.add(self, record.key)

    def sync(self, key: str) -> None:
        namespace, name = pods.split(key)
        with self.store.lock:  # no eviction may charge the budget in between
            budget = self.store.find(PDBS, name, namespace)
            if budget is not None:
                self._sync(key, budget)

    def _sync(self, key: str, budget: Object) -> None:
        namespace, name = pods.split(key)
        covered = self.store.list(PODS, namespace, where=lambda p: covers(budget, p))
        expected, desired = self._wanted(budget, covered)
        disrupted = self._disrupted(key, budget, covered)
        healthy = sum(
            is_ready(p) and not pods.terminating(p) and p["metadata"]["name"] not in disrupted
            for p in covered
        )
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        generation = int(budget["metadata"].get("generation", 0))

        def change(new: Object) -> None:
            status = new.setdefault("status", {})
            status |= {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
                "disruptionsAllowed": allowed,
                "observedGeneration": generation,
            }
            status.pop("disruptedPods", None)
            if disrupted:
                status["disruptedPods"] = disrupted
            verdict = {
                "type": "DisruptionAllowed",
                "status": "True" if allowed else "False",
                "reason": "SufficientPods" if allowed else "InsufficientPods",
                "message": "",
                "observedGeneration": generation,
            }
            set_condition(new, verdict, self.store.now())

        self.store.modify(PDBS, name, namespace, change, subresource="status")

    def _wanted(self, budget: Object, covered: list[Object]) -> tuple[int, int]:
        """(expected pods, healthy pods that must stay)."""
        spec = budget.get("spec") or {}
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is not None:
            expected = self._scale(covered)
            return expected, max(expected - pods.scaled(most, expected, up=True), 0)
        if isinstance(least, str) and least.endswith("%"):
            expected = self._scale(covered)
            return expected, pods.scaled(least, expected, up=True)
        return len(covered), pods.scaled(least, 0, up=True)

    def _scale(self, covered: list[Object]) -> int:
        """What the owners of these pods want in all; pods without one that scales do not count."""
        found: dict[str, int] = {}
        for pod in covered:
            owner = self._scaled_by(pod)
            if owner is not None:
                found[owner["metadata"]["uid"]] = pods.replicas_of(owner)
        return sum(found.values())

    def _scaled_by(self, obj: Object) -> Object | None:
        """The topmost owner that has a scale."""
        reference = pods.controller_of(obj)
        if reference is None:
            return None
        for resource in _SCALABLE:
            if resource.kind == reference.get("kind"):
                owner = self.store.find(resource, reference["name"], obj["metadata"]["namespace"])
                if owner is not None and owner["metadata"].get("uid") == reference.get("uid"):
                    return self._scaled_by(owner) or owner
        return None

    def _disrupted(self, key: str, budget: Object, covered: list[Object]) -> dict[str, str]:
        """Evictions whose deletion is not seen yet, and not overdue."""
        noted = (budget.get("status") or {}).get("disruptedPods") or {}
        there = {p["metadata"]["name"] for p in covered if not pods.terminating(p)}
        now = self.store.clock()
        kept = {n: at for n, at in noted.items() if n in there and seconds_of(at) + DELETION_TIMEOUT > now}
        if kept:
            first = min(map(seconds_of, kept.values())) + DELETION_TIMEOUT - now
            self.loop.after(first, self, key, background=True)
        return kept


def _rescaled(event: Event) -> bool:
    return event.old is None or pods.replicas_of(event.old.obj) != pods.replicas_of(event.obj)
