"""Replace first over HTTP, with controllers: released, replaced, then evicted; or given back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.cli.lines import Lines
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.kube.connection import Connection
from rebalancer.kube.patches import ReleasePatches
from rebalancer.kube.reading import Objects
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.pod import DELETION_COST
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import CycleReport, Eviction, Fate, Result
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Move
from rebalancer.policy.annotations import METHOD, pause_of
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import ApprovalRules, Limit, Method, PolicyOptions, Refused
from rebalancer.policy.release import COST_BEFORE, MARK, Mark, mark_of
from rebalancer.runtime.commands.pausing import give_back_all, resume_all
from rebalancer.runtime.commands.remembered import history_of
from rebalancer.runtime.cycle import gates, releases
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.clock import APART, Clock, SystemClock
from rebalancer.runtime.cycle.gates import FreshLook, Permission
from rebalancer.runtime.cycle.loop import Cycle
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.releases import Releases
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.last_look import cluster_now
from rebalancer.runtime.live.approval import APPROVE, PLAN, REFUSE, Approvals
from rebalancer.runtime.live.assembly import Surroundings, live_parts
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.live.once import Reviewed, ReviewedEviction, run_once
from rebalancer.sandbox.controllers.deployment import OwnerController
from rebalancer.sandbox.resources import ApiError, Resource
from rebalancer.settings import Settings
from rebalancer.settings.settings import Brake, Ledger
from tests.support.build import deployment, nodes, objects, pdb, pod, replica_set
from tests.support.runs.one_cycle import EXECUTE, Run, Story
from tests.support.sandbox import ApiServer, Cluster, Cut, Delay, Reply, bind
from tests.support.sandbox.custom import served
from tests.support.sandbox.hung import hang
from tests.support.scheduler.plain import ZONE, Json
from tests.support.servers.hands import READY, Hands
from tests.support.servers.kubectl import kubectl_with, needs_kubectl
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("patient")

LIMITS = SettleLimits(ready=8.0, pending=2.0, budgets=5.0, serving=0.3, poll=0.05)
FIRST = PlanOptions(policy=PolicyOptions(method="replaceFirst"))
NOTHING_NEW = PlanOptions(
    policy=PolicyOptions(method="auto", no_release=Reason(ReasonCode.RELEASE_OFF, "a test releases nothing"))
)
OPTIONS = LiveOptions(execute=True, settle=LIMITS, planning=FIRST)
SLOW = replace(OPTIONS, settle=replace(LIMITS, serving=3.0))
"""With time for something to happen while both pods are Ready."""
HASH = "pod-template-hash"
BLOCKED = (
    *nodes(a=2, b=2, c=2),
    deployment("web").spread("zone", 1).placed({"a-0": 2, "a-1": 1, "b-0": 2, "b-1": 1}),
    pdb("web", {"owner": "web"}, max_unavailable=0),
)


class Wrong(SystemClock):
    """A machine's clock that is `ahead` of the right one, which the API server goes by."""

    def __init__(self, ahead: float) -> None:
        super().__init__()
        self.ahead = ahead

    def _both(self) -> tuple[float, float]:
        there = time.time()
        here = there + self.ahead
        return (here, there) if abs(self.ahead) > APART else (here, here)


def pods(cluster: Cluster, *, terminating: bool = False) -> list[Json]:
    found = [p for p in cluster.store.list("Pod") if p["metadata"]["labels"].get("owner") == "web"]
    return [p for p in found if terminating or "deletionTimestamp" not in p["metadata"]]


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def zones(cluster: Cluster) -> list[int]:
    count = Counter(p["spec"]["nodeName"][0] for p in pods(cluster))
    return [count[z] for z in "abc"]


def marks(cluster: Cluster) -> list[str]:
    keys = {MARK, COST_BEFORE}
    return [
        p["metadata"]["name"] for p in pods(cluster) if keys & (p["metadata"].get("annotations") or {}).keys()
    ]


class Ready:
    """Watches the owner's Ready pods while it is open: those that serve, controlled or not."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.fewest = cluster, len(pods(cluster))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._end.wait(0.005):
            self.fewest = min(self.fewest, sum(map(is_ready, pods(self.cluster))))

    def __enter__(self) -> Ready:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@contextmanager
def connected(cluster: Cluster, folder: Path) -> Iterator[Connection]:
    connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(folder / "config"))))
    try:
        yield connection
    finally:
        connection.close()


def cycle(
    cluster: Cluster,
    folder: Path,
    options: LiveOptions = OPTIONS,
    memory: Memory | None = None,
    **more: Any,
) -> tuple[CycleReport, Story]:
    clock, after_plan = more.pop("clock", None) or SystemClock(), more.pop("after_plan", lambda *_: None)
    with connected(cluster, folder) as connection:
        cache = WatchCache(connection).start()
        story = Story(partial(after_plan, cache))
        try:
            memory = memory or Memory(clock, HistoryRules())
            around = Surroundings(memory=memory, cache=cache, **more)
            parts = live_parts(connection, options, clock=clock, observer=story, around=around)
            return Cycle(parts).run(), story
        finally:
            cache.stop()


def test_a_workload_whose_budget_allows_nothing_is_spread_and_no_pod_less_is_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Memory(SystemClock(), HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.2) as cluster:
        cluster.settle()
        with Ready(cluster) as ready:
            report, story = cycle(cluster, tmp_path, memory=memory)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.DONE, Fate.DONE], story.told
        assert zones(cluster) == [2, 2, 2]
        assert ready.fewest == 6
        assert marks(cluster) == []
        assert all(o.expected for o in report.outcomes)
        assert report.evicted == 2
        assert [line.method for line in history_of(memory.ledger, ())] == ["replaceFirst"] * 2
        first = report.outcomes[0].move
        for result in (Result.RELEASED, Result.EVICTED):
            Lines().on_eviction(first, Eviction(result=result, message=""))
        told = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
        assert told == ["  released", "  evicted"]


# -- what comes between


def released(cluster: Cluster) -> list[Json]:
    return [p for p in pods(cluster) if MARK in (p["metadata"].get("annotations") or {})]


def new_ones(cluster: Cluster) -> list[Json]:
    return [
        p for p in pods(cluster) if p["metadata"]["name"].count("-") == 2 and p["metadata"]["generateName"]
    ]


@contextmanager
def once_when(when: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """While it is open, acts once, as soon as that is so."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(0.005):
            if when():
                act()
                return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def let_go(cluster: Cluster) -> bool:
    return any(
        not any(r.get("controller") for r in p["metadata"]["ownerReferences"]) for p in released(cluster)
    )


def both(cluster: Cluster, ready: int = 7) -> bool:
    """Whether the old pod and its replacement are there, and so many are Ready."""
    return let_go(cluster) and sum(map(is_ready, pods(cluster))) >= ready


def never(made: Json) -> float | None:  # noqa: ARG001
    return None


def names(cluster: Cluster) -> set[str]:
    return {p["metadata"]["name"] for p in pods(cluster)}


def test_a_replacement_that_does_not_become_ready_is_given_back_for(tmp_path: Path) -> None:
    options = replace(OPTIONS, settle=replace(LIMITS, ready=1.0))
    other = objects(deployment("gate").replicas(0))
    with Cluster([*objects(*BLOCKED), *other], ready_after=never) as cluster:
        cluster.settle()
        before = names(cluster)
        gate = cluster.store.get("Deployment", "gate", "default")["metadata"]["uid"]
        theirs = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gate", "uid": gate}
        for name in before:
            refer = partial(lambda o, r: o["metadata"]["ownerReferences"].append(dict(r)), r=theirs)
            cluster.store.modify("Pod", name, "default", refer)
        with Ready(cluster) as ready:
            report, _ = cycle(cluster, tmp_path, options)
        cluster.settle()
        assert {o.status for o in report.outcomes} == {Fate.FAILED}
        assert "its label was given back" in report.outcomes[0].message
        assert (names(cluster), ready.fewest, marks(cluster)) == (before, 6, [])
        assert report.evicted == 0
        owners = [p["metadata"]["ownerReferences"] for p in pods(cluster)]
        kept = [("Deployment", "gate"), ("ReplicaSet", owners[0][0]["name"])]
        assert all(sorted((r["kind"], r["name"]) for r in own) == kept for own in owners), "ours is gone"


def test_who_leads_no_more_undoes_nothing(tmp_path: Path) -> None:
    """Its successor does. Whether evictions may go on is asked every two seconds."""
    options, lost = replace(OPTIONS, settle=replace(LIMITS, ready=0.8)), threading.Event()

    def lose() -> None:
        time.sleep(0.4)  # after it was asked whether evictions may go on, and before that is asked again
        lost.set()

    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        with once_when(lambda: let_go(cluster), lose):
            cycle(cluster, tmp_path, options, leading=lambda: not lost.is_set())
        cluster.settle()
        (left,) = marks(cluster)
        assert HASH not in cluster.store.get("Pod", left, "default")["metadata"]["labels"]


def test_a_controller_that_does_not_let_go_gets_the_label_back(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), without=("ReplicaSet",)) as cluster:
        cluster.settle()
        before = names(cluster)
        report, _ = cycle(cluster, tmp_path)
        assert report.outcomes[0].status is Fate.FAILED
        assert "has not let it go" in report.outcomes[0].message
        assert (names(cluster), marks(cluster)) == (before, [])


class Switch:
    """Settings that are turned off and on."""

    on = True

    def __call__(self) -> LiveOptions:
        return replace(OPTIONS, execute=self.on)

    def off(self) -> None:
        self.on = False


@pytest.mark.parametrize("by", ["brake", "Service"])
def test_what_is_not_ready_is_undone_by_a_brake_and_by_who_comes_to_ask_for_its_label(
    by: str, tmp_path: Path
) -> None:
    switch = Switch()

    def act() -> None:
        if by == "brake":
            switch.off()
        else:
            cluster.store.create(service)

    with Cluster(objects(*BLOCKED), ready_after=4.0) as cluster:
        cluster.settle()
        before = names(cluster)
        service = asks_for(pods(cluster)[0]["metadata"]["labels"][HASH], "Service")
        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), act):
            report, _ = cycle(cluster, tmp_path, newest=switch)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert (names(cluster), ready.fewest, marks(cluster)) == (before, 6, [])


