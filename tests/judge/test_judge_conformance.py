"""The judge's filters against verdicts recorded from a real kube-scheduler: a judge must be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.recordings import families
from tests.support.scheduler import filters
from tests.support.scheduler.plain import Json
from tests.support.scheduler.spread import groups_of, takes
from tests.support.scheduler.state import State

FAMILIES = ("spread_filter", "boundary", "node_affinity", "taints", "resources", "ports", "mixed")


def recorded(family: str) -> Iterator[tuple[Json, Json]]:
    """Cases of a family with their verdicts."""
    for one in families("first", "1.36.2")[family]:
        yield one.case, one.verdict


def rejected(state: State, pod: Json) -> dict[str, set[str]]:
    """Nodes that each of the judge's filters rejects, by the plugin's name."""
    around = state.holding()
    constraints = [(g, g.counts(state.nodes, state.counted())) for g in groups_of(pod, state.nodes)]
    leaves: dict[str, Callable[[Json], bool]] = {
        "PodTopologySpread": lambda n: all(takes(g, pod, n, counts) for g, counts in constraints),
        "NodeUnschedulable": lambda n: filters.node_unschedulable(pod, n),
        "TaintToleration": lambda n: filters.taint_toleration(pod, n),
        "NodeAffinity": lambda n: filters.node_affinity(pod, n),
        "NodeResourcesFit": lambda n: filters.node_resources_fit(pod, n, around),
        "NodePorts": lambda n: filters.node_ports(pod, n, around),
    }
    return {
        plugin: {name for name, node in state.nodes.items() if not left(node)}
        for plugin, left in leaves.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_filter_rejects_the_nodes_that_the_scheduler_rejected(family: str) -> None:
    seen = 0
    for case, verdict in recorded(family):
        if case.get("steps") or case.get("config"):
            continue
        listed = [{"kind": "Node", **n} for n in case["objects"]["nodes"]]
        listed += [{"kind": "Pod", **p} for p in case["objects"].get("pods", ())]
        state = State.of(listed)
        for pod, answer in zip(case["incoming"], verdict["incoming"], strict=False):
            for plugin, nodes in rejected(state, pod).items():
                assert nodes == set(answer["filterByPlugin"].get(plugin, ())), f"{case['id']} {plugin}"
                seen += 1
    assert seen
