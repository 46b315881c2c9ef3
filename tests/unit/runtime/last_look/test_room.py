"""Where the scheduler would go now: a plan holds while nobody interferes, and not when somebody does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec
import numpy as np
import pytest

from rebalancer.engine.config import FILTERS, NO_WITNESS, Profile, SchedulerConfig, Witness
from rebalancer.engine.framework import PLUGINS
from rebalancer.engine.plugins.plugin import Filter, Plugin, StaticFilter
from rebalancer.model.pod import Pod, PodTemplate, TopologySpreadConstraint, Volume
from rebalancer.model.reason import ReasonCode
from rebalancer.model.snapshot import Object, Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Certainty, Move
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.replace_first import without_label
from rebalancer.runtime.cycle.gates import Away
from rebalancer.runtime.last_look.cluster_now import ClusterNow, whole_kinds
from rebalancer.runtime.last_look.room import Room
from tests.support.build import (
    daemon_set,
    decoded,
    deployment,
    node,
    node_claim,
    node_pool,
    nodes,
    objects,
    pod,
    snapshot,
    stateful_set,
    volume,
    workload,
)
from tests.support.build.base import Builder
from tests.support.build.volumes import attachment, csi_node
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.scheduler.plain import Json
from tests.unit.policy.limits.test_quota import quota
from tests.unit.policy.test_vertical_autoscalers import vpa

EVERY_SCENARIO = [
    pytest.param(name, marks=[pytest.mark.nightly] * (name == "random_cluster")) for name in SCENARIOS
]
"""The large one at night."""


def away(moves: Sequence[Move]) -> Away:
    """Nothing of them is on a node again."""
    return Away(tuple(moves), tuple(moves), tuple(moves))


class World:
    """Pods and nodes that come and go under a plan; the watch that shows them."""

    def __init__(
        self, cluster: Snapshot, options: PlanOptions | None = None, certainty: Certainty = "certain"
    ) -> None:
        self.pods = {p.uid: p for p in cluster.pods}
        self.plan = plan(cluster, options)
        self.cluster = cluster
        self.built = 0
        self.watch = cast(
            "Any",
            SimpleNamespace(
                nodes=lambda: self.cluster.nodes,
                pods=self.by_name,
                vertical_autoscalers=lambda _: self.cluster.vertical_autoscalers,
                node_claims=lambda: self.cluster.node_claims,
                node_pools=lambda: self.cluster.node_pools,
                attachments=lambda: self.cluster.attachments,
                namespaces=lambda: self.cluster.namespaces.values(),
                workloads=lambda n: [w for w in self.cluster.workloads if n in ("", w.namespace)],
                services=lambda n: [s for s in self.cluster.services if n in ("", s.metadata.namespace)],
                classes=lambda: [
                    *self.cluster.storage_classes.values(),
                    *self.cluster.csi_nodes.values(),
                    *self.cluster.csi_drivers.values(),
                    *self.cluster.priority_classes.values(),
                ],
                snapshot=self.snapshot,
            ),
        )
        self.witness, self.later = NO_WITNESS, 0
        self.flying: list[Move] = []
        self.look = Room(
            cluster,
            self.plan,
            options.scheduler if options else None,
            self.watch,
            certainty,
            lambda: self.witness,
            lambda: cluster.now + self.later,
        )
        self.now = ClusterNow(cluster, None, self.watch)

    def by_name(self) -> dict[tuple[str, str], Pod]:
        """The pods as they are."""
        return {(p.namespace, p.name): p for p in self.pods.values()}

    def snapshot(self, now: float) -> Snapshot:
        """The cluster as it is, read as a whole."""
        self.built += 1
        return msgspec.structs.replace(self.cluster, pods=tuple(self.pods.values()), now=now)

    def nodes(self, *there: Builder) -> None:
        """These are the nodes now."""
        self.cluster = msgspec.structs.replace(self.cluster, nodes=snapshot(*there).nodes)

    def sized(self, *by: Json) -> None:
        """These are the vertical autoscalers now."""
        there = snapshot(*by).vertical_autoscalers
        self.cluster = msgspec.structs.replace(self.cluster, vertical_autoscalers=there)

    def change(self, pod: Pod, **changes: object) -> None:
        """The same pod, otherwise."""
        self.pods[pod.uid] = msgspec.structs.replace(pod, **changes)

    def add(self, like: Pod, name: str, **changes: object) -> None:
        """Another pod of that template."""
        self.pods[name] = msgspec.structs.replace(like, name=name, uid=name, **changes)

    def evict(self, move: Move) -> None:
        """The victim terminates; nobody has replaced it yet."""
        self.change(move.pod, deleted=1.0)
        self.flying.append(move)

    def land(self, move: Move) -> None:
        """The victim is gone, its replacement runs where it was predicted."""
        del self.pods[move.pod.uid]
        self.flying = [m for m in self.flying if m is not move]
        changes = {"template": move.replacement, "node_name": move.predicted}
        self.add(move.pod, f"{move.pod.name}-again", **changes)

    def judged(self, pod: Pod, away: Sequence[Move] = (), *, release: bool = False) -> ReasonCode | None:
        """What policy says of a pod by what is around it."""
        self.now.catch_up()
        read: list[Object] = [
            *(b for b in self.cluster.budgets if b.metadata.namespace == pod.namespace),
            *(q for q in self.cluster.quotas if q.metadata.namespace == pod.namespace),
            *(n for n in self.cluster.namespaces.values() if n.metadata.name == pod.namespace),
        ]
        gone = [m.pod for m in away]
        around = self.now.around(pod, read, gone, now=self.cluster.now, release=release)
        reason = Evictable(around, PolicyOptions()).why_not(pod)
        return reason.code if reason is not None else None

    def beside(self, move: Move, flying: Sequence[Move]) -> bool:
        """Whether it may go beside these, whose replacements are on no node yet."""
        return self.look.may_overlap(move, away(flying))

    def code(self, move: Move) -> ReasonCode | None:
        """What the look says."""
        reason = self.look.why_not(move, away(self.flying))
        return reason.code if reason is not None else None


def web(*more: Builder | Json, certainty: Certainty = "certain") -> World:
    """Four pods in zone a, none in b: two have to go, and each node has room for six such pods."""
    return World(
        snapshot(
            node("a-0").zone("a").cpu(6),
            node("b-0").zone("b").cpu(6),
            workload("web").spread("zone", 1).requests(cpu="1").placed({"a-0": 4}),
            *more,
        ),
        PlanOptions(certainty=certainty),
        certainty,
    )


@pytest.mark.parametrize("order", ["planned", "reversed", "shuffled"])
@pytest.mark.parametrize("name", EVERY_SCENARIO)
def test_every_move_of_every_scenario_still_holds_at_its_turn(name: str, order: str) -> None:
    """Before each eviction, with those before it in the same wave terminating, landed, or some of each."""
    rng = random.Random(7)
    w = World(decoded(scenario(name)))
    for wave in w.plan.waves:
        moves, flying = list(wave), list[Move]()
        if order == "reversed":
            moves.reverse()
        elif order == "shuffled":
            rng.shuffle(moves)
        for move in moves:
            assert w.beside(move, flying)
            assert w.look.why_not(move) is None
            assert w.judged(move.pod, flying) is None
            w.evict(move)
            flying.append(move)
            if order == "shuffled" and rng.random() < 0.5:
                w.land(flying.pop(rng.randrange(len(flying))))
        for move in flying:
            w.land(move)


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("name", EVERY_SCENARIO)
def test_what_is_around_a_pod_says_the_same_of_it_as_the_whole_cluster(name: str, release: bool) -> None:
    """Whatever a protection reads: one that looks further shows here."""
    w = World(decoded(scenario(name)))
    whole = Evictable(w.cluster, PolicyOptions())
    for one in random.Random(7).sample(w.cluster.pods, min(100, len(w.cluster.pods))):
        reason = whole.why_not(one)
        assert w.judged(one, release=release) == (reason.code if reason is not None else None)


def test_what_a_sets_pod_gives_back_of_a_full_quota_is_for_an_owner_that_has_come_to_lack_pods() -> None:
    db, other = stateful_set("db").spread("zone"), deployment("other").placed({"b-0": 1})
    full = quota({"pods": "5"}, {"pods": "5"})
    w = World(snapshot(*nodes(a=1, b=1), db.placed({"a-0": 3, "b-0": 1}), other, full))
    (move,) = w.plan.moves
    assert w.judged(move.pod) is None
    scaled = (msgspec.structs.replace(o, replicas=2) if o.name != "db" else o for o in w.cluster.workloads)
    w.cluster = msgspec.structs.replace(w.cluster, workloads=tuple(scaled))
    assert w.judged(move.pod) is ReasonCode.QUOTA


def test_what_is_away_counts_as_there_and_what_others_took_does_not() -> None:
    """Of twelve pods two may be unavailable."""
    made = objects(deployment("web").spread("zone", 1).placed({"a-0": 12}))
    for o in made:
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 2}}
    w = World(snapshot(*nodes(a=1, b=1), *made))
    first, second, third = w.plan.moves[:3]
    for evicted in (first, second):
        w.evict(evicted)
        assert w.judged(third.pod, [first, second][: 1 if evicted is first else 2]) is None
    assert w.judged(third.pod, [first]) is ReasonCode.OWNER_SCALING, "somebody else has evicted one"
    w.add(first.pod, "new", ready=False, created=w.cluster.now)
    assert w.judged(third.pod, [first, second]) is None, "a replacement that is still to be Ready"
    w.add(first.pod, "newer", ready=False, created=w.cluster.now)
    assert w.judged(third.pod, [first, second]) is None
    assert w.judged(third.pod, [first]) is ReasonCode.REPLACEMENT_NOT_READY
    other = next(p for p in w.cluster.pods if p.uid not in {m.pod.uid for m in (first, second, third)})
    w.change(other, ready=False)
    assert w.judged(third.pod, [first, second]) is None
    two = next(p for p in reversed(w.cluster.pods) if p.uid not in {other.uid, third.pod.uid})
    w.change(two, ready=False)
    assert w.judged(third.pod, [first, second]) is ReasonCode.OWNER_DEGRADED


IN_ALL = {"app": "x"}
"""Selected by the constraints of these, whoever owns the pods."""


def needed(
    there: dict[str, int],
    *,
    keys: Sequence[str] = ("zone",),
    others: dict[str, int] | None = None,
    may: str = "abc",
    revision: bool = False,
) -> str:
    """The node of the pod that is to go instead of a released one in a-0, "" if none is.

    `there`: pods of its ReplicaSet, the released one too; `others`: of somebody else; `may`: in which zones
    one may be chosen."""
    web, more = deployment("web").labels(**IN_ALL), deployment("more").labels(**IN_ALL)
    for key in keys:
        web = web.spread(key, 1, selector=IN_ALL, match_label_keys=("pod-template-hash",) if revision else ())
    w = World(snapshot(*nodes(a=2, b=1, c=1), web.placed(there), more.placed(others or {})))
    old = next(p for p in w.cluster.pods if p.name.startswith("web") and p.node_name == "a-0")
    w.change(old, owner=None, template=without_label(old.template, "pod-template-hash"))
    assert old.owner is not None
    reason = w.look.needed(old, old.owner.uid, lambda p: p.node_name[0] in may)
    assert reason is None or reason.code is ReasonCode.WOULD_WORSEN
    uid = w.look.rather(old)
    assert bool(uid) is (reason is not None)
    return w.pods[uid].node_name if uid else ""


def test_a_released_pod_stays_where_a_constraint_suffers_and_another_one_leaves_less() -> None:
    assert needed({"a-0": 3, "b-0": 3, "c-0": 1}) == "", "as planned"
    assert needed({"a-0": 1, "b-0": 3, "c-0": 1}) == "b-0"
    assert needed({"a-0": 1, "b-0": 3, "c-0": 1}, revision=True) == "b-0", "given back it counts again"
    assert needed({"a-0": 2, "b-0": 3, "c-0": 2}) == "b-0", "nothing is left to mend"
    assert needed({"a-0": 2, "b-0": 2, "c-0": 3}) == "c-0", "rather the new one"
    assert needed({"a-0": 2, "b-0": 2, "c-0": 2}) == "", "it hurts nobody"
    assert needed({"a-0": 1, "b-0": 3, "c-0": 1}, may="ac") == "", "no better one may go"


def test_a_move_that_leaves_one_constraint_as_it_was_may_end_though_it_is_better_with_both() -> None:
    """By host b-0 has two that stay, so one has none in the end, as before the move, which mends zones."""
    pods, pinned = {"a-0": 1, "a-1": 1, "c-0": 1}, {"b-0": 2}
    assert needed(pods, keys=("zone", "hostname"), others=pinned) == ""


def test_two_moves_are_planned_and_hold() -> None:
    w = web()
    assert [w.code(m) for m in w.plan.moves] == [None, None]


def test_room_that_others_took_is_missed() -> None:
    w = web(workload("other").requests(cpu="1").placed({"a-0": 1}))
    move = w.plan.moves[0]
    other = next(p for p in w.pods.values() if p.name.startswith("other"))
    for i in range(6):
        w.add(other, f"new-{i}", node_name="b-0")
    reason = w.look.why_not(move)
    assert reason is not None
    assert reason.code is ReasonCode.CHANGED_SINCE_PLAN
    assert "has lost every node" in reason.message


def test_room_that_a_daemon_set_has_come_to_need_is_not_taken() -> None:
    things = objects(daemon_set("agent").requests(cpu="1").placed({"a-0": 1, "b-0": 1}))
    [agents] = [o for o in things if o["kind"] == "DaemonSet"]
    agents["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    w = web(*things, workload("other").requests(cpu="3").placed({"b-0": 1}))
    [move, *_], before = w.plan.moves, w.cluster
    assert w.code(move) is None
    agents["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2500m"
    others = (o for o in before.workloads if o.kind != "DaemonSet")
    w.cluster = msgspec.structs.replace(before, workloads=(*others, *snapshot(agents).workloads))
    reason = w.look.why_not(move)
    assert reason is not None
    assert (
        "could land on b-0, where a pod of DaemonSet default/agent that needs room is yet" in reason.message
    )
    w.cluster = before
    assert w.code(move) is None
    old = next(p for p in w.pods.values() if p.name.startswith("agent") and p.node_name == "b-0")
    w.add(old, "larger", node_name="b-0", template=snapshot(agents).workloads[0].template)
    w.change(old, deleted=1.0)
    reason = w.look.why_not(move)
    assert reason is not None
    assert "has lost every node" in reason.message


def test_a_node_that_is_about_to_go_takes_no_replacement_although_the_scheduler_would_use_it() -> None:
    w = web(node("b-1").zone("b").cpu(6))
    assert w.code(w.plan.moves[0]) is None
    leaving = node("b-1").zone("b").cpu(6).taint("ToBeDeletedByClusterAutoscaler", effect="PreferNoSchedule")
    w.nodes(node("a-0").zone("a").cpu(6), node("b-0").zone("b").cpu(6), leaving)
    reason = w.look.why_not(w.plan.moves[0])
    assert reason is not None
    assert reason.code is ReasonCode.NODES_CHANGED
    assert "b-1" in reason.message


@pytest.mark.parametrize(("taken", "fits"), [(4, True), (5, False), (6, False)])
def test_moves_of_two_plans_fly_together_while_there_is_room_for_both(taken: int, fits: bool) -> None:
    w = web(workload("other").requests(cpu="1").placed({"a-0": 1}))
    one, two = w.plan.moves
    assert w.code(one) is None
    other = next(p for p in w.pods.values() if p.name.startswith("other"))
    for i in range(taken):
        w.add(other, f"new-{i}", node_name="b-0")
    assert w.beside(one, [two]) is fits
    assert w.look.may_overlap(one, Away(flying=(two,))) is (taken < 6), "who is placed has its room as a pod"


def test_one_that_may_come_back_smaller_goes_once_another_has_filled_the_node_that_it_could_take() -> None:
    things = objects(
        node("a-0").zone("a").cpu("16").label("pool", "x"),
        node("b-0").zone("b").cpu("2500m"),
        node("b-1").zone("b").cpu("400m").label("pool", "x"),
        deployment("web").spread("zone").requests(cpu="200m").placed({"a-0": 3, "b-0": 1}),
        stateful_set("api").spread("zone").requests(cpu="350m").selects(pool="x").placed({"a-0": 2}),
    )
    for one in things:
        if one["kind"] == "Pod" and one["metadata"]["name"].startswith("web"):
            one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1200m"
    w = World(decoded(things))
    api, web = w.plan.moves
    assert (api.wave, web.wave, web.certain) == (1, 2, True)
    w.evict(api)
    assert not w.beside(web, [api])
    assert w.code(web) is ReasonCode.CHANGED_SINCE_PLAN
    w.land(api)
    assert w.beside(web, [])
    assert w.code(web) is None


@pytest.mark.parametrize(("drifted", "goes"), [(60.0, True), (None, False)])
def test_a_node_that_karpenter_has_come_to_replace_takes_no_replacement(
    drifted: float | None, goes: bool
) -> None:
    w = web()
    move = w.plan.moves[0]
    assert w.code(move) is None
    claims = snapshot(node_claim("c", "b-0", age=86_400, drifted=drifted)).node_claims
    w.cluster = msgspec.structs.replace(w.cluster, node_claims=claims)
    for _ in range(2):
        assert (w.code(move) is not None) is goes
        assert w.built == goes, "built again only if it changes which nodes go"


def test_a_node_that_karpenter_replaces_by_now_takes_none_whatever_the_watch_brings() -> None:
    """Its time has come; or a budget that kept it is gone."""
    w = web(node_claim("c", "b-0", age=3600, expireAfter="3h"))
    move = w.plan.moves[0]
    assert w.code(move) is None
    w.later = 5400
    assert w.code(move) is not None
    w = web(node_claim("c", "b-0", age=3600, expireAfter="3h"))
    w = World(msgspec.structs.replace(w.cluster, apart=1800.0))
    move = w.plan.moves[0]
    assert (w.code(move), w.built) == (None, 0)
    w.later = 2400
    assert w.code(move) is not None, "it may have come, as clocks disagree"
    w.code(move)
    assert w.built == 1
    pool = node_pool("default")
    pool.object["spec"]["disruption"] = {"budgets": [{"nodes": "0"}]}
    claims = node_claim("c", "b-0", age=86_400, drifted=7200), node_claim("new", age=600)
    w = web(*claims, pool)
    move = w.plan.moves[0]
    assert w.code(move) is None
    w.cluster = msgspec.structs.replace(w.cluster, node_pools=snapshot(node_pool("default")).node_pools)
    assert w.code(move) is not None


@pytest.mark.parametrize("version", ["1.36.2", "1.99.0"])
def test_on_a_version_newer_than_all_known_rules_every_node_counts_too(version: str) -> None:
    two = web(node("b-1").zone("b").cpu(60))
    w = World(msgspec.structs.replace(two.cluster, server_version=version))
    move = w.plan.moves[0]
    assert move.certain is (version == "1.36.2")
    assert w.code(move) is None
    assert w.look.destinations(move) == ("b-0", "b-1")


def test_a_template_is_known_as_long_as_a_pod_of_it_may_come_again() -> None:
    w = web()
    now = ClusterNow(w.cluster, None, w.watch)
    for left in (3, 2, 1, 0):
        w.pods.popitem()
        now.catch_up()
        assert len(now.templates("default")) == (left > 0)


def test_a_namespace_that_comes_to_be_meant_by_an_affinity_is_seen() -> None:
    """What runs there has the room then, and keeps the replacement out."""
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}}
    alone = workload("web").spread("zone", 1).placed({"a-0": 4})
    away = {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"}
    away["namespaceSelector"] = {"matchLabels": {"team": "ops"}}
    terms = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    made = objects(nodes(a=1, b=1), alone, workload("other", namespace="ops").placed({"b-0": 1}), space)
    for o in made:
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec")) if "spec" in o else ():
            if spec and "containers" in spec and "other" not in o["metadata"]["name"]:
                spec["affinity"] = terms
    w = World(decoded(made))
    move = w.plan.moves[0]
    assert w.code(move) is None
    meant = snapshot({**space, "metadata": {"name": "ops", "labels": {"team": "ops"}}}).namespaces
    w.cluster = msgspec.structs.replace(w.cluster, namespaces={**w.cluster.namespaces, **meant})
    assert w.code(move) is ReasonCode.CHANGED_SINCE_PLAN


def service(name: str, **selector: str) -> Json:
    """A Service that selects by these labels."""
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector}}


@pytest.mark.parametrize(
    ("when", "now", "holds", "built"),
    [
        ("DoNotSchedule", [service("all", app="web")], True, 0),
        ("DoNotSchedule", [service("all", app="web"), service("other", app="x")], True, 1),
        ("DoNotSchedule", [], False, 1),
        ("ScheduleAnyway", [], True, 0),
    ],
    ids=["as planned", "one more of others", "gone", "gone where they are soft"],
)
def test_services_by_which_hard_default_constraints_count_are_followed(
    when: Literal["DoNotSchedule", "ScheduleAnyway"], now: Sequence[Json], holds: bool, built: int
) -> None:
    """Nothing else selects the pods of a custom controller."""
    default = TopologySpreadConstraint(
        max_skew=1, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=when
    )
    web = workload("web").labels(app="web").placed({"a-0": 3, "b-0": 1})
    things = objects(nodes(a=1, b=1, c=1), web.spread("zone", 1) if when == "ScheduleAnyway" else web)
    things = [o for o in things if o["kind"] in ("Node", "Pod")]
    for o in things:
        for owner in o["metadata"].get("ownerReferences", ()):
            owner |= {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet"}
    profile = Profile(system_defaulted=False, default_constraints=(default,))
    policy = PolicyOptions(owner_kinds_allow=("CloneSet",))
    options = PlanOptions(policy=policy, scheduler=SchedulerConfig(profiles=(profile,)))
    w = World(decoded([*things, service("all", app="web")]), options)
    (move,) = w.plan.moves
    read = whole_kinds(move, w.look.hard_defaults)
    assert (("Service", "default") in read) is (when == "DoNotSchedule"), "lest a watch hides them"
    w.cluster = msgspec.structs.replace(w.cluster, services=snapshot(*now).services)
    for _ in range(2):
        assert (w.code(move) is None) is holds
        assert w.built == built, "built again once"


def test_another_default_priority_ends_what_was_planned_with_the_former() -> None:
    """A replacement that ranks higher may preempt others."""
    w = web()
    move = w.plan.moves[0]
    assert w.code(move) is None
    gold: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
    for built, rank in enumerate(({"value": 9}, {"value": 9, "globalDefault": True}), 1):
        classes = snapshot({**gold, **rank}).priority_classes
        w.cluster = msgspec.structs.replace(w.cluster, priority_classes=classes)
        for _ in range(2):
            assert (w.code(move) is ReasonCode.CHANGED_SINCE_PLAN) is ("globalDefault" in rank)
            assert w.built == built, "built again once, for classes by which volumes attach, too"


def test_a_place_that_a_volume_keeps_when_its_pod_is_gone_is_missed() -> None:
    set_ = stateful_set("db").spread("hostname").placed({"a-0": 2}).zonal_volumes({"a-0": ""})
    limits = csi_node("a-0", 5), csi_node("b-0", 1)
    w = World(snapshot(nodes(a=1, b=1), set_, *limits, volume("old", "gone")))
    (move,) = w.plan.moves
    assert w.code(move) is None
    attached = snapshot(attachment("old", "b-0")).attachments
    w.cluster = msgspec.structs.replace(w.cluster, attachments=attached)
    assert w.code(move) is not None
    w.cluster = msgspec.structs.replace(w.cluster, attachments=())
    assert w.code(move) is None
    assert w.built == 0


def test_room_that_is_given_back_is_seen() -> None:
    w = web(workload("other").requests(cpu="1").placed({"a-0": 1}))
    move = w.plan.moves[0]
    other = next(p for p in w.pods.values() if p.name.startswith("other"))
    for i in range(6):
        w.add(other, f"new-{i}", node_name="b-0")
    assert w.code(move) is ReasonCode.CHANGED_SINCE_PLAN
    w.change(w.pods["new-0"], phase="Succeeded")
    assert w.code(move) is None
    del w.pods["new-1"]
    assert w.code(move) is None


@pytest.mark.parametrize("target", [{"cpu": "2"}, {"cpu": "100m"}, {}], ids=["more", "less", "nothing yet"])
def test_no_move_stays_certain_once_an_autoscaler_has_come(target: dict[str, str]) -> None:
    w = web()
    w.sized(vpa("ReplicaSet", **target))
    reason = w.look.why_not(w.plan.moves[0])
    assert reason is not None
    assert reason.code is ReasonCode.CHANGED_SINCE_PLAN
    assert "VerticalPodAutoscaler" in reason.message
    w.sized(vpa("ReplicaSet", mode="Off", **target))
    assert w.code(w.plan.moves[0]) is None


def test_a_recommendation_that_has_grown_is_seen_and_one_that_has_shrunk_does_no_harm() -> None:
    w = web(vpa("ReplicaSet", cpu="2"), certainty="likely")
    move = w.plan.moves[0]
    assert w.code(move) is None
    w.sized(vpa("ReplicaSet", cpu="64"))
    assert w.code(move) is ReasonCode.CHANGED_SINCE_PLAN
    w.sized(vpa("ReplicaSet", cpu="1"))
    assert w.code(move) is None
    w.sized()
    assert w.code(move) is None


def test_what_others_repaired_is_not_repaired_twice() -> None:
    """Somebody else deletes two of the pods, and they come back in zone b."""
    w = web()
    mine = w.plan.moves[0].pod
    others = [p for p in w.pods.values() if p.uid not in {m.pod.uid for m in w.plan.moves}]
    for p in others:
        del w.pods[p.uid]
        w.add(p, f"{p.name}-again", node_name="b-0")
    reason = w.look.why_not(w.plan.moves[0])
    assert reason is not None
    assert reason.message.endswith("could now return to topology.kubernetes.io/zone=a")
    assert mine.uid in w.pods


def test_a_pod_that_nobody_counts_changes_nothing() -> None:
    w = web(workload("other").requests(cpu="1").placed({"a-0": 1}))
    other = next(p for p in w.pods.values() if p.name.startswith("other"))
    w.add(other, "new", node_name="b-0")
    assert w.code(w.plan.moves[0]) is None


def test_a_victim_that_is_gone_terminating_or_finished_is_none() -> None:
    w = web()
    first, second = w.plan.moves
    w.change(first.pod, deleted=5.0)
    assert w.code(first) is ReasonCode.TERMINATING
    w.change(first.pod, phase="Failed")
    assert w.code(first) is ReasonCode.CHANGED_SINCE_PLAN
    del w.pods[second.pod.uid]
    assert w.code(second) is ReasonCode.CHANGED_SINCE_PLAN


def guarded(*placed: int) -> tuple[Builder, ...]:
    """Pods on b-0 whose constraint over nodes counts web's pods too, which do not carry it."""
    guard = workload("guard").labels(tier="front").spread("hostname", 3, selector={"tier": "front"})
    return tuple(guard.placed({"b-0": n}) for n in placed)


