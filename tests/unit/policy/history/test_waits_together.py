"""All that an owner waits for is one reason with one end, or names what ends it: every combination."""

from __future__ import annotations

from itertools import chain, combinations
from math import inf

import pytest

from rebalancer.model.reason import Reason
from rebalancer.policy.annotations import pause_of, pause_value, paused_domains
from rebalancer.policy.history.ledger import DAY, Entry, Fate, Ledger, Opening
from rebalancer.policy.history.stabilization import stabilizing
from rebalancer.policy.history.waits import (
    ANY_POD,
    HistoryRules,
    Undone,
    end_of,
    first_to_end,
    held_back,
    is_wait,
    openings_of,
    out_for,
    together,
    waiting_owners,
    why,
)
from tests.support.build import node, nodes, snapshot

NOW = 2_000_000_000.0
RULES = HistoryRules(cool_down=180, stabilization=180, out_wait=21_600)
ZONE = "topology.kubernetes.io/zone=c"
NODES = snapshot(*nodes(c=2)).nodes


def entry(ago: float, fate: Fate = Fate.DONE, cluster: str = "", gates: tuple[str, ...] = ()) -> Entry:
    return Entry(
        at=NOW - ago, cycle=f"c{ago}", namespace="shop", pod="web-1", uid=f"u{ago}", node="a-0", gates=gates,
        owner="Deployment/shop/web", predicted="b-0", fate=fate, excess={"z": 2}, cluster=cluster,
    )  # fmt: skip


def remembered(*entries: Entry) -> Reason:
    found = waiting_owners(Ledger(entries=entries), RULES, now=NOW, cycle="now", cluster=lambda _: "same")
    [[reason]] = found.values()
    return reason


def out(said: str = "", shut: float = 0.0) -> Reason:
    openings = {ZONE: {"": Opening(0.0, shut)}}
    paused = paused_domains({pause_of(ZONE): f"{ZONE} {said}"}, NOW) if said else {}
    [reason] = out_for(ANY_POD, NODES, openings, paused, RULES.out_wait, NOW).values()
    return reason


def some(reason: Reason | None) -> Reason:
    assert reason is not None
    return reason


EVERY: dict[str, Reason] = {
    "cool-down": remembered(entry(60)),
    "replacements late or elsewhere": remembered(entry(600, Fate.FAILED, "same")),
    "a loop": remembered(*(entry(ago, cluster="same") for ago in (900, 600, 300))),
    "a young violation": some(stabilizing(NOW - 60, RULES, NOW)),
    "undone moves": why(("zone=a", "zone=c"), Undone(2, NOW + 1500), NOW),
    "gates that the template lacks": held_back(Ledger(entries=(entry(60, gates=("q",)),)), NOW)["shop"],
    "a domain that is shut": out(shut=NOW - 60),
    "a domain paused for two hours": out(pause_value(NOW + 7200, "drain")),
    "a domain paused until somebody resumes": out(pause_value(None, "shift")),
}
GOES_ON = ("rebalancer once --execute", "`rebalancer resume`")
"""What goes on now."""


@pytest.mark.parametrize("name", EVERY)
def test_each_wait_says_its_end_and_what_shortens_it(name: str) -> None:
    reason = EVERY[name]
    assert is_wait(reason)
    dated = "waits until 2033-05-25 " if NOW + 43_200 < end_of(reason) < inf else "waits "
    assert reason.message.startswith(dated), "a day that is not today has its date"
    assert NOW < end_of(reason) <= NOW + 7 * 86_400 or end_of(reason) == inf
    if name != "gates that the template lacks":
        assert any(s in reason.remedy for s in GOES_ON), reason.remedy


def test_every_combination_ends_or_names_what_keeps_it() -> None:
    sizes = range(1, len(EVERY) + 1)
    for names in chain.from_iterable(combinations(EVERY, size) for size in sizes):
        reasons = [EVERY[n] for n in names]
        [(owner, joined)] = together({"web": reasons}).items()
        assert owner == "web"
        assert end_of(joined) == max(map(end_of, reasons))
        assert all(r.message in joined.message for r in reasons)
        assert is_wait(joined)
        if end_of(joined) == inf:
            assert "`rebalancer resume` with the same --domain ends it" in joined.remedy


def test_of_several_workloads_the_first_to_go_is_told() -> None:
    first, later = EVERY["cool-down"], EVERY["replacements late or elsewhere"]
    said = some(first_to_end([later, first, first]))
    assert said.numbers == first.numbers
    assert said.message == f"{first.message}; another workload waits until then or longer"
    assert first_to_end([]) is None


