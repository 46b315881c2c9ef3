"""What an operator decides about evictions. Names and defaults are those of the descheduler where it has
them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from math import ceil
from typing import Annotated, Literal

from msgspec import Meta, Struct, json

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason
from rebalancer.model.selectors import Selector
from rebalancer.model.workload import RuntimeClass
from rebalancer.policy.release import MARK, mark_of

NAME, COMPONENT, MANAGED_BY = (f"app.kubernetes.io/{key}" for key in ("name", "component", "managed-by"))
OURS = "rebalancer"
"""Labels by which what is the tool's own is known, and the value of the first and the last."""


class Method(StrEnum):
    """How a pod is moved: it is evicted, and its owner makes another; or (replace first) its owner lets go of
    it and makes another, and it is evicted when that one is available."""

    EVICT = "evict"
    REPLACE_FIRST = "replaceFirst"


class LabelUser(Struct, frozen=True):
    """An object that selects pods by labels and is in no snapshot: a NetworkPolicy, say. `namespace` "": it
    is about all of them. `spec`: as JSON."""

    kind: str
    namespace: str
    name: str
    spec: str


class LabelUsers(Struct, frozen=True):
    """All of them, and the kinds, as plural.group, that are served and may not be read."""

    found: tuple[LabelUser, ...] = ()
    unread: tuple[str, ...] = ()


