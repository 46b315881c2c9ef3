"""What is remembered of evictions, and whom it protects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import ReasonCode
from rebalancer.policy.annotations import PAUSE, pause_value, paused
from rebalancer.policy.caps import Caps
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.history.fingerprints import Fingerprints, alike, recipe
from rebalancer.policy.history.ledger import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_IRREPLACEABLE,
    MOST_REFUSED,
    Circuit,
    Count,
    Entry,
    Fate,
    Ledger,
    Totals,
    added,
    cut_off,
    earlier,
    owner_id,
    stricter,
)
from rebalancer.policy.history.ledger_json import NewerLedgerError, decode, encode, within_limits
from rebalancer.policy.history.ledgers_merged import as_of
from rebalancer.policy.history.stabilization import Followed, Onset, first_seen, stabilizing
from rebalancer.policy.history.waits import HistoryRules, held_back, waiting_owners
from rebalancer.policy.options import Limit, PolicyOptions, Refused, Times
from rebalancer.policy.owners import Owners
from tests.support.build import deployment, node, nodes, objects, snapshot, workload

NOW = 1_000_000.0
WEB = "Deployment/shop/web"
RULES = HistoryRules(cool_down=180, retry_after=3600, max_returns=2)


def entry(ago: float, *, cycle: str = "", fate: Fate = Fate.DONE, excess: int = 1, **more: Any) -> Entry:
    fields: dict[str, Any] = {"owner": WEB, "cluster": "same", "excess": {"zone": excess}}
    return Entry(
        at=NOW - ago,
        cycle=cycle or f"c{ago}",
        namespace="shop",
        pod="web-1",
        uid=f"u{ago}",
        node="a-0",
        predicted="b-0",
        fate=fate,
        **{**fields, **more},
    )


OWNERS: list[tuple[str, list[Entry], ReasonCode | None]] = [
    ("nothing is remembered", [], None),
    ("an eviction a minute ago", [entry(60)], ReasonCode.COOL_DOWN),
    ("an eviction of this very cycle", [entry(60, cycle="now")], None),
    ("an eviction an hour ago", [entry(3000)], None),
    ("one that landed elsewhere", [entry(600, fate=Fate.ELSEWHERE, landed="a-0")], ReasonCode.DID_NOT_HELP),
    ("one elsewhere in this cycle", [entry(1, cycle="now", fate=Fate.ELSEWHERE)], ReasonCode.DID_NOT_HELP),
    ("one whose replacement failed", [entry(600, fate=Fate.FAILED)], ReasonCode.DID_NOT_HELP),
    ("elsewhere, but the cluster is another", [entry(600, fate=Fate.ELSEWHERE, cluster="other")], None),
    ("elsewhere, but long ago", [entry(4000, fate=Fate.ELSEWHERE)], None),
    ("mended bit by bit", [entry(900, excess=3), entry(600, excess=2), entry(300, excess=1)], None),
    ("mended three times anew", [entry(900), entry(600), entry(300)], ReasonCode.EVICTION_LOOP),
    ("came back smaller twice", [entry(900, excess=3, left={"zone": 0}),
     entry(600, excess=2, left={"zone": 0}), entry(300, excess=1)], ReasonCode.EVICTION_LOOP),
    ("came back smaller twice over what stayed", [entry(900, excess=5, left={"zone": 1}),
     entry(600, excess=3, left={"zone": 1}), entry(300, excess=2)], ReasonCode.EVICTION_LOOP),
    ("mended bit by bit, as is known", [entry(900, excess=5, left={"zone": 3}),
     entry(600, excess=3, left={"zone": 1}), entry(300, excess=1)], None),
    ("came back once", [entry(600, excess=2), entry(300, excess=2)], None),
    ("several plans of one cycle", [entry(900 - i, cycle="c", excess=2) for i in range(5)], None),
    ("came back in changing clusters", [entry(900, cluster="x"), entry(600), entry(300, cluster="y")], None),
    (
        "one elsewhere, by another version's word",
        [entry(600, fate=Fate.ELSEWHERE, cluster="its:x")], ReasonCode.DID_NOT_HELP,
    ),
    (
        "mended three times anew, by another version's word",
        [entry(ago, cluster="its:x") for ago in (900, 600, 300)], ReasonCode.EVICTION_LOOP,
    ),
    (
        "mended three times anew on other nodes, by another version's word",
        [entry(ago, cluster=f"its:x.{ago}") for ago in (900, 600, 300)], ReasonCode.EVICTION_LOOP,
    ),
    (
        "rolled out three times and mended each time, by another version's word",
        [entry(ago, cluster=f"its:{ago}.x") for ago in (900, 600, 300)], None,
    ),
    (
        "elsewhere before it was rolled out, by another version's word",
        [entry(900, fate=Fate.ELSEWHERE, cluster="its:x.n"), entry(600, cluster="its:y.n")], None,
    ),
    (
        "elsewhere before another version, and mended by this one",
        [entry(900, fate=Fate.ELSEWHERE, cluster="its:x.n"), entry(600)], ReasonCode.DID_NOT_HELP,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "code"), [o[1:] for o in OWNERS], ids=[o[0] for o in OWNERS])
def test_an_owner_of(entries: list[Entry], code: ReasonCode | None) -> None:
    found = waiting_owners(
        Ledger(entries=tuple(entries)), RULES, now=NOW, cycle="now", cluster=lambda _: "same"
    )
    assert [r.code for r in found.get("Deployment/shop/web", ())] == ([code] if code else [])


@pytest.mark.parametrize(("days", "held"), [(6.9, True), (7.1, False)])
def test_a_namespace_whose_gates_held_a_replacement_back_is_left_alone_for_a_week(
    days: float, held: bool
) -> None:
    gated = entry(days * 86_400, gates=("queue.example/wait",))
    assert set(held_back(Ledger(entries=(entry(9), gated)), NOW)) == ({"shop"} if held else set())


def test_a_clock_that_was_put_back_does_not_make_owners_rest_for_ever() -> None:
    ledger = as_of(Ledger(entries=(entry(-86_400),)), NOW - RULES.cool_down, 0.0)
    assert waiting_owners(ledger, RULES, now=NOW, cycle="now", cluster=lambda _: "") == {}


def test_an_owner_that_rests_is_not_evicted_and_says_why() -> None:
    s = snapshot(*nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 3}))
    [[reason]] = waiting_owners(
        Ledger(entries=(entry(1, owner="Deployment/default/web"),)),
        RULES,
        now=NOW,
        cycle="now",
        cluster=lambda _: "",
    ).values()
    options = PolicyOptions(waiting_owners={"Deployment/default/web": reason})
    assert {Evictable(s, options).why_not(p) for p in s.pods} == {reason}
    assert {Evictable(s, PolicyOptions()).why_not(p) for p in s.pods} == {None}


def fingerprint(*things: Any, to: str = "b-0") -> str:
    """Of a move from a-0."""
    s = snapshot(*things)
    owner = next(w for w in s.workloads if w.kind == "Deployment")
    return Fingerprints(s.nodes).of(owner, ("a-0", to))


def test_a_digest_says_which_fields_it_was_made_of() -> None:
    one, same, more = (
        recipe(msgspec.defstruct("Template", [("labels", str), *fields]))
        for fields in ([], [], [("os", str, "")])
    )
    assert one == same != more
    assert fingerprint(*nodes(a=1, b=1), web()).startswith(f"{recipe(PodTemplate)}:")


def web(skew: int = 1, key: str = "zone") -> Any:
    return deployment("web").spread(key, skew)


SAME = [
    ("its pods are elsewhere", [*nodes(a=1, b=1), web().placed({"b-0": 2})]),
    ("an autoscaler makes more of them", [*nodes(a=1, b=1), web().placed({"a-0": 3})]),
    ("an ordinary node joins", [*nodes(a=2, b=3), web()]),
    ("a tainted node joins", [*nodes(a=1, b=1), node("x").zone("a").taint("batch", "NoSchedule"), web()]),
    ("a zone joins that is cordoned", [*nodes(a=1, b=1), node("x").zone("c").cordoned(), web()]),
    ("a node without zone joins", [*nodes(a=1, b=1), node("apart"), web()]),
]


@pytest.mark.parametrize("things", [s[1] for s in SAME], ids=[s[0] for s in SAME])
def test_a_fingerprint_stays_when(things: list[Any]) -> None:
    assert fingerprint(*things) == fingerprint(*nodes(a=1, b=1), web().placed({"a-0": 2}))


def test_a_fingerprint_stays_over_the_releases_of_an_argo_rollout() -> None:
    def release(number: int) -> str:
        things = objects(*nodes(a=1, b=1), web())
        top = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "u"}
        for o in things:
            if o["kind"] == "ReplicaSet":
                o["metadata"]["ownerReferences"] = [{**top, "controller": True}]
                made = o["spec"]["template"]["metadata"]["labels"]
                made["rollouts-pod-template-hash"] = made.pop("pod-template-hash") + str(number)
        s = snapshot([o for o in things if o["kind"] != "Deployment"])
        return Fingerprints(s.nodes).of(s.workloads[0], ("a-0", "b-0"))

    assert release(1) == release(2)


OTHER = [
    ("a zone joins", [*nodes(a=1, b=1, c=1), web()]),
    ("the template changes", [*nodes(a=1, b=1), web(2)]),
    ("the node where it was to go is in another zone", [*nodes(a=1, c=1), node("b-0").zone("a"), web()]),
    ("the node where it was to go is cordoned", [*nodes(a=1), node("b-0").zone("b").cordoned(), web()]),
    ("the node that it left is gone", [*nodes(b=1), node("a-1").zone("a"), web()]),
]


@pytest.mark.parametrize("things", [s[1] for s in OTHER], ids=[s[0] for s in OTHER])
def test_a_fingerprint_changes_when(things: list[Any]) -> None:
    assert fingerprint(*things) != fingerprint(*nodes(a=1, b=1), web())


@pytest.mark.parametrize(
    ("things", "is_what_it_was"),
    [
        ([*nodes(a=1), node("b-0").zone("b").cordoned()], True),
        ([node("a-0").zone("a").taint("karpenter.sh/disrupted"), *nodes(b=1)], True),
        ([*nodes(a=1), node("b-0").zone("b").taint("batch")], False),
        ([*nodes(a=1), node("b-0").zone("c").cordoned()], False),
        ([*nodes(a=1)], False),
    ],
    ids=["cordoned", "about to go", "for others from now on", "in another zone, too", "gone"],
)
def test_what_a_move_rested_on_is_what_it_was_while_a_node_is_shut_for_a_while(
    things: list[Any], is_what_it_was: bool
) -> None:
    digest = fingerprint(*nodes(a=1, b=1), web())
    s = snapshot(*things, web().placed({"a-0": 1}))
    owner = next(w for w in s.workloads if w.kind == "Deployment")
    assert (Fingerprints(s.nodes).again(digest, owner, ("a-0", "b-0")) == digest) is is_what_it_was


def test_where_each_node_is_a_domain_a_new_one_changes_no_fingerprint() -> None:
    def of(**per_zone: int) -> str:
        return fingerprint(*nodes(**per_zone), web(key="hostname"))

    assert of(a=1, b=1) == of(a=2, b=3)
    assert of(a=1, b=1) != of(a=1)


@pytest.mark.parametrize(
    ("last", "can_be"),
    [
        (lambda: fingerprint(*nodes(a=1, b=1), web()), True),
        (lambda: fingerprint(*nodes(a=1, b=2), web(), to="b-1"), True),
        (lambda: fingerprint(*nodes(a=1, b=1), web(2)), False),
        (lambda: fingerprint(*nodes(a=1, b=1, c=1), web()), False),
    ],
    ids=["the same move", "a move to another node", "a rollout", "a zone that joined"],
)
def test_another_versions_digest_can_be_of_now_unless_the_owner_changed_until_its(
    last: Callable[[], str], can_be: bool
) -> None:
    now = fingerprint(*nodes(a=1, b=1), web())
    its, its_last = (f"its:{digest.rpartition(':')[2]}" for digest in (now, last()))
    assert alike(its, now, its_last) == can_be


KNOWN, NEVER = Ledger(looked=NOW - 60, violated={"z": NOW - 500}), Ledger()
BLIND, SEEN = Followed(), Followed(61)
BEGAN = Followed(61, {"z": Onset(20, by_nodes=False)})
# The ledger, when the youngest pod was made, what watches have seen, since when the violation lasts.
SINCE: dict[str, tuple[Ledger, float | None, Followed, float]] = {
    "known": (KNOWN, NOW - 9999, BLIND, NOW - 500),
    "known, and a pod is younger": (KNOWN, NOW - 100, BLIND, NOW - 100),
    "known, and a pod is younger, and watches saw that it lasted": (KNOWN, NOW - 100, SEEN, NOW - 500),
    "known, and watches missed a moment": (KNOWN, NOW - 100, Followed(59), NOW - 100),
    "known, and watches saw that it ended and began anew": (KNOWN, NOW - 9999, BEGAN, NOW - 20),
    "watches saw it begin since the last look": (Ledger(looked=NOW - 60), NOW - 9999, BEGAN, NOW - 20),
    "watches saw it begin and nobody has looked": (NEVER, NOW - 9999, BEGAN, NOW - 20),
    "new since the last look": (Ledger(looked=NOW - 60), NOW - 9999, BLIND, NOW),
    "nobody has looked: as old as the youngest pod": (NEVER, NOW - 400, BLIND, NOW - 400),
    "nobody has looked, ages unknown": (NEVER, None, BLIND, NOW),
    "known from the future": (Ledger(looked=1, violated={"z": NOW + 500}), None, BLIND, NOW),
}


@pytest.mark.parametrize("sentence", SINCE)
def test_since_when_a_violation_lasts(sentence: str) -> None:
    ledger, youngest, followed, since = SINCE[sentence]
    assert first_seen(ledger, ["z"], lambda _: youngest, followed, now=NOW) == {"z": since}


def test_a_violation_has_to_last() -> None:
    rules = HistoryRules(stabilization=180)
    assert stabilizing(NOW - 180, rules, NOW) is None
    reason = stabilizing(NOW - 60, rules, NOW)
    assert reason is not None
    assert reason.numbers == {"until": NOW + 120}
    assert reason.message.startswith(
        "waits until 13:48:40Z: its violation is not known from before 13:45:40Z"
    )


def test_what_was_cut_off_is_settled_by_what_is_seen() -> None:
    lives, gone = entry(9, fate=Fate.INTENDED), entry(8, fate=Fate.INTENDED)
    (settled,) = cut_off([lives, gone], frozenset({lives.uid}), frozenset(), NOW, lambda _: True)
    assert (settled.uid, settled.fate, settled.at) == (gone.uid, Fate.UNKNOWN, NOW)


def test_what_may_be_on_its_way_is_open_and_counts_once() -> None:
    lives, gone = entry(9, fate=Fate.INTENDED), entry(8, fate=Fate.INTENDED)
    again = replace(gone, cycle="another", fate=Fate.DONE)
    kept = cut_off([lives, gone, again], frozenset({lives.uid}), frozenset(), NOW, lambda _: False)
    assert [*kept] == [lives, again]


def test_what_ended_before_says_nothing_of_what_was_cut_off_with_the_same_pod() -> None:
    doubt, gone = entry(8, fate=Fate.UNKNOWN), entry(2, fate=Fate.INTENDED)
    kept = cut_off([doubt, replace(gone, uid=doubt.uid)], frozenset(), frozenset(), NOW, lambda _: True)
    assert [(e.fate, e.at) for e in kept] == [(Fate.UNKNOWN, doubt.at), (Fate.UNKNOWN, NOW)]


def test_a_process_at_work_settles_what_it_sent_itself() -> None:
    gone = entry(9, cycle="other-1-1", fate=Fate.INTENDED)
    kept = cut_off([gone], frozenset(), frozenset(), NOW, lambda _: True, at_work=("other-",))
    assert [*kept] == [gone]


def test_of_a_namespace_that_was_not_read_only_time_tells() -> None:
    held = entry(9, fate=Fate.RELEASED, method="replaceFirst")
    sent = entry(8, fate=Fate.INTENDED, over_at=NOW - 1)
    for over in (False, True):
        kept = cut_off(
            [held, sent],
            frozenset(),
            frozenset(),
            NOW,
            lambda _, over=over: over,  # type: ignore[misc]
            read=lambda namespace: namespace != "shop",
        )
        unknown = replace(sent, at=NOW - 1, fate=Fate.UNKNOWN, message="cut off while evicting")
        assert [*kept] == [held, unknown if over else sent]


@pytest.mark.parametrize("fate", [Fate.INTENDED, Fate.RELEASED])
def test_a_pod_that_several_have_written_down_goes_once(fate: Fate) -> None:
    first, second = (replace(entry(n, fate=fate), uid="u", method="replaceFirst") for n in (9, 8))
    kept = cut_off([first, second], frozenset({"u"}), frozenset({"u"}), NOW, lambda _: True)
    assert [(e.cycle, e.fate) for e in kept] == [(second.cycle, Fate.RELEASED)]
    (gone,) = cut_off([first, second], frozenset(), frozenset(), NOW, lambda _: True)
    assert (gone.cycle, gone.fate, gone.at) == (second.cycle, Fate.UNKNOWN, NOW)


@pytest.mark.parametrize(("cool_down", "until"), [(60, [NOW + 180]), (0, [])])
def test_an_owner_rests_while_another_process_may_evict_a_pod_of_it(
    cool_down: float, until: list[float]
) -> None:
    """When that was intended is long ago, and it may be sent only now."""
    ledger = Ledger(entries=(entry(3000, fate=Fate.INTENDED, over_at=NOW + 180),))
    rules = HistoryRules(cool_down=cool_down)
    waits = waiting_owners(ledger, rules, now=NOW, cycle="mine", cluster=lambda _: "same")
    assert [r.numbers["until"] for r in waits.get(WEB, ())] == until


def test_of_releases_that_were_cut_off_only_those_that_were_made_count() -> None:
    made, back, never = (
        entry(n, fate=fate, method="replaceFirst")
        for n, fate in ((9, Fate.INTENDED), (8, Fate.RELEASED), (7, Fate.INTENDED))
    )
    alive = frozenset({made.uid, back.uid, never.uid})
    settled = cut_off([made, back, never], alive, frozenset({made.uid}), NOW, lambda _: True)
    assert [(e.uid, e.fate) for e in settled] == [(made.uid, Fate.RELEASED), (back.uid, Fate.UNDONE)]


def test_a_ledger_is_read_as_it_was_written() -> None:
    ledger = Ledger(
        entries=(entry(1),),
        violated={"z": NOW},
        totals=Totals(evictions=3, in_a_row=2),
        circuit=Circuit(until=NOW, trips=1, reason="r"),
        looked=NOW,
        writer="w",
        serial=4,
    )
    assert decode(encode(ledger)) == ledger
    assert decode(encode(Ledger())) == Ledger()


def test_a_ledger_stays_within_its_bounds() -> None:
    many = Ledger(entries=tuple(entry(5000 - i, message="x" * 2000) for i in range(2 * MOST_ENTRIES)))
    data = encode(within_limits(many))
    assert len(data) <= MOST_BYTES + 1000
    kept = decode(data).entries
    assert kept == many.entries[-len(kept) :]
    assert len(kept) > 100


AGES = [
    ("this hour", 5.0, (3000, 3000)),
    ("today", 7200.0, (0, 3000)),
    ("yesterday", 90_000.0, (0, 0)),
]


def test_of_workloads_that_cannot_be_replaced_the_first_are_kept() -> None:
    names = {f"Deployment/{'n' * 60}/{i:0250}": float(i) for i in range(3 * MOST_IRREPLACEABLE)}
    data = encode(within_limits(Ledger(irreplaceable=names)))
    assert len(data) <= MOST_BYTES
    assert set(decode(data).irreplaceable.values()) == set(map(float, range(MOST_IRREPLACEABLE)))


def test_of_refusals_the_last_are_kept_and_they_push_no_evictions_out() -> None:
    refused = {f"{i:036}": Refused(float(i), "d" * 16, "x" * 200) for i in range(3 * MOST_REFUSED)}
    entries = tuple(entry(i, message="x" * 250) for i in range(MOST_ENTRIES, 0, -1))
    assert len(within_limits(Ledger(refused=refused)).refused) == MOST_REFUSED
    data = encode(within_limits(Ledger(entries=entries, refused=refused)))
    read = decode(data)
    assert read.entries == entries
    assert len(data) <= MOST_BYTES
    times = sorted(r.at for r in read.refused.values())
    assert 0 < len(times) < MOST_REFUSED
    assert times == sorted(r.at for r in refused.values())[-len(times) :]


def test_workloads_that_cannot_be_replaced_push_no_evictions_out() -> None:
    """Both at their limits. Cool-downs rest on evictions, and on the since-times only what a finding says."""
    names = {f"Deployment/{'n' * 60}/{i:0200}": float(i) for i in range(MOST_IRREPLACEABLE)}
    entries = tuple(entry(i, message="x" * 250) for i in range(MOST_ENTRIES, 0, -1))
    assert decode(encode(Ledger(entries=entries))).entries == entries
    data = encode(within_limits(Ledger(entries=entries, irreplaceable=names)))
    read = decode(data)
    assert read.entries == entries
    assert len(data) <= MOST_BYTES
    assert len(data) > MOST_BYTES - 300, "no more of them went than had to"
    assert set(read.irreplaceable.values()) == set(map(float, range(len(read.irreplaceable))))


@pytest.mark.parametrize(("age", "counted"), [a[1:] for a in AGES], ids=[a[0] for a in AGES])
def test_caps_forget_by_time_and_not_because_the_ledger_is_full(age: float, counted: tuple[int, int]) -> None:
    """Three times as many evictions as entries have room, written and read in five goes."""
    ledger = Ledger()
    for i in range(5):
        more = tuple(entry(age + i * 1e-3, message="x" * 200) for _ in range(3 * MOST_ENTRIES // 5))
        ledger = decode(encode(within_limits(replace(ledger, entries=(*ledger.entries, *more)))))
    assert len(ledger.entries) <= MOST_ENTRIES
    count = earlier(ledger, now=NOW, cycle="now")
    assert (many(count.last_hour), many(count.last_day.get(owner_id(WEB), ()))) == counted


def many(times: Times) -> int:
    return sum(n for _, n in times)


def test_a_count_that_nobody_can_have_made_costs_nothing() -> None:
    """Anybody who may write the ledger's ConfigMap can have written it."""
    data = encode(Ledger(counted={owner_id(WEB): (Count(int(NOW), 10**15),)}))
    assert many(earlier(decode(data), now=NOW, cycle="now").last_hour) == 10**15


