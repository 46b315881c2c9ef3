"""The pod that an owner makes in place of an evicted one.

It is built from the owner's template, plus what admission had added to the evicted pod (tolerations, merged
selectors, injected containers) and what it adds now (priorities, what a RuntimeClass says), and has no node.
If nothing differs, it *is* the evicted pod's template, so that whatever is cached for that template is valid
for the replacement too. Where admission would refuse it, or make another of it, is in `policy/new_pods.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.bulk_work import remembered
from rebalancer.model.node import Taint, Toleration
from rebalancer.model.pod import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodTemplate,
    Requests,
    add,
    at_least,
    larger_by,
    pod_requests,
    with_containers,
)
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import NodeSelector, canonical
from rebalancer.model.snapshot import ONLY_MAKE_PODS, Alike, Snapshot
from rebalancer.model.workload import (
    HASHES,
    REVISION,
    UNRANKED,
    RuntimeClass,
    Scheduling,
    Workload,
)
from rebalancer.policy.vertical_autoscalers import VerticalAutoscalers
from rebalancer.spread.constraint import Constraint, resolve
from rebalancer.spread.nodes import NodeTable


def _beyond(requests: Requests, wanted: Requests) -> Requests:
    """By how much these are less than what is wanted."""
    return {r: n - requests.get(r, 0) for r, n in wanted.items() if n > requests.get(r, 0)}


def _at_least(wanted: Requests, template: PodTemplate) -> PodTemplate:
    """The template with so much where it has less."""
    more = _beyond(template.requests, wanted)
    return larger_by(more, template) if more else template


class Replacements:
    """Replacement templates, one for each (owner, template). `snapshot`: whose vertical autoscalers,
    PriorityClasses and RuntimeClasses count; None: none. `runtime_classes`: further ones by name, as only a
    file has them in its snapshot."""

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        runtime_classes: Mapping[str, RuntimeClass] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._autoscalers = VerticalAutoscalers(snapshot) if snapshot is not None else None
        self._priority_classes = snapshot.priority_classes if snapshot is not None else {}
        self._default_class = snapshot.default_class if snapshot is not None else None
        of_file = snapshot.runtime_classes if snapshot is not None else {}
        self._runtime_classes = {**of_file, **(runtime_classes or {})}
        self._namespaces = snapshot.namespaces if snapshot is not None else {}
        self._nodes = snapshot.nodes if snapshot is not None else ()

    @remembered(by=lambda template, owner: (owner.key, id(owner.template), id(template)))
    def of(self, template: PodTemplate, owner: Workload) -> PodTemplate:
        """The replacement of a pod of this template under this owner."""
        built, runs = self._made(template, owner), self._runs(owner.template or template)
        less = _less(built, owner.template) if owner.template is not None else {}
        if (newest := self.newest(owner)) is not None:
            # What admission has come to give new pods, a larger sidecar or a smaller, it gives the next one.
            newest, was = newest.by_spec or newest, built.requests
            shown = self._selected_by(newest.namespace) - _OF_SETS
            labels = {k: v for k, v in newest.labels.items() if k in shown}
            built = _build(built, replace(newest, labels=labels, tolerations=built.tolerations))
            add(less, _beyond(was, built.requests))
            at_least(less, _beyond(newest.requests, built.requests))
        if owner.template is not None and self._unsettled(built, owner.template, runs):
            unread = owner.template.runtime_class and runs is None
            built = replace(built, unsettled=_UNREAD if unread else _NOT_NOW)
        if less:
            built = replace(built, may_lack=less)
        return self._sized(built, owner)

    def _made(self, template: PodTemplate, owner: Workload) -> PodTemplate:
        # What a resize has it take for now is no part of the new pod, nor what ends with the old one.
        built = self._ranked(_build(_with_new_volumes(template.by_spec or template), owner.template), owner)
        runs = self._runs(owner.template or template)
        return _run_by(runs, built, owner.template or built) if runs is not None else built

    def _runs(self, asked: PodTemplate) -> RuntimeClass | None:
        return self._runtime_classes.get(asked.runtime_class)

    def _sized(self, built: PodTemplate, owner: Workload, *, exactly: bool = False) -> PodTemplate:
        if self._snapshot is None or self._autoscalers is None:
            return built
        above = self._snapshot.owner_of(owner.namespace, owner.owner)
        return self._autoscalers.applied(built, owner, above, exactly=exactly)

    @remembered(by=lambda owner: owner.key)
    def newest(self, owner: Workload) -> PodTemplate | None:
        """Of the owner's youngest Ready pod, where others are older and of other templates; else None."""
        groups = self._of_controllers.get((owner.kind, owner.namespace, owner.name), ())
        ready = [p for g in groups for p in g.pods if p.ready] if len(groups) > 1 else []
        if len({p.created for p in ready}) < 2:
            return None
        return max(ready, key=lambda p: (p.created or 0.0, p.uid)).template

    @cached_property
    def _of_controllers(self) -> Mapping[tuple[str, str, str], list[Alike]]:
        """By kind, namespace and name: the pods of each controller."""
        found: dict[tuple[str, str, str], list[Alike]] = defaultdict(list)
        for group in self._snapshot.live if self._snapshot is not None else ():
            if group.template.controller is not None:
                _, kind, name = group.template.controller
                found[kind, group.template.namespace, name].append(group)
        return found

    @remembered(
        by=lambda template, owner, *like: (id(template), owner.key, id(owner.template), *map(id, like))
    )
    def next_of(
        self, template: PodTemplate, owner: Workload, like: Pod | None, made_by: Workload | None
    ) -> tuple[PodTemplate, PodTemplate, PodTemplate, PodTemplate, PodTemplate]:
        """The next pod of an owner in place of one of this template: with all that this has; as this is; as
        the owner's template has it; that without a node selector, and without tolerations either, that
        nothing says any more that admission adds. One object where it is the same to the scheduler. What
        admission gave another pod of the owner (`like`) beside its maker's template, such as a sidecar, it
        gives the next one."""
        built, asked = self.of(template, owner), owner.template
        if (controller := _made_by(owner, built)) != built.controller:
            built = replace(built, controller=controller)
        as_is = _with_new_volumes(template.by_spec or template)
        if asked is None:
            return built, self._if_other(as_is, built), built, built, built
        its = made_by.template if made_by is not None else None
        shown = like.template.by_spec or like.template if like is not None and its is not None else asked
        if its is not None and shown is not asked:
            more = shown.requests.items()
            built = _at_least(
                {r: n - its.requests.get(r, 0) + asked.requests.get(r, 0) for r, n in more}, built
            )
        present = {k: v for k, v in asked.labels.items() if k in (*HASHES, REVISION)}
        same = bool(present) and present.items() <= template.labels.items()
        was = asked if same else self._template_of(as_is) or asked
        given = self._given(as_is, was, owner, tolerates=_unsaid(shown, its or asked))
        bare, beside = built, _beside(shown, its or asked)
        usual = (*asked.every_container, *chain.from_iterable(beside))
        if built.autosized or not same or _has_by_itself(as_is, usual):
            bare = self._if_other(self._bare(as_is, asked, owner, given, beside), built)
        freed = self._if_other(given.taken_from(bare, tolerates=True), bare)
        plain = self._if_other(given.taken_from(bare, tolerates=False), freed)
        return built, self._if_other(as_is, built), bare, freed, plain

    def _template_of(self, pod: PodTemplate) -> PodTemplate | None:
        """What a pod was made of, where that is still known: a set has its next template alone."""
        _, kind, name = pod.controller or ("", "", "")
        if self._snapshot is None or kind == "StatefulSet":
            return None
        maker = self._snapshot.workloads_by_name.get((kind, pod.namespace, name))
        return maker.template if maker is not None else None

    def _if_other(self, made: PodTemplate, than: PodTemplate) -> PodTemplate:
        """The first, unless it is the same to the scheduler as the other."""
        labels = self._selected_by(made.namespace)
        mine, theirs = ({k: v for k, v in t.labels.items() if k in labels} for t in (made, than))
        same = (mine, made.requests) == (theirs, than.requests)
        return than if same and not (_goes_elsewhere(made, than) or _goes_elsewhere(than, made)) else made

    def _given(
        self, pod: PodTemplate, was: PodTemplate, owner: Workload, *, tolerates: Iterable[Toleration]
    ) -> _Given:
        """What admission gave a pod beside what it was made of (`was`), and what it gives the next one.
        `tolerates`: what it gave another one."""
        namespace = self._namespaces.get(pod.namespace)
        added = added_by(namespace.metadata.annotations if namespace is not None else {}) or Added()
        runs = self._runs(owner.template or pod)
        runs_on = (runs.scheduling if runs is not None else None) or Scheduling()
        return _Given(
            {k: v for k, v in pod.node_selector.items() if k not in was.node_selector},
            tuple(dict.fromkeys((*_unsaid(pod, was), *tolerates))),
            {**runs_on.node_selector, **(added.node_selector or {})},
            (*runs_on.tolerations, *(added.tolerations or ())),
        )

    def _bare(
        self, pod: PodTemplate, asked: PodTemplate, owner: Workload, given: _Given, beside: _Containers
    ) -> PodTemplate:
        """The next pod with no more than its owner's template asks for, vertical autoscalers give it, and
        admission gives it: the containers that it has `beside`, and what else it was `given`."""
        labels, affinity = {**pod.labels, **asked.labels}, asked.affinity
        if pod.affinity is not None and not any(_differing(pod.affinity, asked.affinity)):
            affinity = _merged_again(pod, asked.affinity, labels)
        usual = (t for t in pod.tolerations if t.key in pod.requests)
        bare = replace(
            asked,
            labels=labels,
            affinity=affinity,
            node_selector={**given.selector, **given.now, **asked.node_selector},
            tolerations=tuple(
                dict.fromkeys((*asked.tolerations, *given.tolerations, *given.tolerated, *usual))
            ),
            volumes=pod.volumes,
            controller=_made_by(owner, pod),
        )
        if pod.overhead and not (asked.runtime_class or asked.overhead):
            # Admission has it run by a RuntimeClass that no template names.
            bare = replace(larger_by(pod.overhead, bare), overhead=pod.overhead)
        every = (*asked.containers, *beside[0]), (*asked.init_containers, *beside[1])
        return self._sized(self._made(with_containers(bare, *every), owner), owner, exactly=True)

    def _ranked(self, built: PodTemplate, owner: Workload) -> PodTemplate:
        """With the priority and preemptionPolicy that its class, or the default one, gives now.

        Rule: plugin/pkg/admission/priority.
        """
        named = owner.template.priority_class if owner.template is not None else built.priority_class
        found = self._priority_classes.get(named) if named else self._default_class
        if not named and built.priority_class and self._priority_classes:
            own = self._priority_classes.get(built.priority_class)
            if own is not found or own is None:
                # A webhook gives it, or it was the default. Alone it is taken for a webhook's.
                doubt = found is not None or own is None
                built = replace(built, unsettled=_DEFAULT_NOW) if doubt else built
                found = own or found or UNRANKED
        if found is None:
            return built
        name, preempts = found.metadata.name, found.preemption_policy != "Never"
        if (built.priority, built.priority_class, built.preempts) == (found.value, name, preempts):
            return built
        return replace(built, priority=found.value, priority_class=name, preempts=preempts)

    def classes(self, asked: PodTemplate, owner: Workload | None) -> tuple[PodTemplate, ...]:
        """The next pod, and where its class may have been the default once, also without any."""
        named = owner is None or owner.template is None or owner.template.priority_class
        default = self._default_class is not None or not self._priority_classes
        if named or default or not asked.priority_class:
            return (asked,)
        return asked, replace(asked, priority_class="")

    def _unsettled(self, built: PodTemplate, asked: PodTemplate, runs: RuntimeClass | None) -> bool:
        """Whether the pod has what its namespace or RuntimeClass must have added, and do not add now.

        Where neither says anything, a webhook may add it, or the namespace did until somebody took its
        annotation away: then it is so if the pod could go elsewhere without, or not where it can go now. A
        label that something selects by may have been put on the pod at any time. Affinity and constraints
        that only the pod has are a webhook's.
        """
        if any(c.hard for c in _further(built, asked, built.labels)):
            return True
        if any(self._binds(mine) for mine, _ in _differing(built.affinity, asked.affinity)):
            return True
        labels = built.labels.keys() - asked.labels.keys() - _OF_SETS
        if labels and not labels.isdisjoint(self._selected_by(built.namespace)):
            return True
        namespace = self._namespaces.get(built.namespace)
        added = added_by(namespace.metadata.annotations if namespace is not None else {})
        if added is None:
            return False  # no new pod is admitted
        runs_on = (runs.scheduling if runs is not None else None) or Scheduling()
        if runs is not None or added.node_selector is not None:
            known = (
                asked.node_selector.keys() | runs_on.node_selector.keys() | (added.node_selector or {}).keys()
            )
            if built.node_selector.keys() - known:
                return True
        else:
            alone = built.node_selector.items() - asked.node_selector.items()
            if alone and self._nodes and not alone <= self._everywhere | self._given_to_all:
                return True
        explained = {*asked.tolerations, *runs_on.tolerations, *(added.tolerations or ())}
        usual = _BY_DEFAULT | built.requests.keys()
        more = [t for t in built.tolerations if t not in explained and t.key not in usual]
        if runs is not None or added.tolerations is not None:
            return bool(more)
        return any(t.tolerates(taint) for t in more for taint in self._taints)

    def _binds(self, affinity: NodeAffinity | PodAffinity | None) -> bool:
        """Whether affinity keeps a pod from any node, or might."""
        required = affinity.required if affinity is not None else None
        if isinstance(required, NodeSelector):
            return not self._table.selector_mask(required).all()
        return bool(required)

    @cached_property
    def _table(self) -> NodeTable:
        return NodeTable(self._nodes)

    def _selected_by(self, namespace: str) -> frozenset[str]:
        """The keys of labels by which spread constraints of a namespace, or affinity of any, select pods."""
        return self._selecting.get(namespace, frozenset()) | self._selecting.get("", frozenset())

    @cached_property
    def _selecting(self) -> Mapping[str, frozenset[str]]:
        """These keys by namespace; those of affinity under ""."""
        found: dict[str, set[str]] = defaultdict(set)
        live = self._snapshot.live if self._snapshot is not None else ()
        for t in {id(group.template): group.template for group in live}.values():
            found[t.namespace].update(key for c in t.spread for key in c.match_label_keys)
            selectors = [(t.namespace, c.label_selector) for c in t.spread]
            for where, selector in (*selectors, *(("", term.label_selector) for term in _terms(t))):
                if selector is not None:
                    found[where].update(r.key for r in canonical(selector).requirements)
        return {namespace: frozenset(keys) for namespace, keys in found.items()}

    @cached_property
    def _given_to_all(self) -> set[tuple[str, str]]:
        """Node selectors that a cluster gives to pods where the namespace says nothing: no such pod is
        without, and in two namespaces or more they are not from the owners' templates. In one alone they
        may be from an annotation that is gone. Rule: OpenShift, Scheduler, spec.defaultNodeSelector."""
        if (snapshot := self._snapshot) is None:
            return set()
        all_have: set[tuple[str, str]] | None = None
        given: dict[tuple[str, str], set[str]] = defaultdict(set)
        for t in {id(group.template): group.template for group in snapshot.live}.values():
            namespace = self._namespaces.get(t.namespace)
            added = added_by(namespace.metadata.annotations) if namespace is not None else Added()
            _, kind, name = t.controller or ("", "", "")
            if added is None or added.node_selector is not None or kind == "Node":
                continue
            mine = set(t.node_selector.items())
            all_have = mine if all_have is None else all_have & mine
            owner = snapshot.workloads_by_name.get((kind, t.namespace, name))
            if owner is not None and owner.template is not None:
                for pair in mine - owner.template.node_selector.items():
                    given[pair].add(t.namespace)
        return {pair for pair in all_have or () if len(given[pair]) > 1}

    @cached_property
    def _everywhere(self) -> set[tuple[str, str]]:
        """Labels of all nodes."""
        found = set(self._nodes[0].labels.items())
        for n in self._nodes:
            found &= n.labels.items()
        return found

    @cached_property
    def _taints(self) -> set[Taint]:
        """Of any node: there are thousands of nodes, and of owners that are asked about."""
        return {taint for n in self._nodes for taint in n.spec.taints}


