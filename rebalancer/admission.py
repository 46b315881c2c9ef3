"""What admission adds to a new pod (priority, tolerations, merged selectors, its node's labels), and what Pod
Security refuses.

Pods and PriorityClasses are plain dicts, as JSON gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec import json

# Defaults that the API server writes into a pod's spec.


def pod_defaults(spec: dict[str, Any]) -> None:
    """Defaults of a pod's spec, in place; also for templates, as the server does for workloads."""
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        image = container.get("image", "")
        latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def _requests(spec: dict[str, Any]) -> None:
    """Limits that are stated alone are requests, too: of pods, as the server does it for no template."""
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}


def qos_class(spec: dict[str, Any]) -> str:
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    named = [(c.get("resources") or {}) for c in containers]
    if not any(r.get("requests") or r.get("limits") for r in named):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(r.get("limits") or ()) and (r.get("requests") or r["limits"]) == r["limits"]
        for r in named
    )
    return "Guaranteed" if guaranteed else "Burstable"


Object = dict[str, Any]
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_CRITICAL = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class NotAdmittedError(Exception):
    """The API server would refuse this pod; the message says why, in its words."""


def _priority(spec: Object, classes: dict[str, Object]) -> None:
    name = spec.get("priorityClassName", "")
    found: Object | None = None
    if name:
        found = classes.get(name)
        if found is None and name not in _CRITICAL:
            raise NotAdmittedError(f"no PriorityClass with name {name} was found")
    else:
        defaults = [c for c in classes.values() if c.get("globalDefault")]
        found = min(defaults, key=lambda c: int(c["value"]), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found is not None else _CRITICAL.get(name, 0)
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def _tolerations(spec: dict[str, Any]) -> None:
    """DefaultTolerationSeconds: 300 s on nodes that stop answering, unless the pod says otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            t.get("key", "") in ("", key) and t.get("effect", "") in ("", "NoExecute") for t in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def _match_label_keys(pod: Object) -> None:
    """From 1.34 the keys' values are joined to the selector when the pod is created (KEP-3243)."""
    labels = pod["metadata"].get("labels") or {}
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        # Without a selector the constraint counts nobody: nothing to narrow.
        if (selector := constraint.get("labelSelector")) is None:
            continue
        for key in constraint.get("matchLabelKeys") or ():
            if key in labels:
                term = {"key": key, "operator": "In", "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(term)


def add_topology_labels(pod: Object, node: Object | None) -> None:
    """A bound pod carries its node's zone and region as labels (from 1.35)."""
    have = ((node or {}).get("metadata") or {}).get("labels") or {}
    for key in TOPOLOGY_LABELS:
        if key in have:
            pod["metadata"].setdefault("labels", {})[key] = have[key]


def admit_pod(pod: Object, classes: dict[str, Object], node: Object | None) -> None:
    """Give a new pod its priority, tolerations, merged selectors, defaults and first status, in place.

    `classes`: PriorityClasses by name. `node`: the pod's, where it names one. Raises NotAdmittedError.
    """
    spec = pod["spec"]
    pod_defaults(spec)
    _requests(spec)
    spec.setdefault("enableServiceLinks", True)
    _priority(spec, classes)
    _tolerations(spec)
    _match_label_keys(pod)
    if spec.get("nodeName"):
        add_topology_labels(pod, node)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}


# What meshes' webhooks add where a pod, or else its namespace, asks for it.
#
# Rule: istio pkg/kube/inject (``injectRequired``); linkerd2 pkg/inject; the documentation of Kuma.

PROXIES: Mapping[str, tuple[str, ...]] = {
    "istio-proxy": ("sidecar.istio.io/inject", "istio-injection", "istio.io/rev"),
    "linkerd-proxy": ("linkerd.io/inject",),
    "kuma-sidecar": ("kuma.io/sidecar-injection",),
}
"""The container that each adds, and the labels and annotations by which it goes, the first before others."""
INJECTING = tuple(key for keys in PROXIES.values() for key in keys)


def proxies(said: Mapping[str, str]) -> set[str]:
    """The containers that are added where these labels and annotations stand, the pod's before its
    namespace's."""
    words = {name: next((said[k] for k in keys if k in said), "") for name, keys in PROXIES.items()}
    return {name for name, word in words.items() if word not in ("", "disabled", "false")}


# What Pod Security admission refuses: the checks of the Pod Security Standards, on plain JSON.
#
# As in kubernetes staging/src/k8s.io/pod-security-admission/policy up to release-1.37, one function for
# each of its files. A version of the standard is a minor release of Kubernetes; "latest" is the API
# server's own.

Json = Mapping[str, Any]
ENFORCE = "pod-security.kubernetes.io/enforce"
"""Label of a namespace: the level that new pods must keep."""
ENFORCE_VERSION = "pod-security.kubernetes.io/enforce-version"
LATEST = 10_000
"""A minor release beyond all that are known."""

_PINNED = re.compile(r"v?1\.(\d+)")
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""Then a container's name: the annotation of a pod that says its profile."""
_BASELINE_ADDS = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
    "net.ipv4.tcp_slow_start_after_idle": 37,
    "net.ipv4.tcp_notsent_lowat": 37,
}
"""And from which version on each is safe."""
_SELINUX_TYPES = {
    "": 0,
    "container_t": 0,
    "container_init_t": 0,
    "container_kvm_t": 0,
    "container_engine_t": 31,
}
_PROFILES = ("RuntimeDefault", "Localhost")
_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)


