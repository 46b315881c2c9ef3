"""The fields of each kind that are kept in a redacted snapshot, and which of them hold names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from rebalancer.admission import APP_ARMOR, INJECTING
from rebalancer.engine.state.storage import BETA_CLASS, BIND_COMPLETED
from rebalancer.model.decode.pods import RESIZE_PENDING, SANDBOX
from rebalancer.model.node import IMPLICIT, LEAVING_CONDITIONS, MACHINE_CONFIGS, Condition, is_trouble
from rebalancer.model.selectors import LABEL_VALUE
from rebalancer.model.snapshot import BUILT_IN
from rebalancer.model.workload import REVISION, UNASKED
from rebalancer.policy import owners, queues
from rebalancer.policy.annotations import LOCAL_VOLUMES
from rebalancer.policy.evictable import STEERING
from rebalancer.policy.replacement import ADDING, NODE_SELECTORS, added_by

# The rules that `redacted_fields` consists of: what is kept of one JSON value in a redacted snapshot.
#
# A rule takes a value and returns what is kept of it; None = nothing. It is called twice: with a `Naming`
# that collects names, and with one that replaces them. So where names stand is listed only once.


class Naming(Struct, frozen=True):
    """Maps names to names. `name`: of an object, or any other that people choose; `uid`: of an object; `key`:
    of a label or taint; `value`: that of a label or taint with a key; `resource`: what containers request
    and nodes have; `image`: of a container; `present_image`: on a node, None if no pod uses it."""

    name: Callable[[str], str]
    uid: Callable[[str], str]
    key: Callable[[str], str]
    value: Callable[[str, str], str]
    resource: Callable[[str], str]
    image: Callable[[str], str]
    present_image: Callable[[str], str | None]


Rule = Callable[[Any, Naming], Any]
_REASON = re.compile(r"[A-Za-z]{1,64}")
_REDACTED = "(redacted)"
_CONDITIONS = frozenset(
    {"Ready", "PodScheduled", "Initialized", "ContainersReady", "DisruptionTarget", "DisruptionAllowed"}
    | {"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Available", "Progressing"}
    | {"Drifted", "ReplicaFailure", RESIZE_PENDING, SANDBOX, *LEAVING_CONDITIONS}
)
_KNOWN_GROUPS = BUILT_IN | {"policy", "autoscaling", "argoproj.io", "kubernetes.io", owners.VOLCANO[:-1]}
_VERSION = re.compile(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?")
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


_WORD = re.compile(r"[A-Za-z0-9.+-][A-Za-z0-9./:+%_-]{0,252}|")
"""What the API's own words, times, quantities and qualified names are made of; sentences are not."""


def same(value: Any, _: Naming) -> Any:
    """A number, a truth or one of the API's own words; what somebody wrote in their place is redacted."""
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else _REDACTED
    return value if isinstance(value, int | float) else None


def api_version(value: Any, naming: Naming) -> str | None:
    """Group and version of an object's kind. A group is a name, unless Kubernetes or a rule has it."""
    if not isinstance(value, str):
        return None
    group, slash, version = value.rpartition("/")
    if not slash or group in _KNOWN_GROUPS or group.endswith((".k8s.io", ".x-k8s.io")):
        return str(same(value, naming))
    return f"{naming.name(group)}/{version if _VERSION.fullmatch(version) else 'v1'}"


def name(value: Any, naming: Naming) -> str | None:
    """A name; an empty one is kept."""
    if not isinstance(value, str):
        return None
    return naming.name(value) if value else ""


def uid(value: Any, naming: Naming) -> str | None:
    """A uid."""
    return naming.uid(value) if isinstance(value, str) else None


def key(value: Any, naming: Naming) -> str | None:
    """The key of a label or taint; the empty key of a toleration, which means all keys, is kept."""
    if not isinstance(value, str):
        return None
    return naming.key(value) if value else ""


def image(value: Any, naming: Naming) -> str | None:
    """The image of a container."""
    return naming.image(value) if isinstance(value, str) and value else None


def resource(value: Any, naming: Naming) -> str:
    """The name of a resource, which may hold that of a device class; what is no name is redacted."""
    text = str(value)
    if text.startswith(IMPLICIT):
        return IMPLICIT + naming.name(text.removeprefix(IMPLICIT))
    return naming.resource(text) if _WORD.fullmatch(text) else _REDACTED