_NOT_NOW = "its namespace's annotations or its RuntimeClass now"
_DEFAULT_NOW = "the default PriorityClass now"
_UNREAD = "its namespace's annotations now; its RuntimeClass was not read"


def _less(built: PodTemplate, asked: PodTemplate) -> Requests:
    """By how much the pod takes more than its owner's template states, at most: it was resized, or somebody
    gave it more when it was made."""
    stated = {c.name: c.requests for c in asked.every_container}
    pairs = [(built.pod_level, asked.pod_level)]
    pairs += [(c.requests, stated.get(c.name, {})) for c in built.every_container]
    less: dict[str, int] = defaultdict(int)
    for mine, theirs in pairs:
        for r, n in theirs.items():
            less[r] += max(0, mine.get(r, 0) - n)
    return {r: n for r, n in less.items() if n}


def _run_by(runs: RuntimeClass, built: PodTemplate, asked: PodTemplate) -> PodTemplate:
    """With what a RuntimeClass says now, beside what the owner's template asks for.
    Rule: plugin/pkg/admission/runtimeclass."""
    scheduling = runs.scheduling or Scheduling()
    selector = {**built.node_selector, **scheduling.node_selector, **asked.node_selector}
    tolerations = tuple(dict.fromkeys((*built.tolerations, *scheduling.tolerations)))
    if selector != built.node_selector or len(tolerations) > len(built.tolerations):
        built = replace(built, node_selector=selector, tolerations=tolerations)
    if runs.handler != built.handler:
        built = replace(built, handler=runs.handler)
    overhead = runs.takes
    if overhead == built.overhead:
        return built
    more = dict(overhead)
    add(more, {r: -n for r, n in built.overhead.items()})
    return replace(larger_by(more, built), overhead=overhead)


