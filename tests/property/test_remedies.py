"""Every printed remedy does what it says: applied to the objects, and judged by a plain scheduler.

python -m tests.property.test_remedies --count 10000 --seed 0 [--small]
"""

from __future__ import annotations

import argparse
import copy
import json
from collections import Counter
from collections.abc import Iterable
from multiprocessing import Pool
from random import Random

import pytest
from msgspec.structs import replace

from rebalancer.drill import drill
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.findings import plan_with_findings
from rebalancer.findings.remedies import applied
from rebalancer.model.node import Node
from rebalancer.model.pod import TopologySpreadConstraint
from rebalancer.model.reason import Change, Remedy
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.placing import at_rest
from tests.support.build import decoded
from tests.support.clusters.random_clusters import Size, random_cluster
from tests.support.clusters.scenarios import SCENARIOS, scenario
from tests.support.scheduler.owners import REPLICATED, assigned, owner_of, replacement
from tests.support.scheduler.plain import Json, controller_of, key_of, labels_of, node_of
from tests.support.scheduler.spread import alive, groups_of
from tests.support.scheduler.state import State, feasible

_SIZES: tuple[Size, ...] = ("tiny", "small", "small", "full")
_QUICK: tuple[Size, ...] = ("tiny", "small", "tiny", "small")
_SHARE = 75
_CORDON = "node.kubernetes.io/unschedulable"
_FIELDS = ("maxSkew", "minDomains", "nodeTaintsPolicy", "nodeAffinityPolicy")


def shut(listed: list[Json], rng: Random) -> list[Json]:
    """The cluster with one zone shut, some of its pods gone and Pending, and constraints that mind."""
    zones = sorted(
        {labels_of(o).get("topology.kubernetes.io/zone", "") for o in listed if o["kind"] == "Node"}
    )
    zone = rng.choice(zones)
    inside = {
        o["metadata"]["name"]
        for o in listed
        if o["kind"] == "Node" and labels_of(o).get("topology.kubernetes.io/zone", "") == zone
    }
    how, gone = rng.choice(("cordon", "taint", "silent")), rng.random() < 0.6
    lowest = rng.choice((None, None, 2, 3, len(zones)))
    for o in listed:
        if o["kind"] == "Node" and o["metadata"]["name"] in inside:
            spec = o.setdefault("spec", {})
            key = {"cordon": _CORDON, "taint": "shifted", "silent": "node.kubernetes.io/unreachable"}[how]
            spec["taints"] = [*(spec.get("taints") or ()), {"key": key, "effect": "NoSchedule"}]
            spec["unschedulable"] = spec.get("unschedulable", False) or how == "cordon"
        elif o["kind"] == "Pod" and gone and node_of(o) in inside and _kind(o) not in ("", "DaemonSet"):
            o["spec"].pop("nodeName")
            o["status"] = {"phase": "Pending"}
        template = (
            o["spec"] if o["kind"] == "Pod" else (o.get("spec") or {}).get("template", {}).get("spec", {})
        )
        for c in template.get("topologySpreadConstraints") or ():
            if lowest is not None and c.get("whenUnsatisfiable") == "DoNotSchedule":
                c["minDomains"] = lowest
    return listed


def _kind(o: Json) -> str:
    """Of its controller."""
    return str((controller_of(o) or {}).get("kind", ""))


def cluster(seed: int, sizes: tuple[Size, ...] = _SIZES) -> list[Json]:
    """The API objects of one; two of three have a zone that is shut."""
    rng = Random(f"remedies/{seed}")
    listed = list(random_cluster(rng, sizes[seed % 4], pending=seed % 5 == 0))
    return shut(json.loads(json.dumps(listed)), rng) if seed % 3 else listed


def rested(listed: list[Json]) -> State:
    """What waits has a node if one takes it, where the engine places it; what terminates is gone."""
    snapshot = decoded(listed)
    state = ClusterState.of(snapshot)
    placing, _, _ = at_rest(state, snapshot)
    keys = {p.uid or p.key: p.key for p in snapshot.pods}
    where = {keys[k]: state.table.names[row] for k, row in placing.placed.items()}  # type: ignore[index]
    found = State.of(listed)
    for name, node in where.items():
        assert node in feasible(found.without([name]), found.pods[name]), name
        found = found.with_pods([assigned(found.pods[name], node)])
    gone = [p.key for p in snapshot.pods if p.terminating and (p.uid or p.key) not in state.pods]
    return found.without(gone)


