"""Controllers of other projects: cycles beside each, with a controller written after what it does on an
eviction (docs/compatibility.md). Kinds that are not read are there as owner references only."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import WORKLOADS
from rebalancer.outcome import End, Fate
from rebalancer.planner import PlanOptions
from rebalancer.policy.options import PolicyOptions
from tests.sandbox.cycle.limits.test_admission import held, limits
from tests.sandbox.cycle.limits.test_owners import enforce, later
from tests.support.build import deployment, nodes, objects, replica_set, stateful_set, workload
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.sandbox import ApiServer
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.sandbox.hung import hang
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Hands
from tests.unit.policy.judged import merged
from tests.unit.policy.test_vertical_autoscalers import vpa

ZONES = nodes(a=1, b=1)


def under(api: str, kind: str, things: Any) -> list[Json]:
    """ReplicaSets, StatefulSets or Deployments of one object of another project's kind."""
    made = objects(things)
    of = {"apiVersion": api, "kind": kind, "name": "top", "uid": "top", "controller": True}
    tops = {o["kind"] for o in made} & {"Deployment"} or {"ReplicaSet", "StatefulSet"}
    for o in made:
        if o["kind"] in tops:
            o["metadata"]["ownerReferences"] = [of]
    return made


def of(api: str, kind: str) -> list[Json]:
    """Four pods that an object of such a kind makes itself."""
    made = objects(workload("web").spread("zone", 1).placed({"a-0": 4}))
    pods = [o for o in made if o["kind"] == "Pod"]
    reference = {"apiVersion": api, "kind": kind, "name": "web", "uid": "web", "controller": True}
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [reference]
    return pods


class Foreign:
    """Makes a pod for each that is gone: `named` again as it was, as for a member with an identity, or at
    once under a new name."""

    def __init__(self, server: ApiServer, kind: str, *, named: bool) -> None:
        self._store, self._named = server.store, named
        self._pods = {p["metadata"]["name"]: p for p in self._mine(kind)}
        self._kind, self._made = kind, 0

    def _mine(self, kind: str) -> list[Json]:
        return [
            p
            for p in self._store.list("Pod")
            if any(r["kind"] == kind for r in p["metadata"].get("ownerReferences", ()))
        ]

    def step(self, _: float) -> None:
        """Looks at what is there, and makes what is missing."""
        there = {p["metadata"]["name"]: p for p in self._mine(self._kind)}
        for name, pod in list(self._pods.items()):
            found = there.get(name)
            if found is not None and (self._named or "deletionTimestamp" not in found["metadata"]):
                continue
            del self._pods[name]
            self._made += 1
            new = name if self._named else f"web-new{self._made}"
            kept = {k: pod["metadata"][k] for k in ("labels", "ownerReferences", "namespace")}
            spec = {k: v for k, v in deepcopy(pod["spec"]).items() if k != "nodeName"}
            made = {"apiVersion": "v1", "kind": "Pod", "metadata": {**kept, "name": new}, "spec": spec}
            self._store.create(made)
            self._pods[new] = made


class Case(Struct, frozen=True):
    """Who it is; what policy has to allow so that pods go ("" = nothing), and why they stay until then."""

    things: list[Json]
    kind: str = ""
    allow: str = ""
    stays: ReasonCode | None = None
    named: bool = False


def app() -> Any:
    return deployment("web").spread("zone", 1).placed({"a-0": 4})


UNKNOWN = ReasonCode.OWNER_UNKNOWN
CASES = {
    "Argo Rollouts": Case(
        under("argoproj.io/v1alpha1", "Rollout", workload("web").spread("zone", 1).placed({"a-0": 4}))
    ),
    "Knative": Case(under("serving.knative.dev/v1", "Revision", app())),
    "KEDA": Case(objects(app())),
    "OpenKruise CloneSet": Case(
        of("apps.kruise.io/v1alpha1", "CloneSet"), "CloneSet", "CloneSet", UNKNOWN
    ),
    "OpenKruise UnitedDeployment of Deployments": Case(
        under("apps.kruise.io/v1alpha1", "UnitedDeployment", app())
    ),
    "OpenKruise UnitedDeployment of StatefulSets": Case(
        under("apps.kruise.io/v1alpha1", "UnitedDeployment",
              stateful_set("web").spread("zone", 1).placed({"a-0": 4})),
        "", "UnitedDeployment", UNKNOWN,
    ),
    "CloudNativePG": Case(of("postgresql.cnpg.io/v1", "Cluster"), "Cluster", "Cluster", UNKNOWN, named=True),
    "Strimzi": Case(
        of("core.strimzi.io/v1beta2", "StrimziPodSet"), "StrimziPodSet", "StrimziPodSet", UNKNOWN, named=True
    ),
    "ECK": Case(
        under("elasticsearch.k8s.elastic.co/v1", "Elasticsearch",
              stateful_set("web").spread("zone", 1).placed({"a-0": 4})),
        "", "Elasticsearch", UNKNOWN,
    ),
}  # fmt: skip