def _terms(template: PodTemplate) -> Iterator[PodAffinityTerm]:
    """Its terms of inter-pod affinity and anti-affinity."""
    if (a := template.affinity) is not None:
        yield from _terms_of(a.pod_affinity)
        yield from _terms_of(a.pod_anti_affinity)


def _terms_of(kind: PodAffinity | None) -> Iterator[PodAffinityTerm]:
    """Those that are required, then those that are preferred."""
    if kind is not None:
        yield from kind.required
        yield from (preferred.pod_affinity_term for preferred in kind.preferred)


_OF_SETS = frozenset({REVISION, "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"})
"""Labels that a StatefulSet's controller puts on its pods."""
_BY_DEFAULT = frozenset(f"node.kubernetes.io/{k}" for k in ("not-ready", "unreachable", "memory-pressure"))
"""Every pod may be given tolerations of these, and of extended resources that it asks for."""
_BY_NOBODY = "default-scheduler"
"""The scheduler of a template that names none."""
NODE_SELECTORS = ("scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector")
DEFAULT_TOLERATIONS = "scheduler.alpha.kubernetes.io/defaultTolerations"
TOLERATED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
ADDING = (*NODE_SELECTORS, DEFAULT_TOLERATIONS, TOLERATED)
"""Annotations of namespaces that PodNodeSelector, OpenShift and PodTolerationRestriction go by."""


