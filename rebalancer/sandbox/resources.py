"""The table of what the server serves: one `Resource` per group, version and plural."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ALL_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """`group`, `version` and `kind` are those of its body, where they differ from the parent's."""

    name: str
    kind: str
    verbs: tuple[str, ...] = SUBRESOURCE_VERBS
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource.

    `storage` names the collection its objects live in: both kinds of Event share one.
    `generation` says that `metadata.generation` counts changes of the spec.
    `has_status` says that writes to the main endpoint leave the status alone.
    `zero` is the body, beside the metadata, of an object without content (what a bookmark carries).
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    generation: bool = False
    storage: str = ""
    zero: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As messages name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    def sub(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


_TEMPLATE = {"metadata": {}, "spec": {"containers": None}}
_NODE_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
    "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip
NODE_STATUS_ZERO: dict[str, Any] = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": dict.fromkeys(_NODE_INFO, ""),
}

# Only where a typed client would stumble over `{}`: elsewhere metadata alone does.
_ZERO: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Node": {"spec": {}, "status": NODE_STATUS_ZERO},
    "Namespace": {"spec": {}, "status": {}},
    "Service": {"spec": {}, "status": {"loadBalancer": {}}},
    "Deployment": {"spec": {"selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}},
    "ReplicaSet": {"spec": {"selector": None, "template": _TEMPLATE}, "status": {"replicas": 0}},
    "StatefulSet": {
        "spec": {"serviceName": "", "selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    "DaemonSet": {
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0,
                   "numberReady": 0},
    },
    "PodDisruptionBudget": {
        "spec": {},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    },
    "PriorityClass": {"value": 0},
    "StorageClass": {"provisioner": ""},
    "CSINode": {"spec": {"drivers": None}},
    "VolumeAttachment": {"spec": {"attacher": "", "source": {}, "nodeName": ""}},
    "CSIDriver": {"spec": {}},
    "Lease": {"spec": {}},
    "PersistentVolume": {"spec": {}, "status": {}},
    "PersistentVolumeClaim": {"spec": {"resources": {}}, "status": {}},
    "ReplicationController": {"spec": {}, "status": {"replicas": 0}},
    "Job": {"spec": {"template": _TEMPLATE}, "status": {}},
    "CronJob": {"spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}}},
                "status": {}},
}  # fmt: skip

# group, version, kind, plural, namespaced, short names, categories, traits
_ROWS: tuple[tuple[str, str, str, str, bool, str, str, str], ...] = (
    ("", "v1", "ConfigMap", "configmaps", True, "cm", "", ""),
    ("", "v1", "Endpoints", "endpoints", True, "ep", "", ""),
    ("", "v1", "Event", "events", True, "ev", "", ""),
    ("", "v1", "LimitRange", "limitranges", True, "limits", "", ""),
    ("", "v1", "Namespace", "namespaces", False, "ns", "", "status"),
    ("", "v1", "Node", "nodes", False, "no", "", "status"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, "pvc", "", "status"),
    ("", "v1", "PersistentVolume", "persistentvolumes", False, "pv", "", "status"),
    ("", "v1", "Pod", "pods", True, "po", "all", "status generation"),
    ("", "v1", "PodTemplate", "podtemplates", True, "", "", "generation"),
    ("", "v1", "ReplicationController", "replicationcontrollers", True, "rc", "all",
     "status generation"),
    ("", "v1", "ResourceQuota", "resourcequotas", True, "quota", "", "status"),
    ("", "v1", "Secret", "secrets", True, "", "", ""),
    ("", "v1", "ServiceAccount", "serviceaccounts", True, "sa", "", ""),
    ("", "v1", "Service", "services", True, "svc", "all", "status"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", True, "", "", ""),
    ("apps", "v1", "DaemonSet", "daemonsets", True, "ds", "all", "status generation"),
    ("apps", "v1", "Deployment", "deployments", True, "deploy", "all", "status generation"),
    ("apps", "v1", "ReplicaSet", "replicasets", True, "rs", "all", "status generation"),
    ("apps", "v1", "StatefulSet", "statefulsets", True, "sts", "all", "status generation"),
    ("events.k8s.io", "v1", "Event", "events", True, "ev", "", ""),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", False, "", "", "createonly"),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False, "", "",
     "createonly"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True, "hpa", "all",
     "status"),
    ("batch", "v1", "CronJob", "cronjobs", True, "cj", "all", "status generation"),
    ("batch", "v1", "Job", "jobs", True, "", "all", "status generation"),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False, "", "", "generation"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", True, "ing", "", "status generation"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, "netpol", "", "generation"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, "pdb", "", "status generation"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False, "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True, "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", True, "", "", ""),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, "", "", ""),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", False, "", "", ""),
    ("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", True, "", "", ""),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, "sc", "", ""),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, "", "", "status"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, "pc", "", "generation"),
    ("coordination.k8s.io", "v1", "Lease", "leases", True, "", "", ""),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, "", "", ""),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, "", "", "generation"),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, "", "", "generation"),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, "", "", "status"),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, "", "", ""),
    ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, "", "", "generation"),
)  # fmt: skip


