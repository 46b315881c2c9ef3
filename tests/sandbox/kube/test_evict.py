"""Evictions over real HTTP: every answer, every silence, and what is known afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.kube import evictor as module
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.evictor import RecordingEvictor
from rebalancer.model.pod import Pod
from rebalancer.outcome import Result
from tests.support.build import objects, pdb
from tests.support.runs.one_eviction import WEB, budget_status, posts, victim
from tests.support.sandbox import ApiServer, Cut, Delay, Garbage, Reply
from tests.support.servers.api import FakeTime, connected, evictor_of, objects_of
from tests.support.servers.relay import Relay


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*WEB)) as s:
        yield s


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def test_an_accepted_eviction_carries_the_uid_and_takes_one_request(
    server: ApiServer, time: FakeTime
) -> None:
    with connected(server) as c:
        pod = victim(read := objects_of(c, time))
        outcome = evictor_of(c, time).evict(pod)
        after = read.pod("default", "web-00000")
    assert outcome.result is Result.EVICTED
    assert outcome.evicted
    assert not outcome.read_back
    assert outcome.posts == posts(server) == 1
    assert after is not None
    assert after.terminating


def test_a_missing_pod_is_gone(server: ApiServer, time: FakeTime) -> None:
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        server.faults.add(
            Reply(
                404,
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Failure",
                    "message": 'pods "web-00000" not found',
                    "reason": "NotFound",
                    "details": {"name": "web-00000", "kind": "pods"},
                    "code": 404,
                },
            ),
            subresource="eviction",
        )
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.GONE
    assert not outcome.evicted


def test_another_pod_of_the_same_name_is_left_alone(server: ApiServer, time: FakeTime) -> None:
    with connected(server) as c:
        old = victim(read := objects_of(c, time))
        other = Pod(
            name=old.name,
            namespace=old.namespace,
            uid="00000000-0000-0000-0000-000000000000",
            template=old.template,
        )
        outcome = evictor_of(c, time).evict(other)
        still = read.pod("default", "web-00000")
    assert outcome.result is Result.GONE
    assert still is not None
    assert not still.terminating


def test_an_exhausted_budget_blocks_at_once_and_says_its_figures(time: FakeTime) -> None:
    with (
        ApiServer(objects(*WEB, pdb("web", {"app": "web"}, min_available=4))) as server,
        connected(server) as c,
    ):
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.BLOCKED
    assert "needs 4 healthy pods" in outcome.message
    assert outcome.posts == 1
    assert time.waits == []


def test_a_stale_budget_is_asked_once_more_after_the_time_it_names(server: ApiServer, time: FakeTime) -> None:
    fault = server.faults.add(
        Reply(429, budget_status(retry_after=10, processing=True), {"Retry-After": "10"}),
        subresource="eviction",
        times=1,
    )
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert fault.hits == 1
    assert outcome.result is Result.EVICTED
    assert outcome.posts == 2
    assert sum(time.waits) >= 10


def test_a_budget_that_stays_stale_is_given_up(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(
        Reply(429, budget_status(retry_after=10, processing=True), {"Retry-After": "10"}),
        subresource="eviction",
    )
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.STALE_BUDGET
    assert outcome.posts == 2


def test_two_budgets_on_a_pod_are_named_as_such(time: FakeTime) -> None:
    two = (pdb("one", {"app": "web"}, max_unavailable=1), pdb("two", {"app": "web"}, max_unavailable=1))
    with ApiServer(objects(*WEB, *two)) as server, connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.SEVERAL_BUDGETS
    assert outcome.posts == 1


def test_flow_control_is_waited_for_and_then_it_works(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(429, headers={"Retry-After": "3"}), subresource="eviction", times=2)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert outcome.posts == 3
    assert sum(time.waits) >= 6


def test_flow_control_that_does_not_end_is_given_up(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(429), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.THROTTLED
    assert outcome.posts == 4


def test_missing_rights_name_the_rule_that_is_missing(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(403), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.FORBIDDEN
    assert '{apiGroups: [""], resources: ["pods/eviction"], verbs: ["create"]}' in outcome.message
    assert "kubectl auth can-i create pods --subresource=eviction -n default" in outcome.message


DENIED = 'admission webhook "guard.example" denied the request: not today'
POLICY = "ValidatingAdmissionPolicy 'guard' with binding 'all' denied request: not today"
UNASKED = 'Internal error occurred: failed calling webhook "guard.example": failed to call webhook: Post "https://g"'
CODES = (400, 401, 403, 404, 409, 422, 429, 500, 503, 504)
BY_ADMISSION = [
    *((f"a webhook denies with {code}", code, DENIED, Result.REFUSED) for code in CODES),
    *((f"a policy denies with {code}", code, POLICY, Result.REFUSED) for code in (401, 403, 422)),
    ("a webhook that is down", 500, f"{UNASKED}: connection refused", Result.UNASKED),
    ("a webhook that is silent", 500, f"{UNASKED}: context deadline exceeded", Result.UNASKED),
]


@pytest.mark.parametrize(
    ("code", "message", "result"), [a[1:] for a in BY_ADMISSION], ids=[a[0] for a in BY_ADMISSION]
)
def test_what_admission_refuses_is_about_this_pod_and_certainly_not_carried_out(
    server: ApiServer, time: FakeTime, code: int, message: str, result: Result
) -> None:
    """A webhook may choose any code, and names the resource as what its code is about."""
    denied = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    more = {"message": message, "details": {"kind": "pods", "name": "web-00000"}}
    server.faults.add(Reply(code, denied | more), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert (outcome.result, outcome.unanswered, outcome.posts) == (result, False, 1)
    assert time.waits == []
    assert ("RBAC does not change that" in outcome.message) is (result is Result.REFUSED)
    assert "logs of the API server" not in outcome.message


def test_an_answer_lost_after_the_server_acted_is_read_back(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Cut("after"), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert outcome.read_back
    assert outcome.message.startswith("default/web-00000 is terminating, read back after:")
    assert outcome.posts == posts(server) == 1


def test_a_second_conflict_in_a_row_is_the_last(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(409), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.FAILED
    assert "409" in outcome.message
    assert outcome.posts == 2


def test_a_second_cut_in_a_row_is_the_last(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Cut("before"), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.FAILED
    assert outcome.posts == 2


def test_a_server_that_answers_too_late_is_not_asked_again_while_it_may_still_act(
    server: ApiServer, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_TIMEOUT", 0.2)
    server.faults.add(Delay(30), subresource="eviction", times=1)
    with connected(server) as c, connected(server) as behind_a_proxy:
        pod = victim(objects_of(c, time))

        def act_late(_: float) -> None:
            if len(time.waits) == 4:
                evictor_of(behind_a_proxy, FakeTime()).evict(pod)

        time.during = act_late
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.EVICTED
    assert outcome.read_back
    assert outcome.posts == 1


def test_a_500_is_read_back_and_repeated_once(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(500), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert outcome.posts == 2
    assert 3 <= sum(time.waits) < 25


def test_a_proxy_that_gives_up_may_have_a_request_at_work_behind_it(
    server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Reply(502, b"<html>bad gateway</html>"), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert outcome.posts == 2
    assert sum(time.waits) >= 25


@pytest.mark.parametrize(
    "body",
    [
        b'{"result": "Success"}',
        b'{"kind": "Status", "status": "Failure", "reason": "Success"}',
        b'["Success"]',
    ],
)
def test_an_answer_that_only_has_the_word_is_no_eviction(
    server: ApiServer, time: FakeTime, body: bytes
) -> None:
    server.faults.add(Reply(201, body), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert (outcome.result, outcome.posts) == (Result.EVICTED, 2)


def test_an_answer_that_is_lost_behind_a_proxy_is_read_back(
    certificate: tuple[str, str], tmp_path: Path, time: FakeTime
) -> None:
    """To urllib3 a connection that is lost there is one that the proxy did not make."""
    with ApiServer(objects(*WEB), tls=certificate) as server, Relay(server.url, tunnel=True) as proxy:
        file = server.kubeconfig(tmp_path / "config")
        said = json.loads(file.read_text())
        said["clusters"][0]["cluster"]["proxy-url"] = proxy.url
        file.write_text(json.dumps(said))
        server.faults.add(Cut("after"), subresource="eviction", times=1)
        connection = Connection(ClusterOptions(kubeconfig=str(file)))
        outcome = evictor_of(connection, time).evict(victim(objects_of(connection, time)))
        connection.close()
    assert (outcome.result, outcome.posts, outcome.read_back) == (Result.EVICTED, 1, True)


def test_nonsense_after_the_server_acted_is_read_back(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Garbage(b"<html>hotel wifi</html>"), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED
    assert outcome.read_back


def test_nothing_is_claimed_where_the_pod_cannot_be_read_back(server: ApiServer, time: FakeTime) -> None:
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        server.faults.add(Cut("after"), subresource="eviction")
        server.faults.add(Reply(500), verb="get", resource="pods")
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.UNKNOWN
    assert outcome.posts == 1


def test_a_request_to_stop_ends_the_tries_but_not_the_search_for_the_truth(
    server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Cut("after"), subresource="eviction")
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        time.stop = True
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.EVICTED
    assert outcome.read_back


def test_a_request_to_stop_before_it_is_clear_says_so(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Cut("before"), subresource="eviction")
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        time.stop = True
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.UNKNOWN
    assert outcome.posts == 1
    assert sum(time.waits) < 10


def test_a_pod_that_somebody_else_deletes_meanwhile_is_not_ours(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(429, headers={"Retry-After": "3"}), subresource="eviction", times=1)
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        with connected(server) as somebody:
            time.during = lambda _: evictor_of(somebody, FakeTime()).evict(pod)
            outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.TERMINATING
    assert not outcome.evicted
    assert outcome.posts == 1


def test_a_refused_connection_is_known_not_to_have_reached_the_server(time: FakeTime) -> None:
    with ApiServer(objects(*WEB)) as server, connected(server) as c:
        pod = victim(objects_of(c, time))
        server.stop()
        c.close()
        outcome = evictor_of(c, time).evict(pod)
    assert outcome.result is Result.FAILED
    assert "connection refused" in outcome.message
    assert outcome.posts == 1


def test_expired_credentials_are_refreshed_and_the_eviction_goes_out_once(
    server: ApiServer, time: FakeTime
) -> None:
    server.faults.add(Reply(401), subresource="eviction", times=1)
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.EVICTED


def test_rejected_credentials_end_it(server: ApiServer, time: FakeTime) -> None:
    server.faults.add(Reply(401), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is Result.FORBIDDEN
    assert "credentials" in outcome.message


def test_the_servers_dry_run_evicts_nothing(server: ApiServer, time: FakeTime) -> None:
    with connected(server) as c:
        pod = victim(read := objects_of(c, time))
        outcome = evictor_of(c, time, dry_run=True).evict(pod)
        after = read.pod("default", "web-00000")
    assert outcome.result is Result.WOULD_EVICT
    assert [a.dry_run for a in server.accesses if a.subresource == "eviction"] == [True]
    assert after is not None
    assert not after.terminating


def test_the_recording_evictor_sends_nothing(server: ApiServer, time: FakeTime) -> None:
    with connected(server) as c:
        pod = victim(objects_of(c, time))
        recorder = RecordingEvictor()
        outcome = recorder.evict(pod)
    assert outcome.result is Result.WOULD_EVICT
    assert recorder.pods == [pod]
    assert posts(server) == 0


def webhook(message: str) -> Reply:
    """What the API server answers where an admission webhook refuses with 429."""
    return Reply(
        429,
        {
            **{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429},
            "reason": "TooManyRequests",
            "message": 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the '
            f"request: {message}",
        },
    )


BY_WEBHOOKS = [
    ("a live migration begins", 'Eviction triggered evacuation of VMI "default/vm"', Result.MIGRATING),
    ("one is under way", 'Evacuation in progress: Eviction triggered evacuation of VMI "default/vm"',
     Result.MIGRATING),
    ("the target of a migration", "Eviction request for target Pod", Result.REFUSED),
]  # fmt: skip


@pytest.mark.parametrize(("message", "result"), [w[1:] for w in BY_WEBHOOKS], ids=[w[0] for w in BY_WEBHOOKS])
def test_a_virtual_machine_moves_by_itself_and_is_asked_once(
    server: ApiServer, time: FakeTime, message: str, result: Result
) -> None:
    server.faults.add(webhook(message), subresource="eviction")
    with connected(server) as c:
        outcome = evictor_of(c, time).evict(victim(objects_of(c, time)))
    assert outcome.result is result
    assert outcome.evicted is (result is Result.MIGRATING)
    assert outcome.posts == posts(server) == 1
    assert message in outcome.message
