"""A pod loses the label that only its ReplicaSet selects by, and gets it back: what controllers do about it.

Each case runs against the embedded cluster and is compared with what kube-controller-manager 1.36.2 made of
the same requests (`release.json.gz`). Nothing schedules these pods and no kubelet runs them: the case says
which node a pod has and whether it is Ready, so that every step has one outcome.

Not compared: events, which the embedded controllers do not write, and the order of requests.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.support.sandbox import Cluster, is_ready
from tests.support.waiting import until

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "release.json.gz").read_bytes())
)
HASH, COST = "pod-template-hash", "controller.kubernetes.io/pod-deletion-cost"
STRATEGIC = "application/strategic-merge-patch+json"
Json = dict[str, Any]


class Town:
    """A namespace with a Deployment `web` of three Ready pods p1, p2, p3 on n1, n2, n3, and a budget.

    Pods are called by the order in which they came, ReplicaSets A, B, ... likewise. `settle` returns when the
    controllers have done what they do.
    """

    def __init__(self, url: str, space: str, settle: Callable[[], None], **options: Any) -> None:
        headers = {"Authorization": f"Bearer {options.pop('token')}"} if "token" in options else {}
        self.http = urllib3.PoolManager(headers=headers, **options)
        self.url, self.space, self.settle = url, space, settle
        self.names: dict[str, str] = {}
        self.sets: dict[str, str] = {}
        self.hashes: dict[str, str] = {}
        self.steps: list[Json] = []

    def call(self, verb: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        answer = self.http.request(
            verb, self.url + path, body=json.dumps(body) if body is not None else None,
            headers={**self.http.headers, "Content-Type": kind},
        )  # fmt: skip
        found: Json = json.loads(answer.data)
        found["code"] = answer.status
        return found

    def path(self, kind: str, name: str = "") -> str:
        group = {"pods": "/api/v1", "events": "/api/v1", "poddisruptionbudgets": "/apis/policy/v1"}
        return f"{group.get(kind, '/apis/apps/v1')}/namespaces/{self.space}/{kind}" + (name and f"/{name}")

    def of(self, kind: str) -> list[Json]:
        """Oldest first."""
        found: list[Json] = self.call("GET", self.path(kind)).get("items") or []
        return sorted(found, key=lambda o: (o["metadata"]["creationTimestamp"], o["metadata"]["name"]))

    # -- what a case does

    def begin(self, budget: Json | None = None, **deployment: Any) -> None:
        """`budget`, `deployment`: their spec beyond the usual."""
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.space}})
        self.settle()
        self.call("POST", self.path("poddisruptionbudgets"), {
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, **(budget or {"maxUnavailable": 0})},
        })  # fmt: skip
        spec = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "v1"}]}  # fmt: skip
        template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
        made = self.call("POST", self.path("deployments"), {
            "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template,
                     **deployment},
        })  # fmt: skip
        assert made["code"] == 201, made
        self.look()
        for i in range(1, len(self.names) + 1):
            self.run(f"p{i}", f"n{i}", age=4000 / 4**i)
        self.note("begin")

    def look(self) -> None:
        """Learns the names of what is new."""
        self.settle()
        for found in self.of("replicasets"):
            self.sets.setdefault(found["metadata"]["uid"], "ABCDEF"[len(self.sets)])
            self.hashes.setdefault(found["metadata"]["labels"][HASH], self.sets[found["metadata"]["uid"]])
        for found in self.of("pods"):
            if found["metadata"]["name"] not in self.names.values():
                self.names[f"p{len(self.names) + 1}"] = found["metadata"]["name"]

    def pod(self, name: str) -> Json:
        return self.call("GET", self.path("pods", self.names[name]))

    def status(
        self, name: str, phase: str = "Running", ready: bool = True, age: float = 1.0, restarts: int = 0
    ) -> None:
        """`age`: seconds since the condition Ready became so."""
        since = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        verdict = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since}
        counted = {"name": "c", "image": "", "imageID": "", "ready": ready, "restartCount": restarts}
        made = self.call(
            "PATCH", self.path("pods", self.names[name]) + "/status",
            {"status": {"phase": phase, "conditions": [verdict], "containerStatuses": [counted]}}, STRATEGIC,
        )  # fmt: skip
        assert made["code"] == 200, made

    def run(
        self, name: str, node: str, *, ready: bool = True, phase: str = "Running", age: float = 1.0
    ) -> None:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.names[name]},
                "target": {"kind": "Node", "name": node}}  # fmt: skip
        made = self.call("POST", self.path("pods", self.names[name]) + "/binding", body)
        assert made["code"] == 201, made
        self.status(name, phase, ready, age)

    def patch(self, kind: str, name: str, body: Json) -> int:
        name = self.names.get(name, name)
        code: int = self.call("PATCH", self.path(kind, name), body, STRATEGIC)["code"]
        return code

    def owned_by(self) -> Json:
        """A reference to the Deployment that does not make it the controller."""
        uid = self.call("GET", self.path("deployments", "web"))["metadata"]["uid"]
        return {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": False}

    def release(self, name: str, *, owned: bool = True) -> None:
        metadata: Json = {"labels": {HASH: None}}
        if owned:
            metadata["ownerReferences"] = [self.owned_by()]
        assert self.patch("pods", name, {"metadata": metadata}) == 200

    def give_back(self, name: str, label: str = "A", *, owned: bool = False) -> None:
        """`owned`: takes the reference to the Deployment away in the same request."""
        [value] = [h for h, s in self.hashes.items() if s == label]
        metadata: Json = {"labels": {HASH: value}}
        if owned:
            metadata["ownerReferences"] = [{"$patch": "delete", "uid": self.owned_by()["uid"]}]
        assert self.patch("pods", name, {"metadata": metadata}) == 200

    def cost(self, name: str, value: int | None) -> None:
        annotations = {COST: None if value is None else str(value)}
        assert self.patch("pods", name, {"metadata": {"annotations": annotations}}) == 200

    def scale(self, replicas: int) -> None:
        self.patch("deployments", "web", {"spec": {"replicas": replicas}})

    def roll(self) -> None:
        image = f"v{len(self.sets) + 1}"
        spec = {"containers": [{"name": "c", "image": image}]}
        self.patch("deployments", "web", {"spec": {"template": {"spec": spec}}})

    def evict(self, name: str) -> int:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.names[name]}}
        code: int = self.call("POST", self.path("pods", self.names[name]) + "/eviction", body)["code"]
        return code

    def delete(self, kind: str, name: str, policy: str = "Background") -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        path = f"/api/v1/namespaces/{self.space}" if kind == "namespaces" else self.path(kind, name)
        self.call("DELETE", path, body)

    # -- what came of it

    def note(self, what: str, **more: Any) -> None:
        """Keeps the state under a name."""
        self.look()
        self.steps.append({"step": what, **more, **self.state()})

    def state(self) -> Json:
        found: Json = {"pods": {}, "sets": {}, "budget": None, "deployment": None, "events": []}
        there = {p["metadata"]["name"]: p for p in self.of("pods")}
        for name, real in self.names.items():
            if real in there:
                found["pods"][name] = self._pod(there[real])
        for s in self.of("replicasets"):
            status = s.get("status", {})
            counts = {f: status.get(f, 0) for f in ("replicas", "readyReplicas", "availableReplicas")}
            found["sets"][self.sets[s["metadata"]["uid"]]] = {"wanted": s["spec"]["replicas"], **counts}
        for d in self.of("deployments"):
            said = d["status"].get("conditions") or ()
            conditions = {c["type"]: f"{c['status']} {c['reason']}" for c in said}
            counts = {k: v for k, v in d["status"].items() if k.endswith("eplicas")}
            counts.pop("terminatingReplicas", None)
            found["deployment"] = {**counts, **conditions}
        for b in self.of("poddisruptionbudgets"):
            fields = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
            found["budget"] = [b["status"].get(f, 0) for f in fields]
        found["events"] = sorted({
            f"{e['involvedObject']['kind']} {e['reason']}" for e in self.of("events")
            if e["involvedObject"]["kind"] != "Pod"
        })  # fmt: skip
        return found

    def _pod(self, pod: Json) -> Json:
        metadata = pod["metadata"]
        owners = [
            self.sets.get(o["uid"], o["kind"]) + ("" if o.get("controller") else " (not its controller)")
            for o in metadata.get("ownerReferences") or ()
        ]
        label: Any = (metadata.get("labels") or {}).get(HASH)
        return {"owners": owners, "label": self.hashes.get(label, label), "ready": is_ready(pod),
                 "phase": pod["status"].get("phase")}  # fmt: skip


CASES: dict[str, Callable[[Town], None]] = {}


def case(function: Callable[[Town], None]) -> Callable[[Town], None]:
    CASES[function.__name__] = function
    return function


@case
def moved(t: Town) -> None:
    """The whole move."""
    t.begin()
    t.release("p1")
    t.note("released")
    t.run("p4", "n4", ready=False)
    t.note("replacement not Ready")
    t.status("p4")
    t.note("replacement Ready")
    code = t.evict("p1")
    t.note("evicted", code=code)


@case
def refused_while_the_replacement_starts(t: Town) -> None:
    t.begin()
    t.release("p1", owned=False)
    t.look()
    t.run("p4", "n4", ready=False)
    t.look()
    code = t.evict("p1")
    t.note("refused", code=code)


def undone(t: Town, prepare: Callable[[Town], None] = lambda _: None, **run: Any) -> None:
    """The label is given back to p1, with a replacement as `run` says."""
    t.begin()
    t.release("p1")
    t.look()
    if run:
        t.run("p4", run.pop("node", "n4"), **run)
    prepare(t)
    t.look()
    t.give_back("p1")
    t.note("given back")


@case
def undo_unassigned(t: Town) -> None:
    undone(t)


@case
def undo_pending(t: Town) -> None:
    undone(t, phase="Pending", ready=False)


@case
def undo_not_ready(t: Town) -> None:
    undone(t, ready=False)


@case
def undo_ready(t: Town) -> None:
    """All are Ready: who has been Ready for the shortest time goes."""
    undone(t, age=2)


@case
def undo_ready_longer_than_another(t: Town) -> None:
    """The replacement is Ready for longer than p3: p3 goes."""
    undone(t, age=500)


@case
def undo_ready_with_a_cost(t: Town) -> None:
    undone(t, lambda t: t.cost("p4", -5), age=500)


@case
def undo_with_a_lower_cost_of_another(t: Town) -> None:
    def costs(t: Town) -> None:
        t.cost("p2", -10)
        t.cost("p4", -5)

    undone(t, costs, age=500)


@case
def undo_on_a_crowded_node(t: Town) -> None:
    """The replacement shares a node with p2: one of these two goes, whoever is Ready for less."""
    undone(t, node="n2", age=2)


@case
def undo_with_another_not_ready(t: Town) -> None:
    """A cost does not save a pod that is not Ready: p2 goes, the replacement stays."""

    def sick(t: Town) -> None:
        t.cost("p4", -5)
        t.status("p2", ready=False)

    undone(t, sick)


@case
def undo_after_the_old_pod_fell_ill(t: Town) -> None:
    undone(t, lambda t: t.status("p1", ready=False))


@case
def undo_of_a_failed_pod(t: Town) -> None:
    """A pod that has ended is not adopted."""
    undone(t, lambda t: t.status("p1", phase="Failed", ready=False))


@case
def undo_with_the_reference_taken_away(t: Town) -> None:
    t.begin()
    t.release("p1")
    t.look()
    t.give_back("p1", owned=True)
    t.note("given back")


@case
def scaled_to_fewer(t: Town) -> None:
    t.begin()
    t.release("p1")
    t.look()
    t.run("p4", "n4", age=2)
    t.scale(2)
    t.note("scaled")
    t.give_back("p1")
    t.note("given back")


@case
def scaled_to_more(t: Town) -> None:
    """What is given back counts: of the two new ones the one without a node goes."""
    t.begin()
    t.release("p1")
    t.look()
    t.run("p4", "n4", ready=False)
    t.scale(4)
    t.note("scaled")
    t.give_back("p1")
    t.note("given back")


@case
def scaled_to_none(t: Town) -> None:
    t.begin()
    t.release("p1")
    t.look()
    t.scale(0)
    t.note("scaled")
    t.give_back("p1")
    t.note("given back")


def rolled(t: Town, **deployment: Any) -> None:
    t.begin(**deployment)
    t.release("p1")
    t.look()
    t.run("p4", "n4", age=2)
    t.roll()
    t.note("rolled out")
    for number in range(5, 8):
        t.look()
        if f"p{number}" in t.names:
            t.run(f"p{number}", f"n{number}", age=1)
    t.note("all new")
    t.give_back("p1")
    t.note("given back")


@case
def rolled_out(t: Town) -> None:
    """Given back to the old ReplicaSet, which wants none: it is deleted."""
    rolled(t, strategy={"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 0}})


@case
def rolled_out_without_history(t: Town) -> None:
    """The old ReplicaSet is gone: nobody adopts it."""
    rolled(t, strategy={"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 0}}, revisionHistoryLimit=0)


@case
def recreated(t: Town) -> None:
    """Recreate waits for the old ReplicaSets' pods, and not for a released one."""
    rolled(t, strategy={"type": "Recreate"})


