"""Which pods may be evicted, and why the others may not. Names follow the descheduler's DefaultEvictor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rebalancer.bulk_work import remembered
from rebalancer.model.node import set_up_by
from rebalancer.model.pod import DELETION_COST, DISKS_IN_PODS, EVICTED_FOR, REJECTED_FOR, Pod
from rebalancer.model.reason import Check, Moment, Reason, ReasonCode, first_no
from rebalancer.model.snapshot import BUILT_IN, WORKLOADS, Snapshot
from rebalancer.model.storage import PersistentVolume
from rebalancer.model.workload import Workload
from rebalancer.policy import owners
from rebalancer.policy.annotations import (
    BEING_EVICTED,
    EVICTION_WORDS,
    LOCAL_VOLUMES,
    METHOD,
    PAUSE,
    own_verdict,
    paused,
    verdict,
)
from rebalancer.policy.budgets import Budgets, Shares
from rebalancer.policy.circuit_breaker import UNASKED_FOR, not_made
from rebalancer.policy.history.waits import moment, one_run
from rebalancer.policy.new_pods import Admission, by_affinity, making, not_as_planned
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import ARRIVAL, Owners, arrival
from rebalancer.policy.queues import AdmissionQueues
from rebalancer.policy.quota import Quotas
from rebalancer.policy.release import owner_of_released
from rebalancer.policy.replace_first import Release, ReplaceFirst
from rebalancer.policy.replacement import Replacements

# Pods on nodes that are not Ready, where an evicted pod may stay Terminating for a long time.
#
# A pod is gone only when its kubelet says so, and the kubelet of a node that is not Ready may not say so
# for hours. A ReplicaSet makes its replacement all the same. A StatefulSet does not, because a pod's name
# can be used only once at a time.


class ByNode:
    """What the nodes of a snapshot say of the pods on them."""

    def __init__(self, snapshot: Snapshot, attached: Callable[[Pod], str]) -> None:
        self._attached = attached
        self._names = frozenset(n.name for n in snapshot.nodes if not n.ready)
        said = ((n.name, own_verdict(n.metadata.annotations, n.labels)) for n in snapshot.nodes)
        self._no = {name: verdict[1] for name, verdict in said if verdict is not None and not verdict[0]}

    def why_not(self, pod: Pod, owner: Workload | None) -> Reason | None:
        """Why the pod stays, as somebody has said no on its node; or its replacement might never start, as
        its owner, or its volume, waits until the pod is gone."""
        if pod.node_name in self._no:
            return Reason(ReasonCode.ANNOTATION, f"node {pod.node_name} carries {self._no[pod.node_name]}")
        if owner is None or pod.node_name not in self._names:
            return None
        if owner.kind == "StatefulSet":
            until = f"StatefulSet {owner.name} makes no replacement"
        elif claim := self._attached(pod):
            until = f"claim {claim} is attached to no other node"
        else:
            return None
        return Reason(
            ReasonCode.NODE_NOT_READY,
            f"its node {pod.node_name} is not Ready: the pod may never end there, and before that {until}",
            {},
            "bring the node back; if it is shut down for good, delete it or taint it with "
            "node.kubernetes.io/out-of-service:NoExecute",
        )


# Volumes that can be attached to one node at a time, where several running pods share one.
#
# Rule: kubernetes pkg/volume/util, ``IsMultiAttachAllowed``. The access modes of the *volume* decide: one
# mode that allows several nodes is enough. The scheduler does not check this. It may place a replacement on
# another node, where the pod waits for the volume as long as the other pods run.

_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class SingleAttachVolumes:
    """How many pods of a snapshot use each claim, or wait for a node to use it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._users: Counter[str] = Counter()
        for group in snapshot.live:
            if group.template.volumes:
                self._users.update(dict.fromkeys(_claims(group.one), len(group.pods)))

    def why_not(self, pod: Pod) -> Reason | None:
        """Why the pod has to stay on the node of the others that mount its claim; None if it need not.

        A claim that is not in the snapshot is not judged here: the scheduler's own rules reject such a pod.
        It asks nothing of a disk that stands in the pod itself, which is of one zone, or of some nodes.
        """
        if (disk := next((v for v in pod.template.volumes if v.kind in DISKS_IN_PODS), None)) is not None:
            return Reason(
                ReasonCode.PINNED_BY_VOLUME,
                f"its volume {disk.name} ({disk.kind}) is a disk that is named in the pod, and nothing says "
                "which nodes reach it",
                {},
                "mount it by a claim, whose volume says so",
            )
        for claim in _claims(pod):
            volume = self._volume(claim)
            if volume is not None and volume.metadata.deletion_timestamp is not None:
                return Reason(
                    ReasonCode.PINNED_BY_VOLUME,
                    f"the volume of claim {claim} is marked for deletion: it is attached to no other node",
                    {},
                    "move its data to a new claim",
                )
        for claim in self._attached(pod):
            others = self._users[claim] - 1
            if others > 0:
                who = "another pod" if others == 1 else f"{others} other pods"
                return Reason(
                    ReasonCode.PINNED_BY_VOLUME,
                    f"shares claim {claim} with {who}, and its volume is attached to one node at a time: a "
                    "replacement on another node would never start",
                    {"others": others},
                    "use a ReadWriteMany volume, or give each pod its own (volumeClaimTemplates)",
                )
        return None

    def attached(self, pod: Pod) -> str:
        """The first of its claims that keeps a second pod from running beside it, "" if there is none."""
        return next(self._attached(pod), "")

    def _attached(self, pod: Pod) -> Iterator[str]:
        return filter(self._one_node, sorted(_claims(pod)))

    def on_its_node(self, pod: Pod) -> bool:
        """Whether a volume of a claim of the pod is a directory of whatever node the pod is on."""
        found = map(self._volume, _claims(pod))
        return any(v is not None and v.spec.host_path is not None for v in found)

    def _volume(self, claim: str) -> PersistentVolume | None:
        """The volume that a claim is bound to, as far as both are known."""
        asked = self._snapshot.claims.get(claim)
        return self._snapshot.volumes.get(asked.spec.volume_name) if asked is not None else None

    def _one_node(self, claim: str) -> bool:
        """Whether the claim's volume can be attached to one node only; without a volume, the claim's modes
        decide."""
        asked = self._snapshot.claims.get(claim)
        if asked is None:
            return False
        volume = self._volume(claim)
        modes = volume.spec.access_modes if volume is not None else asked.spec.access_modes
        if volume is not None and volume.spec.csi is not None:
            driver = self._snapshot.csi_drivers.get(volume.spec.csi.driver)
            if driver is not None and not driver.spec.attach_required:
                return False  # nothing is attached, so nothing stands in the way
        return bool(modes) and _MANY.isdisjoint(modes)


