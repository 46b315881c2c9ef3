"""Which moves of a plan may start, with others in flight, landed, stuck or refused."""

from __future__ import annotations

from msgspec.structs import replace

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import Eviction, Fate, Outcome, Result
from rebalancer.planner import plan
from rebalancer.planner.pace import chains
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.replacements import Flight
from tests.support.build import nodes, snapshot, workload
from tests.unit.runtime.cycle.made import move

GONE = Eviction(result=Result.EVICTED, message="")


class Flown:
    """A flight of moves written as `web1` (wave 1 of web) or `web2?` (wave 2 of web, not certain)."""

    def __init__(self, *words: str, dry: bool = False) -> None:
        names = dict.fromkeys(w.rstrip("?")[:-1] for w in words)
        self.moves: dict[str, Move] = {}
        of: dict[str, list[Move]] = {n: [] for n in names}
        s = snapshot(*nodes(a=1, b=2, c=2), *(workload(n).placed({"a-0": len(words)}) for n in names))
        for word in words:
            name, wave = word.rstrip("?")[:-1], int(word.rstrip("?")[-1])
            pod = [p for p in s.pods if p.name.startswith(f"{name}-")][len(of[name])]
            made = move(pod.name, s, wave, certain=not word.endswith("?"))
            of[name].append(made)
            self.moves[f"{word}.{len([w for w in self.moves if w.startswith(word)])}"] = made
        self.flight = Flight(of.values(), dry=dry)

    def may(self) -> list[str]:
        """The words of those that may start."""
        now = {m.pod.uid for m in self.flight.may_start()}
        return [word.partition(".")[0] for word, m in self.moves.items() if m.pod.uid in now]

    def start(self, word: str, nth: int = 0) -> None:
        self.flight.started(self._outcome(word, nth, Fate.INTENDED))

    def land(self, word: str, on: str = "b-0", nth: int = 0, *, start: bool = True) -> None:
        if start and self.moves[f"{word}.{nth}"].pod.uid not in self.flight.flying:
            self.start(word, nth)
        self.flight.ended(self._outcome(word, nth, Fate.DONE, node=on, expected=on in ("b-0", "b-1")))

    def fail(self, word: str, nth: int = 0) -> None:
        self.start(word, nth)
        self.flight.ended(self._outcome(word, nth, Fate.FAILED))

    def refuse(self, word: str, nth: int = 0) -> None:
        why = Reason(ReasonCode.CHANGED_SINCE_PLAN, "")
        self.flight.ended(
            Outcome(move=self.moves[f"{word}.{nth}"], status=Fate.SKIPPED, message="", reason=why)
        )

    def _outcome(self, word: str, nth: int, status: Fate, **more: object) -> Outcome:
        found = Outcome(move=self.moves[f"{word}.{nth}"], status=status, message="", eviction=GONE)
        return replace(found, **more)


def test_the_first_moves_of_all_chains_may_start_whatever_their_wave() -> None:
    assert Flown("web1", "web2", "db2", "db3").may() == ["web1", "db2"]


def test_a_later_wave_of_a_chain_waits_until_the_one_before_has_landed() -> None:
    f = Flown("web1", "web1", "web2", "db1", "db2")
    f.start("web1")
    assert f.may() == ["web1", "db1"]
    f.land("web1", nth=1)
    assert f.may() == ["db1"]
    f.land("web1", start=False)
    assert f.may() == ["web2", "db1"]


def test_a_stuck_replacement_holds_back_its_own_chain_only() -> None:
    f = Flown("web1", "web2", "db1", "db2", "db3")
    f.start("web1")
    f.land("db1")
    f.land("db2")
    assert f.may() == ["db3"]


def test_what_is_certain_goes_on_after_any_planned_landing() -> None:
    f = Flown("web1", "web2")
    f.land("web1", on="b-1")
    assert f.may() == ["web2"]


def test_what_failed_or_landed_elsewhere_ends_its_chain_for_this_plan() -> None:
    f = Flown("web1", "web1", "web2", "db1", "db1", "db2", "api1", "api2")
    f.fail("web1")
    f.land("db1", on="c-0")
    assert f.may() == ["api1"]


def test_after_a_refusal_the_rest_of_its_wave_goes_and_what_follows_waits() -> None:
    f = Flown("web1", "web1", "web2")
    f.refuse("web1")
    assert f.may() == ["web1"]
    f.land("web1", nth=1)
    assert f.may() == []
    assert not f.flight.rests_on_landings()


def test_a_landing_that_only_the_last_look_knew_ends_the_chain_too() -> None:
    f = Flown("web1", "web2")
    f.land("web1", on="c-1")
    assert f.may() == []


def test_what_is_not_certain_goes_when_everything_before_landed_as_predicted() -> None:
    f = Flown("web1", "web2?", "db1")
    f.land("web1")
    assert f.may() == ["db1"]
    f.land("db1")
    assert f.may() == ["web2?"]


def test_what_is_not_certain_rests_on_a_landing_that_was_not_predicted() -> None:
    f = Flown("web1", "web2?", "db1", "db2")
    f.land("db1", on="b-1")
    f.land("web1")
    assert f.may() == ["db2"]
    f.land("db2")
    assert f.may() == []
    assert f.flight.rests_on_landings()


def test_the_first_wave_goes_even_if_nothing_of_it_is_certain() -> None:
    f = Flown("web1?", "web1?", "db1?")
    f.land("web1?", on="b-1")
    assert f.may() == ["web1?", "db1?"]


def test_a_dry_run_goes_through_everything() -> None:
    f = Flown("web1", "web2?", "web3", dry=True)
    f.refuse("web1")
    f.refuse("web2?")
    assert f.may() == ["web3"]


def test_workloads_that_one_constraint_counts_are_one_chain() -> None:
    web = workload("web").labels(tier="x").spread("zone", 1, selector={"tier": "x"})
    api = workload("api").labels(tier="x").spread("zone", 1, selector={"tier": "x"})
    db = workload("db").spread("zone", 1)
    placed = {"a-0": 3, "b-0": 1}
    made = plan(snapshot(*nodes(a=1, b=1), web.placed(placed), api.placed(placed), db.placed(placed)))
    found = [sorted({m.owner.name for m in chain}) for chain in chains(made, made.allowed)]
    both = {m.owner.name for m in made.moves} - {"db"}
    assert sorted(found) == sorted([sorted(both), ["db"]])
    for chain in chains(made, made.allowed):
        assert [m.wave for m in chain] == sorted(m.wave for m in chain)