class Added(Struct, frozen=True):
    """What a namespace adds to its pods, and all that they may tolerate; None = it does not say."""

    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    tolerated: tuple[Toleration, ...] = ()


def added_by(annotations: Mapping[str, str]) -> Added | None:
    """What a namespace with these annotations adds; None where they cannot be read: no pod is admitted."""
    selector: dict[str, str] | None = None
    for said in (annotations[key] for key in NODE_SELECTORS if key in annotations):
        pairs = [p.strip().partition("=") for p in said.split(",") if p.strip()]
        if not all(key and mark and "=" not in value for key, mark, value in pairs):
            return None
        selector = {**(selector or {}), **{key.strip(): value.strip() for key, _, value in pairs}}
    listed = {key: annotations.get(key, "").strip() for key in (DEFAULT_TOLERATIONS, TOLERATED)}
    try:
        read = {k: msgspec.json.decode(v, type=tuple[Toleration, ...]) for k, v in listed.items() if v}
    except msgspec.DecodeError:
        return None
    return Added(selector, read.get(DEFAULT_TOLERATIONS), read.get(TOLERATED, ()))


class _Given(Struct, frozen=True):
    """What admission gave a pod, and no template: node selector and tolerations; and these two as the
    namespace and the RuntimeClass say them now, for the next one (`now`, `tolerated`)."""

    selector: dict[str, str]
    tolerations: tuple[Toleration, ...]
    now: dict[str, str]
    tolerated: tuple[Toleration, ...]

    def taken_from(self, pod: PodTemplate, *, tolerates: bool) -> PodTemplate:
        """The pod with the node selector that is said now alone, and, unless it `tolerates` what it did, the
        tolerations: an annotation may be gone, or a webhook."""
        alone = self.selector.items() - self.now.items()
        selector = {k: v for k, v in pod.node_selector.items() if (k, v) not in alone}
        own = (t for t in pod.tolerations if t not in self.tolerations)
        more = (*self.tolerated, *(self.tolerations if tolerates else ()))
        return replace(
            pod,
            node_selector={**self.now, **selector},
            tolerations=tuple(dict.fromkeys((*own, *more))),
        )