def _claims(pod: Pod) -> Iterator[str]:
    """namespace/name of the claims that a pod may share. The claim of an ephemeral volume belongs to one
    pod."""
    seen = {v.claim for v in pod.template.volumes if v.kind == "persistentVolumeClaim" and v.claim}
    return (f"{pod.namespace}/{name}" for name in seen)


SYSTEM_CRITICAL = 2_000_000_000
"""The priorities of system-cluster-critical and system-node-critical begin here."""
_LOCAL = ("hostPath", "emptyDir", "ephemeral")
"""Kinds of volumes whose data stays on the node, or is deleted with the pod."""
_COPIED = "the Deployment's controller copies annotations to its ReplicaSet: remove it there as well"
_MIRROR = "kubernetes.io/config.mirror"
_STATIC = "kubernetes.io/config.source"


class Evictable:
    """The policy, applied to one snapshot. `replacements`: as they were planned, None: as the snapshot has
    them made."""

    def __init__(
        self, snapshot: Snapshot, options: PolicyOptions, replacements: Replacements | None = None
    ) -> None:
        self._snapshot = snapshot
        self._options = options
        self.budgets = Budgets(snapshot)
        self.replacements = replacements or Replacements(snapshot, options.runtime_classes)
        self.owners = Owners(snapshot, options)
        self.quotas = Quotas(snapshot, self.replacements, self.owners.lacking)
        self.shares = Shares(snapshot, options, self.owners)
        self._queues = AdmissionQueues(snapshot, self.owners)
        self._single_attach_volumes = SingleAttachVolumes(snapshot)
        attached = self._single_attach_volumes.attached
        self.replace_first = ReplaceFirst(snapshot, options, self.owners, self.budgets, attached)
        self.by_node = ByNode(snapshot, attached)
        self._not_made, self._made_in = not_made(snapshot.workloads, snapshot.pods, snapshot.now)
        self._threshold = options.priority_threshold
        named = snapshot.priority_classes.get(options.priority_threshold_class)
        self._threshold_unknown = named is None and options.priority_threshold_class != ""
        if named is not None and (self._threshold is None or named.value < self._threshold):
            self._threshold = named.value

    def why_not(self, pod: Pod) -> Reason | None:
        """Why the pod may not be evicted; None if it may."""
        no = first_no(PROTECTIONS, Moment.PLAN, self, pod)
        return no[1] if no is not None else None

    def _by_nature(self, pod: Pod) -> Reason | None:
        if pod.terminating:
            return Reason(ReasonCode.TERMINATING, "is being deleted already")
        if BEING_EVICTED in pod.annotations:
            return Reason(ReasonCode.TERMINATING, f"is being evicted already ({BEING_EVICTED})")
        if _MIRROR in pod.annotations or pod.annotations.get(_STATIC, "api") != "api":
            return Reason(ReasonCode.MIRROR_POD, "is a static pod: its kubelet would start it again in place")
        if pod.owner is not None and pod.owner.kind == "Node":
            return Reason(ReasonCode.MIRROR_POD, "is a static pod: its kubelet would start it again in place")
        if pod.owner is not None and pod.owner.kind == "DaemonSet":
            return Reason(ReasonCode.DAEMONSET_POD, "belongs to a DaemonSet: it would come back to its node")
        if pod.phase != "Running":
            return Reason(
                ReasonCode.NOT_RUNNING,
                f"is {pod.phase}: evicting it would bypass its budget",
            )
        if self._own(pod):
            return Reason(ReasonCode.OWN_POD, "belongs to the rebalancer itself")
        return None

    @remembered(by=lambda pod: id(pod.template))
    def _own(self, pod: Pod) -> bool:
        o = self._options
        here = not o.own_namespace or pod.namespace == o.own_namespace
        return here and o.own_labels.matches(pod.template.labels)

    @property
    def options(self) -> PolicyOptions:
        """What an operator has decided."""
        return self._options

    @property
    def held(self) -> Reason | None:
        """Why no pod may be evicted at all; None if some may."""
        return self._options.held

    def in_view(self, namespace: str) -> bool:
        """`PolicyOptions.in_view`."""
        return self._options.in_view(namespace)

    def outside(self, namespace: str) -> Reason | None:
        """Why no pod of the namespace may be evicted, by the settings of the scope; None if pods of it may
        be."""
        o = self._options
        if namespace in o.namespaces_exclude or (o.own_namespace and namespace == o.own_namespace):
            return Reason(ReasonCode.EXCLUDED_NAMESPACE, f"namespace {namespace} is excluded")
        known = self._snapshot.namespaces.get(namespace)
        if known is not None and known.metadata.deletion_timestamp is not None:
            return Reason(
                ReasonCode.OWNER_TERMINATING, f"namespace {namespace} is being deleted: nothing is made in it"
            )
        if not self.in_view(namespace):
            return Reason(ReasonCode.EXCLUDED_NAMESPACE, f"namespace {namespace} is not included")
        chosen = o.namespace_selector
        if chosen is not None and (known is None or not chosen.matches(known.metadata.labels)):
            return Reason(ReasonCode.EXCLUDED_NAMESPACE, f"namespace {namespace} does not match {chosen}")
        return None

    def _by_approval(self, pod: Pod) -> Reason | None:
        approved = self._options.approved
        if approved is not None and approved.leaves_out(pod.namespace, pod.uid):
            return Reason(ReasonCode.NOT_IN_PLAN, f"is not in {approved.source}")
        return None

    @remembered(by=lambda pod: (id(pod.template), id(pod.annotations), id(pod.owner)))
    def _by_what_it_shares(self, pod: Pod) -> tuple[Reason | None, Reason | None]:
        """What scope and kind say, and else its owner, judged once for all pods that share template,
        annotations and owner. The decoder makes equal ones the same object."""
        scope = self.scope(pod) or self._by_kind(pod)
        return scope, None if scope is not None else self._by_owner(pod)

    def scope(self, pod: Pod) -> Reason | None:
        """Why the scope, or somebody's annotation, holds the pod back; asked of the pod, its owners and its
        namespace alone."""
        o = self._options
        if (reason := self.outside(pod.namespace)) is not None:
            return reason
        if o.label_selector is not None and not o.label_selector.matches(pod.template.labels):
            return Reason(ReasonCode.OUT_OF_SCOPE, f"its labels do not match {o.label_selector}")
        return self._by_annotation(pod)

    def _by_annotation(self, pod: Pod) -> Reason | None:
        """A no forbids, wherever it stands: on the pod, its owner, its Deployment, its namespace. An own yes
        allows only what another tool forbids there, or further out, and what mode opt-in asks for.

        A yes on a Deployment's ReplicaSet is none: its controller copies annotations to it, and leaves them
        there when the Deployment's are removed (deploymentutil). A pause of the namespace comes first.
        """
        owner = self.owners.of(pod)
        parent = self.owners.parent(owner) if owner is not None else None
        namespace = self._snapshot.namespaces.get(pod.namespace)
        if namespace is not None:
            reason = paused(f"namespace {pod.namespace}", namespace.metadata.annotations, self._snapshot.now)
            if reason is not None:
                return reason
        there = [("the pod", pod.annotations, pod.template.labels)]
        there += [
            (f"{o.kind} {o.name}", o.metadata.annotations, o.metadata.labels) for o in (owner, parent) if o
        ]
        if namespace is not None:
            meta = namespace.metadata
            there.append((f"namespace {pod.namespace}", meta.annotations, meta.labels))
        copied = owner is not None and owner.annotations_are_copies
        own_yes = False
        for n, (what, noted, labels) in enumerate(there):
            own = own_verdict(noted, labels, pausable=what.startswith("namespace "))
            foreign = verdict(noted, self._options.foreign_annotations) if noted and not own_yes else None
            word = own or foreign
            if word is not None and not word[0]:
                remedy = _COPIED if copied and n == 1 else ""
                return Reason(ReasonCode.ANNOTATION, f"{what} carries {word[1]}", {}, remedy)
            if not (copied and n == 1):
                own_yes = own_yes or own is not None
        if self._options.mode == "opt-in" and not own_yes:
            return Reason(
                ReasonCode.OUT_OF_SCOPE,
                "mode is opt-in and neither the pod, its owner nor its namespace asks for it",
                {},
                "annotate one of them with rebalancer.io/evict=true",
            )
        return None

    def _allowed_itself(self, pod: Pod) -> bool:
        """Whether the pod's annotation of ours lifts the protections that come from settings. Another tool's
        was not written for these."""
        said = verdict(pod.annotations, ()) if pod.annotations else None
        return said is not None and said[0]

    def _by_kind(self, pod: Pod) -> Reason | None:
        """Why no pod of its kind of owner goes, or of its group."""
        o = self._options
        if pod.owner is None and (owner := owner_of_released(self._snapshot, pod)) is not None:
            say = f"is released: {owner.kind} {owner.name} makes its replacement first"
            return Reason(ReasonCode.RELEASED, say, {}, "it goes, or is given back, once that is decided")
        if pod.owner is None:
            return Reason(ReasonCode.BARE_POD, "has no owner: nothing would replace it")
        if pod.owner.kind == "Job" and pod.owner.api_version.rpartition("/")[0] in BUILT_IN:
            return Reason(ReasonCode.JOB_POD, "belongs to a Job: its end would count as a failure")
        if (reason := owners.why_not(pod, o.gangs_allow)) is not None and not self._gang_allowed(pod):
            return reason
        if kinds := o.owner_kinds_exclude:
            for ref in self.owners.chain(pod):
                if ref.kind in kinds:
                    return Reason(ReasonCode.OUT_OF_SCOPE, f"owners of kind {ref.kind} are excluded")
        return None

    def _by_owner(self, pod: Pod) -> Reason | None:
        """Why its owner would not replace it now."""
        if (reason := self._queues.why_not(pod)) is not None or pod.owner is None:
            return reason
        owner, group = self.owners.of(pod), pod.owner.api_version.rpartition("/")[0]
        if owner is None:
            what = f"{pod.owner.kind} {pod.owner.name}"
            if (reason := owners.of_controller(pod.owner, f"belongs to {what}")) is not None:
                return reason
            if pod.owner.kind in WORKLOADS and group not in BUILT_IN:
                return Reason(
                    ReasonCode.OWNER_UNKNOWN,
                    f"its owner {what} is of {group}: how that kind replaces a pod is not known",
                )
            if pod.owner.kind in WORKLOADS:
                return Reason(
                    ReasonCode.OWNER_UNKNOWN,
                    f"its owner {what} is not in the snapshot",
                    {},
                    f"include {pod.owner.kind.lower()}s in the snapshot",
                )
            return Reason(
                ReasonCode.OWNER_UNKNOWN,
                f"its owner {what}: how this kind replaces a pod is not known",
                {},
                "allow the kind (scope.ownerKindsAllow) if it replaces evicted pods at once",
            )
        waits = self._options.waiting_owners.get(self.owners.top(owner).key)
        busy = self.owners.why_not(owner) or self.owners.restarting(pod)
        if (made := making(owner, pod)) is not owner:
            busy = busy or self.owners.refused(made)
        not_made = self._not_made if pod.namespace not in self._made_in else None
        return busy or waits or not_made or self._by_new_pod(pod, owner, made)

    def _by_new_pod(self, pod: Pod, owner: Workload, made: Workload) -> Reason | None:
        """What the new pod's own affinity, the namespace's annotations, and a file's RuntimeClass forbid."""
        asked = self.replacements.of(pod.template, owner)
        if (reason := by_affinity(asked, self._snapshot.server_version)) is not None:
            return reason
        namespace = self._snapshot.namespaces.get(pod.namespace)
        named = made.template.runtime_class if made.template is not None else ""
        runs = self._snapshot.runtime_classes.get(named)
        if namespace is None and runs is None:
            return None
        by = Admission(namespace=namespace.metadata if namespace is not None else None, runtime_class=runs)
        return not_as_planned(asked, made, by)

    def _gang_allowed(self, pod: Pod) -> bool:
        """Whether policy opens the kind of gang that the pod's controller is, or one above it. Other kinds
        that it opens are none: their pods may be in a group all the same."""
        kinds = {ref.kind for ref in self.owners.chain(pod)}
        return not kinds.isdisjoint(owners.KINDS.intersection(self._options.owner_kinds_allow))

    def _by_setting(self, pod: Pod) -> Reason | None:
        o, t = self._options, pod.template
        # Its own word says nothing of whether now is the time.
        if o.protect_pods_without_pdb and not self.budgets.of(pod):
            return Reason(ReasonCode.NO_PDB, "is covered by no PodDisruptionBudget, and policy asks for one")
        age = self._snapshot.now - pod.created if pod.created is not None else None
        if o.min_pod_age and age is not None and age < o.min_pod_age:
            return Reason(
                ReasonCode.MIN_AGE,
                f"is {age:.0f} s old, policy.minPodAge is {o.min_pod_age:.0f} s",
                {"age": int(age)},
            )
        if self._allowed_itself(pod):
            return None
        if not o.evict_system_critical_pods and (
            t.priority >= SYSTEM_CRITICAL or t.priority_class.startswith("system-")
        ):
            return Reason(ReasonCode.SYSTEM_CRITICAL, "has a system-critical priority")
        if self._threshold_unknown:
            return Reason(
                ReasonCode.PRIORITY,
                f"PriorityClass {o.priority_threshold_class}, the threshold, is not in the snapshot: whom it "
                "would protect is not known",
                {},
                "create the class, or correct policy.priorityThresholdClass",
            )
        if self._threshold is not None and t.priority >= self._threshold:
            return Reason(
                ReasonCode.PRIORITY,
                f"its priority {t.priority} reaches the threshold {self._threshold}",
                {"priority": t.priority, "threshold": self._threshold},
            )
        if not o.evict_local_storage_pods and self._loses_data(pod):
            return Reason(
                ReasonCode.LOCAL_STORAGE,
                "has local storage (emptyDir, hostPath or ephemeral) that ends with it or stays on its node",
                {},
                "set policy.evictLocalStoragePods: true, or annotate the pod with rebalancer.io/evict=true",
            )
        if pod.symptoms.debugged:
            return Reason(
                ReasonCode.DEBUGGED,
                "somebody debugs it: an ephemeral container of it has not ended",
                {},
                "end that container, or annotate the pod with rebalancer.io/evict=true",
            )
        if o.protect_pvc_pods and any(v.claim for v in t.volumes):
            return Reason(ReasonCode.PVC_POD, "mounts a PersistentVolumeClaim, and policy protects such pods")
        if o.protect_resource_claim_pods and t.resource_claims:
            return Reason(ReasonCode.RESOURCE_CLAIMS, "uses ResourceClaims, whose devices are not simulated")
        if t.eviction_responders:
            return Reason(
                ReasonCode.EVICTION_RESPONDER,
                f"{t.eviction_responders[0]} handles its evictions, and the Eviction API does not ask it",
                {},
                "annotate the pod with rebalancer.io/evict=true if it may be evicted all the same",
            )
        if pod.finalizers and pod.owner is not None and pod.owner.kind == "StatefulSet":
            return Reason(
                ReasonCode.EVICTION_RESPONDER,
                f"has the finalizer {pod.finalizers[0]}: until somebody takes it away the pod does not end, "
                f"and StatefulSet {pod.owner.name} makes no replacement",
                {},
                "annotate the pod with rebalancer.io/evict=true if it may be evicted all the same",
            )
        return None

    def _loses_data(self, pod: Pod) -> bool:
        """Whether data of the app ends with the pod, or stays behind. A volume that its owner's template does
        not have holds none: admission added it, for a mesh's proxy; unless it may have been taken out and
        nobody made new pods. What is in memory counts, as for the descheduler: it outlives containers."""
        owner, obeyed = self.owners.of(pod), "cluster-autoscaler" in self._options.foreign_annotations
        given_up = pod.annotations.get(LOCAL_VOLUMES, "").split(",") if obeyed else ()
        asked = owner.template if owner is not None else None
        asked = asked if asked is not None and asked.runs is None else pod.template
        named = {v.name for v in asked.volumes}.difference(given_up)
        local = any(v.kind in _LOCAL and v.name in named for v in pod.template.volumes)
        return local or self._single_attach_volumes.on_its_node(pod)

    def _by_refusal(self, pod: Pod) -> Reason | None:
        refused = self._options.refused.get(pod.key) if self._options.refused else None
        if refused is None or not refused.holds(pod):
            return None
        until = moment(refused.at + self._options.retry_after, self._snapshot.now)
        return Reason(
            ReasonCode.EVICTION_REFUSED,
            f"its eviction was refused, and it is left alone until {until}: {refused.said}",
            {},
            "it is tried again sooner if its labels, annotations or phase change; "
            f"{one_run('retryAfter', '0s')}",
        )

    def by_budget(self, pod: Pod) -> Reason | None:
        """What its budget keeps may go after its replacement has come."""
        kept = self.budgets.why_not(pod)
        how = self.replace_first.of(pod) if kept is not None else None
        if kept is None or how is None:
            return kept
        if isinstance(how, Release):
            return None
        message = f"{kept.message}; not replaced first: {how.message}"
        return Reason(how.code, message, kept.numbers, how.remedy or kept.remedy)


