"""The fields of each kind that are kept in a redacted snapshot, and which of them hold names."""

from __future__ import annotations

from typing import Any

from rebalancer.manifests.redaction.rules import (
    Naming,
    Rule,
    address,
    api_version,
    condition,
    each,
    fields,
    image,
    key,
    keyed,
    labels,
    name,
    present_images,
    quota,
    read_annotations,
    requirement,
    resource,
    same,
    uid,
)

_QUANTITIES = keyed(resource)
_CONDITION_LIST = each(condition)
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
    resources=_RESOURCES,
    restartPolicy=same,
    restartPolicyRules=each(fields(action=same)),
    volumeMounts=each(fields(bindMountOptions=each(same))),
    ports=each(fields(hostPort=same, containerPort=same, protocol=same, hostIP=address)),
)
_CONTAINER_STATUS = fields(
    name=name,
    allocatedResources=_QUANTITIES,
    resources=_RESOURCES,
    state=fields(waiting=fields(reason=same)),
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
}
_VOLUME = fields(
    name=name,
    persistentVolumeClaim=fields(claimName=name, readOnly=same),
    ephemeral=fields(volumeClaimTemplate=fields(spec=_CLAIM_SPEC)),
    hostPath=_EMPTY,
    emptyDir=_EMPTY,
    csi=fields(driver=same, readOnly=same),
    image=fields(reference=image),
    iscsi=fields(iqn=name, readOnly=same),
    rbd=fields(pool=name, image=name, monitors=each(name), readOnly=same),
    **_DISKS,
    # Of the rest a restricted level of Pod Security forbids these.
    **dict.fromkeys(
        ("nfs", "cephfs", "cinder", "fc", "flexVolume", "flocker", "gitRepo", "glusterfs", "azureFile"),
        _EMPTY,
    ),
    **dict.fromkeys(("photonPersistentDisk", "portworxVolume", "quobyte", "scaleIO", "storageos"), _EMPTY),
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
)
_TEMPLATE = fields(metadata=fields(labels=labels, annotations=read_annotations), spec=POD_SPEC)
_STRATEGY = fields(type=same, rollingUpdate=fields(partition=same, maxSurge=same, maxUnavailable=same))
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas")
_OTHER_COUNTS = ("fullyLabeledReplicas", "currentNumberScheduled", "desiredNumberScheduled", "numberReady")
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
            **dict.fromkeys(
                _WORKLOAD_WORDS,
                same,
            ),
            selector=selector,
            template=_TEMPLATE,
            strategy=_STRATEGY,
            updateStrategy=_STRATEGY,
            serviceName=name,
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
            allocatable=_QUANTITIES, capacity=_QUANTITIES, conditions=_CONDITION_LIST, images=present_images
        ),
    ),
    "Pod": fields(
        metadata=META,
        spec=POD_SPEC,
        status=fields(
            phase=same,
            conditions=_CONDITION_LIST,
            nominatedNodeName=name,
            startTime=same,
            containerStatuses=each(_CONTAINER_STATUS),
            initContainerStatuses=each(_CONTAINER_STATUS),
            allocatedResources=_QUANTITIES,
            resources=_RESOURCES,
            extendedResourceClaimStatus=fields(resourceClaimName=name),
        ),
    ),
    "Namespace": fields(metadata=META),
    "Service": fields(metadata=META, spec=fields(selector=labels)),
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
        spec=fields(targetRef=_SCALED, updatePolicy=fields(updateMode=same)),
        status=fields(
            recommendation=fields(
                containerRecommendations=each(fields(containerName=name, target=_QUANTITIES))
            )
        ),
    ),
    "DeviceClass": fields(metadata=META, spec=fields(extendedResourceName=resource)),
    "NodeClaim": fields(metadata=META, status=fields(nodeName=name, conditions=_CONDITION_LIST)),
}