@pytest.mark.parametrize("said", [{REFUSE: True}, {APPROVE: False}], ids=["refused", "withdrawn"])
def test_an_approval_that_ends_after_the_release_keeps_the_old_pod(
    said: dict[str, bool], tmp_path: Path
) -> None:
    rules = ApprovalRules(required=True)
    asked = replace(SLOW, planning=replace(FIRST, policy=replace(FIRST.policy, approval=rules)))
    with Cluster(objects(*BLOCKED), ready_after=0.2) as cluster, connected(cluster, tmp_path) as connection:
        cluster.settle()
        before, approvals = names(cluster), Approvals(connection, "default", lambda: rules, SystemClock())

        def say(words: dict[str, bool]) -> None:
            there = cluster.store.find("ConfigMap", PLAN, "default")
            assert there is not None
            revision, written = there["data"]["revision"], there["metadata"].get("annotations") or {}
            kept = {k: v for k, v in written.items() if k not in words}
            kept |= {k: revision for k, yes in words.items() if yes}
            cluster.store.modify(
                "ConfigMap", PLAN, "default", lambda o: o["metadata"].update(annotations=kept)
            )

        cycle(cluster, tmp_path, asked, approvals=approvals)
        say({APPROVE: True})
        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), lambda: say(said)):
            report, _ = cycle(cluster, tmp_path, asked, approvals=approvals)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert (names(cluster) >= before, ready.fewest, marks(cluster)) == (True, 6, [])
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


STRICTER: dict[str, dict[str, Any]] = {
    "a threshold": {"priority_threshold": -10},
    "minReplicas": {"min_replicas": 100},
    "scope": {"owner_kinds_exclude": ("Deployment",)},
}


@pytest.mark.parametrize("by", [*STRICTER, "annotation"])
def test_what_came_to_protect_it_after_the_release_keeps_the_old_pod(by: str, tmp_path: Path) -> None:
    now, no = [SLOW], {"rebalancer.io/evict": "no"}

    def protect() -> None:
        if by in STRICTER:
            stricter = replace(FIRST.policy, **STRICTER[by])
            now[0] = replace(SLOW, planning=replace(FIRST, policy=stricter))
        else:
            cluster.store.modify(
                "Deployment", "web", "default", lambda o: o["metadata"].update(annotations=no)
            )

    with Cluster(objects(*BLOCKED), ready_after=0.2) as cluster:
        cluster.settle()
        before = names(cluster)
        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), protect):
            report, _ = cycle(cluster, tmp_path, SLOW, newest=lambda: now[0])
        cluster.settle()
        assert Fate.DONE not in [o.status for o in report.outcomes]
        assert (names(cluster) >= before, ready.fewest, marks(cluster)) == (True, 6, [])
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


def test_a_no_on_its_node_that_a_hung_watch_does_not_show_keeps_the_old_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_now, "_PATIENCE", 0.5)
    no = {"rebalancer.io/evict": "false"}
    with Cluster(objects(*BLOCKED), ready_after=0.2) as cluster:
        cluster.settle()

        def unseen() -> None:
            hang(cluster.server, "Node")
            (old,) = released(cluster)
            cluster.store.modify(
                "Node", old["spec"]["nodeName"], None, lambda o: o["metadata"].update(annotations=no)
            )

        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), unseen):
            report, _ = cycle(cluster, tmp_path, SLOW)
        cluster.settle()
        assert Fate.DONE not in [o.status for o in report.outcomes]
        assert ready.fewest == 6
        assert sum(map(is_ready, pods(cluster))) == 7, "both stay until the watch can be believed"
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


def test_its_deployments_no_keeps_the_old_pod_when_its_replicaset_is_gone(
    tmp_path: Path,
) -> None:
    clock = SystemClock()

    def act() -> None:
        no = {"rebalancer.io/evict": "no"}
        edited(cluster, lambda d: d["metadata"].update(annotations=no))
        (name,) = {s["metadata"]["name"] for s in cluster.store.list("ReplicaSet")}
        cluster.store.delete("ReplicaSet", name, "default", propagation="Orphan")
        threading.Timer(1.5, clock.stop.set).start()  # it would be held for long

    with Cluster(objects(*BLOCKED), ready_after=0.3) as cluster:
        cluster.settle()
        with once_when(lambda: let_go(cluster), act):
            cycle(cluster, tmp_path, clock=clock)
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


def asks_for(label: str, kind: str) -> Json:
    """An object that selects pods by a label that only their ReplicaSet did."""
    spec = {"podSelector": {"matchLabels": {HASH: label}}, "ingress": [{}]}
    if kind == "Service":
        spec = {"selector": {HASH: label}, "ports": [{"port": 80}]}
    group = "v1" if kind == "Service" else "networking.k8s.io/v1"
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "default"},
        "spec": spec,
    }


@pytest.mark.parametrize("kind", ["Service", "NetworkPolicy"])
def test_where_something_comes_to_ask_for_the_label_after_the_plan_nothing_is_released(
    kind: str, tmp_path: Path
) -> None:
    with Cluster(objects(*BLOCKED[:-1])) as cluster:  # a budget would ask, too
        cluster.settle()
        made = asks_for(pods(cluster)[0]["metadata"]["labels"][HASH], kind)

        def after(cache: WatchCache, number: int) -> None:
            if number == 1:
                cluster.store.create(made)
                until(lambda: kind != "Service" or bool(cache.services("default")))

        report, _ = cycle(cluster, tmp_path, after_plan=after)
        assert ReasonCode.NOT_REPLACED_FIRST in {o.reason.code for o in report.outcomes if o.reason}
        assert not any(a.verb == "patch" for a in cluster.server.accesses if a.resource == "pods")


def test_a_released_pod_that_ends_by_itself_stays_until_its_namespace_is_paused_no_more(
    tmp_path: Path,
) -> None:
    options, memory = (
        replace(OPTIONS, settle=replace(LIMITS, ready=4.0)),
        Memory(SystemClock(), HistoryRules()),
    )
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    with Cluster([*objects(*BLOCKED), space], ready_after=1.0) as cluster:
        cluster.settle()
        paused = {"rebalancer.io/pause": "an incident"}

        def pause() -> None:
            said(paused)
            ended(cluster)

        def said(annotations: dict[str, str]) -> None:
            cluster.store.modify(
                "Namespace", "default", None, lambda o: o["metadata"].update(annotations=annotations)
            )

        with once_when(lambda: let_go(cluster), pause):
            cycle(cluster, tmp_path, options, memory=memory)
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)
        assert len(released(cluster)) == 1
        said({})
        cycle(cluster, tmp_path, options, memory=memory)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster), zones(cluster)) == (6, [], [2, 2, 2])