def front(*more: Builder) -> World:
    """As `web`, its pods selected by others as well."""
    owner = workload("web").labels(tier="front").spread("zone", 1).placed({"a-0": 4})
    return World(snapshot(node("a-0").zone("a"), node("b-0").zone("b"), owner, *more))


def test_a_constraint_that_counts_the_pod_and_is_another_ones_is_not_made_worse() -> None:
    """With two guards 4 and 2, then 3 and 3, is fine; with six 3 and 7 is not."""
    w = front(*guarded(2))
    move = w.plan.moves[0]
    assert w.code(move) is None
    guard = next(p for p in w.pods.values() if p.name.startswith("guard"))
    for i in range(4):
        w.add(guard, f"new-{i}", node_name="b-0")
    reason = w.look.why_not(move)
    assert reason is not None
    assert reason.code is ReasonCode.WOULD_WORSEN
    assert reason.message.endswith("over kubernetes.io/hostname (maxSkew 3) from 0 to 1")
    assert reason.numbers == {"before": 0, "after": 1}
    del w.pods["new-0"]
    assert w.code(move) is None


def test_a_constraint_that_came_after_the_plan_counts_as_well() -> None:
    w = front()
    move = w.plan.moves[0]
    assert w.code(move) is None
    came = snapshot(node("a-0").zone("a"), node("b-0").zone("b"), *guarded(6)).pods
    w.pods.update((p.uid, p) for p in came)
    assert w.code(move) is ReasonCode.WOULD_WORSEN
    for p in came:
        w.change(p, deleted=1.0)
    assert w.code(move) is None


