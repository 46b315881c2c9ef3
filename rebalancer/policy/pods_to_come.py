"""Pods that owners are going to make before long, though nothing waits for them yet: they keep their room."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice, zip_longest

from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.model.node import OF_ITS_NODE, OwnerReference
from rebalancer.model.pod import Pod, Volume
from rebalancer.model.workload import REVISION, Workload
from rebalancer.policy.owners import (
    ARRIVAL,
    KEPT_UP,
    LATE,
    MAKE_MORE,
    REPLICATED,
    Owners,
    failing,
    number_in,
    of_rollout,
    ordinal,
    ordinals,
    two_revisions,
)

_BROKEN = 3600.0
"""Seconds after which the newest pod of a rollout, if it is not Ready, is taken to be broken for good, and an
owner not to be able to make its pods."""
_REVISION = {"Deployment": "deployment.kubernetes.io/revision", "Rollout": "rollout.argoproj.io/revision"}
"""Annotations of a Deployment, once its controller has seen it, or of an Argo Rollout, and of its
ReplicaSets: their revision."""
_DESIRED = "rollout.argoproj.io/desired-replicas"
"""Annotation of the ReplicaSets of an Argo Rollout: how many pods that wants in all."""
_MOST = 500
"""Pods to come that are looked at for one owner: it may want any number."""


class PodsToCome:
    """What the owners of a snapshot are going to make. What is asked about an owner is worked out once.
    `expected`: how many pods of each owner's uid are on their way, and looked at elsewhere."""

    def __init__(self, owners: Owners, expected: Mapping[str, int] | None = None) -> None:
        self.owners, self._snapshot, self._active = owners, owners.snapshot, owners.active
        self._expected = expected or {}
        rollouts: dict[tuple[str, OwnerReference], list[Workload]] = defaultdict(list)
        for w in self._snapshot.workloads:
            if (ref := w.owner) is not None and of_rollout(w, ref):
                rollouts[w.namespace, ref].append(w)
        releases = [(self._release(ref, sets), sets) for (_, ref), sets in rollouts.items()]
        self._releases = {w.key: sets for w, sets in releases if w is not None}
        self._workloads = (*self._snapshot.workloads, *(w for w, _ in releases if w is not None))

    def wants(self, pod: Pod) -> bool:
        """Whether the pod's owner makes it anew once it is gone, as far as is known: a set that is scaled in
        gives up its highest ordinals."""
        if (owner := self.owners.of(pod)) is None:
            return pod.owner is not None
        if owner.metadata.deletion_timestamp is not None:
            return False
        return owner.kind != "StatefulSet" or ordinal(pod) in ordinals(owner)

    @remembered(by=lambda owner: owner.key)
    def doubt(self, owner: Workload) -> int:
        """0: the owner makes another pod in any case, at once; 1: after a while, as a Job does; 2: perhaps
        never. A release may stop at a step. Where its Deployment is being deleted an owner makes pods until
        it is deleted, too: for long, if a finalizer keeps the Deployment."""
        refused = failing(owner) is not None or self.owners.refused(owner) is not None
        refused |= self.owners.cannot_make(owner, self._active(owner))
        if refused or self.owners.top(owner).metadata.deletion_timestamp is not None:
            return 2
        return 0 if owner.kind in KEPT_UP or owner.kind == "Deployment" else 1 if owner.retries else 2

    @cached_property
    def made_again(self) -> list[Pod]:
        """Pods that end, or are on a node that is gone, and whose owners make them again once they are gone,
        as a StatefulSet does: no pod waits in their place yet, but it will take room. As many as an owner is
        short of; a set that is scaled down gives up its highest ordinals. What other kinds want is not known:
        they make all again, but for those that have come to the end of their work."""
        ending = (*(p for p in self._snapshot.over if p.terminating), *self._snapshot.stranded)
        found, made = [], Counter[str]()
        for pod in sorted(ending, key=lambda p: (len(p.name), p.name)):
            owner, kind = self.owners.of(pod), pod.owner.kind if pod.owner is not None else "Node"
            if kind not in REPLICATED:
                over = kind in OF_ITS_NODE or (pod.finished and self.owners.ends(pod))
                found += [pod] * (not over)
            elif owner is not None and self.wants(pod) and made[owner.key] < self._lacks(owner):
                made[owner.key] += 1
                found.append(pod)
        return found

    @cached_property
    def further(self) -> list[tuple[Workload, int]]:
        """Owners, and how many more pods are to be made before long that nothing waits for yet: those that it
        lacks beside `made_again`, as a StatefulSet makes one after the other and a Job waits after one that
        failed, those that a Deployment has yet to pass on, and those that a rollout makes before it takes old
        ones away."""
        again = Counter(owner.key for p in self.made_again if (owner := self.owners.of(p)) is not None)
        found: list[tuple[Workload, int]] = []
        for w in self._workloads:
            if w.metadata.deletion_timestamp is not None or w.template is None or self._makes_none(w):
                continue
            number, family = 0, self._family(w)
            if w.kind in MAKE_MORE:
                if not self.owners.stuck(w, self._active(w), blip=ARRIVAL):
                    number = self._lacks(w) - again[w.key]
            elif w.kind in _REVISION and not w.paused and ((rolls := self._rolls(w)) or family):
                # Between two revisions, by Recreate, none of its ReplicaSets wants a pod.
                there = sum(max(s.replicas, len(self._active(s))) for s in family)
                number = min(w.replicas + w.surge * rolls - there, w.replicas - w.updated_replicas)
            if number > 0:
                found.append((w, min(number, _MOST)))
        return found

    @remembered(by=lambda owner: owner.key)
    def _lacks(self, owner: Workload) -> int:
        """How many pods the owner is short of, or less than 0. A set that is scaled in makes those that it
        wants before it takes the others away."""
        there = self._active(owner)
        if owner.kind == "StatefulSet":
            wanted = ordinals(owner)
            there = [p for p in there if ordinal(p) in wanted]
        return owner.replicas - len(there) - self._expected.get(owner.metadata.uid, 0)

    def claims(self, owner: Workload, number: int) -> Iterator[tuple[Volume, ...]]:
        """Of each of so many pods that an owner has `further`: the claims that a StatefulSet has kept for
        it."""
        there = {p.name for p in (*self._active(owner), *self.made_again)}
        names = _names(owner) if owner.claim_templates else ()
        missing = (name for name in names if name not in there)
        for name, _ in zip_longest(islice(missing, number), range(number), fillvalue=""):
            every = ((volume, f"{volume}-{name}") for volume in sorted(owner.claim_templates))
            yield tuple(
                Volume(volume, "persistentVolumeClaim", claim=claim)
                for volume, claim in every
                if (there_is := self._snapshot.claims.get(f"{owner.namespace}/{claim}")) is not None
                and there_is.metadata.deletion_timestamp is None
            )

    @remembered(by=lambda owner: owner.key)
    def youngest(self, owner: Workload) -> Pod | None:
        """The pod that was made last for the application, of whatever revision; where none is active, of
        those that end or have ended: between two tries of a Job, say."""
        family = self._family(owner)
        there = [p for w in family for p in self._active(w)]
        there = there or [p for w in family for p in self.owners.over.get(w.key, ())]
        return max(there, key=lambda p: p.created or 0.0, default=None)

    def like_next(self, owner: Workload) -> Pod | None:
        """A pod like the one that the owner makes next, as far as one is there. Below its partition a set
        makes those that are missing of its former revision."""
        former = owner.current_revision if owner.partition else ""
        there = [p for p in self._active(owner) if former and p.template.labels.get(REVISION) == former]
        return max(there, key=lambda p: p.created or 0.0, default=self.youngest(owner))

    def rolled_out(self) -> Iterator[tuple[Workload, list[Pod], int, int]]:
        """Owners in a rollout; their pods of former revisions that go, the first ones first; for how many of
        these others are made: all but what `further` has; and how many go before any is made for them."""
        coming = {w.key: number for w, number in self.further}
        for w in self._workloads:
            if w.metadata.deletion_timestamp is not None or w.template is None or self._given_up(w):
                continue
            seen = w.observed_generation >= w.metadata.generation
            number = w.replicas - (w.updated_replicas if seen else 0)
            if w.kind in _REVISION and not w.paused and self._rolls(w):
                number -= coming.get(w.key, 0)
                there = [s for s in self._family(w) if not (seen and _is_present(s, w))]
                first = min(number, w.unavailable) if w.surge else number
                yield w, [p for s in there for p in self._active(s)], number, first
            elif w.kind == "StatefulSet" and w.update_strategy != "OnDelete" and number > w.partition:
                last_first = sorted(self._active(w), key=lambda p: (len(p.name), p.name), reverse=True)
                if not seen or two_revisions(w, last_first) is not None:
                    present = w.update_revision if seen else None
                    old = [p for p in last_first if present != p.template.labels.get(REVISION, "")]
                    yield w, old[: (most := number - w.partition)], most, most

    @remembered(by=lambda owner: owner.key)
    def maker(self, owner: Workload) -> Workload:
        """What makes an owner's next pod, with the hash of its present revision, which the pod has: of a
        Deployment the ReplicaSet. The owner itself where that is not known yet."""
        if owner.template is None or owner.observed_generation < owner.metadata.generation:
            return owner
        if owner.kind == "StatefulSet" and owner.update_revision:
            labels = {**owner.template.labels, REVISION: owner.update_revision}
            return replace(owner, template=replace(owner.template, labels=labels))
        if owner.kind not in _REVISION:
            return owner
        family = (s for s in self._family(owner) if s.template is not None)
        return next((s for s in family if _is_present(s, owner)), owner)

    def _release(self, rollout: OwnerReference, replica_sets: Iterable[Workload]) -> Workload | None:
        """An Argo Rollout that is between two revisions, as far as its ReplicaSets tell of it: it makes pods
        as a Deployment does, whose usual maxSurge and maxUnavailable it has."""
        busy = [w for w in replica_sets if w.replicas > 0 or self._active(w)]
        if len(busy) < 2:
            return None
        newest = max(busy, key=lambda w: number_in(w.metadata.annotations, _REVISION[rollout.kind]))
        return Workload(
            kind=rollout.kind,
            metadata=replace(
                newest.metadata, name=rollout.name, uid=rollout.uid, owner_references=(), generation=0
            ),
            replicas=number_in(newest.metadata.annotations, _DESIRED),
            template=newest.template,
            updated_replicas=newest.status_replicas,
        )

    def _family(self, owner: Workload) -> list[Workload]:
        return self._releases.get(owner.key) or self.owners.family(owner)

    def _rolls(self, deployment: Workload) -> bool:
        """Whether a Deployment is on the way to another revision, though it be late, or be refused pods."""
        unseen = deployment.observed_generation < deployment.metadata.generation
        known = unseen or deployment.key in self._releases
        return known or self.owners.between(deployment) is not None

    def _makes_none(self, owner: Workload) -> bool:
        """Whether its controller has not been able to make pods for long: what refused them, such as a quota,
        may have room by now. One that is late makes more once the last ones are Ready."""
        if _may_be_late(owner):
            return self._given_up(owner)
        return bool(owner.failing) and self._snapshot.now - (owner.failing_since or 0.0) > _BROKEN

    def _given_up(self, owner: Workload) -> bool:
        """Whether a rollout that is late is broken: its newest pod has not been Ready for an hour."""
        newest = self.youngest(owner) if _may_be_late(owner) else None
        if newest is None or newest.ready or newest.terminating or newest.finished or newest.created is None:
            return False
        since = max(newest.created, newest.symptoms.unready_since or 0.0)
        return self._snapshot.now - since > _BROKEN


def _is_present(replica_set: Workload, deployment: Workload) -> bool:
    """Whether it is of the revision that its Deployment has come to. By Recreate that is said only once the
    old pods are gone: until then the former ReplicaSet has the mark, and wants none."""
    key = _REVISION[deployment.kind]
    its, present = (w.metadata.annotations.get(key) for w in (replica_set, deployment))
    return its is not None and its == present and replica_set.replicas > 0


def _names(owner: Workload) -> Iterator[str]:
    """Of all pods that a StatefulSet wants, in the order in which it makes them: perhaps a billion."""
    return (f"{owner.name}-{n}" for n in ordinals(owner))


def _may_be_late(owner: Workload) -> bool:
    """Whether a rollout has not come to an end in time; of Argo's nothing that is read says so."""
    return owner.failing == LATE or owner.kind == "Rollout"