def cycle(case: Case, *, allowed: bool) -> Run:
    with ApiServer(objects(ZONES) + deepcopy(case.things)) as server:
        time, hands = FakeTime(), Hands(server)
        if case.kind:
            time.during = Foreign(server, case.kind, named=case.named).step
        kinds = (case.allow,) if allowed and case.allow else ()
        planning = PlanOptions(policy=PolicyOptions(owner_kinds_allow=kinds))
        run = Run(server, replace(EXECUTE, planning=planning), time=time, hands=hands)
        assert len(server.store.list("Pod")) == 4
        return run


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_where_policy_allows_it_its_pods_are_spread(case: Case) -> None:
    run = cycle(case, allowed=True)
    assert run.report.end is End.COMPLETE, run.report.message
    assert run.report.evicted == 2
    assert run.zones() == [2, 2]
    unread = {case.allow} - WORKLOADS - {""}
    said = " ".join(run.story.plans[0].assumptions)
    assert all(f"a {kind} is not read: an annotation counts on its pods" in said for kind in unread)


CLOSED = {name: case for name, case in CASES.items() if case.allow}


@pytest.mark.parametrize("case", CLOSED.values(), ids=CLOSED)
def test_until_then_they_are_left_alone(case: Case) -> None:
    run = cycle(case, allowed=False)
    assert run.report.evicted == 0
    assert {b.reason.code for b in run.story.plans[0].blocked} == {case.stays}


