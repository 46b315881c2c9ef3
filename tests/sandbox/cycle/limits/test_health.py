"""When nothing is evicted because the cluster, or its scheduler, is not well; and what does not matter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.options import Limit
from tests.support.build import node, nodes, objects, workload
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import SKEWED, Run
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.api import FakeTime

LIMITS = CircuitLimits()
NONE = CircuitLimits(displaced=Limit(number=0))


def create(server: ApiServer, name: str, *, gates: bool = False, **spec: Any) -> None:
    """A pod of nobody, without a node."""
    if server.store.find("Pod", name, "default") is not None:
        return
    spec.setdefault("containers", [{"name": "c", "image": "i", "resources": spec.pop("resources", {})}])
    if gates:
        spec["schedulingGates"] = [{"name": "quota"}]
    server.store.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )


def unready(server: ApiServer, name: str, status: str = "Unknown") -> None:
    """A node's condition Ready, and the taint that goes with it."""
    said = [{"type": "Ready", "status": status}]
    server.store.modify(
        "Node", name, None, lambda o: o["status"].update(conditions=said), subresource="status"
    )
    taint = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}] if status != "True" else []
    server.store.modify("Node", name, None, lambda o: o["spec"].update(taints=taint))


def held(run: Run, code: ReasonCode) -> bool:
    """Whether nothing was evicted, with that reason and something that a person can do."""
    assert run.report.reason is not None, run.report.message
    assert (run.report.end, run.report.reason.code) == (End.HELD, code), run.report.message
    assert run.report.reason.remedy
    return run.report.evicted == 0


def test_too_many_nodes_that_are_not_ready_stop_everything_and_nothing_of_it_lasts() -> None:
    with Machine((*SKEWED, *nodes(d=1))) as m:
        unready(m.server, "d-0")
        limits = CircuitLimits(not_ready=Limit(number=0))
        run = m.cycle(limits=limits)
        assert held(run, ReasonCode.CLUSTER_UNWELL)
        assert run.report.message == "1 of 4 nodes are NotReady, at most 0 may be"
        unready(m.server, "d-0", "True")
        again = m.cycle(limits=limits)
        assert again.report.end is End.COMPLETE
        assert again.report.evicted > 0


def test_pods_that_wait_for_nodes_of_their_own_stop_nothing() -> None:
    """Ten batch pods that wait for the autoscaler: some for labels, some for more room than there is."""
    with Machine() as m:

        def crowd(_: float) -> None:
            for i in range(5):
                create(m.server, f"x{i}", nodeSelector={"pool": "batch"})
                create(m.server, f"y{i}", resources={"requests": {"cpu": "1000"}})

        m.time.during = crowd
        run = m.cycle(limits=NONE)
    assert run.report.end is End.COMPLETE, run.report.message
    assert run.report.evicted == 4


SMALL = (
    node("a-0").zone("a").cpu(8),
    *(node(f"{z}-0").zone(z).cpu(2) for z in "bc"),
    workload("web").requests(cpu="1").spread("zone", 1).placed({"a-0": 6}),
)
"""Two pods of web fit onto each of the small nodes."""


def test_pods_whose_room_our_replacements_have_taken_stop_it_until_they_run() -> None:
    with Machine(SMALL) as m:

        def crowd(_: float) -> None:
            for p in m.server.store.list("Pod"):
                if p["metadata"]["name"].startswith("web-new") and (node := p["spec"].get("nodeName")):
                    # That node, if it were empty, would take it.
                    only = {"kubernetes.io/hostname": node}
                    create(m.server, "shop", resources={"requests": {"cpu": "2"}}, nodeSelector=only)

        m.time.during = crowd
        run = m.cycle(limits=NONE)
        evicted = run.report.evicted
        assert run.report.reason is not None, run.report.message
        assert run.report.reason.code is ReasonCode.CLUSTER_UNWELL
        assert "default/shop" in run.report.message
        assert 0 < evicted < 4
        assert held(m.cycle(limits=NONE), ReasonCode.CLUSTER_UNWELL)
        m.server.store.delete("Pod", "shop", "default", grace=0)
        after = m.cycle(limits=NONE)
        assert m.ledger().circuit.trips == 0
    assert after.report.end is End.COMPLETE
    assert after.report.evicted == 4 - evicted


def test_what_waited_before_and_would_not_fit_anyway_is_not_laid_at_our_door() -> None:
    with Machine(SMALL) as m:
        create(m.server, "big", resources={"requests": {"cpu": "7"}})
        run = m.cycle(limits=NONE)
    assert run.report.end is End.COMPLETE
    assert run.report.evicted == 4