def _with_new_volumes(pod: PodTemplate) -> PodTemplate:
    """The template of a pod for which the claims of its ephemeral volumes are made anew."""
    volumes = tuple(
        replace(v, owner="", anew=True) if v.kind == "ephemeral" and v.claim else v for v in pod.volumes
    )
    return replace(pod, volumes=volumes) if volumes != pod.volumes else pod


def _build(pod: PodTemplate, owner: PodTemplate | None) -> PodTemplate:
    if owner is None or owner is pod:
        return pod
    changes: dict[str, object] = {}
    labels = {**pod.labels, **owner.labels}
    if labels != pod.labels:
        changes["labels"] = labels
    selector = {**pod.node_selector, **owner.node_selector}
    if selector != pod.node_selector:
        changes["node_selector"] = selector
    if owner.affinity is not None and (pod.affinity is None or _contradicts(pod.affinity, owner.affinity)):
        changes["affinity"] = owner.affinity
    elif (affinity := _merged_again(pod, owner.affinity, labels)) is not pod.affinity:
        changes["affinity"] = affinity
    tolerations = tuple(dict.fromkeys((*owner.tolerations, *pod.tolerations)))
    if set(tolerations) != set(pod.tolerations):
        changes["tolerations"] = tolerations
    # The larger of both: an autoscaler may have set the pod's requests, or someone resized it in place.
    requests = _larger(pod.requests, owner.requests)
    if requests != pod.requests:
        changes["requests"] = requests
        for field in ("nonzero_cpu", "nonzero_memory", "scored_cpu", "scored_memory"):
            changes[field] = max(getattr(pod, field), getattr(owner, field))
    if (containers := _joined(pod.containers, owner.containers)) != pod.containers:
        changes["containers"] = containers
    if (inits := _joined(pod.init_containers, owner.init_containers)) != pod.init_containers:
        changes["init_containers"] = inits
    if owner.scheduler_name not in (pod.scheduler_name, _BY_NOBODY):
        changes["scheduler_name"] = owner.scheduler_name
    if _further(owner, pod, labels):
        changes["spread"] = owner.spread
    built = msgspec.structs.replace(pod, **changes) if changes else pod
    if changes.keys().isdisjoint(("containers", "init_containers")):
        return built
    # What takes more does so beside what only the pod has.
    return _at_least(pod_requests(containers, inits, pod.overhead, pod.pod_level), built)