def test_a_constraint_that_does_not_count_the_pod_has_no_say() -> None:
    guard = workload("guard").labels(tier="back").spread("hostname", 1, selector={"tier": "back"})
    w = front(guard.placed({"b-0": 6}))
    assert w.code(w.plan.moves[0]) is None


def test_an_excess_that_is_there_already_is_no_obstacle_unless_it_grows() -> None:
    w = front(*guarded(2))
    move = w.plan.moves[0]
    guard = next(p for p in w.pods.values() if p.name.startswith("guard"))
    for i in range(8):
        w.add(guard, f"new-{i}", node_name="a-0")
    assert w.code(move) is None


def guarded_zone(certainty: Certainty) -> tuple[World, Move]:
    """A move, taken for a likely one, that may land on b-0, or on c-0, where guards came since the plan."""
    owner = workload("web").labels(tier="front").spread("zone", 1).placed({"a-0": 3, "b-0": 1, "c-0": 1})
    w = World(snapshot(nodes(a=1, b=1, c=1), owner), certainty=certainty)
    (move,) = w.plan.moves
    assert move.destinations == ("b-0", "c-0")
    guard = workload("guard").labels(tier="front").spread("hostname", 3, selector={"tier": "front"})
    came = snapshot(nodes(a=1, b=1, c=1), guard.placed({"c-0": 3})).pods
    w.pods.update((p.uid, p) for p in came)
    return w, msgspec.structs.replace(move, certain=False)


