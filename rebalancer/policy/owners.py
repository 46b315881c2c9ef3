"""Who owns which pods, and whether an owner would make the replacement that a plan counts on: at once, and
from the known template."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from math import inf

from rebalancer.admission import ENFORCE, enforced, violations_of
from rebalancer.bulk_work import remembered
from rebalancer.model.node import ObjectMeta, OwnerReference
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import ONLY_MAKE_PODS, WORKLOADS, Snapshot, among
from rebalancer.model.workload import REVISION, Workload
from rebalancer.policy.new_pods import gone, minor_of, named, ranked_otherwise
from rebalancer.policy.options import PolicyOptions
from rebalancer.spread.constraint import Constraint

# Pods that live and die together: evicting one restarts the others, or stops the work of all.
#
# Known by the pod's own group, or by a controller whose pods wait for each other. A PodGroup's disruption
# mode is about preemption, so it is no evidence that one may go. docs/compatibility.md lists who sets what.

LABELS = (
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
)
"""Labels of a pod whose value names its group."""
ANNOTATIONS = (
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
    "gang.scheduling.koordinator.sh/name",
)
"""Annotations that do: of Volcano, KAI and Koordinator."""
KINDS = frozenset(
    {
        "Pod",
        "LeaderWorkerSet",
        "JobSet",
        "RayCluster",
        "TrainJob",
        "PyTorchJob",
        "TFJob",
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
        "MXJob",
        "MPIJob",
        "PodGroup",
    }
)
"""Controllers whose pods restart together. A Pod owns the workers of its group."""
VOLCANO = "batch.volcano.sh/"
"""Volcano's Job has the name of a built-in kind."""


def group_of(pod: Pod) -> str:
    """The name of the group that the pod says it is in; "" if it says none."""
    named = (pod.template.labels.get(key) for key in LABELS)
    noted = (pod.annotations.get(key) for key in ANNOTATIONS)
    return pod.template.scheduling_group or next((n for n in (*named, *noted) if n), "")


def why_not(pod: Pod, allowed: Collection[str]) -> Reason | None:
    """Why a member of a group stays; None if it is in none, or in one that policy opens by name."""
    group = group_of(pod)
    if not group or group in allowed:
        return None
    return Reason(
        ReasonCode.GANG,
        f"is in group {group}: its members may have to start together",
        {},
        "name the group in scope.gangsAllow if its pods can go one by one",
    )


def of_controller(controller: OwnerReference, what: str) -> Reason | None:
    """Why what this controller owns stays, where its pods belong together. `what`: a sentence's beginning."""
    kind, volcano = controller.kind, controller.api_version.startswith(VOLCANO)
    if kind not in KINDS and not volcano:
        return None
    return Reason(
        ReasonCode.GANG,
        f"{what}: one eviction may restart all of its pods",
        {},
        "" if volcano else f"allow {kind} in scope.ownerKindsAllow if its pods can go one by one",
    )


