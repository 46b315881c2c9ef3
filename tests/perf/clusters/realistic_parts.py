"""Single objects of a realistic cluster. In a pod, @name@ stands for what each pod has for itself."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_HASH = "7d9f6c8b5d"


def pod_spec(namespace: str, name: str, two_keys: bool, number: int) -> Json:
    """spec.template.spec of a workload: two containers with environment, probes and mounts."""
    spread = [_constraint(ZONE, 1, name)]
    if two_keys:
        spread.append(_constraint(HOSTNAME, 2, name))
    cpu = ("50m", "100m", "150m", "250m")[number % 4]
    return {
        "volumes": [
            {"name": "config", "configMap": {"name": f"{name}-config", "defaultMode": 420}},
            # Local storage keeps pods where they are, so few have it.
            {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}
            if number % 25 == 7
            else {"name": "cache", "configMap": {"name": f"{name}-cache", "defaultMode": 420}},
            {"name": "certificates", "secret": {"secretName": f"{name}-tls", "defaultMode": 420}},
        ],
        "containers": [
            _container("server", f"registry.example.com/{namespace}/{name}:v1.{number % 40}.0", cpu, 6),
            _container("proxy", "registry.example.com/mesh/proxy:v1.24.1", "25m", 2),
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": name,
        "serviceAccount": name,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
        "schedulerName": "default-scheduler",
        "topologySpreadConstraints": spread,
    }


def _constraint(key: str, max_skew: int, name: str) -> Json:
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": name}},
    }


def _container(name: str, image: str, cpu: str, variables: int) -> Json:
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "initialDelaySeconds": 5,
        "timeoutSeconds": 2,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    env: list[Json] = [
        {"name": f"SETTING_{i:02d}_OF_{name.upper()}", "value": f"value-{i}-of-some-length"}
        for i in range(variables)
    ]
    env += [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "DATABASE_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "database", "key": "password"}}},
    ]
    return {
        "name": name,
        "image": image,
        "args": ["--config=/etc/app/config.yaml", "--listen=:8080", "--log-level=info"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": env,
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": cpu, "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/app"},
            {"name": "cache", "mountPath": "/var/cache/app"},
            {"name": "certificates", "readOnly": True, "mountPath": "/etc/tls"},
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _labels(name: str) -> Json:
    return {
        "app": name,
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/managed-by": "Helm",
        "team": "platform",
    }


def pod(namespace: str, name: str, spec: Json, *, managed: bool) -> Json:
    """A running pod of the workload's current ReplicaSet."""
    token = {
        "name": "kube-api-access-@suffix@",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ],
            "defaultMode": 420,
        },
    }
    mount = {
        "name": "kube-api-access-@suffix@",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    return {
        "metadata": {
            "name": f"{name}-{_HASH}-@suffix@",
            "generateName": f"{name}-{_HASH}-",
            "namespace": namespace,
            "uid": "@uid@",
            "resourceVersion": "@version@",
            "generation": 1,
            "creationTimestamp": "@time@",
            "labels": {**_labels(name), "pod-template-hash": _HASH},
            "annotations": {"checksum/config": "3f2a" * 16, "prometheus.io/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{name}-{_HASH}",
                    "uid": _uid(name, 3),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            **({"managedFields": _managed_fields(spec)} if managed else {}),
        },
        "spec": {
            **spec,
            "volumes": [*spec["volumes"], token],
            "containers": [{**c, "volumeMounts": [*c["volumeMounts"], mount]} for c in spec["containers"]],
            "nodeName": "@node@",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for taint in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "observedGeneration": 1,
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "@time@"}
                for kind in (
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                    "PodScheduled",
                )
            ],
            "hostIP": "@ip@",
            "podIP": "@ip@",
            "podIPs": [{"ip": "@ip@"}],
            "startTime": "@time@",
            "containerStatuses": [
                {
                    "name": c["name"],
                    "state": {"running": {"startedAt": "@time@"}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": c["image"],
                    "imageID": c["image"].partition(":")[0] + "#sha256:" + "9c1b" * 16,
                    "containerID": "containerd://@hash@",
                    "started": True,
                    "resources": c["resources"],
                }
                for c in spec["containers"]
            ],
            "qosClass": "Burstable",
        },
    }


def _managed_fields(spec: Json) -> list[Json]:
    """What server-side apply remembers of a pod: as long as a third of it."""
    containers: Json = {
        f'k:{{"name":"{c["name"]}"}}': {
            ".": {},
            "f:name": {},
            "f:image": {},
            "f:args": {},
            "f:env": {
                ".": {},
                **{f'k:{{"name":"{e["name"]}"}}': {".": {}, "f:name": {}} for e in c["env"][:6]},
            },
            "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
            "f:volumeMounts": {
                ".": {},
                **{
                    f'k:{{"mountPath":"{m["mountPath"]}"}}': {".": {}, "f:name": {}}
                    for m in c["volumeMounts"]
                },
            },
        }
        for c in spec["containers"]
    }
    conditions: Json = {
        f'k:{{"type":"{kind}"}}': {".": {}, "f:status": {}, "f:type": {}, "f:lastTransitionTime": {}}
        for kind in ("ContainersReady", "Initialized", "Ready")
    }
    return [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "@time@",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:containers": containers, "f:dnsPolicy": {}, "f:restartPolicy": {}}},
        },
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "@time@",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": conditions, "f:phase": {}, "f:podIP": {}}},
            "subresource": "status",
        },
    ]