def test_a_likely_move_is_asked_of_every_node_that_the_filter_leaves() -> None:
    w, move = guarded_zone("certain")
    assert w.code(move) is ReasonCode.WOULD_WORSEN


def test_a_policy_that_trusts_the_scores_asks_the_best_scored_only() -> None:
    w, move = guarded_zone("likely")
    assert w.code(move) is None


def soft(*things: object) -> World:
    return World(snapshot(*things), PlanOptions(soft="predicted"))


@pytest.mark.parametrize("backwards", [False, True])
def test_moves_for_soft_constraints_hold_with_the_others_of_their_wave_on_their_way(backwards: bool) -> None:
    many = [workload(f"w{i}").spread("zone", 1, soft=True).placed({"a-0": 4, "b-0": 1}) for i in range(8)]
    w = soft(nodes(a=2, b=2, c=2), many)
    assert {len(wave) for wave in w.plan.waves} == {8}
    for wave in w.plan.waves:
        moves = list(reversed(wave)) if backwards else list(wave)
        for move in moves:
            assert w.look.why_not(move) is None
            w.evict(move)
        for move in moves:
            w.land(move)


def test_a_soft_constraint_that_others_have_turned_round_is_left_alone() -> None:
    """Three pods come up where the replacement was to go."""
    w = soft(nodes(a=1, b=1), workload("web").spread("zone", 1, soft=True).placed({"a-0": 3, "b-0": 1}))
    (move,) = w.plan.moves
    assert w.code(move) is None
    for i in range(3):
        w.add(move.pod, f"new-{i}", node_name="b-0")
    reason = w.look.why_not(move)
    assert reason is not None
    assert reason.code is ReasonCode.CHANGED_SINCE_PLAN
    assert "the scheduler's scores now prefer a-0" in reason.message


