"""Soft constraints for tests: clusters that have them, and their excess counted plainly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from random import Random

from hypothesis import strategies as st

from tests.support.build.base import KEYS
from tests.support.clusters.random_clusters import Cluster, Size, random_cluster
from tests.support.scheduler.owners import owner_of
from tests.support.scheduler.plain import Json, labels_of
from tests.support.scheduler.spread import Group, alive, groups_of
from tests.support.scheduler.state import State

SYSTEM_DEFAULTS = ((KEYS["hostname"], 3), (KEYS["zone"], 5))
"""(key, maxSkew) of the constraints that the scheduler gives to pods without any."""


def soft_clusters(size: Size = "tiny", *, pending: bool = False) -> st.SearchStrategy[list[Json]]:
    """Random clusters in which most constraints are soft, and some pods have those of the system."""
    randoms = st.randoms(use_true_random=False)
    return randoms.map(lambda rng: Cluster(softened(random_cluster(rng, size, pending=pending), rng)))


def softened(listed: list[Json], rng: Random) -> list[Json]:
    """The objects with constraints turned soft, the same for all pods of an owner; of some all are gone."""
    chosen: dict[tuple[str, str], str] = {}
    found = deepcopy(listed)
    for o in found:
        template = o.get("spec", {}).get("template") if o["kind"] != "Pod" else o
        spec = (template or {}).get("spec") or {}
        written = spec.get("topologySpreadConstraints")
        if not written:
            continue
        owner = template["metadata"]["labels"].get("owner", o["metadata"]["name"])
        if (owner, "") not in chosen:
            chosen[owner, ""] = rng.choice(("none", "some", "some", "some", "some"))
        if chosen[owner, ""] == "none":
            del spec["topologySpreadConstraints"]
            continue
        for c in written:
            key = owner, c["topologyKey"]
            if key not in chosen:
                chosen[key] = rng.choice(("DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway"))
            if c["whenUnsatisfiable"] == "DoNotSchedule":
                c["whenUnsatisfiable"] = chosen[key]
            if c["whenUnsatisfiable"] == "ScheduleAnyway":
                c.pop("minDomains", None)
    return found


def soft_groups(state: State) -> list[Group]:
    """Every soft constraint that a live pod carries, the system's defaults among them."""
    return sorted({g for p in state.pods.values() if alive(p) for g in soft_groups_of(state, p)}, key=repr)


def soft_groups_of(state: State, pod: Json) -> list[Group]:
    """The pod's own."""
    written = pod["spec"].get("topologySpreadConstraints")
    if written:
        soft = [c for c in written if c.get("whenUnsatisfiable") == "ScheduleAnyway"]
        return _groups(state, pod, soft)
    owner = owner_of(state, pod)
    if owner is None or owner["kind"] not in ("ReplicaSet", "StatefulSet", "ReplicationController"):
        return []
    # All nodes take part that have the key, whatever other keys they lack.
    return [
        g
        for key, skew in SYSTEM_DEFAULTS
        for g in _groups(
            state, pod, [{"topologyKey": key, "maxSkew": skew, "labelSelector": owner["spec"]["selector"]}]
        )
    ]


def _groups(state: State, pod: Json, constraints: Sequence[Json]) -> list[Group]:
    """As the filter would see them if they were hard."""
    hard = [{**c, "whenUnsatisfiable": "DoNotSchedule"} for c in constraints]
    shape = {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": hard}}
    return groups_of(shape, state.nodes)


def soft_excesses(state: State, of: Iterable[Group]) -> dict[Group, int]:
    """The excess of each group."""
    counted = state.counted()
    return {g: g.excess(g.counts(state.nodes, counted)) for g in of}


def domain(state: State, group: Group, node: str) -> str | None:
    """The domain in which the group counts pods of a node."""
    return labels_of(state.nodes[node])[group.key] if node in group.nodes else None
