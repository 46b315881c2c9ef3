"""Replacements that do not start: a registry that is down costs a few pods, not one of each service."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions
from rebalancer.planner.pace import must_stay_ready
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.ledger import Fate
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.replacements import SettleLimits
from tests.support.build import nodes, workload
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import EXECUTE, Run, elsewhere
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Hands

PACED = replace(
    EXECUTE, limits=CycleLimits(per_second=1.0), settle=SettleLimits(ready=900, pending=900), max_time=None
)
"""One eviction a second, as is usual."""
SLOW = replace(PACED, limits=CycleLimits(per_second=0.2))
SERVICES = [
    workload(f"w{i}").spread("zone", 1).requests(cpu="10m").placed({"a-0": 2, "b-0": 2}) for i in range(30)
]
THERE = workload("there").requests(cpu="10m").placed({"c-0": 1})
"""A pod that shows that zone c starts pods."""
LIMITS = CircuitLimits()


def clusters(*things: Any, usual: float = 0.0, version: str = "1.36.2") -> Machine:
    """Zones a and b, and an empty zone c. `usual`: seconds that the pods took until they were Ready."""
    m = Machine((*nodes(a=1, b=1, c=1), *things), version=version)
    m.time = FakeTime(at=time.time())
    for pod in m.server.store.list("Pod"):
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        since = (made + timedelta(seconds=usual)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        def started(o: dict[str, Any], since: str = since) -> None:
            o["status"]["conditions"] = [
                {"type": "Ready", "status": "True", "lastTransitionTime": since},
                {"type": "PodScheduled", "status": "True"},
            ]

        m.server.store.modify("Pod", pod["metadata"]["name"], "default", started, subresource="status")
    return m


def starting(m: Machine) -> list[dict[str, Any]]:
    """The replacements that are not Ready."""
    return [
        p
        for p in m.server.store.list("Pod")
        if p["spec"].get("nodeName") and (p.get("status") or {}).get("phase") != "Running"
    ]


def cannot_pull(m: Machine) -> None:
    """What a kubelet says a moment after it was refused an image."""
    waiting = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    for pod in starting(m):
        if not (pod.get("status") or {}).get("containerStatuses"):
            m.server.store.modify(
                "Pod",
                pod["metadata"]["name"],
                "default",
                lambda o: o.setdefault("status", {}).update(phase="Pending", containerStatuses=waiting),
                subresource="status",
            )


def during(
    m: Machine, *, after: int = 0, back_after: float = 1e9, meanwhile: Callable[[], object] = lambda: None
) -> list[int]:
    """When so many replacements have started, no other does until so many seconds have passed; returns where
    the largest number of pods away will stand."""
    most, passed = [0], [0.0]
    m.hands.ready_after = 1 if after else 10**9

    def wait(seconds: float) -> None:
        passed[0] += seconds
        meanwhile()
        most[0] = max(most[0], len(starting(m)))
        if m.hands.made >= after:
            m.hands.ready_after = 1 if passed[0] >= back_after else 10**9

    m.time.during = wait
    return most


class Managers(Hands):
    """`down`: kube-controller-manager is, or a webhook that all new pods pass."""

    down = False
    refused: frozenset[str] = frozenset()
    """Owners of which no pod is admitted."""

    def _replace(self, owner: dict[str, Any]) -> None:
        if not self.down and owner["metadata"]["name"] not in self.refused:
            super()._replace(owner)


def unwell(run: Run) -> str:
    assert run.report.reason is not None, run.report.message
    assert run.report.end is End.HELD, (run.report.message, run.report.evicted)
    assert run.report.reason.code is ReasonCode.CLUSTER_UNWELL
    return run.report.message


def test_a_registry_that_is_down_costs_a_few_pods_and_evicting_goes_on_when_it_is_back() -> None:
    with clusters(*SERVICES, THERE, usual=5.0) as m:
        most = during(m, after=6, back_after=240, meanwhile=lambda: cannot_pull(m))
        first = m.cycle(options=PACED, limits=LIMITS)
        message = unwell(first)
        assert "replacements do not start in time: default/w" in message
        assert "(ImagePullBackOff)" in message
        assert 3 <= most[0] <= 12
        assert first.report.evicted <= 6 + most[0]
        assert not starting(m)
        second = m.cycle(options=PACED, limits=LIMITS)
        assert second.report.end is End.COMPLETE, second.report.message
        assert first.report.evicted + second.report.evicted == len(SERVICES)


@pytest.mark.parametrize("apart", [0.0, 48 * 3600.0], ids=["one clock", "another one two days ahead"])
def test_late_replacements_of_a_former_process_hold_the_next_one_until_they_are_gone(apart: float) -> None:
    """For ten minutes: then the plan itself sends nobody where they do not start."""
    limits = CircuitLimits(pause=60)
    with clusters(*SERVICES, THERE, usual=5.0) as m:
        m.hands.ready_after = 10**9
        m.time.during = lambda _: cannot_pull(m)
        short = replace(PACED, settle=SettleLimits(ready=20, pending=20))
        gone = 0
        for _ in range(2):
            gone += m.cycle(options=short, limits=limits).report.evicted
            m.time.at += 150
        assert 3 <= gone <= 5
        clock = FakeTime(at=m.time.at, apart=apart)
        assert "(ImagePullBackOff)" in unwell(m.cycle(options=short, limits=limits, time=clock))
        m.hands.ready_after = 1
        m.hands.step()
        assert m.cycle(options=PACED, limits=limits).report.evicted == len(SERVICES) - gone


def test_replacements_that_are_never_made_are_late() -> None:
    with clusters(*SERVICES, THERE, usual=5.0) as m:
        hands = m.hands = Managers(m.server)

        began = m.time.at
        time = FakeTime(at=began)
        m.time.during = lambda _: setattr(hands, "down", hands.made >= 6 and time.at < began + 400)
        first = m.cycle(options=SLOW, limits=LIMITS, time=time)
        message = unwell(first)
        assert "replacements do not start in time: default/w" in message
        assert "(no new pod after 6" in message
        assert 9 <= first.report.evicted <= 21
        second = m.cycle(options=SLOW, limits=LIMITS)
        assert (second.report.end, second.report.evicted) == (
            End.COMPLETE,
            len(SERVICES) - first.report.evicted,
        )


@pytest.mark.parametrize("ahead", [3600.0, -3600.0], ids=["clock ahead", "clock behind"])
def test_late_is_late_by_a_wrong_clock_too(ahead: float) -> None:
    with clusters(*SERVICES, THERE, usual=5.0) as m:
        during(m, after=6, back_after=400)
        clock = FakeTime(at=m.time.at + min(0.0, ahead), apart=abs(ahead))
        run = m.cycle(options=SLOW, limits=LIMITS, time=clock)
        assert "not Ready after 6" in unwell(run)
        assert 9 <= run.report.evicted <= 21


def test_a_stop_leaves_nothing_behind_that_counts_as_started() -> None:
    """A rollout of the rebalancer itself, again and again: each time it begins with what did not start."""
    with clusters(*SERVICES[:10], THERE, usual=5.0) as m:
        m.hands.ready_after = 10**9
        for evicted in (2, 4):
            time = FakeTime(at=m.time.at)

            def stop(_: float, time: FakeTime = time, until: float = time.at + 1) -> None:
                time.stop = time.at >= until

            m.time.during = stop
            run = m.cycle(options=PACED, limits=LIMITS, time=time)
            assert run.report.end is End.STOPPED, run.report.message
            assert (run.evictions(), m.ledger().totals.in_a_row) == (evicted, 0)
        assert {e.fate for e in m.ledger().entries} == {Fate.UNSEEN}
        # Pods are dated by the server's clock, which is real.
        m.time.at = max(m.time.at, datetime.now(UTC).timestamp()) + 60
        unwell(m.cycle(options=PACED, limits=LIMITS))
        m.hands.ready_after = 1
        m.hands.step()
        assert m.cycle(options=PACED, limits=LIMITS).report.evicted == 6


@pytest.mark.parametrize(("canary", "least", "most"), [(0, 5, 9), (5, 1, 1)], ids=["slow start", "canary"])
def test_processes_that_come_and_go_begin_slowly_together(canary: int, least: int, most: int) -> None:
    """An upgrade, a drain, a crash loop of the rebalancer: none of the replacements starts."""
    rules = HistoryRules(canary=canary)
    with clusters(*SERVICES, THERE, usual=5.0) as m:
        m.hands.ready_after = 10**9
        gone, said = 0, []
        for _ in range(6):
            time = FakeTime(at=m.time.at)

            def stop(_: float, time: FakeTime = time, until: float = time.at + 6) -> None:
                time.stop = time.at >= until

            m.time.during = stop
            run = m.cycle(rules, options=PACED, limits=LIMITS, time=time)
            gone += run.report.evicted
            said.append(run.report.message)
        assert least <= gone <= most
        assert "replacements of earlier cycles are not Ready yet: default/w" in said[-1]
        m.hands.ready_after = 1
        m.hands.step()
        assert m.cycle(rules, options=PACED, limits=LIMITS).report.evicted == len(SERVICES) - gone


def crashes(m: Machine, pod: dict[str, Any]) -> None:
    """What it needs is not there in the zone that came back; no readiness probe says so."""
    m.server.store.modify("Pod", pod["metadata"]["name"], "default", _crashed, subresource="status")


def thrown_out(m: Machine, pod: dict[str, Any]) -> None:
    """By a kubelet without space: what comes in its place does not start."""
    name = pod["metadata"]["name"]
    m.server.store.delete("Pod", name, "default")
    kept = {k: pod["metadata"][k] for k in ("namespace", "labels", "ownerReferences")}
    m.server.store.create({**pod, "metadata": {**kept, "name": f"{name}x"}})
    m.server.store.modify("Pod", f"{name}x", "default", _crashed, subresource="status")


def restarts(m: Machine, pod: dict[str, Any]) -> None:
    """Its kubelet has started it again by the next look: it is Ready all the time that anybody looks."""
    ended = {"terminated": {"finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    again = [{"name": "c", "lastState": ended}]
    m.server.store.modify(
        "Pod",
        pod["metadata"]["name"],
        "default",
        lambda o: o["status"].update(containerStatuses=again),
        subresource="status",
    )


def hangs(m: Machine, pod: dict[str, Any]) -> None:
    """It is deleted, and its kubelet does not answer."""
    name = pod["metadata"]["name"]
    m.server.store.modify("Pod", name, "default", lambda o: o["metadata"].update(finalizers=["dead/kubelet"]))
    m.server.store.delete("Pod", name, "default")


def gone_for_good(m: Machine, pod: dict[str, Any]) -> None:
    """What was to come in its place is refused: by a quota that is used up now, by a webhook."""
    assert isinstance(m.hands, Managers)
    m.hands.refused |= {pod["metadata"]["ownerReferences"][0]["name"]}
    m.server.store.delete("Pod", pod["metadata"]["name"], "default")


@pytest.mark.parametrize(
    ("end", "said", "kind", "apart"),
    [
        (gone_for_good, "no new pod after", "ReplicaSet", 0.0),
        (crashes, "it was Ready, and is not any more", "ReplicaSet", 0.0),
        (thrown_out, "it came for one that was Ready", "ReplicaSet", 0.0),
        (restarts, "it was restarted within the last minute", "ReplicaSet", 0.0),
        (restarts, "it was restarted within the last minute", "ReplicaSet", 600.0),
        (hangs, "it was Ready, and none of its name comes", "StatefulSet", 0.0),
    ],
)
def test_replacements_that_fail_some_seconds_after_they_were_ready_are_late(
    end: Callable[[Machine, dict[str, Any]], None], said: str, kind: str, apart: float
) -> None:
    """Also where another clock is `apart` seconds ahead of the kubelets'."""
    services = [
        workload(f"w{i}", kind=kind).spread("zone", 1).requests(cpu="10m").placed({"a-0": 2, "b-0": 2})
        for i in range(30)
    ]
    with clusters(*services, THERE, usual=5.0) as m:
        there = {p["metadata"]["uid"] for p in m.server.store.list("Pod")}
        seen: dict[str, int] = {}

        def fail() -> None:
            for pod in m.server.store.list("Pod"):
                name, status = pod["metadata"]["uid"], pod.get("status") or {}
                ready = any(
                    c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ())
                )
                seen[name] = seen.get(name, 0) + (name not in there and ready)
                if seen[name] == 15:
                    end(m, pod)

        m.hands = Managers(m.server, ready_after=1)
        m.time.during = lambda _: fail()
        run = m.cycle(options=PACED, limits=LIMITS, time=FakeTime(at=m.time.at, apart=apart))
        assert said in unwell(run)
        assert run.report.evicted <= 5


