"""Pods whose eviction a webhook refuses are remembered, from process to process, and others go instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rebalancer.planner import PlanOptions
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import Limit, PolicyOptions
from tests.support.build import nodes, stateful_set, workload
from tests.support.runs.machine import PLACE, Machine
from tests.support.runs.one_cycle import EXECUTE
from tests.support.sandbox import Reply
from tests.support.scheduler.plain import Json

WEB = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
SAYS = 'admission webhook "w" denied the request: somebody is connected'
HOUR = 3600.0


class Refusing(Machine):
    """A webhook refuses every eviction."""

    def __enter__(self) -> Refusing:
        super().__enter__()
        status = {"kind": "Status", "message": SAYS, "code": 403}
        self.server.faults.add(Reply(403, status), subresource="eviction")
        return self

    def asked(self) -> Counter[str]:
        """How often for which pod, so far."""
        return Counter(a.name for a in self.server.accesses if a.subresource == "eviction")

    def change(self, pod: str, change: Callable[[Json], None], *, status: bool = False) -> None:
        self.server.store.modify("Pod", pod, "default", change, subresource="status" if status else "")


def test_no_pod_is_asked_for_twice_and_few_of_one_owner_in_a_cycle() -> None:
    with Refusing(WEB) as m:
        asked = list[int]()
        for _ in range(4):
            m.cycle()
            asked.append(m.asked().total())
        assert set(m.asked().values()) == {1}
        m.time.at += 6 * HOUR
        m.cycle()
        again = m.asked()
    assert asked == [2, 4, 4, 4]
    assert sorted(again.values()) == [1, 1, 2, 2], "retryAfter is over"


def test_few_of_one_owner_are_asked_for_also_where_many_may_go_at_once() -> None:
    """Some webhooks restart a pod whose eviction they refuse."""
    half = PolicyOptions(in_flight_per_owner=Limit(percent=50))
    many = [workload(name).spread("zone", 1).placed({"a-0": 12}) for name in ("pay", "web")]
    with Refusing((*nodes(a=1, b=1), *many)) as m:
        for cycle in (1, 2, 3):
            run = m.cycle(options=replace(EXECUTE, planning=PlanOptions(policy=half)))
            assert Counter(name[:3] for name in m.asked()) == {"pay": 2 * cycle, "web": 2 * cycle}
            kept = [o.message for o in run.story.outcomes if o.eviction is None]
            assert len(kept) == len(run.story.plans[0].moves) - 4
            assert all("2 evictions of its pods were refused in this cycle" in why for why in kept), kept


def test_who_does_not_wait_asks_again() -> None:
    with Refusing(WEB) as m:
        for _ in range(2):
            m.cycle(HistoryRules(retry_after=0.0))
        assert sorted(m.asked().values()) == [2, 2]


def noted(pod: Json) -> None:
    pod["metadata"].setdefault("annotations", {})["example.com/sessions"] = "0"


def labelled(pod: Json) -> None:
    pod["metadata"]["labels"]["role"] = "follower"


def beats(pod: Json) -> None:
    pod["status"].setdefault("conditions", []).append(
        {"type": "example.com/Alive", "status": "True", "lastProbeTime": "2026-11-22T12:00:00Z"}
    )


CHANGES: dict[str, tuple[Callable[[Json], None], bool, bool]] = {
    "an annotation": (noted, False, True),
    "a label": (labelled, False, True),
    "a condition that comes and goes by itself": (beats, True, False),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_pod_is_asked_for_again_when_what_a_webhook_may_go_by_has_changed(case: str) -> None:
    change, status, counts = CHANGES[case]
    with Refusing(WEB) as m:
        for _ in range(3):
            m.cycle()
        pod = min(m.asked())
        m.change(pod, change, status=status)
        m.cycle()
        assert m.asked()[pod] == 1 + counts
        assert m.asked().total() == 4 + counts


def test_a_pod_that_is_made_anew_under_its_name_is_not_asked_for_again() -> None:
    """Some webhooks refuse an eviction, and an operator restarts the pod instead."""
    db = stateful_set("db").spread("zone", 1).placed({"a-0": 4})
    with Refusing((*nodes(a=1, b=1), db)) as m:
        m.cycle()
        names = set(m.asked())
        for name in names:
            m.change(name, lambda pod: pod["metadata"].update(uid=pod["metadata"]["uid"] + "-anew"))
        for _ in range(3):
            m.cycle()
    assert {m.asked()[name] for name in names} == {1}


def test_without_a_ledger_a_cycle_remembers_for_itself() -> None:
    one = replace(EXECUTE, planning=PlanOptions(policy=PolicyOptions(max_total=Limit(number=1))))
    with Refusing(WEB) as m:
        m.cycle(options=one)
        m.server.store.delete("ConfigMap", PLACE.name, PLACE.namespace)
        m.cycle(options=one)
        assert sorted(m.asked().values()) == [2, 2]