A = node("a-0").zone("a").cpu(6)
B = node("b-0").zone("b").cpu(6)
AMD = node("a-0").zone("a").cpu(6).label("kubernetes.io/arch", "amd64")

NODES: list[tuple[str, tuple[Builder, ...], str]] = [
    ("the only destination is cordoned", (A, node("b-0").zone("b").cpu(6).cordoned()), "cordoned"),
    ("the only destination is gone", (A,), "1 removed (b-0)"),
    ("the only destination is in the same zone now", (A, node("b-0").zone("a").cpu(6)), "relabelled"),
    ("the only destination is too small", (A, node("b-0").zone("b").cpu(0)), "resized (b-0)"),
    ("the only destination is of another architecture now",
     (AMD, node("b-0").zone("b").cpu(6).label("kubernetes.io/arch", "arm64")), "relabelled"),
    ("one that could be a destination is of another architecture",
     (AMD, B, node("b-1").zone("b").cpu(6).label("kubernetes.io/arch", "arm64")), "architecture"),
    ("another node of that zone has come", (A, B, node("b-1").zone("b").cpu(6)), ""),
    ("the destination has gone, another has come", (A, node("b-1").zone("b").cpu(6)), ""),
    ("another zone has come", (A, B, node("c-0").zone("c").cpu(6)), ""),
    ("a tainted node has come", (A, B, node("x").zone("a").cpu(64).taint("batch", "NoSchedule")), ""),
    ("a node of no zone has come", (A, B, node("x").cpu(64)), ""),
    ("the zone that is left has another node", (A, B, node("a-1").zone("a").cpu(64)), ""),
]  # fmt: skip


