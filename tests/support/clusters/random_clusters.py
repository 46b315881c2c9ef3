"""Random broken clusters, by seed or from Hypothesis, in three sizes.

tiny   up to 10 pods, one key, up to 5 nodes: the exhaustive search judges it
small  up to 40 pods, one or two keys, up to 9 nodes
full   up to 30 nodes, 12 workloads, three keys
All come with protected pods, tight room, budgets, taints, cordons, shared selectors, node selectors, nodes
without keys, minDomains, matchLabelKeys and both inclusion policies, each with some likelihood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from hypothesis import strategies as st

from tests.support.build import NodeBuilder, OwnerBuilder, node, objects, pdb, workload
from tests.support.build.base import KEYS, Builder
from tests.support.scheduler import filters
from tests.support.scheduler.budget import with_status
from tests.support.scheduler.owners import assigned
from tests.support.scheduler.plain import Json, amount, controller_of, node_of, requests
from tests.support.scheduler.state import State, feasible

T = TypeVar("T")
Size = Literal["tiny", "small", "full"]


@dataclass(frozen=True)
class _Limits:
    nodes: tuple[int, int]
    workloads: tuple[int, int]
    replicas: tuple[int, int]
    pods: int
    keys: tuple[int, int]
    leaning: tuple[int, ...]


_LIMITS: dict[Size, _Limits] = {
    "tiny": _Limits((2, 5), (1, 3), (2, 7), 10, (1, 1), (30, 60, 80)),
    "small": _Limits((3, 9), (1, 4), (2, 9), 40, (1, 2), (0, 20, 40, 60)),
    "full": _Limits((6, 30), (2, 12), (2, 14), 150, (1, 3), (0, 15, 30, 50)),
}
_REVISION = "pod-template-hash"
_KEYS = ("zone", "hostname", "rack")
_KINDS = (
    ("ReplicaSet",) * 11 + ("Deployment",) * 4 + ("StatefulSet",) * 3 + ("Bare",) * 2 + ("DaemonSet", "Job")
)


class Cluster(list[Json]):
    """API objects with a short text: Hypothesis prints what fails."""

    def __repr__(self) -> str:
        """Its size."""
        kinds = Counter(o["kind"] for o in self)
        return f"<cluster of {kinds['Pod']} pods on {kinds['Node']} nodes>"


class _Dice:
    """Chances in percent."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._wild = self.chance(50)

    def between(self, bounds: tuple[int, int]) -> int:
        return self._rng.randint(*bounds)

    def chance(self, percent: int) -> bool:
        return self._rng.randint(1, 100) <= percent

    def odd(self, percent: int) -> bool:
        """A chance that only every other cluster takes at all: what is rare outside of tests."""
        return self._wild and self.chance(percent)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._rng.randint(0, len(options) - 1)]


def random_cluster(rng: Random, size: Size = "small", *, pending: bool = False, keys: int = 0) -> list[Json]:
    """The API objects of one cluster; `keys` > 0 fixes how many topology keys its constraints use.

    `pending` adds pods that find no node.
    """
    dice, limits = _Dice(rng), _LIMITS[size]
    used = _KEYS[: keys or dice.between(limits.keys)]
    if used == ("zone",) and dice.chance(20):
        used = ("hostname",)
    machines = _nodes(dice, limits)
    owners: list[OwnerBuilder] = []
    left = limits.pods
    for i in range(dice.between(limits.workloads)):
        owner = _workload(dice, i, owners, used)
        count = min(dice.between(limits.replicas), left)
        left -= count
        if count:
            owners.append(_place(dice, limits, owner, machines, count))
    _furnish(dice, machines, owners)
    found = objects(machines, owners, [b for owner in owners for b in _budgets(dice, owner)])
    return _with_pending(dice, found) if pending else found


def clusters(size: Size = "tiny", *, pending: bool = False, keys: int = 0) -> st.SearchStrategy[list[Json]]:
    """The same for Hypothesis, which can shrink them."""
    randoms = st.randoms(use_true_random=False)
    return randoms.map(lambda rng: Cluster(random_cluster(rng, size, pending=pending, keys=keys)))


