"""Whose scale-in is steered: nobody's, unless settings or annotations ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.annotations import SCALE_IN, SCALE_IN_WORDS

ScaleInMode = Literal["off", "annotated", "all"]
_POOL = "karpenter.sh/nodepool"


class ScaleInOptions(Struct, frozen=True, kw_only=True):
    """Whose scale-in is steered.

    `mode`: off = nobody's; annotated = where `SCALE_IN` says "spread"; all = where it does not say "off".
    Never in `excluded` namespaces; only in `included` ones, if there are any. `beside_karpenter`: also where
    Karpenter runs, which goes by deletion costs when it chooses nodes to take away.
    """

    mode: ScaleInMode = "off"
    beside_karpenter: bool = False
    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ("kube-system",)


def held_back(snapshot: Snapshot, options: ScaleInOptions) -> str:
    """Why nothing is steered in this cluster at all; "" if nothing speaks against it."""
    if options.beside_karpenter or not any(_POOL in n.labels for n in snapshot.nodes):
        return ""
    return "Karpenter runs here and goes by deletion costs too; prevention.besideKarpenter: true allows both"


def steered(snapshot: Snapshot, options: ScaleInOptions) -> Iterator[Workload]:
    """The ReplicaSets whose scale-in is to be steered."""
    if options.mode == "off":
        return
    for owner in snapshot.workloads:
        if owner.kind == "ReplicaSet" and owner.replicas and _wanted(owner, snapshot, options):
            yield owner


def _wanted(owner: Workload, snapshot: Snapshot, options: ScaleInOptions) -> bool:
    if owner.namespace in options.excluded or owner.metadata.deletion_timestamp is not None:
        return False
    if options.included and owner.namespace not in options.included:
        return False
    parent = snapshot.owner_of(owner.namespace, owner.owner)
    namespace = snapshot.namespaces.get(owner.namespace)
    # A ReplicaSet has its Deployment's annotations as they were when it was made or scaled last.
    for said_by in (parent, owner, namespace):
        said = said_by.metadata.annotations.get(SCALE_IN) if said_by is not None else None
        if said is not None:
            return bool(SCALE_IN_WORDS.says(said))
    return options.mode == "all"
