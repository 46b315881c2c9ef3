"""What stands in one namespace reaches no pod of another."""

from __future__ import annotations

from typing import Any

from rebalancer.model.reason import ReasonCode
from rebalancer.planner import plan
from tests.support.build import deployment, nodes, objects, snapshot
from tests.unit.policy.judged import code, merged, web


def test_a_constraint_counts_pods_of_its_own_namespace_only() -> None:
    """The other namespace has as many of the same labels elsewhere: together they would be in balance."""
    away = deployment("web", namespace="shop").placed({"b-0": 4})
    mine = deployment("web").spread("zone", 1).placed({"a-0": 4})
    made = plan(snapshot(nodes(a=1, b=1), mine, away))
    assert {m.pod.namespace for m in made.moves} == {"default"}
    assert len(made.moves) == 2


def test_no_constraint_moves_pods_of_another_namespace() -> None:
    away = deployment("web", namespace="shop").placed({"a-0": 4})
    mine = deployment("web").spread("zone", 1).placed({"a-0": 1, "b-0": 1})
    assert plan(snapshot(nodes(a=1, b=1), mine, away)).moves == ()


def test_an_owner_of_another_namespace_is_none() -> None:
    """Its uid may be written down by anybody."""

    def elsewhere(o: Any) -> Any:
        return merged(o, {"metadata": {"namespace": "shop"}}) if o["kind"] == "ReplicaSet" else o

    assert code(web()) is None
    assert code([elsewhere(o) for o in objects(web())]) is ReasonCode.OWNER_UNKNOWN
