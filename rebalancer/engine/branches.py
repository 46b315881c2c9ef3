"""Which branch of which plugin's rule decides about a pod, and what the cluster's scheduler has shown of it.

A branch is a plugin, its verdict, and what it read of the pod, of the pods that are there, and of the nodes:
"NodeResourcesFit takes: overhead, beside resized pods". A verdict on a pod touches what took a node, and what
alone keeps it from another. Decisions of the scheduler that were as the engine said are counted by branch.
Where one was not, nothing that touches the branch is certain. Where enough were, and the engine had named the
node, a verdict is certain that rests on nothing else, though the scheduler's version is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

from rebalancer.engine.config import PLUGINS, Profile, Witness
from rebalancer.engine.plugins.node_volume_limits import limits_volumes
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.interpod_terms import Term
from rebalancer.engine.state.storage import claim_volumes
from rebalancer.engine.template_rules import BESIDE, WAITING_RESIZES, is_scalar, peculiarities
from rebalancer.engine.version import GATED_NOMINATIONS, SIDECAR_PORTS
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows


class Question(Protocol):
    """`framework.Question`, as far as it is needed here."""

    @property
    def plugin(self) -> str: ...

    @property
    def pass_(self) -> Bools: ...


class Framework(Protocol):
    """`framework.Framework`, which asks here."""

    state: ClusterState
    profile: Profile

    def questions(self, template: PodTemplate) -> Sequence[Question]: ...

    def close(self, plugin: str, template: PodTemplate, row: int) -> bool: ...


Verdict = Literal["takes", "rejects"]
UNKNOWN = "unknown"
"""Stands for the plugin of a reason that no known plugin gives: it may concern every pod."""


def plugin_of(reason: str) -> str:
    """The plugin that gives such a reason, else `UNKNOWN`."""
    return next((p.name for p in PLUGINS if any(w in reason for w in p.words)), UNKNOWN)


def plugin_in(which: str) -> str:
    """The plugin of a branch."""
    return which.partition(" ")[0]


def within(shown: str, which: str) -> bool:
    """Whether what was shown is of this branch, or of one that reads more."""
    more = shown.startswith((f"{which}, ", f"{which}: "))
    return more or shown == which or plugin_in(which) == UNKNOWN


def branch(plugin: str, verdict: Verdict, features: Iterable[str] = ()) -> str:
    """Its name, by which it is remembered."""
    read = ", ".join(sorted(set(features)))
    return f"{plugin} {verdict}: {read}" if read else f"{plugin} {verdict}"


PLAIN: Mapping[str, frozenset[str]] = {
    "NodeUnschedulable": frozenset(),
    "NodeName": frozenset(),
    "TaintToleration": frozenset({"", "Equal", "Exists"}),
    "NodeAffinity": frozenset({"nodeSelector", "In", "NotIn", "Exists", "DoesNotExist"}),
    "NodeResourcesFit": frozenset(),
    "PodTopologySpread": frozenset({"In", "several keys", "matchLabelKeys"}),
}
"""What decisions can show of each plugin, and of what it reads: that which decides wherever it is read.

