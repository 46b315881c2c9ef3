"""A scheduler's decisions beside the engine's answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rebalancer.engine.agreement import Agreement, Comparison, Result
from rebalancer.engine.config import Profile, SchedulerConfig
from rebalancer.model.pod import Pod
from tests.support.build import node, nodes, pod, snapshot

NO_ROOM = (
    "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption "
    "victims found for incoming pod."
)


class Watched:
    """A cluster that is followed; the pod `new` waits in it."""

    def __init__(self, *things: Any, config: SchedulerConfig | None = None, **fields: Any) -> None:
        cluster = snapshot(*things, **fields)
        self.new = next(p for p in cluster.pods if p.name == "new")
        others = tuple(p for p in cluster.pods if p is not self.new)
        self.agreement = Agreement(msgspec.structs.replace(cluster, pods=others), config)

    def appears(self) -> None:
        self.agreement.seen(self.new)

    def changes(self, **fields: Any) -> Comparison | None:
        self.new = msgspec.structs.replace(self.new, **fields)
        self.agreement.seen(self.new)
        return next(iter(self.agreement.settled()), None)

    def another(self, name: str, **fields: Any) -> Pod:
        """A pod like the new one."""
        made = msgspec.structs.replace(self.new, name=name, uid=name, **fields)
        self.agreement.seen(made)
        return made


def test_a_pod_on_a_node_that_the_engine_takes_agrees() -> None:
    watched = Watched(nodes(a=2), pod("new"))
    watched.appears()
    found = watched.changes(node_name="a-1")
    assert found is not None
    assert (found.result, found.node, found.certain, found.message) == (Result.AGREES, "a-1", True, "")


def test_a_node_that_the_engine_rejects_is_told_with_the_plugin_and_the_reason() -> None:
    watched = Watched(node("a").taint("dedicated"), node("b"), pod("new"))
    watched.appears()
    found = watched.changes(node_name="a")
    assert found is not None
    assert (found.result, found.nodes, found.plugins) == (Result.DISAGREES, ("a",), ("TaintToleration",))
    assert found.message == (
        "the scheduler put it on a, which the engine rejects: TaintToleration "
        "(node(s) had untolerated taint(s))"
    )


AFTERWARDS = {
    "preemption finds nobody": NO_ROOM,
    "the plugin for resource claims has nothing to free, as by default since 1.34": NO_ROOM.replace(
        "preemption:", "no new claims to deallocate, preemption:"
    ),
    "the plugin for resource claims could not help": NO_ROOM.replace(
        "preemption:", "still not schedulable, preemption:"
    ),
    "the pod may not preempt": "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
    "preemption: not eligible due to preemptionPolicy=Never..",
    "preemption says its own two full stops": f"{NO_ROOM}.",
    "nothing was tried": "0/2 nodes are available: 2 Insufficient cpu. All PostFilter plugins are skipped",
    "nothing is said": "0/2 nodes are available: 2 Insufficient cpu.",
}


@pytest.mark.parametrize("message", AFTERWARDS.values(), ids=AFTERWARDS)
def test_a_refusal_for_the_same_reasons_agrees_whatever_was_tried_afterwards(message: str) -> None:
    watched = Watched(nodes(a=2), pod("new").requests(cpu="900"))
    watched.appears()
    found = watched.changes(unschedulable=message)
    assert found is not None
    assert found.result is Result.AGREES


def test_a_refusal_where_the_engine_finds_a_node_is_told_with_the_nodes() -> None:
    watched = Watched(nodes(a=2), pod("new"))
    watched.appears()
    found = watched.changes(unschedulable="0/2 nodes are available: 2 node(s) are too loud.")
    assert found is not None
    assert (found.result, found.nodes) == (Result.DISAGREES, ("a-0", "a-1"))
    assert found.message == "the scheduler refuses it (2 node(s) are too loud); the engine finds a-0, a-1"


def test_a_refusal_for_other_reasons_is_told_with_nodes_and_plugins() -> None:
    watched = Watched(nodes(a=1), node("b").taint("dedicated"), pod("new").requests(cpu="900"))
    watched.appears()
    found = watched.changes(unschedulable="0/2 nodes are available: 2 Insufficient cpu.")
    assert found is not None
    assert (found.result, found.nodes) == (Result.OTHER_REASONS, ("b",))
    assert found.plugins == ("TaintToleration",)


def test_what_fits_before_or_after_what_came_in_between_agrees() -> None:
    """The room was there when the pod appeared, and somebody else has it by the time its node is seen."""
    watched = Watched(node("a").cpu(2), pod("new").requests(cpu="2"))
    watched.appears()
    watched.another("other", node_name="a")
    found = watched.changes(node_name="a")
    assert found is not None
    assert found.result is Result.AGREES


def test_a_refusal_that_was_right_agrees_though_room_has_come_since() -> None:
    watched = Watched(node("a").cpu(2), pod("new").requests(cpu="2"))
    other = watched.another("other", node_name="a")
    watched.appears()
    watched.agreement.gone(other.key)
    found = watched.changes(unschedulable="0/1 nodes are available: 1 Insufficient cpu.")
    assert found is not None
    assert found.result is Result.AGREES


def test_one_refusal_is_compared_once_and_the_node_that_follows_too() -> None:
    watched = Watched(node("a").cpu(2), pod("new").requests(cpu="2"))
    other = watched.another("other", node_name="a")
    watched.appears()
    said = "0/1 nodes are available: 1 Insufficient cpu."
    assert watched.changes(unschedulable=said) is not None
    assert watched.changes(unschedulable=said) is None
    watched.agreement.gone(other.key)
    found = watched.changes(unschedulable="", node_name="a")
    assert found is not None
    assert found.result is Result.AGREES
    assert watched.changes(phase="Running") is None
    assert watched.agreement.waiting == 0


def test_a_node_that_is_not_known_is_unclear() -> None:
    watched = Watched(nodes(a=1), pod("new"))
    watched.appears()
    found = watched.changes(node_name="brand-new")
    assert found is not None
    assert found.result is Result.UNCLEAR


@pytest.mark.parametrize(
    "fields", [{"schedulingGates": [{"name": "wait"}]}, {"schedulerName": "other"}, {"nodeName": "a-0"}]
)
def test_pods_that_this_scheduler_does_not_place_are_not_asked_about(fields: dict[str, Any]) -> None:
    new = pod("new")
    new._spec.update(fields)
    watched = Watched(nodes(a=1), new)
    watched.appears()
    assert watched.agreement.waiting == 0
    assert watched.changes(node_name="a-0") is None


def test_a_pod_that_the_engine_is_unsure_of_is_told_as_such() -> None:
    new = pod("new")
    new._spec["resourceClaims"] = [{"name": "gpu"}]
    watched = Watched(nodes(a=1), new)
    watched.appears()
    found = watched.changes(node_name="a-0")
    assert found is not None
    assert (found.result, found.certain) == (Result.AGREES, False)


def test_another_configuration_than_the_schedulers_shows() -> None:
    """The scheduler has no TaintToleration; the tool does not know."""
    things = node("a").taint("dedicated"), pod("new")
    without = tuple(n for n in Profile().filters if n != "TaintToleration")
    for config, result in (
        (None, Result.DISAGREES),
        (SchedulerConfig(profiles=(Profile(filters=without, pre_filters=without),)), Result.AGREES),
    ):
        watched = Watched(*things, config=config)
        watched.appears()
        found = watched.changes(node_name="a")
        assert found is not None
        assert found.result is result


def test_a_rule_that_asks_before_the_filters_only_is_told_of_too() -> None:
    new = pod("new")
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    new._spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    filters = tuple(n for n in Profile().filters if n != "NodeAffinity")
    watched = Watched(node("a"), node("b"), new, config=SchedulerConfig(profiles=(Profile(filters=filters),)))
    watched.appears()
    found = watched.changes(node_name="a")
    assert found is not None
    assert (found.result, found.plugins) == (Result.DISAGREES, ("NodeAffinity",))


@pytest.mark.parametrize(
    ("fields", "version", "certain"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "v1.36.2", True),
        ({"tolerations": [{"key": "x", "operator": "Gt", "value": "5"}]}, "v1.36.2", False),
        ({}, "v1.28.3", False),
    ],
    ids=["of something else", "of its tolerations", "of the version"],
)
def test_a_node_that_a_rule_rejects_is_not_taken_whatever_else_the_engine_is_unsure_of(
    fields: dict[str, Any], version: str, certain: bool
) -> None:
    new = pod("new")
    new._spec.update(fields)
    watched = Watched(node("a").taint("dedicated"), node("b"), new, server_version=version)
    watched.appears()
    found = watched.changes(node_name="a")
    assert found is not None
    assert (found.result, found.certain) == (Result.DISAGREES, certain)
    assert found.plugins == ("TaintToleration",)