@pytest.mark.parametrize(("there", "why"), [n[1:] for n in NODES], ids=[n[0] for n in NODES])
def test_nodes_that_changed_since_the_plan_matter_as_far_as_the_move_does(
    there: tuple[Builder, ...], why: str
) -> None:
    w = web()
    w.nodes(*there)
    reason = w.look.why_not(w.plan.moves[0])
    if not why:
        assert reason is None
    else:
        assert reason is not None
        assert reason.code is ReasonCode.NODES_CHANGED
        assert why in reason.message


def waiting() -> World:
    """Six pods in two zones that are full with them; a node for the third could be added."""
    tight = (node("a-0").zone("a").cpu(16), node("b-0").zone("b").cpu(16), node("c-0").zone("c").cpu(1))
    web = deployment("web").requests(cpu=2).spread("zone", 1).placed({"a-0": 3, "b-0": 3})
    options = PlanOptions(policy=PolicyOptions(method="auto", into_new_nodes=True))
    return World(snapshot(*tight, web, node_pool("default", zones=["c"])), options)


LOW: Json = {
    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": -10
}  # fmt: skip
COME: dict[str, tuple[tuple[Builder | Json, ...], str]] = {
    "the pool has changed": ((node_pool("default", zones=["c", "d"]),), "NodePools have changed"),
    "a node with room": ((node("c-1").zone("c").cpu(16),), "a node that is there would take"),
    "a node that will have room": (
        (node("c-1").zone("c").cpu(2), pod("other").requests(cpu=2).on("c-1").terminating()),
        "a node that is there would take",
    ),
    "a lower PriorityClass": ((LOW,), "could preempt others: PriorityClass low is lower"),
}