@case
def paused(t: Town) -> None:
    """A paused Deployment's ReplicaSet replaces and adopts all the same."""
    t.begin()
    t.patch("deployments", "web", {"spec": {"paused": True}})
    t.release("p1")
    t.note("released")
    t.give_back("p1")
    t.note("given back")


def ended(t: Town, kind: str, policy: str, *, owned: bool = True) -> None:
    t.begin()
    t.release("p1", owned=owned)
    t.look()
    name = "web" if kind != "replicasets" else t.of("replicasets")[0]["metadata"]["name"]
    t.delete(kind, name, policy)
    if kind == "namespaces":
        until(lambda: t.call("GET", f"/api/v1/namespaces/{t.space}")["code"] == 404)
    t.note("deleted")


@case
def deployment_deleted_in_the_background(t: Town) -> None:
    ended(t, "deployments", "Background")


@case
def deployment_deleted_in_the_foreground(t: Town) -> None:
    ended(t, "deployments", "Foreground")


@case
def deployment_deleted_and_orphaned(t: Town) -> None:
    ended(t, "deployments", "Orphan")


@case
def deployment_deleted_without_the_reference(t: Town) -> None:
    ended(t, "deployments", "Background", owned=False)


@case
def replica_set_deleted_in_the_background(t: Town) -> None:
    """The Deployment makes another ReplicaSet, of the same name and label, which adopts nothing."""
    ended(t, "replicasets", "Background")


