"""Fields that no known version has: the scheduler of one that is newer may read them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw


def _object(fields: str, **parts: Any) -> Any:
    """An object, or null, with these fields and no others; those of `parts` are looked into."""
    named = [(f, parts.get(f, Raw), None) for f in fields.split()]
    return msgspec.defstruct("Known", named, forbid_unknown_fields=True) | None


_list: Any = list
_REQUIRED, _PREFERRED = (f"{way}DuringSchedulingIgnoredDuringExecution" for way in ("required", "preferred"))


def _affinity(required: Any, term: str, part: Any) -> Any:
    preferred = _object(f"weight {term}", **{term: part})
    return _object(f"{_REQUIRED} {_PREFERRED}", **{_REQUIRED: required, _PREFERRED: _list[preferred] | None})


_SELECTOR = _object("matchLabels matchExpressions")
_POD_TERM = _object(
    "labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys",
    labelSelector=_SELECTOR,
    namespaceSelector=_SELECTOR,
)
_NODE_TERM = _object("matchExpressions matchFields")
_POD_AFFINITY = _affinity(_list[_POD_TERM] | None, "podAffinityTerm", _POD_TERM)
_RESOURCES = _object("limits requests claims")
_CONTAINERS = _list[
    _object(
        "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy "
        "restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle "
        "terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty",
        ports=_list[_object("name hostPort containerPort protocol hostIP")] | None,
        resources=_RESOURCES,
    )
]
_POD = _object(
    "apiVersion kind metadata spec status",
    spec=_object(
        "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds "
        "activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName serviceAccount "
        "automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace "
        "securityContext imagePullSecrets hostname subdomain affinity schedulerName tolerations hostAliases "
        "priorityClassName priority dnsConfig readinessGates runtimeClassName enableServiceLinks "
        "preemptionPolicy overhead topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates "
        "resourceClaims resources hostnameOverride workloadRef schedulingGroup evictionResponders",
        containers=_CONTAINERS | None,
        initContainers=_CONTAINERS | None,
        resources=_RESOURCES,
        tolerations=_list[_object("key operator value effect tolerationSeconds")] | None,
        affinity=_object(
            "nodeAffinity podAffinity podAntiAffinity",
            nodeAffinity=_affinity(
                _object("nodeSelectorTerms", nodeSelectorTerms=_list[_NODE_TERM] | None),
                "preference",
                _NODE_TERM,
            ),
            podAffinity=_POD_AFFINITY,
            podAntiAffinity=_POD_AFFINITY,
        ),
        topologySpreadConstraints=_list[
            _object(
                "maxSkew topologyKey whenUnsatisfiable labelSelector minDomains nodeAffinityPolicy "
                "nodeTaintsPolicy matchLabelKeys",
                labelSelector=_SELECTOR,
            )
        ]
        | None,
    ),
    status=_object(
        "observedGeneration phase conditions message reason nominatedNodeName hostIP hostIPs podIP podIPs "
        "startTime initContainerStatuses containerStatuses qosClass ephemeralContainerStatuses resize "
        "resourceClaimStatuses extendedResourceClaimStatus allocatedResources resources "
        "nodeAllocatableResourceClaimStatuses"
    ),
)
_NODE = _object(
    "apiVersion kind metadata spec status",
    spec=_object(
        "podCIDR podCIDRs providerID unschedulable taints configSource externalID",
        taints=_list[_object("key value effect timeAdded")] | None,
    ),
    status=_object(
        "capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images volumesInUse "
        "volumesAttached config runtimeHandlers features declaredFeatures"
    ),
)
_STRICT = {kind: msgspec.json.Decoder(whole) for kind, whole in (("Pod", _POD), ("Node", _NODE))}
LOOKED_INTO = _STRICT.keys()


def unknown_field(kind: str, raw: bytes | Raw) -> str:
    """Where an object of these kinds has a field that no known version has, in words; "" if it has none."""
    try:
        _STRICT[kind].decode(raw)
    except msgspec.DecodeError as e:
        return f"{kind}: {e}"
    return ""
