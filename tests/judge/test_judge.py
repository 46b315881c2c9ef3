"""The judge itself: what the scheduler counts, which domains are eligible, where the filter leaves a pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.build import node, nodes, objects, pod, workload
from tests.support.scheduler.plain import Json
from tests.support.scheduler.state import State, excesses, feasible, groups, kept_out_of, total_excess


def state(*things: Any) -> State:
    return State.of(objects(*things))


def spread_pod(**spread: Any) -> Json:
    return pod("new").labels(app="web").spread("zone", **spread).build()[0]


def zones_open(of: State, incoming: Json) -> str:
    """The zones in which the filters leave nodes, as one word."""
    return "".join(sorted({name.split("-")[0] for name in feasible(of, incoming)}))


COUNTED: list[tuple[str, list[Any], int]] = [
    ("a running pod of the namespace counts", [pod("p").labels(app="web").on("a-0")], 1),
    ("a bare pod counts like any other", [workload("web", "Bare").placed({"a-0": 2})], 2),
    (
        "a pod that does not carry the constraint counts",
        [workload("x").labels(app="web").placed({"a-0": 2})],
        2,
    ),
    ("a pod of another namespace does not", [pod("p", "other").labels(app="web").on("a-0")], 0),
    ("a Pending pod does not", [pod("p").labels(app="web")], 0),
    ("a terminating pod does not", [pod("p").labels(app="web").on("a-0").terminating()], 0),
    ("a finished pod does not", [pod("p").labels(app="web").on("a-0").phase("Succeeded")], 0),
    ("a failed pod does not", [pod("p").labels(app="web").on("a-0").phase("Failed")], 0),
    ("a pod that the selector misses does not", [pod("p").labels(app="api").on("a-0")], 0),
]


@pytest.mark.parametrize(("sentence", "things", "expected"), COUNTED, ids=[c[0] for c in COUNTED])
def test_counted(sentence: str, things: list[Any], expected: int) -> None:
    of = state(nodes(a=1, b=1), things, pod("carrier").labels(app="web").spread("zone").on("b-0"))
    (group,) = groups(of)
    assert group.counts(of.nodes, of.counted()) == {"a": expected, "b": 1}, sentence


EXCESS: list[tuple[str, dict[str, int], dict[str, Any], int]] = [
    ("[3,1] with maxSkew 1 has an excess of 1", {"a-0": 3, "b-0": 1, "c-0": 2}, {}, 1),
    ("[2,1] with maxSkew 1 is satisfied", {"a-0": 2, "b-0": 1, "c-0": 1}, {}, 0),
    ("[4,1] with maxSkew 2 has an excess of 1", {"a-0": 4, "b-0": 1, "c-0": 1}, {"max_skew": 2}, 1),
    ("an empty domain is the minimum", {"a-0": 3, "b-0": 3}, {}, 2),
    ("below minDomains the minimum is 0", {"a-0": 2, "b-0": 2, "c-0": 2}, {"min_domains": 4}, 1),
    ("at minDomains the minimum counts", {"a-0": 2, "b-0": 2, "c-0": 2}, {"min_domains": 3}, 0),
    ("an empty selector counts nobody", {"a-0": 5}, {"selector": {}}, 0),
    ("an absent selector counts nobody", {"a-0": 5}, {"selector": None}, 0),
    ("a selector that misses its own pods counts nobody", {"a-0": 5}, {"selector": {"app": "api"}}, 0),
    (
        "an empty selector with matchLabelKeys counts",
        {"a-0": 5},
        {"selector": {}, "match_label_keys": ("app",)},
        4,
    ),
]


@pytest.mark.parametrize(("sentence", "placed", "spread", "expected"), EXCESS, ids=[c[0] for c in EXCESS])
def test_excess(sentence: str, placed: dict[str, int], spread: dict[str, Any], expected: int) -> None:
    of = state(nodes(a=1, b=1, c=1), workload("web").spread("zone", **spread).placed(placed))
    assert total_excess(of) == expected, sentence


FILTER: list[tuple[str, dict[str, int], dict[str, Any], str]] = [
    ("level zones leave every zone", {"a-0": 1, "b-0": 1, "c-0": 1}, {}, "abc"),
    ("the fullest zone is closed", {"a-0": 2, "b-0": 1, "c-0": 1}, {}, "bc"),
    ("only the emptiest zone is open", {"a-0": 2, "b-0": 1}, {}, "c"),
    ("maxSkew 2 opens the next zone", {"a-0": 2, "b-0": 1}, {"max_skew": 2}, "bc"),
    (
        "below minDomains the minimum is 0 and nothing is open",
        {"a-0": 1, "b-0": 1, "c-0": 1},
        {"min_domains": 4},
        "",
    ),
    ("an absent selector leaves every zone", {"a-0": 3}, {"selector": None}, "abc"),
    ("an empty selector matches only itself: 0 + 1 - 0", {"a-0": 3}, {"selector": {}}, "abc"),
    ("a selector that misses the pod adds nothing for it", {"a-0": 1}, {"selector": {"app": "w"}}, "abc"),
    ("a soft constraint closes nothing", {"a-0": 5}, {"soft": True}, "abc"),
]


@pytest.mark.parametrize(("sentence", "placed", "spread", "expected"), FILTER, ids=[c[0] for c in FILTER])
def test_filter(sentence: str, placed: dict[str, int], spread: dict[str, Any], expected: str) -> None:
    of = state(nodes(a=1, b=1, c=1), workload("web").placed(placed))
    assert zones_open(of, spread_pod(**spread)) == expected, sentence


ELIGIBLE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("a cordoned zone still sets the minimum", node("c-0").zone("c").cordoned(), {}, ""),
    (
        "a cordoned zone drops out under Honor",
        node("c-0").zone("c").cordoned(),
        {"taints_policy": "Honor"},
        "ab",
    ),
    ("a tainted zone still sets the minimum", node("c-0").zone("c").taint("gpu"), {}, ""),
    (
        "a tainted zone drops out under Honor",
        node("c-0").zone("c").taint("gpu"),
        {"taints_policy": "Honor"},
        "ab",
    ),
    (
        "a taint that only prefers keeps the zone in",
        node("c-0").zone("c").taint("gpu", effect="PreferNoSchedule").pods(0),
        {"taints_policy": "Honor"},
        "",
    ),
    ("a full zone never drops out", node("c-0").zone("c").pods(0), {"taints_policy": "Honor"}, ""),
    (
        "a silent zone drops out under Honor",
        node("c-0").zone("c").not_ready(),
        {"taints_policy": "Honor"},
        "ab",
    ),
    ("a node without the key is neither a domain nor a place", node("c-0"), {}, "ab"),
]


@pytest.mark.parametrize(("sentence", "third", "spread", "expected"), ELIGIBLE, ids=[c[0] for c in ELIGIBLE])
def test_eligible_domains(sentence: str, third: Any, spread: dict[str, Any], expected: str) -> None:
    of = state(nodes(a=1, b=1), third, workload("web").placed({"a-0": 1, "b-0": 1}))
    assert zones_open(of, spread_pod(**spread)) == expected, sentence


def test_node_affinity_narrows_the_domains_unless_it_is_ignored() -> None:
    of = state(nodes(a=1, b=1, c=1), workload("web").placed({"a-0": 1, "b-0": 1}))
    honored = pod("new").labels(app="web").spread("zone").needs("zone", "NotIn", "c").build()[0]
    ignored = (
        pod("new").labels(app="web").spread("zone", affinity_policy="Ignore").needs("zone", "NotIn", "c")
    )
    assert zones_open(of, honored) == "ab"
    assert zones_open(of, ignored.build()[0]) == ""


def test_a_node_takes_part_only_with_the_keys_of_all_hard_constraints() -> None:
    bare = node("c-0").zone("c").without_label("hostname")
    of = state(nodes(a=1, b=1), bare, workload("web").placed({"a-0": 1, "b-0": 1}))
    both = pod("new").labels(app="web").spread("zone").spread("hostname").build()[0]
    assert zones_open(of, both) == "ab"
    assert zones_open(of, spread_pod()) == "c"


def test_pods_on_nodes_that_take_no_part_are_not_counted() -> None:
    of = state(
        nodes(a=2, b=1), node("a-9").zone("a").taint("gpu"), workload("web").placed({"a-9": 3, "b-0": 1})
    )
    (blocked, *_) = [spread_pod(taints_policy="Honor")]
    assert zones_open(of, blocked) == "a"


def test_match_label_keys_make_a_group_per_revision_and_missing_keys_are_ignored() -> None:
    def revision(name: str, **labels: str) -> Any:
        return workload(name).labels(app="web", **labels).spread("zone", match_label_keys=("rev",))

    of = state(
        nodes(a=1, b=1),
        revision("one", rev="1").placed({"a-0": 3}),
        revision("two", rev="2").placed({"b-0": 2}),
        revision("none").placed({"b-0": 1}),
    )
    assert sorted(excesses(of).values()) == [0, 1, 2]


def test_two_spellings_of_a_selector_are_one_group() -> None:
    spelled = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "web"]}]}
    of = state(
        nodes(a=1, b=1),
        workload("one").labels(app="web").spread("zone").placed({"a-0": 2}),
        workload("two").labels(app="web").spread("zone", selector=spelled).placed({"a-0": 1}),
    )
    assert list(excesses(of).values()) == [2]


def test_one_selector_under_two_max_skews_is_two_groups() -> None:
    of = state(
        nodes(a=1, b=1),
        workload("one").labels(app="web").spread("zone", 1).placed({"a-0": 4}),
        workload("two").labels(app="web").spread("zone", 3).placed({"b-0": 0, "a-0": 1}),
    )
    assert sorted(excesses(of).values()) == [2, 4]


def test_a_carrier_is_kept_out_of_the_full_domain_and_a_pod_without_the_constraint_is_not() -> None:
    of = state(nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 2}))
    (group,) = groups(of)
    assert kept_out_of(of, spread_pod(), group) == {"a"}
    assert kept_out_of(of, pod("new").labels(app="web").build()[0], group) == set()
