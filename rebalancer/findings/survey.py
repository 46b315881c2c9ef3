"""What the checks look at: workloads, constraints as resolved, nodes and counts, each found once. The
codes of what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from rebalancer.model.node import Node
from rebalancer.model.pod import Pod, PodTemplate, TopologySpreadConstraint
from rebalancer.model.reason import Change, Finding, Severity
from rebalancer.model.selectors import LabelSelector, Selector
from rebalancer.model.snapshot import Alike, Snapshot
from rebalancer.model.workload import HASHES, REVISION, Workload
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.owners import Owners
from rebalancer.spread.arrays import Bools, Rows, frozen
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import ByIdentity
from rebalancer.yaml import to_yaml

# What is checked: the workloads of a cluster, each with the templates that its pods really have.
#
# One pass over the pods groups them by workload and template; all checks then go over workloads and their
# constraints, never over single pods.

REPLICATED = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Rollout", "CloneSet"}
)
"""Kinds that keep a number of pods running."""
_GENERATED = frozenset(
    {
        *HASHES,
        REVISION,
        "pod-template-generation",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
    }
)
"""Labels that controllers add to the pods they make."""


class Subject(Struct, frozen=True, eq=False, kw_only=True):
    """A workload (the Deployment, not its ReplicaSets), or pods that no known object owns.

    `template`: what people edit, else what its pods have. `running`: templates of its live pods, each with
    how many. `mounted`: its live pods with claims. `replicas`: as many as it wants now; `most`: as many as
    it can have, which an autoscaler's maximum decides.
    """

    kind: str
    namespace: str
    name: str
    template: PodTemplate
    replicas: int
    most: int
    running: tuple[tuple[PodTemplate, int], ...] = ()
    mounted: tuple[Pod, ...] = ()
    workload: Workload | None = None

    @property
    def object(self) -> str:
        """Kind/namespace/name."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def replicated(self) -> bool:
        """Whether it keeps several pods running, so that spreading them means something."""
        return self.kind in REPLICATED and self.most >= 2

    @property
    def pod_spec(self) -> str:
        """Where in the object the pod's spec is."""
        if self.kind == "CronJob":
            return "spec.jobTemplate.spec.template.spec"
        return "spec" if self.kind == "Pod" else "spec.template.spec"

    @property
    def common(self) -> PodTemplate:
        """The template that most of its live pods have; `template` without any."""
        return max(self.running, key=lambda r: r[1])[0] if self.running else self.template

    @property
    def own_labels(self) -> dict[str, str]:
        """Labels that select its pods of all revisions; that they select no others is likely, not certain."""
        labels = self.template.labels
        selector = self.workload.selector if self.workload is not None else None
        wanted = selector.requirements if selector is not None else ()
        chosen = {
            r.key: r.values[0]
            for r in wanted
            if r.operator == "In" and len(r.values) == 1 and r.key not in _GENERATED
        }
        return chosen or {k: v for k, v in labels.items() if k not in _GENERATED}


class _Pods:
    """The live pods of one workload so far."""

    def __init__(self) -> None:
        self.templates: dict[int, tuple[PodTemplate, int]] = {}
        self.mounted: list[Pod] = []
        self.count = 0

    def add(self, group: Alike) -> None:
        template, count = self.templates.get(id(group.template), (group.template, 0))
        self.templates[id(template)] = template, count + len(group.pods)
        self.count += len(group.pods)
        if any(v.claim for v in template.volumes):
            self.mounted += group.pods


def subjects(snapshot: Snapshot, owners: Owners) -> list[Subject]:
    """All workloads of the snapshot in a stable order."""
    grouped: dict[tuple[str, str, str], _Pods] = {}
    for group in snapshot.live:
        grouped.setdefault(_top(group.one, owners), _Pods()).add(group)
    return sorted(
        (*_owned(snapshot, owners, grouped), *_ownerless(snapshot, grouped)),
        key=lambda s: (s.namespace, s.name, s.kind),
    )


def _top(pod: Pod, owners: Owners) -> tuple[str, str, str]:
    owner = owners.of(pod)
    if owner is not None:
        top = owners.top(owner)
        return top.kind, top.namespace, top.name
    if pod.owner is not None:
        return pod.owner.kind, pod.namespace, pod.owner.name
    return "Pod", pod.namespace, pod.name