def _protection(
    name: str, says: str, ask: Callable[[Evictable, Pod], Reason | None], reads: tuple[str, ...] = ()
) -> Check:
    return Check(name, says, ask, moments=frozenset(Moment) - {Moment.START}, reads=reads)


PROTECTIONS = (
    _protection(
        "what the pod is",
        "Static pods, pods of DaemonSets, pods that end or do not run, and the tool's own stay.",
        Evictable._by_nature,
        (BEING_EVICTED,),
    ),
    _protection(
        "a newer Kubernetes",
        "Nothing goes in a cluster newer than all known rules, if planner.newerVersions refuses it.",
        lambda e, _: e.held,
    ),
    _protection(
        "a reviewed plan",
        "With --plan, only the pods go that a person has looked at.",
        Evictable._by_approval,
    ),
    _protection(
        "scope and annotations",
        "What scope leaves out or an annotation protects stays, Jobs, groups, and pods without an owner.",
        lambda e, pod: e._by_what_it_shares(pod)[0],
        (*(w.key for w in EVICTION_WORDS), PAUSE),
    ),
    _protection(
        "its replacement",
        "A pod stays that its owner would not replace now, or not as planned.",
        lambda e, pod: e._by_what_it_shares(pod)[1],
    ),
    _protection(
        "the pod's node",
        "Pods stay on one that says no, and a StatefulSet's on one that is not Ready, as they may never end.",
        lambda e, pod: e.by_node.why_not(pod, e.owners.of(pod)),
    ),
    _protection(
        "a shared volume",
        "A pod stays on the node of others that use a volume which only one node can attach.",
        lambda e, pod: e._single_attach_volumes.why_not(pod),
    ),
    _protection("policy", "What policy protects stays.", Evictable._by_setting, (LOCAL_VOLUMES,)),
    _protection(
        "a refusal",
        "A pod stays whose eviction a webhook or a policy refused, until it changes or time has passed.",
        Evictable._by_refusal,
    ),
    _protection(
        "budgets",
        "A pod stays that a PodDisruptionBudget does not let go.",
        Evictable.by_budget,
        (METHOD,),
    ),
    _protection(
        "the method",
        "A pod that is to be replaced first stays while that cannot be.",
        lambda e, pod: e.replace_first.waits(pod),
        (METHOD,),
    ),
    _protection(
        "others of the owner",
        "Ready pods stay while as many of their owner's are unavailable as may be.",
        lambda e, pod: e.shares.why_not(pod),
    ),
    _protection(
        "quotas",
        "A pod stays whose replacement a ResourceQuota would not admit.",
        lambda e, pod: e.quotas.why_not(pod, e.owners.of(pod)),
    ),
)
"""Who may not be evicted, in this order. Asked of every pod for a plan; and before each request, of the one
pod with the objects of that moment."""


