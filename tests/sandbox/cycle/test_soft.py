"""Soft constraints executed: where the scheduler follows its scores, and where it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.history.fingerprints import constraint_id
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.runtime.cycle.memory import Memory
from tests.support.build import NOW, decoded, nodes, objects, pdb, snapshot, workload
from tests.support.processes.command import call
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.sandbox import ApiServer, Cluster
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Choose, Hands, everything

SOFT = replace(EXECUTE, planning=PlanOptions(soft="predicted"))


def web(**placed: int) -> list[Any]:
    soft = workload("web").spread("zone", 1, soft=True)
    return [nodes(a=2, b=2, c=2), soft.placed({f"{z}-0": n for z, n in placed.items()})]


def by_score(server: ApiServer, seed: int) -> Choose:
    """As the scheduler does: one of the best-scored nodes, by chance."""
    rng = np.random.default_rng(seed)

    def choose(pod: Json, left: list[str]) -> str | None:
        if not left:
            return None
        seen = decoded(everything(server.store))
        template = next(p.template for p in seen.pods if p.name == pod["metadata"]["name"])
        simulation = Simulation(seen, None)
        mask = np.isin(simulation.state.table.names, left)
        totals = simulation.framework(template).score(template, mask).totals
        best = np.flatnonzero(mask & (totals == totals[mask].max()))
        return str(simulation.state.table.names[rng.choice(best)])

    return choose


def stays_in(zone: str) -> Choose:
    """A scheduler that is not of the scores' mind."""
    return lambda _, left: next((n for n in left if n.startswith(zone)), left[0] if left else None)


def executed(things: Iterable[Any], seed: int = 0) -> tuple[Run, Run]:
    """A cycle and the next one, over a scheduler that follows its scores."""
    with ApiServer(objects(*things)) as server:
        hands = Hands(server, choose=by_score(server, seed))
        return Run(server, SOFT, hands=hands), Run(server, SOFT, hands=hands)


def test_it_ends_where_predicted_and_is_quiet_then() -> None:
    for seed in range(3):
        run, again = executed(web(a=6), seed)
        assert run.report.end is End.COMPLETE
        assert run.zones() == [2, 2, 2]
        assert run.evictions() == 4
        assert all(o.expected for o in run.report.outcomes)
        assert (again.report.end, again.report.evicted) == (End.COMPLETE, 0)


def test_where_the_excess_falls_only_with_the_second_move() -> None:
    run, again = executed([*web(a=4, b=4), nodes(d=2)])
    assert (run.report.end, run.zones(), run.report.evicted) == (End.COMPLETE, [2, 2, 2, 2], 4)
    assert again.report.evicted == 0


def test_hard_ones_first_then_soft_ones_within_the_budget() -> None:
    api = workload("api").spread("hostname", 1).spread("zone", 1, soft=True).placed({"a-0": 4, "a-1": 2})
    budget = pdb("api", {"app": "api"}, max_unavailable=1)
    run, again = executed([*web(a=4), api, budget])
    assert run.report.end is End.COMPLETE
    assert run.report.last is not None
    assert (run.report.last.excess, run.hands.broken_budgets) == (0, [])
    assert sorted(run.zones("web")) == [1, 1, 2]
    assert run.zones("api") == [2, 2, 2]
    assert again.report.evicted == 0


def test_capped_cycles_get_there_one_by_one() -> None:
    policy = PolicyOptions(max_total=Limit(number=1))
    options = replace(EXECUTE, planning=PlanOptions(soft="predicted", policy=policy))
    with ApiServer(objects(*web(a=4, b=4), nodes(d=2))) as server:
        hands = Hands(server, choose=by_score(server, 0))
        evicted = [Run(server, options, hands=hands).report.evicted for _ in range(6)]
        assert evicted == [1, 1, 1, 1, 0, 0]
        assert Run(server, options, hands=hands).zones() == [2, 2, 2, 2]


def test_a_scheduler_that_does_not_follow_is_asked_once_and_that_is_remembered() -> None:
    with Machine(web(a=6)) as machine:
        machine.hands = Hands(machine.server, choose=stays_in("a"))
        runs = [machine.cycle(HistoryRules(), SOFT) for _ in range(3)]
        assert [r.report.evicted for r in runs] == [1, 0, 0]
        assert [o.expected for o in runs[0].report.outcomes] == [False]
        assert {r.report.end for r in runs} == {End.WAITING}
        assert "did not help: its replacement went to a-" in runs[0].report.message
        last = runs[-1].story.plans[-1]
        assert Counter(b.reason.code for b in last.blocked) == {ReasonCode.DID_NOT_HELP: 6}
        assert [r.code for r in last.constraints[0].reasons] == [ReasonCode.DID_NOT_HELP]


def test_without_a_memory_the_cycle_ends_with_the_second_misprediction() -> None:
    with ApiServer(objects(*web(a=6))) as server:
        run = Run(server, SOFT, hands=Hands(server, choose=stays_in("a")))
        assert (run.report.end, run.report.evicted) == (End.UNSTABLE, 2)
        assert "did not go as planned" in run.report.message


def test_a_misprediction_does_not_keep_others_from_being_balanced() -> None:
    """The scheduler sends replacements of web back, and those of api where the scores say."""
    with Machine([*web(a=6), workload("api").spread("zone", 1, soft=True).placed({"a-1": 3})]) as machine:
        scores, back = by_score(machine.server, 0), stays_in("a")
        machine.hands = Hands(
            machine.server,
            choose=lambda p, left: (back if p["metadata"]["labels"]["app"] == "web" else scores)(p, left),
        )
        runs = [machine.cycle(HistoryRules(), SOFT) for _ in range(3)]
        assert runs[-1].zones("api") == [1, 1, 1]
        assert runs[-1].zones("web") == [6, 0, 0]
        assert [r.report.evicted for r in runs] == [3, 0, 0]


def test_by_configuration_over_a_whole_cluster(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("planner: {softConstraints: predicted}\nevictions: {perSecond: 0}\n")
    with Cluster(objects(*web(a=3, b=1, c=1))) as cluster:
        cluster.settle()
        ignored = call(cluster.server, tmp_path, "once", "--execute")
        done = call(cluster.server, tmp_path, "once", "--execute", "--config", str(config))
        again = call(cluster.server, tmp_path, "once", "--execute", "--config", str(config))
    assert "  evicted: " not in ignored.stdout
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  evicted: ") == 1
    assert "complete: every constraint in scope holds" in done.stdout
    assert again.stdout == "complete: every constraint in scope holds\n"


@pytest.mark.parametrize(
    ("sentence", "since", "held_back"),
    [
        ("both have lasted", {"hard": 0.0, "soft": 0.0}, False),
        ("the soft one is new", {"hard": 0.0}, False),
        ("the hard one is new", {"soft": 0.0}, True),
        ("both are new", {}, True),
    ],
)
def test_a_young_soft_violation_does_not_hold_back_what_a_hard_one_needs(
    sentence: str, since: dict[str, float], held_back: bool
) -> None:
    api = workload("api").spread("hostname", 1).spread("zone", 1, soft=True).placed({"a-0": 4})
    s = snapshot(nodes(a=2, b=2), api)
    found = plan(s, PlanOptions(soft="predicted"))
    ids = {"hard" if c.constraint.hard else "soft": constraint_id(c.constraint) for c in found.constraints}
    memory = Memory(FakeTime(at=NOW + 3600), HistoryRules(stabilization=180))
    memory.ledger = Ledger(looked=NOW + 3599, violated={ids[k]: at for k, at in since.items()})
    assert bool(memory.waits(s, found, {})) is held_back, sentence
