"""What answers of the API server mean, by the bodies that a real one sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rebalancer.kube.connection import Backoff, retry
from rebalancer.kube.errors import (
    ConflictError,
    ExpiredError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    ServerError,
    StatusError,
    Target,
    TooManyRequestsError,
    UnauthorizedError,
    error_of,
)
from rebalancer.kube.resources import RESOURCES
from rebalancer.model.snapshot import KINDS
from tests.support.servers.api import FakeTime

PODS = RESOURCES["Pod"]
EVICT = Target("create", PODS, "default", "web-1", "eviction")
LIST = Target("list", PODS)


def status(code: int, message: str, reason: str = "", **more: Any) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return json.dumps({**body, "reason": reason, "code": code, **more}).encode()


def decoded(code: int, body: bytes, target: Target = LIST, **headers: str) -> KubeError:
    return error_of(
        code, {k.replace("_", "-"): v for k, v in headers.items()}, body, target, who="https://x, context y"
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, StatusError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, ExpiredError),
        (422, StatusError),
        (429, TooManyRequestsError),
        (500, ServerError),
        (503, ServerError),
    ],
)
def test_each_code_has_its_class(code: int, expected: type[KubeError]) -> None:
    e = decoded(code, status(code, "no"))
    assert type(e) is expected
    assert isinstance(e, StatusError)
    assert e.code == code


def test_an_exhausted_budget_has_a_cause_and_no_time_to_wait() -> None:
    causes = [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget web needs 4 healthy pods and has 4 currently",
        }
    ]
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    e = decoded(429, status(429, text, "TooManyRequests", details={"causes": causes}), EVICT)
    assert isinstance(e, TooManyRequestsError)
    assert e.from_budget
    assert e.retry_after is None
    assert "needs 4 healthy pods" in str(e)
    assert "budget has to regain" in e.remedy


def test_retry_after_comes_from_the_header_or_from_the_details() -> None:
    by_header = decoded(429, status(429, "later"), Retry_After="7")
    by_details = decoded(429, status(429, "later", details={"retryAfterSeconds": 3}))
    assert isinstance(by_header, StatusError)
    assert isinstance(by_details, StatusError)
    assert (by_header.retry_after, by_details.retry_after) == (7, 3)


def test_an_expired_list_offers_a_token_to_go_on() -> None:
    e = decoded(410, status(410, "too old", "Expired", metadata={"continue": "abc"}))
    assert isinstance(e, ExpiredError)
    assert e.resume == "abc"


def test_a_forbidden_list_names_the_rule_for_a_cluster_role() -> None:
    text = 'pods is forbidden: User "reader" cannot list resource "pods" in API group "" at the cluster scope'
    e = decoded(403, status(403, text, "Forbidden", details={"kind": "pods"}))
    assert 'User "reader" cannot list' in e.message
    assert 'a ClusterRole with the rule {apiGroups: [""], resources: ["pods"], verbs: ["list"]}' in e.remedy
    assert "--all-namespaces" in e.remedy


def test_a_missing_object_is_told_from_a_missing_api() -> None:
    pod = decoded(
        404, status(404, 'pods "nobody" not found', "NotFound", details={"name": "nobody", "kind": "pods"})
    )
    api = decoded(404, b"404 page not found\n")
    assert isinstance(pod, NotFoundError)
    assert isinstance(api, NotFoundError)
    assert (pod.kind, api.kind) == ("pods", "")
    assert "not served" in api.remedy


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), (" 7 ", 7.0), ("²", None), ("soon", None)])
def test_a_retry_after_is_a_number_or_nothing(header: str, seconds: float | None) -> None:
    e = decoded(503, status(503, "starting"), Retry_After=header)
    assert isinstance(e, ServerError)
    assert e.retry_after == seconds


def test_a_proxys_page_is_not_taken_for_a_verdict() -> None:
    e = decoded(502, b"<html>bad\n gateway</html>")
    assert isinstance(e, ResponseError)
    assert e.code == 502
    assert "'<html>bad gateway</html>'" in str(e)


def test_every_kind_that_is_decoded_has_a_place_and_a_consequence() -> None:
    assert {*RESOURCES, "RuntimeClass"} == KINDS, "a cluster's are read by name"
    assert {k for k, r in RESOURCES.items() if not r.without} == {"Node", "Pod"}


def test_paths_escape_what_they_are_given() -> None:
    assert PODS.path("shop", "web-1", "eviction") == "/api/v1/namespaces/shop/pods/web-1/eviction"
    assert RESOURCES["Node"].path("shop", "n") == "/api/v1/nodes/n"
    assert RESOURCES["PodDisruptionBudget"].path() == "/apis/policy/v1/poddisruptionbudgets"
    assert PODS.path("a/b", "c?d") == "/api/v1/namespaces/a%2Fb/pods/c%3Fd"


def failing(*errors: KubeError | None) -> Any:
    left = list(errors)

    def call() -> str:
        e = left.pop(0)
        if e is not None:
            raise e
        return "done"

    return call


def test_a_read_is_tried_again_with_growing_jittered_delays() -> None:
    time, busy = FakeTime(), decoded(500, status(500, "no"))
    assert (
        retry(failing(busy, busy, busy, None), wait=time.wait, backoff=Backoff(tries=4, first=1, cap=2))
        == "done"
    )
    assert [0.5 <= time.waits[0] <= 1, 1 <= time.waits[1] <= 2, 1 <= time.waits[2] <= 2] == [True] * 3


def test_the_server_is_given_the_time_it_asks_for() -> None:
    time, busy = FakeTime(), decoded(429, status(429, "later"), Retry_After="5")
    retry(failing(busy, None), wait=time.wait)
    assert 5 <= time.waits[0] <= 6


def test_too_much_patience_is_not_given() -> None:
    time, busy = FakeTime(), decoded(429, status(429, "later"), Retry_After="3600")
    with pytest.raises(TooManyRequestsError):
        retry(failing(busy, None), wait=time.wait)
    assert time.waits == []


def test_what_cannot_get_better_is_not_tried_again() -> None:
    time = FakeTime()
    with pytest.raises(ForbiddenError):
        retry(failing(decoded(403, status(403, "no"))), wait=time.wait)
    assert time.waits == []


def test_a_request_to_stop_ends_the_tries() -> None:
    time = FakeTime()
    time.stop = True
    with pytest.raises(ServerError):
        retry(failing(decoded(500, status(500, "no")), None), wait=time.wait)