def top(state: State, o: Json) -> str:
    """Kind/namespace/name of the topmost owner."""
    ref = controller_of(o)
    if ref is None:
        return f"{o['kind']}/{o['metadata'].get('namespace', 'default')}/{o['metadata']['name']}"
    owner = state.others.get((ref["kind"], f"{o['metadata'].get('namespace', 'default')}/{ref['name']}"))
    return top(state, owner) if owner is not None else ""


def changed(listed: list[Json], change: Change) -> list[Json]:
    """The objects with the change made, as a person would."""
    made: list[Json] = json.loads(json.dumps(listed))
    state = State.of(made)
    if isinstance(change.after, Node):
        if change.before is not None:
            spec = state.nodes[change.after.name]["spec"]
            spec["unschedulable"] = False
            spec["taints"] = [t for t in spec.get("taints") or () if t["key"] != _CORDON]
            return made
        node = copy.deepcopy(state.nodes[change.like])
        node["metadata"]["name"] = change.after.name
        node["metadata"].pop("uid", None)
        node["metadata"]["labels"]["kubernetes.io/hostname"] = change.after.name
        spec = node.get("spec") or {}
        node["spec"] = {"taints": [t for t in spec.get("taints") or () if "kubernetes.io/" not in t["key"]]}
        node["status"].pop("conditions", None)
        own = [
            p
            for p in state.pods.values()
            if node_of(p) == change.like and alive(p) and _kind(p) == "DaemonSet"
        ]
        for p in copy.deepcopy(own):
            p["metadata"] |= {"name": f"{p['metadata']['name']}-more", "uid": f"{key_of(p)}/more"}
            p["spec"]["nodeName"] = change.after.name
            made.append(p)
        return [*made, node]
    number = len(_constraints(state.others[_place(change.object)]))
    for o in made:
        of = top(state, o)
        if of == change.object and len(_constraints(o)) == number:
            _set(_constraints(o)[change.index], change.after)
    return made


def _place(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition("/")
    return kind, rest


def _constraints(o: Json) -> list[Json]:
    spec = o["spec"] if o["kind"] == "Pod" else (o.get("spec") or {}).get("template", {}).get("spec", {})
    found: list[Json] = spec.get("topologySpreadConstraints") or []
    return found


def _set(constraint: Json, after: TopologySpreadConstraint) -> None:
    values = (after.max_skew, after.min_domains, after.node_taints_policy, after.node_affinity_policy)
    for field, value in zip(_FIELDS, values, strict=True):
        constraint.pop(field, None)
        if value is not None:
            constraint[field] = value


def stuck(state: State, ran: set[str], workload: str) -> tuple[int, int]:
    """Of the workload's pods that ran, those that could not be replaced: surely, and at most, as some might
    push others out."""
    lowest = min((p["spec"].get("priority", 0) for p in state.pods.values()), default=0)
    found = Counter[bool]()
    for key, pod in state.pods.items():
        owner = owner_of(state, pod)
        if key not in ran or owner is None or owner["kind"] not in REPLICATED:
            continue
        if top(state, pod) == workload and not feasible(state.without([key]), replacement(state, pod)):
            found[pod["spec"].get("priority", 0) > lowest] += 1
    return found[False], found.total()


def excesses(state: State, workload: str) -> set[int]:
    """The excess of the constraints of each of its templates."""
    counted = state.counted()
    shapes = {
        json.dumps([p["spec"].get("topologySpreadConstraints"), labels_of(p)], sort_keys=True): p
        for p in state.pods.values()
        if alive(p) and top(state, p) == workload
    }
    return {
        sum(g.excess(g.counts(state.nodes, counted)) for g in groups_of(p, state.nodes))
        for p in shapes.values()
    }


def judge(listed: list[Json], first: State, workload: str, remedy: Remedy) -> None:
    """Raises unless the remedy does what it says. `first`: the cluster at rest."""
    ran = {key_of(p) for p in listed if p["kind"] == "Pod" and node_of(p) and alive(p)}
    if isinstance(remedy.change.after, Node):
        then = rested(changed(listed, remedy.change))
    else:
        then = rested(changed(first.objects(), remedy.change))
        assert remedy.gives_up, remedy
    for state, place in ((first, 0), (then, 1)):
        pending = sum(top(state, p) == workload for p in state.pending())
        assert pending == remedy.pending[place], f"{place}: {pending} Pending, {remedy}"
        surely, most = stuck(state, ran, workload)
        assert surely <= remedy.stuck[place] <= most, f"{place}: {surely} to {most} stuck, {remedy}"
        assert remedy.excess[place] in excesses(state, workload), f"{place}: {remedy}"
    figures = (remedy.pending, remedy.stuck, remedy.excess)
    assert all(after <= before for before, after in figures), remedy
    assert any(after < before for before, after in figures) or "anew" in remedy.does, remedy
    for before, after in figures:
        if after < before:
            assert str(before) in remedy.does, remedy


def _shares_ports(listed: list[Json]) -> bool:
    """Whether two pods have one port of a node, which no kubelet admits: who goes frees it in one reading."""
    taken = Counter(
        (node_of(o), port["hostPort"])
        for o in listed
        if o["kind"] == "Pod" and node_of(o)
        for c in o["spec"]["containers"]
        for port in c.get("ports") or ()
        if port.get("hostPort")
    )
    return any(n > 1 for n in taken.values())


def judged(listed: list[Json]) -> Counter[str]:
    """What was found in a cluster."""
    if _shares_ports(listed):
        return Counter()
    numbers = Counter[str](clusters=1)
    seen: set[str] = set()
    first: State | None = None
    for finding in plan_with_findings(decoded(listed)).findings:
        numbers["untried"] += finding.untried
        for remedy in finding.remedies:
            change = remedy.change
            same = f"{finding.object} {remedy.text} {remedy.does}"
            if same not in seen:
                first = first or rested(listed)
                judge(listed, first, finding.object, remedy)
            seen.add(same)
            kind = (
                "constraint"
                if not isinstance(change.after, Node)
                else "uncordon"
                if change.before
                else "node"
            )
            numbers[f"{finding.code}: {kind}"] += 1
    return numbers


def one(job: tuple[int, tuple[Size, ...]]) -> tuple[int, Counter[str], str]:
    """A random cluster of these sizes in turn; the error, "" if there is none."""
    seed, sizes = job
    try:
        return seed, judged(cluster(seed, sizes)), ""
    except Exception as e:
        return seed, Counter(), repr(e)


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.nightly) for part in (2, 3))])
def test_every_printed_remedy_does_what_it_says(part: int) -> None:
    numbers = Counter[str]()
    for seed in range(part * _SHARE, (part + 1) * _SHARE):
        numbers += judged(cluster(seed, _QUICK))
    for kind in (
        "cannot-be-replaced: constraint",
        "cannot-be-replaced: node",
        "domain-unavailable: constraint",
    ):
        assert numbers[kind], f"no {kind} among them: nothing is shown"


