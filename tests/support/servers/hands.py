"""Controllers, scheduler and kubelet moved by hand: one step, everybody acts once.

Deterministic for a seed, and driven by the time of the test, not by the clock. Placement is by the engine's
filters, ties by the seed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np

from rebalancer.model.decode.objects import Decoder
from rebalancer.model.snapshot import ADD_ONS, KINDS, Object, Snapshot
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.sandbox.registry import bind
from tests.support.build import built
from tests.support.sandbox import ApiServer
from tests.support.scheduler.budget import with_status
from tests.support.scheduler.plain import Json

Choose = Callable[[Json, list[str]], str | None]
"""A pod and the nodes that the filters leave → the node it goes to; None leaves it Pending."""

READY = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]


def everything(store: Any) -> list[Json]:
    """All objects of kinds that the tool reads; add-ons are not served."""
    return [{**o, "kind": k} for k in sorted(KINDS - ADD_ONS.keys()) for o in store.list(k)]


class Hands:
    """Acts on a server's store. `ends_after`, `ready_after` count steps; `choose` replaces the tie-break.
    `budgets_every`: the disruption controller acts in every n-th step only. `seconds`: so long is a step; 0:
    as long as each wait."""

    def __init__(
        self,
        server: ApiServer,
        *,
        seed: int = 0,
        ends_after: int = 2,
        ready_after: int = 2,
        budgets_every: int = 1,
        choose: Choose | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.store = server.store
        self.ends_after, self.ready_after = ends_after, ready_after
        self._rng = random.Random(seed)
        self.choose = choose or (lambda _, nodes: self._rng.choice(nodes) if nodes else None)
        self._age: dict[str, int] = defaultdict(int)
        self.made = self._steps = 0
        self.budgets_every = budgets_every
        self._seconds, self._since = seconds, 0.0
        self.broken_budgets: list[str] = []
        self._reported = 0
        self._owned: dict[tuple[str, str], list[Json]] = {}
        self._decoder = Decoder()
        self._known: dict[tuple[str, str, str], Object] = {}

    def step(self, seconds: float = 0.0) -> None:
        """Everybody acts once, if a step is over."""
        self._since += seconds
        if self._since < self._seconds:
            return
        self._since -= self._seconds
        self._steps += 1
        for pod in self.store.list("Pod"):
            if "deletionTimestamp" in pod["metadata"]:
                self._age[f"end {pod['metadata']['uid']}"] += 1
                if self._age[f"end {pod['metadata']['uid']}"] >= self.ends_after:
                    self.store.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
        self._owned = self._of_owners()
        for kind in ("ReplicaSet", "StatefulSet"):
            for owner in self.store.list(kind):
                self._replace(owner)
        for pod in self.store.list("Pod"):
            if not pod["spec"].get("nodeName"):
                self._schedule(pod)
        for pod in self.store.list("Pod"):
            self._start(pod)
        self._report()

    def _of_owners(self) -> dict[tuple[str, str], list[Json]]:
        """The pods of each owner, by namespace and uid."""
        found: dict[tuple[str, str], list[Json]] = {}
        for pod in self.store.list("Pod"):
            for uid in {r["uid"] for r in pod["metadata"].get("ownerReferences", ())}:
                found.setdefault((pod["metadata"]["namespace"], uid), []).append(pod)
        return found

    def _snapshot(self) -> Snapshot:
        """What there is. An object is decoded once for as long as it stays as it is."""
        known, self._known = self._known, {}
        for o in everything(self.store):
            kind, meta = o["kind"], o["metadata"]
            key = (kind, meta["uid"], meta["resourceVersion"])
            if (model := known.get(key)) is None:
                model = self._decoder.decode(kind, msgspec.json.encode(o))
            self._known[key] = model
        return built(self._known.values())

    def _replace(self, owner: Json) -> None:
        pods = self._owned.get(_key(owner), [])
        active = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
        name, wanted = owner["metadata"]["name"], owner["spec"].get("replicas", 1)
        if owner["kind"] == "StatefulSet":
            there = {p["metadata"]["name"] for p in pods}
            builtin = sorted(there)[0].rsplit("-", 1)[-1] if there else "0"
            names = [f"{name}-{i:0{len(builtin)}d}" for i in range(wanted)]
            new = [n for n in names if n not in there]
        else:
            new = []
            for _ in range(wanted - len(active)):
                self.made += 1
                new.append(f"{name}-new{self.made}")
        for n in new:
            template = deepcopy(owner["spec"]["template"])
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            # What admission gave the others it gives the new one.
            like = pods[0]["spec"] if pods else {}
            given = {k: like[k] for k in ("nodeSelector", "tolerations") if k in like}
            pod["spec"] = given | pod["spec"]
            pod["metadata"] = {
                **template.get("metadata", {}),
                "name": n,
                "namespace": owner["metadata"]["namespace"],
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": owner["kind"],
                        "name": name,
                        "uid": owner["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            }
            self.store.create(pod)

    def _schedule(self, pod: Json) -> None:
        snapshot = self._snapshot()
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        model = next(p for p in snapshot.pods if (p.namespace, p.name) == key)
        simulation = Simulation(snapshot, None)
        mask = simulation.framework(model.template).feasible(model.template)
        node = self.choose(pod, [simulation.state.table.names[i] for i in np.flatnonzero(mask)])
        if node is None:
            why = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0 nodes fit",
            }
            self._status(pod, {"phase": "Pending", "conditions": [why]})
            return

        bind(self.store, key[0], key[1], node)

    def _start(self, pod: Json) -> None:
        phase = (pod.get("status") or {}).get("phase")
        if not pod["spec"].get("nodeName") or phase in ("Running", "Succeeded", "Failed"):
            return
        uid = pod["metadata"]["uid"]
        self._age[uid] += 1
        if self._age[uid] >= self.ready_after and "deletionTimestamp" not in pod["metadata"]:
            self._status(pod, {"phase": "Running", "conditions": READY})

    def _status(self, obj: Json, status: Json, kind: str = "Pod") -> None:
        def change(o: Json) -> None:
            o["status"] = {**(o.get("status") or {}), **status}

        self.store.modify(
            kind, obj["metadata"]["name"], obj["metadata"]["namespace"], change, subresource="status"
        )

    def _report(self) -> None:
        """Counts anew, unless nothing has changed since the last time."""
        if self.store.revision == self._reported:
            return
        owned = self._of_owners()
        for kind in ("ReplicaSet", "StatefulSet"):
            for owner in self.store.list(kind):
                pods = owned.get(_key(owner), ())
                active = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
                figures: dict[str, Any] = {
                    "replicas": len(active),
                    "readyReplicas": sum(_ready(p) for p in active),
                    "availableReplicas": sum(_ready(p) for p in active),
                    "observedGeneration": owner["metadata"].get("generation", 0),
                }
                if not figures.items() <= (owner.get("status") or {}).items():
                    self._status(owner, figures, kind)
        there = everything(self.store) if self.store.list("PodDisruptionBudget") else []
        for o in there:
            if o["kind"] == "PodDisruptionBudget":
                o.pop("status", None)
        for budget in with_status(there):
            if budget["kind"] == "PodDisruptionBudget":
                if budget["status"]["currentHealthy"] < budget["status"]["desiredHealthy"]:
                    self.broken_budgets.append(budget["metadata"]["name"])
                if self._steps % self.budgets_every == 0:
                    self._status(budget, {**budget["status"], "disruptedPods": {}}, "PodDisruptionBudget")
        if self._steps % self.budgets_every == 0:
            self._reported = self.store.revision


def _ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _key(owner: Json) -> tuple[str, str]:
    return owner["metadata"]["namespace"], owner["metadata"]["uid"]
