"""NodeName: spec.nodeName names the only node."""

from __future__ import annotations

from rebalancer.engine.plugins.plugin import UNRESOLVABLE, Filter, Plugin, StaticFilter
from rebalancer.model.pod import PodTemplate


class NodeName(Plugin):
    """Rule: plugins/nodename/node_name.go."""

    name = "NodeName"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects all other nodes."""
        if not node_name:
            return None
        mask = self.table.none.copy()
        if node_name in self.table.index:
            mask[self.table.index[node_name]] = True
        return StaticFilter(mask, UNRESOLVABLE, "node(s) didn't match the requested node name")