_SIZE = "leaderworkerset.sigs.k8s.io/size"
"""Annotation of a LeaderWorkerSet's pods: how many each group has."""
_NUMBER = re.compile("[0-9]{1,9}")
REPLICATED = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds that make their pods again."""
MAKE_MORE = REPLICATED | {"Job"}
"""Kinds that make further pods while they want more: a Job until its work is done."""
KEPT_UP = REPLICATED | {"DaemonSet"}
"""Kinds that make their pods again, if need be on their nodes."""
_IN_FLUX = frozenset({ReasonCode.ROLLOUT_IN_PROGRESS, ReasonCode.OWNER_SCALING})
"""States of owners in which pods come and go by themselves."""
KNOWN_KINDS = WORKLOADS | KINDS | {"CronJob", "Rollout", "CloneSet"}
"""Kinds of owners that somebody who writes one of them, or something near, must mean."""
LATE = "ProgressDeadlineExceeded"
"""Why a Deployment fails whose rollout has not come to an end in time."""
ARRIVAL = 600.0
"""While a pod is younger than this, in seconds, and not Ready, no other pod of its owner is evicted. It is
the default progressDeadlineSeconds of a Deployment. An older pod that is not Ready is taken to be broken."""


class Owners:
    """The owners of a snapshot with their pods. What is asked about an owner is worked out once."""

    def __init__(self, snapshot: Snapshot, options: PolicyOptions) -> None:
        self.snapshot = snapshot
        self._options = options
        self._trusted = frozenset(options.owner_kinds_allow) - WORKLOADS
        self._stand_ins: dict[tuple[str, str, str], Workload] = {}
        self._pods: dict[str, list[Pod]] = defaultdict(list)
        for group in among(snapshot.live, ("", *snapshot.node_names)):
            owner = self.of(group.one)
            if owner is not None:
                self._pods[owner.key] += group.pods
        self._stranded = Counter(o.key for p in snapshot.stranded if (o := self.of(p)) is not None)
        self._of_deployment: dict[str, list[Workload]] = defaultdict(list)
        self._siblings: dict[tuple[str, str], list[Workload]] = defaultdict(list)
        for w in snapshot.workloads:
            if (ref := w.owner) is not None:
                self._siblings[w.namespace, ref.uid or ref.name].append(w)
            parent = self.parent(w)
            if parent is not None:
                self._of_deployment[parent.key].append(w)

    def of(self, pod: Pod) -> Workload | None:
        """The pod's controller, if the snapshot has it.

        For a kind that is not read but that the settings allow, a Workload with the name of the controller.
        """
        # Pods of one owner have the reference in common.
        return self._meant(pod.namespace, pod.owner) if pod.owner is not None else None

    @remembered(by=lambda namespace, ref: (namespace, id(ref)))
    def _meant(self, namespace: str, ref: OwnerReference) -> Workload | None:
        found = self.snapshot.owner_of(namespace, ref)
        if found is not None or ref.kind not in self._trusted:
            return found
        return self._stand_ins.setdefault(
            (ref.kind, namespace, ref.name),
            Workload(kind=ref.kind, metadata=ObjectMeta(name=ref.name, namespace=namespace, uid=ref.uid)),
        )

    def ends(self, pod: Pod) -> bool:
        """Whether the pod ends by itself, and nobody keeps up the number of such pods: a Job, a workflow. Who
        moves virtual machines does, and kinds that the settings allow."""
        if not pod.template.ends or pod.template.migrates:
            return False
        owner = self.of(pod)
        return owner is None or owner.kind == "Job"

    @remembered()
    def parent(self, owner: Workload) -> Workload | None:
        """The Deployment of a ReplicaSet."""
        return self.snapshot.owner_of(owner.namespace, owner.owner)

    def top(self, owner: Workload) -> Workload:
        """The Deployment if there is one, else the owner itself."""
        return self.parent(owner) or owner

    def chain(self, pod: Pod) -> list[OwnerReference]:
        """The pod's controller and those above it, as far as they are known, the nearest first."""
        owner = self.of(pod)
        above = (owner.owner, self.top(owner).owner) if owner is not None else ()
        return [ref for ref in (pod.owner, *above) if ref is not None]

    def active(self, owner: Workload) -> list[Pod]:
        """The owner's pods that are neither finished nor terminating, nor on a node that is gone."""
        return self._pods.get(owner.key, [])

    @cached_property
    def over(self) -> Mapping[str, list[Pod]]:
        """By owner: its pods that are finished or being deleted."""
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.snapshot.over:
            if (owner := self.of(pod)) is not None:
                found[owner.key].append(pod)
        return found

    def _ending(self, owner: Workload) -> list[Pod]:
        return [p for p in self.over.get(owner.key, ()) if p.terminating]

    @cached_property
    def lacking(self) -> frozenset[str]:
        """Namespaces in which an owner has fewer pods than it wants: it takes what a quota has free first."""
        return frozenset(w.namespace for w in self.snapshot.workloads if self._lacks(w))

    def _lacks(self, owner: Workload) -> bool:
        """Whether it would make a pod now; one that waits for the end of the former has its room."""
        daemons = owner.kind == "DaemonSet"
        wanted = owner.on_nodes or 0 if daemons else owner.replicas * (owner.kind in MAKE_MORE)
        after = self._ending(owner) if daemons or owner.kind == "StatefulSet" else ()
        return wanted > len(self.active(owner)) + len(after)

    def restarting(self, pod: Pod) -> Reason | None:
        """Why no member of the pod's group goes, which is being made anew; None if all are there."""
        group = pod.template.restarts_with
        if not group or not (missing := self._restarting.get(group, 0)):
            return None
        return Reason(
            ReasonCode.REPLACEMENT_NOT_READY,
            f"its group {group.partition('/')[2]} is made anew: {missing} of its pods are not Ready yet",
            {"notReady": missing},
            f"it is left alone until they are Ready, or {ARRIVAL / 60:g} min old",
        )

    @cached_property
    def _restarting(self) -> Mapping[str, int]:
        """Groups of LeaderWorkerSets → how many of their pods are missing, or new and not Ready."""
        there, settled, size = Counter[str](), Counter[str](), dict[str, int]()
        for some in self.snapshot.live:
            if group := some.template.restarts_with:
                size[group] = max(size.get(group, 0), number_in(some.one.annotations, _SIZE))
                there[group] += len(some.pods)
                settled[group] += sum(p.ready or not self._new(p) for p in some.pods)
        return {group: max(n, size[group]) - settled[group] for group, n in there.items()}

    def _new(self, pod: Pod) -> bool:
        return pod.created is not None and self.snapshot.now - pod.created < arrival(self.snapshot, pod)

    def _starts(self, pod: Pod) -> bool:
        """Whether a pod that is not Ready may become so: it is new, or its startup probe still runs."""
        return self._new(pod) or pod.symptoms.starting

    @remembered(by=lambda owner: owner.key)
    def why_not(self, owner: Workload) -> Reason | None:
        """Why no pod of this owner should be evicted now; None if pods of it may be."""
        name = f"{owner.kind} {owner.name}"
        if owner.metadata.deletion_timestamp is not None:
            return Reason(ReasonCode.OWNER_TERMINATING, f"{name} is being deleted: no replacement would come")
        if owner.kind not in REPLICATED:
            if owner.kind in self._options.owner_kinds_allow:
                active = self.active(owner)
                # A virtual machine has one pod, and moves with it.
                moves = any(p.template.migrates for p in active)
                few = None if moves else self._too_few(owner, len(active), "pods")
                return few or self._arriving(owner, active)
            return _unknown(name)
        if owner.observed_generation < owner.metadata.generation:
            return _unseen(name)
        if (reason := failing(owner) or self.refused(owner)) is not None:
            return reason
        parent = self.parent(owner)
        if parent is None and (reason := self._parent_not_read(owner)) is not None:
            return reason
        if parent is not None and (reason := self.rollout(parent)) is not None:
            return reason
        active = self.active(owner)
        if (reason := self._scaling(owner, owner.replicas, active)) is not None:
            return reason
        if (reason := self._too_few(owner, owner.replicas)) is not None:
            return reason
        if owner.kind == "StatefulSet" and (reason := self._stateful(owner, active)) is not None:
            return reason
        return self._arriving(owner, active)

    def protected(self, owner: Workload) -> Reason | None:
        """Why policy protects its pods, whoever replaces them and whenever."""
        parent = self.parent(owner)
        paused = self._paused(parent) if parent is not None else None
        return paused or self._too_few(owner, owner.replicas)

    def _paused(self, parent: Workload) -> Reason | None:
        if not parent.paused or not self._options.protect_paused:
            return None
        return Reason(
            ReasonCode.PAUSED,
            f"{parent.kind} {parent.name} is paused",
            {},
            "resume it, or set policy.protectPaused: false",
        )

    def _too_few(self, owner: Workload, replicas: int, what: str = "replicas") -> Reason | None:
        least = self._options.min_replicas
        if replicas >= least:
            return None
        say = f"{owner.kind} {owner.name} has {replicas} {what}, policy.minReplicas is {least}"
        return Reason(ReasonCode.MIN_REPLICAS, say, {"replicas": replicas, "minReplicas": least})

    @remembered(by=str)
    def in_flux(self, namespace: str) -> list[tuple[Workload, Reason, list[PodTemplate]]]:
        """Owners of a namespace of which pods come or go by themselves before long: the topmost ones, why
        others stay meanwhile whose constraints count such pods, and the templates of these."""
        found = []
        for owner in self._in_namespace[namespace]:
            active = self.active(owner)
            why = self._unrest(owner, active) if owner.replicas or active else None
            if why is None or why.code not in _IN_FLUX or self.stuck(owner, active):
                continue
            if why.code is ReasonCode.ROLLOUT_IN_PROGRESS and self._halted(owner):
                continue
            top = self.top(owner)
            reason = Reason(
                why.code,
                f"its spread counts pods of another owner, too: {why.message}",
                why.numbers,
                f"it is left alone until {top.kind} {top.name} has its pods",
            )
            templates = (owner.template, *(p.template for p in active))
            found.append((top, reason, list({id(t): t for t in templates if t is not None}.values())))
        return found

    @remembered(by=lambda constraint, but: (constraint, but.key))
    def unsettled(self, constraint: Constraint, but: Workload) -> bool:
        """Whether the constraint counts pods of an owner in flux, another one than this topmost owner."""
        return any(
            top.key != but.key and any(constraint.counts(t.namespace, t.labels) for t in templates)
            for top, _, templates in self.in_flux(constraint.namespace)
        )

    @cached_property
    def _in_namespace(self) -> Mapping[str, list[Workload]]:
        found: dict[str, list[Workload]] = defaultdict(list)
        for w in self.snapshot.workloads:
            if w.kind in KEPT_UP:
                found[w.namespace].append(w)
        return found

    def _unrest(self, owner: Workload, active: list[Pod]) -> Reason | None:
        """Why no pod of it goes: that it scales, or goes with all its pods, before anything else."""
        wanted = owner.replicas if owner.metadata.deletion_timestamp is None else 0
        if owner.kind == "DaemonSet":
            # What it wants is not known of a new node; what ends it makes anew, wherever it can.
            ending = {p.node_name for p in self._ending(owner)} & self.snapshot.node_names
            lacks = ending - {p.node_name for p in active}
            wanted = len(active) + len(lacks) if wanted else 0
            return self._scaling(owner, wanted, active)
        scaling = self._scaling(owner, wanted, active) if not failing(owner) else None
        return scaling or self.why_not(owner)

    def _scaling(self, owner: Workload, wanted: int, active: list[Pod]) -> Reason | None:
        if len(active) == wanted:
            return None
        gone = self._stranded[owner.key]
        beside = f", beside {gone} on nodes that are gone" if gone else ""
        return Reason(
            ReasonCode.OWNER_SCALING,
            f"{owner.kind} {owner.name} wants {wanted} pods and has {len(active)}{beside}: scaling, or "
            "unable to make them",
            {"replicas": wanted, "pods": len(active)},
        )

    def stuck(self, owner: Workload, active: list[Pod], *, blip: float = 0.0) -> bool:
        """Whether a StatefulSet is short of pods for one that finds no node, or does not become Ready: this
        one may be whom the move helps; or as it cannot make them: of one without any pod nothing says for how
        long. It waits for those before the first that is missing. `blip`: for so many seconds one that is no
        longer Ready may become so again."""
        since = self.snapshot.now - blip
        in_vain = any(
            p.unschedulable or not (self._starts(p) or (p.symptoms.unready_since or 0.0) > since)
            for p in self._waited_for(owner, active)
            if not p.ready
        )
        return in_vain or (bool(active) and self.cannot_make(owner, active))

    def cannot_make(self, owner: Workload, active: list[Pod]) -> bool:
        """Whether a StatefulSet is short of pods as it cannot make them, for now at least, which no condition
        of it says: its controller has seen what is there, waits for none of them, and none is new."""
        if self._missing(owner, active) is None:
            return False
        seen = owner.observed_generation >= owner.metadata.generation
        behind = sum(not p.ready for p in active) - sum(not p.ready for p in self._waited_for(owner, active))
        settled = len(active) == owner.status_replicas <= owner.available_replicas + behind
        return seen and settled and not any(self._new(p) for p in active)

    def _waited_for(self, owner: Workload, active: list[Pod]) -> list[Pod]:
        missing = None if owner.parallel else self._missing(owner, active)
        return [p for p in active if missing is not None and ordinal(p) < missing]

    def _missing(self, owner: Workload, active: list[Pod]) -> int | None:
        """The first number that a StatefulSet wants and no pod has."""
        if owner.kind != "StatefulSet":
            return None
        there = {ordinal(p) for p in active}
        return next((n for n in ordinals(owner) if n not in there), None)

    def family(self, owner: Workload) -> list[Workload]:
        """Those whose pods are of the same application: of each revision."""
        if owner.kind == "Deployment":
            return self._of_deployment[owner.key]
        ref = owner.owner if owner.kind in ONLY_MAKE_PODS else None
        return [owner] if ref is None else self._siblings[owner.namespace, ref.uid or ref.name]

    def _halted(self, owner: Workload) -> bool:
        """Whether its rollout goes no further by itself: it is paused, or waits for a pod that is broken.
        That is the newest one, if this is not Ready; or any, where pods come in order."""
        top, family = self.top(owner), self.family(owner)
        if any(w.observed_generation < w.metadata.generation for w in (owner, top)):
            return False
        pods = sorted((p for w in family for p in self.active(w)), key=lambda p: p.created or 0.0)
        if top.paused or not pods or self._starts(pods[-1]):
            return top.paused
        ordered = owner.kind == "StatefulSet" and not owner.parallel
        return not all(p.ready for p in (pods if ordered else pods[-1:]))

    def refused(self, owner: Workload) -> Reason | None:
        """Why the API server would not make a pod of the owner's template, or the scheduler not place it."""
        name, snapshot = f"{owner.kind} {owner.name}", self.snapshot
        if owner.node:
            return Reason(
                ReasonCode.REPLACEMENT_REFUSED,
                f"the template of {name} names node {owner.node}: the scheduler does not place its pods",
                {},
                "use a nodeSelector instead of nodeName",
            )
        there = {"PriorityClass": snapshot.priority_classes, "RuntimeClass": snapshot.runtime_classes}
        for kind, wanted in named(owner):
            if kind in snapshot.kinds and wanted not in there.get(kind, {wanted}):
                return gone(name, kind, wanted)
        if (reason := ranked_otherwise(owner, snapshot)) is not None:
            return reason
        namespace = snapshot.namespaces.get(owner.namespace)
        if namespace is None or not owner.security:
            return None
        level, version = enforced(namespace.metadata.labels, minor_of(snapshot.server_version))
        found = violations_of(owner.security, level, version) if level else ()
        # What all its pods have beside it something adds to each, unless it was edited under them, or is
        # their own.
        bare = owner.kind not in WORKLOADS or (owner.kind in ONLY_MAKE_PODS and owner.owner is None)
        active = {p.template for p in self.active(owner) if found and not bare}
        kept = (not violations_of(t.secured(owner.security), level, version) for t in active)
        if not found or (active and all(kept)):
            return None
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return Reason(
            ReasonCode.REPLACEMENT_REFUSED,
            f"namespace {owner.namespace} enforces Pod Security level {level}, which the template of {name} "
            f"does not keep ({found[0]}{more}): no new pod is admitted unless something adds what is missing",
            {"violations": len(found)},
            f"correct the template, or the label {ENFORCE} of the namespace",
        )

    def _arriving(self, owner: Workload, active: list[Pod]) -> Reason | None:
        """While the last replacement is not Ready, one more eviction would leave two pods missing at once.
        One whose startup probe still runs would begin anew elsewhere, however old it is."""
        new = [p for p in active if not p.ready and self._starts(p)]
        if not new:
            return None
        return Reason(
            ReasonCode.REPLACEMENT_NOT_READY,
            f"new pods of {owner.kind} {owner.name} are not Ready yet: {len(new)} ({new[0].name})",
            {"notReady": len(new)},
            f"it is left alone until they are Ready, or {arrival(self.snapshot, new[0]) / 60:g} min old and "
            "past startup probes",
        )

    def _parent_not_read(self, owner: Workload) -> Reason | None:
        """Why an owner is left alone whose own controller is not in the snapshot; None if it need not be."""
        ref = owner.owner
        if ref is None:
            return None
        name = f"{owner.kind} {owner.name}"
        if ref.kind == "Deployment" and ref.kind in self.snapshot.kinds:
            return Reason(
                ReasonCode.OWNER_UNKNOWN,
                f"{name}: its Deployment {ref.name} is not in the snapshot; it may be deleted with it",
            )
        if of_rollout(owner, ref):
            return self._revisions(owner, ref)
        if ref.kind != "Deployment" and ref.kind not in self._options.owner_kinds_allow:
            together = of_controller(ref, f"{name} belongs to {ref.kind} {ref.name}")
            return together or Reason(
                ReasonCode.OWNER_UNKNOWN,
                f"{name} belongs to {ref.kind} {ref.name}: how that kind replaces a pod is not known",
                {},
                "allow the kind in scope.ownerKindsAllow if it replaces evicted pods at once",
            )
        return self._revisions(owner, ref) if owner.kind != "StatefulSet" else None

    def _revisions(self, owner: Workload, ref: OwnerReference) -> Reason | None:
        """That a controller that is not read is between two revisions, each with an owner of this kind: a
        step, a pause, a canary or a preview of a Rollout leaves both with pods."""
        siblings = self._siblings[owner.namespace, ref.uid or ref.name]
        busy = [w for w in siblings if w.kind == owner.kind and (w.replicas > 0 or self.active(w))]
        if len(busy) > 1:
            return Reason(
                ReasonCode.ROLLOUT_IN_PROGRESS,
                f"{ref.kind} {ref.name} is between {len(busy)} revisions",
                {"revisions": len(busy)},
            )
        return None

    def rollout(self, parent: Workload) -> Reason | None:
        """Why the state of a Deployment keeps its pods where they are; None if it does not."""
        name = f"{parent.kind} {parent.name}"
        if parent.metadata.deletion_timestamp is not None:
            return Reason(ReasonCode.OWNER_TERMINATING, f"{name} is being deleted")
        if parent.kind != "Deployment":
            return None if parent.kind in self._options.owner_kinds_allow else _unknown(name)
        if (reason := self._paused(parent)) is not None:
            return reason
        if parent.observed_generation < parent.metadata.generation:
            return _unseen(name)
        return failing(parent) or self.between(parent)

    def between(self, parent: Workload) -> Reason | None:
        """That a Deployment has pods of several revisions, or not all of the present one."""
        name = f"{parent.kind} {parent.name}"
        busy = [w for w in self._of_deployment[parent.key] if w.replicas > 0 or self.active(w)]
        if len(busy) > 1:
            return Reason(
                ReasonCode.ROLLOUT_IN_PROGRESS,
                f"{name} is between {len(busy)} revisions",
                {"revisions": len(busy)},
                "wait for the rollout; matchLabelKeys: [pod-template-hash] keeps revisions apart",
            )
        if parent.updated_replicas < parent.replicas and parent.status_replicas > 0 and not parent.paused:
            return Reason(
                ReasonCode.ROLLOUT_IN_PROGRESS,
                f"{name}: {parent.updated_replicas} of {parent.replicas} pods are of the present revision",
                {"updated": parent.updated_replicas, "replicas": parent.replicas},
            )
        return None

    def _stateful(self, owner: Workload, active: list[Pod]) -> Reason | None:
        name = f"StatefulSet {owner.name}"
        if (reason := two_revisions(owner, active)) is not None:
            return reason
        wanted = ordinals(owner)
        if beyond := sorted(p.name for p in active if ordinal(p) not in wanted):
            return Reason(
                ReasonCode.OWNER_SCALING,
                f"{name} gives up {beyond[0]}, whose number it does not want any more, and has yet to make "
                "another pod",
                {"beyond": len(beyond)},
            )
        now = self.snapshot.now
        if not owner.parallel and (waiting := sum(not available(p, owner, now) for p in active)):
            lasts = " for minReadySeconds" if owner.min_ready_seconds else ""
            return Reason(
                ReasonCode.REPLACEMENT_NOT_READY,
                f"{name} starts its pods in order and {waiting} not Ready{lasts}: a replacement would wait",
                {"notReady": waiting},
            )
        return None


