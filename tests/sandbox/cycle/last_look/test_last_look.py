"""The last look before an eviction: what changed since the plan stops it, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import islice
from typing import Any

import pytest
import urllib3
from msgspec.structs import replace

from rebalancer.kube.config_maps import Brakes
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Moment, Reason, ReasonCode, first_no
from rebalancer.model.selectors import Selector
from rebalancer.planner import plan
from rebalancer.policy.annotations import EVICT
from rebalancer.policy.options import PolicyOptions
from rebalancer.runtime.cycle.gates import Away, WatchedLimits
from rebalancer.runtime.last_look.cluster_now import SpotCheck, WatchAge
from rebalancer.runtime.last_look.look import LOOK, LastLook, Looking
from rebalancer.runtime.last_look.room import Room
from tests.support.build import NOW, claim, deployment, node, objects, pdb, volume, workload
from tests.support.build.volumes import csi_node
from tests.support.sandbox import ApiServer, Reply
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.sandbox.hung import hang
from tests.support.servers.api import FakeTime, connected, objects_of
from tests.support.servers.watching import QUICK, caught_up, watching
from tests.support.waiting import until
from tests.unit.policy.judged import merged
from tests.unit.policy.test_evictable import debugging
from tests.unit.policy.test_vertical_autoscalers import vpa

CLUSTER = (
    node("a-0").zone("a"),
    node("b-0").zone("b"),
    deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1}),
    pdb("web", {"app": "web"}, max_unavailable=1),
)

ALLOWED = {"labels": {"spread": "yes"}, "annotations": {"rebalancer.io/evict": "true"}}
"""What the namespace says when the plan is made."""


class World:
    """A server, a plan made of it, a watch, and ways to change the server afterwards."""

    def __init__(self, server: ApiServer, connection: Connection, cache: WatchCache) -> None:
        self.server = server
        self.cache = cache
        self.snapshot = cache.snapshot(NOW)
        self.connection = connection
        self.plan = plan(self.snapshot)
        self.move = self.plan.moves[0]
        assert self.move.pod.owner is not None
        self.replica_set = self.move.pod.owner.name
        self.pod = self.move.pod.name
        self.policy = PolicyOptions()
        reads = objects_of(connection, FakeTime())
        self.look = LastLook(
            reads,
            Brakes(connection, wait=FakeTime().wait),
            WatchAge(cache, lambda: False),
            SpotCheck(reads, cache, lambda: False, server="1.36.2", pods=4),
            Room(self.snapshot, self.plan, None, cache),
            lambda: NOW,
        )

    def send(self, method: str, kind: str, name: str, body: Any = None, *, status: bool = False) -> None:
        """A request of somebody else's."""
        path = RESOURCES[kind].path("default", name, "status" if status else "")
        headers = {
            "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"
        }
        answer = urllib3.request(method, self.server.url + path, json=body, headers=headers)
        assert answer.status < 300, answer.data
        caught_up(self.cache, self.server)
        until(lambda: {n.metadata.resource_version for n in self.cache.nodes()} == self.nodes(), 30)

    def nodes(self) -> set[str]:
        """Versions of the nodes that the server has."""
        return {o["metadata"]["resourceVersion"] for o in self.server.store.list("Node")}

    def patch(self, kind: str, name: str, body: Any, *, status: bool = False) -> None:
        """A merge patch."""
        self.send("PATCH", kind, name, body, status=status)

    def code(self, in_flight: int = 0) -> ReasonCode | None:
        """The reason that the fresh look gives."""
        reason = self.why_not(in_flight)
        return reason.code if reason else None

    def why_not(self, in_flight: int = 0) -> Reason | None:
        """The first no of the look."""
        others = (p for p in self.snapshot.pods if p.owner == self.move.pod.owner and p.name != self.pod)
        away = Away(flying=tuple(replace(self.move, pod=p) for p in islice(others, in_flight)))
        looking = Looking(self.look, self.move, away, lambda: [self.policy])
        no = first_no(LOOK, Moment.LAST_LOOK, looking)
        return no[1] if no is not None else None