def released(size: Size = "tiny", *, pending: bool = False) -> st.SearchStrategy[list[Json]]:
    """`clusters` whose ReplicaSets have a revision label and want their pods replaced first: some constraints
    go by it, some budgets allow nothing."""
    randoms = st.randoms(use_true_random=False)
    return randoms.map(
        lambda rng: Cluster(_releasing(_Dice(rng), random_cluster(rng, size, pending=pending)))
    )


def _releasing(dice: _Dice, found: list[Json]) -> list[Json]:
    by_revision = {o["metadata"]["name"]: dice.chance(30) for o in found if o["kind"] == "ReplicaSet"}
    both_keys = dice.chance(50)
    made: list[Json] = []
    for o in deepcopy(found):
        ref = controller_of(o) if o["kind"] == "Pod" else None
        shapes = [o] if ref is not None and ref["kind"] == "ReplicaSet" else []
        if o["kind"] in ("ReplicaSet", "Deployment"):
            o["metadata"]["annotations"] = {"rebalancer.io/method": "replaceFirst"}
        if o["kind"] == "ReplicaSet":
            o["spec"]["selector"]["matchLabels"].setdefault(_REVISION, "h")
            shapes = [o["spec"]["template"]]
        for shape in shapes:
            shape["metadata"].setdefault("labels", {}).setdefault(_REVISION, "h")
            name = ref["name"] if ref is not None else o["metadata"]["name"]
            written = shape["spec"].get("topologySpreadConstraints", [])
            for c in list(written) if by_revision.get(name) else ():
                c["matchLabelKeys"] = [_REVISION]
            if both_keys and len(written) == 1:
                here, there = (KEYS[k] for k in ("zone", "hostname"))
                key = there if written[0]["topologyKey"] == here else here
                written.append({**written[0], "topologyKey": key})
        if o["kind"] == "PodDisruptionBudget":
            del o["status"]
            if dice.chance(60):
                o["spec"] = {"selector": o["spec"]["selector"], "maxUnavailable": 0}
        made.append(o)
    return with_status(made)


def _nodes(dice: _Dice, limits: _Limits) -> list[NodeBuilder]:
    count = dice.between(limits.nodes)
    zones = "abcd"[: min(count, dice.pick((2, 2, 3, 3, 3, 4)))]
    found = []
    for i in range(count):
        zone = zones[i] if i < len(zones) else dice.pick(zones)
        made = node(f"{zone}-{i}").zone(zone).label("rack", f"r{dice.between((0, 2))}")
        if dice.chance(60):
            made.label("disk", "ssd")
        if dice.odd(8):
            made.without_label(dice.pick(("zone", "rack")))
        if dice.chance(8):
            made.taint("dedicated", "gpu", dice.pick(("NoSchedule", "NoSchedule", "PreferNoSchedule")))
        if dice.chance(6):
            made.cordoned()
        found.append(made)
    return found


def _workload(dice: _Dice, index: int, earlier: Sequence[OwnerBuilder], keys: Sequence[str]) -> OwnerBuilder:
    made = workload(f"w{index}", dice.pick(_KINDS))
    if earlier and dice.odd(70):
        made.labels(app=dice.pick(earlier).pod_labels["app"])
    made.labels(rev=dice.pick(("1", "2")))
    made.requests(cpu=dice.pick(("100m", "100m", "200m", "500m")), memory=dice.pick(("64Mi", "256Mi")))
    if dice.chance(50):
        made.parallel()
    if dice.chance(12):
        made.selects(disk="ssd")
    if dice.chance(15):
        made.tolerates("dedicated")
    if dice.chance(4):
        made.host_port(8080)
    if dice.chance(15):
        made.priority(dice.pick((10, 100)))
    if earlier and dice.chance(15):
        return made
    for key in keys:
        if dice.chance(85):
            _spread(dice, made, key)
    return made