def _crashed(o: dict[str, Any]) -> None:
    o["status"]["phase"] = "Running"
    o["status"]["conditions"] = [
        {"type": "Ready", "status": "False"},
        {"type": "PodScheduled", "status": "True"},
    ]


@pytest.mark.parametrize(
    ("usual", "held"), [(5.0, True), (290.0, False)], ids=["usually quick", "usually slow"]
)
def test_late_is_by_what_is_usual_for_the_owner(usual: float, held: bool) -> None:
    """Nothing says why: a network that is broken, or pods that take five minutes."""
    with clusters(*SERVICES, THERE, usual=usual) as m:
        during(m, after=6, back_after=300)
        run = m.cycle(options=SLOW, limits=LIMITS)
        if held:
            assert "not Ready after 6" in unwell(run)
            assert 9 <= run.report.evicted <= 21
        else:
            assert (run.report.end, run.report.evicted) == (End.COMPLETE, len(SERVICES)), run.report.message


@pytest.mark.parametrize("there", [False, True], ids=["no pod has started there", "one has"])
def test_five_go_first_and_more_as_they_start(there: bool) -> None:
    with clusters(*SERVICES[:20], *([THERE] if there else []), usual=5.0) as m:
        seen: list[int] = []
        most = during(m, back_after=30, meanwhile=lambda: seen.append(len(starting(m))))
        run = m.cycle(options=PACED, limits=LIMITS)
        assert (run.report.end, run.report.evicted) == (End.COMPLETE, 20), run.report.message
    assert max(seen[:25]) == 5
    assert run.report.seconds < 30 + must_stay_ready(1.0) + 20 + 10
    assert most[0] <= 17