@pytest.fixture
def world() -> Iterator[World]:
    kinds = frozenset(RESOURCES)
    with served(*ADD_ONS), ApiServer(objects(*CLUSTER), bookmark_every=0.1) as server, connected(server) as c:
        server.store.modify("Namespace", "default", None, lambda o: o["metadata"].update(ALLOWED))
        # No test here is about silence, and on a slow machine the cache is not to take offence at it.
        patient = replace(QUICK, silence=30.0)
        with watching(c, patient, kinds=kinds, stale_after=120.0) as cache:
            yield World(server, c, cache)


def test_an_unchanged_world_lets_the_move_pass(world: World) -> None:
    assert world.why_not() is None


def test_a_no_that_the_watch_brings_while_it_is_waited_for_counts(world: World) -> None:
    class Late(SpotCheck):
        def behind(self, *_: object) -> str:
            return "all"

        def why_not(self, *_: object) -> None:
            world.patch("Node", world.move.pod.node_name, {"metadata": {"annotations": {EVICT: "false"}}})

    late = Late(world.look.reads, world.cache, lambda: False, server="1.36.2", pods=4)
    world.look = replace(world.look, spot_check=late)
    assert world.code() is ReasonCode.ANNOTATION


def test_a_pod_that_is_gone_has_changed(world: World) -> None:
    world.send("DELETE", "Pod", world.pod, {"gracePeriodSeconds": 0})
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_a_terminating_pod_is_somebody_elses(world: World) -> None:
    world.send("DELETE", "Pod", world.pod, {"gracePeriodSeconds": 60})
    assert world.code() is ReasonCode.TERMINATING


def test_a_pod_that_runs_no_more_would_bypass_its_budget(world: World) -> None:
    world.patch("Pod", world.pod, {"status": {"phase": "Pending"}}, status=True)
    assert world.code() is ReasonCode.NOT_RUNNING


def test_a_pod_that_somebody_evicts_in_the_background_is_somebody_elses(world: World) -> None:
    key = "descheduler.alpha.kubernetes.io/eviction-in-progress"
    world.patch("Pod", world.pod, {"metadata": {"annotations": {key: "kubevirt"}}})
    assert world.code() is ReasonCode.TERMINATING


@pytest.mark.parametrize("what", ["labels", "annotations"])
def test_a_pod_whose_metadata_changed_is_not_the_planned_one(world: World, what: str) -> None:
    world.patch("Pod", world.pod, {"metadata": {what: {"rebalancer.io/evict": "false"}}})
    reason = world.why_not()
    assert reason is not None
    assert reason.code is ReasonCode.CHANGED_SINCE_PLAN
    assert reason.message.endswith(what)


def test_a_pod_that_somebody_has_begun_to_debug_stays(world: World) -> None:
    world.patch("Pod", world.pod, debugging(True), status=True)
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_a_vertical_autoscaler_that_has_come_is_seen_and_one_that_only_recommends_stops_nothing(
    world: World,
) -> None:
    def make(name: str, mode: str) -> None:
        made = vpa(mode=mode, cpu="64")
        made["metadata"]["name"] = name
        world.server.store.create(made)
        until(lambda: any(v.metadata.name == name for v in world.cache.vertical_autoscalers("default")), 30)

    make("recommends", "Off")
    assert world.code() is None
    make("sizes", "Recreate")
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


@pytest.mark.parametrize("cpu", ["64", "50m"])
def test_a_vertical_autoscaler_that_its_hung_watch_does_not_show(world: World, cpu: str) -> None:
    hang(world.server, "VerticalPodAutoscaler")
    made = vpa(cpu=cpu)
    made["metadata"]["name"] = "web"
    world.server.store.create(made)
    # Even one that recommends less may recommend more before the pod is made.
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


@pytest.mark.parametrize(("seconds", "no"), [(0, None), (3600, ReasonCode.OWNER_DEGRADED)])
def test_pods_that_are_ready_and_not_available_yet(seconds: int, no: ReasonCode | None) -> None:
    made = objects(*CLUSTER[:3])
    for o in made:
        if o["kind"] in ("Deployment", "ReplicaSet"):
            o["spec"]["minReadySeconds"] = seconds
    with (
        ApiServer(made, bookmark_every=0.1) as server,
        connected(server) as c,
        watching(c, replace(QUICK, silence=30.0), kinds=frozenset(RESOURCES), stale_after=120.0) as cache,
    ):
        world = World(server, c, cache)
        assert world.code() is None
        world.patch("ReplicaSet", world.replica_set, {"status": {"availableReplicas": 3}}, status=True)
        assert world.code() is no