def _resource(row: tuple[str, str, str, str, bool, str, str, str]) -> Resource:
    group, version, kind, plural, namespaced, short, categories, traits = row
    subs: list[Subresource] = []
    if kind == "Pod":
        subs.append(Subresource("binding", "Binding", ("create",)))
        subs.append(Subresource("eviction", "Eviction", ("create",), "policy", "v1"))
    if "status" in traits:
        subs.append(Subresource("status", kind))
    verbs: tuple[str, ...] = ALL_VERBS
    if "createonly" in traits:
        verbs = ("create",)
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=plural if plural == "endpoints" else kind.lower(),
        namespaced=namespaced,
        short=tuple(short.split()),
        categories=tuple(categories.split()),
        verbs=verbs,
        subresources=tuple(subs),
        generation="generation" in traits,
        storage=plural if plural == "events" else f"{plural}.{group}" if group else plural,
        zero=_ZERO.get(kind, {}),
    )


RESOURCES: tuple[Resource, ...] = tuple(_resource(row) for row in _ROWS)
BY_PATH = {(r.group, r.version, r.plural): r for r in RESOURCES}
BY_KIND = {(r.api_version, r.kind): r for r in RESOURCES}
# Core comes first in the table, so "events" and "Event" mean the core ones.
_BY_WORD: dict[str, Resource] = {}
for _r in RESOURCES:
    for _word in (_r.plural, _r.kind, f"{_r.plural}.{_r.group}", f"{_r.api_version}/{_r.kind}"):
        _BY_WORD.setdefault(_word, _r)

PODS = BY_PATH["", "v1", "pods"]
NODES = BY_PATH["", "v1", "nodes"]
NAMESPACES = BY_PATH["", "v1", "namespaces"]
EVENTS = BY_PATH["", "v1", "events"]
PDBS = BY_PATH["policy", "v1", "poddisruptionbudgets"]
PRIORITY_CLASSES = BY_PATH["scheduling.k8s.io", "v1", "priorityclasses"]
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(r.group for r in RESOURCES if r.group))


def resolve(kind: str | Resource) -> Resource:
    """The resource that a word means: `pods`, `Pod`, `leases.coordination.k8s.io`, `apps/v1/ReplicaSet`.

    Raises KeyError where the table has none.
    """
    return kind if isinstance(kind, Resource) else _BY_WORD[kind]


def of_object(obj: dict[str, Any]) -> Resource:
    """The resource of an API object, by its apiVersion and kind; KeyError where it is not served."""
    return BY_KIND[obj.get("apiVersion", ""), obj.get("kind", "")]


# What the API refuses, as the `Status` object that a client reads.


class Cause(NamedTuple):
    """One line of `details.causes`; `field` is empty where the server gives none."""

    reason: str
    message: str
    field: str = ""


class ApiError(Exception):
    """A refusal: HTTP `code`, machine `reason`, `message`, `details`, and perhaps seconds to wait.

    `metadata` is that of the Status (an expired list carries its next token there).
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        retry_after: int = 0,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.metadata = metadata or {}

    def status(self) -> dict[str, Any]:
        """The body; key order as Go writes it, so that logs of both compare."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = dict(self.details) if self.details is not None else None
        if self.retry_after:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after}
        if details is not None:
            body["details"] = details
        body["code"] = self.code
        return body


def success(code: int | None = None, details: dict[str, Any] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    if code is not None:
        body["code"] = code
    return body


def _details(resource: Resource, name: str, kind: str | None = None) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details


def _with_group(word: str, group: str) -> str:
    return f"{word}.{group}" if group else word


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def unknown_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def modified(resource: Resource, name: str) -> ApiError:
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def conflict(resource: Resource, name: str, why: str, *, by_kind: bool = False, sub: str = "") -> ApiError:
    """409. Preconditions of a deletion name the kind where all else names the resource."""
    word = resource.kind if by_kind else resource.plural + (f"/{sub}" if sub else "")
    message = f'Operation cannot be fulfilled on {_with_group(word, resource.group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name, word))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def method_not_allowed(resource: Resource, what: str) -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {"kind": what or resource.plural})


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(resource, name))


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with one cause per broken field; like the server, the message says each thing once."""
    lines = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    said = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    message = f'{_with_group(kind, group)} "{name}" is invalid: {said}'
    return ApiError(422, "Invalid", message, details)


def too_many_requests(message: str, cause: Cause, retry_after: int = 0) -> ApiError:
    causes = [{"reason": cause.reason, "message": cause.message}]
    return ApiError(429, "TooManyRequests", message, {"causes": causes}, retry_after=retry_after)


def too_large_version(wanted: int, current: int) -> ApiError:
    """What a list gets that asks for a version which has not happened yet."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after=1,
    )


def expired(message: str, token: str = "") -> ApiError:
    return ApiError(410, "Expired", message, metadata={"continue": token} if token else None)


def watch_too_old(wanted: int, oldest: int) -> ApiError:
    return expired(f"too old resource version: {wanted} ({oldest})")
