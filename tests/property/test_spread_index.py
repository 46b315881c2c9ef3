"""After any changes of pods and nodes, the index of violations says what the planner counts anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.node import Node, Taint, Toleration
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import plan
from rebalancer.planner.cluster.groups import Groups
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.index import SpreadIndex
from tests.support.build import decoded
from tests.support.clusters.random_clusters import clusters
from tests.support.scheduler.plain import Json

Excess = dict[str, dict[Constraint, int]]


def anew(snapshot: Snapshot, *, soft: bool) -> Excess:
    """The excess as the planner counts it."""
    state = ClusterState.of(snapshot)
    on_node = state.table.index
    here = [p for p in snapshot.pods if not p.finished and not p.terminating and p.node_name in on_node]
    groups = Groups(state, (p.template for p in (*here, *(p for p in snapshot.pods if p.waits))), soft=soft)
    found: defaultdict[str, dict[Constraint, int]] = defaultdict(dict)
    for g in groups.all:
        excess = g.excess(g.counts(state))
        of_namespace = found[g.constraint.namespace]
        if excess:
            of_namespace[g.constraint] = of_namespace.get(g.constraint, 0) + excess
    return found


class Changing:
    """A cluster to which things happen, and the index that is told of them."""

    def __init__(self, snapshot: Snapshot, rng: Random, *, soft: bool) -> None:
        self.rng = rng
        self.snapshot = snapshot
        self.nodes = {n.name: n for n in snapshot.nodes}
        self.pods: dict[str, Pod] = {}
        # Beside each template one that differs in nothing but the nodes that are eligible for it.
        self.templates = [t for p in snapshot.pods for t in (p.template, *_elsewhere(p.template))]
        self.index = SpreadIndex(self._rules(), soft=soft)
        for pod in snapshot.pods:
            self._put(pod)

    def now(self) -> Snapshot:
        return replace(
            self.snapshot,
            nodes=tuple(self.nodes[n] for n in sorted(self.nodes)),
            pods=tuple(self.pods[k] for k in sorted(self.pods)),
        )

    def step(self) -> None:
        """One event of a watch."""
        rng = self.rng
        if rng.random() < 0.2:
            return self._node()
        if not self.pods or rng.random() < 0.3:
            name, node = f"new-{rng.randrange(20)}", self._somewhere()
            template = rng.choice(self.templates)
            return self._put(Pod(name, template.namespace, "", template, node, phase="Running"))
        pod = self.pods[rng.choice(sorted(self.pods))]
        match rng.randrange(5):
            case 0:
                del self.pods[pod.key]
                self.index.drop(pod.namespace, pod.name)
            case 1:
                self._put(replace(pod, node_name=self._somewhere()))
            case 2:
                self._put(replace(pod, deleted=1.0 if pod.deleted is None else None))
            case 3:
                self._put(replace(pod, phase=rng.choice(("Running", "Succeeded", "Failed"))))
            case _:
                same = [t for t in self.templates if t.namespace == pod.namespace]
                self._put(replace(pod, template=rng.choice(same)))
        return None

    def _somewhere(self) -> str:
        return self.rng.choice(["", "gone", *sorted(self.nodes)])

    def _put(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.index.put(pod)

    def _node(self) -> None:
        """A node, or several at once, come, go or change."""
        rng, changed = self.rng, set[str]()
        for _ in range(rng.randint(1, 3)):
            name = rng.choice([*sorted(self.nodes), f"late-{rng.randrange(3)}"])
            like = self.nodes.get(name) or rng.choice(self.snapshot.nodes)
            changed.add(name)
            match rng.randrange(4):
                case 0:
                    self.nodes.pop(name, None)
                case 1:
                    zone = {
                        "topology.kubernetes.io/zone": rng.choice("abcd"),
                        "disk": rng.choice(("ssd", "hdd")),
                    }
                    self.nodes[name] = _named(like, name, {**like.labels, **zone})
                case 2:
                    taints = rng.choice(((), (Taint("dedicated", effect="NoSchedule", value="gpu"),)))
                    self.nodes[name] = replace(
                        _named(like, name, like.labels), spec=replace(like.spec, taints=taints)
                    )
                case _:
                    labels = dict(like.labels)
                    labels.pop(rng.choice(sorted(labels)))
                    self.nodes[name] = _named(like, name, labels)
        self.index.move(self._rules(), changed)

    def _rules(self) -> ClusterState:
        return ClusterState(replace(self.snapshot, nodes=tuple(self.nodes.values()), pods=()))


def _elsewhere(template: PodTemplate) -> Iterator[PodTemplate]:
    yield replace(template, node_selector={"disk": "ssd"})
    yield replace(template, tolerations=(Toleration(operator="Exists"),))


def _named(node: Node, name: str, labels: dict[str, str]) -> Node:
    return replace(
        node, metadata=replace(node.metadata, name=name, labels={**labels, "kubernetes.io/hostname": name})
    )


@given(clusters("small"), st.integers(0, 1 << 30), st.booleans())
def test_after_any_events_it_equals_the_excess_counted_anew(
    objects: list[Json], seed: int, soft: bool
) -> None:
    changing = Changing(decoded(objects), Random(seed), soft=soft)
    assert changing.index.excess() == anew(changing.now(), soft=soft)
    for _ in range(40):
        changing.step()
        assert changing.index.excess() == anew(changing.now(), soft=soft)


@given(clusters("tiny"))
def test_it_says_what_a_plan_says(objects: list[Json]) -> None:
    snapshot = decoded(objects)
    index = Changing(snapshot, Random(0), soft=False).index
    assert sum(sum(e.values()) for e in index.excess().values()) == plan(snapshot).excess


@given(clusters("small"), st.integers(0, 1 << 30))
def test_nothing_is_left_of_pods_that_are_gone(objects: list[Json], seed: int) -> None:
    changing = Changing(decoded(objects), Random(seed), soft=True)
    for _ in range(10):
        changing.step()
    for pod in list(changing.pods.values()):
        changing.index.drop(pod.namespace, pod.name)
    assert changing.index.excess() == {}