RACK = "topology.ebs.csi.aws.com/rack"


def on_racks(*racks: str) -> list[Any]:
    """`CLUSTER`, its nodes on two racks, its pods with a volume that these racks reach."""
    reached = {"key": RACK, "operator": "In", "values": [*racks]}
    pv, pvc = volume("pv", "data"), claim("data", "pv")
    pv.object["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [reached]}]}}
    for built in (pv, pvc):
        built.object["spec"]["accessModes"] = ["ReadWriteMany"]
    a, b, *rest = CLUSTER
    made = objects(a.label(RACK, "1"), b.label(RACK, "2"), *rest, pv, pvc, csi_node("a-0"), csi_node("b-0"))
    for o in made:
        spec = o["spec"] if o["kind"] == "Pod" else o.get("spec", {}).get("template", {}).get("spec")
        if spec is not None:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return made


@contextmanager
def with_add_ons(things: list[Any], *, progress_notify: bool = True) -> Iterator[World]:
    """A cluster in which all kinds are watched, those of add-ons, too."""
    with (
        served(*ADD_ONS),
        ApiServer(things, bookmark_every=0.1, progress_notify=progress_notify) as server,
        connected(server) as c,
        watching(
            c, replace(QUICK, silence=30.0, close_timeout=1), kinds=frozenset(RESOURCES), stale_after=120.0
        ) as cache,
    ):
        yield World(server, c, cache)


def test_a_node_label_that_only_a_volume_names_is_looked_at() -> None:
    with with_add_ons(on_racks("1", "2")) as w:
        assert w.why_not() is None
        w.patch("Node", "b-0", {"metadata": {"labels": {"example.com/unrelated": "9"}}})
        assert w.why_not() is None
        w.patch("Node", "b-0", {"metadata": {"labels": {RACK: "9"}}})
        reason = w.why_not()
        assert reason is not None
        assert reason.code is ReasonCode.NODES_CHANGED
        assert "b-0" in reason.message


def beside() -> list[Any]:
    """`CLUSTER`, and another Deployment whose pods the constraint of the first counts."""
    web = deployment("web").labels(team="x").spread("zone", 1, selector={"team": "x"}).placed({"a-0": 3})
    return objects(*CLUSTER[:2], web, deployment("api").labels(team="x").placed({"a-0": 1, "b-0": 1}))


@pytest.mark.parametrize("hung", [False, True])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"spec": {"template": {"metadata": {"annotations": {"new": "1"}}}}}, ReasonCode.ROLLOUT_IN_PROGRESS),
        ({"metadata": {"annotations": {"seen": "now"}}}, None),
    ],
    ids=["rolls out", "is remarked on"],
)
def test_while_another_owner_that_the_constraint_counts(
    change: Any, code: ReasonCode | None, hung: bool
) -> None:
    with with_add_ons(beside()) as w:
        assert w.move.owner.name == "web"
        assert w.why_not() is None
        if hung:
            hang(w.server, "Deployment")
        w.server.store.modify("Deployment", "api", "default", lambda o: o.update(merged(o, change)))
        assert w.code() is code


def test_who_is_beside_and_lacks_a_pod_that_this_plan_took_does_not_count_as_scaling() -> None:
    with with_add_ons(beside()) as w:
        taken = next(p for p in w.snapshot.pods if p.name.startswith("api"))
        top = next(o for o in w.snapshot.workloads if (o.kind, o.name) == ("Deployment", "api"))
        w.send("DELETE", "Pod", taken.name, {"gracePeriodSeconds": 60})
        w.patch("Deployment", "api", {"status": {"updatedReplicas": 1}}, status=True)
        assert w.code() is ReasonCode.CHANGED_SINCE_PLAN, "its next pod may come first"
        ours = replace(w.move, pod=taken, owner=top)
        for flying in ((), (ours,)):
            looking = Looking(w.look, w.move, Away((ours,), flying, (ours,)), lambda: [w.policy])
            no = first_no(LOOK, Moment.LAST_LOOK, looking)
            assert (no[1].code if no else None) is (None if flying else ReasonCode.OWNER_SCALING)


