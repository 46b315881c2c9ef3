"""EvictionRequests, as a cluster of 1.37 with the feature gate EvictionRequestAPI would serve and obey them.

Rule: kubernetes pkg/controller/evictionrequest and imperativeevictionresponder, read in July 2026.
"""

from __future__ import annotations

from typing import Any

from rebalancer.sandbox.api.errors import ApiError
from rebalancer.sandbox.api.objects import Object, set_condition
from rebalancer.sandbox.api.resources import Resource, Subresource
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.registry.eviction import evict
from tests.support.sandbox import ApiServer

IMPERATIVE = "imperative-eviction.k8s.io/evictor"
LIFECYCLE = tuple(
    Resource(
        group="lifecycle.k8s.io",
        version="v1alpha1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=True,
        subresources=(Subresource("status", kind),),
        generation=True,
        storage=f"{plural}.lifecycle.k8s.io",
    )
    for kind, plural in (("EvictionRequest", "evictionrequests"), ("Eviction", "evictions"))
)
REQUESTS, EVICTIONS = LIFECYCLE


def left_pending(server: ApiServer, name: str, *, intent: str = "Eviction") -> None:
    """A request of this tool for a pod, whose process has ended."""
    pod = server.store.get("Pod", name, "default")["metadata"]
    request = {
        "apiVersion": REQUESTS.api_version,
        "kind": "EvictionRequest",
        "metadata": {
            "name": f"rebalancer-{pod['uid']}",
            "namespace": "default",
            "labels": {
                "app.kubernetes.io/name": "rebalancer",
                "app.kubernetes.io/component": "eviction-request",
            },
        },
        "spec": {
            "target": {"pod": {"name": pod["name"], "uid": pod["uid"]}},
            "requester": "rebalancer.io/rebalancer",
            "intent": intent,
        },
    }
    server.store.create(request, resource=REQUESTS)


class EvictionController:
    """Both controllers, moved by hand: one step, each acts once. `slow`: steps until the one who evicts does.

    `asleep`: they have stopped.
    """

    def __init__(self, server: ApiServer, *, slow: int = 0) -> None:
        self.store = server.store
        self.slow = slow
        self.asleep = False
        self._waited: dict[str, int] = {}
        self.seen: list[str] = []
        """What conditions of requests said, in order."""

    def step(self, seconds: float = 0.0) -> None:  # noqa: ARG002
        """One step of each."""
        if self.asleep:
            return
        for request in self.store.list(REQUESTS):
            self._register(request)
        for eviction in self.store.list(EVICTIONS):
            if not _final(eviction):
                self._progress(eviction)
        for request in self.store.list(REQUESTS):
            self._tell(request)

    def complete(self) -> None:
        """The responder that is active has done its part."""
        for eviction in self.store.list(EVICTIONS):

            def change(o: Object) -> None:
                active = next(r for r in o["status"]["targetResponders"] if r["state"] == "Active")
                active["state"] = "Completed"

            self._status(eviction, change)

    def requests(self) -> list[Object]:
        """All requests there are."""
        return self.store.list(REQUESTS)

    def _register(self, request: Object) -> None:
        if _final(request) or self._eviction(request) is not None:
            return
        pod = self._pod(request)
        if pod is None or pod["spec"].get("schedulingGroup"):
            why = "was not found" if pod is None else "is part of a PodGroup"
            self._failed(request, "EvictionInvalid", f"target pod {why}")
            return
        if request["spec"]["intent"] != "Eviction":
            self._failed(request, "CanceledDueToNoRequesters", "")
            return
        own = sorted(pod["spec"].get("evictionResponders") or (), key=lambda r: -r["priority"])
        names = [*(r["name"] for r in own), IMPERATIVE]
        namespace, target = pod["metadata"]["namespace"], request["spec"]["target"]
        number = 1 + sum(e["spec"]["target"] == target for e in self.store.list(EVICTIONS))
        made = {
            "apiVersion": EVICTIONS.api_version,
            "kind": "Eviction",
            "metadata": {"name": f"pod-{number}-{pod['metadata']['name']}", "namespace": namespace},
            "spec": {"target": target},
        }
        eviction = self.store.create(made, resource=EVICTIONS)
        responders = [{"name": n, "state": "Inactive"} for n in names]
        self._status(eviction, lambda o: o.setdefault("status", {}).update(targetResponders=responders))

    def _progress(self, eviction: Object) -> None:
        pod = self._pod(eviction)
        if pod is None or pods.finished(pod):
            self._end(eviction, "Succeeded", evicted=True)
            return
        wanted = any(
            r["spec"]["target"] == eviction["spec"]["target"] and r["spec"]["intent"] == "Eviction"
            for r in self.store.list(REQUESTS)
        )
        if not wanted:
            self._end(eviction, "CanceledDueToNoRequesters", evicted=False)
            return
        responders = eviction["status"]["targetResponders"]
        active = next((r["name"] for r in responders if r["state"] == "Active"), "")
        if not active:
            active = next(r["name"] for r in responders if r["state"] == "Inactive")

            def change(o: Object) -> None:
                for r in o["status"]["targetResponders"]:
                    if r["name"] == active:
                        r["state"] = "Active"

            self._status(eviction, change)
            return
        if active == IMPERATIVE and not pods.terminating(pod):
            uid = pod["metadata"]["uid"]
            self._waited[uid] = self._waited.get(uid, -1) + 1
            if self._waited[uid] >= self.slow:
                self._evict(pod)

    def _evict(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        body = {"metadata": {"name": name}, "deleteOptions": {"preconditions": {"uid": uid}}}
        try:
            evict(self.store, pod["metadata"]["namespace"], name, body)
        except ApiError:
            return  # a budget: it tries again

    def _tell(self, request: Object) -> None:
        """The eviction's conditions are copied into its requests."""
        eviction = self._eviction(request, final=True)
        if eviction is None or _final(request):
            return
        for c in eviction["status"].get("conditions") or ():
            self._condition(request, c)

    def _end(self, eviction: Object, reason: str, *, evicted: bool) -> None:
        for kind, true in (("Failed", not evicted), ("TargetEvicted", evicted)):
            self._condition(eviction, {"type": kind, "status": str(true), "reason": reason, "message": ""})

    def _failed(self, request: Object, reason: str, message: str) -> None:
        self._condition(request, {"type": "Failed", "status": "True", "reason": reason, "message": message})

    def _condition(self, obj: Object, condition: dict[str, Any]) -> None:
        if obj["kind"] == "EvictionRequest" and condition["status"] == "True":
            self.seen.append(f"{condition['type']}: {condition['reason']}")
        self._status(obj, lambda o: set_condition(o, condition, self.store.now()))

    def _status(self, obj: Object, change: Any) -> None:
        resource = REQUESTS if obj["kind"] == "EvictionRequest" else EVICTIONS
        metadata = obj["metadata"]
        self.store.modify(resource, metadata["name"], metadata["namespace"], change, subresource="status")

    def _eviction(self, request: Object, *, final: bool = False) -> Object | None:
        target = request["spec"]["target"]
        mine = [e for e in self.store.list(EVICTIONS) if e["spec"]["target"] == target]
        return next((e for e in reversed(mine) if final or not _final(e)), None)

    def _pod(self, obj: Object) -> Object | None:
        target = obj["spec"]["target"]["pod"]
        found = self.store.find("Pod", target["name"], obj["metadata"]["namespace"])
        return found if found is not None and found["metadata"]["uid"] == target["uid"] else None


def _final(obj: Object) -> bool:
    said = (obj.get("status") or {}).get("conditions") or ()
    return any(c["status"] == "True" for c in said)
