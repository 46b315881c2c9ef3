"""Default spread constraints of a scheduler profile, for pods without any of their own.

Rule: podtopologyspread/common.go, ``buildDefaultConstraints``; plugins/helper/spread.go, ``DefaultSelector``.
The selector joins the selectors of the pod's Services with that of its ReplicationController, ReplicaSet or
StatefulSet. A pod that nothing selects gets no default constraint.
"""

from __future__ import annotations

from rebalancer.model.pod import PodTemplate, TopologySpreadConstraint
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload

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
