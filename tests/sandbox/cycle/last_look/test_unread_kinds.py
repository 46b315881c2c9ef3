"""Kinds that the API server refuses: what the plan could not know is judged before each eviction, and a cycle
that could not see what it needs says so."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.kube.connection import Backoff
from rebalancer.kube.resources import LIMIT_RANGES, NAMED, RESOURCES
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.reflector import WatchOptions
from rebalancer.model.reason import ReasonCode
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import DECIDING
from rebalancer.outcome import End
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from tests.sandbox.cycle.limits.test_owners import named
from tests.support.build import deployment, nodes, objects, workload
from tests.support.processes.command import call
from tests.support.processes.daemon_process import BRISK, daemon, evictions, get
from tests.support.runs.one_cycle import EXECUTE, SKEWED, Run
from tests.support.sandbox import ApiServer, Cluster, Reply
from tests.support.sandbox.custom import ADD_ONS, served
from tests.support.servers.api import FakeTime, connected
from tests.support.waiting import until

NO = {"rebalancer.io/evict": "false"}


def namespace(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}


def things(which: Any) -> Iterable[Any]:
    return (*nodes(a=1, b=1, c=1), which.spread("zone", 1).placed({"a-0": 6}))


def refuse(server: ApiServer, kind: str) -> None:
    """The kind can be read object by object, and neither listed nor watched: as with most Roles."""
    for verb in ("list", "watch"):
        server.faults.add(Reply(403), verb=verb, resource=RESOURCES[kind].plural)


FORBIDDEN = {
    "a namespace says no": ("Namespace", [namespace("default", NO)], {}, ReasonCode.ANNOTATION),
    "a Deployment says no": ("Deployment", [], {"annotations": NO}, ReasonCode.ANNOTATION),
    "a Deployment is paused": ("Deployment", [], {"paused": True}, ReasonCode.PAUSED),
}


@pytest.mark.parametrize(("kind", "more", "said", "code"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_the_plan_could_not_know_stops_the_eviction(
    kind: str, more: list[Any], said: dict[str, Any], code: ReasonCode
) -> None:
    with ApiServer(objects(*more, *things(deployment("web")))) as server:

        def change(obj: dict[str, Any]) -> None:
            obj["metadata"].setdefault("annotations", {}).update(said.get("annotations", {}))
            obj["spec"].update({k: v for k, v in said.items() if k == "paused"})

        server.store.modify("Deployment", "web", "default", change)
        refuse(server, kind)
        run = Run(server)
    assert run.evictions() == 0
    assert {o.reason.code for o in run.story.outcomes if o.reason} == {code}


ALSO_READ = {
    "Deployment": 0,  # it may forbid that its pods go, or be paused
    "LimitRange": 2,
    "Namespace": 0,  # whether it is paused must be seen
    "PodDisruptionBudget": 2,
    "PriorityClass": 2,
    "ResourceQuota": 0,  # no move is certain without them, nor without VerticalPodAutoscalers
    "RuntimeClass": 2,
    "ServiceAccount": 2,
    "VerticalPodAutoscaler": 0,
}
"""What a look reads beside pod, owner, node and claims, without which there is no move; and how many pods go
where it can never be read."""


@pytest.mark.parametrize("kind", ALSO_READ)
@pytest.mark.parametrize("since", ["always", "the plan"])
def test_what_the_plan_could_read_and_the_look_may_not_stops_the_eviction(kind: str, since: str) -> None:
    """A right that is taken away in mid-run, or one 403 of a proxy."""
    plural = {**RESOURCES, **NAMED, "LimitRange": LIMIT_RANGES}[kind].plural
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    with served(*ADD_ONS), ApiServer(named((*nodes(a=1, b=1), web))) as server:

        def take_away(plans: int) -> None:
            if plans == 1:
                server.faults.add(Reply(403), resource=plural)

        if since == "always":
            take_away(1)
        run = Run(server, time=FakeTime(at=2e9), after_plan=take_away)
    if since == "always":
        assert run.evictions() == ALSO_READ[kind]
    else:
        assert run.evictions() == 0
        # Of a namespace only its pods are held back, as by a pause.
        assert run.report.end is (End.NO_PROGRESS if kind == "Namespace" else End.ABORTED)
        assert kind.lower() in run.report.message


@pytest.mark.parametrize("kind", ["LimitRange", "PriorityClass", "RuntimeClass", "ServiceAccount"])
def test_what_the_process_could_read_once_is_missed_in_the_next_cycle_too(kind: str) -> None:
    """Of what never could be read, only an assumption is told."""
    plural = {**RESOURCES, **NAMED, "LimitRange": LIMIT_RANGES}[kind].plural
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    time = FakeTime(at=2e9)
    around = Surroundings(memory=Memory(time, HistoryRules(), limits=CircuitLimits(pause=600)))
    with served(*ADD_ONS), ApiServer(named((*nodes(a=1, b=1), web))) as server:
        fault: list[Any] = []

        def take_away(plans: int) -> None:
            if plans == 1:
                fault.append(server.faults.add(Reply(403), resource=plural, verb=VERB.get(kind, "get")))

        first = Run(server, time=time, around=around, after_plan=take_away)
        second = Run(server, hands=first.hands, time=time, around=around)
        assert (first.evictions(), second.evictions()) == (0, 0)
        server.faults.remove(fault[0])
        third = Run(server, hands=first.hands, time=time, around=around)
    assert [r.report.end for r in (first, second, third)] == [End.ABORTED, End.ABORTED, End.COMPLETE]
    assert third.evictions() == 2


VERB = {"LimitRange": "list"}


BRIEF = WatchOptions(timeout=(1, 1), backoff=Backoff(tries=1, first=0.05, cap=0.05))


@pytest.mark.parametrize(
    "kind", ["CSINode", "NodeClaim", "NodePool", "Service", "StatefulSet", "StorageClass", "VolumeAttachment"]
)
def test_what_is_only_watched_and_refused_since_the_plan_stops_the_eviction(kind: str) -> None:
    """What the watch has forgotten must not be taken for none."""
    web = deployment("web").spread("zone", 1).placed({"a-0": 4})
    with (
        served(*ADD_ONS),
        ApiServer(objects(*nodes(a=1, b=1), web), bookmark_every=0.1) as server,
        connected(server) as c,
    ):
        cache = WatchCache(c, options=BRIEF).start()
        try:
            assert cache.wait_ready(60)

            def take_away(plans: int) -> None:
                if plans == 1:
                    server.faults.add(Reply(403), resource=RESOURCES[kind].plural)
                    until(lambda: next(s.denied for s in cache.status() if s.kind == kind))

            run = Run(server, after_plan=take_away, around=Surroundings(cache=cache))
        finally:
            cache.stop()
    assert run.evictions() == 0
    assert run.report.end is not End.COMPLETE
    assert kind in run.report.message


@pytest.mark.parametrize("kind", sorted(DECIDING))
def test_a_cycle_that_leaves_an_excess_says_which_kind_it_could_not_see(kind: str) -> None:
    """A namespace that cannot be seen is out of the scope; pods without a known owner stay; and so on."""
    both = (*nodes(a=1, b=1, c=1), *stay("Job"))
    with ApiServer(objects(*both)) as server:
        refuse(server, kind)
        run = Run(server, replace(EXECUTE, execute=False))
    assert run.report.end is End.UNKNOWN
    name = RESOURCES[kind].qualified
    assert run.report.message == (
        f"whether an eviction would help is not known: {name} cannot be read: grant the right to list and "
        "watch them; 1 constraint keeps an excess of 5"
    )


def stay(kind: str) -> Iterable[Any]:
    """Pods that nothing would move."""
    return (workload("web", kind).spread("zone", 1).placed({"a-0": 6}),)


def test_with_everything_seen_what_is_not_allowed_is_named() -> None:
    with ApiServer(objects(*nodes(a=1, b=1, c=1), *stay("Job"))) as server:
        run = Run(server, replace(EXECUTE, execute=False))
    assert run.report.end is End.COMPLETE
    say = "nothing more that helps may be evicted (job-pod): 1 constraint keeps an excess of 5"
    assert run.report.message == say


def test_what_is_out_of_a_scope_that_cannot_be_seen_is_not_said_to_hold() -> None:
    chosen = replace(EXECUTE.planning.policy, namespace_selector=Selector.equals({"team": "shop"}))
    options = replace(EXECUTE, planning=replace(EXECUTE.planning, policy=chosen))
    with ApiServer(objects(*SKEWED)) as server:
        refuse(server, "Namespace")
        run = Run(server, options)
    assert run.evictions() == 0
    assert "namespaces cannot be read" in run.report.message


def test_once_and_report_say_what_they_cannot_see(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        refuse(server, "ReplicaSet")
        done = call(server, tmp_path, "once", "--execute")
        shown = call(server, tmp_path, "report")
    assert (
        "unknown: whether an eviction would help is not known: replicasets.apps cannot be read" in done.stdout
    )
    assert "no eviction helps" not in done.stdout
    assert "Whether an eviction would help is not known: ReplicaSet cannot be read" in shown.stdout
    assert 'resources: ["replicasets"], verbs: ["list"]' in " ".join(shown.stdout.split())


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_a_daemon_that_starts_while_namespaces_are_refused_heeds_what_they_say(
    verb: str, times: int, tmp_path: Path
) -> None:
    shop = deployment("web", "shop").spread("zone", 1).placed({"a-0": 6})
    with Cluster(objects(namespace("shop", NO), *nodes(a=1, b=1, c=1), shop)) as c:
        c.settle()
        refused = c.faults.add(Reply(403), verb=verb, resource="namespaces", times=times)
        with daemon(c.server, tmp_path, BRISK.replace("canary", "enabled: true, canary")) as d:
            until(lambda: d.said().count("cycle over (") >= 3)
            if verb == "watch":
                until(lambda: refused.hits == times)
                until(lambda: d.said().splitlines()[-1].count("cycle over (complete)"))
            assert d.end() == 0
        assert evictions(c.server) == 0


def test_a_daemon_goes_on_seconds_after_its_rights_came_and_shows_what_it_cannot_see(tmp_path: Path) -> None:
    with Cluster(objects(*SKEWED), ready_after=0.1, grace=0.1) as c:
        c.settle()
        refused = c.faults.add(Reply(403), resource="replicasets")
        with daemon(c.server, tmp_path, BRISK.replace("canary", "enabled: true, canary")) as d:
            until(lambda: "cycle over (unknown)" in d.said())
            assert evictions(c.server) == 0
            assert get(d.port, "/readyz")[0] == 200
            assert 'rebalancer_unread_kinds{kind="ReplicaSet"} 1.0' in get(d.port, "/metrics")[1]
            c.faults.remove(refused)
            until(lambda: evictions(c.server) == 4, 60)
            until(lambda: "unread_kinds{" not in get(d.port, "/metrics")[1])
            assert d.end() == 0