STEERING = (DELETION_COST, *(key for c in PROTECTIONS for key in c.reads))
"""Every annotation of a pod, its owner or its namespace that some rule reads: a change of one of these just
before an eviction stops it, a change of any other annotation is nothing."""


def steering(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that some rule reads (`STEERING`)."""
    return {k: annotations[k] for k in STEERING if k in annotations}


# When time alone changes who may be evicted: until then the same cluster gives the same plan.


def next_change(snapshot: Snapshot, options: PolicyOptions) -> float:
    """The first moment after `snapshot.now`, in seconds of the epoch, at which a rule that reads the clock
    may say something else; infinity if there is none.

    Rules that read it: policy.minPodAge, replacements that are not Ready yet, pauses of namespaces, refused
    workloads and evictions, nodes that Karpenter is about to replace, that are new, have refused or evicted
    pods, or do not start or end one, attach or detach a volume.
    """
    now = snapshot.now
    nodes = (*(t for _, *times in snapshot.outgoing for t in times), *map(set_up_by, snapshot.nodes))
    heard = (p.created + REJECTED_FOR for p in snapshot.over if p.symptoms.rejected and p.created is not None)
    evicted = (p.symptoms.evicted + EVICTED_FOR for p in snapshot.over if p.symptoms.evicted is not None)
    asked = ((p.symptoms.unbegun, p.deleted, None if p.ready else p.started) for p in snapshot.pods)
    hanging = (t + ARRIVAL for times in asked for t in times if t is not None)
    meta = (a.metadata for a in snapshot.attachments)
    moved = (t for m in meta for t in (m.creation_timestamp, m.deletion_timestamp) if t is not None)
    volumes = (t.timestamp() + ARRIVAL for t in moved)
    unasked = (w.unasked_since + UNASKED_FOR for w in snapshot.workloads if w.unasked_since is not None)
    refused = (r.at + options.retry_after for r in options.refused.values())
    every = (*nodes, *heard, *evicted, *hanging, *volumes, *unasked, *refused)
    both = (t - apart for apart in {0.0, snapshot.apart} for t in every)
    first = min((t for t in both if t > now), default=math.inf)
    ripens = max(options.min_pod_age, ARRIVAL, *(w.progress_deadline for w in snapshot.workloads))
    for pod in snapshot.pods:
        if pod.created is None or now - pod.created >= ripens:
            continue
        # One of a StatefulSet may be the last that came of a rollout that waits for another.
        settles = not pod.ready or (pod.owner is not None and pod.owner.kind == "StatefulSet")
        for age in (options.min_pod_age, arrival(snapshot, pod) if settles else 0.0):
            if now - pod.created < age:
                first = min(first, pod.created + age)
    for name, namespace in snapshot.namespaces.items():
        reason = paused(name, namespace.metadata.annotations, now)
        if reason is not None and "until" in reason.numbers:
            first = min(first, reason.numbers["until"])
    return first
