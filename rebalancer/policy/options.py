"""What an operator decides about evictions. Words and defaults are the descheduler's where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from rebalancer.model.reason import Reason
from rebalancer.model.selectors import Selector


class Limit(Struct, frozen=True):
    """A cap: a number of pods, or a percentage of the pods in question (rounded up: 1 % of 3 is 1)."""

    number: int | None = None
    percent: float | None = None

    def of(self, total: int) -> int:
        """The cap for `total` pods."""
        if self.number is not None:
            return self.number
        return -int(-(total * (self.percent or 0)) // 100)

    def __str__(self) -> str:
        """As written in configuration."""
        return str(self.number) if self.number is not None else f"{self.percent:g}%"


class PolicyOptions(Struct, frozen=True, kw_only=True):
    """Protections, scope and caps. Durations in seconds.

    Bare, Job-owned, DaemonSet and static pods are never evicted: nothing would replace them elsewhere, or it
    would count as a failure. `evict_*` open what is protected by default, `protect_*` close what is
    open; both follow the descheduler's DefaultEvictor. Caps count evictions of one cycle; None = no cap.
    `resting`: owners that are left alone for now, by Kind/namespace/name of the topmost one (a Deployment,
    not its ReplicaSet), and why: what is remembered of former evictions says so.
    """

    namespaces_include: tuple[str, ...] = ()
    namespaces_exclude: tuple[str, ...] = ("kube-system",)
    namespace_selector: Selector | None = None
    label_selector: Selector | None = None
    owner_kinds_exclude: tuple[str, ...] = ()
    owner_kinds_allow: tuple[str, ...] = ()
    own_namespace: str = ""
    own_labels: Selector = Selector.equals({"app.kubernetes.io/name": "rebalancer"})
    mode: Literal["opt-out", "opt-in"] = "opt-out"

    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    protect_pvc_pods: bool = False
    protect_resource_claim_pods: bool = True
    protect_pods_without_pdb: bool = False
    protect_paused: bool = True
    priority_threshold: int | None = None
    priority_threshold_class: str = ""
    min_replicas: int = 0
    min_pod_age: float = 0.0
    foreign_annotations: tuple[Literal["descheduler", "karpenter", "cluster-autoscaler"], ...] = (
        "descheduler",
        "karpenter",
        "cluster-autoscaler",
    )

    max_total: Limit | None = None
    max_per_node: Limit | None = None
    max_per_namespace: Limit | None = None
    max_per_owner: Limit | None = None
    max_per_domain: Limit | None = None

    resting: Mapping[str, Reason] = {}