def address(value: Any, naming: Naming) -> str | None:
    """The address of a host; the one that means all interfaces is kept."""
    return value if value in _ANY_ADDRESS else name(value, naming)


def labels(value: Any, naming: Naming) -> dict[str, str] | None:
    """Labels, or a mapping that selects labels."""
    if not isinstance(value, dict):
        return None
    pairs = ((k, v) for k, v in value.items() if isinstance(v, str))
    # A StatefulSet's status names the revisions that the labels of its pods name.
    named = {REVISION: naming.name}
    return {naming.key(k): named.get(k, partial(naming.value, k))(v) if v else "" for k, v in pairs}


def fields(**rules: Rule) -> Rule:
    """An object of which these fields are kept."""

    def apply(value: Any, naming: Naming) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        made = ((f, rule(value[f], naming)) for f, rule in rules.items() if value.get(f) is not None)
        return {f: v for f, v in made if v is not None}

    return apply


def each(rule: Rule) -> Rule:
    """A list to whose items a rule applies."""

    def apply(value: Any, naming: Naming) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        return [v for v in (rule(item, naming) for item in value) if v is not None]

    return apply


def keyed(names: Rule) -> Rule:
    """An object whose keys follow a rule and whose values are kept."""

    def apply(value: Any, naming: Naming) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        found = ((k, same(v, naming)) for k, v in value.items())
        return {names(k, naming): v for k, v in found if v is not None}

    return apply


def requirement(value: Any, naming: Naming) -> dict[str, Any] | None:
    """A requirement with key, operator and values; also a toleration or taint with its single value."""
    found: dict[str, Any] | None = fields(
        key=key, operator=same, effect=same, tolerationSeconds=same, timeAdded=same
    )(value, naming)
    if found is None:
        return None
    k = value.get("key") if isinstance(value.get("key"), str) else ""
    if isinstance(value.get("values"), list):
        found["values"] = [_asked_for(k, v, naming) for v in value["values"] if isinstance(v, str)]
    if isinstance(value.get("value"), str):
        found["value"] = naming.value(k, value["value"]) if value["value"] else ""
    return found


def _asked_for(k: str, text: str, naming: Naming) -> str:
    """A value of a requirement. What no label can have as its value stays such, as a pseudonym would not."""
    if k != "metadata.name" and not LABEL_VALUE.fullmatch(text):
        return _REDACTED
    return naming.value(k, text) if text else ""


def read_annotations(value: Any, naming: Naming) -> dict[str, str] | None:
    """Those that policy, planner or engine read, with values that mean something to them; of others, which
    people write for people, stays that there was one."""
    if not isinstance(value, dict):
        return None
    found = {
        k: v if _MEANS_SOMETHING.fullmatch(v.strip()) else _REDACTED
        for k, v in value.items()
        if isinstance(v, str) and k in _READ_ANNOTATIONS
    }
    for k in _NAMING_ANNOTATIONS & value.keys():
        found[k] = ",".join(naming.name(n) if n else "" for n in str(value[k]).split(","))
    for k in (k for k in value if k.startswith(APP_ARMOR)):
        said, container = str(value[k]), naming.name(k.removeprefix(APP_ARMOR))
        if said not in ("runtime/default", "unconfined"):
            said = f"localhost/{_REDACTED}" if said.startswith("localhost/") else _REDACTED
        found[f"{APP_ARMOR}{container}"] = said
    for k in set(ADDING) & value.keys():
        found[k] = _added(k, str(value[k]).strip(), naming)
    return found or None


def _added(annotation: str, said: str, naming: Naming) -> str:
    """A node selector or tolerations of a namespace; what cannot be read stays so."""
    if added_by({annotation: said}) is None:
        return _REDACTED
    if annotation not in NODE_SELECTORS:
        return json.dumps(each(requirement)(json.loads(said or "[]"), naming))
    pairs = (pair.partition("=") for pair in said.split(",") if pair.strip())
    chosen = labels({k.strip(): v.strip() for k, _, v in pairs}, naming) or {}
    return ",".join(f"{k}={v}" for k, v in chosen.items())


