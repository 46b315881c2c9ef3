"""Tokens, rules, RBAC objects, impersonation, and the access log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.support.sandbox import ApiServer
from tests.support.sandbox.authority import User
from tests.support.servers.api_objects import connect, eviction, pod

VIEWER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "evictor", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]}  # fmt: skip
BINDING = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
           "metadata": {"name": "evictor", "namespace": "default"},
           "roleRef": {"kind": "Role", "name": "evictor"},
           "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "tools"}]}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ApiServer]:
    tokens = {"viewer-token": User("viewer"), "robot-token": User("system:serviceaccount:tools:robot")}
    with ApiServer(
        objects=[pod("p"), ROLE, BINDING], tokens=tokens, rules={"viewer": [VIEWER]}, authenticate=True
    ) as running:
        yield running


def refusal(error: ApiException) -> tuple[int, str]:
    return error.status, json.loads(error.body)["message"]


def test_a_rule_allows_what_it_names_and_nothing_else(server: ApiServer) -> None:
    with connect(server, "viewer-token") as api:
        core = client.CoreV1Api(api)
        assert len(core.list_pod_for_all_namespaces().items) == 1
        with pytest.raises(ApiException) as caught:
            core.delete_namespaced_pod("p", "default")
    where = 'in API group "" in the namespace "default"'
    wanted = f'pods "p" is forbidden: User "viewer" cannot delete resource "pods" {where}'
    assert refusal(caught.value) == (403, wanted)


def test_roles_in_the_store_count(server: ApiServer) -> None:
    with connect(server, "robot-token") as api:
        core = client.CoreV1Api(api)
        core.create_namespaced_pod_eviction("p", "default", eviction("p"))
        with pytest.raises(ApiException) as caught:
            core.list_namespaced_pod("default")
    assert caught.value.status == 403


def test_an_unknown_token_is_401_and_none_is_anonymous(server: ApiServer) -> None:
    with connect(server, "nobody") as api, pytest.raises(ApiException) as caught:
        client.CoreV1Api(api).list_node()
    assert refusal(caught.value) == (401, "Unauthorized")
    config = client.Configuration()
    config.host = server.url
    with client.ApiClient(config) as api, pytest.raises(ApiException) as anonymous:
        client.CoreV1Api(api).list_node()
    assert refusal(anonymous.value)[0] == 403
    assert 'User "system:anonymous"' in refusal(anonymous.value)[1]


def test_impersonation_needs_its_own_right(server: ApiServer) -> None:
    with connect(server) as api:
        api.set_default_header("Impersonate-User", "viewer")
        core = client.CoreV1Api(api)
        assert len(core.list_pod_for_all_namespaces().items) == 1
        with pytest.raises(ApiException):
            core.list_node()
    with connect(server, "viewer-token") as api:
        api.set_default_header("Impersonate-User", "kubernetes-admin")
        with pytest.raises(ApiException) as caught:
            client.CoreV1Api(api).list_pod_for_all_namespaces()
    assert 'cannot impersonate resource "users"' in refusal(caught.value)[1]


def test_every_request_is_logged_as_rbac_sees_it(server: ApiServer) -> None:
    with connect(server) as api:
        core = client.CoreV1Api(api)
        core.list_namespaced_pod("default", limit=1)
        core.create_namespaced_pod_eviction("p", "default", eviction("p"))
        list(client.CoordinationV1Api(api).list_namespaced_lease("tools").items)
    assert [(a.verb, a.group, a.resource, a.subresource, a.namespace, a.code) for a in server.accesses] == [
        ("list", "", "pods", "", "default", 200),
        ("create", "", "pods", "eviction", "default", 201),
        ("list", "coordination.k8s.io", "leases", "", "tools", 200),
    ]
    assert {a.user for a in server.accesses} == {"kubernetes-admin"}


def test_a_client_may_ask_what_it_may(server: ApiServer) -> None:
    with connect(server, "robot-token") as api:
        reviews = client.AuthorizationV1Api(api)

        def may(verb: str, resource: str, subresource: str = "") -> bool:
            wanted = {"verb": verb, "resource": resource, "subresource": subresource, "namespace": "default"}
            answer = reviews.create_self_subject_access_review({"spec": {"resourceAttributes": wanted}})
            return bool(answer.status.allowed)

        assert may("create", "pods", "eviction")
        assert not may("list", "pods")