def available(pod: Pod, owner: Workload, now: float) -> bool:
    """Whether its owner counts a pod as available: one that has been Ready for minReadySeconds."""
    pause = owner.min_ready_seconds
    return pod.ready and (not pause or (pod.ready_since or -inf) <= now - pause)


def number_in(annotations: Mapping[str, str], key: str) -> int:
    """The number that an annotation is; 0 if it is none, or not there."""
    written = annotations.get(key, "")
    return int(written) if _NUMBER.fullmatch(written) else 0


def ordinals(owner: Workload) -> range:
    """The numbers of the pods that a StatefulSet wants."""
    return range(owner.first_ordinal, owner.first_ordinal + owner.replicas)


def ordinal(pod: Pod) -> int:
    """The number in the name of a StatefulSet's pod; -1 if there is none."""
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def two_revisions(owner: Workload, pods: Iterable[Pod]) -> Reason | None:
    """Why no pod of a StatefulSet goes: some of its pods are of another revision than the next would be.

    By the names in its status; by its pods' own labels and by how many it counts, as both names are the same
    again where a template was taken back. By OnDelete the former name stays after the last pod of it is gone.
    """
    new, old = owner.update_revision, owner.current_revision
    if owner.kind != "StatefulSet" or not new:
        return None
    others = {p.template.labels.get(REVISION, new) for p in pods}
    if owner.update_strategy != "OnDelete":
        others.add(old or new)
    counted = owner.updated_replicas >= min(owner.replicas, owner.status_replicas)
    if others == {new} and counted:
        return None
    name = f"StatefulSet {owner.name}"
    if owner.update_strategy != "OnDelete" and owner.partition == 0:
        return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name} is between two revisions")
    return Reason(
        ReasonCode.ON_DELETE,
        f"{name} has two revisions and updates by {'partition' if owner.partition else 'OnDelete'}: "
        "an evicted pod may come back as another one than is planned",
        {},
        "finish the update first",
    )