def test_a_domain_that_no_node_has_been_in_is_paused_with_all_others() -> None:
    paused = paused_domains({pause_of("zone=C"): "zone=C drill"}, NOW)
    [reason] = out_for(ANY_POD, NODES, {}, paused, RULES.out_wait, NOW).values()
    assert "every domain is out" in reason.message
    assert "drill, and no node has been in zone=C" in reason.message


@pytest.mark.parametrize("out_wait", [0.0, RULES.out_wait, 3 * DAY])
def test_since_when_a_domain_was_shut_in_some_way_is_kept_as_long_as_a_rule_may_ask(out_wait: float) -> None:
    ages = (60.0, DAY - 60, DAY + 60, 3 * DAY - 60, 3 * DAY + 60)
    before = {ZONE: {"": Opening()} | {f"shift={age}:NoSchedule": Opening(1.0, NOW - age) for age in ages}}
    keys = {ZONE.partition("=")[0]}
    found = openings_of(NODES, keys, before, NOW, out_wait, latest=NOW + 9 * DAY)[ZONE]
    assert [NOW - o.shut for o in found.values() if o.shut] == [a for a in ages if a < max(out_wait, DAY)]
    anew = openings_of(NODES, keys, {ZONE: {"gone:NoSchedule": Opening()}}, NOW, out_wait, latest=NOW + 60)
    assert anew[ZONE]["gone:NoSchedule"].shut == NOW + 60, "the later of two clocks says since when"


def test_a_zone_stays_out_however_many_of_its_nodes_are_taken_away() -> None:
    """cluster-autoscaler's taint has the time at which it was set."""
    key, found = ZONE.partition("=")[0], {ZONE: {"": Opening()}}
    for minute in range(150):
        there = [n.cordoned() for n in nodes(c=2)]
        going = there[0].taint("ToBeDeletedByClusterAutoscaler", value=str(minute)).taint(f"x{minute}")
        seen = snapshot(going, there[1]).nodes
        at = NOW + 60 * minute
        found = openings_of(seen, {key}, found, at, RULES.out_wait, latest=at)
        assert found[ZONE][""].shut == NOW
    assert len(found[ZONE]) <= 102


def test_zones_are_known_however_many_domains_pods_spread_over() -> None:
    many = snapshot(*nodes(a=2, c=2), *(node(f"n{i:03}").label("a-rack", f"r{i:03}") for i in range(600)))
    found = openings_of(many.nodes, {ZONE.partition("=")[0], "a-rack"}, {}, NOW, 60, latest=NOW)
    assert ZONE in found
    assert len(found) == 500


def test_what_is_remembered_of_a_key_is_not_put_out_by_keys_of_others() -> None:
    racks = [node(f"n{i}").label("z-rack", f"r{i}") for i in range(9)]
    before = openings_of(snapshot(*racks).nodes, {"z-rack"}, {}, NOW, 60, latest=NOW)
    for i, one in enumerate(racks):
        for number in range(260):
            one.label(f"a{number}", str(i % 2))
    keys = {"z-rack", *(f"a{number}" for number in range(260))}
    found = openings_of(snapshot(*racks).nodes, keys, before, NOW, 60, latest=NOW)
    assert {f"z-rack=r{i}" for i in range(9)} < set(found)


def test_a_domain_that_was_opened_for_a_moment_is_out_as_before() -> None:
    key, found = ZONE.partition("=")[0], {ZONE: {"": Opening(several=True)}}
    for at, shut in ((NOW, (True, True)), (NOW + 60, (True, False)), (NOW + 120, (True, True))):
        there = [n.cordoned() if s else n for n, s in zip(nodes(c=2), shut, strict=True)]
        found = openings_of(snapshot(*there).nodes, {key}, found, at, RULES.out_wait, latest=at)
    last = snapshot(nodes(c=1)[0].cordoned()).nodes
    found = openings_of(last, {key}, found, NOW + 180, RULES.out_wait, latest=NOW + 180)
    assert out_for(ANY_POD, last, found, {}, RULES.out_wait, NOW + 180)


@pytest.mark.parametrize(
    ("shut", "out"), [(-1.0, True), (0.0, True), (0.001, True), (300.0, True), (-21_601.0, False)]
)
def test_a_domain_is_out_from_the_moment_it_is_shut_by_whatever_clock(shut: float, out: bool) -> None:
    openings = {ZONE: {"": Opening(0.0, NOW + shut)}}
    assert bool(out_for(ANY_POD, NODES, openings, {}, RULES.out_wait, NOW)) is out
    assert not out_for(ANY_POD, NODES, openings, {}, 0.0, NOW)
