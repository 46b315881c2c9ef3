"""Cycles that evict by EvictionRequest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.kube.coordination.place import Place
from rebalancer.kube.errors import ForbiddenError
from rebalancer.model.reason import ReasonCode
from rebalancer.outcome.cycle import End, MoveStatus
from rebalancer.outcome.eviction import Result
from rebalancer.planner import PlanOptions
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.options import PolicyOptions
from tests.sandbox.kube.test_evict_by_request import evictor
from tests.support.build import nodes, objects, pdb, workload
from tests.support.runs.one_cycle import DRY, EXECUTE, SKEWED, Run
from tests.support.sandbox import ApiServer, Reply
from tests.support.sandbox.custom import served
from tests.support.sandbox.eviction_requests import LIFECYCLE, REQUESTS, EvictionController, left_pending
from tests.support.servers.api import FakeTime, connected
from tests.support.servers.hands import Hands
from tests.unit.policy.judged import patched

BY_REQUEST = replace(EXECUTE, by_request=True, planning=PlanOptions(policy=PolicyOptions(by_request=True)))
_RESPONDER = {"spec": {"evictionResponders": [{"name": "acme.io/backup", "priority": 10000}]}}
_LEFT_ALONE = {"rebalancer.io/evict": "false"}


@pytest.fixture
def lifecycle() -> Iterator[None]:
    with served(*LIFECYCLE):
        yield


def _run(
    server: ApiServer, controller: EvictionController, during: Any = None, lease: Place | None = None
) -> Run:
    time = FakeTime()

    def step(seconds: float) -> None:
        if during is not None:
            during()
        controller.step(seconds)

    time.during = step
    return Run(server, replace(BY_REQUEST, lease=lease), time=time, hands=Hands(server, ends_after=3))


@pytest.mark.usefixtures("lifecycle")
def test_pods_are_evicted_by_the_clusters_own_controller() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=2)
        run = _run(server, controller)
        assert run.report.end is End.COMPLETE, run.report.message
        assert run.zones() == [2, 2, 2]
        assert run.report.evicted == 4
        # Nothing was posted to pods/eviction, nothing withdrawn; what was requested went with its pod.
        assert run.evictions() == 0
        made = [a for a in server.accesses if a.resource == "evictionrequests"]
        assert sum(a.verb == "create" for a in made) == 4
        assert not any(a.verb == "patch" for a in made)
        assert controller.requests() == []
        assert run.story.told.count("evict evicted") == 4
        assert all(o.node for o in run.story.outcomes)


@pytest.mark.usefixtures("lifecycle")
def test_a_pending_request_is_withdrawn_when_the_last_look_fails() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=100)

        def pause() -> None:
            if controller.requests():
                server.store.modify(
                    "ReplicaSet", "web", "default", lambda o: o["metadata"].update(annotations=_LEFT_ALONE)
                )

        run = _run(server, controller, pause)
        assert run.report.evicted == 0
        assert run.zones() == [6, 0, 0]
        skipped = [o for o in run.story.outcomes if o.status is MoveStatus.SKIPPED]
        assert skipped
        assert {o.eviction.result for o in skipped if o.eviction is not None} == {Result.HELD}
        assert {r.code for o in skipped if (r := o.reason) is not None} == {ReasonCode.CHANGED_SINCE_PLAN}
        assert "withdrawn" in skipped[0].message
        assert "Failed: CanceledDueToNoRequesters" in controller.seen
        # What the component eviction-requests of deploy/kustomize grants, no more and no less.
        asked = {a.verb for a in server.accesses if a.resource == "evictionrequests"}
        assert asked == {"create", "delete", "get", "list", "patch"}
        assert controller.requests() == []


@pytest.mark.usefixtures("lifecycle")
@pytest.mark.parametrize("code", [403, 500])
def test_a_request_that_cannot_be_read_is_withdrawn_when_the_last_look_fails(code: int) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=100_000)
        asked: list[str] = []

        def pause() -> None:
            if controller.requests() and not asked:
                asked.append("once")
                server.faults.add(Reply(code), verb="get", resource="evictionrequests")
                server.store.modify(
                    "Namespace", "default", None, lambda o: o["metadata"].update(annotations={PAUSE: "x"})
                )

        _run(server, controller, pause)
        assert asked
        assert {r["spec"]["intent"] for r in controller.requests()} <= {"Withdrawn"}


@pytest.mark.usefixtures("lifecycle")
def test_an_eviction_that_the_withdrawal_was_too_late_for_counts() -> None:
    """The responder evicts in the very moment in which the request is withdrawn."""
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=100)
        gone: list[str] = []

        def late() -> None:
            for request in controller.requests():
                if request["spec"]["intent"] == "Withdrawn" and not gone:
                    name = request["spec"]["target"]["pod"]["name"]
                    gone.append(name)
                    server.store.delete("Pod", name, "default")
                elif not gone:
                    server.store.modify(
                        "ReplicaSet",
                        "web",
                        "default",
                        lambda o: o["metadata"].update(annotations=_LEFT_ALONE),
                    )

        run = _run(server, controller, late)
        assert len(gone) == 1
        assert run.report.evicted == 1
        assert [o.move.pod.name for o in run.story.outcomes if o.evicted] == gone


@pytest.mark.usefixtures("lifecycle")
def test_a_withdrawal_that_nobody_confirms_ends_the_cycle() -> None:
    """Perhaps the pod is evicted later: nothing more is done on this knowledge."""
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=100)

        def pause() -> None:
            if controller.requests():
                controller.asleep = True
                server.store.modify(
                    "ReplicaSet", "web", "default", lambda o: o["metadata"].update(annotations=_LEFT_ALONE)
                )

        run = _run(server, controller, pause)
        assert run.report.end is End.ABORTED
        assert "has not said that it is called off" in run.report.message
        assert [r["spec"]["intent"] for r in controller.requests()] == ["Withdrawn"] * len(
            controller.requests()
        )


@pytest.mark.usefixtures("lifecycle")
def test_what_a_process_that_ended_left_pending_is_withdrawn_first() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=100)
        left_pending(server, "web-00000")
        server.store.modify(
            "ReplicaSet", "web", "default", lambda o: o["metadata"].update(annotations=_LEFT_ALONE)
        )
        run = _run(server, controller)
        assert run.report.evicted == 0
        assert "Failed: CanceledDueToNoRequesters" in controller.seen
        assert controller.requests() == []


@pytest.mark.usefixtures("lifecycle")
def test_a_request_that_cannot_be_withdrawn_keeps_its_pod_from_being_evicted_twice_and_no_other() -> None:
    two = [workload(name).spread("zone", 1).placed({"a-0": 4}) for name in ("web", "api")]
    with ApiServer(objects(*nodes(a=1, b=1), *two)) as server:
        controller = EvictionController(server, slow=1)
        left_pending(server, "web-00000")
        controller.asleep = True
        server.faults.add(Reply(403), resource="evictionrequests", verb="patch")

        def later() -> None:
            controller.asleep = controller.asleep and len(controller.requests()) < 2

        run = _run(server, controller, later)
        assert run.report.end is not End.ABORTED, run.report.message
        assert "web-00000" not in {o.move.pod.name for o in run.story.outcomes if o.evicted}
        assert (run.zones("api"), run.zones("web")) == ([2, 2], [2, 2])
        held = [o for o in run.story.outcomes if o.move.pod.name == "web-00000"]
        assert held
        assert all(o.status is MoveStatus.SKIPPED and "called off" in o.message for o in held)


@pytest.mark.usefixtures("lifecycle")
def test_a_pause_calls_off_all_requests_at_once_before_it_looks_at_any() -> None:
    """Each look has several reads, and with slow reads the last of many would be reached too late."""
    many = [workload(f"w{n}").spread("zone", 1).placed({"a-0": 2}) for n in range(8)]
    with ApiServer(objects(*nodes(a=1, b=1), *many)) as server:
        controller = EvictionController(server, slow=100)
        asked: list[int] = []

        def pause() -> None:
            if len(controller.requests()) == 8 and not asked:
                asked.append(len(server.accesses))
                server.store.modify(
                    "Namespace", "default", None, lambda o: o["metadata"].update(annotations={PAUSE: "x"})
                )

        run = _run(server, controller, pause)
        assert run.report.evicted == 0
        assert controller.requests() == []
        after = [a for a in server.accesses[asked[0] :] if a.verb not in ("watch", "list")]
        withdrawn = [n for n, a in enumerate(after) if a.verb == "patch"][:8]
        assert len(withdrawn) == 8
        # In front of them: what pauses is read, of the cluster and of the namespace.
        before = [a.resource for a in after[: withdrawn[-1]] if a.verb == "get"]
        assert set(before) <= {"configmaps", "namespaces", "leases"}, before


@pytest.mark.usefixtures("lifecycle")
def test_where_evictions_are_off_requests_that_are_left_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        left_pending(server, "web-00000")
        Run(server, replace(DRY, by_request=True))
        [request] = server.store.list(REQUESTS)
        assert request["spec"]["intent"] == "Eviction", "it may be of a process that is alive"
        [said] = [r.getMessage() for r in caplog.records if "pending although" in r.getMessage()]
        assert "default/web-00000" in said
        assert "kubectl delete evictionrequests -A -l app.kubernetes.io/name=rebalancer" in said


@pytest.mark.usefixtures("lifecycle")
def test_a_pod_with_a_responder_of_its_own_goes_when_that_one_has_done() -> None:
    things = (
        *nodes(a=1, b=1),
        patched("Pod", _RESPONDER, workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1})),
    )
    with ApiServer(objects(*things)) as server:
        controller = EvictionController(server)
        told: list[str] = []

        def later() -> None:
            for e in server.store.list(LIFECYCLE[1]):
                active = [r["name"] for r in e["status"]["targetResponders"] if r["state"] == "Active"]
                told.extend(active)
                if told.count("acme.io/backup") == 5 and active == ["acme.io/backup"]:
                    controller.complete()

        run = _run(server, controller, later)
        assert run.zones() == [2, 2], run.report.message
        assert run.report.evicted == 1
        assert told.count("acme.io/backup") == 5


@pytest.mark.usefixtures("lifecycle")
def test_budgets_hold() -> None:
    things = (*SKEWED, pdb("web", {"owner": "web"}, max_unavailable=1))
    with ApiServer(objects(*things)) as server:
        controller = EvictionController(server)
        run = _run(server, controller)
        assert run.report.end is End.COMPLETE, run.report.message
        assert run.zones() == [2, 2, 2]
        assert not run.hands.broken_budgets


@pytest.mark.usefixtures("lifecycle")
def test_an_answer_that_was_lost_makes_no_second_request() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server)
        server.faults.add(action=Reply(503), resource="evictionrequests", verb="create", times=1)
        run = _run(server, controller)
        assert run.report.end is not End.ABORTED, run.report.message
        made = [a for a in server.accesses if a.resource == "evictionrequests" and a.verb == "create"]
        assert len(made) >= 4
        assert run.zones() == [2, 2, 2], run.report.message


@pytest.mark.usefixtures("lifecycle")
def test_without_the_right_to_delete_a_withdrawn_request_is_left(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(objects(*SKEWED)) as server:
        controller = EvictionController(server, slow=100)
        server.faults.add(Reply(403), resource="evictionrequests", verb="delete")

        def pause() -> None:
            if controller.requests():
                server.store.modify(
                    "ReplicaSet", "web", "default", lambda o: o["metadata"].update(annotations=_LEFT_ALONE)
                )

        run = _run(server, controller, pause)
        assert run.report.end is not End.ABORTED, run.report.message
        assert run.report.evicted == 0
        assert {r["spec"]["intent"] for r in controller.requests()} == {"Withdrawn"}
        assert "could not be deleted" in caplog.text


@pytest.mark.usefixtures("lifecycle")
def test_another_installation_leaves_its_requests_alone() -> None:
    """It begins a cycle of its own while they are pending."""
    with ApiServer(objects(*SKEWED)) as server, connected(server) as connection:
        controller = EvictionController(server, slow=10)
        began: list[int] = []

        def other_begins() -> None:
            if not began and controller.requests():
                began.append(len(controller.requests()))
                evictor(connection, FakeTime(), lease=Place("pay", "rebalancer"))

        run = _run(server, controller, other_begins, lease=Place("shop", "rebalancer"))
        assert began
        assert run.report.end is End.COMPLETE, run.report.message
        assert run.report.evicted == 4
        assert not any(a.verb == "patch" for a in server.accesses if a.resource == "evictionrequests")


def test_where_the_api_is_not_served_the_eviction_api_is_used() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        run = Run(server, BY_REQUEST)
        assert run.report.end is End.COMPLETE
        assert run.zones() == [2, 2, 2]
        assert run.evictions() == 4


def test_where_the_api_is_not_served_no_right_on_it_is_needed() -> None:
    """An API server asks for the right before it says that it does not serve the API."""
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), path="/evictionrequests")
        run = Run(server, BY_REQUEST)
        assert run.report.end is End.COMPLETE, run.report.message
        assert run.evictions() == 4


@pytest.mark.usefixtures("lifecycle")
def test_where_the_api_is_served_the_right_on_it_is_needed() -> None:
    with ApiServer(objects(*SKEWED)) as server:
        server.faults.add(Reply(403), resource="evictionrequests", verb="list")
        with pytest.raises(ForbiddenError):
            Run(server, BY_REQUEST)


def test_where_the_api_is_not_served_pods_with_responders_stay() -> None:
    things = (
        *nodes(a=1, b=1),
        patched("Pod", _RESPONDER, workload("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1})),
    )
    with ApiServer(objects(*things)) as server:
        run = Run(server, BY_REQUEST)
        assert run.evictions() == 0
        assert {r.code for o in run.story.outcomes if (r := o.reason)} == {ReasonCode.EVICTION_RESPONDER}
