"""TaintToleration: untolerated NoSchedule and NoExecute taints reject, PreferNoSchedule taints cost."""

from __future__ import annotations

from rebalancer.engine.normalize import DefaultNormalized
from rebalancer.engine.plugin import UNRESOLVABLE, Filter, Plugin, Score, StaticFilter
from rebalancer.model.pod import PodTemplate


class TaintToleration(Plugin):
    """Rule: plugins/tainttoleration/taint_toleration.go."""

    name = "TaintToleration"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes with a taint that the pod does not tolerate."""
        mask = ~self.table.untolerated(template.tolerations)
        return StaticFilter(mask, UNRESOLVABLE, "node(s) had untolerated taint(s)")

    def score(self, template: PodTemplate) -> Score | None:
        """Fewer untolerated PreferNoSchedule taints are better."""
        return DefaultNormalized(self.table.prefer_not(template.tolerations), reverse=True)
