"""VolumeBinding: bound volumes must reach the node; claims that wait must find or get a volume there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rebalancer.engine.plugins.node_resources import at
from rebalancer.engine.plugins.plugin import UNRESOLVABLE, Filter, Plugin, Rejection, Score
from rebalancer.engine.state.storage import (
    NO_PROVISIONER,
    claim_class,
    claim_volumes,
    fully_bound,
    not_found,
    not_owned,
    owned,
    volume_class,
)
from rebalancer.engine.version import STORAGE_SCORES, VOLUME_AFFINITY_REASON
from rebalancer.model.pod import PodTemplate, Volume
from rebalancer.model.quantity import units
from rebalancer.model.selectors import canonical
from rebalancer.model.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from rebalancer.spread.arrays import Bools, Ints

SELECTED_NODE = "volume.kubernetes.io/selected-node"

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NODE_CONFLICT_BEFORE = "node(s) had volume node affinity conflict"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


class VolumeBinding(Plugin):
    """Rule: plugins/volumebinding/volume_binding.go, binder.go; component-helpers/storage/volume."""

    name = "VolumeBinding"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Judges the pod's claims, bound and waiting."""
        storage = self.state.storage
        if not storage.known:
            return None
        claims: list[PersistentVolumeClaim] = []
        for volume in claim_volumes(template):
            claim = storage.claim_of(template.namespace, volume)
            problem = _problem(claim, volume, template.namespace)
            if claim is None or problem:
                return _blocked(self, problem)
            claims.append(claim)
        if not claims:
            return None
        bound = [c for c in claims if fully_bound(c)]
        waiting = [c for c in claims if not fully_bound(c)]
        if any(c.spec.volume_name or not storage.waits(c) for c in waiting):
            return _blocked(self, UNBOUND_IMMEDIATE)
        wording = (
            {} if self.state.version.has(VOLUME_AFFINITY_REASON) else {NODE_CONFLICT: NODE_CONFLICT_BEFORE}
        )
        found = _Filter(self.table.size, wording)
        self._check_bound(bound, found)
        self._check_waiting(waiting, found, _Shares(self.table.size))
        return found

    def score(self, template: PodTemplate) -> Score | None:
        """How empty the storage of a node stays: of the volumes that are found there, else of the capacity
        that new ones are made of. Each class of storage counts alike. Rule: scorer.go."""
        storage = self.state.storage
        if not storage.known or not self.state.version.has(STORAGE_SCORES):
            return None
        claims = [storage.claim_of(template.namespace, v) for v in claim_volumes(template)]
        waiting = [c for c in claims if c is not None and not fully_bound(c)]
        if not waiting or any(c.spec.volume_name or not storage.waits(c) for c in waiting):
            return None
        shares = _Shares(self.table.size)
        self._check_waiting(waiting, _Filter(self.table.size), shares)
        line = [at(self.profile.storage_shape, percent) for percent in range(101)]
        return _Score(shares.score(np.array(line, dtype=np.int64)))

    def _check_bound(self, claims: list[PersistentVolumeClaim], found: _Filter) -> None:
        """In order; the first claim that fails on a node gives its reason."""
        undecided = self.table.every.copy()
        for claim in claims:
            volume = self.state.storage.volume(claim.spec.volume_name)
            if volume is None:
                if self.state.storage.volumes_known:
                    found.add(NO_VOLUME, undecided)
                    return
                continue
            reached = self._reached(volume)
            found.add(NODE_CONFLICT, undecided & ~reached)
            undecided &= reached

    def _reached(self, volume: PersistentVolume) -> Bools:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return self.table.every
        return self.table.selector_mask(affinity.required)

    def _check_waiting(self, claims: list[PersistentVolumeClaim], found: _Filter, shares: _Shares) -> None:
        selected = [c.metadata.annotations.get(SELECTED_NODE) for c in claims]
        here = self.table.every.copy()
        for node in selected:
            if node is not None:
                here &= np.fromiter((n == node for n in self.table.names), dtype=np.bool_)
        found.add(BIND_CONFLICT, ~here)
        to_find = [c for c, node in zip(claims, selected, strict=True) if node is None]
        provision = [(c, here) for c, node in zip(claims, selected, strict=True) if node is not None]
        for claim, lacking in self._unmatched(to_find, shares):
            provision.append((claim, lacking & here))
        self._check_provision(provision, found, shares)

    def _unmatched(
        self, claims: list[PersistentVolumeClaim], shares: _Shares
    ) -> list[tuple[PersistentVolumeClaim, Bools]]:
        """Smallest claim first, each takes the smallest volume that fits: the nodes where it finds none."""
        taken: dict[str, Bools] = {}
        result = []
        for claim in sorted(claims, key=_requested):
            undecided = self.table.every.copy()
            for volume in self._candidates(claim):
                free = undecided & ~taken.get(volume.metadata.name, self.table.none)
                mine = _bound_to(volume, claim)
                reached = free & self._reached(volume)
                if reached.any():
                    shares.match(claim, reached, _capacity(volume))
                    taken[volume.metadata.name] = taken.get(volume.metadata.name, self.table.none) | reached
                undecided &= ~(free if mine else reached)
                if mine:
                    # A volume reserved for the claim is the only one; elsewhere the claim has none.
                    undecided |= free & ~reached
                    break
            result.append((claim, undecided))
        return result

    def _candidates(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Volumes the claim may take, reserved ones first, then by size."""
        wanted, spec = _requested(claim), claim.spec
        selector = canonical(spec.selector) if spec.selector is not None else None
        usable = []
        for volume in self.state.storage.by_class.get(claim_class(claim), ()):
            v, mine = volume.spec, _bound_to(volume, claim)
            if (
                (v.claim_ref is not None and not mine)
                or _capacity(volume) < wanted
                or v.volume_mode != spec.volume_mode
                or v.volume_attributes_class_name != spec.volume_attributes_class_name
                or volume.metadata.deletion_timestamp is not None
            ):
                continue
            if mine or (
                volume.status.phase == "Available"
                and (selector is None or selector.matches(volume.metadata.labels))
                and volume_class(volume) == claim_class(claim)
                and set(spec.access_modes) <= set(v.access_modes)
            ):
                usable.append((not mine, _capacity(volume), volume))
        return [v for *_, v in sorted(usable, key=lambda u: u[:2])]

    def _check_provision(
        self, claims: list[tuple[PersistentVolumeClaim, Bools]], found: _Filter, shares: _Shares
    ) -> None:
        """In order; on each node the first claim that cannot be provisioned gives its reason."""
        decided = self.table.none.copy()
        for claim, nodes in claims:
            storage_class = self.state.storage.classes[claim_class(claim)]
            undecided = nodes & ~decided
            if storage_class.provisioner in NO_PROVISIONER:
                possible = self.table.none
            else:
                possible = self._allowed(storage_class)
            found.add(BIND_CONFLICT, undecided & ~possible)
            room = self._room(claim, storage_class, shares, nodes)
            found.add(NO_SPACE, undecided & possible & ~room)
            decided |= nodes & ~(possible & room)

    def _allowed(self, storage_class: StorageClass) -> Bools:
        """bool[N]: nodes inside the class's allowedTopologies."""
        if not storage_class.allowed_topologies:
            return self.table.every
        mask = self.table.none
        for term in storage_class.allowed_topologies:
            inside = self.table.every if term.match_label_expressions else self.table.none
            for e in term.match_label_expressions:
                domains = self.table.domains(e.key)
                by_name = np.array([name in e.values for name in domains.names], dtype=np.bool_)
                inside = inside & domains.spread(by_name)
            mask = mask | inside
        return mask

    def _room(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, shares: _Shares, nodes: Bools
    ) -> Bools:
        """bool[N]: nodes that a CSIStorageCapacity of the class with enough room covers."""
        if not self.state.storage.takes_room(claim):
            return self.table.every
        mask = self.table.none
        for capacity in self.state.storage.capacities:
            if capacity.storage_class_name == storage_class.metadata.name and _limit(capacity) >= _requested(
                claim
            ):
                covered = self._covered(capacity)
                if capacity.capacity is not None:
                    shares.make(claim, covered & nodes & ~mask, units(str(capacity.capacity)))
                mask = mask | covered
        return mask

    def _covered(self, capacity: CSIStorageCapacity) -> Bools:
        if capacity.node_topology is None:
            return self.table.none
        return self.table.matching(canonical(capacity.node_topology))


def _problem(claim: PersistentVolumeClaim | None, volume: Volume, namespace: str) -> str:
    """Why the claim cannot be used at all; "" if it can."""
    name = volume.claim
    if claim is None:
        if volume.kind == "ephemeral":
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return not_found(name)
    if not owned(claim, volume):
        return not_owned(volume, namespace)
    if claim.status.phase == "Lost":
        lost = f'persistentvolume "{claim.spec.volume_name}"'
        return f'persistentvolumeclaim "{name}" bound to non-existent {lost}'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _blocked(plugin: Plugin, reason: str) -> Filter:
    found = _Filter(plugin.table.size)
    found.blocked = Rejection(plugin.name, UNRESOLVABLE, (reason,))
    return found


def _requested(claim: PersistentVolumeClaim) -> int:
    return units(str(claim.spec.resources.requests.get("storage", 0)))


def _capacity(volume: PersistentVolume) -> int:
    return units(str(volume.spec.capacity.get("storage", 0)))


def _limit(capacity: CSIStorageCapacity) -> int:
    """Bytes of the largest volume; -1 where the object says nothing."""
    text = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return units(str(text)) if text is not None else -1


def _bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is reserved for this very claim."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and ref.name == claim.metadata.name
        and ref.namespace == claim.metadata.namespace
        and ref.uid in ("", claim.metadata.uid)
    )


