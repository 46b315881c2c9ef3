"""Where each kind lives in the API."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.snapshot import ADD_ONS, consequence

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class Resource(Struct, frozen=True):
    """A kind's place in the API.

    `metadata_only`: nothing but metadata is read, so that the server is asked to leave out the rest.
    `within`: the only namespace in which objects are listed and watched; "" = all.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    metadata_only: bool = False
    within: str = ""

    def parts(self, namespaces: Iterable[str]) -> tuple[Resource, ...]:
        """The kind in each of these namespaces; as a whole where there are none, or where it has none."""
        return tuple(replace(self, within=n) for n in namespaces if self.namespaced) or (self,)

    @property
    def api_version(self) -> str:
        """group/version, as an object says it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """plural.group, as `kubectl auth can-i` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def without(self) -> str:
        """What follows where it may not be listed; "" for what nothing can be decided without."""
        return consequence(self.kind)

    @property
    def add_on(self) -> bool:
        """Whether a cluster need not have it: where it is not served there are none, and no plan waits for
        it."""
        return self.kind in ADD_ONS

    @property
    def lists(self) -> tuple[str, ...]:
        """The kinds of a list of them: what is any other was answered for something else."""
        return f"{self.kind}List", *(("PartialObjectMetadataList",) if self.metadata_only else ())

    @property
    def accept(self) -> str:
        """The Accept header of a list."""
        return _METADATA_LIST if self.metadata_only else "application/json"

    @property
    def watch_accept(self) -> str:
        """The Accept header of a watch."""
        return _METADATA if self.metadata_only else "application/json"

    def unknown(self, why: object) -> str:
        """The warning that goes with planning without this kind."""
        return f"{self.qualified} cannot be listed: {self.without} ({why})"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a list or an object, every part escaped."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if (namespace := namespace or self.within) and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(p, safe="") for p in (name, subresource) if p]
        return "/".join(parts)


_ALL = (
    Resource("Node", "", "v1", "nodes", namespaced=False),
    Resource("Pod", "", "v1", "pods"),
    Resource("Namespace", "", "v1", "namespaces", namespaced=False, metadata_only=True),
    Resource("Service", "", "v1", "services"),
    Resource("ReplicaSet", "apps", "v1", "replicasets"),
    Resource("StatefulSet", "apps", "v1", "statefulsets"),
    Resource("ReplicationController", "", "v1", "replicationcontrollers"),
    Resource("Deployment", "apps", "v1", "deployments"),
    Resource("DaemonSet", "apps", "v1", "daemonsets"),
    Resource("Job", "batch", "v1", "jobs"),
    Resource("ControllerRevision", "apps", "v1", "controllerrevisions", metadata_only=True),
    Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    Resource("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
    Resource("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"),
    Resource("ResourceQuota", "", "v1", "resourcequotas"),
    Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    Resource("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False),
    Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False),
    Resource("CSINode", "storage.k8s.io", "v1", "csinodes", namespaced=False),
    Resource("VolumeAttachment", "storage.k8s.io", "v1", "volumeattachments", namespaced=False),
    Resource("CSIDriver", "storage.k8s.io", "v1", "csidrivers", namespaced=False),
    Resource("CSIStorageCapacity", "storage.k8s.io", "v1", "csistoragecapacities"),
    Resource("VerticalPodAutoscaler", "autoscaling.k8s.io", "v1", "verticalpodautoscalers"),
    Resource("DeviceClass", "resource.k8s.io", "v1", "deviceclasses", namespaced=False),
    Resource("NodeClaim", "karpenter.sh", "v1", "nodeclaims", namespaced=False),
    Resource("NodePool", "karpenter.sh", "v1", "nodepools", namespaced=False),
)

RESOURCES: dict[str, Resource] = {r.kind: r for r in _ALL}
"""Every kind that is read, in the order in which lists are started: the long ones first."""
NAMED = {
    r.kind: r
    for r in (
        Resource("ServiceAccount", "", "v1", "serviceaccounts"),
        Resource("RuntimeClass", "node.k8s.io", "v1", "runtimeclasses", namespaced=False),
        RESOURCES["PriorityClass"],
    )
}
"""Kinds of which single objects are read, by the names that templates give."""
LIMIT_RANGES = Resource("LimitRange", "", "v1", "limitranges")
"""Read where pods are about to be evicted only, as few namespaces have one."""
ENDPOINT_SLICES = Resource("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices")
"""Read before the old pod of a replacement that came first goes."""
LABEL_USERS = tuple(
    Resource(kind, group, "", plural, namespaced)
    for kind, group, plural, namespaced in (
        ("NetworkPolicy", "networking.k8s.io", "networkpolicies", True),
        ("AdminNetworkPolicy", "policy.networking.k8s.io", "adminnetworkpolicies", False),
        ("BaselineAdminNetworkPolicy", "policy.networking.k8s.io", "baselineadminnetworkpolicies", False),
        ("ClusterNetworkPolicy", "policy.networking.k8s.io", "clusternetworkpolicies", False),
        ("DestinationRule", "networking.istio.io", "destinationrules", True),
        ("EnvoyFilter", "networking.istio.io", "envoyfilters", True),
        ("Gateway", "networking.istio.io", "gateways", True),
        ("ServiceEntry", "networking.istio.io", "serviceentries", True),
        ("Sidecar", "networking.istio.io", "sidecars", True),
        ("AuthorizationPolicy", "security.istio.io", "authorizationpolicies", True),
        ("PeerAuthentication", "security.istio.io", "peerauthentications", True),
        ("RequestAuthentication", "security.istio.io", "requestauthentications", True),
        ("Telemetry", "telemetry.istio.io", "telemetries", True),
        ("WasmPlugin", "extensions.istio.io", "wasmplugins", True),
        ("Server", "policy.linkerd.io", "servers", True),
        ("CiliumNetworkPolicy", "cilium.io", "ciliumnetworkpolicies", True),
        ("CiliumClusterwideNetworkPolicy", "cilium.io", "ciliumclusterwidenetworkpolicies", False),
        ("CiliumEgressGatewayPolicy", "cilium.io", "ciliumegressgatewaypolicies", False),
        ("CiliumLocalRedirectPolicy", "cilium.io", "ciliumlocalredirectpolicies", True),
        ("NetworkPolicy", "crd.projectcalico.org", "networkpolicies", True),
        ("GlobalNetworkPolicy", "crd.projectcalico.org", "globalnetworkpolicies", False),
        ("NetworkPolicy", "projectcalico.org", "networkpolicies", True),
        ("GlobalNetworkPolicy", "projectcalico.org", "globalnetworkpolicies", False),
        ("NetworkPolicy", "crd.antrea.io", "networkpolicies", True),
        ("ClusterNetworkPolicy", "crd.antrea.io", "clusternetworkpolicies", False),
        ("Group", "crd.antrea.io", "groups", True),
        ("ClusterGroup", "crd.antrea.io", "clustergroups", False),
        ("SecurityGroupPolicy", "vpcresources.k8s.aws", "securitygrouppolicies", True),
        ("PodMonitor", "monitoring.coreos.com", "podmonitors", True),
    )
)
"""Kinds that select pods by labels, in whatever version the server has them. They are read only where pods
may be replaced first, which takes a label from them, and are in no snapshot."""
_OF_DRIVERS = frozenset({"CSIStorageCapacity"})
"""Kinds whose objects are in namespaces of drivers, wherever the pods are that they matter to."""


def kinds_within(namespaces: Collection[str]) -> frozenset[str]:
    """The kinds of which all that matters can be read where only these namespaces are; empty = all are."""
    return frozenset(RESOURCES) - (_OF_DRIVERS if namespaces else frozenset())


# Fields and types of the API's objects, as the client's generated models have them.

_MODELS = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"), "V1"),
    **dict.fromkeys(("Job", "CronJob", "Pod", "ReplicationController", "PodDisruptionBudget"), "V1"),
}
_TEMPLATE = "V1PodTemplateSpec"
_LIST = re.compile(r"[Ll]ist\[(.+)\]")
_MAPPING = re.compile(r"[Dd]ict\[[^,]+, (.+)\]")
_PLAIN: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "datetime": ((str,), "a time"),
}
"""JSON types that a value of a type may have, and what it is called. `object` stands for anything: an amount,
a number or a percentage."""