def differs(made: PodTemplate, planned: PodTemplate, *, exactly: bool) -> bool:
    """Whether a replacement as it is made now has more than was planned; or, `exactly`, may lack more."""
    lacks = planned.may_lack
    return _build(planned, made) is not planned or (
        exactly and any(n > lacks.get(r, 0) for r, n in made.may_lack.items())
    )


def edited(
    pod: PodTemplate, owner: Workload, *, alike: bool = True, newest: PodTemplate | None = None
) -> Reason | None:
    """Why a pod stays from which the owner's template differs so that no replacement can be planned with, or
    the `newest` of the owner's pods.

    That is: other affinity, another scheduler, other scheduling gates, or host ports that only the template
    has, or a StatefulSet's other claims. A scheduler, affinity or constraints that only the pod has are
    admission's if all pods of the owner have them (`alike`), and no template is edited under its pods. Where
    no controller above the owner rolls templates out, one may have been; an eviction would roll out other
    images, too, which admission may well give, or what its containers run.
    """
    asked = owner.template
    if asked is None:
        return None
    bare = owner.kind in ONLY_MAKE_PODS and owner.owner is None
    if not (
        asked.scheduling_gates != pod.scheduling_gates
        or asked.scheduler_name not in (pod.scheduler_name, _BY_NOBODY)
        or _contradicts(pod.affinity, asked.affinity)
        or not set(asked.host_ports) <= set(pod.host_ports)
        or _other_claims(pod, owner, asked)
        or (bare and _rolls_out(pod, asked))
        or ((bare or not alike) and _has_more(pod, asked))
        or (newest is not None and newest is not pod and _goes_elsewhere(newest, pod))
    ):
        return None
    return Reason(
        ReasonCode.ROLLOUT_IN_PROGRESS,
        "its owner's template was changed after the pod was made, or a webhook treats pods differently: its "
        "replacement would differ",
        {},
        "let the owner replace its pods",
    )