def test_while_a_pod_of_a_daemonset_ends_that_the_constraint_counts() -> None:
    agent = workload("agent", "DaemonSet").labels(team="x").placed({"a-0": 1, "b-0": 1})
    web = deployment("web").labels(team="x").spread("zone", 1, selector={"team": "x"}).placed({"a-0": 3})
    with with_add_ons(objects(*CLUSTER[:2], web, agent)) as w:
        w.server.faults.add(Reply(403), verb="get", resource="daemonsets")  # the chart asks for no such right
        assert w.why_not() is None
        ends = next(p for p in w.snapshot.pods if p.name.startswith("agent") and p.node_name == "a-0")
        w.send("DELETE", "Pod", ends.name, {"gracePeriodSeconds": 60})
        reason = w.why_not()
        assert reason is not None
        assert reason.code is ReasonCode.OWNER_SCALING
        assert "DaemonSet agent wants 2 pods and has 1" in reason.message


def test_an_owner_that_is_scaled_is_left_alone(world: World) -> None:
    world.patch("ReplicaSet", world.replica_set, {"spec": {"replicas": 7}})
    assert world.code() is ReasonCode.OWNER_SCALING


def test_a_template_that_changes_means_a_rollout(world: World) -> None:
    world.patch(
        "Deployment", "web", {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    )
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_an_owner_that_is_deleted_makes_no_replacement(world: World) -> None:
    world.send("DELETE", "ReplicaSet", world.replica_set, {"propagationPolicy": "Orphan"})
    assert world.code() in (ReasonCode.CHANGED_SINCE_PLAN, ReasonCode.OWNER_TERMINATING)


def test_an_annotation_on_the_deployment_is_heard(world: World) -> None:
    world.patch("Deployment", "web", {"metadata": {"annotations": {"rebalancer.io/evict": "false"}}})
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"annotations": {"rebalancer.io/evict": "false"}}, ReasonCode.CHANGED_SINCE_PLAN),
        ({"annotations": {"rebalancer.io/pause": "incident"}}, ReasonCode.PAUSED_BY_ANNOTATION),
        ({"labels": {"spread": None}}, ReasonCode.CHANGED_SINCE_PLAN),
        ({"labels": {"spread": "no"}}, ReasonCode.CHANGED_SINCE_PLAN),
        ({"annotations": {"openshift.io/node-selector": "pool=x"}}, ReasonCode.CHANGED_SINCE_PLAN),
        ({"annotations": {"linkerd.io/inject": "enabled"}}, ReasonCode.CHANGED_SINCE_PLAN),
        ({"annotations": {"seen": "now"}}, None),
    ],
    ids=["protected", "paused", "out of the scope", "another value", "a selector", "a proxy", "a remark"],
)
def test_what_is_said_on_the_namespace_after_the_plan_is_heard(
    world: World, change: Any, code: ReasonCode | None
) -> None:
    world.patch("Namespace", "default", {"metadata": change})
    assert world.code() is code


def test_a_namespace_that_is_gone_has_changed(world: World) -> None:
    gone = {"kind": "Status", "code": 404, "details": {"kind": "namespaces", "name": "default"}}
    world.server.faults.add(Reply(404, gone), verb="get", resource="namespaces")
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def test_an_allowance_that_the_namespace_takes_back_is_taken_back(world: World) -> None:
    world.patch("Namespace", "default", {"metadata": {"annotations": {"rebalancer.io/evict": None}}})
    assert world.code() is ReasonCode.CHANGED_SINCE_PLAN


def quota(world: World, hard: int) -> None:
    """Somebody limits the pods of the namespace to so many; there are four."""
    pods = {"hard": {"pods": str(hard)}, "used": {"pods": "4"}}
    world.server.store.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": "default"},
            "spec": {"hard": pods["hard"]},
            "status": pods,
        }
    )
    until(lambda: world.cache.quotas("default"))


@pytest.mark.parametrize(("hard", "code"), [(3, ReasonCode.QUOTA), (4, ReasonCode.QUOTA), (5, None)])
def test_a_quota_that_is_made_after_the_plan_and_would_refuse_the_replacement_stops_it(
    world: World, hard: int, code: ReasonCode | None
) -> None:
    quota(world, hard)
    assert world.code() is code


def test_a_quota_that_is_made_after_the_plan_has_replacements_come_one_after_the_other(world: World) -> None:
    quota(world, 5)
    limits = WatchedLimits(world.cache, world.snapshot)
    assert limits.admit(world.move, [])
    assert not limits.admit(world.move, [world.move])


