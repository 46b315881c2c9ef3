"""What comes of failures."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.drill.failure import Failure, Manner


class WorkloadLoss(Struct, frozen=True, kw_only=True):
    """What one workload loses. `workload`: Kind/namespace/name.

    `pods`: how many ran on any node. `lost`: of them, on the nodes that fail. Of these `replaced` find
    another node, `pending` do not (`why`: what shuts the nodes), `held` are not made again while their nodes
    are silent (StatefulSets), or wait for an earlier pod of the set, and `gone` have no owner that makes them
    again as far as known. `counts_dead`: a spread constraint shuts nodes to them that counts the nodes which
    are down as empty (nodeTaintsPolicy Ignore).
    """

    workload: str
    pods: int
    lost: int
    replaced: int
    pending: int
    held: int = 0
    gone: int = 0
    why: str = ""
    counts_dead: bool = False

    @property
    def missing(self) -> int:
        """How many are missing once everything has come to rest."""
        return self.lost - self.replaced


class Breach(Struct, frozen=True):
    """A budget that is breached. `budget`: namespace/name. `healthy`: its pods that are left when the nodes
    fail, `after`: once the replacements that find a node are Ready; `needed`: what it asks for."""

    budget: str
    healthy: int
    after: int
    needed: int

    @property
    def lasting(self) -> bool:
        """Whether it stays breached."""
        return self.after < self.needed


class Drilled(Struct, frozen=True, kw_only=True):
    """One failure. `nodes`: how many fail. `workloads`: those that lose pods, most missing first.

    `waiting`: pods that were Pending before and still are.
    """

    failure: Failure
    nodes: int
    workloads: tuple[WorkloadLoss, ...]
    breaches: tuple[Breach, ...]
    waiting: int = 0

    @property
    def lost(self) -> int:
        """Pods on the nodes that fail, those aside that belong to a node (DaemonSets, static pods)."""
        return sum(w.lost for w in self.workloads)

    @property
    def pending(self) -> int:
        """Replacements that find no node."""
        return sum(w.pending for w in self.workloads)

    @property
    def held(self) -> int:
        """Pods that their owner does not make again yet."""
        return sum(w.held for w in self.workloads)

    @property
    def gone(self) -> int:
        """Pods that nobody makes again."""
        return sum(w.gone for w in self.workloads)

    @property
    def badness(self) -> tuple[int, int, int, int]:
        """A sort key, the worst highest: Pending, missing, budgets that stay breached, lost."""
        lasting = sum(b.lasting for b in self.breaches)
        return self.pending, self.lost - sum(w.replaced for w in self.workloads), lasting, self.lost


class Drill(Struct, frozen=True, kw_only=True):
    """All failures as the cluster is, and after the plan (empty without one), in the same order.

    `keys`: what was tried. `waiting`: pods that no node takes before anything fails.
    """

    manner: Manner
    keys: tuple[str, ...]
    today: tuple[Drilled, ...]
    planned: tuple[Drilled, ...] = ()
    waiting: int = 0

    @property
    def most_pending(self) -> int:
        """Replacements that find no node after the worst failure, as the cluster is."""
        return max((d.pending for d in self.today), default=0)
