"""Deployments: one ReplicaSet for each template, scaled up and down during a rollout.

Rule, without proportional scaling and rollbacks: pkg/controller/deployment (rolling.go, recreate.go).
"""

from __future__ import annotations

from typing import Any

from rebalancer.sandbox.api.objects import Object, copied, set_condition
from rebalancer.sandbox.api.resources import resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.workloads.owner import OwnerController
from rebalancer.sandbox.controllers.workloads.replicaset import merged
from rebalancer.sandbox.registry.defaults import defaulted_spec

DEPLOYMENTS = resolve("Deployment")
REPLICA_SETS = resolve("ReplicaSet")
REVISION = "deployment.kubernetes.io/revision"


class Deployments(OwnerController):
    """A ReplicaSet belongs to the template if it has the same one but for the label pod-template-hash."""

    resource = DEPLOYMENTS
    owned = REPLICA_SETS

    def sync(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        if not pods.terminating(owner):
            new, old = self._sets(owner)
            paused = bool(owner["spec"].get("paused"))
            if new is None and not paused:
                new = self._made(owner, old)
            if new is not None:
                self._scale(owner, new, old, paused=paused)
                self._clean(owner)
        self._status(key)

    def _sets(self, owner: Object) -> tuple[Object | None, list[Object]]:
        """(the present template's ReplicaSet, the others oldest first)."""
        wanted = _template(owner)
        mine = sorted(
            (obj for r, obj in self.store.owned(owner["metadata"]["uid"]) if r is REPLICA_SETS),
            key=lambda s: (s["metadata"].get("creationTimestamp", ""), _revision(s), s["metadata"]["name"]),
        )
        new = next((s for s in mine if _template(s) == wanted), None)
        return new, [s for s in mine if s is not new]

    def _made(self, owner: Object, old: list[Object]) -> Object:
        template = copied(owner["spec"]["template"])
        value = pods.hash_of(_template(owner))
        template.setdefault("metadata", {}).setdefault("labels", {})[pods.HASH] = value
        selector = copied(owner["spec"].get("selector") or {})
        selector.setdefault("matchLabels", {})[pods.HASH] = value
        revision = str(max(map(_revision, old), default=0) + 1)
        metadata = {
            "name": f"{owner['metadata']['name']}-{value}",
            "namespace": owner["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision},
            "ownerReferences": [pods.reference(owner)],
        }
        spec = {"replicas": 0, "selector": selector, "template": template}
        if pause := owner["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = pause
        made = self.store.create(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
        )
        self._annotate(owner, revision)
        return made

    def _annotate(self, owner: Object, revision: str) -> None:
        def change(obj: Object) -> None:
            obj["metadata"].setdefault("annotations", {})[REVISION] = revision

        self.store.modify(DEPLOYMENTS, owner["metadata"]["name"], owner["metadata"]["namespace"], change)

    def _scale(self, owner: Object, new: Object, old: list[Object], *, paused: bool) -> None:
        wanted = pods.replicas_of(owner)
        busy = [s for s in old if pods.replicas_of(s)]
        recreates = (owner["spec"].get("strategy") or {}).get("type") == "Recreate"
        if recreates and not paused:
            for found in busy:
                self._resize(found, 0)
            if any(not pods.finished(p) for s in old for p in pods.owned_pods(self.store, s)):
                return  # their sets' status tells when they are gone
        if not busy or recreates:
            self._resize(new, wanted)
            return
        if paused:
            return
        surge, away = _limits(owner, wanted)
        total = pods.replicas_of(new) + sum(map(pods.replicas_of, busy))
        target = min(pods.replicas_of(new) + max(wanted + surge - total, 0), wanted)
        if target != pods.replicas_of(new):
            self._resize(new, target)
            return
        fresh = int((new.get("status") or {}).get("availableReplicas", 0))
        spare = total - (wanted - away) - (pods.replicas_of(new) - fresh)
        for found in busy:  # what is not available helps nobody
            sick = pods.replicas_of(found) - int((found.get("status") or {}).get("availableReplicas", 0))
            less = min(spare, max(sick, 0))
            if less > 0:
                self._resize(found, pods.replicas_of(found) - less)
                return
        available = fresh + sum(int((s.get("status") or {}).get("availableReplicas", 0)) for s in busy)
        spare = available - (wanted - away)
        for found in busy:
            less = min(spare, pods.replicas_of(found))
            if less > 0:
                self._resize(found, pods.replicas_of(found) - less)
                return

    def _resize(self, found: Object, replicas: int) -> None:
        if pods.replicas_of(found) == replicas:
            return

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = replicas

        self.store.modify(REPLICA_SETS, found["metadata"]["name"], found["metadata"]["namespace"], change)

    def _clean(self, owner: Object) -> None:
        """Forgets the oldest empty ReplicaSets beyond the history that is kept."""
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        _, old = self._sets(owner)
        empty = [s for s in old if not pods.replicas_of(s) and not (s.get("status") or {}).get("replicas")]
        for found in empty[: max(len(empty) - int(limit), 0)]:
            self.store.delete(REPLICA_SETS, found["metadata"]["name"], found["metadata"]["namespace"])

    def _status(self, key: str) -> None:
        owner = self.owner(key)
        if owner is None:
            return
        new, old = self._sets(owner)
        every = [*old, *([new] if new is not None else [])]

        def total(field: str, sets: list[Object]) -> int:
            return sum(int((s.get("status") or {}).get(field, 0)) for s in sets)

        wanted, available = pods.replicas_of(owner), total("availableReplicas", every)
        updated = total("replicas", [new] if new is not None else [])
        counts = {
            "replicas": total("replicas", every),
            "updatedReplicas": updated,
            "readyReplicas": total("readyReplicas", every),
            "availableReplicas": available,
            "unavailableReplicas": max(sum(map(pods.replicas_of, every)) - available, 0),
        }
        enough = available >= wanted - _limits(owner, wanted)[1]
        complete = updated == wanted == counts["replicas"] == available
        now = self.store.now()

        def change(obj: Object) -> None:
            obj["status"] = merged(obj.get("status"), counts, owner)
            if not counts["replicas"]:
                obj["status"].pop("replicas")
            has = {
                "type": "Available",
                "status": "True" if enough else "False",
                "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            }
            set_condition(obj, has, now)
            made = (new or owner)["metadata"]["name"]
            how = "has successfully progressed" if complete else "is progressing"
            moves = {
                "type": "Progressing",
                "status": "True",
                "reason": "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated",
                "message": f'ReplicaSet "{made}" {how}.',
            }
            set_condition(obj, moves, now)

        self.modify_status(key, change)


def _template(obj: Object) -> dict[str, Any]:
    """The pod template with the server's defaults and without the hash label."""
    whole = defaulted_spec(
        {
            "kind": "ReplicaSet",
            "metadata": {},
            "spec": {"template": copied(obj["spec"].get("template") or {})},
        }
    )
    template: dict[str, Any] = whole["spec"]["template"]
    labels = template["metadata"].get("labels")
    if labels is not None:
        template["metadata"]["labels"] = {k: v for k, v in labels.items() if k != pods.HASH}
    template["metadata"].pop("creationTimestamp", None)
    return template


def _revision(found: Object) -> int:
    return int((found["metadata"].get("annotations") or {}).get(REVISION, 0))


def _limits(owner: Object, wanted: int) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as pods."""
    strategy = owner["spec"].get("strategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return 0, wanted
    rolling = strategy.get("rollingUpdate") or {}
    surge = pods.scaled(rolling.get("maxSurge", "25%"), wanted, up=True)
    away = pods.scaled(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return surge, away if surge or away else 1
