"""The checks of the Pod Security Standards, each with what it forbids and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.admission import ENFORCE, ENFORCE_VERSION, LATEST, enforced, violations
from tests.support.scheduler.plain import Json
from tests.unit.policy.judged import merged

GOOD: Json = {
    "metadata": {},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "c",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                },
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "code", "image": {"reference": "x"}}],
    },
}
"""Passes `restricted`."""


def pod(**spec: Any) -> Json:
    return merged(GOOD, {"spec": spec})


def whole(**context: Any) -> Json:
    return pod(securityContext=context)


def container(field: str = "containers", **changes: Any) -> Json:
    one = merged(GOOD["spec"]["containers"][0], changes)
    return pod(**{field: [one]})


def context(**changes: Any) -> Json:
    return container(securityContext=changes)


def annotated(key: str, value: str) -> Json:
    return merged(GOOD, {"metadata": {"annotations": {key: value}}})


APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"
BASELINE = [
    ("hostNamespaces", pod(hostNetwork=True)),
    ("hostNamespaces", pod(hostPID=True)),
    ("hostNamespaces", pod(hostIPC=True)),
    ("privileged", context(privileged=True)),
    ("privileged", container("initContainers", name="i", securityContext={"privileged": True})),
    ("capabilities", context(capabilities={"add": ["SYS_ADMIN"]})),
    ("hostPathVolumes", pod(volumes=[{"name": "h", "hostPath": {"path": "/"}}])),
    ("hostPorts", container(ports=[{"containerPort": 80, "hostPort": 80}])),
    ("appArmorProfile", annotated(APPARMOR, "unconfined")),
    ("appArmorProfile", whole(appArmorProfile={"type": "Unconfined"})),
    ("seLinuxOptions", whole(seLinuxOptions={"type": "spc_t"})),
    ("seLinuxOptions", context(seLinuxOptions={"user": "root"})),
    ("procMount", context(procMount="Unmasked")),
    ("seccompProfile", context(seccompProfile={"type": "Unconfined"})),
    ("sysctls", whole(sysctls=[{"name": "kernel.msgmax", "value": "1"}])),
    ("windowsHostProcess", whole(windowsOptions={"hostProcess": True})),
    ("hostProbesAndHostLifecycle", container(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 1}})),
    ("hostProbesAndHostLifecycle", container(lifecycle={"preStop": {"tcpSocket": {"host": "::1"}}})),
]
RESTRICTED = [
    ("restrictedVolumes", pod(volumes=[{"name": "n", "nfs": {"server": "s", "path": "/"}}])),
    ("allowPrivilegeEscalation", context(allowPrivilegeEscalation=None)),
    ("runAsNonRoot", whole(runAsNonRoot=None)),
    ("runAsNonRoot", context(runAsNonRoot=False)),
    ("runAsUser", whole(runAsUser=0)),
    ("seccompProfile", whole(seccompProfile=None)),
    ("capabilities", context(capabilities={"drop": None})),
    ("capabilities", context(capabilities={"add": ["CHOWN"]})),
]
PASS = [
    GOOD,
    pod(hostNetwork=False),
    annotated(APPARMOR, "runtime/default"),
    annotated(APPARMOR, "localhost/mine"),
    whole(appArmorProfile={"type": "Localhost"}, seLinuxOptions={"type": "container_engine_t"}),
    whole(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "1"}], runAsUser=1000),
    whole(runAsNonRoot=None) | context(runAsNonRoot=True),
    container(livenessProbe={"httpGet": {"port": 1}}, ports=[{"containerPort": 80}]),
    container("initContainers", name="i"),
]


@pytest.mark.parametrize(("name", "bad"), BASELINE, ids=lambda v: v if isinstance(v, str) else "")
def test_baseline_forbids(name: str, bad: Json) -> None:
    for level in ("baseline", "restricted"):
        assert name in {v.partition(":")[0] for v in violations(bad, level)}


@pytest.mark.parametrize(("name", "bad"), RESTRICTED, ids=lambda v: v if isinstance(v, str) else "")
def test_restricted_forbids_what_baseline_lets_pass(name: str, bad: Json) -> None:
    assert violations(bad, "baseline") == ()
    assert [v.partition(":")[0] for v in violations(bad, "restricted")] == [name]


@pytest.mark.parametrize("good", PASS)
def test_restricted_lets_pass(good: Json) -> None:
    assert violations(good, "restricted") == ()


def test_a_pod_without_any_security_context_passes_baseline_only() -> None:
    plain = {"spec": {"containers": [{"name": "c"}]}}
    assert violations(plain, "baseline") == ()
    assert len(violations(plain, "restricted")) == 4


@pytest.mark.parametrize(
    ("changed", "level", "from_on", "allowed"),
    [
        (container(livenessProbe={"httpGet": {"host": "h"}}), "baseline", 34, False),
        (whole(sysctls=[{"name": "net.ipv4.tcp_rmem"}]), "baseline", 32, True),
        (whole(sysctls=[{"name": "net.ipv4.tcp_notsent_lowat"}]), "baseline", 37, True),
        (whole(seLinuxOptions={"type": "container_engine_t"}), "baseline", 31, True),
        (
            pod(hostUsers=False, securityContext={"runAsNonRoot": None, "runAsUser": 0}),
            "restricted",
            35,
            True,
        ),
        (merged(pod(hostUsers=False), context(procMount="Unmasked")), "baseline", 35, True),
        (pod(os={"name": "windows"}, securityContext={"seccompProfile": None}), "restricted", 25, True),
    ],
)
def test_what_a_version_of_the_standard_has_changed(
    changed: Json, level: str, from_on: int, allowed: bool
) -> None:
    assert bool(violations(changed, level, from_on)) is not allowed
    assert bool(violations(changed, level, from_on - 1)) is allowed


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ("", 36)),
        ({ENFORCE: "privileged"}, ("", 36)),
        ({ENFORCE: "baseline"}, ("baseline", 36)),
        ({ENFORCE: "restricted", ENFORCE_VERSION: "latest"}, ("restricted", 36)),
        ({ENFORCE: "restricted", ENFORCE_VERSION: "v1.30"}, ("restricted", 30)),
        ({ENFORCE: "restricted", ENFORCE_VERSION: "v1.99"}, ("restricted", 36)),
        ({ENFORCE: "strict"}, ("restricted", 36)),
        ({ENFORCE: ""}, ("restricted", 36)),
    ],
)
def test_what_a_namespace_enforces(labels: dict[str, str], expected: tuple[str, int]) -> None:
    assert enforced(labels, 36) == expected
    assert enforced({ENFORCE: "baseline"}) == ("baseline", LATEST)
