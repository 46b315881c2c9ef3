"""Each protection of a plan is asked again before a request, of what is true then.

The table has a row for every protection: what happens after the plan, and makes it say no.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from rebalancer.kube.resources import RESOURCES
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.evictable import PROTECTIONS
from rebalancer.policy.options import Approved, PolicyOptions, Refused
from rebalancer.runtime.cycle.gates import Away
from rebalancer.runtime.last_look.look import LOOK, Looking
from tests.sandbox.cycle.last_look.test_last_look import World, quota
from tests.support.build import claim, deployment, nodes, objects, pdb, stateful_set, volume
from tests.support.sandbox import ApiServer
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.servers.api import connected
from tests.support.servers.watching import QUICK, watching
from tests.support.waiting import until

EVICTING = {"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/eviction-in-progress": "true"}}}
NARROWED = {"spec": {"selector": {"matchLabels": {"app": None, "other": "one"}}}}
EXHAUSTED = {"status": {"disruptionsAllowed": 0}}
NO = {"metadata": {"annotations": {"rebalancer.io/evict": "false"}}}
GOLD = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "gold"},
    "value": 1000,
}
WEB = deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1})
SHOP = (*nodes(a=1, b=1), WEB, pdb("web", {"app": "web"}, max_unavailable=1), GOLD)


class After(NamedTuple):
    """What happens after a plan of `things` by the `policy`, and what the protection says then."""

    happens: Callable[[World], object]
    code: ReasonCode
    policy: PolicyOptions = PolicyOptions()
    things: Callable[[], list[Any]] = lambda: objects(*SHOP)


def sibling(world: World) -> str:
    """Another pod of the owner."""
    return next(p.name for p in world.snapshot.pods if p.name != world.pod)


def policy(**changes: Any) -> Callable[[World], object]:
    """The settings change."""

    def change(world: World) -> None:
        world.policy = replace(world.policy, **changes)

    return change


def refusal(world: World) -> None:
    """A webhook did not let the pod go."""
    victim = world.move.pod
    policy(refused={victim.key: Refused.of(victim, 0.0, "it leads")})(world)


def make(world: World, *made: Any) -> None:
    """Somebody makes objects, and the watch brings them."""
    for o in made:
        world.server.store.create(o)
    last = made[-1]["metadata"]
    until(lambda: world.cache.version_of(made[-1]["kind"], last.get("namespace", ""), last["name"]))


def data_base() -> list[Any]:
    """Each pod of a StatefulSet has a claim of its own, which one node can attach."""
    made = objects(*nodes(a=1, b=1), stateful_set("db").spread("zone", 1).placed({"a-0": 3}))
    for o in [o for o in made if o["kind"] == "Pod"]:
        name = o["metadata"]["name"]
        o["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        made += objects(claim(name, f"pv-{name}"), volume(f"pv-{name}", name))
    (db,) = (o for o in made if o["kind"] == "StatefulSet")
    db["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    return made


def backup(world: World) -> None:
    """A Job mounts the claim, too."""
    victim = world.server.store.get("Pod", world.pod, "default")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "backup", "uid": "j-1", "controller": True}
    of_job = {"name": "backup", "namespace": "default", "labels": {}, "ownerReferences": [job]}
    make(world, {**deepcopy(victim), "metadata": of_job})


def rollout() -> list[Any]:
    """As `SHOP`, of Argo's."""
    made = [o for o in objects(*SHOP) if o["kind"] != "Deployment"]
    of_argo = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "r-1"}
    for o in made:
        if o["kind"] == "ReplicaSet":
            o["metadata"]["ownerReferences"] = [{**of_argo, "controller": True}]
    return made


def next_revision(world: World) -> None:
    """It begins with a preview."""
    new = deepcopy(world.server.store.get("ReplicaSet", world.replica_set, "default"))
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        new["metadata"].pop(key, None)
    new["metadata"]["name"] = "web-next"
    make(world, new)