def _goes_elsewhere(newest: PodTemplate, pod: PodTemplate) -> bool:
    """Whether the newest pod may go to other nodes than this one, whatever their room."""
    tolerated = ({t for t in x.tolerations if t.key not in _BY_DEFAULT} for x in (newest, pod))
    return (
        (newest.scheduler_name, newest.node_selector) != (pod.scheduler_name, pod.node_selector)
        or next(tolerated) != next(tolerated)
        or set(newest.host_ports) != set(pod.host_ports)
        or any(_differing(newest.affinity or Affinity(), pod.affinity))
        or bool(_further(newest, pod, newest.labels) or _further(pod, newest, newest.labels))
    )


def alike(templates: Iterable[PodTemplate]) -> bool:
    """Whether pods of these templates have the same scheduler, affinity and constraints."""
    each = {id(t): t for t in templates}.values()
    return len({msgspec.json.encode((t.scheduler_name, t.affinity, t.spread)) for t in each}) < 2


def _has_more(pod: PodTemplate, asked: PodTemplate) -> bool:
    """Whether a pod has a scheduler, affinity or constraints of its own, beside its template's."""
    unlike = asked.scheduler_name != pod.scheduler_name or any(_differing(pod.affinity, asked.affinity))
    return unlike or bool(_further(pod, asked, pod.labels))


def _further(more: PodTemplate, less: PodTemplate, labels: dict[str, str]) -> set[Constraint]:
    """The constraints of one template that the other has not, for a pod with these labels."""
    if more.spread is less.spread or not more.spread:
        return set()
    its = replace(more, labels=labels)
    return {resolve(c, its) for c in more.spread} - {resolve(c, its) for c in less.spread}


def _other_claims(pod: PodTemplate, owner: Workload, asked: PodTemplate) -> bool:
    """Whether a StatefulSet, made anew over its pods, gives a new one other claims: no revision says so."""
    mine, theirs = ({v.name for v in t.volumes if v.kind == "persistentVolumeClaim"} for t in (pod, asked))
    return owner.kind == "StatefulSet" and not mine - theirs <= owner.claim_templates <= mine


_Containers = tuple[tuple[Container, ...], tuple[Container, ...]]
_Kind = NodeAffinity | PodAffinity | None


def _differing(pod: Affinity | None, asked: Affinity | None) -> Iterator[tuple[_Kind, _Kind]]:
    """Each kind of affinity that a pod has otherwise than the template: the pod's, and that. By
    matchLabelKeys, mismatchLabelKeys too, the API server adds to the selectors of a pod: the template's own
    ask for less."""
    if pod is None or pod is asked:
        return
    asked = asked or Affinity()
    if not _same(pod.node_affinity, asked.node_affinity):
        yield pod.node_affinity, asked.node_affinity
    kinds = ((pod.pod_affinity, asked.pod_affinity), (pod.pod_anti_affinity, asked.pod_anti_affinity))
    yield from (both for both in kinds if not _merged(*both))


def _contradicts(pod: Affinity | None, asked: Affinity | None) -> bool:
    """Whether the template has affinity of a kind that its pod has otherwise, or not at all."""
    return any(theirs is not None for _, theirs in _differing(pod, asked))


def _merged(pod: PodAffinity | None, asked: PodAffinity | None) -> bool:
    """Whether the terms of a pod are those of its template, but for further requirements of selectors."""
    mine, theirs = [*_terms_of(pod)], [*_terms_of(asked)]
    if len(mine) != len(theirs):
        return False
    for term, other in zip(mine, theirs, strict=True):
        both = [canonical(t.label_selector).requirements for t in (term, other) if t.label_selector]
        if len(both) == 2 and set(both[1]) <= set(both[0]):
            term, other = (replace(t, label_selector=None) for t in (term, other))
        if not _same(term, other):
            return False
    return True