def test_a_pod_that_has_ended_keeps_its_owners_as_no_controller_adopts_it(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        cluster.settle()
        ended(cluster)
        cluster.store.delete("ConfigMap", PLACE.name, PLACE.namespace)
        process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (7, [])
        deleted(cluster)
        cluster.settle()
        assert pods(cluster) == []


def noted(said: dict[str, str]) -> Callable[[Json, bool], None]:
    return lambda o, on: o["metadata"].update(annotations=said if on else {})


HOLDS: dict[str, tuple[str, str, Callable[[Json, bool], None], str]] = {
    "a paused namespace": ("Namespace", "default", noted({"rebalancer.io/pause": "true"}), "is paused"),
    "a domain taken out": (
        "ConfigMap",
        "rebalancer-brake",
        noted({pause_of(f"{ZONE}=c"): f"{ZONE}=c"}),
        "is out",
    ),
    "a paused Deployment": ("Deployment", "web", lambda o, on: o["spec"].update(paused=on), "web is paused"),
}


@pytest.mark.parametrize("by", ["settings", *HOLDS])
def test_where_both_are_ready_what_pauses_holds_them_until_it_is_over(by: str, tmp_path: Path) -> None:
    switch, memory = Switch(), Memory(SystemClock(), HistoryRules())
    kind, name, change, says = HOLDS.get(by, ("", "", noted({}), "evictions.enabled is false"))
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    options = replace(SLOW, brake=Place("default", "rebalancer-brake"))
    later = replace(options, settle=LIMITS)

    def pause(on: bool = True) -> None:
        switch.on = not on or bool(kind)
        if kind:
            where = "" if kind == "Namespace" else "default"
            cluster.store.modify(kind, name, where, lambda o: change(o, on))

    with Cluster([*objects(*BLOCKED), space], ready_after=0.1) as cluster:
        cluster.settle()
        with Ready(cluster) as ready:
            with once_when(lambda: both(cluster), pause):
                report, _ = cycle(cluster, tmp_path, options, memory=memory, newest=switch)
            assert [o.status for o in report.outcomes] == [Fate.RELEASED]
            assert says in report.outcomes[0].message
            assert len(pods(cluster)) == 7
            report, _ = cycle(cluster, tmp_path, later, memory=memory, newest=switch)
            assert len(pods(cluster)) == 7, "still held"
            assert memory.no_release() is None
            pause(on=False)
            if by == "settings":  # It was long, and somebody says no for a moment.
                (old,) = released(cluster)
                mark = mark_of(old["metadata"]["annotations"], old["metadata"]["uid"])
                assert mark is not None
                marked(cluster, old["metadata"]["name"], str(replace(mark, at=1)))
                cluster.faults.add(
                    Reply(429, headers={"Retry-After": "3600"}), subresource="eviction", times=1
                )
            cycle(cluster, tmp_path, later, memory=memory, newest=switch)
            assert memory.no_release() is None
        cluster.settle()
        assert (zones(cluster), ready.fewest, marks(cluster)) == ([2, 2, 2], 6, [])


@pytest.mark.parametrize(
    "how", ["as approved", "beside pods as young", "elsewhere", "elsewhere, another younger", "restarted"]
)
def test_what_was_approved_and_held_over_a_pause_goes_only_as_approved(how: str, tmp_path: Path) -> None:
    """The next cycle does not know what it was to mend. Nor is the method to blame for an approval."""
    rules, memory = ApprovalRules(required=True), Memory(SystemClock(), HistoryRules())
    policy = replace(FIRST.policy, approval=rules, max_total=Limit(1))
    options = replace(
        SLOW, brake=Place("default", "rebalancer-brake"), planning=replace(FIRST, policy=policy)
    )

    def annotate(name: str, **said: str) -> None:
        keys = {f"rebalancer.io/{k}": v for k, v in said.items()}
        cluster.store.modify("ConfigMap", name, "default", lambda o: o["metadata"].update(annotations=keys))

    things = objects(*BLOCKED)
    if how == "beside pods as young":
        just = f"{datetime.now(UTC) - timedelta(seconds=9):%Y-%m-%dT%H:%M:%SZ}"
        for young in (p for p in things if p["kind"] == "Pod" and p["spec"]["nodeName"][0] == "b"):
            young["metadata"]["creationTimestamp"] = just
    with Cluster(things, ready_after=0.1) as cluster, connected(cluster, tmp_path) as connection:
        cluster.settle()
        before = names(cluster)
        approvals = Approvals(connection, "default", lambda: rules, SystemClock())
        cycle(cluster, tmp_path, options, memory=memory, approvals=approvals)
        annotate(PLAN, approve=cluster.store.get("ConfigMap", PLAN, "default")["data"]["revision"])
        with once_when(lambda: both(cluster), lambda: annotate("rebalancer-brake", pause="x")):
            cycle(cluster, tmp_path, options, memory=memory, approvals=approvals)
        (old,) = {p["metadata"]["name"] for p in released(cluster)}
        annotate("rebalancer-brake")
        if how == "restarted":
            approvals = Approvals(connection, "default", lambda: rules, SystemClock())
        elif how.startswith("elsewhere"):
            (new,) = (p for p in pods(cluster) if p["metadata"]["name"] not in before)
            node, other = new["spec"]["nodeName"], max(before & names(cluster) - {old})
            cluster.store.modify("Node", node, None, lambda o: o["metadata"]["labels"].update({ZONE: "d"}))
            if "another" in how:
                time.sleep(1.1)  # creationTimestamps have whole seconds
                for n in [n["metadata"]["name"] for n in cluster.store.list("Node")]:
                    if n not in {"c-0", "c-1"} - {node}:
                        cluster.store.modify("Node", n, None, lambda o: o["spec"].update(unschedulable=True))
                cluster.store.delete("Pod", other, "default")
                cluster.settle()
        later = replace(options, settle=LIMITS)
        report, _ = cycle(cluster, tmp_path, later, memory=memory, approvals=approvals)
        cluster.settle()
        goes = how in ("as approved", "beside pods as young")
        assert report.outcomes[0].status is (Fate.DONE if goes else Fate.UNDONE), report.outcomes[0].message
        assert (old in names(cluster), memory.no_release()) == (not goes, None)


def test_evictions_that_end_releases_keep_the_pace_too(tmp_path: Path) -> None:
    """Both replacements become Ready at the same moment."""
    made = [deployment(n).spread("zone", 1).placed({"a-0": 2, "b-0": 1}) for n in ("web", "api")]
    starts, at = [0.4, 1.1], dict[str, float]()

    def gone(e: Any) -> None:
        if e.resource.kind == "Pod" and "deletionTimestamp" in (there := e.record.obj["metadata"]):
            at.setdefault(there["name"], time.monotonic())

    with Cluster(objects(*nodes(a=1, b=1, c=1), *made), ready_after=lambda _: starts.pop()) as cluster:
        cluster.settle()
        cluster.store.subscribe(gone)
        report, _ = cycle(cluster, tmp_path, replace(OPTIONS, limits=CycleLimits(per_second=1.5)))
        assert report.evicted == 2
        first, second = at.values()
        assert second - first > 0.6


def test_a_stop_finishes_what_is_ready_and_undoes_the_rest(tmp_path: Path) -> None:
    for starts, status, count in ((0.1, Fate.DONE, 7), (never, Fate.UNDONE, 6)):
        clock = SystemClock()
        with Cluster(objects(*BLOCKED), ready_after=starts) as cluster:
            cluster.settle()

            there = partial(both, cluster, count)
            with Ready(cluster) as ready, once_when(there, clock.stop.set):
                report, _ = cycle(cluster, tmp_path, clock=clock)
            cluster.settle()
            assert [o.status for o in report.outcomes] == [status]
            assert (len(pods(cluster)), ready.fewest, marks(cluster)) == (6, 6, [])


def edited(
    cluster: Cluster, change: Callable[[Json], None], kind: str = "Deployment", name: str = "web"
) -> None:
    cluster.store.modify(kind, name, "default", change)


def scaled(to: int) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.scale("default", "web", to)


def rolled_out(cluster: Cluster) -> None:
    edited(cluster, lambda d: d["spec"]["template"]["spec"]["containers"][0].update(image="app:2"))


def died(cluster: Cluster) -> None:
    (pod,) = released(cluster)
    cluster.store.delete("Pod", pod["metadata"]["name"], "default", grace=0)


def replacement_evicted(cluster: Cluster) -> None:
    """As a vertical autoscaler's updater does, which leaves pods without a controller alone."""
    new = max(pods(cluster), key=lambda p: p["metadata"]["creationTimestamp"])
    cluster.store.delete("Pod", new["metadata"]["name"], "default")


def node_disrupted(cluster: Cluster) -> None:
    """As Karpenter and cluster-autoscaler do once they have decided on a node: a taint, then all goes."""
    (pod,) = released(cluster)
    name, taint = pod["spec"]["nodeName"], {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    cluster.store.modify("Node", name, None, lambda n: n.setdefault("spec", {}).update(taints=[taint]))
    cluster.remove_node(name)


def ended(cluster: Cluster) -> None:
    (pod,) = released(cluster)
    cluster.store.modify(
        "Pod",
        pod["metadata"]["name"],
        "default",
        lambda p: p["status"].update(phase="Failed"),
        subresource="status",
    )


def deleted(cluster: Cluster, propagation: str = "Background") -> None:
    cluster.store.delete("Deployment", "web", "default", propagation=propagation)


def namespace_deleted(cluster: Cluster) -> None:
    if cluster.store.find("Namespace", "default") is None:
        cluster.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    cluster.store.delete("Namespace", "default")


def adopted(cluster: Cluster) -> None:
    """Somebody else's ReplicaSet, made meanwhile, takes it."""
    (pod,) = released(cluster)

    def change(p: Json) -> None:
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "x",
            "uid": "x",
            "controller": True,
        }
        p["metadata"]["ownerReferences"] = [reference]

    cluster.store.modify("Pod", pod["metadata"]["name"], "default", change)


MEANWHILE: list[tuple[str, Callable[[Cluster], None], int, int]] = [
    ("scaled to fewer", scaled(4), 4, 4),
    ("scaled to more", scaled(8), 8, 6),
    ("rolled out", rolled_out, 6, 4),
    ("the pod is deleted", died, 6, 5),
    ("the pod has failed", ended, 6, 5),
    ("its replacement is evicted", replacement_evicted, 6, 6),
    ("its node is removed with all pods", node_disrupted, 6, 3),
    ("its owner is deleted", deleted, 0, 0),
    ("its owner is deleted in the foreground", partial(deleted, propagation="Foreground"), 0, 0),
    ("its namespace is deleted", namespace_deleted, 0, 0),
]


@pytest.mark.parametrize(("what", "act", "pods_after", "least"), MEANWHILE, ids=[m[0] for m in MEANWHILE])
def test_whatever_happens_meanwhile_nothing_is_left_released(
    what: str, act: Callable[[Cluster], None], pods_after: int, least: int, tmp_path: Path
) -> None:
    memory = Memory(SystemClock(), HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.5) as cluster:
        cluster.settle()
        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), lambda: act(cluster)):
            cycle(cluster, tmp_path, memory=memory)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (pods_after, []), what
        assert ready.fewest >= least
        assert all(e.fate not in (Fate.RELEASED, Fate.INTENDED) for e in memory.ledger.entries)


def test_one_that_recreates_its_pods_is_rolled_out_meanwhile(tmp_path: Path) -> None:
    """It has said that it bears a pod too many."""

    def recreates(owner: Json) -> None:
        owner["metadata"].setdefault("annotations", {})[METHOD] = "replaceFirst"
        owner["spec"]["strategy"] = {"type": "Recreate"}

    with Cluster(objects(*BLOCKED), ready_after=0.3) as cluster:
        edited(cluster, recreates)
        cluster.settle()
        with once_when(lambda: let_go(cluster), lambda: rolled_out(cluster)):
            cycle(cluster, tmp_path, replace(OPTIONS, planning=PlanOptions()))
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (6, [])
        assert {p["spec"]["containers"][0]["image"] for p in pods(cluster)} == {"app:2"}


def test_a_replacement_that_lands_where_it_does_not_help_is_given_back_for(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), without=("Scheduler",), ready_after=0.1) as cluster:
        cluster.settle()
        before = names(cluster)

        def elsewhere() -> None:
            (new,) = names(cluster) - before
            bind(cluster.store, "default", new, "a-1")

        with Ready(cluster) as ready, once_when(lambda: names(cluster) - before, elsewhere):
            report, _ = cycle(cluster, tmp_path)
        cluster.settle()
        assert report.outcomes[0].expected is False
        assert "which was not planned" in report.outcomes[0].message
        assert (names(cluster), marks(cluster), ready.fewest) == (before, [], 6)


def bare() -> list[Json]:
    """A ReplicaSet that nobody owns, and that bears a pod too many."""
    made = replica_set("web").labels(app="web").spread("zone", 1, selector={"app": "web"})
    found = objects(
        nodes(a=2, b=2, c=2),
        made.placed({"a-0": 2, "a-1": 1, "b-0": 2, "b-1": 1}),
        pdb("web", {"app": "web"}, max_unavailable=0),
    )
    for o in found:
        if o["kind"] == "ReplicaSet":
            o["metadata"].setdefault("annotations", {})[METHOD] = "replaceFirst"
    return found


@pytest.mark.parametrize("gone", ["", "Background", "Foreground"])
def test_a_bare_replica_set_is_spread_and_takes_what_it_let_go_with_it(gone: str, tmp_path: Path) -> None:
    with Cluster(bare(), ready_after=0.3) as cluster:

        def referred() -> list[Json]:
            every = cluster.store.list("Pod")
            refs = [(p["metadata"].get("ownerReferences") or [{}])[0] for p in every]
            return [r for r in refs if r.get("uid") and not r.get("controller")]

        def deleted() -> None:
            if gone:
                cluster.store.delete("ReplicaSet", "web", "default", propagation=gone)

        cluster.settle()
        with once_when(referred, deleted):
            report, _ = cycle(cluster, tmp_path)
        cluster.settle()
        left = cluster.store.list("Pod")
        assert all(MARK not in (p["metadata"].get("annotations") or {}) for p in left)
        assert len(left) == (0 if gone else 6)
        assert gone or Counter(p["spec"]["nodeName"][0] for p in left) == Counter("aabbcc"), report.message


SLICES = Resource(
    "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice", True,
    storage="endpointslices.discovery.k8s.io",
)  # fmt: skip


def service() -> Json:
    meta = {"name": "web", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"owner": "web"}}}