AFTER: Mapping[str, list[After]] = {
    "what the pod is": [After(lambda w: w.patch("Pod", w.pod, EVICTING), ReasonCode.TERMINATING)],
    "a newer Kubernetes": [
        After(policy(held=Reason(ReasonCode.NEWER_VERSION, "newer")), ReasonCode.NEWER_VERSION)
    ],
    "a reviewed plan": [After(policy(approved=Approved(frozenset(), "a file")), ReasonCode.NOT_IN_PLAN)],
    "scope and annotations": [
        After(lambda w: w.patch("Deployment", "web", NO), ReasonCode.ANNOTATION),
        After(lambda w: w.patch("Namespace", "default", NO), ReasonCode.ANNOTATION),
        After(policy(owner_kinds_exclude=("Deployment",)), ReasonCode.OUT_OF_SCOPE),
    ],
    "its replacement": [
        After(lambda w: w.patch("Deployment", "web", {"spec": {"paused": True}}), ReasonCode.PAUSED),
        After(next_revision, ReasonCode.ROLLOUT_IN_PROGRESS, things=rollout),
        After(policy(min_replicas=9), ReasonCode.MIN_REPLICAS),
    ],
    "the pod's node": [After(lambda w: w.patch("Node", "a-0", NO), ReasonCode.ANNOTATION)],
    "a shared volume": [After(backup, ReasonCode.PINNED_BY_VOLUME, things=data_base)],
    "policy": [
        After(
            lambda w: w.send("DELETE", "PodDisruptionBudget", "web"),
            ReasonCode.NO_PDB,
            PolicyOptions(protect_pods_without_pdb=True),
        ),
        After(
            lambda w: w.patch("PodDisruptionBudget", "web", NARROWED),
            ReasonCode.NO_PDB,
            PolicyOptions(protect_pods_without_pdb=True),
        ),
        After(
            lambda w: w.patch("PriorityClass", "gold", {"value": -5}),
            ReasonCode.PRIORITY,
            PolicyOptions(priority_threshold_class="gold"),
        ),
    ],
    "a refusal": [After(refusal, ReasonCode.EVICTION_REFUSED)],
    "budgets": [
        After(
            lambda w: w.patch("PodDisruptionBudget", "web", EXHAUSTED, status=True),
            ReasonCode.PDB_EXHAUSTED,
        )
    ],
    "the method": [
        After(
            policy(no_release=Reason(ReasonCode.RELEASE_OFF, "an undo took a Ready pod")),
            ReasonCode.RELEASE_OFF,
            PolicyOptions(method="replaceFirst"),
        )
    ],
    "others of the owner": [
        After(lambda w: w.patch("Pod", sibling(w), EVICTING), ReasonCode.OWNER_DEGRADED)
    ],
    "quotas": [After(lambda w: quota(w, 4), ReasonCode.QUOTA)],
}  # fmt: skip


def test_every_protection_has_a_row() -> None:
    assert list(AFTER) == [c.name for c in PROTECTIONS]


@pytest.mark.parametrize(
    ("name", "after"),
    [(name, after) for name, rows in AFTER.items() for after in rows],
    ids=[f"{name}: {after.code} {n}" for name, rows in AFTER.items() for n, after in enumerate(rows)],
)
def test_a_protection_is_asked_of_what_is_true_at_the_request(name: str, after: After) -> None:
    check = next(c for c in LOOK if c.name == name)
    with (
        served(*ADD_ONS),
        ApiServer(after.things(), bookmark_every=0.1) as server,
        connected(server) as c,
        watching(c, replace(QUICK, silence=30.0), kinds=frozenset(RESOURCES), stale_after=120.0) as cache,
    ):
        world = World(server, c, cache)
        world.policy = after.policy

        def asked() -> ReasonCode | None:
            world.look.room.why_not(world.move)  # which catches up with the watch
            reason = check.ask(Looking(world.look, world.move, Away(), lambda: [world.policy]))
            return reason.code if reason is not None else None

        assert asked() is None
        after.happens(world)
        until(lambda: asked() is after.code)
