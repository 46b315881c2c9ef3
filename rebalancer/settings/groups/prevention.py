"""Settings of what keeps spread from breaking."""

from __future__ import annotations

from rebalancer.prevention.scale_in.scope import ScaleInMode
from rebalancer.settings.groups.base import Group


class Prevention(Group):
    """Keeps spread from breaking, without evictions. Pods of excluded namespaces are left alone here too."""

    scale_in: ScaleInMode = "off"
    """Whether the deletion costs of pods are set such that a ReplicaSet that shrinks keeps its spread. off:
    nowhere. annotated: where a Deployment, a ReplicaSet or a namespace has the annotation
    rebalancer.io/scale-in: "spread". all: everywhere but where it says "off". off, because it changes pods,
    for which it needs a right of its own."""
    dry_run: bool = False
    """true: the costs are shown and not written. The flag --dry-run sets it to true for one run."""
    beside_karpenter: bool = False
    """Whether costs are set although Karpenter runs in the cluster. false, because Karpenter goes by them too
    when it chooses nodes to take away, and may set them itself."""
