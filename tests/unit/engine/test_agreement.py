"""A scheduler's decisions beside the engine's answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rebalancer.engine import agreement
from rebalancer.engine.agreement import Agreement, Comparison, Result
from rebalancer.engine.config import Profile, SchedulerConfig
from rebalancer.model.pod import Pod
from tests.support.build import claim, node, nodes, pod, snapshot, volume

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


def test_a_refusal_with_other_numbers_is_no_evidence_where_nothing_else_happened() -> None:
    """The scheduler has let a tainted node pass, which then was too small."""
    watched = Watched(
        node("a").taint("x"), node("b").taint("x"), node("c").cpu(1), pod("new").requests(cpu="2")
    )
    watched.appears()
    said = "0/3 nodes are available: {} node(s) had untolerated taint(s), {} Insufficient cpu."
    found = watched.changes(unschedulable=said.format(1, 2))
    assert found is not None
    assert (found.result, found.plugins, found.branches) == (
        Result.OTHER_REASONS,
        ("NodeResourcesFit",),
        (),
    )
    found = watched.changes(unschedulable=said.format(2, 1))
    assert found is not None
    assert (found.result, found.plugins) == (Result.AGREES, ())
    assert found.branches == ("NodeResourcesFit rejects", "TaintToleration rejects")


def test_one_pod_is_evidence_once_however_often_it_is_refused() -> None:
    watched = Watched(nodes(a=2), pod("new").requests(cpu="900"))
    watched.appears()
    first = watched.changes(unschedulable="0/2 nodes are available: 2 Insufficient cpu. preemption: x")
    again = watched.changes(unschedulable="0/2 nodes are available: 2 Insufficient cpu. preemption: y")
    assert first is not None
    assert again is not None
    assert first.result is again.result is Result.AGREES
    assert (first.branches, again.branches) == (("NodeResourcesFit rejects",), ())


def test_a_pod_whose_volumes_could_not_be_bound_may_have_stood_in_the_way() -> None:
    """It was to go to a, and went to b; meanwhile another was refused."""
    other = pod("other").requests(cpu="2").tolerates("x", "", "NoSchedule").mounts("data")
    there = [volume("data", "data"), claim("data", "data")]
    watched = Watched(
        node("a").cpu(2), node("b").cpu(2).taint("x"), other, pod("new").requests(cpu="2"), *there
    )
    first = next(p for p in watched.agreement.state.snapshot.pods if p.name == "other")
    watched.agreement.seen(first)
    watched.appears()
    said = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    watched.new = msgspec.structs.replace(watched.new, unschedulable=said)
    watched.agreement.seen(watched.new)
    watched.agreement.seen(msgspec.structs.replace(first, node_name="b"))
    assert [c.result for c in watched.agreement.settled() if c.pod == "new"] == [Result.UNCLEAR]


def test_decisions_that_there_is_no_time_or_room_for_are_told_as_unclear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "MOST_DECISIONS", 3)
    watched = Watched(node("a").taint("dedicated"), node("b"), pod("new"))
    made = [watched.another(f"new-{i}") for i in range(5)]
    for one in made:
        watched.agreement.seen(msgspec.structs.replace(one, node_name="a"))
    found = watched.agreement.settled(more=[*[False] * 9, *[True] * 7].pop)
    assert [c.result for c in found[:2]] == [Result.UNCLEAR] * 2, "more than are kept"
    assert [c.result for c in found[2:]] == [Result.DISAGREES], "then the time is up"
    assert [c.result for c in watched.agreement.settled()] == [Result.DISAGREES] * 2, "nothing is lost"
    watched.another("late", node_name="")
    watched.another("beside", node_name="a")
    watched.agreement.seen(msgspec.structs.replace(made[0], name="late", uid="late", node_name="a"))
    found = watched.agreement.settled(more=[*[False] * 9, True].pop)
    assert [c.result for c in found] == [Result.UNCLEAR], "it alone takes longer than there is"


def test_where_nothing_else_happened_there_is_always_time() -> None:
    watched = Watched(node("a").taint("dedicated"), node("b"), pod("new"))
    watched.appears()
    watched.agreement.seen(msgspec.structs.replace(watched.new, node_name="a"))
    found = watched.agreement.settled(more=[*[False] * 9, True].pop)
    assert [c.result for c in found] == [Result.DISAGREES]


@pytest.mark.parametrize(
    ("large", "shows"),
    [("a", True), ("b", False)],
    ids=["it is kept from the better node", "it would not have gone there anyway"],
)
def test_a_binding_shows_a_rejection_only_where_the_pod_would_have_gone_there(
    large: str, shows: bool
) -> None:
    there = [pod(f"w{i}").labels(app="x").requests(cpu="100m").on("a-0") for i in range(2)]
    nodes_ = [node(f"{z}-0").zone(z).cpu(64 if z == large else 2) for z in "ab"]
    new = pod("new").labels(app="x").requests(cpu="100m").spread("zone", 1)
    watched = Watched(*nodes_, *there, new, server_version="v1.36.2")
    watched.appears()
    found = watched.changes(node_name="b-0")
    assert found is not None
    assert found.result is Result.AGREES
    assert ("PodTopologySpread rejects: In" in found.branches) is shows
    assert "PodTopologySpread takes: In" in found.branches


def test_a_toleration_is_read_only_on_a_node_with_a_taint() -> None:
    new = pod("new").tolerates("x", "", "NoSchedule")
    for on, branch in (("a", "TaintToleration takes: Exists"), ("b", "TaintToleration takes")):
        watched = Watched(node("a").taint("x"), node("b"), new)
        watched.appears()
        found = watched.changes(node_name=on)
        assert found is not None
        assert [b for b in found.branches if b.startswith("Taint")] == [branch]