def _owned(
    snapshot: Snapshot, owners: Owners, grouped: dict[tuple[str, str, str], _Pods]
) -> Iterator[Subject]:
    most = {
        (a.spec.scale_target_ref.kind, a.metadata.namespace, a.spec.scale_target_ref.name): (
            a.spec.max_replicas
        )
        for a in snapshot.autoscalers
    }
    for w in snapshot.workloads:
        key = (w.kind, w.namespace, w.name)
        if w.template is None or owners.parent(w) is not None:
            continue
        pods = grouped.get(key)
        if w.owner is not None and not w.replicas and pods is None:
            continue  # a past revision of a controller that the snapshot does not have
        live = pods.count if pods is not None else 0
        replicas = w.replicas if w.kind in REPLICATED else live
        yield Subject(
            kind=w.kind,
            namespace=w.namespace,
            name=w.name,
            template=w.template,
            replicas=replicas,
            most=max(replicas, most.get(key, 0)),
            running=tuple(pods.templates.values()) if pods is not None else (),
            mounted=tuple(pods.mounted) if pods is not None else (),
            workload=w,
        )


def _ownerless(snapshot: Snapshot, grouped: dict[tuple[str, str, str], _Pods]) -> Iterator[Subject]:
    """Pods without a workload in the snapshot: bare ones, or of an owner that was not read."""
    named = snapshot.workloads_by_name
    for (kind, namespace, name), pods in grouped.items():
        if (kind, namespace, name) in named:
            continue
        running = tuple(pods.templates.values())
        yield Subject(
            kind=kind,
            namespace=namespace,
            name=name,
            template=max(running, key=lambda r: r[1])[0],
            replicas=pods.count,
            most=pods.count,
            running=running,
            mounted=tuple(pods.mounted),
        )


class ByLabels:
    """Workloads looked up by a selector, without asking each of them."""

    def __init__(self, every: list[Subject]) -> None:
        self._in_namespace: dict[str, list[Subject]] = {}
        self._with_label: dict[tuple[str, str, str], list[Subject]] = {}
        self._found: dict[tuple[str, Selector], list[Subject]] = {}
        for s in every:
            self._in_namespace.setdefault(s.namespace, []).append(s)
            for key, value in s.template.labels.items():
                self._with_label.setdefault((s.namespace, key, value), []).append(s)

    def select(self, namespace: str, selector: Selector) -> list[Subject]:
        """Workloads of a namespace whose template the selector matches (an empty one: all)."""
        found = self._found.get((namespace, selector))
        if found is None:
            candidates = self._in_namespace.get(namespace, [])
            for r in selector.requirements:
                if r.operator == "In" and len(r.values) == 1:
                    narrower = self._with_label.get((namespace, r.key, r.values[0]), [])
                    if len(narrower) < len(candidates):
                        candidates = narrower
            found = [s for s in candidates if selector.matches(s.template.labels)]
            self._found[namespace, selector] = found
        return found


class Written(Struct, frozen=True, eq=False):
    """One constraint of a workload: as written, as meant, and its place in the list."""

    index: int
    written: TopologySpreadConstraint
    meant: Constraint

    @property
    def field(self) -> str:
        """Its place, relative to the pod's spec."""
        return f"topologySpreadConstraints[{self.index}]"