def test_a_full_day_of_evictions_of_thousands_of_owners_has_room() -> None:
    owners = [f"Deployment/team-{i % 97}/a-service-with-a-rather-long-name-{i}" for i in range(10_000)]
    tally = added({}, [(o, NOW - i) for i, o in enumerate(owners)])
    entries = tuple(entry(i, message="x" * 500) for i in range(MOST_ENTRIES, 0, -1))
    data = encode(within_limits(Ledger(counted=tally, entries=entries)))
    assert len(data) < 2**20, "what a ConfigMap holds"
    assert len(decode(data).entries) > 500, "counts do not push entries out, on which loop protection rests"


def test_of_two_accounts_the_higher_count_holds() -> None:
    one = added({}, [(WEB, NOW), (WEB, NOW + 1), ("x", NOW)])
    other = added({}, [(WEB, NOW), (WEB, NOW + 2), (WEB, NOW + 3)])
    both = stricter(one, other)
    assert [c.evictions for c in both[owner_id(WEB)]] == [3]
    assert both[owner_id("x")] == one[owner_id("x")]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": "1"}'])
def test_a_damaged_ledger_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"it "):
        decode(text)


def test_a_newer_ledger_is_told() -> None:
    with pytest.raises(NewerLedgerError, match="version 2"):
        decode('{"version": 2}')