def failing(owner: Workload) -> Reason | None:
    """Why an owner is left alone whose controller itself says that it cannot make its pods, or get them
    ready."""
    if not owner.failing:
        return None
    name = f"{owner.kind} {owner.name}"
    if owner.failing == LATE:
        return Reason(
            ReasonCode.OWNER_DEGRADED,
            f"{name}: its last rollout did not come to an end in time ({LATE})",
            {},
            "mend the rollout, or undo it",
        )
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"{name}: its controller could not make all of its pods (ReplicaFailure: {owner.failing})",
        {},
        f"see kubectl -n {owner.namespace} describe {owner.kind.lower()} {owner.name}",
    )


def not_looked_at(owners: Iterable[Workload]) -> tuple[str, ...]:
    """What a plan that moves pods of these owners assumes of what their templates name, in a sentence.

    PriorityClasses are in the snapshot, or it is said that they are not.
    """
    kinds = sorted({kind for owner in owners for kind, _ in named(owner)} - {"PriorityClass"})
    say = f"whether each {' and '.join(kinds)} that a template names exists was not looked at"
    return (say,) if kinds else ()


def unread_annotations(owners: Collection[Workload]) -> tuple[str, ...]:
    """What a plan that moves pods of these owners assumes of owners that are not read, in a sentence."""
    kinds = sorted({o.kind for x in owners for o in (x, x.owner) if o is not None} - WORKLOADS)
    say = f"a {' or '.join(kinds)} is not read: an annotation counts on its pods or their namespace only"
    return (say,) if kinds else ()


