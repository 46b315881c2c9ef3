"""What a pod of others is when it is made anew is not known for sure: room is kept for all that it may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rebalancer.planner import plan
from tests.support.build import ago, deployment, node, objects, snapshot, stateful_set
from tests.support.build.volumes import claim, csi_node, volume
from tests.support.scheduler.plain import Json
from tests.unit.planner.cluster.test_bystanders import (
    HALF_DONE,
    LEAVES,
    SET_HASH,
    ZONE_B,
    given,
    updated,
    web,
)
from tests.unit.policy.test_vertical_autoscalers import vpa

GOING = node("z-0").zone("b").cpu(4).taint(LEAVES)
POOL = {"nodeSelector": {"pool": "none"}}


BESIDE = node("b-9").zone("b").cpu(2)


def of(cpu: int, kind: Any = stateful_set, *beside: str) -> Any:
    return kind("other").requests(cpu=cpu).on_nodes(["z-0", *beside])


def told(found: list[Json], **spec: Any) -> list[Json]:
    """The template says this."""
    for one in found:
        if one["kind"] != "Pod":
            one["spec"]["template"]["spec"].update(spec)
    return found


def sized(found: list[Json], cpu: int | str) -> list[Json]:
    """The template asks for so much."""
    return told(found, containers=[{"name": "c", "image": "c", "resources": {"requests": {"cpu": str(cpu)}}}])


def staged(found: list[Json]) -> list[Json]:
    """An update of the set is held back by its partition."""
    for one in (o for o in found if o["kind"] == "StatefulSet"):
        one["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    return found


def unlike(found: list[Json]) -> list[Json]:
    """Of two pods of one revision a webhook sent the younger, which is not Ready, to another pool."""
    old, young = (o for o in found if o["kind"] == "Pod")
    old["metadata"]["creationTimestamp"], young["metadata"]["creationTimestamp"] = ago(900), ago(300)
    key = {"key": "pool", "operator": "In", "values": ["none"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [key]}]}
    young["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for condition in young["status"]["conditions"]:
        condition["status"] = "False"
    return found


def admitted(found: list[Json], **spec: Any) -> list[Json]:
    """Admission gave the pods this, and no template has it."""
    for one in (o for o in found if o["kind"] == "Pod"):
        one["spec"].update(spec)
    return found


def sidecar_too(cpu: str, proxy: str) -> Json:
    """An autoscaler that sizes what is injected, too."""
    found = vpa(name="other", cpu=cpu)
    recommended = found["status"]["recommendation"]["containerRecommendations"]
    recommended.append({"containerName": "proxy", "target": {"cpu": proxy}})
    return found


sent = partial(admitted, nodeSelector=ZONE_B)
INIT = {"name": "init", "image": "i", "resources": {"requests": {"cpu": "500m"}}}


def off_the_pool(rolls: Any) -> list[Json]:
    """Its next revision neither selects the pool nor tolerates its taint."""
    found: list[Json] = rolls(lambda kind: kind("other").requests(cpu=2).on_nodes(["s-0", "a-1"]), ["a-1"])
    pool = {"nodeSelector": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
    for one in found:
        spec = one["spec"].get("template", one)["spec"]
        old = one["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision") == "1"
        if old or spec.get("nodeName") == "s-0":
            spec.update(pool)
    machines = node("s-0").zone("s").cpu(8).label("pool", "spot").taint("spot"), node("a-1").zone("a").cpu(2)
    return [*objects(machines), *found]


def canary() -> list[Json]:
    """Each revision is spread by itself. Of four pods the two newest are of the next one, in a and b; the one
    that follows may go to c alone."""
    ruled = stateful_set("other").spread("zone", match_label_keys=(SET_HASH,)).requests(cpu="1800m")
    found = staged(updated(ruled.on_nodes(["b-9", "a-9", "a-8", "b-8"]), ("a-8", "b-8")))
    machines = [node(n).zone(n[0]).cpu(2) for n in ("a-8", "a-9", "b-8", "b-9")]
    return [*objects(machines), *found]


ANEW: dict[str, Callable[[], Any]] = {
    "as its template, which has come to ask for less": lambda: sized(updated(of(3).on_delete(), ()), 2),
    "as an autoscaler has it now": lambda: [
        *sized(objects(of(3, deployment)), 1),
        vpa(name="other", cpu="2"),
    ],
    "as an autoscaler has it now, with a sidecar": lambda: [
        *given(sized(objects(of(3, deployment)), 1), z_0="200m"),
        vpa(name="other", cpu="1800m"),
    ],
    "as an autoscaler has it now, and its sidecar": lambda: [
        *given(sized(objects(of(3, deployment)), 1), z_0="200m"),
        sidecar_too("1500m", "500m"),
    ],
    "as an autoscaler has it now, which takes more than what runs before it": lambda: [
        *admitted(sized(objects(of(3, deployment)), 1), initContainers=[INIT]),
        vpa(name="other", cpu="2"),
    ],
    "as an autoscaler has it now, where admission sends it": lambda: [
        *objects(node("a-1").zone("a").cpu(2)),
        *sent(sized(objects(of(3, deployment)), 1)),
        vpa(name="other", cpu="2"),
    ],
    "as its template, which has come to ask for less, where admission sends it": lambda: [
        *objects(node("a-1").zone("a").cpu(2)),
        *sent(sized(HALF_DONE["a Deployment"](partial(of, 3), ()), 2)),
    ],
    "as its template, a set's, which has come to ask for less, where admission sends it": lambda: [
        *objects(node("a-1").zone("a").cpu(2)),
        *sent(sized(HALF_DONE["a set"](partial(of, 3), ()), 2)),
    ],
    "as its template, with what a runtime takes that admission gives it": lambda: admitted(
        sized(HALF_DONE["a Deployment"](partial(of, 3), ()), "1800m"),
        runtimeClassName="boxed",
        overhead={"cpu": "200m"},
    ),
    "out of the pool that nothing names any more": lambda: admitted(objects(of(2, deployment)), **POOL),
    "as its template, which has come to ask for less, out of that pool": lambda: admitted(
        sized(HALF_DONE["a Deployment"](partial(of, 3), ()), 2), **POOL
    ),
    "as it is, for its update is held back: the next would be larger": lambda: sized(
        staged(updated(of(2), ())), 3
    ),
    "as it is, for its update is held back: the next goes elsewhere": lambda: told(
        staged(updated(of(2), ())), **POOL
    ),
    "as it is, whatever another one has": lambda: [
        *objects(BESIDE),
        *unlike(objects(of(2, deployment, "b-9"))),
    ],
    "without the rules of another pool, by a Deployment": lambda: off_the_pool(HALF_DONE["a Deployment"]),
    "without the rules of another pool, by a set": lambda: off_the_pool(HALF_DONE["a set"]),
}


@pytest.mark.parametrize("made", ANEW.values(), ids=ANEW)
def test_a_pod_is_made_anew(made: Callable[[], Any]) -> None:
    """It takes 2 cpu, and only b-1 may have them."""
    for cpu, moves in (("1900m", 1), ("2400m", 0), ("2500m", 1)):
        machines = [node("a-0").zone("a").cpu(2), node("b-1").zone("b").cpu(cpu)]
        assert len(plan(snapshot(*machines, GOING, *made(), web())).moves) == moves, cpu


def test_a_pod_of_a_canary_is_counted_by_the_revision_that_it_will_have() -> None:
    for cpu, moves in (("1700m", 1), ("3200m", 0), ("3300m", 1)):
        machines = [node(n).zone(n[0]).cpu(16) for n in ("a-0", "b-0")]
        other = deployment("web").spread("zone").requests(cpu="1500m").placed({"a-0": 2, "b-0": 1})
        made = plan(snapshot(*machines, node("c-0").zone("c").cpu(cpu), canary(), other))
        assert len(made.moves) == moves, cpu


def kept(owner: Any, zones: str) -> list[Json]:
    """A set whose pods have a claim each, of which so many are there, with a volume in this zone."""
    made = objects(owner)
    name = made[0]["metadata"]["name"]
    made[0]["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    for one in made[1:]:
        one["metadata"]["creationTimestamp"] = ago(60)
        mounted = {"claimName": f"data-{one['metadata']['name']}"}
        one["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": mounted}]
    for i, zone in enumerate(zones):
        its = f"data-{name}-{i}"
        made += objects(claim(its, f"v-{name}-{i}"), volume(f"v-{name}-{i}", its, zone=zone))
    return made


TOLERATES = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize("kind", [deployment, stateful_set])
@pytest.mark.parametrize("gives", [{"tolerations": [TOLERATES]}, {"nodeSelector": ZONE_B}], ids=list)
def test_a_pod_to_come_has_what_admission_gave_the_one_that_is_there(kind: Any, gives: Json) -> None:
    """A second one is to be made. Nobody but b-1 may have it; what it needs for that is in no template."""
    two = kind("other").requests(cpu=3).replicas(2).on_nodes(["b-2"])
    found = admitted(objects(two), **gives)
    found[-1]["metadata"]["creationTimestamp"] = ago(60)
    for cpu, moves in (("3200m", 0), ("3600m", 1)):
        zone_b = node("b-1").zone("b").cpu(cpu), node("b-2").zone("b").cpu(3)
        machines = [node("a-0").zone("a").cpu(2), *zone_b]
        if "tolerations" in gives:
            for one in zone_b:
                one.taint("gpu", effect="NoSchedule")
        else:
            machines.append(node("a-1").zone("a").cpu(16))
        made = plan(snapshot(machines, *found, *tolerant(web())))
        assert len(made.moves) == moves, cpu


def tolerant(owner: Any) -> list[Json]:
    return told(admitted(objects(owner), tolerations=[TOLERATES]), tolerations=[TOLERATES])


@pytest.mark.parametrize("made", [lambda: of(2, deployment), lambda: HALF_DONE["a set"](partial(of, 2), ())])
def test_a_selector_that_is_gone_takes_no_toleration_with_it(made: Callable[[], Any]) -> None:
    """The pool that it was in is named no more; a webhook still has it tolerate the taint of the next."""
    found = admitted(objects(made()), tolerations=[TOLERATES], **POOL)
    for cpu, moves in (("1900m", 1), ("2400m", 0), ("2500m", 1)):
        next_pool = node("b-1").zone("b").cpu(cpu).taint("gpu", effect="NoSchedule")
        machines = node("a-0").zone("a").cpu(2), next_pool
        assert len(plan(snapshot(*machines, GOING, *found, *tolerant(web()))).moves) == moves, cpu


@pytest.mark.parametrize(("zones", "moves"), [("ab", 0), ("a", 1)], ids=["is there", "is made with it"])
def test_a_pod_that_a_set_makes_in_turn_goes_where_its_claim_is(zones: str, moves: int) -> None:
    """db-1 is yet to be made: a has plenty of room, and the volume is in b."""
    db = kept(stateful_set("db").requests(cpu=3).replicas(2).on_nodes(["a-1"]), zones)
    machines = node("a-0").zone("a").cpu(2), node("a-1").zone("a").cpu(16), node("b-1").zone("b").cpu("3200m")
    assert len(plan(snapshot(*machines, *db, web())).moves) == moves


def test_a_kept_claim_says_where_its_pod_goes_and_not_which_domains_its_constraints_know() -> None:
    spread = stateful_set("db").requests(cpu=3).spread("zone", min_domains=2)
    db = kept(spread.replicas(3).on_nodes(["a-1", "b-2"]), "abb")
    for cpu, moves in (("3200m", 0), ("3600m", 1)):
        zone_b = node("b-1").zone("b").cpu(cpu), node("b-2").zone("b").cpu(3)
        machines = node("a-0").zone("a").cpu(2), node("a-1").zone("a").cpu(16), *zone_b
        assert len(plan(snapshot(*machines, *db, web())).moves) == moves, cpu


def test_a_kept_claim_keeps_its_place_on_a_node_that_attaches_no_more() -> None:
    """Only b-1 has room for db-1, and one place for a volume."""
    db = kept(stateful_set("db").requests(cpu=1).replicas(2).on_nodes(["a-1"]), "ab")
    full = kept(stateful_set("full").spread("hostname").requests(cpu="500m").on_nodes(["b-0"] * 3), "bbb")
    zone_b = node("b-0").zone("b").cpu("1500m"), node("b-1").zone("b").cpu(8)
    machines = (*zone_b, node("a-1").zone("a").cpu(16).taint("x"), csi_node("b-0", 9), csi_node("b-1", 1))
    assert not plan(snapshot(*machines, *db, *full)).moves


def test_pods_with_claims_of_their_own_leave_others_room_where_there_is_plenty() -> None:
    names = [f"{'abc'[i % 3]}-{i}" for i in range(300)]
    machines = [node(n).zone(n[0]).cpu(16) for n in names]
    db = kept(stateful_set("db").requests(cpu=4).replicas(3).on_nodes(names[:1]), "abc")
    old = [n for n in names if n[0] != "c"]
    webs = [deployment(f"web{k}").spread("zone").requests(cpu="500m") for k in range(20)]
    placed = [w.on_nodes(old[k : k + 12]) for k, w in enumerate(webs)]
    made = plan(snapshot(machines, [csi_node(n, 9) for n in names], db, placed))
    assert made.moves
    assert not made.blocked


@pytest.mark.parametrize("kind", [deployment, stateful_set])
def test_an_owner_that_wants_a_billion_pods_is_no_burden(kind: Any) -> None:
    many = objects(kind("many").requests(cpu=30).on_nodes(["a-1"]))
    for one in (o for o in many if o["kind"] != "Pod"):
        one["spec"]["replicas"] = 2_000_000_000
        one["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    machines = node("a-0").zone("a").cpu(2), node("a-1").zone("a").cpu(16), node("b-1").zone("b").cpu("3200m")
    assert len(plan(snapshot(*machines, *many, web())).moves) == 1