# -- the scheduler

Make = Callable[[ApiServer], None]
OVERLOOKED: list[tuple[str, Make, bool]] = [
    ("a pod that nobody has looked at", lambda s: create(s, "x"), True),
    ("a gated pod", lambda s: create(s, "x", gates=True), False),
    ("a pod of another scheduler", lambda s: create(s, "x", schedulerName="volcano"), False),
    (
        "a pod whose claims a plugin waits for",
        lambda s: create(s, "x", resourceClaims=[{"name": "g"}]),
        False,
    ),
]


@pytest.mark.parametrize(("make", "stops"), [o[1:] for o in OVERLOOKED], ids=[o[0] for o in OVERLOOKED])
def test_a_scheduler_that_looks_at_no_pod_is_noticed(make: Make, stops: bool) -> None:
    """The test's clock is years ahead of the pod's creation."""
    with Machine() as m:
        make(m.server)
        schedule = m.hands._schedule
        m.hands._schedule = lambda pod: None if pod["metadata"]["name"] == "x" else schedule(pod)  # type: ignore[method-assign]
        run = m.cycle(limits=LIMITS)
        if not stops:
            assert run.report.end is End.COMPLETE, run.report.message
            return
        assert held(run, ReasonCode.SCHEDULER_SILENT)
        assert "scheduler default-scheduler, which has not looked at default/x" in run.report.message
        m.hands._schedule = schedule  # type: ignore[method-assign]
        m.hands.step()
        assert m.cycle(limits=LIMITS).report.evicted > 0, "nothing of it lasts"


def test_pods_of_a_scheduler_that_does_not_work_stay_and_others_go() -> None:
    web, ai = (workload(name).spread("zone", 1).placed({"a-0": 3, "b-0": 1}) for name in ("web", "ai"))
    theirs = objects(ai)
    for o in theirs:
        spec = o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"]
        spec["schedulerName"] = "volcano"
    with Machine((*nodes(a=1, b=1), web, *theirs)) as m:
        create(m.server, "x", schedulerName="volcano")
        schedule = m.hands._schedule
        m.hands._schedule = lambda pod: None if pod["metadata"]["name"] == "x" else schedule(pod)  # type: ignore[method-assign]
        run = m.cycle(limits=LIMITS)
        evicted = {a.name for a in m.server.accesses if a.subresource == "eviction" and a.code == 201}
    assert evicted
    assert all(name.startswith("web") for name in evicted)
    assert run.report.end is not End.ABORTED