def elsewhere() -> Json:
    """A Service of which no controller writes EndpointSlices, whatever it selects."""
    made = service()
    made["metadata"]["name"] = "elsewhere"
    made["spec"] |= {"type": "ExternalName", "externalName": "web.example"}
    return made


def sends_to(chosen: list[Json]) -> Json:
    """What the controller of endpoints would write."""
    labels = {"kubernetes.io/service-name": "web"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-x", "namespace": "default", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.0.0.1"],
                "conditions": {"ready": True},
                "targetRef": {"uid": p["metadata"]["uid"]},
            }
            for p in chosen
        ],
    }


def test_the_old_pod_stays_until_its_service_sends_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def follow() -> None:
        # From here on as it is. A machine that halts for a second before may look as late as it does.
        for module in (gates, releases):
            monkeypatch.setattr(module, "FRESH", 1.0)
        told.append(
            (len(pods(cluster)), any(a.resource == "endpointslices" for a in cluster.server.accesses))
        )
        cluster.store.modify(
            "EndpointSlice",
            "web-x",
            "default",
            lambda o: o.update(sends_to(pods(cluster)) | {"metadata": o["metadata"]}),
        )

    one = replace(FIRST, policy=replace(FIRST.policy, max_total=Limit(1)))
    with served(SLICES), Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        cluster.store.create(service())
        cluster.store.create(elsewhere())
        cluster.store.create(sends_to(pods(cluster)))
        # The look that comes right before the request is no older for it.
        cluster.faults.add(Delay(1.05), resource="endpointslices")

        def asked() -> bool:
            return sum(a.resource == "endpointslices" for a in cluster.server.accesses) > 1

        with Ready(cluster) as ready, once_when(asked, follow):
            patient = replace(OPTIONS, planning=one, settle=replace(LIMITS, ready=30.0))
            report, _ = cycle(cluster, tmp_path, patient)
        cluster.settle()
        assert told == [(7, True)], "it was asked, and the old pod stayed"
        assert report.evicted == 1
        assert (len(pods(cluster)), ready.fewest) == (6, 6)


def test_where_what_serves_may_not_be_seen_the_old_pod_is_given_back_for(tmp_path: Path) -> None:
    with served(SLICES), Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        cluster.store.create(service())
        before = names(cluster)
        cluster.faults.add(Reply(403), resource="endpointslices")
        with Ready(cluster) as ready:
            report, _ = cycle(cluster, tmp_path)
        cluster.settle()
        assert report.outcomes[0].status is Fate.UNDONE
        assert (names(cluster), marks(cluster), ready.fewest) == (before, [], 6)


def test_while_services_are_refused_the_old_pod_stays(tmp_path: Path) -> None:
    """The watch has forgotten them then, which is not the same as none."""
    brief = replace(OPTIONS, settle=replace(LIMITS, ready=4.0))
    with served(SLICES), Cluster(objects(*BLOCKED), ready_after=0.5) as cluster:
        cluster.settle()
        before = names(cluster)
        cluster.store.create(service())
        cluster.store.create(sends_to(pods(cluster)))
        cluster.faults.add(Cut(after_events=1), verb="watch", resource="services", skip=1, times=1)

        def refused() -> None:
            cluster.faults.add(Reply(403), resource="services")
            labels = {"x": "y"}  # an event, after which the watch ends
            cluster.store.modify("Service", "web", "default", lambda o: o["metadata"].update(labels=labels))

        with once_when(lambda: released(cluster), refused):
            report, _ = cycle(cluster, tmp_path, brief)
        cluster.settle()
        assert report.outcomes[0].status is Fate.UNDONE
        assert "list services" in report.outcomes[0].message
        assert (names(cluster), marks(cluster)) == (before, [])


@pytest.mark.parametrize("ahead", [0.0, 30.0, 600.0])
def test_what_came_to_protect_it_during_a_pause_keeps_the_old_pod_by_whatever_clock(
    ahead: float, tmp_path: Path
) -> None:
    """What goes is the pod that was made since the release, as the API server says."""
    switch, clock, no = Switch(), Wrong(ahead), {"rebalancer.io/evict": "no"}
    memory = Memory(clock, HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        before = names(cluster)
        with Ready(cluster) as ready:
            with once_when(lambda: both(cluster), lambda: setattr(switch, "on", False)):
                report, _ = cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch, clock=clock)
            assert [o.status for o in report.outcomes] == [Fate.RELEASED]
            cluster.store.modify(
                "Deployment", "web", "default", lambda o: o["metadata"].update(annotations=no)
            )
            switch.on = True
            cycle(cluster, tmp_path, memory=memory, newest=switch, clock=clock)
        cluster.settle()
        assert (names(cluster), ready.fewest, marks(cluster)) == (before, 6, [])


# -- processes that end at any request, and those that come after


class Killed(BaseException):
    """The process is gone."""


PLACE = Place("default", "rebalancer-ledger")


def remembering(connection: Connection, writer: str, term: int, clock: Clock | None = None) -> Memory:
    store = Ledgers(connection, PLACE, writer=writer, wait=lambda _: False)
    return Memory(clock or SystemClock(), HistoryRules(), store=store, writer=writer, term=lambda: term)


def process(
    cluster: Cluster,
    folder: Path,
    term: int,
    *,
    dies_at: int = 0,
    sent: bool = False,
    fresh: bool = False,
    options: LiveOptions = OPTIONS,
    asks: Callable[[str, str], None] = lambda *_: None,
    clock: Clock | None = None,
    ready: float = 1.0,
) -> int:
    """A cycle with the ledger in the cluster; it is killed before or after (`sent`) that write of it.

    Returns how many it made. `fresh`: it plans nothing of its own. `asks`: told of each request before it.
    """
    writes = 0
    options = replace(options, settle=replace(LIMITS, ready=ready))
    options = replace(options, planning=NOTHING_NEW) if fresh else options
    with connected(cluster, folder) as connection:
        ask = connection.request

        def request(method: str, path: str, *args: Any, **more: Any) -> Any:
            nonlocal writes
            writes += method != "GET"
            asks(method, path)
            if method != "GET" and writes == dies_at and not sent:
                raise Killed
            answer = ask(method, path, *args, **more)
            if method != "GET" and writes == dies_at:
                raise Killed
            return answer

        connection.request = request  # type: ignore[method-assign]
        cache, clock, story = WatchCache(connection).start(), clock or SystemClock(), Story()
        try:
            around = Surroundings(memory=remembering(connection, f"p{term}", term, clock), cache=cache)
            Cycle(live_parts(connection, options, clock=clock, observer=story, around=around)).run()
        except Killed:
            pass
        finally:
            cache.stop()
    return writes


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("starts", [0.1, None], ids=["ready", "never ready"])
def test_killed_at_any_request_nothing_is_lost(starts: float | None, sent: bool, tmp_path: Path) -> None:
    at = most = 0
    while at <= most or at <= 5:
        at += 1
        with Cluster(objects(*BLOCKED), ready_after=starts or never) as cluster:
            cluster.settle()
            before = names(cluster)
            with Ready(cluster) as ready:
                writes = process(cluster, tmp_path, 1, dies_at=at, sent=sent)
                process(cluster, tmp_path, 2, fresh=True)
            cluster.settle()
            assert (len(pods(cluster)), marks(cluster)) == (6, []), at
            assert ready.fewest == 6, at
            if starts is None:
                assert names(cluster) == before
        most = max(most, writes)
    assert most >= 5


@pytest.mark.parametrize("ahead", [-600.0, 0.0, 600.0])
def test_who_finds_a_release_waits_as_long_as_who_began_it_by_whatever_clock(
    ahead: float, tmp_path: Path
) -> None:
    with Cluster(objects(*BLOCKED), ready_after=2.0) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True, clock=Wrong(ahead))
        (old,) = (p["metadata"]["name"] for p in released(cluster))
        with Ready(cluster) as ready:
            process(cluster, tmp_path, 2, fresh=True, clock=Wrong(ahead), ready=30.0)
        cluster.settle()
        assert (old in names(cluster), len(pods(cluster)), ready.fewest) == (False, 6, 6)


@pytest.mark.parametrize("ahead", [0.0, 600.0])
def test_what_another_installation_has_just_released_is_left_to_it_by_whatever_clock(
    ahead: float, tmp_path: Path
) -> None:
    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True, clock=Wrong(ahead))
        (old,) = marks(cluster)
        cycle(
            cluster,
            tmp_path,
            replace(OPTIONS, planning=NOTHING_NEW),
            memory=Memory(SystemClock(), HistoryRules()),
        )
        assert [p["metadata"]["name"] for p in released(cluster)] == marks(cluster) == [old]


def test_without_the_ledger_a_mark_gives_the_label_back_and_no_more(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        assert len(released(cluster)) == 1
        cluster.settle()
        cluster.store.delete("ConfigMap", PLACE.name, PLACE.namespace)
        with Ready(cluster) as ready:
            process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster), ready.fewest) == (6, [], 6)
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


# -- refused, not answered, forged


def patches(cluster: Cluster) -> int:
    return sum(a.verb == "patch" and a.resource == "pods" for a in cluster.server.accesses)


def test_what_refuses_the_trial_is_not_released(tmp_path: Path) -> None:
    """By a webhook, or OwnerReferencesPermissionEnforcement: the trial is all that is sent."""
    for code, text in (
        (403, "cannot set an ownerRef on a resource you can't delete"),
        (422, "denied the request"),
    ):
        with Cluster(objects(*BLOCKED)) as cluster:
            cluster.settle()
            before = names(cluster)
            body = ApiError(code, "Forbidden" if code == 403 else "Invalid", text).status()
            cluster.faults.add(Reply(code, body), verb="patch", resource="pods")
            report, _ = cycle(cluster, tmp_path)
            assert {o.status for o in report.outcomes} <= {Fate.FAILED, Fate.SKIPPED}
            assert text in report.outcomes[0].message
            assert (names(cluster), marks(cluster)) == (before, [])
            assert not any(a.code == 200 for a in cluster.server.accesses if a.verb == "patch")


def test_without_the_right_to_release_others_of_the_namespace_go(tmp_path: Path) -> None:
    """One team asks for a method that is not installed."""
    api = deployment("api").spread("zone", 1).placed({"a-0": 4})
    options = replace(OPTIONS, planning=PlanOptions())
    with Cluster(objects(*BLOCKED, api), ready_after=0.1) as cluster:
        cluster.settle()
        first = {"rebalancer.io/method": "replaceFirst"}
        cluster.store.modify(
            "Deployment", "web", "default", lambda o: o["metadata"].update(annotations=first)
        )
        body = ApiError(403, "Forbidden", 'cannot patch resource "pods"').status()
        cluster.faults.add(Reply(403, body), verb="patch", resource="pods")
        before = names(cluster)
        report, _ = cycle(cluster, tmp_path, options)
        assert report.evicted == 2, report.message
        assert (names(cluster), patches(cluster)) == (before, 2)
        assert any('cannot patch resource "pods"' in o.message for o in report.outcomes)