class Limit(Struct, frozen=True):
    """A cap: a number of pods, or a percentage of the pods it is about, rounded up (1 % of 3 is 1)."""

    number: int | None = None
    percent: float | None = None

    def of(self, total: int) -> int:
        """The cap for `total` pods."""
        if self.number is not None:
            return self.number
        return ceil(self._hundredths(total) / 100)

    def share(self, total: int) -> int:
        """The cap rounded down, and at least one: how many of `total` pods may be away together."""
        return max(1, self.number if self.number is not None else int(self._hundredths(total) // 100))

    def _hundredths(self, total: int) -> float:
        # 4.4 is a little more than 4.4 as a float, which must not round a cap up.
        return round(total * (self.percent or 0), 6)

    def __str__(self) -> str:
        """As written in configuration."""
        return str(self.number) if self.number is not None else f"{self.percent:g}%"


class ApprovalRules(Struct, frozen=True):
    """Whether evictions wait for somebody's approval, where (empty: everywhere), and how many seconds one
    holds."""

    required: bool = False
    namespaces: tuple[str, ...] = ()
    lasts: float = 4 * 3600.0

    def ask(self, namespace: str) -> bool:
        """Whether an eviction in this namespace needs it."""
        return self.required and (not self.namespaces or namespace in self.namespaces)


class Approved(Struct, frozen=True):
    """Pods that a person has looked at, by uid; no other may go. `source`: where they are listed; `rules`: in
    which namespaces that is so, None: in all."""

    uids: frozenset[str]
    source: str
    rules: ApprovalRules | None = None

    def leaves_out(self, namespace: str, uid: str) -> bool:
        """Whether this pod may not go."""
        return uid not in self.uids and (self.rules is None or self.rules.ask(namespace))


class Evicted(Struct, frozen=True):
    """An eviction of the present cycle. `owner`: Kind/namespace/name of the topmost; `domains`: key=value of
    each domain of which the move was to mend a constraint, and of each that its node was in then; `landed`:
    the replacement's node, "" until it is known."""

    owner: str
    namespace: str
    node: str
    domains: tuple[str, ...]
    landed: str = ""


Times = tuple[tuple[float, int], ...]
"""When (epoch seconds) how many evictions were."""


class Earlier(Struct, frozen=True):
    """Evictions that caps count already: those of the present cycle, when those of the last hour were, and by
    owner (`ledger.owner_id`) those of the last day. The present cycle's are among both."""

    this_cycle: tuple[Evicted, ...] = ()
    last_hour: Times = ()
    last_day: Mapping[str, Times] = {}


class Refused(Struct, frozen=True, array_like=True):
    """The eviction of a pod was refused at `at` (epoch seconds), by a webhook or a policy of admission, with
    what `said` says. `seen`: a digest of what such a rule may go by."""

    at: Annotated[float, Meta(ge=0, lt=253_370_764_800)]
    seen: Annotated[str, Meta(max_length=16)]
    said: Annotated[str, Meta(max_length=200)]

    @classmethod
    def of(cls, pod: Pod, at: float, said: str) -> Refused:
        """That of this pod."""
        return cls(at, _seen(pod), said[:200])

    def holds(self, pod: Pod) -> bool:
        """Whether the pod is as it was. What changes in its status by itself, such as heartbeats, does not
        count."""
        return self.seen == _seen(pod)


def _seen(pod: Pod) -> str:
    # One that is released is denied as what it is again once it is given back.
    mark = mark_of(pod.annotations, pod.uid)
    labels = pod.template.labels | ({mark.label: mark.value} if mark is not None else {})
    annotations = {k: v for k, v in pod.annotations.items() if k != MARK}
    known = (labels, annotations, pod.phase)
    return sha256(json.encode(known, order="sorted")).hexdigest()[:16]


class PolicyOptions(Struct, frozen=True, kw_only=True):
    """Protections, scope and caps. Durations in seconds.

    Static pods, pods of DaemonSets and Jobs, and pods without an owner are never evicted: nothing would
    replace them on another node, or the eviction would count as a failure. `evict_*` allow what is protected
    by default, `protect_*` protect what is allowed by default; both follow the descheduler's DefaultEvictor.
    Caps count the evictions of one cycle, or those of the last hour or day; None = no cap. They bound what is
    carried out, not what is planned. `earlier`: what they count already. `in_flight_per_owner`: how many pods
    of one owner may be away together, rounded down, at least one. `min_worth`: how many pods fewer have
    to go with the fullest domain, for each eviction. `waiting_owners`: owners that are left
    alone for now because of earlier evictions, by Kind/namespace/name of the topmost owner (the Deployment,
    not its ReplicaSet), and why. `runtime_classes`: those that are known, by name. `held`: why no pod may be
    evicted at all. `approval`: which evictions wait for somebody; `approved`: what may go of them. `method`:
    how pods are moved whose workload says nothing of it; auto: replace first where its budget allows no
    disruption. `max_released`: how many pods may be released together. `into_new_nodes`: whether a pod that
    is replaced first may wait for a node that has to be added; `auto_first`: auto replaces first whatever a
    budget says, as in such a plan. `no_release`: why none may be. `label_users`: None where nobody has
    looked. `refused`: by namespace/name, pods left alone for `retry_after`, as their eviction was refused.
    """

    namespaces_include: tuple[str, ...] = ()
    namespaces_exclude: tuple[str, ...] = ("kube-system",)
    namespace_selector: Selector | None = None
    label_selector: Selector | None = None
    owner_kinds_exclude: tuple[str, ...] = ()
    owner_kinds_allow: tuple[str, ...] = ()
    gangs_allow: tuple[str, ...] = ()
    own_namespace: str = ""
    own_labels: Selector = Selector.equals({NAME: OURS})
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
    max_total_per_hour: Limit | None = None
    max_per_owner_per_day: Limit | None = Limit(percent=100)
    earlier: Earlier = Earlier()
    in_flight_per_owner: Limit = Limit(percent=10)
    method: Literal["evict", "replaceFirst", "auto"] = "evict"
    max_released: int = 5
    into_new_nodes: bool = False
    auto_first: bool = False
    no_release: Reason | None = None
    label_users: LabelUsers | None = None
    min_worth: float = 0.0

    waiting_owners: Mapping[str, Reason] = {}
    refused: Mapping[str, Refused] = {}
    retry_after: float = 6 * 3600.0
    runtime_classes: Mapping[str, RuntimeClass] = {}
    held: Reason | None = None
    approval: ApprovalRules = ApprovalRules()
    approved: Approved | None = None

    def in_view(self, namespace: str) -> bool:
        """Whether somebody who named namespaces named this one. What is not in view still counts."""
        return not self.namespaces_include or namespace in self.namespaces_include