@case
def replica_set_deleted_and_orphaned(t: Town) -> None:
    """The new ReplicaSet adopts what the old one left."""
    ended(t, "replicasets", "Orphan")


@case
def namespace_deleted(t: Town) -> None:
    ended(t, "namespaces", "Background")


@case
def adopted_by_another(t: Town) -> None:
    """Given the label of another ReplicaSet of the same Deployment, that one adopts it."""
    t.begin(strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    t.roll()
    t.look()
    t.release("p1")
    t.note("released in mid-rollout")
    t.give_back("p1", "B")
    t.note("given the new label")


@case
def bare_pod_adopted(t: Town) -> None:
    """A pod that was never anybody's and has all labels."""
    t.begin()
    labels = {"app": "web", HASH: next(iter(t.hashes))}
    t.call("POST", t.path("pods"), {
        "metadata": {"name": "web-stray", "labels": labels},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "v1"}]},
    })  # fmt: skip
    t.note("made")


@case
def owned_pod_labelled(t: Town) -> None:
    """A pod that another one controls is nobody else's, whatever its labels."""
    t.begin()
    uid = t.owned_by()["uid"]
    labels = {"app": "web", HASH: next(iter(t.hashes))}
    owner = {"apiVersion": "example.com/v1", "kind": "Other", "name": "x", "controller": True}
    owner["uid"] = uid[:-4] + "0000"
    t.call("POST", t.path("pods"), {
        "metadata": {"name": "web-theirs", "labels": labels, "ownerReferences": [owner]},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "v1"}]},
    })  # fmt: skip
    t.steps.append({"step": "made", "wanted": t.of("replicasets")[0]["status"]["replicas"]})


