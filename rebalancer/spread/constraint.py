"""One topology spread constraint, resolved; skew and excess of what it counts.

Rule: kube-scheduler pkg/scheduler/framework/plugins/podtopologyspread/common.go; KEP-895, KEP-3022
(minDomains), KEP-3094 (inclusion policies), KEP-3243 (matchLabelKeys).
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rebalancer.model.pod import InclusionPolicy, PodTemplate, TopologySpreadConstraint
from rebalancer.model.selectors import Requirement, Selector, canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.spread.arrays import Bools, Ints, Layout, Rows
from rebalancer.spread.nodes import Domains
from rebalancer.spread.tally import Measure, Tally


class Constraint(Struct, frozen=True, order=True):
    """A constraint with its selector after `matchLabelKeys`. Constraints that mean the same are equal.

    An absent selector (None) counts no pod, and neither does an empty one. Yet an empty one matches the
    incoming pod itself (`self_match`), as upstream has it. `min_domains` is 1 if the pod does not set it.
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
        """Whether a pod of this namespace and these labels is counted, if it runs on a node."""
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
    """What a constraint means in a pod: its selector joined with the pod's own values of `matchLabelKeys`.

    Keys that the pod lacks are ignored. From 1.34 on the API server merges the values into the selector when
    the pod is created; joining them again changes nothing. (If there is no selector at all, upstream's
    ``mergeLabelSetWithSelector`` makes one of the keys alone. Validation prevents that case.)
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


# Default spread constraints of a scheduler profile, for pods without any of their own.
#
# Rule: podtopologyspread/common.go, ``buildDefaultConstraints``; plugins/helper/spread.go,
# ``DefaultSelector``. The selector joins the selectors of the pod's Services with that of its
# ReplicationController, ReplicaSet or StatefulSet. A pod that nothing selects gets no default constraint.

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(
        max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"
    ),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"
    ),
)
"""What `defaultingType: System` stands for."""

SELECTING = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds of which they take their selector; most changes of these are of their status."""

_API_VERSION = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


class DefaultSelectors:
    """The joined selectors of one cluster's pods."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Reads Services and the three kinds of controllers."""
        self._snapshot = snapshot
        self._services: dict[str, list[dict[str, str]]] = {}
        for service in snapshot.services:
            if service.spec.selector:
                self._services.setdefault(service.metadata.namespace, []).append(service.spec.selector)

    def of(self, template: PodTemplate) -> Selector:
        """The selector for a pod; empty if nothing selects it."""
        wanted: dict[str, str] = {}
        for selector in self._services.get(template.namespace, ()):
            if all(template.labels.get(k) == v for k, v in selector.items()):
                wanted.update(selector)
        owner = self._controller(template)
        if owner is None or owner.selector is None:
            return Selector.equals(wanted)
        owned = owner.selector.requirements
        if owner.kind == "ReplicationController":
            # Its map of labels replaces those of the Services key by key; the other kinds add a selector.
            for requirement in owned:
                wanted.pop(requirement.key, None)
        return Selector.equals(wanted).also(*owned)

    def _controller(self, template: PodTemplate) -> Workload | None:
        if template.controller is None:
            return None
        version, kind, name = template.controller
        if kind not in _API_VERSION or version not in ("", _API_VERSION[kind]):
            return None
        return self._snapshot.workloads_by_name.get((kind, template.namespace, name))


# Skew and excess of domain counts.
#
# Rule: podtopologyspread/filtering.go, ``minMatchNum`` and ``Filter``; KEP-3022 for minDomains.

NO_DOMAIN = (1 << 31) - 1
"""The minimum that upstream uses (MaxInt32) while no domain is eligible at all."""


def lowest(least: int, domains: int, min_domains: int) -> int:
    """The global minimum: the lowest count (`least`) of so many eligible domains; 0 while there are fewer of
    them than `min_domains`."""
    return 0 if domains < min_domains else least if domains else NO_DOMAIN


def beyond(most: int, minimum: int, max_skew: int) -> int:
    """The part of the skew, from the global minimum to the highest count, that is above `max_skew`."""
    return max(0, most - minimum - max_skew)


def minimum(counts: Ints, min_domains: int, eligible: Bools | None = None) -> int:
    """`lowest` of counts. `counts` int64[D], `eligible` bool[D]; None = all of them."""
    domains = len(counts) if eligible is None else int(np.count_nonzero(eligible))
    if domains < min_domains or not domains:
        return lowest(0, domains, min_domains)
    return int(counts.min() if domains == len(counts) else counts[eligible].min())


def skew(counts: Ints, min_domains: int) -> int:
    """Highest count minus the global minimum; 0 without domains. `counts` int64[D]: the eligible ones."""
    return int(counts.max()) - minimum(counts, min_domains) if len(counts) else 0


def excess(counts: Ints, max_skew: int, min_domains: int) -> int:
    """The part of the skew that is above `max_skew`; 0 = satisfied."""
    return beyond(int(counts.max()), minimum(counts, min_domains), max_skew) if len(counts) else 0


# Pods by topology domain, kept up to date from the nodes that changed.


class DomainCounts:
    """A measure summed by domain over the nodes that take part.

    `counts`: int64[D], of the nodes that take part. `on_node`: int64[N], of every node.
    """

    def __init__(self, tally: Tally, measure: Measure, domains: Domains, nodes: Bools) -> None:
        """`nodes`: bool[N], the nodes whose pods are summed."""
        self.domains = domains
        self.nodes = nodes
        self._tally = tally
        self._measure = tally.number(measure)
        self.on_node: Ints = tally.numbered(self._measure).copy()
        self.counts = domains.sum(self.on_node, nodes)

    def update(self, rows: Rows) -> None:
        """Brings the counts up to date after pods changed on the nodes `rows`."""
        now = self._tally.numbered(self._measure)[rows]
        change = now - self.on_node[rows]
        for i in change.nonzero()[0].tolist():
            row = rows[i]
            self.on_node[row] = now[i]
            domain = self.domains.ids[row]
            if domain >= 0 and self.nodes[row]:
                self.counts[domain] += change[i]


# Counts by the name of a domain, as a plan shows them.


class PerDomain(Mapping[str, int]):
    """A read-only mapping from each domain's name to its count, in the order of the layout.

    A constraint by hostname has as many domains as the cluster has nodes, and a plan lists thousands of
    constraints. So all of them share the names, and each holds its numbers only.
    """

    __slots__ = ("_counts", "_layout")

    def __init__(self, layout: Layout, counts: npt.NDArray[np.signedinteger[Any]]) -> None:
        """`counts`: one for each domain of the layout; nobody changes them any more."""
        self._layout = layout
        self._counts = counts

    def __getitem__(self, name: str) -> int:
        """The count of a domain; KeyError if there is none of this name."""
        return int(self._counts[self._layout.places[name]])

    def __iter__(self) -> Iterator[str]:
        """The names, in natural order."""
        return iter(self._layout.names)

    def __len__(self) -> int:
        """How many domains there are."""
        return self._layout.size

    def items(self) -> ItemsView[str, int]:
        """Names with counts."""
        return self.plain().items()

    def values(self) -> ValuesView[int]:
        """The counts."""
        return self.plain().values()

    def plain(self) -> dict[str, int]:
        """Domain → count."""
        return dict(zip(self._layout.names, self._counts.tolist(), strict=True))

    def __repr__(self) -> str:
        """As the dictionary of `plain`."""
        return repr(self.plain())
