"""NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon's taint."""

from __future__ import annotations

from rebalancer.engine.plugins.plugin import UNRESOLVABLE, Filter, Plugin, StaticFilter
from rebalancer.model.node import Taint
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.nodes import tolerated

CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class NodeUnschedulable(Plugin):
    """Rule: plugins/nodeunschedulable/node_unschedulable.go."""

    name = "NodeUnschedulable"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects cordoned nodes."""
        if tolerated(CORDON, template.tolerations):
            return None
        return StaticFilter(~self.table.unschedulable, UNRESOLVABLE, "node(s) were unschedulable")