def test_a_release_whose_answer_is_lost_is_seen_and_not_sent_again(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        cluster.faults.add(Cut("after"), verb="patch", resource="pods", skip=1, times=1)
        with Ready(cluster) as ready:
            report, _ = cycle(cluster, tmp_path)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.DONE, Fate.DONE]
        assert (zones(cluster), ready.fewest, marks(cluster)) == ([2, 2, 2], 6, [])
        assert patches(cluster) == 4, "a trial and a release for each of two"


@pytest.mark.usefixtures("within_a_second")
def test_where_its_end_would_take_too_long_nothing_is_released(tmp_path: Path) -> None:
    """The last look reads all at once, and is in time; what follows reads one thing after the other."""
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        for verb in ("get", "list", "patch", "create"):
            cluster.faults.add(Delay(0.3), verb=verb)
        report, _ = cycle(cluster, tmp_path, replace(OPTIONS, limits=CycleLimits(max_replans=0)))
        assert marks(cluster) == []
        assert patches(cluster) == 0
        assert any("takes longer than 1 s" in o.message for o in report.outcomes)


def test_a_label_that_was_given_back_is_so_though_the_answer_was_lost(tmp_path: Path) -> None:
    """The move has failed, and is not made again at once."""
    options = replace(OPTIONS, settle=replace(LIMITS, ready=1.0))
    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        before = names(cluster)
        cluster.faults.add(Cut("after"), verb="patch", resource="pods", skip=2, times=1)
        with Ready(cluster) as ready:
            report, _ = cycle(cluster, tmp_path, options)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.FAILED]
        assert "its label was given back" in report.outcomes[0].message
        assert patches(cluster) == 3, "a trial, a release, and its end"
        assert (names(cluster), ready.fewest, marks(cluster)) == (before, 6, [])


def test_rights_that_are_lost_keep_the_label_away_until_they_are_back(tmp_path: Path) -> None:
    memory = Memory(SystemClock(), HistoryRules())
    options = replace(OPTIONS, settle=replace(LIMITS, ready=1.0))
    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        before, clock = names(cluster), SystemClock()
        fault = cluster.faults.add(Reply(403), verb="patch", resource="pods", skip=2)

        def refused() -> bool:
            return fault.hits > 1

        with Ready(cluster) as ready, once_when(refused, clock.stop.set):
            report, _ = cycle(cluster, tmp_path, options, memory=memory, clock=clock)
            assert [o.status for o in report.outcomes] == [Fate.RELEASED]
            cluster.faults.clear()
            cycle(cluster, tmp_path, replace(options, planning=PlanOptions()), memory=memory)
        cluster.settle()
        assert (names(cluster), marks(cluster), ready.fewest) == (before, [], 6)


def marked(cluster: Cluster, pod: str, text: str, space: str = "default", *, label: bool = True) -> None:
    def change(p: Json) -> None:
        p["metadata"].setdefault("annotations", {})[MARK] = text
        if not label:
            del p["metadata"]["labels"][HASH]

    cluster.store.modify("Pod", pod, space, change)