@case
def released_pod_deleted(t: Town) -> None:
    """Nobody replaces it again."""
    t.begin()
    t.release("p1")
    t.look()
    t.delete("pods", t.names["p1"])
    t.note("deleted")


@case
def replacement_deleted(t: Town) -> None:
    t.begin()
    t.release("p1")
    t.look()
    t.run("p4", "n4")
    t.delete("pods", t.names["p4"])
    t.note("deleted")


@case
def two_released(t: Town) -> None:
    t.begin()
    t.release("p1")
    t.release("p2")
    t.note("released")
    t.give_back("p1")
    t.give_back("p2")
    t.note("given back")


def budgeted(spec: Json) -> Callable[[Town], None]:
    def run(t: Town) -> None:
        t.begin(spec)
        t.release("p1")
        t.note("released")
        t.run("p4", "n4")
        t.note("replacement Ready")
        codes = [t.evict("p1")]
        t.look()
        codes.append(t.evict("p2"))
        t.note("evicted", codes=codes)

    return run


for budget in (
    {"minAvailable": 3}, {"minAvailable": 4}, {"minAvailable": "100%"}, {"minAvailable": "50%"},
    {"maxUnavailable": 1}, {"maxUnavailable": "0%"}, {"maxUnavailable": "34%"},
):  # fmt: skip
    [(key, amount)] = budget.items()
    CASES[f"budget_{key}_{amount}"] = budgeted(budget)


