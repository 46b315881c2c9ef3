"""One topology spread constraint, resolved.

Rule: kube-scheduler pkg/scheduler/framework/plugins/podtopologyspread/common.go; KEP-895, KEP-3022
(minDomains), KEP-3094 (inclusion policies), KEP-3243 (matchLabelKeys).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rebalancer.model.pod import InclusionPolicy, PodTemplate, TopologySpreadConstraint
from rebalancer.model.selectors import Requirement, Selector, canonical


class Constraint(Struct, frozen=True, order=True):
    """A constraint with its selector after `matchLabelKeys`; equal in meaning = equal in value.

    `selector` None (absent) counts no pod, nor does an empty one; yet an empty one matches the pod itself
    (`self_match`), as upstream has it. `min_domains` is 1 where the pod says nothing.
    """

    namespace: str
    selector: Selector | None
    topology_key: str
    max_skew: int
    min_domains: int = 1
    hard: bool = True
    node_affinity_policy: InclusionPolicy = "Honor"
    node_taints_policy: InclusionPolicy = "Ignore"

    def counts(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod of this namespace and these labels is counted (its phase and place aside)."""
        s = self.selector
        return s is not None and not s.empty and namespace == self.namespace and s.matches(labels)

    def self_match(self, labels: Mapping[str, str]) -> bool:
        """Whether the incoming pod adds to the count of the domain that takes it."""
        return self.selector is not None and self.selector.matches(labels)

    @property
    def when_unsatisfiable(self) -> str:
        """The API's word for hard and soft."""
        return "DoNotSchedule" if self.hard else "ScheduleAnyway"


def resolve(written: TopologySpreadConstraint, template: PodTemplate) -> Constraint:
    """The meaning of a constraint in a pod: its selector joined with the pod's own `matchLabelKeys` values.

    Keys that the pod lacks are ignored. From 1.34 on the API server has merged them into the selector
    already; joining them again changes nothing. (Upstream's ``mergeLabelSetWithSelector`` makes a selector of
    the keys alone where there is none, which validation keeps from happening.)
    """
    selector = canonical(written.label_selector) if written.label_selector is not None else None
    own = [
        Requirement(k, "In", (template.labels[k],)) for k in written.match_label_keys if k in template.labels
    ]
    if own:
        selector = (selector or Selector()).also(*own)
    return Constraint(
        namespace=template.namespace,
        selector=selector,
        topology_key=written.topology_key,
        max_skew=written.max_skew,
        min_domains=written.min_domains if written.min_domains is not None else 1,
        hard=written.when_unsatisfiable == "DoNotSchedule",
        node_affinity_policy=written.node_affinity_policy,
        node_taints_policy=written.node_taints_policy,
    )
