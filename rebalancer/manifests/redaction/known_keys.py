"""Keys and names of Kubernetes and of widely used projects. They do not reveal whose cluster it is."""

from __future__ import annotations

from rebalancer.planner.cluster.leaving_nodes import (
    CANDIDATE_TAINT,
    INITIALIZED,
    LEAVING_TAINTS,
    STARTING_PREFIXES,
    STARTING_TAINTS,
)
from rebalancer.policy import gangs
from rebalancer.policy.admission_queues import QUEUES


def _under(domain: str, *names: str) -> set[str]:
    return {f"{domain}/{name}" for name in names}


KNOWN_KEYS = frozenset(
    {"app", "k8s-app", "job-name", "controller-uid", "metadata.name"}
    | {"pod-template-hash", "pod-template-generation", "controller-revision-hash"}
    | {
        "rollouts-pod-template-hash",
        *LEAVING_TAINTS,
        *STARTING_TAINTS,
        CANDIDATE_TAINT,
        *gangs.LABELS,
        *QUEUES,
    }
    | _under("kubernetes.io", "arch", "os", "hostname", "metadata.name")
    | _under("beta.kubernetes.io", "arch", "os", "instance-type")
    | _under("topology.kubernetes.io", "zone", "region")
    | _under("failure-domain.beta.kubernetes.io", "zone", "region")
    | _under("node.kubernetes.io", "instance-type", "windows-build", "exclude-from-external-load-balancers")
    | _under("node.kubernetes.io", "not-ready", "unreachable", "unschedulable", "out-of-service")
    | _under("node.kubernetes.io", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
    | _under("node.cloudprovider.kubernetes.io", "uninitialized", "shutdown")
    | _under("node-role.kubernetes.io", "control-plane", "master", "worker")
    | _under("app.kubernetes.io", "name", "instance", "version", "component", "part-of", "managed-by")
    | _under("apps.kubernetes.io", "pod-index")
    | _under("statefulset.kubernetes.io", "pod-name")
    | _under("batch.kubernetes.io", "job-name", "controller-uid", "job-completion-index")
    | _under("topology.ebs.csi.aws.com", "zone")
    | _under("topology.gke.io", "zone")
    | _under("topology.disk.csi.azure.com", "zone")
    | _under("karpenter.sh", "capacity-type", "initialized", "nodepool", "provisioner-name")
    | _under("eks.amazonaws.com", "nodegroup")
    | _under("cloud.google.com", "gke-nodepool")
    | _under("kubernetes.azure.com", "agentpool")
)
PLAIN_VALUES = frozenset({"kubernetes.io/os", "kubernetes.io/arch", INITIALIZED})
"""Keys whose values do not reveal whose cluster it is."""
KNOWN_NAMES = (
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "system-cluster-critical",
    "system-node-critical",
)
"""Namespaces and priority classes that exist in every cluster and that policies name."""
_KNOWN_VENDORS = frozenset(
    {"nvidia.com", "amd.com", "intel.com", "gpu.intel.com", "habana.ai", "google.com", "aws.amazon.com"}
    | {"vpc.amazonaws.com", "xilinx.com", "rdma", "devices.kubevirt.io", "smarter-devices"}
)


def known_beginning(key: str) -> tuple[str, str]:
    """A key's beginning that rules go by ("" if it has none), and the rest, which may be anybody's."""
    found = next((p for p in STARTING_PREFIXES if key.startswith(p)), "")
    return found, key.removeprefix(found)


def known_resource(name: str) -> bool:
    """Whether the name of a resource belongs to Kubernetes or to a well-known vendor."""
    domain, slash, last = name.removeprefix("requests.").rpartition("/")
    if domain == "count":  # of a quota: count/pods, count/deployments.apps
        return "." not in last or last.endswith((".apps", ".batch", ".policy", ".k8s.io"))
    return not slash or domain in _KNOWN_VENDORS or domain.endswith("kubernetes.io")