def test_what_another_process_has_just_released_is_not_released_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its label is gone by then, and a second mark would forget what it was."""
    release = Releases.release

    def just_before(self: Releases, move: Move, look: FreshLook, permission: Permission) -> Eviction:
        one = cluster.store.get("Pod", move.pod.name, "default")["metadata"]
        owner, value = one["ownerReferences"][0]["uid"], one["labels"].get(HASH)
        if value:
            mark = Mark(label=HASH, value=value, replica_set=owner, pod=one["uid"], at=1, by="second")
            marked(cluster, one["name"], str(mark), label=False)
        monkeypatch.setattr(Permission, "__call__", lambda _: None)
        monkeypatch.setattr(Permission, "fresh", lambda _: True)
        return release(self, move, look, permission)

    with Cluster(objects(*BLOCKED), without=("ReplicaSet",)) as cluster:
        cluster.settle()
        monkeypatch.setattr(Releases, "release", just_before)
        report, _ = cycle(cluster, tmp_path)
        assert report.evicted == 0
        marks = [mark_of(p["metadata"]["annotations"], p["metadata"]["uid"]) for p in released(cluster)]
        assert marks
        assert all(m is not None and m.value and m.by == "second" for m in marks)


def test_before_an_uninstall_all_is_given_back(tmp_path: Path) -> None:
    """Whether or not the ledger knows it, and whether or not the replacement is Ready."""
    settings = Settings(ledger=Ledger(namespace=PLACE.namespace), brake=Brake(namespace=PLACE.namespace))
    for starts in (0.1, never):
        with Cluster(objects(*BLOCKED), ready_after=starts) as cluster:
            cluster.settle()
            before = names(cluster)
            process(cluster, tmp_path, 1, dies_at=4, sent=True)
            assert len(released(cluster)) == 1
            # One that becomes Ready while it is given back may stay, and the old one go.
            if starts is not never:
                until(lambda: sum(map(is_ready, pods(cluster))) == 7)
            with Ready(cluster) as ready, connected(cluster, tmp_path) as connection:
                done = give_back_all(settings, connection)
            cluster.settle()
            assert [o.status for o in done] == [Fate.UNDONE]
            assert (names(cluster), marks(cluster), ready.fewest) == (before, [], 6)
            assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


@needs_kubectl
def test_what_others_see_meanwhile(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        cluster.settle()
        (old,) = released(cluster)
        kubectl = kubectl_with(cluster.kubeconfig(tmp_path / "kubectl"))
        with pytest.raises(AssertionError, match="declare no controller"):
            kubectl("drain", old["spec"]["nodeName"], "--dry-run=server")
        with pytest.raises(AssertionError, match="timed out"):
            kubectl("rollout", "status", "deployment/web", "--timeout=1s")
        selected = kubectl("get", "pods", "-l", "owner=web", "-o", "name").split()
        assert len(selected) == 7, "as the Deployment selects, by which an HPA counts"


def test_forged_and_copied_marks_move_nothing(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED, pod("other").on("c-0").labels(app="x"))) as cluster:
        cluster.settle()
        before = names(cluster)
        one, two, three, *_ = pods(cluster)
        uid, owner = one["metadata"]["uid"], one["metadata"]["ownerReferences"][0]["uid"]
        value = one["metadata"]["labels"][HASH]
        mark = Mark(label=HASH, value=value, replica_set=owner, pod=uid, at=1, by="ledger")
        never_had = replace(mark, label="tier", value="bank", pod=three["metadata"]["uid"])
        marked(cluster, three["metadata"]["name"], str(never_had))
        other = cluster.store.get("Pod", "other", "default")["metadata"]["uid"]
        marked(cluster, one["metadata"]["name"], str(mark))
        marked(cluster, two["metadata"]["name"], str(mark))
        marked(cluster, "other", str(replace(mark, pod=other)))
        process(cluster, tmp_path, 1, fresh=True)
        cluster.settle()
        assert names(cluster) == before
        left = [two["metadata"]["name"], three["metadata"]["name"]]
        assert marks(cluster) == left, "the copy is none, and a label that no set asks for was not taken"
        assert all("tier" not in p["metadata"]["labels"] for p in pods(cluster))
        assert HASH not in cluster.store.get("Pod", "other", "default")["metadata"]["labels"]
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


def claim(server: ApiServer, what: str) -> None:
    """Somebody who may write in namespace `evil` names what default/web has."""
    owner = server.store.list("ReplicaSet")[0]["metadata"]["uid"]
    uid = server.store.get("Pod", "p", "evil")["metadata"]["uid"]
    controller = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner,
        "controller": True,
    }
    mark = Mark(label="zz", value="", replica_set=owner, pod=uid, at=2**32, by="x/y")
    new: Json = {"annotations": {MARK: str(mark)}} if what == "mark" else {"ownerReferences": [controller]}
    server.store.modify("Pod", "p", "evil", lambda o: o["metadata"].update(new))


@pytest.mark.parametrize("what", ["mark", "owner"])
def test_what_a_pod_of_another_namespace_says_of_itself_holds_nothing_back(what: str) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 6})
    with ApiServer(objects(*nodes(a=1, b=1, c=1), web, pod("p", "evil").on("b-0"))) as server:
        claim(server, what)
        assert Run(server, EXECUTE).evictions() == 4


def test_marks_that_no_replicaset_bears_out_keep_nobody_from_being_released(tmp_path: Path) -> None:
    forgers = [pod(f"p{i}", "evil").on("b-0") for i in range(5)]
    with Cluster(objects(*BLOCKED, *forgers), ready_after=0.1) as cluster:
        cluster.settle()
        for found in cluster.store.list("Pod", "evil"):
            mark = Mark(
                label="zz", value="", replica_set="none", pod=found["metadata"]["uid"], at=1, by="x/y"
            )
            marked(cluster, found["metadata"]["name"], str(mark), "evil")
        report, _ = cycle(cluster, tmp_path)
        cluster.settle()
        assert (zones(cluster), {o.status for o in report.outcomes}) == ([2, 2, 2], {Fate.DONE})


def test_marks_of_another_namespace_that_the_ledger_does_not_know_hold_nobody_up(tmp_path: Path) -> None:
    """Whoever may make pods in a namespace can write marks there that its ReplicaSet bears out."""
    theirs = deployment("api", "evil").placed({"b-0": 5})
    one = replace(FIRST, policy=replace(FIRST.policy, max_total=Limit(1)))
    with Cluster(objects(*BLOCKED, *objects(theirs)), ready_after=0.1) as cluster:
        cluster.settle()

        for found in cluster.store.list("Pod", "evil"):
            meta, at = found["metadata"], int(time.time())
            owner, value = meta["ownerReferences"][0]["uid"], meta["labels"][HASH]
            mark = Mark(label=HASH, value=value, replica_set=owner, pod=meta["uid"], at=at, by="x/y")
            marked(cluster, meta["name"], str(mark), "evil", label=False)
        cluster.settle()
        report, _ = cycle(cluster, tmp_path, replace(OPTIONS, planning=one))
        assert report.evicted == 1


def test_another_installation_leaves_it_alone(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        assert len(released(cluster)) == 1
        cycle(cluster, tmp_path, replace(OPTIONS, planning=PlanOptions()))
        assert len(released(cluster)) == 1, "it has another ledger"
        process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (6, [])


def test_an_undo_takes_the_replacement_and_costs_are_as_they_were(tmp_path: Path) -> None:
    """Both are Ready, and a check says no for good: the replacement goes, although a user gave another pod a
    low cost, and nothing more is released until somebody resumes."""
    memory = Memory(SystemClock(), HistoryRules())

    def forbidden() -> None:
        (old,) = released(cluster)
        cluster.store.modify("Pod", old["metadata"]["name"], "default", no)

    def no(p: Json) -> None:
        p["metadata"]["annotations"]["rebalancer.io/evict"] = "false"

    def cheap(p: Json) -> None:
        p["metadata"].setdefault("annotations", {})[DELETION_COST] = "-5"

    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        before = names(cluster)
        cluster.store.modify("Pod", sorted(before)[-1], "default", cheap)
        with Ready(cluster) as ready, once_when(lambda: both(cluster), forbidden):
            report, _ = cycle(cluster, tmp_path, SLOW, memory=memory)
        cluster.settle()
        assert report.outcomes[0].status is Fate.UNDONE
        assert (names(cluster), ready.fewest, marks(cluster)) == (before, 6, [])
        assert memory.no_release() is not None
        sent = patches(cluster)
        cycle(cluster, tmp_path, memory=memory)
        assert patches(cluster) == sent


@pytest.mark.parametrize("code", [409, 422], ids=["changed meanwhile", "a webhook refuses it"])
def test_an_undo_that_was_refused_took_no_ready_pod(code: int, tmp_path: Path) -> None:
    """The old pod goes by itself then; the method stays on."""
    memory, protected = Memory(SystemClock(), HistoryRules()), {"rebalancer.io/evict": "false"}

    def protect() -> None:
        (old,) = released(cluster)
        cluster.faults.add(Reply(code), verb="patch", resource="pods", path=old["metadata"]["name"])
        change = partial(lambda p: p["metadata"]["annotations"].update(protected))
        cluster.store.modify("Pod", old["metadata"]["name"], "default", change)

    def refused() -> bool:
        return any(a.code == code and a.verb == "patch" for a in cluster.server.accesses)

    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        end = once_when(refused, lambda: died(cluster))
        with once_when(lambda: both(cluster), protect), end:
            cycle(cluster, tmp_path, SLOW, memory=memory)
        assert refused()
        assert memory.no_release() is None


def test_a_pod_that_its_deployment_no_longer_owns_goes_back(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.5) as cluster:
        cluster.settle()

        def orphaned() -> None:
            cluster.store.delete("Deployment", "web", "default", propagation="Orphan")

        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), orphaned):
            process(cluster, tmp_path, 1)
            process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster), ready.fewest) == (6, [], 6)


def readied(label: str) -> Callable[[Json], float | None]:
    """Pods with the label become Ready, others never do."""
    return lambda made: 0.1 if label in made["metadata"]["labels"] else None


def test_another_deployment_of_its_name_is_not_its_owner(tmp_path: Path) -> None:
    """Its pods are Ready when a stop finishes what is Ready; the replacement is not."""
    clock = SystemClock()

    def namesake() -> None:
        made = deepcopy(cluster.store.get("Deployment", "web", "default"))
        cluster.store.delete("Deployment", "web", "default", propagation="Orphan")
        until(lambda: cluster.store.find("Deployment", "web", "default") is None)
        made["metadata"], made["status"] = {"name": "web", "namespace": "default"}, {}
        made["spec"] |= {"replicas": 1, "selector": {"matchLabels": {"fresh": "yes"}}}
        made["spec"]["template"]["metadata"]["labels"] = {"fresh": "yes"}
        cluster.store.create(made)
        fresh = partial(cluster.store.list, "Pod", "default")
        until(lambda: any(is_ready(p) for p in fresh() if "fresh" in p["metadata"]["labels"]))
        time.sleep(2 * LIMITS.serving)
        clock.stop.set()

    with Cluster(objects(*BLOCKED[:-1]), ready_after=readied("fresh")) as cluster:
        cluster.settle()
        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), namesake):
            cycle(cluster, tmp_path, replace(OPTIONS, settle=replace(LIMITS, ready=20.0)), clock=clock)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster), ready.fewest) == (6, [], 6)


def test_a_mark_that_somebody_rewrote_has_nothing_evicted(tmp_path: Path) -> None:
    """The ledger knows the release; the mark names another set by now, whose pods are Ready."""
    labels = {"fresh": "yes"}
    other: Json = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "app:1"}]},
            },
        },
    }
    with Cluster(objects(*BLOCKED[:-1]), ready_after=readied("fresh")) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        (old,) = released(cluster)
        owner = cluster.store.create(other)["metadata"]["uid"]
        time.sleep(1.0)
        uid, now = old["metadata"]["uid"], int(time.time())
        mark = Mark(label="fresh", value="yes", replica_set=owner, pod=uid, at=now, by="somebody")
        marked(cluster, old["metadata"]["name"], str(mark))
        process(cluster, tmp_path, 2, fresh=True)
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


def test_a_drain_of_the_old_pods_node_does_no_harm(tmp_path: Path) -> None:
    with Cluster(
        objects(*BLOCKED[:-1], pdb("web", {"owner": "web"}, max_unavailable=1)), ready_after=0.3
    ) as cluster:
        cluster.settle()

        def drained() -> None:
            (old,) = released(cluster)
            with suppress(TimeoutError):
                cluster.drain(old["spec"]["nodeName"], timeout=3.0)

        with once_when(lambda: let_go(cluster), drained):
            process(cluster, tmp_path, 1)
            process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (6, [])


def status(code: int, says: str) -> Reply:
    return Reply(code, {"kind": "Status", "status": "Failure", "message": says, "code": code})


DENIALS: dict[str, tuple[Reply, list[str], list[str]]] = {
    "a webhook": (status(403, 'admission webhook "w" denied the request: not today'), ["pod"], []),
    "RBAC": (status(403, "pods is forbidden: cannot create pods/eviction"), [], ["default"]),
    "a webhook that cannot be asked": (status(500, 'failed calling webhook "w": EOF'), [], []),
    "something in between": (Reply(400), [], []),
}


@pytest.mark.parametrize("case", DENIALS)
def test_who_does_not_let_a_released_pod_be_evicted_says_nothing_of_the_method(
    case: str, tmp_path: Path
) -> None:
    denial, refused, closed = DENIALS[case]
    memory = Memory(SystemClock(), HistoryRules())
    options = replace(OPTIONS, settle=replace(LIMITS, ready=1.0))
    with Cluster(objects(*BLOCKED), ready_after=0.2) as cluster:
        cluster.settle()
        cluster.faults.add(denial, subresource="eviction")
        report, _ = cycle(cluster, tmp_path, options, memory=memory)
        cluster.settle()
        asked = {f"default/{a.name}" for a in cluster.server.accesses if a.subresource == "eviction"}
        undone = [o.status for o in report.outcomes if o.evicted]
        assert undone == [Fate.UNDONE] * (1 if closed else 2), "as often as others are asked for in vain"
        assert (len(pods(cluster)), marks(cluster)) == (6, [])
        assert memory.no_release() is None
        assert set(memory.refused) == (asked if refused else set())
        assert list(memory.closed) == closed


def test_a_pod_that_is_denied_once_it_was_left_released_stays_as_well(tmp_path: Path) -> None:
    switch, memory = Switch(), Memory(SystemClock(), HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        with once_when(lambda: both(cluster), switch.off):
            held, _ = cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch)
        left = [o.move.pod.name for o in held.outcomes if o.status is Fate.RELEASED]
        switch.on = True
        cluster.faults.add(DENIALS["a webhook"][0], subresource="eviction")
        report, _ = cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch)
        undone = [o.move.pod.name for o in report.outcomes if o.status is Fate.UNDONE]
        assert len(left) == 1
        assert len(undone) == len({*undone, *left}) == 2


def test_somebody_who_resumes_turns_the_method_on_again(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster, connected(cluster, tmp_path) as connection:
        memory = remembering(connection, "p1", 1)
        memory.begin()
        memory.doubt_release("an undo took a Ready pod")
        settings = Settings(ledger=Ledger(namespace=PLACE.namespace), brake=Brake(namespace=PLACE.namespace))
        assert resume_all(settings, connection).released == [PLACE]
        assert resume_all(settings, connection).released == []
        assert memory.no_release() is not None
        memory.begin()
        assert memory.no_release() is None


def test_an_eviction_is_not_sent_again_when_the_replacement_has_become_unready(tmp_path: Path) -> None:
    options = replace(OPTIONS, settle=replace(LIMITS, ready=2.0))
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        before = names(cluster)
        fault = cluster.faults.add(Reply(500), verb="create", subresource="eviction", times=1)

        def unready() -> None:
            (new,) = names(cluster) - before
            down = [{"type": "Ready", "status": "False"}]
            cluster.store.modify(
                "Pod", new, "default", lambda p: p["status"].update(conditions=down), subresource="status"
            )

        with Ready(cluster) as ready, once_when(lambda: fault.hits, unready):
            report, _ = cycle(cluster, tmp_path, options)
        cluster.settle()
        assert report.outcomes[0].status in (Fate.FAILED, Fate.UNDONE)
        assert (len(pods(cluster)), marks(cluster), ready.fewest) == (6, [], 6)


def test_what_the_cycles_time_does_not_let_it_finish_is_not_released(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED)) as cluster:
        cluster.settle()
        report, _ = cycle(cluster, tmp_path, replace(OPTIONS, max_time=30.0))
        assert patches(cluster) == 0
        assert "nothing is released" in report.message


@pytest.mark.parametrize("no", [False, True], ids=["goes", "its Deployment says no"])
def test_where_the_old_replicaset_is_gone_the_pod_goes_once_the_new_ones_are_there(
    no: bool, tmp_path: Path
) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.3) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        assert len(released(cluster)) == 1
        rolled_out(cluster)
        cluster.settle()
        (old,) = released(cluster)
        (name,) = {
            s["metadata"]["name"] for s in cluster.store.list("ReplicaSet") if not s["spec"]["replicas"]
        }
        cluster.store.delete("ReplicaSet", name, "default", propagation="Orphan")
        if no:
            says = {"rebalancer.io/evict": "false"}
            edited(cluster, lambda d: d["metadata"].update(annotations=says))
        process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        left = [old["metadata"]["name"]] if no else []
        assert (len(pods(cluster)), marks(cluster)) == (6 + no, left)


def test_a_pod_that_somebody_has_adopted_is_theirs(tmp_path: Path) -> None:
    memory = Memory(SystemClock(), HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.5) as cluster:
        cluster.settle()
        with once_when(lambda: let_go(cluster), lambda: adopted(cluster)):
            report, _ = cycle(cluster, tmp_path, memory=memory)
        assert report.outcomes[0].status is Fate.UNDONE
        assert "it is that one's now" in report.outcomes[0].message


# -- what cannot go on is left: no cycle waits for ever


def test_where_the_method_is_off_a_mark_that_somebody_wrote_is_only_reported(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED)) as cluster:
        cluster.settle()
        one, *_ = pods(cluster)
        uid, owner = one["metadata"]["uid"], one["metadata"]["ownerReferences"][0]["uid"]
        mark = Mark(label=HASH, value=one["metadata"]["labels"][HASH], replica_set=owner, pod=uid, at=1)
        marked(cluster, one["metadata"]["name"], str(mark))
        _, story = cycle(cluster, tmp_path, replace(OPTIONS, planning=PlanOptions()))
        assert patches(cluster) == 0
        assert any(f.code == "released-pod" for f in story.plans[-1].findings)


def test_a_request_that_is_refused_ends_the_look_at_what_was_left(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        assert len(released(cluster)) == 1
        cluster.faults.add(Reply(403), verb="patch", resource="pods")
        process(cluster, tmp_path, 2, fresh=True)
        assert len(released(cluster)) == 1
        cluster.faults.clear()
        process(cluster, tmp_path, 3, fresh=True)
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (6, [])


def test_a_leftover_that_its_budget_keeps_is_given_back(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        before = names(cluster)
        process(cluster, tmp_path, 1, dies_at=4, sent=True)

        def strict(budget: Json) -> None:
            budget["spec"] = {"selector": budget["spec"]["selector"], "minAvailable": 7}

        edited(cluster, strict, "PodDisruptionBudget")
        with Ready(cluster) as ready:
            process(cluster, tmp_path, 2, fresh=True)
        cluster.settle()
        assert (names(cluster), marks(cluster), ready.fewest) == (before, [], 6)


def test_a_rollout_that_gets_stuck_holds_up_no_cycle(tmp_path: Path) -> None:
    """Its label cannot go back without taking a Ready pod: it stays, and is told."""
    memory = Memory(SystemClock(), HistoryRules())
    options = replace(OPTIONS, settle=replace(LIMITS, ready=1.0))
    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        with once_when(lambda: let_go(cluster), lambda: rolled_out(cluster)):
            report, _ = cycle(cluster, tmp_path, options, memory=memory)
        _, story = cycle(cluster, tmp_path, options, memory=memory)
        assert report.outcomes[0].status in (Fate.RELEASED, Fate.UNDONE)
        assert len(story.plans) == 1


def test_releases_that_nobody_ends_keep_others_from_being_made_and_no_cycle_waits(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED, deployment("api").placed({"c-0": 1}))) as cluster:
        cluster.settle()
        (one,) = (p for p in cluster.store.list("Pod") if p["metadata"]["labels"].get("owner") == "api")
        owner, value = one["metadata"]["ownerReferences"][0]["uid"], one["metadata"]["labels"][HASH]
        uid, now = one["metadata"]["uid"], int(time.time())
        mark = Mark(label=HASH, value=value, replica_set=owner, pod=uid, at=now, by="another/one")
        marked(cluster, one["metadata"]["name"], str(mark), label=False)
        cluster.settle()
        memory = Memory(SystemClock(), HistoryRules(canary=5))
        report, _ = cycle(cluster, tmp_path, memory=memory)
        assert patches(cluster) == 0
        assert f"default/{one['metadata']['name']} are" in report.message


def test_who_reviewed_a_plan_has_nothing_else_evicted(tmp_path: Path) -> None:
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        (old,) = released(cluster)
        with connected(cluster, tmp_path) as connection:
            memory = remembering(connection, "p2", 2)
            around = Surroundings(memory=memory)
            clock = SystemClock()
            run_once(connection, OPTIONS, clock=clock, reviewed=Reviewed(()), around=around)
            assert len(released(cluster)) == 1, "held: nobody was shown it"
            one = ReviewedEviction("default", old["metadata"]["name"], old["metadata"]["uid"])
            done = run_once(connection, OPTIONS, clock=clock, reviewed=Reviewed((one,)), around=around)
            assert done.evicted == 1, "what an earlier process released counts"
        cluster.settle()
        assert (len(pods(cluster)), marks(cluster)) == (6, [])


def test_an_owner_that_wants_no_pod_keeps_none_that_is_held(tmp_path: Path) -> None:
    switch, memory = Switch(), Memory(SystemClock(), HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        with once_when(lambda: both(cluster), switch.off):
            cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch)
        cluster.scale("default", "web", 0)
        cluster.settle()
        cycle(cluster, tmp_path, memory=memory, newest=switch)
        cluster.settle()
        assert pods(cluster) == []
        assert memory.no_release() is None


def test_a_workload_that_asks_for_the_method_itself_gets_its_pod_back_without_the_ledger(
    tmp_path: Path,
) -> None:
    options = replace(OPTIONS, planning=PlanOptions())

    def asks(owner: Json) -> None:
        owner["metadata"].setdefault("annotations", {})[METHOD] = "auto"

    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        assert len(released(cluster)) == 1
        edited(cluster, asks)
        cluster.store.delete("ConfigMap", PLACE.name, PLACE.namespace)
        with connected(cluster, tmp_path) as connection:
            cycle(cluster, tmp_path, options, memory=remembering(connection, "p2", 2))
        cluster.settle()
        assert len(pods(cluster)) == 6
        assert marks(cluster) == []


# -- both are there, and others have changed what the spread needs


def others_of_a(cluster: Cluster) -> list[str]:
    """The pods beside the released one in the zone that it is to leave."""
    there = (p for p in pods(cluster) if p not in released(cluster))
    return [p["metadata"]["name"] for p in there if p["spec"]["nodeName"][0] == "a"]


def none_left_in_a(cluster: Cluster) -> None:
    """Scaled to four, and the ReplicaSet takes both others of a."""

    def cheap(p: Json) -> None:
        p["metadata"]["annotations"] = {DELETION_COST: "-1000"}

    for name in others_of_a(cluster):
        edited(cluster, cheap, "Pod", name)
    cluster.scale("default", "web", 4)


def others_of_a_go_elsewhere(cluster: Cluster) -> None:
    """One of the two: its nodes have room for one more than the released one."""

    def full(node: Json) -> None:
        node["status"]["allocatable"]["pods"] = "1"

    for name in ("a-0", "a-1"):
        cluster.store.modify("Node", name, None, full)
    for name in others_of_a(cluster):
        cluster.store.delete("Pod", name, "default", grace=0)
    until(lambda: sum(map(is_ready, pods(cluster))) == 7)


@pytest.mark.parametrize("revision", [False, True], ids=["all count", "its revision counts"])
def test_an_old_pod_without_which_a_zone_has_none_is_given_back(revision: bool, tmp_path: Path) -> None:
    """By a revision key the released pod counts no more, but does again once it is given back."""
    memory = Memory(SystemClock(), HistoryRules())
    web = deployment("web").placed({"a-0": 2, "a-1": 1, "b-0": 2, "b-1": 1})
    web = web.spread("zone", 1, match_label_keys=(HASH,) if revision else ())
    with Cluster(objects(*BLOCKED[:-2], web, BLOCKED[-1]), ready_after=0.1) as cluster:
        cluster.settle()
        with once_when(lambda: both(cluster), lambda: none_left_in_a(cluster)):
            report, _ = cycle(cluster, tmp_path, SLOW, memory=memory)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert "to 2" in report.outcomes[0].message
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)
        assert (zones(cluster), marks(cluster)) == ([1, 2, 1], [])
        assert memory.no_release() is None, "of four only four had to be Ready"


def test_an_old_pod_of_an_earlier_process_that_the_spread_needs_by_now_is_given_back(tmp_path: Path) -> None:
    """No plan is made before it is judged. Of seven one goes that mends what is left: in b."""
    switch, memory = Switch(), Memory(SystemClock(), HistoryRules())
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        with once_when(lambda: both(cluster), switch.off):
            cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch)
        others_of_a_go_elsewhere(cluster)
        assert zones(cluster) == [2, 3, 2]
        switch.on = True
        with Ready(cluster) as ready:
            report, _ = cycle(cluster, tmp_path, memory=memory, newest=switch)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)
        assert (zones(cluster), marks(cluster), ready.fewest) == ([2, 2, 2], [], 6)
        assert memory.no_release() is None


def test_who_reviewed_a_plan_has_no_other_pod_go_instead(tmp_path: Path) -> None:
    """Once it may not go any more, its replacement does."""
    memory, clock = Memory(SystemClock(), HistoryRules()), SystemClock()
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        at = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(cluster)}
        first = pods(cluster)[0]["metadata"]
        one = ReviewedEviction("default", first["name"], first["uid"], method=Method.REPLACE_FIRST)
        around, alone = Surroundings(memory=memory), Reviewed((one,))
        leave = once_when(lambda: both(cluster), lambda: others_of_a_go_elsewhere(cluster))
        with connected(cluster, tmp_path) as c, leave:
            done = run_once(c, SLOW, clock=clock, reviewed=alone, around=around)
        cluster.settle()
        assert ([o.status for o in done.outcomes], marks(cluster)) == ([Fate.UNDONE], [])
        assert {first["name"], *(name for name, node in at.items() if node[0] != "a")} <= names(cluster)


@pytest.mark.parametrize("asked", [False, True], ids=["by itself", "approved"])
def test_what_was_approved_does_not_go_where_a_constraint_would_get_worse(
    asked: bool, tmp_path: Path
) -> None:
    rules = ApprovalRules(required=asked)
    options = replace(SLOW, planning=replace(FIRST, policy=replace(FIRST.policy, approval=rules)))
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster, connected(cluster, tmp_path) as connection:
        cluster.settle()
        approvals = Approvals(connection, "default", lambda: rules, SystemClock())
        if asked:
            cycle(cluster, tmp_path, options, approvals=approvals)
            said = {APPROVE: cluster.store.get("ConfigMap", PLAN, "default")["data"]["revision"]}
            cluster.store.modify(
                "ConfigMap", PLAN, "default", lambda o: o["metadata"].update(annotations=said)
            )
        with once_when(lambda: both(cluster), lambda: none_left_in_a(cluster)):
            report, _ = cycle(cluster, tmp_path, options, approvals=approvals)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)
        assert marks(cluster) == []


def test_one_whose_eviction_was_refused_does_not_go_instead(tmp_path: Path) -> None:
    """Its ReplicaSet would delete it, and who refuses evictions is not asked of that."""
    switch, memory = Switch(), Memory(SystemClock(), HistoryRules(retry_after=3600.0))
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        with once_when(lambda: both(cluster), switch.off):
            cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch)
        others_of_a_go_elsewhere(cluster)
        in_b = {p["metadata"]["name"] for p in pods(cluster) if p["spec"]["nodeName"][0] == "b"}
        with connected(cluster, tmp_path) as c:
            read = Objects(c, wait=threading.Event().wait)
            there = [read.pod("default", name) for name in sorted(in_b)]
        refused = {p.key: Refused.of(p, time.time(), "it leads") for p in there if p is not None}
        memory.ledger = replace(memory.ledger, refused=refused)
        switch.on = True
        cycle(cluster, tmp_path, memory=memory, newest=switch)
        cluster.settle()
        assert len(refused) == 3
        assert in_b <= names(cluster)


def test_one_whose_own_budget_allows_nothing_does_not_go_instead(tmp_path: Path) -> None:
    switch, memory = Switch(), Memory(SystemClock(), HistoryRules())
    leaders = pdb("leaders", {"role": "leader"}, min_available=3)
    with Cluster(objects(*BLOCKED, leaders), ready_after=0.1) as cluster:
        cluster.settle()
        in_b = {p["metadata"]["name"] for p in pods(cluster) if p["spec"]["nodeName"][0] == "b"}
        with once_when(lambda: both(cluster), switch.off):
            cycle(cluster, tmp_path, SLOW, memory=memory, newest=switch)
        label = {"role": "leader"}
        for name in in_b:
            cluster.store.modify("Pod", name, "default", lambda o: o["metadata"]["labels"].update(label))
        others_of_a_go_elsewhere(cluster)
        cluster.settle()
        switch.on = True
        cycle(cluster, tmp_path, memory=memory, newest=switch)
        cluster.settle()
        assert len(in_b) == 3
        assert in_b <= names(cluster)


# -- one answer that is not what the API server says


ONE_BAD_ANSWER = {
    "too many requests": Reply(429),
    "credentials": Reply(401),
    "not found": Reply(404),
    "a page of somebody else's": Reply(200, b"<html>log in</html>"),
}


@pytest.mark.parametrize("verb", ["get", "patch"])
@pytest.mark.parametrize("answer", ONE_BAD_ANSWER.values(), ids=ONE_BAD_ANSWER.keys())
def test_an_undo_that_is_answered_badly_once_is_tried_again(
    answer: Reply, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends with this cycle, as a CronJob does, would leave the pod released."""
    give_back = ReleasePatches.give_back

    def badly(self: ReleasePatches, *args: Any) -> None:
        cluster.faults.add(answer, verb=verb, resource="pods", times=1)
        monkeypatch.undo()
        give_back(self, *args)

    with Cluster(objects(*BLOCKED), ready_after=never) as cluster:
        cluster.settle()
        before = names(cluster)
        monkeypatch.setattr(ReleasePatches, "give_back", badly)
        process(cluster, tmp_path, 1)
        cluster.settle()
        assert (names(cluster), marks(cluster)) == (before, [])