Where something has no part in the engine's verdict, a decision that agrees does not show that it has none in
the scheduler's: pods with an empty selector land on the emptiest nodes, whether others count for it or not.
"""
EIGHTHS, FULLEST = 8, 16
"""How full a node would be is told in steps of an eighth, up to twice of what it has."""


class Touched:
    """The branches that the verdict on a pod touches, in the cluster as it is now."""

    def __init__(self, framework: Framework, template: PodTemplate) -> None:
        self._state, self._framework, self._template = framework.state, framework, template
        self._read = features(framework, template)
        self._by_plugin: dict[str, Bools] = {}
        for question in framework.questions(template):
            passed = self._by_plugin.get(question.plugin, framework.state.table.every)
            self._by_plugin[question.plugin] = passed & question.pass_
        self._failed = sum((~passed).astype(np.int64) for passed in self._by_plugin.values()) + np.zeros(
            framework.state.table.size, dtype=np.int64
        )

    def takes(self, rows: Rows, plugins: Iterable[str] | None = None) -> set[str]:
        """The branches by which these nodes take the pod."""
        asked = self._by_plugin if plugins is None else plugins
        return {b for plugin in asked for b, _ in self._named(plugin, "takes", rows)}

    def rejects(self, rows: Rows, plugins: Iterable[str]) -> set[str]:
        """The branches by which the plugins reject these nodes."""
        return {b for plugin in plugins for b, _ in self._named(plugin, "rejects", rows)}

    def kept_out(self) -> dict[str, Rows]:
        """The branches that alone keep the pod from a node, with these nodes."""
        return {
            b: rows
            for plugin, passed in self._by_plugin.items()
            for b, rows in self._named(plugin, "rejects", np.flatnonzero(~passed & (self._failed == 1)))
        }

    def shown(self, row: int, verdict: Verdict, plugins: Iterable[str] | None = None) -> set[str]:
        """What a decision shows that turned on these plugins' verdict on this node: nothing where the verdict
        was an easy one. What is shown of a full node is shown of emptier ones."""
        found: set[str] = set()
        for plugin in self._by_plugin if plugins is None else plugins:
            here = [(name, full) for name, full, rows in self._provable(plugin, verdict) if row in rows]
            if (verdict == "rejects" and len(here) > 1) or not here:
                continue
            if self._framework.close(plugin, self._template, row):
                for name, full in here:
                    easier = range(1, full + 1) if verdict == "takes" else range(full, FULLEST + 1)
                    found.update(_filled(name, n) for n in (easier if full else [0]))
        return found

    def covered(self, by: Collection[tuple[str, str]]) -> bool:
        """Whether enough was shown (names of profile and branch) of every node's verdict: of each plugin that
        has to take the pod there, else of one that keeps it out."""
        taken, kept = self._state.table.every.copy(), self._state.table.none.copy()
        for plugin, passed in self._by_plugin.items():
            some, every = self._covered(plugin, "takes", by)
            taken &= passed & some & every
            kept |= ~passed & self._covered(plugin, "rejects", by)[0]
        return bool((taken | kept).all()) and not self._state.nominated

    def _covered(self, plugin: str, verdict: Verdict, by: Collection[tuple[str, str]]) -> tuple[Bools, Bools]:
        """bool[N]: nodes of which something that the verdict rests on was shown; of which nothing was not."""
        some, every = self._state.table.none.copy(), self._state.table.every.copy()
        for name, full, rows in self._provable(plugin, verdict):
            if (self._framework.profile.known_as, _filled(name, full)) in by:
                some[rows] = True
            else:
                every[rows] = False
        return some, every

    def _provable(self, plugin: str, verdict: Verdict) -> Iterator[tuple[str, int, Rows]]:
        """What would have to be shown for such verdicts of the plugin: the branch, how full the nodes are, 0
        where that does not matter, and the nodes. Of the others nothing can be shown."""
        if plugin not in PLAIN:
            return
        passed = self._by_plugin[plugin]
        for which, rows in self._named(plugin, verdict, np.flatnonzero(passed == (verdict == "takes"))):
            if not _parts(which)[1] <= PLAIN[plugin]:
                continue
            if plugin == "PodTopologySpread":
                keys = [c.topology_key for c in self._state.constraints(self._template, hard=True)]
                yield which, 0, rows[self._state.table.having(keys)[rows]]
            elif plugin != "NodeResourcesFit":
                yield which, 0, rows
            else:
                for resource, amount in self._state.asks(self._template):
                    full = self._full(resource, amount)[rows]
                    for step in np.unique(full[(full > EIGHTHS) == (verdict == "rejects")]).tolist():
                        yield f"{which}, {resource}", step, rows[full == step]

    def _full(self, resource: str, amount: int) -> Ints:
        """int64[N]: how full each node would be with so much more of a resource, in eighths, rounded up."""
        there = np.maximum(self._state.allocatable(resource), 0)
        parts = -(-EIGHTHS * (self._state.requested[resource] + amount) // np.maximum(there, 1))
        return np.where(there > 0, np.minimum(parts, FULLEST), FULLEST)

    def _named(self, plugin: str, verdict: Verdict, rows: Rows) -> Iterator[tuple[str, Rows]]:
        own = self._read.get(plugin, ())
        if plugin == "TaintToleration" and own:
            # Where there is no taint, no toleration was read.
            tainted = self._state.table.untolerated(())[rows]
            if not tainted.all():
                yield branch(plugin, verdict), rows[~tainted]
            rows = rows[tainted]
        for there, some in _beside(self._state, plugin, rows):
            yield branch(plugin, verdict, (*own, *there)), some


def _filled(name: str, full: int) -> str:
    return f"{name} {full}/{EIGHTHS}" if full else name


def _beside(state: ClusterState, plugin: str, rows: Rows) -> list[tuple[tuple[str, ...], Rows]]:
    """What a plugin reads of the pods on these nodes that is not the same for all pods, with the nodes."""
    if not len(rows):
        return []
    names = [name for name in BESIDE.get(plugin, ()) if name in state.requested]
    if not names:
        return [((), rows)]
    masks = np.stack([state.requested[name][rows] > 0 for name in names])
    return [
        (
            tuple(f"beside {n}" for n, on in zip(names, each, strict=True) if on),
            rows[(each == masks.T).all(axis=1)],
        )
        for each in np.unique(masks, axis=1).T
    ]


def features(framework: Framework, template: PodTemplate) -> dict[str, tuple[str, ...]]:
    """What each plugin reads of a pod, and of what goes with it, as far as a rule could hang on it."""
    state = framework.state
    found: dict[str, tuple[str, ...]] = {
        "TaintToleration": tuple({t.operator for t in template.tolerations if t.effect != "NoExecute"}),
        "NodeAffinity": tuple(_of_nodes(template, framework.profile)),
        "NodePorts": tuple(_of_ports(template)),
        "NodeResourcesFit": tuple(_of_requests(state, template)),
        "PodTopologySpread": tuple(_of_spread(state, template)),
        "InterPodAffinity": tuple(_of_affinity(state, template)),
    }
    kinds = tuple({v.kind for v in template.volumes if v.kind not in ("emptyDir", "hostPath", "")})
    for plugin in ("VolumeRestrictions", "VolumeBinding", "VolumeZone"):
        found[plugin] = kinds
    found["NodeVolumeLimits"] = (*kinds, *_of_drivers(state, template))
    return found


def _of_nodes(template: PodTemplate, profile: Profile) -> Iterator[str]:
    if template.node_selector:
        yield "nodeSelector"
    own = template.affinity.node_affinity if template.affinity is not None else None
    for affinity, prefix in ((own, ""), (profile.added_affinity, "addedAffinity ")):
        for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
            yield from (prefix + e.operator for e in term.match_expressions)
            yield from (prefix + "matchFields" for _ in term.match_fields)


def _of_ports(template: PodTemplate) -> Iterator[str]:
    if any(p.host_ip not in ("", "0.0.0.0") for p in template.host_ports):
        yield "hostIP"
    if SIDECAR_PORTS in peculiarities(template):
        yield "ports of sidecars"


def _of_requests(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    if any(map(is_scalar, template.requests)):
        yield "extended resources"
    if template.pod_level:
        yield "pod-level requests"
    if template.overhead:
        yield "overhead"
    if template.init_containers:
        yield "sidecars" if any(c.sidecar for c in template.init_containers) else "init containers"
    if GATED_NOMINATIONS in state.peculiar:
        yield "beside gated pods that are nominated"


def _of_spread(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    hard = state.constraints(template, hard=True)
    for c in hard:
        if c.selector is None:
            yield "no labelSelector"
        elif not c.selector.requirements:
            yield "empty labelSelector"
        else:
            yield from (r.operator for r in c.selector.requirements)
        if c.min_domains > 1:
            yield "minDomains"
        if c.node_affinity_policy != "Honor":
            yield "nodeAffinityPolicy Ignore"
        if c.node_taints_policy != "Ignore" and state.table.untolerated(()).any():
            yield "nodeTaintsPolicy Honor"
    if len(hard) > 1:
        yield "several keys"
    if hard and not template.spread:
        yield "default constraints"
    if any(c.match_label_keys for c in template.spread if c.when_unsatisfiable == "DoNotSchedule"):
        yield "matchLabelKeys"


def _of_affinity(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    terms = state.terms.of(template)
    yield from _of_terms("affinity", (t for t, _ in terms.required), template)
    yield from _of_terms("anti-affinity", (t for t, _ in terms.required_anti), template)
    # Pods that are there keep others away by terms of their own.
    theirs = (c.term for c in state.terms.selecting(template, "required anti", 0))
    yield from (f"others' {read}" for read in _of_terms("anti-affinity", theirs, template))


def _of_terms(kind: str, terms: Iterable[Term], template: PodTemplate) -> Iterator[str]:
    for term in terms:
        yield kind
        if term.selector is None or term.selector.empty:
            yield "empty labelSelector"
        else:
            yield from (r.operator for r in term.selector.requirements)
        if term.negated:
            yield "namespaceSelector that only excludes"
        elif term.namespace_selector is not None:
            yield "namespaceSelector"
        elif term.namespaces != (template.namespace,):
            yield "namespaces"


def _of_drivers(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    if not template.volumes:
        return
    if any(map(state.storage.wants_driver, state.storage.attachments(template))):
        yield "preventPodSchedulingIfMissing"
    if any(state.table.answers(limits_volumes)):
        yield "limits in allocatable"
    if any(v.kind == "ephemeral" for v in claim_volumes(template)):
        yield "ephemeral"
    if state.volumes.left:
        yield "attached without a pod"


def doubts(framework: Framework, template: PodTemplate, witness: Witness | None = None) -> Iterator[str]:
    """Why the verdict on the pod may not be the scheduler's, in sentences: by its own decisions, and where
    nothing was recorded. `witness`: a newer one than the state has."""
    state, name = framework.state, framework.profile.known_as
    witness = state.witness if witness is None else witness
    waits = state.version.minor >= (1, 37) and WAITING_RESIZES in state.requested
    here = {which: why for (profile, which), why in witness.doubted.items() if profile == name}
    if not here and not waits:
        return
    every, read = np.arange(state.table.size), features(framework, template)
    for which, why in here.items():
        plugin, wrong = _parts(which)
        own = frozenset(read.get(plugin, ()))
        touched = (own.union(beside) for beside, _ in _beside(state, plugin, every))
        # Which of the things that it read is at fault is not known. Where it read none, the rule itself is.
        if plugin == UNKNOWN or any(not wrong or t & wrong for t in touched):
            yield why
    if waits:
        # From 1.37 on resizes that wait have a queue (#140000), of which nothing was recorded.
        open_ = state.requested[WAITING_RESIZES] > 0
        for resource, amount in state.asks(template):
            open_ = open_ & (state.left(resource) >= amount)
        if open_.any():
            node = state.table.names[int(open_.argmax())]
            yield f"a resize waits on {node}, which has room for the pod: who gets it first is not modelled"


def _parts(which: str) -> tuple[str, frozenset[str]]:
    """The plugin of a branch, and what it reads."""
    head, _, read = which.partition(": ")
    return plugin_in(head), frozenset(read.split(", ") if read else ())


def blamed(ours: Mapping[str, int], theirs: Mapping[str, int]) -> list[str]:
    """The plugins that the scheduler says reject more nodes than the engine says; by reasons and numbers."""
    here, there = Counter[str](), Counter[str]()
    for counts, said in ((here, ours), (there, theirs)):
        for reason, nodes in said.items():
            counts[plugin_of(reason)] += nodes
    return [p for p, n in there.items() if n > here[p]] or list(there)