def _spread(dice: _Dice, made: OwnerBuilder, key: str) -> None:
    selector: dict[str, str] | Json = {"app": made.pod_labels["app"]}
    if dice.chance(25):
        selector = {"owner": made.name}
    elif dice.odd(12):
        expression = {"key": "app", "operator": "In", "values": ["w0", made.pod_labels["app"]]}
        selector = {"matchExpressions": [expression]}
    elif dice.odd(8):
        selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    elif dice.odd(6):
        selector = {"app": "another"}
    made.spread(
        key,
        dice.pick((1, 1, 1, 1, 2, 2, 3)),
        selector=selector,
        min_domains=dice.pick((2, 3, 4)) if dice.odd(12) else None,
        taints_policy="Honor" if dice.odd(25) else "",
        affinity_policy="Ignore" if dice.odd(12) else "",
        match_label_keys=("rev",) if dice.chance(12) else (),
        soft=dice.chance(6),
    )


def _place(
    dice: _Dice, limits: _Limits, owner: OwnerBuilder, machines: Sequence[NodeBuilder], count: int
) -> OwnerBuilder:
    """Pods lean to a few nodes; a few are where the scheduler would no longer put them."""
    shape = {"metadata": {"labels": {}}, "spec": owner.spec()}
    names = [m.object["metadata"]["name"] for m in machines]
    allowed = [
        m.object["metadata"]["name"]
        for m in machines
        if filters.node_affinity(shape, m.object) and filters.taint_toleration(shape, m.object)
    ]
    if not allowed or dice.odd(12):
        allowed = names
    if owner.kind == "DaemonSet":
        return owner.on_nodes(allowed[:count])
    start = dice.between((0, len(allowed) - 1))
    leaning = [dice.pick(allowed) for _ in range(dice.between((1, 3)))]
    weight = dice.pick(limits.leaning)
    chosen = [
        dice.pick(leaning) if dice.chance(weight) else allowed[(start + i) % len(allowed)]
        for i in range(count)
    ]
    if owner.spec()["containers"][0].get("ports"):
        chosen = list(dict.fromkeys(chosen))
    return owner.on_nodes(chosen)


def _furnish(dice: _Dice, machines: Sequence[NodeBuilder], owners: Sequence[OwnerBuilder]) -> None:
    """Gives every node room for what is on it, and often little more."""
    used: dict[str, Counter[str]] = {m.object["metadata"]["name"]: Counter() for m in machines}
    for pod in (o for owner in owners for o in owner.build() if o["kind"] == "Pod"):
        used[node_of(pod)].update(requests(pod))
    tight = dice.chance(45)
    for machine in machines:
        here = used[machine.object["metadata"]["name"]]
        if tight:
            spare = dice.pick((0, 100, 100, 200, 300, 500, 1000))
            machine.cpu(f"{here['cpu'] + spare}m")
            if dice.chance(20):
                machine.pods(here["pods"] + dice.pick((0, 1, 2)))
        elif here["cpu"] > amount("cpu", "8"):
            machine.cpu(f"{2 * here['cpu']}m")


def _budgets(dice: _Dice, owner: OwnerBuilder) -> list[Builder]:
    if not dice.chance(35):
        return []
    selector = {"owner": owner.name}
    match dice.between((0, 9)):
        case 0:
            return [pdb(owner.name, selector, max_unavailable=0)]
        case 1:
            return [pdb(owner.name, {"app": owner.pod_labels["app"]}, max_unavailable=1)]
        case 2 | 3:
            return [pdb(owner.name, selector, min_available="50%")]
        case 4 | 5:
            return [pdb(owner.name, selector, max_unavailable="25%")]
        case _:
            return [pdb(owner.name, selector, max_unavailable=dice.pick((1, 1, 2)))]


def _with_pending(dice: _Dice, found: list[Json]) -> list[Json]:
    """Adds pods for which there is no node now; what finds one is placed there."""
    waiting = workload("waiting").labels(app=dice.pick(("w0", "w1", "waiting")))
    waiting.requests(cpu=dice.pick(("100m", "200m", "500m"))).priority(dice.pick((0, 0, 10, 100)))
    if dice.chance(60):
        _spread(dice, waiting, dice.pick(("zone", "hostname")))
    state = State.of([*found, *waiting.placed({"": dice.between((1, 2))}).build()])
    for pod in state.pending():
        if nodes := feasible(state, pod):
            state = state.with_pods([assigned(pod, dice.pick(nodes))])
    return state.objects()