_NAMING_ANNOTATIONS = frozenset(
    ["volume.kubernetes.io/selected-node", BETA_CLASS, LOCAL_VOLUMES, *MACHINE_CONFIGS]
).union(owners.ANNOTATIONS, queues.QUEUES)
_READ_ANNOTATIONS = frozenset(
    {
        *STEERING,
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "deployment.kubernetes.io/revision",
        "storageclass.kubernetes.io/is-default-class",
        BIND_COMPLETED,
        *INJECTING,
    }
)
_MEANS_SOMETHING = re.compile(
    r"true|false|yes|no|allow|deny|prefer|avoid|never|api|file|http|enabled|disabled|ingress"
    r"|[+-]?[0-9]{1,20}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{1,15}(Z|[+-][0-9:]{2,5})?)?|",
    re.IGNORECASE,
)


def condition(value: Any, naming: Naming) -> dict[str, Any] | None:
    """A condition of the API. A message is kept only as the fact that there is one."""
    if not isinstance(value, dict) or value.get("type") not in _CONDITIONS:
        return None
    found: dict[str, Any] = fields(type=same, status=same, lastTransitionTime=same, observedGeneration=same)(
        value, naming
    )
    reason = value.get("reason")
    if isinstance(reason, str) and _REASON.fullmatch(reason):
        found["reason"] = reason
    if value.get("message"):
        found["message"] = next((say for say in UNASKED if say in str(value["message"])), _REDACTED)
    return found


def node_condition(value: Any, naming: Naming) -> dict[str, Any] | None:
    """A condition of a node; of one that anybody may have added, only whether it says that something is
    wrong."""
    found = condition(value, naming)
    if found is None and isinstance(value, dict):
        kind, status = value.get("type"), value.get("status")
        if isinstance(kind, str) and isinstance(status, str) and is_trouble(Condition(kind, status)):
            found = {"type": naming.name(kind) + "Ready" * (status == "False"), "status": status}
    return found


def present_images(value: Any, naming: Naming) -> list[dict[str, Any]] | None:
    """The images on a node that a pod uses."""
    found = []
    for item in value if isinstance(value, list) else ():
        every = item.get("names") if isinstance(item, dict) else None
        used = [naming.present_image(n) for n in every or () if isinstance(n, str)]
        if kept := list(dict.fromkeys(n for n in used if n is not None)):
            found.append({"names": kept, "sizeBytes": item.get("sizeBytes") or 0})
    return found


def quota(value: Any, naming: Naming) -> str:
    """The limits of a quota; a limit on a storage class contains the name of the class."""
    storage_class, mark, rest = str(value).partition(".storageclass.storage.k8s.io/")
    return f"{naming.name(storage_class)}{mark}{rest}" if mark else naming.resource(str(value))