def test_the_owners_missing_pods_are_allowed_as_far_as_this_wave_took_them(world: World) -> None:
    world.patch("ReplicaSet", world.replica_set, {"status": {"replicas": 4, "readyReplicas": 3}}, status=True)
    assert world.code() is ReasonCode.REPLACEMENT_NOT_READY
    assert world.code(in_flight=1) is None
    world.patch("ReplicaSet", world.replica_set, {"status": {"replicas": 3, "readyReplicas": 3}}, status=True)
    assert world.code() is ReasonCode.OWNER_SCALING
    assert world.code(in_flight=1) is None


def test_a_ready_pod_stays_once_as_many_are_unavailable_as_may_be(world: World) -> None:
    """What the owner counts as Ready was behind its pods when the plan was made."""
    status = {"status": {"replicas": 4, "readyReplicas": 3}}
    world.patch("ReplicaSet", world.replica_set, status, status=True)
    until(lambda: any(w.ready_replicas == 3 for w in world.cache.snapshot(NOW).workloads), 30)
    with connected(world.server) as c:
        again = World(world.server, c, world.cache)
        assert again.code() is ReasonCode.OWNER_DEGRADED
        assert again.code(in_flight=1) is None


def test_an_exhausted_budget_stops_it_before_the_server_has_to(world: World) -> None:
    world.patch("PodDisruptionBudget", "web", {"status": {"disruptionsAllowed": 0}}, status=True)
    assert world.code() is ReasonCode.PDB_EXHAUSTED


def test_a_budget_that_its_controller_has_not_seen_stops_it(world: World) -> None:
    world.patch("PodDisruptionBudget", "web", {"spec": {"maxUnavailable": 2}})
    assert world.code() is ReasonCode.PDB_STALE


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}},
        {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}},
    ],
    ids=["cordoned", "tainted", "relabelled"],
)
def test_a_destination_that_changed_ends_the_move(world: World, change: Any) -> None:
    world.patch("Node", "b-0", change)
    reason = world.why_not()
    assert reason is not None
    assert reason.code is ReasonCode.NODES_CHANGED
    assert "b-0" in reason.message


def test_a_destination_that_has_less_room_than_planned_with_ends_the_move(world: World) -> None:
    world.patch("Node", "b-0", {"status": {"allocatable": {"pods": "1"}}}, status=True)
    assert world.code() is ReasonCode.NODES_CHANGED


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"taints": [{"key": "soon", "effect": "PreferNoSchedule"}]}},
        {"metadata": {"labels": {"feature.example/checked": "now"}, "annotations": {"x": "y"}}},
    ],
    ids=["preference", "other label"],
)
def test_a_node_that_changed_in_what_no_plan_rests_on_does_not(world: World, change: Any) -> None:
    world.patch("Node", "b-0", change)
    assert world.code() is None


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        ("a-0", {"annotations": {"rebalancer.io/evict": "false"}}, ReasonCode.ANNOTATION),
        ("a-0", {"annotations": {"rebalancer.io/pause": "we look"}}, ReasonCode.ANNOTATION),
        ("a-0", {"labels": {"rebalancer.io/evict": "no"}}, ReasonCode.ANNOTATION),
        ("a-0", {"annotations": {"rebalancer.io/evict": "true"}}, None),
        ("b-0", {"annotations": {"rebalancer.io/evict": "false"}}, None),
    ],
)
def test_a_no_on_the_node_that_a_pod_would_leave_is_heard(
    world: World, name: str, said: Any, code: ReasonCode | None
) -> None:
    """In the plan, too."""
    world.patch("Node", name, {"metadata": said})
    assert world.code() is code
    blocked = {b.reason.code for b in plan(world.cache.snapshot(NOW)).blocked}
    assert blocked == ({code} if code is not None else set())