def problems(kind: str, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, what is wrong) for fields that do not exist and values of the wrong type.

    Of a kind that is not Kubernetes' own, the pod template in spec.template is looked at.
    """
    if kind in _MODELS:
        yield from _check(value, f"{_MODELS[kind]}{kind}", "")
    else:
        spec = value.get("spec")
        if isinstance(spec, dict):
            yield from _check(spec.get("template"), _TEMPLATE, "spec.template")


@cache
def _fields(model: str) -> dict[str, str] | None:
    """Field → type; None if there is no such model."""
    from kubernetes.client import models

    found = getattr(models, model, None)
    if found is None:
        return None
    return {json: found.openapi_types[name] for name, json in found.attribute_map.items()}


def _check(value: Any, type_: str, path: str) -> Iterator[tuple[str, str]]:
    if value is None or type_ == "object":
        return
    if (listed := _LIST.fullmatch(type_)) is not None:
        if not isinstance(value, list):
            yield path, f"a list is expected, not {_called(value)}"
            return
        for i, item in enumerate(value):
            yield from _check(item, listed.group(1), f"{path}[{i}]")
    elif (mapping := _MAPPING.fullmatch(type_)) is not None:
        if not isinstance(value, dict):
            yield path, f"a mapping is expected, not {_called(value)}"
            return
        for key, item in value.items():
            yield from _check(item, mapping.group(1), f"{path}.{key}")
    elif type_ in _PLAIN:
        allowed, name = _PLAIN[type_]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            yield path, f"{name} is expected, not {_called(value)}"
    elif (fields := _fields(type_)) is not None:
        yield from _members(value, fields, path)


def _members(value: Any, fields: dict[str, str], path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"a mapping is expected, not {_called(value)}"
        return
    for key, item in value.items():
        inner = f"{path}.{key}" if path else str(key)
        if key not in fields:
            similar = get_close_matches(str(key), fields, 1)
            meant = f", {similar[0]} is meant" if similar else ""
            yield inner, f"unknown field {key!r}{meant}"
        else:
            yield from _check(item, fields[key], inner)


def _called(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)