ACCOUNT: Json = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "web", "namespace": "default"},
}
GOLD: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
KATA: Json = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
}
LARGE = {"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}}]}}
GIVES = {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}}
GIVEN = "LimitRanger plugin set: cpu request for container c"
NAMES = {"spec": {"priorityClassName": "gold", "serviceAccountName": "web", "runtimeClassName": "kata"}}
SIZING = merged(vpa("CloneSet", cpu="64"), {"metadata": {"name": "web"}})
AFTER_THE_PLAN: dict[str, tuple[Callable[[ApiServer], object], ReasonCode | None]] = {
    "nothing": (lambda _: None, None),
    "a LimitRange that would refuse its next pod": (
        lambda s: s.store.create(merged(limits(), LARGE)), ReasonCode.REPLACEMENT_REFUSED,
    ),
    "its PriorityClass is gone": (
        lambda s: s.store.delete("PriorityClass", "gold", None), ReasonCode.REPLACEMENT_REFUSED,
    ),
    "its ServiceAccount is gone": (
        lambda s: s.store.delete("ServiceAccount", "web", "default"), ReasonCode.REPLACEMENT_REFUSED,
    ),
    "its RuntimeClass is gone": (
        lambda s: s.store.delete("RuntimeClass", "kata", None), ReasonCode.REPLACEMENT_REFUSED,
    ),
    "its RuntimeClass takes more": (
        lambda s: s.store.modify(
            "RuntimeClass", "kata", None, lambda o: o.update(overhead={"podFixed": {"cpu": "1"}})
        ),
        ReasonCode.REPLACEMENT_REFUSED,
    ),
    "the LimitRange that gave its pods a request is gone": (
        lambda s: s.store.delete("LimitRange", "gives", "default"), ReasonCode.REPLACEMENT_REFUSED,
    ),
    "its ServiceAccount withholds Secrets": (
        lambda s: enforce(s, "web", "true", {}), ReasonCode.REPLACEMENT_REFUSED,
    ),
    "its ServiceAccount withholds nothing": (lambda s: enforce(s, "web", "false", {}), None),
    "an autoscaler of which no watch tells": (
        lambda s: s.store.create(SIZING), ReasonCode.CHANGED_SINCE_PLAN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", AFTER_THE_PLAN)
def test_what_comes_after_the_plan_is_asked_of_the_next_pod_of_a_kind_that_is_not_read(what: str) -> None:
    change, code = AFTER_THE_PLAN[what]
    made = [merged(p, NAMES) for p in CASES["OpenKruise CloneSet"].things]
    for p in made:
        p["metadata"].setdefault("annotations", {})["kubernetes.io/limit-ranger"] = GIVEN
    gives = merged(limits(), {"metadata": {"name": "gives"}, **GIVES})
    there = [ACCOUNT, {**GOLD, "value": 0}, KATA, gives]
    planning = PlanOptions(policy=PolicyOptions(owner_kinds_allow=("CloneSet",)))
    with served(*ADD_ONS), ApiServer([*objects(ZONES), *made, *there]) as server:
        hang(server, "VerticalPodAutoscaler")
        run = Run(
            server,
            replace(EXECUTE, planning=planning),
            time=later(),
            after_plan=lambda n: change(server) if n == 1 else None,
        )
    assert len(run.story.plans[0].moves) == 2
    assert bool(run.evictions()) is (code is None)
    assert held(run) >= {code} - {None}


@pytest.mark.parametrize("account", ["web", "default"])
def test_an_account_that_withholds_secrets_keeps_pods_whose_secrets_are_not_read(account: str) -> None:
    there = merged(ACCOUNT, {"metadata": {"name": account}})
    own = {"spec": {"serviceAccountName": account}} if account == "web" else {}
    made = [merged(p, own) for p in CASES["OpenKruise CloneSet"].things]
    planning = PlanOptions(policy=PolicyOptions(owner_kinds_allow=("CloneSet",)))
    with ApiServer([*objects(ZONES), *made, there]) as server:
        enforce(server, account, "true", {})
        run = Run(server, replace(EXECUTE, planning=planning), time=later())
    assert run.evictions() == 0
    (said,) = {b.reason.message for b in run.story.plans[-1].blocked}
    assert "CloneSet web" in said
    assert f"ServiceAccount {account}" in said
    assert "is not read" in said


def test_a_canary_of_argo_rollouts_is_a_rollout_in_progress() -> None:
    canary = replica_set("canary").labels(app="web").placed({"b-0": 1})
    stable = workload("web").spread("zone", 1).placed({"a-0": 4})
    with ApiServer(objects(ZONES) + under("argoproj.io/v1alpha1", "Rollout", [stable, canary])) as server:
        run = Run(server)
    assert run.report.evicted == 0
    assert {b.reason.code for b in run.story.plans[0].blocked} == {ReasonCode.ROLLOUT_IN_PROGRESS}


def test_an_advanced_stateful_set_cannot_be_allowed_by_the_name_of_a_built_in_kind() -> None:
    things = of("apps.kruise.io/v1beta1", "StatefulSet")
    allowed = PlanOptions(policy=PolicyOptions(owner_kinds_allow=("StatefulSet",)))
    with ApiServer(objects(ZONES) + things) as server:
        run = Run(server, replace(EXECUTE, planning=allowed))
    assert run.report.evicted == 0
    assert {b.reason.code for b in run.story.plans[0].blocked} == {UNKNOWN}


@pytest.mark.parametrize("wants", [6, 2], ids=["up", "down"])
def test_while_an_autoscaler_of_pods_scales_nobody_is_evicted(wants: int) -> None:
    """HPA, KEDA and Knative's autoscaler all write the number that is wanted."""
    with ApiServer(objects(ZONES, app())) as server:
        name = next(o["metadata"]["name"] for o in server.store.list("ReplicaSet"))
        made = server.store.modify("ReplicaSet", name, "default", lambda o: o["spec"].update(replicas=wants))
        seen = {"observedGeneration": made["metadata"]["generation"]}
        server.store.modify(
            "ReplicaSet", name, "default", lambda o: o["status"].update(seen), subresource="status"
        )
        plans = Run(server, replace(EXECUTE, execute=False)).story.plans
    assert plans[0].moves == ()
    assert {b.reason.code for b in plans[0].blocked} == {ReasonCode.OWNER_SCALING}


LWS = "leaderworkerset.sigs.k8s.io/"


def leader_worker_set() -> list[Json]:
    """Three groups of a leader and a worker, all in zone a. A leader owns the StatefulSet of its worker."""
    sets = [stateful_set("ring").placed({"a-0": 3})]
    sets += [stateful_set(f"ring-{i}").placed({"a-0": 1}) for i in range(3)]
    made = objects([s.labels(app="web").spread("zone", 1) for s in sets])
    uids = {o["metadata"]["name"]: o["metadata"]["uid"] for o in made if o["kind"] == "Pod"}
    for o in made:
        meta, name = o["metadata"], o["metadata"]["name"]
        if o["kind"] == "Pod":
            index, worker = name.split("-")[1], name.count("-") - 1
            meta["labels"] |= {LWS + "name": "ring", LWS + "group-index": index}
            meta["labels"][LWS + "worker-index"] = str(worker)
            meta["annotations"] = {LWS + "size": "2"}
        elif name == "ring":
            api = "leaderworkerset.x-k8s.io/v1"
            top = {"apiVersion": api, "kind": "LeaderWorkerSet", "name": "ring", "uid": "top"}
            meta["ownerReferences"] = [{**top, "controller": True}]
        else:
            top = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uids[name]}
            meta["ownerReferences"] = [{**top, "controller": True}]
    return made


class LeaderWorkers(Hands):
    """LeaderWorkerSet's controller (restartPolicy RecreateGroupOnPodRestart): where one pod of a group goes
    all go, and come again, the leader first; the worker's StatefulSet is another one then."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self._members = {p["metadata"]["name"]: p for p in self.store.list("Pod")}
        self._sets = {o["metadata"]["name"]: o for o in self.store.list("StatefulSet")}
        self.restarts: list[str] = []

    def _replace(self, owner: Json) -> None:
        """Nothing: the pods are made here."""

    def step(self, seconds: float = 0.0) -> None:
        super().step(seconds)
        there = {p["metadata"]["name"]: p for p in self.store.list("Pod")}
        for leader in ("ring-0", "ring-1", "ring-2"):
            names = [leader, f"{leader}-0"]
            alive = [n for n in names if n in there and "deletionTimestamp" not in there[n]["metadata"]]
            if len(alive) == 2:
                continue
            if leader in alive and there[leader]["metadata"]["uid"] != self._uid(leader):
                if there[leader]["status"].get("phase") == "Running" and names[1] not in there:
                    self._make(names[1])
            elif any(n in there for n in names):
                self.restarts += [leader] if alive else []
                for n in alive:
                    self.store.delete("Pod", n, "default")
            else:
                if self.store.find("StatefulSet", leader, "default") is not None:
                    self.store.delete("StatefulSet", leader, "default", grace=0)
                made = self._make(leader)
                worker = deepcopy(self._sets[leader])
                worker["metadata"]["ownerReferences"][0]["uid"] = made["metadata"]["uid"]
                del worker["metadata"]["resourceVersion"]
                self.store.create(worker)

    def _uid(self, name: str) -> str:
        return str(self._members[name]["metadata"]["uid"])

    def _make(self, name: str) -> Json:
        before = self._members[name]
        kept = {k: before["metadata"][k] for k in ("labels", "annotations", "namespace", "ownerReferences")}
        owner = kept["ownerReferences"][0]
        owner["uid"] = self.store.get("StatefulSet", owner["name"], "default")["metadata"]["uid"]
        spec = {k: v for k, v in deepcopy(before["spec"]).items() if k != "nodeName"}
        meta = {**kept, "name": name}
        return dict(self.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))


def test_of_a_leader_worker_set_one_member_of_a_group_goes_and_the_whole_group_is_waited_for() -> None:
    policy = PolicyOptions(gangs_allow=("ring",), owner_kinds_allow=("LeaderWorkerSet", "Pod"))
    with ApiServer(objects(ZONES) + leader_worker_set()) as server:
        hands = LeaderWorkers(server)
        planning = PlanOptions(policy=policy, certainty="likely")
        run = Run(server, replace(EXECUTE, planning=planning), hands=hands)
        assert len(server.store.list("Pod")) == 6
    assert (run.report.end, run.zones()) == (End.COMPLETE, [3, 3]), run.report.message
    assert len(hands.restarts) == run.report.evicted == len(set(hands.restarts)), hands.restarts
    evicted = [o for o in run.story.outcomes if o.evicted]
    assert {o.status for o in evicted} == {Fate.DONE}, "the group's restart is the landing"
