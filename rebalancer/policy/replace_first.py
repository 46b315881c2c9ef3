"""Replace first: which pods their ReplicaSet can let go of and replace before they are evicted.

A pod is *released* by taking away one label that nothing but its ReplicaSet asks for. The ReplicaSet then
makes another pod at once, while this one runs and serves on; the Eviction API takes it when the new one is
available, for then the budget has one healthy pod to spare. So the workload has to bear a pod too many, and
nobody else may mind the label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.node import is_leaving, is_outdated
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Selector, canonical
from rebalancer.model.snapshot import Snapshot, candidates
from rebalancer.model.workload import HASH, Workload
from rebalancer.policy.annotations import METHOD, METHOD_WORDS
from rebalancer.policy.budgets import Budgets
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.release import mark_of
from rebalancer.spread.constraint import Constraint, resolve

_ADOPTS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
"""Kinds whose controllers take over a pod that has no controller and that their selector matches."""
_NEEDED = ("Service", "PodDisruptionBudget", "Deployment", *_ADOPTS)
"""Kinds of a snapshot that have to be readable, as one of their objects may ask for the label."""
_BEARS_IT = f'if it bears a pod too many, annotate it with {METHOD}: "replaceFirst"'


class Release(Struct, frozen=True, eq=False):
    """How a pod is released: the label that it loses; `template`: the pod as it runs on without it."""

    label: str
    template: PodTemplate


def without_label(template: PodTemplate, label: str) -> PodTemplate:
    """A pod of this template once it is released."""
    return replace(template, labels={k: v for k, v in template.labels.items() if k != label})


def adopter(workloads: Iterable[Workload], namespace: str, labels: Mapping[str, str]) -> Workload | None:
    """The first controller that would take over a pod of these labels that has none; None if none would."""
    return next(
        (
            w
            for w in workloads
            if w.namespace == namespace
            and w.kind in _ADOPTS
            and w.selector is not None
            and not w.selector.empty
            and w.selector.matches(labels)
        ),
        None,
    )


def asked_for(snapshot: Snapshot, options: PolicyOptions) -> bool:
    """Whether any pod may be replaced first: only then what else asks for labels is read."""
    return options.method != "evict" or any(METHOD in w.metadata.annotations for w in snapshot.workloads)


class ReplaceFirst:
    """The method, applied to one snapshot. `attached`: the claim of a pod that one node at a time can attach,
    "" if it has none."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: PolicyOptions,
        owners: Owners,
        budgets: Budgets,
        attached: Callable[[Pod], str],
    ) -> None:
        self._snapshot, self._options = snapshot, options
        self._owners, self._budgets, self._attached = owners, budgets, attached
        self._wanted: dict[str, str] = {}
        self._releases: dict[tuple[int, int], tuple[Pod, Release | Reason]] = {}

    def of(self, pod: Pod, *, auto_first: bool = False) -> Release | Reason | None:
        """How the pod is released; why it cannot be, though its workload is to be replaced first; None where
        that is not asked for. `auto_first`: see `PolicyOptions`."""
        owner = self._owners.of(pod)
        wanted = self._method(owner) if owner is not None else "evict"
        if owner is None or wanted == "evict":
            return None
        kept, evicts = self._budgets.why_not(pod), not (auto_first or self._options.auto_first)
        if kept.code is not ReasonCode.PDB_EXHAUSTED if kept is not None else wanted == "auto" and evicts:
            return None  # the Eviction API would refuse it at the end as well, or takes it as it is
        return self._how(pod, owner)

    def waits(self, pod: Pod) -> Reason | None:
        """Why a Ready pod stays that is to be replaced first, and whose workload bears it: it cannot be for
        now. Evicted at once, as a kind cannot be read or an undo turned the method off, it is missed."""
        owner = self._owners.of(pod)
        if owner is None or not pod.ready or self._method(owner) != "replacefirst":
            return None
        above = owner.owner
        unread = above is not None and above.kind == "Deployment" and self._owners.parent(owner) is None
        if not unread and self._by_owner(owner):
            return None
        return self._as_it_is(pod) or self._by_what_is_read()

    def _how(self, pod: Pod, owner: Workload) -> Release | Reason:
        if (reason := self._as_it_is(pod)) is not None:
            return reason
        alike = id(pod.template), id(pod.owner)
        known = self._releases.get(alike)
        if known is None:
            known = self._releases[alike] = pod, self._found(pod, owner)
        return known[1]

    def why_not(self, pod: Pod, label: str) -> Reason | None:
        """Why the pod is not released now by this label, as it was planned. Whether its budget still asks for
        that is all one: that changes with each replacement."""
        owner = self._owners.of(pod)
        if owner is None or self._method(owner) == "evict":
            return _no("its workload is not to be replaced first any more")
        how = self._how(pod, owner)
        return how if isinstance(how, Reason) else self.asked_for(pod, label)

    def asked_for(self, pod: Pod, label: str) -> Reason | None:
        """Who else minds that the pod loses the label; None if nobody does."""
        who = next(self._users(label, pod, without_label(pod.template, label)), "")
        return _no(f"{who} {label}") if who else None

    def _method(self, owner: Workload) -> str:
        """What the settings say, or the annotation of the topmost owner, in small letters; with an
        unknown word of it the pods stay."""
        if (found := self._wanted.get(owner.key)) is None:
            said = self._owners.top(owner).metadata.annotations.get(METHOD)
            found = self._options.method.lower()
            if said is not None:
                found = said.strip().lower() if METHOD_WORDS.clear(said) else "evict"
            self._wanted[owner.key] = found
        return found

    def _as_it_is(self, pod: Pod) -> Reason | None:
        """What speaks against it as this very pod and its node are now."""
        if self._options.no_release is not None:
            return self._options.no_release
        if not pod.ready:
            return _no("it is not Ready: nothing would serve meanwhile")
        if pod.node_name in self._going:
            return _no(f"its node {pod.node_name} is cordoned, leaves or may be removed")
        for b in self._budgets.of(pod):
            status = b.budget.status
            if status.current_healthy < status.desired_healthy:
                return _no(f"PodDisruptionBudget {b.key} needs more healthy pods than there are by now")
        return None

    @cached_property
    def _going(self) -> frozenset[str]:
        return candidates(self._snapshot).union(
            self._snapshot.going,
            (n.name for n in self._snapshot.nodes if is_leaving(n) or is_outdated(n)),
        )

    def _found(self, pod: Pod, owner: Workload) -> Release | Reason:
        reason = self._by_owner(owner) or self._by_what_is_read()
        if reason is None and (claim := self._attached(pod)):
            reason = _no(f"claim {claim} can be attached to one node at a time")
        return reason or self._by_label(pod, owner)

    def _by_owner(self, owner: Workload) -> Reason | None:
        """Why the owner does not bear a pod too many."""
        name, top = f"{owner.kind} {owner.name}", self._owners.top(owner)
        if owner.kind != "ReplicaSet":
            return _no(f"{name} does not let go of pods; only a ReplicaSet does")
        if owner.owner is not None and top.kind != "Deployment":
            return _no(f"{name} belongs to {owner.owner.kind} {owner.owner.name}, which may mind the label")
        if top.metadata.annotations.get(METHOD, "").strip().lower() == "replacefirst":
            return None
        if top is owner:
            return _no(f"{name} has no Deployment, whose maxSurge would allow a pod too many", _BEARS_IT)
        name = f"Deployment {top.name}"
        if top.update_strategy == "Recreate":
            return _no(f"{name} recreates its pods, so two must not run together", _BEARS_IT)
        if top.surge < 1:
            return _no(f"{name} allows no pod too many (maxSurge)", _BEARS_IT)
        if top.replicas < 2:
            return _no(f"{name} has a single replica, which may be a single writer", _BEARS_IT)
        return None

    def _by_what_is_read(self) -> Reason | None:
        users = self._options.label_users
        unread = sorted({*self._snapshot.refused.intersection(_NEEDED), *(users.unread if users else ())})
        if not unread:
            return None
        return _no(
            f"{', '.join(unread)} may not be read, and could ask for the label that it would lose",
            "grant `list` on them: the chart's value replaceFirst.enabled, or the component replace-first",
        )

    def _by_label(self, pod: Pod, owner: Workload) -> Release | Reason:
        asked = owner.selector.requirements if owner.selector is not None else ()
        keys = [r.key for r in asked if r.operator in ("In", "Exists") and r.key in pod.template.labels]
        why = ""
        for key in sorted(keys, key=lambda k: (k != HASH, k)):
            left = without_label(pod.template, key)
            if not (who := next(self._users(key, pod, left), "")):
                return Release(key, left)
            why = why or f": {who} {key}"
        return _no(f"it has no label that only its ReplicaSet asks for{why}")

    def _users(self, key: str, pod: Pod, left: PodTemplate) -> Iterator[str]:
        """Who else asks for the label, or would take the pod over without it; a sentence without its end,
        the label."""
        namespace, labels = pod.namespace, pod.template.labels
        if (new := adopter(self._workloads[namespace], namespace, left.labels)) is not None:
            yield f"{new.kind} {new.name} would adopt the pod without"
        for who, selector in self._selectors[namespace]:
            if _asks(selector, key, left.labels):
                yield f"{who} asks for"
        for there, selector in self._affinities.get(key, ()):
            if (there is None or namespace in there) and _asks(selector, key, left.labels):
                yield "an affinity of pods asks for"
        for made_by, constraint in self._spread.get(key, ()):
            # Those of its own ReplicaSet are what the plan is about: the engine counts with them.
            counted = constraint.counts(namespace, labels) != constraint.counts(namespace, left.labels)
            if counted and not (made_by and made_by == _made_by(pod)):
                yield "a spread constraint of other pods asks for"
        for user in self._options.label_users.found if self._options.label_users is not None else ():
            # In any namespace: network policies and monitors select the pods of others too.
            if key in user.spec:
                yield f"{user.kind} {user.name} names"

    @cached_property
    def _workloads(self) -> Mapping[str, list[Workload]]:
        """By namespace."""
        found: dict[str, list[Workload]] = defaultdict(list)
        for w in self._snapshot.workloads:
            found[w.namespace].append(w)
        return found

    @cached_property
    def _selectors(self) -> Mapping[str, list[tuple[str, Selector]]]:
        """By namespace: what selects pods there, beside the controllers of pods."""
        found: dict[str, list[tuple[str, Selector]]] = defaultdict(list)
        for service in self._snapshot.services:
            where = found[service.metadata.namespace]
            where.append((f"Service {service.metadata.name}", Selector.equals(service.spec.selector)))
        for budget in self._snapshot.budgets:
            if budget.spec.selector is not None:
                name = f"PodDisruptionBudget {budget.metadata.name}"
                found[budget.metadata.namespace].append((name, canonical(budget.spec.selector)))
        for w in self._snapshot.workloads:
            if w.kind == "Deployment" and w.selector is not None:
                found[w.namespace].append((f"Deployment {w.name}", w.selector))
        return found

    @cached_property
    def _affinities(self) -> Mapping[str, list[tuple[tuple[str, ...] | None, Selector]]]:
        """By label: the terms of inter-pod (anti-)affinity that ask for it, each with its namespaces, None
        for any."""
        found: dict[str, list[tuple[tuple[str, ...] | None, Selector]]] = defaultdict(list)
        for group in self._snapshot.live:
            affinity = group.template.affinity
            for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
                terms = (*part.required, *(w.pod_affinity_term for w in part.preferred)) if part else ()
                for term in terms:
                    there = term.namespaces or (group.template.namespace,)
                    selector = canonical(term.label_selector) if term.label_selector else Selector()
                    for r in selector.requirements:
                        found[r.key].append((None if term.namespace_selector else there, selector))
        return found

    @cached_property
    def _spread(self) -> Mapping[str, list[tuple[str, Constraint]]]:
        """By label: the spread constraints that ask for it, each with who made its pods (`_made_by`)."""
        found: dict[str, list[tuple[str, Constraint]]] = defaultdict(list)
        for group in self._snapshot.live:
            for written in group.template.spread:
                constraint = resolve(written, group.template)
                for r in constraint.selector.requirements if constraint.selector is not None else ():
                    found[r.key].append((_made_by(group.one), constraint))
        return found


def _made_by(pod: Pod) -> str:
    """The uid of who made the pod: of a released one the ReplicaSet that has let it go; "" if nobody did."""
    mark = mark_of(pod.annotations, pod.uid) if pod.owner is None else None
    return pod.owner.uid if pod.owner is not None else mark.replica_set if mark is not None else ""


def _asks(selector: Selector, key: str, left: Mapping[str, str]) -> bool:
    """Whether a selector names the label, and is otherwise about a pod that has these labels left."""
    others = [r for r in selector.requirements if r.key != key]
    return len(others) < len(selector.requirements) and all(r.matches(left) for r in others)


def _no(message: str, remedy: str = "") -> Reason:
    return Reason(ReasonCode.NOT_REPLACED_FIRST, message, {}, remedy)