def no_namespace(name: str) -> Json:
    body = ApiError(404, "NotFound", f'namespaces "{name}" not found').status()
    return body | {"details": {"name": name, "kind": "namespaces"}}


@pytest.mark.parametrize("what", ["eviction", "namespace"])
def test_one_no_that_is_not_said_again_undoes_nothing(what: str, tmp_path: Path) -> None:
    """An answer of something in between, which knows nothing of the pod."""
    memory = Memory(SystemClock(), HistoryRules())
    one = replace(FIRST, policy=replace(FIRST.policy, max_total=Limit(1)))
    with Cluster(objects(*BLOCKED), ready_after=0.2) as cluster:
        cluster.settle()

        def act() -> None:
            if what == "eviction":
                cluster.faults.add(Reply(400), subresource="eviction", times=1)
            else:
                cluster.faults.add(
                    Reply(404, no_namespace("default")), verb="get", resource="namespaces", times=1
                )

        with Ready(cluster) as ready, once_when(lambda: let_go(cluster), act):
            report, _ = cycle(cluster, tmp_path, replace(OPTIONS, planning=one), memory=memory)
        cluster.settle()
        assert [o.status for o in report.outcomes] == [Fate.DONE]
        assert (len(pods(cluster)), ready.fewest, marks(cluster)) == (6, 6, [])
        assert memory.no_release() is None


