"""What a pod runs: read only where an eviction may roll out what somebody has edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct


class _RunningJson(Struct, frozen=True):
    spec: dict[str, Any] = {}


class _MakingSpecJson(Struct, frozen=True):
    template: _RunningJson = _RunningJson()


class _MakingJson(Struct, frozen=True):
    spec: _MakingSpecJson = _MakingSpecJson()


_ACCESS = "kube-api-access-"
"""How the name of a volume begins that admission adds to each pod. The rest of it is the pod's own, and would
give each pod a template of its own (plugin/pkg/admission/serviceaccount)."""
_RUNNING = ("containers", "initContainers")
_NOT_RUN = frozenset(
    [
        "nodeName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "schedulerName",
        "schedulingGates",
        "priority",
        "priorityClassName",
        "preemptionPolicy",
        "overhead",
        "resources",
        "resourceClaims",
        "ephemeralContainers",
        "serviceAccount",
        "serviceAccountName",
    ]
).union(_RUNNING)
"""Fields of a pod spec that are compared elsewhere, or that admission may set anew."""
_GIVEN = frozenset(
    ["name", "image", "imagePullPolicy", "resources", "terminationMessagePath", "terminationMessagePolicy"]
)
"""The same of a container."""
_DEFAULTS = {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
"""What a template may say that the pod of a file leaves unsaid."""
_PROBES = frozenset(("livenessProbe", "readinessProbe", "startupProbe"))


def runs_of(raw: bytes | Raw, *, template: bool = False) -> frozenset[bytes]:
    """What a pod runs, or what an owner's template says of that, in small parts: admission adds parts, and
    takes none away. What is read elsewhere is left out; of probes, which service meshes rewrite, all but that
    they are there. What the template says nothing of, and a pod has, may be admission's, but a command."""
    json = msgspec.json
    spec = json.decode(raw, type=_MakingJson).spec.template.spec if template else None
    spec = spec or json.decode(raw, type=_RunningJson).spec
    found = list(_parts("", {k: v for k, v in spec.items() if k not in _NOT_RUN and v != _DEFAULTS.get(k)}))
    found.append(["", "account", spec.get("serviceAccountName") or "default"])
    for c in (c for kind in _RUNNING for c in spec.get(kind) or ()):
        said = {k: k in _PROBES or v for k, v in c.items() if k not in _GIVEN}
        found += _parts(c.get("name", ""), {"command": None, "args": None, **said})
    return frozenset(json.encode(one, order="sorted") for one in found)


def _parts(where: str, said: dict[str, Any]) -> Iterator[list[Any]]:
    for key, value in said.items():
        if isinstance(value, dict):
            yield from ([where, key, *one] for one in value.items())
        elif isinstance(value, list) and key not in ("command", "args"):
            several = (one for one in value if not _access(one))
            yield from ([where, key, one] for one in several)
        else:
            yield [where, key, value]


def _access(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("name", "")).startswith(_ACCESS)