def test_where_predictions_fail_for_one_owner_after_the_other_the_breaker_opens() -> None:
    """As where a webhook has begun to send all new pods elsewhere."""
    with clusters(*SERVICES, THERE) as m:
        m.hands.choose = elsewhere("a-0")
        first = m.cycle(options=PACED, limits=LIMITS)
        assert first.report.end is End.ABORTED
        assert first.report.evicted == 3 + 1, "one was on its way"
        assert "none of the last 3 owners' replacements went as predicted; the last: " in first.report.message
        assert "is tried again at" in first.report.message
        second = m.cycle(options=PACED, limits=LIMITS)
        assert (second.report.end, second.report.evicted) == (End.HELD, 0), second.report.message
        m.time.at += LIMITS.pause
        third = m.cycle(options=PACED, limits=LIMITS)
        assert (third.report.end, third.report.evicted) == (End.ABORTED, 1 + 1)
        m.time.at += 2 * LIMITS.pause
        m.hands.choose = Hands(m.server).choose
        assert m.cycle(options=PACED, limits=LIMITS).report.evicted == len(SERVICES) - 4 - 2


def test_one_owner_whose_predictions_fail_stops_nobody_else() -> None:
    """As where a webhook of its namespace sends its new pods elsewhere."""
    with clusters(workload("odd").spread("zone", 1).placed({"a-0": 4}), THERE) as m:
        m.hands.choose = elsewhere("a-0")
        for _ in range(4):
            run = m.cycle(options=PACED, limits=LIMITS)
            assert (run.report.end, run.report.evicted) == (End.WAITING, 1), run.report.message
            m.time.at += HistoryRules().retry_after + 60


@pytest.mark.parametrize(("version", "opens"), [("1.36.2", False), ("1.99.0", True)])
def test_moves_that_are_only_likely_open_no_breaker_where_the_rules_are_known(
    version: str, opens: bool
) -> None:
    """Scores may send them elsewhere. With a scheduler newer than all rules, these are what is in doubt."""
    services = [workload(f"w{i}").spread("zone", 1, soft=not opens).placed({"a-0": 4}) for i in range(5)]
    options = replace(PACED, planning=PlanOptions(soft="predicted"))
    with clusters(*services, version=version) as m:
        m.hands.choose = elsewhere("a-0")
        run = m.cycle(options=options, limits=LIMITS)
        assert {o.move.certain for o in run.report.outcomes if o.evicted} == {False}
        assert {e.fate for e in m.ledger().entries} == {Fate.ELSEWHERE}
        assert len({e.owner for e in m.ledger().entries}) >= 3
        assert m.ledger().circuit.trips == opens, run.report.message
