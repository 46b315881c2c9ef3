"""When an eviction of which nothing is known is sent again, and that the same pod never counts twice."""

from __future__ import annotations

import time as real
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rebalancer.kube import evictor as module
from rebalancer.kube.connection import Backoff, Connection
from rebalancer.kube.errors import KubeError
from rebalancer.kube.evictor import LiveEvictor, Question
from rebalancer.kube.reading import Objects
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import Result
from tests.support.build import objects, pdb
from tests.support.runs.one_eviction import WEB, budget_status, posts, victim
from tests.support.sandbox import ApiServer, Cut, Delay, Reply, evict
from tests.support.servers.api import FakeTime, connected, evictor_of, objects_of


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*WEB)) as s:
        yield s


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def acts_late(server: ApiServer, pod: Pod) -> Callable[[], object]:
    """The first request, which something in between had kept, reaches the server after all."""
    eviction: dict[str, Any] = {
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return lambda: evict(server.store, pod.namespace, pod.name, eviction)


class Interfering(Connection):
    """Lets something happen right before the n-th eviction is sent: after all that was looked at."""

    def __init__(self, inner: Connection, n: int, then: Callable[[], object]) -> None:
        self.__dict__.update(inner.__dict__)
        self._n, self._then = n, then

    def request(self, method: str, path: str, target: Any, **more: Any) -> Any:
        if method == "POST":
            self._n -= 1
            if self._n == 0:
                self._then()
        return super().request(method, path, target, **more)


def test_after_a_connection_that_was_cut_it_is_sent_again_within_seconds(
    server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Cut("before"), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert not outcome.read_back
    assert outcome.posts == posts(server) == 2
    assert 2 <= sum(time.waits) <= 4


def test_recovery_from_a_cut_by_the_clock_on_the_wall(server: ApiServer) -> None:
    server.faults.add(Cut("before"), subresource="eviction", times=1)

    def sleep(seconds: float) -> bool:
        real.sleep(seconds)
        return False

    with connected(server) as c:
        read = Objects(c, wait=sleep, backoff=Backoff())
        pod = victim(read)
        evictor = LiveEvictor(c, read.pod, wait=sleep, linger=sleep, monotonic=real.monotonic)
        began = real.monotonic()
        outcome = evictor.evict(pod)
        took = real.monotonic() - began
    assert (outcome.result, outcome.posts) == (Result.EVICTED, 2)
    assert 2 < took < 25, "after a silence it would be longer"
    print(f"evicted {took:.1f} s after the first request, whose connection was cut")


def test_after_silence_it_is_sent_again_once_the_servers_deadline_is_over(
    server: ApiServer, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_TIMEOUT", 0.2)
    server.faults.add(Delay(float("inf")), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert outcome.posts == 2
    assert sum(time.waits) >= 25


def test_a_second_cut_is_the_last_and_judged_when_nothing_can_be_at_work(
    server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Cut("before"), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.FAILED
    assert outcome.read_back
    assert outcome.posts == 2
    assert sum(time.waits) >= 25


@pytest.mark.parametrize("budget", [False, True], ids=["without a budget", "with a budget of one"])
def test_a_first_request_that_acts_after_all_is_one_eviction(budget: bool, time: FakeTime) -> None:
    """Between the last look at the pod and the second request: which then finds it terminating."""
    more = (pdb("web", {"app": "web"}, max_unavailable=1),) if budget else ()
    with ApiServer(objects(*WEB, *more)) as server, connected(server) as c:
        pod = victim(objects_of(c, time))
        server.faults.add(Cut("before"), subresource="eviction", times=1)
        late = Interfering(c, 2, acts_late(server, pod))
        outcome = evictor_of(late, time).evict(pod)
        budgets = server.store.list("PodDisruptionBudget")
    assert outcome.result is Result.EVICTED
    assert outcome.posts == 2
    assert all(b["status"]["disruptionsAllowed"] == 0 for b in budgets), "charged once"


def test_a_first_request_that_ends_the_pod_meanwhile_is_an_eviction_of_ours(
    server: ApiServer, time: FakeTime
) -> None:
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        server.faults.add(Cut("before"), subresource="eviction", times=1)

        def gone() -> None:
            acts_late(server, pod)()
            server.store.delete("Pod", pod.name, pod.namespace, grace=0)

        outcome = evictor_of(Interfering(c, 2, gone), time).evict(pod)
    assert outcome.result is Result.EVICTED
    assert outcome.read_back


@pytest.mark.parametrize("answer", [Reply(429, budget_status()), Reply(403), Reply(500)], ids=repr)
def test_a_refusal_of_the_second_is_not_believed_while_the_first_may_be_at_work(
    answer: Reply, server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Cut("before"), subresource="eviction", times=1)
    server.faults.add(answer, subresource="eviction", times=1)
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        act = acts_late(server, pod)

        def during(_: float) -> None:
            if len(time.waits) == 5:
                act()

        time.during = during
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.EVICTED
    assert outcome.read_back
    assert outcome.posts == 2


def test_a_budget_that_refuses_the_second_blocks_it_once_the_first_cannot_be_at_work(
    server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Cut("before"), subresource="eviction", times=1)
    server.faults.add(Reply(429, budget_status()), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.BLOCKED
    assert sum(time.waits) >= 25


FAILURES = [
    ("a cut connection", Cut("before")),
    ("an error of the server", Reply(500)),
    ("flow control", Reply(429, headers={"Retry-After": "1"})),
    ("a conflict", Reply(409)),
]


def after_the_first(message: str) -> Question:
    """Allows one request, and forbids the others."""
    answers = iter([None])
    return lambda: next(answers, Reason(ReasonCode.NOT_LEADING, message))


def test_a_request_that_is_forbidden_from_the_start_is_not_sent(server: ApiServer, time: FakeTime) -> None:
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        reason = Reason(ReasonCode.NOT_LEADING, "not the leader")
        outcome = evictor_of(c, time).evict(pod, may_not=lambda: reason)
    assert (outcome.result, outcome.reason, outcome.posts, posts(server)) == (Result.HELD, reason, 0, 0)


def test_what_cannot_be_looked_at_is_not_evicted(server: ApiServer, time: FakeTime) -> None:
    def blind() -> Reason | None:
        raise KubeError("no answer")

    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)), may_not=blind)
    assert (outcome.result, outcome.posts, posts(server)) == (Result.FAILED, 0, 0)


@pytest.mark.parametrize("action", [f[1] for f in FAILURES], ids=[f[0] for f in FAILURES])
def test_who_may_not_evict_any_more_does_not_send_it_again_after(
    action: Any, server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(action, subresource="eviction", times=1)
    with connected(server) as c:
        read = objects_of(c, time)
        pod = victim(read)
        evictor = LiveEvictor(
            c,
            read.pod,
            wait=time.wait,
            linger=time.linger,
            monotonic=time.monotonic,
        )
        outcome = evictor.evict(pod, may_not=after_the_first("not the leader any more"))
    assert outcome.result is Result.HELD
    assert outcome.message.endswith("it is not tried again: not the leader any more")
    assert outcome.reason is not None
    assert outcome.posts == posts(server) == 1


def test_a_process_that_slept_through_the_deadline_asks_for_leave_before_it_sends_again(
    server: ApiServer, time: FakeTime
) -> None:
    """Paused by the machine in the middle of an eviction: every time it knew of is over."""
    server.faults.add(Cut("before"), subresource="eviction", times=1)
    with connected(server) as c:
        read = objects_of(c, time)
        pod = victim(read)

        def late(namespace: str, name: str) -> Pod | None:
            time.at += 600
            return read.pod(namespace, name)

        evictor = LiveEvictor(
            c,
            late,
            wait=time.wait,
            linger=time.linger,
            monotonic=time.monotonic,
        )
        outcome = evictor.evict(pod, may_not=after_the_first("the lease is lost"))
    assert outcome.result is Result.HELD
    assert posts(server) == 1