class _Shares:
    """By class of storage, what of how much is asked for on each node: of volumes, and of what makes them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: dict[str, tuple[Ints, Ints]] = {}
        self._made: dict[str, tuple[Ints, Ints]] = {}

    def match(self, claim: PersistentVolumeClaim, nodes: Bools, capacity: int) -> None:
        """The claim takes a volume of this capacity on these nodes."""
        asked, there = self._of(self._found, claim)
        asked[nodes] += _requested(claim)
        there[nodes] += capacity

    def make(self, claim: PersistentVolumeClaim, nodes: Bools, capacity: int) -> None:
        """A volume is made for the claim, of so much that there is for all claims of its class."""
        asked, there = self._of(self._made, claim)
        asked[nodes] += _requested(claim)
        there[nodes] = capacity

    def _of(self, shares: dict[str, tuple[Ints, Ints]], claim: PersistentVolumeClaim) -> tuple[Ints, Ints]:
        zeros = np.zeros((2, self._size), dtype=np.int64)
        return shares.setdefault(claim_class(claim), (zeros[0], zeros[1]))

    def score(self, line: Ints) -> Ints:
        """int64[N]: the mean over classes, by the `line` over the percentage that is asked for."""
        taken = np.zeros(self._size, dtype=np.bool_)
        for _, there in self._found.values():
            taken |= there > 0
        total, classes = np.zeros((2, self._size), dtype=np.int64)
        for shares, where in ((self._found, taken), (self._made, ~taken)):
            for asked, there in shares.values():
                counted = where & (there > 0)
                percent = np.minimum(asked, there) * 100 // np.maximum(there, 1)
                percent[asked > there] = 100
                total += np.where(counted, line[percent], 0)
                classes += counted
        rounded: Ints = np.floor(total / np.maximum(classes, 1) + 0.5).astype(np.int64)
        return rounded


class _Score(Score):
    def __init__(self, scores: Ints) -> None:
        self._scores = scores

    def values(self, feasible: Bools) -> Ints:  # noqa: ARG002
        return self._scores


class _Filter(Filter):
    """Reasons by node, in the order in which the binder gives them."""

    ORDER = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME)

    def __init__(self, size: int, wording: Mapping[str, str] | None = None) -> None:
        """`wording`: what a version of the scheduler says instead."""
        self._reasons: dict[str, Bools] = {r: np.zeros(size, dtype=np.bool_) for r in self.ORDER}
        self._wording = wording or {}

    def add(self, reason: str, nodes: Bools) -> None:
        self._reasons[reason] |= nodes

    def mask(self) -> Bools:
        rejected: Bools = np.logical_or.reduce(list(self._reasons.values()))
        return ~rejected

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        return UNRESOLVABLE, tuple(self._wording.get(r, r) for r in self.ORDER if self._reasons[r][row])