def honoring(snapshot: Snapshot, workloads: Iterable[str]) -> Snapshot:
    """With nodeTaintsPolicy Honor in the hard constraints of these workloads."""
    for name in workloads:
        [spread] = [w.template.spread for w in snapshot.workloads if w.key == name and w.template is not None]
        for i, c in enumerate(spread):
            if c.when_unsatisfiable == "DoNotSchedule":
                after = replace(c, node_taints_policy="Honor")
                snapshot = applied(snapshot, Change(name, c, after, i))
    return snapshot


@pytest.mark.parametrize("part", [1, pytest.param(0, marks=pytest.mark.nightly)])
def test_a_drill_with_the_change_made_leaves_what_the_replay_says(part: int) -> None:
    told = 0
    for seed in range(part * 60, (part + 1) * 60):
        listed = random_cluster(Random(f"honored/{seed}"), _QUICK[seed % 4])
        snapshot = decoded(listed)
        for failed in drill(snapshot, keys=("topology.kubernetes.io/zone",)).today:
            if failed.honored is None or failed.honored.min_domains:
                continue
            changed = honoring(snapshot, failed.honored.workloads)
            value = f"{failed.failure.key}={failed.failure.value}"
            [then] = drill(changed, keys=(value,)).today
            assert (failed.pending, then.pending) == failed.honored.pending, f"seed {seed}: {failed.honored}"
            told += 1
    assert told > 10, "too few: nothing is shown"


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"random_cluster"}))
def test_so_it_is_in_the_scenarios(name: str) -> None:
    judged(scenario(name))
    judged(shut(scenario(name), Random(name)))


@pytest.mark.nightly
def test_so_it_is_in_the_large_one() -> None:
    judged(scenario("random_cluster"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="no cluster of more than nine nodes")
    given = parser.parse_args()
    numbers, failed = Counter[str](), 0
    sizes = _QUICK if given.small else _SIZES
    jobs = ((seed, sizes) for seed in range(given.seed, given.seed + given.count))
    with Pool(2) as pool:
        for seed, found, error in pool.imap_unordered(one, jobs, 20):
            numbers += found
            if error:
                failed += 1
                print(f"seed {seed}: {error[:600]}", flush=True)
    print(f"{failed} fail; {dict(sorted(numbers.items()))}")


if __name__ == "__main__":
    main()
