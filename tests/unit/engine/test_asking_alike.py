"""What a plugin remembers of one template for the next that asks for the same amounts."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import Pod
from tests.support.build import node, snapshot, workload


def test_the_second_of_two_that_ask_alike_is_judged_by_what_runs_by_then() -> None:
    listed = snapshot(
        [node(n).cpu(4) for n in ("n1", "n2")],
        workload("one").requests(cpu="3").placed({"n1": 1}),
        workload("other").requests(cpu="3").placed({"n2": 1}),
    )
    one, other = (next(p for p in listed.pods if p.name.startswith(n)) for n in ("one", "other"))
    state = ClusterState.of(listed)
    kept = Framework(state)
    assert not kept.feasible(one.template).any()
    state.take(other)
    assert kept.feasible(other.template).tolist() == [False, True]
    assert kept.feasible(one.template).tolist() == [False, True]
    alone = scores(kept, one)
    state.put(other)
    fresh = Framework(state)
    assert not kept.feasible(other.template).any()
    assert scores(kept, other) == scores(fresh, other)
    assert alone != scores(kept, one) == scores(fresh, one)


def scores(framework: Framework, pod: Pod) -> dict[str, list[int]]:
    """By plugin, of both nodes."""
    found = framework.score(pod.template, np.array([True, True]))
    return {name: values.tolist() for name, values in found.by_plugin.items()}