@pytest.mark.parametrize("kind", ["Pod", "Namespace"])
def test_an_answer_older_than_what_the_watch_has_is_not_believed(world: World, kind: str) -> None:
    name, within = (world.pod, "default") if kind == "Pod" else ("default", None)
    resource = RESOURCES[kind].plural
    assert world.code() is None
    old = deepcopy(world.server.store.get(kind, name, within))
    world.server.store.modify(
        kind, name, within, lambda o: o["metadata"].setdefault("annotations", {}).update(x="y")
    )
    new = world.server.store.get(kind, name, within)["metadata"]["resourceVersion"]
    until(lambda: world.cache.version_of(kind, within or "", name) == new)
    assert world.code() is None
    world.server.faults.add(Reply(200, old), verb="get", resource=resource, name=name)
    assert world.code() is ReasonCode.NOT_CURRENT


def test_a_look_costs_no_list_of_nodes_or_pods(world: World) -> None:
    before = len(world.server.accesses)
    assert [world.code() for _ in range(5)] == [None] * 5
    # Of one node and of the pods there only versions are asked for. One object of a kind is asked for
    # whenever it is watched anew, by whomever: whether history was lost.
    lists = [a for a in world.server.accesses[before:] if a.verb == "list" and not a.fields and a.limit != 1]
    # Kinds of which all may matter are few objects, read every few seconds.
    assert {a.resource for a in lists if not a.namespace} <= {"namespaces", "priorityclasses"}
    # Of the pods that its constraint counts, too, as there are few of them.
    assert {a.resource for a in lists if a.namespace} <= {
        "poddisruptionbudgets", "resourcequotas", "limitranges", "pods", "verticalpodautoscalers",
    }  # fmt: skip


def test_what_cannot_be_looked_at_is_an_error_not_a_yes(world: World) -> None:
    world.server.faults.add(Reply(500), verb="get", resource="pods")
    with pytest.raises(KubeError):
        world.why_not()


def test_what_is_read_live_is_judged_by_the_scope(world: World) -> None:
    """Whatever the plan knew of the namespace."""
    world.policy = PolicyOptions(namespace_selector=Selector.equals({"spread": "yes"}))
    assert world.code() is None
    world.policy = PolicyOptions(namespace_selector=Selector.equals({"spread": "no"}))
    assert world.code() is ReasonCode.EXCLUDED_NAMESPACE


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, None),
        ({"initContainers": [{"name": "proxy", "image": "i"}]}, ReasonCode.CHANGED_SINCE_PLAN),
        ({"nodeSelector": {"pool": "x"}}, ReasonCode.ROLLOUT_IN_PROGRESS),
    ],
    ids=["nothing", "a sidecar", "a node selector"],
)
def test_what_admission_has_given_a_pod_that_was_made_since_it_gives_the_replacement_too(
    world: World, given: Any, code: ReasonCode | None
) -> None:
    new = deepcopy(next(o for o in world.server.store.list("Pod") if o["spec"]["nodeName"] == "b-0"))
    world.server.store.delete("Pod", new["metadata"]["name"], "default", grace=0)
    for key in ("uid", "resourceVersion"):
        del new["metadata"][key]
    new["metadata"] |= {"name": "web-new", "creationTimestamp": "2026-03-01T00:00:00Z"}
    new["spec"] |= given
    world.server.store.create(deepcopy(new))
    world.server.store.modify(
        "Pod", "web-new", "default", lambda o: o.update(status=new["status"]), subresource="status"
    )
    caught_up(world.cache, world.server)
    assert world.code() is code


@pytest.mark.parametrize(("pool", "code"), [("x", None), ("y", ReasonCode.CHANGED_SINCE_PLAN)])
def test_a_node_without_what_only_pods_ask_for_may_get_the_replacement(
    pool: str, code: ReasonCode | None
) -> None:
    """A webhook gave them a node selector, and may give the next pod none."""
    a, b, *rest = CLUSTER
    made = objects(a.label("pool", "x"), b.label("pool", "x"), *rest)
    for o in made:
        if o["kind"] == "Pod":
            o["spec"]["nodeSelector"] = {"pool": "x"}
    with (
        served(*ADD_ONS),
        ApiServer(made, bookmark_every=0.1) as server,
        connected(server) as c,
        watching(c, replace(QUICK, silence=30.0), kinds=frozenset(RESOURCES), stale_after=120.0) as cache,
    ):
        w = World(server, c, cache)
        assert w.move.certain
        assert w.code() is None
        new = objects(node("b-1").zone("b").label("pool", pool))[0]
        del new["metadata"]["resourceVersion"]
        server.store.create(new)
        until(lambda: len(cache.nodes()) == 3)
        assert w.code() is code