def lease(
    server: ApiServer,
    at: float,
    holder: str = "control-plane-1",
    lasts: int = 15,
    name: str = "kube-scheduler",
) -> None:
    """The scheduler's lease, or another one, renewed at that time."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": lasts,
        "renewTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    if server.store.find("Lease", name, "kube-system") is None:
        meta = {"name": name, "namespace": "kube-system"}
        if server.store.find("Namespace", "kube-system", None) is None:
            there = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
            server.store.create(there)
        made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        server.store.create(made)
    else:
        server.store.modify("Lease", name, "kube-system", lambda o: o.update(spec=spec))


def test_a_lease_of_the_scheduler_that_nobody_renews_stops_everything() -> None:
    with Machine() as m:
        lease(m.server, m.time.at - 60)
        run = m.cycle(limits=LIMITS)
        assert held(run, ReasonCode.SCHEDULER_SILENT)
        says = "no scheduler works: nobody renews lease kube-system/kube-scheduler, last control-plane-1, "
        assert says in run.report.message
        assert run.report.seconds == 5, "seen for five seconds, and no longer"
        beat = iter(range(10_000))
        m.time.during = lambda _: lease(m.server, m.time.at + next(beat))
        assert m.cycle(limits=LIMITS).report.end is End.COMPLETE


@pytest.mark.parametrize("made", [False, True], ids=["no pod was made since", "a pod was"])
def test_controllers_that_do_not_work_stop_everything(made: bool) -> None:
    """Nobody would make a replacement. A lease that is left over says nothing of who works without it."""
    with Machine() as m:
        if made:
            at = datetime.fromtimestamp(m.time.at - 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            young = next(o for o in objects(workload("young").placed({"b-0": 1})) if o["kind"] == "Pod")
            m.server.store.load([{**young, "metadata": {**young["metadata"], "creationTimestamp": at}}])
        lease(m.server, m.time.at - 3600, name="kube-controller-manager")
        run = m.cycle(limits=LIMITS)
        if made:
            assert run.report.evicted > 0, run.report.message
            return
        assert held(run, ReasonCode.CLUSTER_UNWELL)
        assert "no controller works: nobody renews lease kube-system/kube-contr" in run.report.message
        beat = iter(range(10_000))
        m.time.during = lambda _: lease(m.server, m.time.at + next(beat), name="kube-controller-manager")
        assert m.cycle(limits=LIMITS).report.end is End.COMPLETE


def test_a_scheduler_that_has_been_down_for_days_costs_no_pod() -> None:
    with Machine() as m:
        lease(m.server, m.time.at - 2 * 86_400)
        m.hands._schedule = lambda _: None  # type: ignore[method-assign, assignment]
        run = m.cycle(limits=LIMITS)
    assert run.report.evicted == 0, run.report.message
    assert held(run, ReasonCode.SCHEDULER_SILENT)
    assert "no scheduler works" in run.report.message


@pytest.mark.parametrize("ahead", [3600.0, 2 * 86_400.0], ids=["an hour", "two days"])
def test_a_clock_that_is_wrong_does_not_make_the_scheduler_dead(ahead: float) -> None:
    """It renews the lease, so long ago by our clock."""
    with Machine() as m:
        beat = iter(range(1, 10_000))
        lease(m.server, m.time.at - ahead)
        m.time.during = lambda _: lease(m.server, m.time.at - ahead + next(beat))
        assert m.cycle(limits=LIMITS).report.end is End.COMPLETE


YOUNG = objects(workload("young").placed({"b-0": 1}))


@pytest.mark.parametrize(
    ("since", "created", "stops"),
    [
        (3600.0, None, True),
        (3600.0, 60.0, False),
        (3600.0, 3590.0, True),
        (2 * 86_400.0, 3600.0, False),
    ],
    ids=[
        "nothing was scheduled since",
        "a pod was",
        "a pod was, just before it ran out",
        "a pod was, on the second day",
    ],
)
def test_a_lease_that_another_scheduler_left_behind_does_not_hold_for_ever(
    since: float, created: float | None, stops: bool
) -> None:
    """Renewed for the last time so many seconds ago, while a pod was made so many seconds ago."""
    with Machine() as m:
        lease(m.server, m.time.at - since)
        if created is not None:
            at = datetime.fromtimestamp(m.time.at - created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            pod = next(o for o in YOUNG if o["kind"] == "Pod")
            owner = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "young",
                "uid": "y",
                "controller": True,
            }
            made = {**pod["metadata"], "creationTimestamp": at, "ownerReferences": [owner]}
            m.server.store.load([{**pod, "metadata": made}])
        run = m.cycle(limits=LIMITS)
    if stops:
        assert held(run, ReasonCode.SCHEDULER_SILENT)
    else:
        assert run.report.end is End.COMPLETE, run.report.message


@pytest.mark.parametrize("phase", [0.0, 7.0, 14.0, 21.0])
def test_a_lease_that_is_renewed_every_half_minute_is_alive_although_our_clock_is_ahead(phase: float) -> None:
    """OpenShift's timings: 137 s, renewed every 26 s. Our clock is three minutes ahead."""
    with Machine() as m:
        at = m.time.at

        def renew(_: float) -> None:
            beats = (time.at - at + phase) // 26
            lease(m.server, at - 180 - phase + beats * 26, lasts=137)

        time = FakeTime(at=at)
        renew(0.0)
        m.time.during = renew
        run = m.cycle(time=time, limits=LIMITS)
    assert run.report.end is End.COMPLETE, run.report.message


def test_a_lease_whose_time_is_ahead_has_to_be_seen_renewed() -> None:
    with Machine() as m:
        lease(m.server, m.time.at + 3600)
        assert held(m.cycle(limits=LIMITS), ReasonCode.SCHEDULER_SILENT)


def test_a_lease_that_dies_in_the_middle_stops_the_next_eviction() -> None:
    with Machine() as m:
        lease(m.server, m.time.at)
        m.hands.ready_after = 12
        run = m.cycle(limits=LIMITS)
    assert run.report.reason is not None
    assert run.report.reason.code is ReasonCode.SCHEDULER_SILENT
    assert 0 < run.report.evicted < 4


@pytest.mark.parametrize("code", [403, 500])
def test_a_lease_that_cannot_be_seen_says_nothing(code: int) -> None:
    with Machine() as m:
        m.server.faults.add(Reply(code), resource="leases")
        assert m.cycle(limits=LIMITS).report.end is End.COMPLETE