@pytest.mark.parametrize(("come", "why"), COME.values(), ids=COME)
def test_a_move_waits_for_a_node_only_as_long_as_nothing_that_has_come_speaks_against_it(
    come: tuple[Builder | Json, ...], why: str
) -> None:
    w = waiting()
    (move,) = w.plan.moves
    assert move.awaits
    assert w.look.why_not(move) is None
    new = snapshot(*come)
    w.pods.update((p.uid, p) for p in new.pods)
    w.cluster = msgspec.structs.replace(
        w.cluster,
        nodes=(*w.cluster.nodes, *new.nodes),
        node_pools=new.node_pools or w.cluster.node_pools,
        priority_classes=new.priority_classes or w.cluster.priority_classes,
    )
    reason = w.look.why_not(move)
    assert reason is not None
    assert why in reason.message


class Maintenance(Plugin):
    """A plugin that is new: nodes with a label take nobody."""

    name = "Maintenance"

    def filter(self, template: PodTemplate, node_name: str) -> Filter:  # noqa: ARG002
        """Asks the table of nodes, which remembers what it was asked."""
        closed = self.table.answers(lambda n: "maintenance" in n.labels, "maintenance")
        return StaticFilter(~np.array(closed), "Unschedulable", "node(s) in maintenance")


def test_what_a_new_plugin_asks_of_nodes_is_asked_again_before_an_eviction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PLUGINS, Maintenance.name, Maintenance)
    profile = Profile(filters=(*FILTERS, Maintenance.name))
    things = A, B, workload("web").spread("zone", 1).requests(cpu="1").placed({"a-0": 4})
    w = World(snapshot(*things), PlanOptions(scheduler=SchedulerConfig(profiles=(profile,))))
    w.nodes(A, node("b-0").zone("b").cpu(6).label("maintenance", "true"))
    assert w.code(w.plan.moves[0]) is ReasonCode.NODES_CHANGED