def test_two_that_are_given_back_before_either_is_adopted_take_no_ready_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amid a rollout to five, the old set wants four, and one of its four is not Ready: either of the two
    would take that one, both together a Ready pod."""
    monkeypatch.setattr("rebalancer.runtime.cycle.releases._ADOPTED", 1.0)
    with Cluster(objects(*BLOCKED), ready_after=0.1, without=("ReplicaSet", "Deployment")) as cluster:
        cluster.settle()
        old = next(s for s in cluster.store.list("ReplicaSet"))["metadata"]
        for given in pods(cluster)[:2]:
            meta = given["metadata"]
            mark = Mark(label=HASH, value=meta["labels"][HASH], replica_set=old["uid"], pod=meta["uid"], at=1)
            marked(cluster, meta["name"], str(mark), label=False)
            cluster.store.modify(
                "Pod", meta["name"], "default", lambda p: p["metadata"].update(ownerReferences=[])
            )
        sick = pods(cluster)[2]["metadata"]["name"]
        cluster.store.modify("Pod", sick, "default", unready, subresource="status")
        edited(cluster, lambda s: s["spec"].update(replicas=4), "ReplicaSet", old["name"])
        edited(cluster, lambda d: d["spec"].update(replicas=5))
        process(cluster, tmp_path, 1, fresh=True)
        back = [p for p in pods(cluster) if HASH in p["metadata"]["labels"]]
        assert len(back) == 4 + 1, "the second waits until the first is adopted"


def test_what_nobody_has_adopted_yet_is_none_of_those_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given back has no controller while its manager is down, or a webhook refuses it."""
    monkeypatch.setattr("rebalancer.runtime.cycle.releases.FINISHING", 1.0)
    with Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        process(cluster, tmp_path, 1, dies_at=4, sent=True)
        until(lambda: both(cluster))
        cluster.settle()
        cluster.loop.controllers = [c for c in cluster.loop.controllers if not isinstance(c, OwnerController)]
        other = next(p["metadata"]["name"] for p in pods(cluster) if HASH in p["metadata"]["labels"])
        cluster.store.modify("Pod", other, "default", lambda p: p["metadata"].update(ownerReferences=[]))
        process(cluster, tmp_path, 2, fresh=True)
        assert not any(a.subresource == "eviction" for a in cluster.server.accesses)


def unready(p: Json) -> None:
    p["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


@pytest.mark.parametrize("times", [1, None], ids=["once", "not served"])
def test_one_answer_that_there_are_no_endpoint_slices_is_not_believed(
    times: int | None, tmp_path: Path
) -> None:
    one = replace(FIRST, policy=replace(FIRST.policy, max_total=Limit(1)))
    with served(SLICES), Cluster(objects(*BLOCKED), ready_after=0.1) as cluster:
        cluster.settle()
        cluster.store.create(service())
        cluster.store.create(sends_to(pods(cluster)))
        missing = Reply(404, b"404 page not found")
        cluster.faults.add(missing, resource="endpointslices", times=times)
        options = replace(OPTIONS, planning=one, settle=replace(LIMITS, ready=2.0))
        report, _ = cycle(cluster, tmp_path, options)
        cluster.settle()
        assert report.evicted == (0 if times else 1), "its Service sends nothing to the new pod"
        assert (len(pods(cluster)), marks(cluster)) == (6, [])


def test_the_old_pod_stays_if_another_has_come_that_has_to_be_near_it(tmp_path: Path) -> None:
    web = deployment("web").spread("zone", 1).away_from("hostname", owner="web")
    client = deployment("client").near("hostname", owner="web").selects(pool="x").replicas(0)
    things = (
        *(n.label("pool", "y" if i else "x") for i, n in enumerate(nodes(a=3, b=2, c=2))),
        web.placed({"a-0": 1, "a-1": 1, "a-2": 1, "b-0": 1, "b-1": 1}),
        client,
        pdb("web", {"owner": "web"}, max_unavailable=0),
    )
    with Cluster(objects(*things), ready_after=0.5) as cluster:
        cluster.settle()

        def scaled() -> None:
            cluster.store.modify("Deployment", "client", "default", lambda d: d["spec"].update(replicas=1))

        with once_when(lambda: let_go(cluster), scaled):
            report, _ = cycle(cluster, tmp_path)
        assert [o.status for o in report.outcomes] == [Fate.UNDONE]
        assert "another's required affinity names" in report.outcomes[0].message
        assert released(cluster) == []


def test_a_pod_that_has_become_ready_since_the_plan_is_not_evicted_before_its_replacement_is_there() -> None:
    web = deployment("web").spread("zone").placed({"a-0": 2, "a-1": 1, "b-0": 1}).unready(0)
    long_ago = "1970-01-02T00:00:00Z"
    things = objects(*nodes(a=2, b=2), web)
    for o in things:
        if o["kind"] == "Pod":
            o["metadata"]["creationTimestamp"] = o["status"]["startTime"] = long_ago

    def ready(o: Json) -> None:
        own = {"conditions": READY} if o["kind"] == "Pod" else {"readyReplicas": 4, "availableReplicas": 4}
        o["status"].update(own)

    with ApiServer(things) as server:

        def becomes_ready(number: int) -> None:
            for kind in ("Pod", "ReplicaSet", "Deployment") if number == 1 else ():
                for o in server.store.list(kind):
                    name = o["metadata"]["name"]
                    server.store.modify(kind, name, "default", ready, subresource="status")

        run = Run(server, replace(EXECUTE, planning=FIRST), after_plan=becomes_ready, hands=Hands(server))
        assert [m.method.value for m in run.story.plans[0].moves] == ["evict"]
        first = run.story.outcomes[0].reason
        assert first is not None
        assert first.code is ReasonCode.NOT_REPLACED_FIRST
        assert not [a for a in server.accesses if a.subresource == "eviction"]