def _merged_again(pod: PodTemplate, asked: Affinity | None, labels: dict[str, str]) -> Affinity | None:
    """The pod's affinity for one with these labels: what the API server merged into its required terms by
    matchLabelKeys it merges by the new labels again, of which the hash of a revision may be another."""
    others = {k: v for k, v in labels.items() if pod.labels.get(k, v) != v}
    if pod.affinity is None or asked is None or not others:
        return pod.affinity
    changes = {}
    for kind in ("pod_affinity", "pod_anti_affinity"):
        mine, theirs = getattr(pod.affinity, kind), getattr(asked, kind)
        if mine is not None and theirs is not None:
            both = zip(mine.required, theirs.required, strict=False)
            terms = tuple(_renewed(*t, pod.labels, others) for t in both)
            if any(a is not b for a, b in zip(terms, mine.required, strict=False)):
                changes[kind] = replace(mine, required=terms)
    return replace(pod.affinity, **changes) if changes else pod.affinity


def _renewed(
    term: PodAffinityTerm, asked: PodAffinityTerm, before: dict[str, str], now: dict[str, str]
) -> PodAffinityTerm:
    selector, own = term.label_selector, asked.label_selector
    if selector is None or own is None:
        return term
    expressions = tuple(
        replace(e, values=(now[e.key],))
        if e.key in now and e.values == (before[e.key],) and e not in own.match_expressions
        else e
        for e in selector.match_expressions
    )
    if expressions == selector.match_expressions:
        return term
    return replace(term, label_selector=replace(selector, match_expressions=expressions))


def _rolls_out(pod: PodTemplate, asked: PodTemplate) -> bool:
    lacks = asked.runs - pod.runs if asked.runs is not None and pod.runs is not None else ()
    return bool(lacks) or not _images(asked) <= _images(pod)


def _made_by(owner: Workload, pod: PodTemplate) -> tuple[str, str, str] | None:
    """The next pod's controller: in a rollout another ReplicaSet, whose pods constraints by default count."""
    if pod.controller is None or owner.kind != "ReplicaSet":
        return pod.controller
    return *pod.controller[:2], owner.name


def _has_by_itself(pod: PodTemplate, others: Iterable[Container]) -> bool:
    """Whether the pod has a container that these are without, or one that takes more of something than they
    name: it was resized in place, or something has added it that does not add it to all."""
    there = {c.name: c.requests for c in others}
    return any(
        c.name not in there or any(n > there[c.name].get(r, n) for r, n in c.requests.items())
        for c in pod.every_container
    )


def _images(template: PodTemplate) -> set[tuple[str, str]]:
    return {(c.name, c.image) for c in template.every_container}


def _larger(mine: Requests, theirs: Requests) -> Requests:
    return mine if mine == theirs else {r: max(mine.get(r, 0), theirs.get(r, 0)) for r in {**mine, **theirs}}


def _unsaid(pod: PodTemplate, asked: PodTemplate) -> list[Toleration]:
    """What the pod tolerates beside its template, and beside what every pod may."""
    usual = _BY_DEFAULT | pod.requests.keys()
    return [t for t in pod.tolerations if t not in asked.tolerations and t.key not in usual]


def _beside(pod: PodTemplate, asked: PodTemplate) -> _Containers:
    """The containers, and the init containers, that the pod has beside its template's."""
    known = {c.name for c in asked.every_container}
    own, inits = (
        tuple(c for c in some if c.name not in known) for some in (pod.containers, pod.init_containers)
    )
    return own, inits


def _joined(mine: tuple[Container, ...], theirs: tuple[Container, ...]) -> tuple[Container, ...]:
    """The pod's containers, each with the larger amounts of the two, then those that only the template has.

    A container in which nothing differs is the same object as the pod's.
    """
    by_name = {c.name: c for c in theirs}
    joined = []
    for c in mine:
        other = by_name.pop(c.name, c)
        requests, limits = _larger(c.requests, other.requests), _larger(c.limits, other.limits)
        alike = requests == c.requests and limits == c.limits
        joined.append(c if alike else msgspec.structs.replace(c, requests=requests, limits=limits))
    return (*joined, *by_name.values())


def _same(a: object, b: object) -> bool:
    return msgspec.json.encode(a) == msgspec.json.encode(b)