def topmost(snapshot: Snapshot, pod: Pod) -> Workload | None:
    """The pod's Deployment if there is one, else its controller; None if the snapshot has none of them."""
    owner = snapshot.owner_of(pod.namespace, pod.owner)
    return owner and (snapshot.owner_of(owner.namespace, owner.owner) or owner)


def arrival(snapshot: Snapshot, pod: Pod) -> float:
    """`ARRIVAL`; longer where the pod's Deployment says that its pods take longer."""
    top = topmost(snapshot, pod)
    return max(ARRIVAL, top.progress_deadline) if top is not None else ARRIVAL


def of_rollout(owner: Workload, ref: OwnerReference) -> bool:
    """Whether the controller is Argo's Rollout, which only scales its ReplicaSets: these make new pods."""
    return owner.kind == "ReplicaSet" and ref.kind == "Rollout" and ref.api_version.startswith("argoproj.io/")


def _unknown(name: str) -> Reason:
    return Reason(
        ReasonCode.OWNER_UNKNOWN,
        f"{name}: how this kind replaces a pod is not known",
        {},
        "allow the kind in scope.ownerKindsAllow if it replaces evicted pods at once",
    )


def _unseen(name: str) -> Reason:
    return Reason(ReasonCode.ROLLOUT_IN_PROGRESS, f"{name}: its controller has not seen its last change")