def test_a_node_that_has_come_is_a_destination_from_then_on() -> None:
    w = web()
    move = w.plan.moves[0]
    w.nodes(A, B, node("b-1").zone("b").cpu(6))
    assert w.look.why_not(move) is None
    assert w.look.destinations(move) == ("b-0", "b-1")


def test_a_node_that_says_it_is_alive_costs_nothing() -> None:
    w = web()
    w.nodes(A, B)
    assert w.look.why_not(w.plan.moves[0]) is None
    assert w.built == 0


def test_what_has_been_mended_is_not_mended_again_even_where_nothing_would_return() -> None:
    """The zone that the move leaves takes no pods any more, and the constraint holds by now: [2, 1]."""
    w = web()
    move = w.plan.moves[0]
    gone, moved = [p for p in w.pods.values() if p.uid not in {m.pod.uid for m in w.plan.moves}]
    del w.pods[gone.uid], w.pods[moved.uid]
    w.add(moved, f"{moved.name}-again", node_name="b-0")
    scaled = (msgspec.structs.replace(o, replicas=3) for o in w.cluster.workloads)
    w.cluster = msgspec.structs.replace(w.cluster, workloads=tuple(scaled))
    w.nodes(node("a-0").zone("a").cpu(6).cordoned(), B)
    reason = w.look.why_not(move)
    assert reason is not None
    assert "has been mended" in reason.message


@pytest.mark.parametrize(("to", "goes"), [("c", False), ("b", True)])
def test_what_is_left_to_mend_elsewhere_is_no_reason_to_go(to: str, goes: bool) -> None:
    """Zone a, where no pod can land any more, has lost one: [4, 5, 3] leaves it no pod too many, [4, 6, 2]
    does; b's excess is the next move's."""
    there = [node(f"{zone}-0").zone(zone).cpu(9) for zone in "bc"]
    web = workload("web").spread("zone", 1).placed({"a-0": 5, "b-0": 5, "c-0": 2})
    w = World(snapshot(A, *there, web))
    move = next(m for m in w.plan.moves if m.pod.node_name == "a-0")
    assert w.look.why_not(move) is None
    other = next(p for p in w.pods.values() if p.node_name == "a-0" and p.uid != move.pod.uid)
    w.change(other, node_name=f"{to}-0")
    w.nodes(node("a-0").zone("a").cpu(6).cordoned(), *there)
    reason = w.look.why_not(move)
    assert goes if reason is None else "has been mended" in reason.message


def test_a_disagreement_of_the_scheduler_since_the_plan_stops_what_rests_on_it() -> None:
    things = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    w = World(snapshot(*things))
    (move, *_) = w.plan.moves
    w.witness = Witness(doubted={("default-scheduler", "NodePorts takes: hostIP"): "it took a port"})
    assert w.look.why_not(move) is None
    w.witness = Witness(doubted={("default-scheduler", "PodTopologySpread rejects: In"): "it went to a-0"})
    reason = w.look.why_not(move)
    assert reason is not None
    assert reason.message == "since the plan, it went to a-0"


def pair() -> World:
    """Two StatefulSets with two pods each in zone a; one pod of each has to go to b, where two nodes have
    room for one pod each."""
    return World(
        snapshot(
            node("a-0").zone("a").cpu(4),
            node("b-0").zone("b").cpu(1),
            node("b-1").zone("b").cpu(1),
            *(
                workload(n, "StatefulSet").spread("zone", 1).requests(cpu="1").placed({"a-0": 2})
                for n in ("u", "v")
            ),
        )
    )


def test_beside_a_replacement_that_takes_the_last_room_no_other_goes() -> None:
    w = pair()
    first, second = w.plan.moves
    assert first.wave == second.wave
    w.evict(first)
    assert w.beside(second, [first])
    other = next(iter(w.pods.values()))
    newcomer = msgspec.structs.replace(other.template, labels={"app": "other"}, spread=())
    w.add(other, "newcomer", template=newcomer, node_name="b-0", owner=None)
    assert w.code(second) is None, "by itself it is right"
    assert not w.beside(second, [first])
    w.evict(second)
    del w.pods["newcomer"]
    assert w.beside(second, [first])


def test_beside_a_replacement_no_other_goes_to_the_one_node_that_is_left() -> None:
    w = pair()
    first, second = w.plan.moves
    w.evict(first)
    there = node("a-0").zone("a").cpu(4), node("b-0").zone("b").cpu(1)
    w.nodes(*there, node("b-1").zone("b").cpu(1).cordoned())
    assert w.code(second) is None
    assert not w.beside(second, [first])


@pytest.mark.parametrize("volumes", [(), (Volume("data", "persistentVolumeClaim", claim="made-later"),)])
def test_no_pod_goes_whose_room_another_has_come_to_wait_for(volumes: tuple[Volume, ...]) -> None:
    w = pair()
    first, second = w.plan.moves
    other = first.pod
    alone = msgspec.structs.replace(other.template, labels={"app": "other"}, spread=(), volumes=volumes)
    waits = {"template": alone, "node_name": "", "owner": None, "phase": "Pending"}
    w.add(other, "one", **waits)
    assert w.code(first) is None, "there is room for both"
    w.add(other, "two", **waits)
    assert w.code(first) is ReasonCode.CHANGED_SINCE_PLAN
    assert w.code(second) is ReasonCode.CHANGED_SINCE_PLAN