def _uid(name: str, revision: int) -> str:
    return f"0000{revision:04d}-0000-4000-8000-{int(name.rpartition('-')[2]):012d}"


def replica_set(namespace: str, name: str, revision: int, replicas: int, spec: Json) -> Json:
    """A revision of a workload."""
    hashed = _HASH if revision == 3 else f"{_HASH[:-1]}{revision}"
    labels = {**_labels(name), "pod-template-hash": hashed}
    return {
        "metadata": {
            "name": f"{name}-{hashed}",
            "namespace": namespace,
            "uid": _uid(name, revision),
            "resourceVersion": str(500 + revision),
            "generation": 2,
            "creationTimestamp": f"2026-02-{revision:02d}T00:00:00Z",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": name,
                    "uid": _uid(name, 9),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name, "pod-template-hash": hashed}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
        "status": {
            "replicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "observedGeneration": 2,
        },
    }


def deployment(namespace: str, name: str, replicas: int, spec: Json) -> Json:
    """A workload that is not being rolled out."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": _uid(name, 9),
            "resourceVersion": "600",
            "generation": 3,
            "creationTimestamp": "2026-02-01T00:00:00Z",
            "labels": _labels(name),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": _labels(name)}, "spec": spec},
            "strategy": {"type": "RollingUpdate"},
        },
        "status": {
            "observedGeneration": 3,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "conditions": [{"type": "Available", "status": "True"}],
        },
    }


def node(number: int, zone: str, *, managed: bool) -> Json:
    """A node that is Ready, with fifty images."""
    name = f"node-{number:05d}"
    room = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
    return {
        "metadata": {
            "name": name,
            "uid": f"10000000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(900_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                HOSTNAME: name,
                ZONE: zone,
                "topology.kubernetes.io/region": "region-1",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m5.4xlarge",
            },
            **({"managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]} if managed else {}),
        },
        "spec": {"podCIDR": f"10.{number >> 8 & 255}.{number & 255}.0/24", "providerID": f"cloud:///{name}"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "lastHeartbeatTime": "2026-11-01T00:00:00Z",
                    "lastTransitionTime": "2026-01-01T00:00:10Z",
                    "reason": f"Kubelet{kind}",
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "addresses": [{"type": "InternalIP", "address": f"192.168.{number >> 8 & 255}.{number & 255}"}],
            "images": [
                {
                    "names": [f"registry.example.com/team-{i:03d}/service-{i:04d}:v1.{i % 40}.0"],
                    "sizeBytes": 180_000_000 + i,
                }
                for i in range(number % 11, 550, 11)
            ],
        },
    }