def random_order(seed: int) -> Callable[[Town], None]:
    """Seven pods with all that an order of deletion knows: who is left when it shrinks one by one."""

    def run(t: Town) -> None:
        r = random.Random(seed)
        t.begin(replicas=7)
        # One that is never told apart by its uid: ages four times as long each.
        ages = [4.0**i for i in range(1, 8)]
        r.shuffle(ages)
        t.release("p1")
        t.look()
        t.run("p8", r.choice(["n1", "n2", "n3"]), age=2)
        for i in range(2, 8):
            t.status(f"p{i}", ready=r.random() < 0.7, age=ages[i - 1], restarts=i)
            if r.random() < 0.4:
                t.cost(f"p{i}", r.choice([-1, 0, 1, 7]))
        t.give_back("p1")
        t.note("given back")
        t.scale(r.choice([5, 4]))
        t.note("scaled")
        t.scale(2)
        t.note("scaled again")

    return run


for number in range(8):
    CASES[f"random_order_{number}"] = random_order(number)


# -- the test


@pytest.fixture
def town() -> Iterator[Town]:
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}} for i in range(1, 10)]
    with Cluster(nodes, ready_after=lambda _: None) as cluster:
        yield Town(cluster.url, "town", cluster.settle, token=cluster.server.admin_token)


@pytest.mark.parametrize("name", CASES)
def test_as_the_real_controllers_do(name: str, town: Town) -> None:
    CASES[name](town)
    recorded = RECORDED[name]
    for step, real in zip(town.steps, recorded, strict=True):
        assert {**step, "events": []} == {**real, "events": []}, (name, step["step"])
