"""TaintToleration: untolerated NoSchedule and NoExecute taints reject, PreferNoSchedule taints cost."""

from __future__ import annotations

from rebalancer.engine.plugins.plugin import (
    UNRESOLVABLE,
    DefaultNormalized,
    Filter,
    Plugin,
    Score,
    StaticFilter,
)
from rebalancer.engine.version import TAINTS_UNNAMED
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools
from rebalancer.spread.nodes import NodeTable


class TaintToleration(Plugin):
    """Rule: plugins/tainttoleration/taint_toleration.go."""

    name = "TaintToleration"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes with a taint that the pod does not tolerate."""
        mask = ~self.table.untolerated(template.tolerations)
        if self.state.version.has(TAINTS_UNNAMED):
            return StaticFilter(mask, UNRESOLVABLE, "node(s) had untolerated taint(s)")
        return _Naming(mask, self.table, template)

    def score(self, template: PodTemplate) -> Score | None:
        """Fewer untolerated PreferNoSchedule taints are better."""
        return DefaultNormalized(self.table.prefer_not(template.tolerations), reverse=True)


class _Naming(StaticFilter):
    """The reason names the node's first taint that the pod does not tolerate, as before `TAINTS_UNNAMED`."""

    def __init__(self, mask: Bools, table: NodeTable, template: PodTemplate) -> None:
        super().__init__(mask, UNRESOLVABLE, "")
        self._table = table
        self._template = template

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        taint = self._table.first_untolerated(row, self._template.tolerations)
        return UNRESOLVABLE, (f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",)