def enforced(labels: Mapping[str, str], server: int = LATEST) -> tuple[str, int]:
    """The level that a namespace with these labels enforces, "" for none, and in which version of the
    standard. `server`: the minor release of the API server. A level that nobody knows is the strictest one
    (pod-security-admission api/helpers.go)."""
    level = labels.get(ENFORCE, "privileged")
    if level == "privileged":
        return "", server
    level = "baseline" if level == "baseline" else "restricted"
    pinned = _PINNED.fullmatch(labels.get(ENFORCE_VERSION, ""))
    return level, min(server, int(pinned.group(1))) if pinned else server


def violations(pod: Json, level: str, version: int = LATEST) -> tuple[str, ...]:
    """What of a pod, or of a template, the level forbids; none: it is admitted."""
    return tuple(
        f"{name}: {found}"
        for of, name, since, check in _CHECKS
        if of in ("baseline", level) and since <= version and (found := check(pod, version))
    )


@lru_cache(1024)
def violations_of(pod: bytes, level: str, version: int) -> tuple[str, ...]:
    """The same of a pod as JSON: many are alike."""
    return violations(json.decode(pod), level, version)


def _spec(pod: Json) -> Json:
    return pod.get("spec") or {}


def _containers(pod: Json) -> Iterator[Json]:
    for field in ("initContainers", "containers"):
        yield from _spec(pod).get(field) or ()


def _context(of: Json) -> Json:
    return of.get("securityContext") or {}


def _contexts(pod: Json) -> Iterator[tuple[str, Json]]:
    """The security contexts of the pod and of its containers, and whose they are."""
    yield "pod", _context(_spec(pod))
    for c in _containers(pod):
        yield f"container {c.get('name', '')}", _context(c)


def _bad(pod: Json, forbids: Callable[[Json], object]) -> str:
    """Whose security contexts have what is forbidden."""
    return ", ".join(who for who, context in _contexts(pod) if forbids(context))


def _bad_containers(pod: Json, forbids: Callable[[Json], object]) -> str:
    return ", ".join(f"container {c.get('name', '')}" for c in _containers(pod) if forbids(c))


def _windows(pod: Json, version: int) -> bool:
    return version >= 25 and (_spec(pod).get("os") or {}).get("name") == "windows"


def _own_users(pod: Json, version: int) -> bool:
    """Whether it has a user namespace, which relaxes some checks (KEP-127)."""
    return version >= 35 and _spec(pod).get("hostUsers") is False


def _apparmor(pod: Json, _: int) -> str:
    noted = (pod.get("metadata") or {}).get("annotations") or {}
    values = [v for k, v in noted.items() if k.startswith(APP_ARMOR)]
    if bad := [v for v in values if v not in ("", "runtime/default") and not v.startswith("localhost/")]:
        return f"annotation {bad[0]}"
    return _bad(pod, lambda c: (c.get("appArmorProfile") or {}).get("type", "Localhost") not in _PROFILES)


def _capabilities(pod: Json, _: int) -> str:
    return _bad_containers(
        pod, lambda c: set((_context(c).get("capabilities") or {}).get("add") or ()) - _BASELINE_ADDS
    )


def _host_namespaces(pod: Json, _: int) -> str:
    return ", ".join(f for f in ("hostNetwork", "hostPID", "hostIPC") if _spec(pod).get(f))


def _host_paths(pod: Json, _: int) -> str:
    return ", ".join(
        f"volume {v.get('name', '')}" for v in _spec(pod).get("volumes") or () if "hostPath" in v
    )


def _host_ports(pod: Json, _: int) -> str:
    return _bad_containers(pod, lambda c: any(p.get("hostPort") for p in c.get("ports") or ()))