class Survey:
    """A cluster, or manifests without one: then `has_nodes` is False and nothing is said of domains."""

    def __init__(self, simulation: Simulation, evictable: Evictable) -> None:
        self.simulation = simulation
        self.snapshot = simulation.snapshot
        self.state = simulation.state
        self.table = simulation.state.table
        self.has_nodes = bool(self.table.size)
        self.ready: Bools = np.fromiter((n.ready for n in self.table.nodes), dtype=np.bool_)
        frozen(self.ready)
        self.held = evictable.held
        self.every = subjects(self.snapshot, evictable.owners)
        namespaces = {s.namespace for s in self.every} | {b.metadata.namespace for b in self.snapshot.budgets}
        self.in_scope = frozenset(n for n in namespaces if evictable.outside(n) is None)
        self.subjects = [s for s in self.every if s.namespace in self.in_scope]
        self.labels = ByLabels(self.every)
        self._written: ByIdentity[tuple[Written, ...]] = ByIdentity()
        self._usable: ByIdentity[Bools] = ByIdentity()
        self._reachable: ByIdentity[Bools] = ByIdentity()
        self._domains: ByIdentity[Bools] = ByIdentity()
        self._nested: ByIdentity[tuple[int, ...]] = ByIdentity()
        self._roomiest: ByIdentity[Rows] = ByIdentity()

    def constraints(self, template: PodTemplate) -> tuple[Written, ...]:
        """The template's own constraints; defaults of the scheduler profile are not the workload's."""
        found = self._written.get(template)
        if found is None:
            meant = {hard: iter(self.state.constraints(template, hard)) for hard in (True, False)}
            found = tuple(
                Written(i, w, next(meant[w.when_unsatisfiable == "DoNotSchedule"]))
                for i, w in enumerate(template.spread)
            )
            self._written.put(found, template)
        return found

    def expected(self, constraint: Constraint) -> int:
        """How many pods it would count with every workload at its largest."""
        s = constraint.selector
        if s is None or s.empty:
            return 0
        return sum(other.most for other in self.labels.select(constraint.namespace, s))

    def alone(self, subject: Subject, constraint: Constraint) -> bool:
        """Whether it counts this workload's pods and no others."""
        s = constraint.selector
        if s is None or s.empty:
            return False
        found = self.labels.select(constraint.namespace, s)
        return len(found) == 1 and found[0] is subject

    def group(self, template: PodTemplate, constraint: Constraint) -> Group:
        """The constraint over its eligible nodes."""
        return self.simulation.group(constraint, self.state.eligible(template, constraint))

    def usable(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that the pod's affinity admits and whose taints it tolerates."""
        admitted, refused = self.table.admitted(template), self.table.untolerated(template.tolerations)
        found = self._usable.get(admitted, refused)
        return found if found is not None else self._usable.put(admitted & ~refused, admitted, refused)

    def reachable(self, template: PodTemplate) -> Bools:
        """bool[N]: nodes that take new pods: ready, not cordoned, their taints tolerated.

        What node affinity leaves out is not looked at.
        """
        refused = self.table.untolerated(template.tolerations)
        found = self._reachable.get(refused)
        if found is None:
            found = self._reachable.put(self.ready & ~self.table.unschedulable & ~refused, refused)
        return found

    def domains(self, group: Group, nodes: Bools) -> Bools:
        """bool[D]: domains with one of these nodes, which are one array wherever they are asked about."""
        found = self._domains.get(group.layout, nodes)
        if found is None:
            found = np.zeros(group.size, dtype=np.bool_)
            rows = group.domain_of[nodes]
            found[rows[rows >= 0]] = True
            frozen(found)
            self._domains.put(found, group.layout, nodes)
        return found

    def roomiest(self, group: Group) -> Rows:
        """intp[D]: of each domain a node with the most cpu left."""
        found = self._roomiest.get(group.layout)
        if found is None:
            left = self.state.left("cpu")
            order = np.argsort(left, kind="stable")
            order = order[group.domain_of[order] >= 0]
            found = np.zeros(group.size, dtype=np.intp)
            found[group.domain_of[order]] = order  # the last one stays
            self._roomiest.put(found, group.layout)
        return found

    def nested(self, fine: Group, coarse: Group, usable: Bools) -> tuple[int, ...]:
        """How many fine domains each coarse one has; empty if one lies in several, or in none."""
        found = self._nested.get(fine.layout, coarse.layout, usable)
        if found is not None:
            return found
        rows = np.flatnonzero(usable & (fine.domain_of >= 0) & (coarse.domain_of >= 0))
        pairs = np.unique(fine.domain_of[rows] * max(coarse.size, 1) + coarse.domain_of[rows])
        sizes: tuple[int, ...] = ()
        if len(pairs) == fine.size == len(np.unique(pairs // max(coarse.size, 1))):
            sizes = tuple(np.bincount(pairs % max(coarse.size, 1), minlength=coarse.size).tolist())
        return self._nested.put(sizes, fine.layout, coarse.layout, usable)


# The findings by name.


class FindingCode(StrEnum):
    """Every finding; the same word in report, lint and documentation."""

    # What the constraint selects.
    SELECTOR_MISSES_OWN_PODS = "selector-misses-own-pods"
    SELECTOR_COUNTS_NOTHING = "selector-counts-nothing"
    NO_REVISION_LABEL = "no-revision-label"
    MIXED_CONSTRAINTS = "mixed-constraints"
    # Whether it has an effect.
    NO_EFFECT = "no-effect"
    HOSTNAME_ONLY = "hostname-only"
    ONLY_SOFT = "only-soft"
    # The nodes and domains that it needs.
    TOPOLOGY_KEY_MISSING = "topology-key-missing"
    TOPOLOGY_KEY_PARTIAL = "topology-key-partial"
    INCONSISTENT_NODE_LABELS = "inconsistent-node-labels"
    MIN_DOMAINS_UNREACHABLE = "min-domains-unreachable"
    MIN_DOMAINS_SOFT = "min-domains-soft"
    DOMAIN_UNAVAILABLE = "domain-unavailable"
    DOMAIN_FULL = "domain-full"
    # What it cannot be joined with.
    CONTRADICTING_CONSTRAINTS = "contradicting-constraints"
    AFFINITY_CONTRADICTS_SPREAD = "affinity-contradicts-spread"
    PINNED_BY_ZONAL_VOLUMES = "pinned-by-zonal-volumes"
    # What they come to where the pods are now.
    CANNOT_BE_REPLACED = "cannot-be-replaced"
    # What the scheduler makes of other rules.
    NAMESPACE_SELECTOR_IGNORED = "namespace-selector-ignored"
    NEWER_VERSION = "newer-version"
    # Disruption budgets.
    NO_PDB = "no-pdb"
    MULTIPLE_PDBS = "multiple-pdbs"
    PDB_NEVER_ALLOWS = "pdb-never-allows"
    # Protections that do not say what they were meant to say.
    UNCLEAR_ANNOTATION = "unclear-annotation"
    MATCHES_NOTHING = "matches-nothing"
    # Who is to place the replacements.
    SCHEDULER_SILENT = "scheduler-silent"
    # Pods between two states.
    RELEASED_POD = "released-pod"


def finding(
    severity: Severity,
    code: FindingCode,
    subject: Subject,
    message: str,
    remedy: str = "",
    field: str = "",
    numbers: Mapping[str, int] | None = None,
) -> Finding:
    """A finding about a workload; `field` is relative to its pod spec."""
    where = f"{subject.pod_spec}.{field}" if field else ""
    return Finding(severity, code.value, subject.object, message, remedy, where, numbers or {})


class Proposed(Struct, frozen=True, eq=False, kw_only=True):
    """A finding, and changes that may help: they are replayed before one is printed. Its own `remedy` stands
    if none helps. `anew`: it says that the pods cannot all be placed, which is replayed with all of them
    placed anew."""

    finding: Finding
    subject: Subject
    changes: tuple[Change, ...]
    anew: bool = False


# Remedies as YAML to paste.

Yaml = dict[str, Any]


def yaml_of(value: Yaml | list[Yaml]) -> str:
    """A remedy's YAML, without the last line's end."""
    return to_yaml(value).removesuffix("\n")


def entry(subject: Subject, index: int, **changes: Any) -> str:
    """One constraint of the workload with changed fields, by the API's names; None leaves one out."""
    return _at(subject.pod_spec, index, {**as_written(subject.template.spread[index]), **changes})


@lru_cache(16_384)
def told_apart(pod_spec: str, index: int, c: TopologySpreadConstraint, label: str) -> str:
    """`entry` of a constraint with one more label whose values are counted apart. Remembered: a cluster has
    thousands of constraints without, cycle after cycle."""
    return _at(pod_spec, index, {**as_written(c), "matchLabelKeys": [*c.match_label_keys, label]})


def changed_entry(subject: Subject, change: Change) -> str:
    """`entry` of a change."""
    assert isinstance(change.after, TopologySpreadConstraint)
    return _at(subject.pod_spec, change.index, as_written(change.after))


def _at(pod_spec: str, index: int, made: Yaml) -> str:
    made = {k: v for k, v in made.items() if v is not None}
    return f"# {pod_spec}.topologySpreadConstraints[{index}]\n" + yaml_of([made])


def added(subject: Subject, constraint: Yaml) -> str:
    """A further constraint for the workload."""
    return f"# one more in {subject.pod_spec}.topologySpreadConstraints\n" + yaml_of([constraint])


def shown(value: TopologySpreadConstraint | Node | None) -> Yaml:
    """What a change makes, or finds, by the API's field names; of a node what decides who may go there."""
    if isinstance(value, Node):
        return {"kind": "Node", "metadata": {"name": value.name}, "spec": msgspec.to_builtins(value.spec)}
    return as_written(value) if value is not None else {}


def as_written(c: TopologySpreadConstraint) -> Yaml:
    """A constraint by the API's field names, defaults left out."""
    made: Yaml = {
        "maxSkew": c.max_skew,
        "topologyKey": c.topology_key,
        "whenUnsatisfiable": c.when_unsatisfiable,
    }
    if c.label_selector is not None:
        made["labelSelector"] = selector_as_written(c.label_selector)
    if c.match_label_keys:
        made["matchLabelKeys"] = list(c.match_label_keys)
    if c.min_domains is not None:
        made["minDomains"] = c.min_domains
    if c.node_affinity_policy != "Honor":
        made["nodeAffinityPolicy"] = c.node_affinity_policy
    if c.node_taints_policy != "Ignore":
        made["nodeTaintsPolicy"] = c.node_taints_policy
    return made


def selector_as_written(selector: LabelSelector) -> Yaml:
    """A label selector by the API's field names."""
    made: Yaml = {}
    if selector.match_labels:
        made["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        made["matchExpressions"] = [
            {"key": e.key, "operator": e.operator, **({"values": list(e.values)} if e.values else {})}
            for e in selector.match_expressions
        ]
    return made