_QUANTITIES = keyed(resource)
_CONDITION_LIST = each(condition)
_BOOST = fields(cpu=fields(type=same, factor=same, quantity=same, durationSeconds=same))
_OWNER = fields(
    apiVersion=api_version, kind=same, name=name, uid=uid, controller=same, blockOwnerDeletion=same
)
_META = {
    "namespace": name,
    "uid": uid,
    "resourceVersion": same,
    "generation": same,
    "creationTimestamp": same,
    "deletionTimestamp": same,
    "deletionGracePeriodSeconds": same,
    "labels": labels,
    "annotations": read_annotations,
    "ownerReferences": each(_OWNER),
}
META = fields(name=name, **_META)
_SELECTOR = fields(matchLabels=labels, matchExpressions=each(requirement))
_NODE_TERM = fields(matchExpressions=each(requirement), matchFields=each(requirement))
_NODE_SELECTOR = fields(nodeSelectorTerms=each(_NODE_TERM))
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_POD_TERM = fields(
    topologyKey=key,
    labelSelector=_SELECTOR,
    namespaces=each(name),
    namespaceSelector=_SELECTOR,
    matchLabelKeys=each(key),
    mismatchLabelKeys=each(key),
)
_POD_AFFINITY = fields(
    **{_REQUIRED: each(_POD_TERM), _PREFERRED: each(fields(weight=same, podAffinityTerm=_POD_TERM))}
)
_AFFINITY = fields(
    nodeAffinity=fields(
        **{_REQUIRED: _NODE_SELECTOR, _PREFERRED: each(fields(weight=same, preference=_NODE_TERM))}
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
_RESOURCES = fields(requests=_QUANTITIES, limits=_QUANTITIES)
_PROFILE = fields(type=same)
_SECURITY = fields(
    **dict.fromkeys(
        ("privileged", "allowPrivilegeEscalation", "runAsNonRoot", "runAsUser", "procMount"), same
    ),
    supplementalGroupsPolicy=same,
    capabilities=fields(add=each(same), drop=each(same)),
    seLinuxOptions=fields(type=same, user=name, role=name),
    seccompProfile=_PROFILE,
    appArmorProfile=_PROFILE,
    windowsOptions=fields(hostProcess=same),
    sysctls=each(fields(name=same)),
)
_HANDLER = fields(httpGet=fields(host=address), tcpSocket=fields(host=address))
_CONTAINER = fields(
    name=name,
    securityContext=_SECURITY,
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _HANDLER),
    lifecycle=fields(postStart=_HANDLER, preStop=_HANDLER),
    image=image,
    imagePullPolicy=same,
    resources=_RESOURCES,
    restartPolicy=same,
    restartPolicyRules=each(fields(action=same)),
    volumeMounts=each(fields(bindMountOptions=each(same), recursiveReadOnly=same)),
    ports=each(fields(hostPort=same, containerPort=same, protocol=same, hostIP=address)),
)
_CONTAINER_STATUS = fields(
    name=name,
    allocatedResources=_QUANTITIES,
    resources=_RESOURCES,
    started=same,
    state=fields(
        waiting=fields(reason=same), running=fields(startedAt=same), terminated=fields(finishedAt=same)
    ),
    lastState=fields(terminated=fields(finishedAt=same)),
)
_SPREAD = fields(
    maxSkew=same,
    topologyKey=key,
    whenUnsatisfiable=same,
    labelSelector=_SELECTOR,
    minDomains=same,
    nodeAffinityPolicy=same,
    nodeTaintsPolicy=same,
    matchLabelKeys=each(key),
)
_CLAIM_SPEC = fields(
    accessModes=each(same),
    storageClassName=name,
    volumeName=name,
    volumeMode=same,
    volumeAttributesClassName=name,
    resources=_RESOURCES,
    selector=_SELECTOR,
)
_EMPTY = fields()
_DISKS: dict[str, Rule] = {
    "gcePersistentDisk": fields(pdName=name, readOnly=same),
    "awsElasticBlockStore": fields(volumeID=name, readOnly=same),
    "azureDisk": fields(diskName=name, readOnly=same),
    **dict.fromkeys(("cinder", "portworxVolume"), fields(volumeID=name, readOnly=same)),
}
_VOLUME = fields(
    name=name,
    persistentVolumeClaim=fields(claimName=name, readOnly=same),
    ephemeral=fields(volumeClaimTemplate=fields(spec=_CLAIM_SPEC)),
    hostPath=_EMPTY,
    emptyDir=_EMPTY,
    csi=fields(driver=same, readOnly=same),
    image=fields(reference=image, pullPolicy=same),
    iscsi=fields(iqn=name, readOnly=same),
    rbd=fields(pool=name, image=name, monitors=each(name), readOnly=same),
    **_DISKS,
    # Of the rest a restricted level of Pod Security forbids these.
    **dict.fromkeys(
        ("nfs", "cephfs", "fc", "flexVolume", "flocker", "gitRepo", "glusterfs", "azureFile"),
        _EMPTY,
    ),
    **dict.fromkeys(("photonPersistentDisk", "quobyte", "scaleIO", "storageos"), _EMPTY),
    vsphereVolume=_EMPTY,
)


def _scheduled_volumes(value: Any, naming: Naming) -> list[Any] | None:
    """Volumes that the scheduler looks at. Of all others (secrets, config maps) only the name is kept."""
    found = each(_VOLUME)(value, naming)
    return [v for v in found if len(v) > 1] if found else None


POD_SPEC = fields(
    nodeName=name,
    containers=each(_CONTAINER),
    initContainers=each(_CONTAINER),
    nodeSelector=labels,
    affinity=_AFFINITY,
    tolerations=each(requirement),
    topologySpreadConstraints=each(_SPREAD),
    overhead=_QUANTITIES,
    resources=_RESOURCES,
    volumes=_scheduled_volumes,
    priority=same,
    priorityClassName=name,
    preemptionPolicy=same,
    schedulerName=same,
    schedulingGates=each(fields(name=name)),
    resourceClaims=each(fields(name=name)),
    schedulingGroup=fields(podGroupName=name),
    workloadRef=fields(name=name, podGroup=name),
    evictionResponders=each(fields(name=name)),
    hostNetwork=same,
    hostPID=same,
    hostIPC=same,
    os=fields(name=same),
    securityContext=_SECURITY,
    serviceAccountName=name,
    runtimeClassName=name,
    hostUsers=same,
    terminationGracePeriodSeconds=same,
    restartPolicy=same,
    activeDeadlineSeconds=same,
)
_TEMPLATE = fields(metadata=fields(labels=labels, annotations=read_annotations), spec=POD_SPEC)
_STRATEGY = fields(type=same, rollingUpdate=fields(partition=same, maxSurge=same, maxUnavailable=same))
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas")
_ON_NODES = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
_OTHER_COUNTS = ("fullyLabeledReplicas", *_ON_NODES)
_STATUS = fields(
    **dict.fromkeys((*_COUNTS, *_OTHER_COUNTS, "observedGeneration", "active", "succeeded", "failed"), same),
    currentRevision=name,
    updateRevision=name,
    conditions=_CONDITION_LIST,
)


_WORKLOAD_WORDS = (
    "replicas",
    "paused",
    "suspend",
    "minReadySeconds",
    "podManagementPolicy",
    "completions",
    "parallelism",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
)
_BUDGET_COUNTS = (
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
    "observedGeneration",
)


def _workload(selector: Rule) -> Rule:
    return fields(
        metadata=META,
        spec=fields(
            **dict.fromkeys(_WORKLOAD_WORDS, same),
            selector=selector,
            template=_TEMPLATE,
            strategy=_STRATEGY,
            updateStrategy=_STRATEGY,
            serviceName=name,
            managedBy=api_version,
            ordinals=fields(start=same),
            volumeClaimTemplates=each(fields(metadata=META, spec=_CLAIM_SPEC)),
        ),
        status=_STATUS,
    )


_PHASE = fields(phase=same)
_SCALED = fields(apiVersion=api_version, kind=same, name=name)
KINDS: dict[str, Rule] = {
    "Node": fields(
        metadata=META,
        spec=fields(unschedulable=same, taints=each(requirement)),
        status=fields(
            allocatable=_QUANTITIES,
            capacity=_QUANTITIES,
            conditions=each(node_condition),
            images=present_images,
            runtimeHandlers=each(
                fields(name=name, features=fields(userNamespaces=same, recursiveReadOnlyMounts=same))
            ),
            features=fields(supplementalGroupsPolicy=same),
            nodeInfo=fields(kubeletVersion=same, osImage=same),
        ),
    ),
    "Pod": fields(
        metadata=fields(name=name, finalizers=each(name), **_META),
        spec=POD_SPEC,
        status=fields(
            phase=same,
            reason=same,
            conditions=_CONDITION_LIST,
            nominatedNodeName=name,
            startTime=same,
            containerStatuses=each(_CONTAINER_STATUS),
            initContainerStatuses=each(_CONTAINER_STATUS),
            ephemeralContainerStatuses=each(_CONTAINER_STATUS),
            allocatedResources=_QUANTITIES,
            resources=_RESOURCES,
            extendedResourceClaimStatus=fields(resourceClaimName=name),
            nodeAllocatableResourceClaimStatuses=each(fields(resourceClaimName=name)),
        ),
    ),
    "Namespace": fields(metadata=META),
    "Service": fields(metadata=META, spec=fields(selector=labels, type=same)),
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"), _workload(_SELECTOR)),
    "ReplicationController": _workload(labels),
    "ControllerRevision": fields(metadata=META, revision=same),
    "PodDisruptionBudget": fields(
        metadata=META,
        spec=fields(
            selector=_SELECTOR, minAvailable=same, maxUnavailable=same, unhealthyPodEvictionPolicy=same
        ),
        status=fields(
            **dict.fromkeys(
                _BUDGET_COUNTS,
                same,
            ),
            disruptedPods=keyed(name),
        ),
    ),
    "PriorityClass": fields(metadata=META, value=same, globalDefault=same, preemptionPolicy=same),
    "HorizontalPodAutoscaler": fields(
        metadata=META,
        spec=fields(scaleTargetRef=_SCALED, minReplicas=same, maxReplicas=same),
    ),
    "ResourceQuota": fields(
        metadata=META,
        spec=fields(
            hard=keyed(quota),
            scopes=each(same),
            scopeSelector=fields(
                matchExpressions=each(fields(scopeName=same, operator=same, values=each(name)))
            ),
        ),
        status=fields(hard=keyed(quota), used=keyed(quota)),
    ),
    "PersistentVolume": fields(
        metadata=META,
        spec=fields(
            capacity=_QUANTITIES,
            accessModes=each(same),
            storageClassName=name,
            volumeMode=same,
            volumeAttributesClassName=name,
            persistentVolumeReclaimPolicy=same,
            claimRef=fields(apiVersion=api_version, kind=same, name=name, namespace=name, uid=uid),
            nodeAffinity=fields(required=_NODE_SELECTOR),
            csi=fields(driver=same, volumeHandle=name),
            hostPath=fields(type=same),
            **_DISKS,
        ),
        status=_PHASE,
    ),
    "PersistentVolumeClaim": fields(metadata=META, spec=_CLAIM_SPEC, status=_PHASE),
    "StorageClass": fields(
        metadata=META,
        provisioner=same,
        reclaimPolicy=same,
        volumeBindingMode=same,
        allowedTopologies=each(fields(matchLabelExpressions=each(requirement))),
    ),
    "CSINode": fields(
        metadata=META,
        spec=fields(
            drivers=each(
                fields(name=same, nodeID=name, topologyKeys=each(key), allocatable=fields(count=same))
            )
        ),
    ),
    "VolumeAttachment": fields(
        metadata=META,
        spec=fields(attacher=same, nodeName=name, source=fields(persistentVolumeName=name)),
        status=fields(attached=same),
    ),
    "CSIDriver": fields(
        metadata=fields(name=same, **_META),
        spec=fields(storageCapacity=same, attachRequired=same, preventPodSchedulingIfMissing=same),
    ),
    "CSIStorageCapacity": fields(
        metadata=META,
        storageClassName=name,
        nodeTopology=_SELECTOR,
        capacity=same,
        maximumVolumeSize=same,
    ),
    "VerticalPodAutoscaler": fields(
        metadata=META,
        spec=fields(
            targetRef=_SCALED,
            updatePolicy=fields(updateMode=same),
            startupBoost=_BOOST,
            resourcePolicy=fields(
                containerPolicies=each(
                    fields(containerName=name, mode=same, controlledValues=same, startupBoost=_BOOST)
                )
            ),
        ),
        status=fields(
            recommendation=fields(
                containerRecommendations=each(fields(containerName=name, target=_QUANTITIES))
            )
        ),
    ),
    "DeviceClass": fields(metadata=META, spec=fields(extendedResourceName=resource)),
    "RuntimeClass": fields(
        metadata=META,
        handler=name,
        overhead=fields(podFixed=_QUANTITIES),
        scheduling=fields(nodeSelector=labels, tolerations=each(requirement)),
    ),
    "NodePool": fields(
        metadata=META,
        spec=fields(
            template=fields(
                metadata=fields(labels=labels),
                spec=fields(requirements=each(requirement), taints=each(requirement)),
            ),
            disruption=fields(budgets=each(fields(nodes=same, reasons=each(same), schedule=same))),
            limits=_QUANTITIES,
            replicas=same,
        ),
        status=fields(resources=_QUANTITIES, conditions=_CONDITION_LIST),
    ),
    "NodeClaim": fields(
        metadata=META,
        spec=fields(expireAfter=same, terminationGracePeriod=same),
        status=fields(nodeName=name, conditions=_CONDITION_LIST),
    ),
}