def _host_probes(pod: Json, _: int) -> str:
    def names_host(container: Json) -> bool:
        handlers = [container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")]
        handlers += (container.get("lifecycle") or {}).values()
        asked = [(h or {}).get(how) or {} for h in handlers for how in ("httpGet", "tcpSocket")]
        return any(a.get("host") for a in asked)

    return _bad_containers(pod, names_host)


def _privileged(pod: Json, _: int) -> str:
    return _bad_containers(pod, lambda c: _context(c).get("privileged"))


def _proc_mount(pod: Json, version: int) -> str:
    return "" if _own_users(pod, version) else _proc_mount_always(pod, version)


def _proc_mount_always(pod: Json, _: int) -> str:
    return _bad_containers(pod, lambda c: _context(c).get("procMount", "Default") != "Default")


def _seccomp(pod: Json, _: int) -> str:
    return _bad(pod, lambda c: (c.get("seccompProfile") or {}).get("type", "Localhost") not in _PROFILES)


def _selinux(pod: Json, version: int) -> str:
    def forbidden(context: Json) -> bool:
        said = context.get("seLinuxOptions") or {}
        known = _SELINUX_TYPES.get(said.get("type", ""), LATEST + 1)
        return known > version or bool(said.get("user") or said.get("role"))

    return _bad(pod, forbidden)


def unsafe_sysctls(named: Iterable[str], version: int) -> str:
    """Those that were not safe in a release, 1.`version`: there a kubelet refuses them unless it is told not
    to (pkg/kubelet/sysctl)."""
    return ", ".join(n for n in named if _SAFE_SYSCTLS.get(n, LATEST + 1) > version)


def _sysctls(pod: Json, version: int) -> str:
    named = (s.get("name", "") for s in _context(_spec(pod)).get("sysctls") or ())
    return unsafe_sysctls(named, version)


def _host_process(pod: Json, _: int) -> str:
    return _bad(pod, lambda c: (c.get("windowsOptions") or {}).get("hostProcess"))


def _escalation(pod: Json, version: int) -> str:
    if _windows(pod, version):
        return ""
    return _bad_containers(pod, lambda c: _context(c).get("allowPrivilegeEscalation") is not False)


def _restricted_capabilities(pod: Json, version: int) -> str:
    def forbidden(container: Json) -> bool:
        said = _context(container).get("capabilities") or {}
        return (
            "ALL" not in (said.get("drop") or ())
            or set(said.get("add") or ()) - {"NET_BIND_SERVICE"} != set()
        )

    return "" if _windows(pod, version) else _bad_containers(pod, forbidden)


def _volume_types(pod: Json, _: int) -> str:
    volumes = _spec(pod).get("volumes") or ()
    return ", ".join(f"volume {v.get('name', '')}" for v in volumes if not _VOLUMES.intersection(v))


def _inherited(pod: Json, good: Callable[[Json], bool], unset: Callable[[Json], bool]) -> str:
    """Who does not say what must be said; a container that says nothing takes it from the pod."""
    whole = _context(_spec(pod))
    said = good(whole)
    bad = [] if said or unset(whole) else ["pod"]
    for c in _containers(pod):
        own = _context(c)
        if not good(own) and not (said and unset(own)):
            bad.append(f"container {c.get('name', '')}")
    return ", ".join(bad)


def _non_root(pod: Json, version: int) -> str:
    if _own_users(pod, version):
        return ""
    return _inherited(pod, lambda c: c.get("runAsNonRoot") is True, lambda c: c.get("runAsNonRoot") is None)


def _root_user(pod: Json, version: int) -> str:
    return "" if _own_users(pod, version) else _bad(pod, lambda c: c.get("runAsUser") == 0)


def _restricted_seccomp(pod: Json, version: int) -> str:
    if _windows(pod, version):
        return ""
    return _inherited(
        pod,
        lambda c: (c.get("seccompProfile") or {}).get("type") in _PROFILES,
        lambda c: (c.get("seccompProfile") or {}).get("type") is None,
    )


_CHECKS: tuple[tuple[str, str, int, Callable[[Json, int], str]], ...] = (
    ("baseline", "hostNamespaces", 0, _host_namespaces),
    ("baseline", "privileged", 0, _privileged),
    ("baseline", "capabilities", 0, _capabilities),
    ("baseline", "hostPathVolumes", 0, _host_paths),
    ("baseline", "hostPorts", 0, _host_ports),
    ("baseline", "appArmorProfile", 0, _apparmor),
    ("baseline", "seLinuxOptions", 0, _selinux),
    ("baseline", "procMount", 0, _proc_mount),
    ("baseline", "seccompProfile", 19, _seccomp),
    ("baseline", "sysctls", 0, _sysctls),
    ("baseline", "windowsHostProcess", 0, _host_process),
    ("baseline", "hostProbesAndHostLifecycle", 34, _host_probes),
    ("restricted", "restrictedVolumes", 0, _volume_types),
    ("restricted", "allowPrivilegeEscalation", 8, _escalation),
    ("restricted", "runAsNonRoot", 0, _non_root),
    ("restricted", "runAsUser", 23, _root_user),
    ("restricted", "seccompProfile", 19, _restricted_seccomp),
    ("restricted", "capabilities", 22, _restricted_capabilities),
    ("restricted", "procMount", 35, _proc_mount_always),
)
"""The level, upstream's name, the version of the standard from which on it is part of it, and the check."""
