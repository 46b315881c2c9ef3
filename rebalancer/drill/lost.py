"""Which pods go with nodes that fail, and what their owners make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Literal

import numpy as np
from msgspec import Struct

from rebalancer.findings.survey import REPLICATED
from rebalancer.model.node import HOSTNAME, OF_ITS_NODE, Taint, Toleration, deleted_after
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.replacement import Replacements
from rebalancer.spread.arrays import Bools
from rebalancer.spread.nodes import NodeTable

# What fails: a node, or all nodes with one value of a label.

NODE = "node"
"""The key of a failure of one node, by its name."""
SILENT = (
    Taint("node.kubernetes.io/unreachable", "NoSchedule"),
    Taint("node.kubernetes.io/unreachable", "NoExecute"),
)
"""What the node controller puts on a node that no longer answers."""

Manner = Literal["silent", "removed"]
"""`silent`: the nodes no longer answer. They keep their place in the API, and their pods stay Terminating.
`removed`: the nodes are deleted, and their pods with them."""


class Failure(Struct, frozen=True):
    """All nodes with one value of a label; `key` NODE: the node of that name."""

    key: str
    value: str

    def down(self, table: NodeTable) -> Bools:
        """bool[N]: the nodes that fail."""
        found = table.none.copy()
        if self.key == NODE:
            found[table.index[self.value]] = True
            return found
        domains = table.domains(self.key)
        return np.asarray(domains.ids == domains.names.index(self.value))


def failures(table: NodeTable, keys: Iterable[str]) -> Iterator[Failure]:
    """Each node (NODE), each domain of a label, in natural order of names; of KEY=VALUE, or NODE=NAME, that
    one alone."""
    for asked in keys:
        key, _, value = asked.partition("=")
        if key == NODE:
            yield from (Failure(NODE, name) for name in table.names if value in ("", name))
        else:
            domains = table.domains(key)
            names = (domains.names[i] for i in np.argsort(domains.ranks).tolist())
            yield from (Failure(key, name) for name in names if value in ("", name))


def keys_to_try(table: NodeTable, spread: Iterable[str]) -> tuple[str, ...]:
    """Nodes, and the keys of constraints of which a domain has several nodes."""
    wide = (k for k in dict.fromkeys(spread) if k != HOSTNAME and 0 < len(table.domains(k)) < table.size)
    return (NODE, *sorted(wide))


class Remade(StrEnum):
    """Whether, and when, the owner of a pod whose node fails makes another one."""

    MADE = "made"
    """Its owner makes another one at once."""
    IN_TURN = "in-turn"
    """Its owner makes another one when those before it are Ready (OrderedReady)."""
    HELD = "held"
    """Its owner makes another one only when it is gone, and a silent node never says so (StatefulSet)."""
    GONE = "gone"
    """No owner makes another one, as far as known."""
    STAYS = "stays"
    """It belongs to the node, or tolerates its failure."""


class Lost(Struct, frozen=True, eq=False):
    """A pod that is lost. `workload`: Kind/namespace/name of the topmost owner; `replacement`: what takes its
    place."""

    pod: Pod
    workload: str
    fate: Remade
    replacement: PodTemplate
    owner: Workload | None


class Owned:
    """The pods of a snapshot by what their owners do when a node fails."""

    def __init__(self, snapshot: Snapshot, manner: Manner) -> None:
        self.owners = Owners(snapshot, PolicyOptions())
        self.manner = manner
        self._replacements = Replacements(snapshot)
        self._alike: dict[tuple[int, int], tuple[Pod, Remade, str, Workload | None]] = {}
        self._deleted_after: dict[tuple[Toleration, ...], float | None] = {}
        self.running: Counter[str] = Counter()
        self._active: Counter[str] = Counter()
        for pod in snapshot.pods:
            if not pod.finished and not pod.terminating:
                _, workload, owner = self._of(pod)
                self.running[workload] += bool(pod.node_name)
                if owner is not None:
                    self._active[owner.key] += 1

    def workload(self, pod: Pod) -> str:
        """Kind/namespace/name of its topmost owner, or its own."""
        return self._of(pod)[1]

    def runs(self, pod: Pod) -> None:
        """A pod that waited has found a node."""
        self.running[self._of(pod)[1]] += 1

    def lost(self, pods: Iterable[Pod]) -> list[Lost]:
        """Of live pods on nodes that fail those that are lost, in their order."""
        found: list[Lost] = []
        number: Counter[str] = Counter()
        for pod in pods:
            fate, workload, owner = self._of(pod)
            if fate is Remade.STAYS:
                continue
            if owner is not None and fate is Remade.MADE and owner.kind != "StatefulSet":
                # An owner with more pods than it wants makes none for those beyond.
                number[owner.key] += 1
                if number[owner.key] <= self._active[owner.key] - owner.replicas:
                    fate = Remade.GONE
            replacement = self._replacements.of(pod.template, owner) if owner is not None else pod.template
            found.append(Lost(pod, workload, fate, replacement, owner))
        return found

    def _of(self, pod: Pod) -> tuple[Remade, str, Workload | None]:
        """The first pod is kept, so that no other object gets the identity of its owner."""
        key = id(pod.owner), id(pod.template.tolerations)
        found = self._alike.get(key) if pod.owner is not None else None
        if found is None:
            owner = self.owners.of(pod)
            top = self.owners.top(owner) if owner is not None else None
            if top is not None:
                name = top.key
            elif pod.owner is not None:
                name = f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
            else:
                name = f"Pod/{pod.namespace}/{pod.name}"
            found = self._alike[key] = pod, self._fate(pod, owner), name, owner
        return found[1:]

    def _fate(self, pod: Pod, owner: Workload | None) -> Remade:
        if pod.owner is not None and pod.owner.kind in OF_ITS_NODE:
            return Remade.STAYS
        if self.manner == "silent" and self.deleted_after(pod) is None:
            return Remade.STAYS
        if owner is None or owner.kind not in REPLICATED or owner.metadata.deletion_timestamp is not None:
            return Remade.GONE
        if owner.kind != "StatefulSet":
            return Remade.MADE
        if self.manner == "silent":
            return Remade.HELD
        return Remade.MADE if owner.parallel else Remade.IN_TURN

    def deleted_after(self, pod: Pod) -> float | None:
        """Seconds until it is deleted from a node that falls silent, and counts no longer; None = never. One
        of a DaemonSet never is, unless it lacks what its controller gives it."""
        tolerations = pod.template.tolerations
        if tolerations not in self._deleted_after:
            self._deleted_after[tolerations] = deleted_after(tolerations, SILENT)
        return self._deleted_after[tolerations]


# What comes of failures.


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


class Honored(Struct, frozen=True, kw_only=True):
    """What was replayed: the failure with `nodeTaintsPolicy: Honor` in the hard constraints of `workloads`,
    and, where it says so, a `minDomains` that asks for no more than is left.

    `pending`: replacements of all without a node, before and after; `loss`: the largest share of a workload's
    pods that is then in one domain, and the next failure takes.
    """

    workloads: tuple[str, ...]
    min_domains: bool
    pending: tuple[int, int]
    loss: tuple[float, float]


class Drilled(Struct, frozen=True, kw_only=True):
    """One failure. `nodes`: how many fail. `workloads`: those that lose pods, most missing first, where all
    nodes fail at once. `orders`: Pending pods by workload then, and in each other order that was played.

    `waiting`: pods that were Pending before and still are.
    """

    failure: Failure
    nodes: int
    workloads: tuple[WorkloadLoss, ...]
    breaches: tuple[Breach, ...]
    waiting: int = 0
    orders: tuple[Mapping[str, int], ...] = ({},)
    honored: Honored | None = None

    @property
    def least(self) -> int:
        """Replacements that find no node, in the order that leaves the fewest."""
        return min(sum(order.values()) for order in self.orders)

    @property
    def most(self) -> int:
        """And the most."""
        return max(sum(order.values()) for order in self.orders)

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
        return self.most, self.lost - sum(w.replaced for w in self.workloads), lasting, self.lost


class Drill(Struct, frozen=True, kw_only=True):
    """All failures as the cluster is, and after the plan (empty without one), in the same order.

    `keys`: what was tried. `waiting`: pods that no node takes before anything fails.
    """

    manner: Manner
    keys: tuple[str, ...]
    today: tuple[Drilled, ...]
    planned: tuple[Drilled, ...] = ()
    waiting: int = 0
