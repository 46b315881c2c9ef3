"""Builders of pods, and of what owners and their pods have in common."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Self

from tests.support.build.base import CREATED, KEYS, Builder, metadata, reference
from tests.support.scheduler.plain import Json

_OWN = object()
"""Stands for "the selector that selects the pod itself by its app label"."""


class PodShape(Builder):
    """Labels and spec of a pod: shared by pods and by owners with their templates."""

    def __init__(self, api_version: str, kind: str, name: str, *, namespace: str) -> None:
        super().__init__(api_version, kind, name, namespace=namespace)
        self.pod_labels: dict[str, str] = {"app": name}
        self.pod_annotations: dict[str, str] = {}
        self._spreads: list[tuple[Json, Any]] = []
        self._spec: Json = {
            "containers": [
                {
                    "name": "c",
                    "image": "registry.example/app:1",
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 1,
            "schedulerName": "default-scheduler",
            "priority": 0,
        }

    def labels(self, **labels: str) -> Self:
        """Further pod labels; `labels(app=...)` replaces the one that the name gives."""
        return self.label_map(labels)

    def label_map(self, labels: dict[str, str]) -> Self:
        """Further pod labels, any names."""
        self.pod_labels.update(labels)
        return self

    def requests(self, **quantities: str | int) -> Self:
        """What its container asks for; extended resources through `asks`."""
        return self.asks(dict(quantities))

    def asks(self, quantities: dict[str, str | int]) -> Self:
        """What its container asks for, any resource names."""
        asked = self._spec["containers"][0]["resources"]["requests"]
        asked.update({name: str(q) for name, q in quantities.items()})
        return self

    def spread(
        self,
        key: str,
        max_skew: int = 1,
        *,
        selector: dict[str, str] | Json | object | None = _OWN,
        min_domains: int | None = None,
        affinity_policy: str = "",
        taints_policy: str = "",
        match_label_keys: tuple[str, ...] = (),
        soft: bool = False,
    ) -> Self:
        """With a spread constraint; by default over the pods of the same app label.

        `selector`: matchLabels as a flat dict, or a whole LabelSelector, or None for an absent one.
        """
        written: Json = {
            "maxSkew": max_skew,
            "topologyKey": KEYS.get(key, key),
            "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
        }
        if min_domains is not None:
            written["minDomains"] = min_domains
        if affinity_policy:
            written["nodeAffinityPolicy"] = affinity_policy
        if taints_policy:
            written["nodeTaintsPolicy"] = taints_policy
        if match_label_keys:
            written["matchLabelKeys"] = list(match_label_keys)
        self._spreads.append((written, selector))
        return self

    def tolerates(self, key: str, value: str = "", effect: str = "", seconds: int | None = None) -> Self:
        """Tolerating a taint: of any value if none is given, for so many seconds if they are."""
        t: Json = {"key": key, "operator": "Equal" if value else "Exists"}
        t.update({"value": value} if value else {}, **({"effect": effect} if effect else {}))
        t.update({} if seconds is None else {"tolerationSeconds": seconds})
        self._spec.setdefault("tolerations", []).append(t)
        return self

    def selects(self, **labels: str) -> Self:
        """With a nodeSelector; short keys are spelled out."""
        chosen = {KEYS.get(k, k): v for k, v in labels.items()}
        self._spec.setdefault("nodeSelector", {}).update(chosen)
        return self

    def needs(self, key: str, operator: str, *values: str) -> Self:
        """With a required node affinity of one term; further calls add expressions to it."""
        affinity = self._spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required = affinity.setdefault(
            "requiredDuringSchedulingIgnoredDuringExecution",
            {"nodeSelectorTerms": [{"matchExpressions": []}]},
        )
        expression: Json = {"key": KEYS.get(key, key), "operator": operator}
        required["nodeSelectorTerms"][0]["matchExpressions"].append(
            {**expression, "values": list(values)} if values else expression
        )
        return self

    def near(self, key: str, **labels: str) -> Self:
        """With required affinity to pods of these labels in its namespace."""
        return self._to_pods("podAffinity", key, labels)

    def away_from(self, key: str, **labels: str) -> Self:
        """With required anti-affinity to pods of these labels in its namespace."""
        return self._to_pods("podAntiAffinity", key, labels)

    def _to_pods(self, kind: str, key: str, labels: dict[str, str]) -> Self:
        affinity = self._spec.setdefault("affinity", {}).setdefault(kind, {})
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": KEYS.get(key, key)}
        affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
        return self

    def host_port(self, port: int, protocol: str = "TCP") -> Self:
        """Taking a port of its node."""
        ports = self._spec["containers"][0].setdefault("ports", [])
        ports.append({"containerPort": port, "hostPort": port, "protocol": protocol})
        return self

    def priority(self, value: int) -> Self:
        """With a priority."""
        self._spec["priority"] = value
        return self

    def restarts(self, policy: str) -> Self:
        """With another restartPolicy than Always."""
        self._spec["restartPolicy"] = policy
        return self

    def spec(self) -> Json:
        """The pod spec, unassigned."""
        spec = deepcopy(self._spec)
        if self._spreads:
            spec["topologySpreadConstraints"] = [
                self._with_selector(written, selector) for written, selector in self._spreads
            ]
        return spec

    def template_spec(self) -> Json:
        """The spec that an owner's template has. A pod's priority is what admission gives it."""
        return {key: value for key, value in self.spec().items() if key != "priority"}

    def _with_selector(self, written: Json, selector: Any) -> Json:
        if selector is None:
            return dict(written)
        if selector is _OWN:
            selector = {"app": self.pod_labels["app"]} if "app" in self.pod_labels else self.pod_labels
        whole = "matchLabels" in selector or "matchExpressions" in selector or not selector
        return {**written, "labelSelector": dict(selector) if whole else {"matchLabels": dict(selector)}}


class PodBuilder(PodShape):
    """A pod: Running and Ready once it is on a node, Pending and unschedulable before."""

    def __init__(self, name: str, namespace: str = "default") -> None:
        super().__init__("v1", "Pod", name, namespace=namespace)
        self._node = ""
        self._phase = ""
        self._ready = True
        self._owner: Json | None = None
        self._volumes: list[Json] = []
        self._deleted = False

    def on(self, node: str) -> Self:
        """Assigned to a node."""
        self._node = node
        return self

    def owned_by(self, kind: str, name: str, api_version: str = "apps/v1") -> Self:
        """With a controller."""
        self._owner = reference(api_version, kind, self.object["metadata"]["namespace"], name)
        return self

    def mounts(self, claim: str) -> Self:
        """Mounting a claim."""
        self._volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
        return self

    def terminating(self) -> Self:
        """Being deleted."""
        self._deleted = True
        return self

    def phase(self, phase: str) -> Self:
        """In a phase other than the one that its node implies."""
        self._phase = phase
        return self

    def unready(self) -> Self:
        """Running, not Ready."""
        self._ready = False
        return self

    def build(self) -> list[Json]:
        """The pod."""
        meta = self.object["metadata"]
        made = pod_object(
            meta["name"],
            meta["namespace"],
            self.pod_labels,
            self.spec(),
            node=self._node,
            owner=self._owner,
            phase=self._phase,
            is_ready=self._ready,
        )
        if self._volumes:
            made["spec"]["volumes"] = deepcopy(self._volumes)
        annotations = {**meta.get("annotations", {}), **self.pod_annotations}
        if annotations:
            made["metadata"]["annotations"] = annotations
        if self._deleted:
            made["metadata"]["deletionTimestamp"] = "2026-05-31T23:59:59Z"
            made["metadata"]["deletionGracePeriodSeconds"] = 1
        return [made]


def pod_object(
    name: str,
    namespace: str,
    labels: dict[str, str],
    spec: Json,
    *,
    node: str = "",
    owner: Json | None = None,
    phase: str = "",
    is_ready: bool = True,
) -> Json:
    """A pod as the API server prints it."""
    meta = metadata("Pod", namespace, name)
    meta["labels"] = dict(labels)
    if owner is not None:
        meta["ownerReferences"] = [owner]
    spec = deepcopy(spec)
    if node:
        spec["nodeName"] = node
    phase = phase or ("Running" if node else "Pending")
    status: Json = {"phase": phase}
    if node:
        status["startTime"] = CREATED
        running = "True" if is_ready and phase == "Running" else "False"
        status["conditions"] = [
            {"type": t, "status": s, "lastTransitionTime": CREATED}
            for t, s in (
                ("PodScheduled", "True"),
                ("Initialized", "True"),
                ("ContainersReady", running),
                ("Ready", running),
            )
        ]
    else:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0 nodes are available",
                "lastTransitionTime": CREATED,
            }
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def pod(name: str, namespace: str = "default") -> PodBuilder:
    """A pod."""
    return PodBuilder(name, namespace)
