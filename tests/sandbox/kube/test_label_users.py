"""What else selects pods by labels, read over HTTP where pods may be replaced first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rebalancer.kube.reading import label_users
from rebalancer.kube.resources import LABEL_USERS
from rebalancer.kube.resources import Resource as Read
from rebalancer.planner import plan
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import LabelUsers, Method, PolicyOptions
from rebalancer.policy.replace_first import asked_for
from rebalancer.sandbox.resources import Resource
from tests.support.build import deployment, nodes, objects, pdb, snapshot
from tests.support.build.base import metadata
from tests.support.sandbox import ApiServer, Garbage, Reply
from tests.support.sandbox.custom import served
from tests.support.scheduler.plain import Json
from tests.support.servers.api import QUICK, connected

ISTIO = "networking.istio.io"
SERVED = tuple(
    Resource(group, version, kind, f"{stem}s", stem, True, storage=f"{stem}s.{group}")
    for group, version, kind, stem in (
        (ISTIO, "v1beta1", "DestinationRule", "destinationrule"),
        (ISTIO, "v1alpha3", "EnvoyFilter", "envoyfilter"),
        ("cilium.io", "v2", "CiliumNetworkPolicy", "ciliumnetworkpolicie"),
        ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicie"),
    )
)


@pytest.fixture(autouse=True)
def some() -> Iterator[None]:
    with served(*SERVED):
        yield


def made(kind: str, api: str, name: str, **body: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": metadata(kind, "default", name), **body}


RULE = made("DestinationRule", f"{ISTIO}/v1beta1", "web",
            spec={"host": "web", "subsets": [{"labels": {"pod-template-hash": "x"}}]})  # fmt: skip
FILTER = made("EnvoyFilter", f"{ISTIO}/v1alpha3", "web",
              spec={"workloadSelector": {"labels": {"pod-template-hash": "x"}}})  # fmt: skip
POLICY = made("NetworkPolicy", "networking.k8s.io/v1", "web", spec={"podSelector": {}})
CILIUM = made("CiliumNetworkPolicy", "cilium.io/v2", "web",
              specs=[{"endpointSelector": {"matchLabels": {"k8s:app": "web"}}}])  # fmt: skip


def read(*things: Any, fault: Any = None, path: str = "") -> LabelUsers:
    with ApiServer(objects(*things)) as server, connected(server) as c:
        if fault is not None:
            server.faults.add(fault, path=path)
        return label_users(c, wait=threading.Event().wait, backoff=QUICK)


def test_objects_of_served_kinds_are_read_in_the_version_that_the_server_prefers() -> None:
    found = read(RULE, POLICY, CILIUM)
    assert [(u.kind, u.namespace, u.name) for u in found.found] == [
        ("CiliumNetworkPolicy", "default", "web"),
        ("DestinationRule", "default", "web"),
        ("NetworkPolicy", "default", "web"),
    ]
    assert ["pod-template-hash" in u.spec for u in found.found] == [False, True, False]
    assert "k8s:app" in found.found[0].spec
    assert found.unread == (), "kinds and groups that are not served do not matter"


@pytest.mark.parametrize("fault", [Reply(403), Reply(500), Garbage(b"<html>")])
def test_a_served_kind_that_cannot_be_read_is_named(fault: Any) -> None:
    found = read(RULE, POLICY, fault=fault, path="/destinationrules")
    assert found.unread == (f"destinationrules.{ISTIO}",)
    assert [u.kind for u in found.found] == ["NetworkPolicy"]


def test_a_group_that_does_not_say_what_it_serves_cannot_be_read() -> None:
    found = read(POLICY, FILTER, fault=Reply(503), path=f"/apis/{ISTIO}")
    assert found.unread == tuple(r.qualified for r in LABEL_USERS if r.group == ISTIO)
    assert [u.kind for u in found.found] == ["NetworkPolicy"]


def test_a_kind_that_only_another_version_has_is_read_in_that_one() -> None:
    """Istio serves EnvoyFilter as v1alpha3, and prefers v1."""
    assert [u.kind for u in read(RULE, FILTER).found] == ["DestinationRule", "EnvoyFilter"]


WEB = (nodes(a=2, b=2), deployment("web").labels(app="web").spread("zone", 1).placed({"a-0": 4}),
       pdb("web", {"app": "web"}, min_available="100%"))  # fmt: skip


def test_a_plan_goes_by_what_was_read() -> None:
    def methods(users: LabelUsers | None) -> list[Method]:
        policy = PolicyOptions(method="auto", label_users=users)
        return [m.method for m in plan(snapshot(*WEB), PlanOptions(policy=policy)).moves]

    assert methods(read(POLICY)) == [Method.REPLACE_FIRST] * 2
    assert methods(read(POLICY, RULE)) == []
    assert methods(LabelUsers(unread=("x",))) == []


def test_nothing_is_read_unless_somebody_asks_for_the_method() -> None:
    assert not asked_for(snapshot(*WEB), PolicyOptions())
    assert asked_for(snapshot(*WEB), PolicyOptions(method="auto"))
    says = [{**o, "metadata": {**o["metadata"], "annotations": {"rebalancer.io/method": "auto"}}}
            if o["kind"] == "Deployment" else o for o in objects(*WEB)]  # fmt: skip
    assert asked_for(snapshot(says), PolicyOptions())


BY_LABEL = {"matchLabels": {"pod-template-hash": "x"}}
CALICO = {"selector": "pod-template-hash == 'x'"}
SUBJECT = {"subject": {"pods": {"namespaceSelector": {}, "podSelector": BY_LABEL}}}
ENDPOINTS = {"endpointSelector": {"matchLabels": {"k8s:pod-template-hash": "x"}}}
SELECTS: dict[str, Json] = {
    "networking.k8s.io": {"podSelector": BY_LABEL},
    "policy.networking.k8s.io": SUBJECT,
    "DestinationRule": {"host": "web", "subsets": [{"name": "a", "labels": BY_LABEL["matchLabels"]}]},
    "EnvoyFilter": {"workloadSelector": {"labels": BY_LABEL["matchLabels"]}},
    "Gateway": {"selector": BY_LABEL["matchLabels"]},
    "ServiceEntry": {"workloadSelector": {"labels": BY_LABEL["matchLabels"]}},
    "Sidecar": {"workloadSelector": {"labels": BY_LABEL["matchLabels"]}},
    "security.istio.io": {"selector": BY_LABEL},
    "telemetry.istio.io": {"selector": BY_LABEL},
    "extensions.istio.io": {"selector": BY_LABEL},
    "policy.linkerd.io": {"podSelector": BY_LABEL, "port": 80},
    "CiliumEgressGatewayPolicy": {"selectors": [{"podSelector": BY_LABEL}]},
    "CiliumLocalRedirectPolicy": {"redirectBackend": {"localEndpointSelector": BY_LABEL}},
    "cilium.io": ENDPOINTS,
    "crd.projectcalico.org": CALICO,
    "projectcalico.org": CALICO,
    "Group": {"podSelector": BY_LABEL},
    "ClusterGroup": {"podSelector": BY_LABEL},
    "crd.antrea.io": {"appliedTo": [{"podSelector": BY_LABEL}]},
    "vpcresources.k8s.aws": {"podSelector": BY_LABEL},
    "monitoring.coreos.com": {"selector": BY_LABEL},
}
"""How objects of each kind, or of all others of a group, select by the label."""


@pytest.mark.parametrize("user", LABEL_USERS, ids=lambda r: r.qualified)
def test_an_object_of_any_of_these_kinds_that_selects_by_the_label_keeps_the_pod(user: Read) -> None:
    resource = Resource(user.group, "v1", user.kind, user.plural, user.kind.lower(), user.namespaced,
                        storage=user.qualified)  # fmt: skip
    body = SELECTS.get(user.kind) or SELECTS[user.group]
    thing = made(user.kind, f"{user.group}/v1", "by-hash", spec=body)
    if not user.namespaced:
        del thing["metadata"]["namespace"]
    with served(resource):
        policy = PolicyOptions(method="auto", label_users=read(thing))
        found = plan(snapshot(*WEB), PlanOptions(policy=policy))
    assert not found.moves
    assert any(f"{user.kind} by-hash names pod-template-hash" in b.reason.message for b in found.blocked)