PAUSES = [
    ("", False),
    ("false", False),
    ("true", True),
    ("until we know more", True),
    ("2026-01-01T00:00:00Z", False),
    ("2027-01-01T00:00:00Z", True),
    ("2026-13-01T00:00:00Z", True),
    ("2026-01-01T00:00:00+02:00 since then all is well", False),
    # What only looks like a time is a reason.
    ("2026-01-01", True),
    ("20260101", True),
    ("2026-W01", True),
    ("20260101T08 night shift", True),
    ("2026-01-01T10:00 the drain began", True),
]


@pytest.mark.parametrize(("said", "is_paused"), PAUSES)
def test_a_pause(said: str, is_paused: bool) -> None:
    now = 1_790_000_000.0  # September 2026
    assert (paused("namespace shop", {PAUSE: said}, now) is not None) is is_paused


@pytest.mark.parametrize("reason", ["", "incident 4711", "20260101", "false", "2026-01-01T00:00:00Z drain"])
def test_whatever_the_reason_a_pause_without_an_end_pauses(reason: str) -> None:
    now = 1_790_000_000.0
    assert paused("brake", {PAUSE: pause_value(None, reason)}, now) is not None
    assert paused("brake", {PAUSE: pause_value(now + 60, reason)}, now) is not None
    assert paused("brake", {PAUSE: pause_value(now + 60, reason)}, now + 61) is None


def test_a_paused_namespace_is_left_alone() -> None:
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "annotations": {PAUSE: "incident 7"}},
    }
    s = snapshot(*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 3}), space)
    reason = Evictable(s, PolicyOptions()).why_not(s.pods[0])
    assert reason is not None
    assert reason.code is ReasonCode.PAUSED_BY_ANNOTATION


def test_a_percentage_per_domain_is_of_the_domain_s_pods() -> None:
    s = snapshot(*nodes(a=2, b=1), workload("web").spread("zone", 1).placed({"a-0": 6, "a-1": 4, "b-0": 5}))
    options = PolicyOptions(max_per_domain=Limit(percent=20))
    caps = Caps(options, s, Owners(s, options))
    zone = "topology.kubernetes.io/zone=a"
    pods = [p for p in s.pods if p.node_name.startswith("a-")]
    assert caps.spend(pods[0], [zone]) is None
    assert caps.spend(pods[1], [zone]) is None
    reason = caps.spend(pods[2], [zone])
    assert reason is not None
    assert reason.numbers == {"cap": 2}
