"""Terms of inter-pod (anti-)affinity, resolved, and as measures over the placed pods.

Rules: pkg/scheduler/framework/types.go (``AffinityTerm``, ``getNamespacesFromPodAffinityTerm``);
interpodaffinity/plugin.go (``mergeAffinityTermNamespacesIfNotEmpty``). A term without namespaces and
without namespaceSelector means the pod's own namespace; an empty namespaceSelector means all; an absent
labelSelector matches nothing, an empty one everything. matchLabelKeys and mismatchLabelKeys have been
merged into the selector by the API server; the scheduler does not look at them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.engine.version import NEGATED_NAMESPACES, ServerVersion
from rebalancer.model.pod import Affinity, PodAffinity, PodAffinityTerm, PodTemplate
from rebalancer.model.selectors import Selector, canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.tally import Anchor, anchors, carrier_anchor

Kind = Literal["required", "required anti", "preferred", "preferred anti"]


class Term(Struct, frozen=True):
    """A term with its namespaces resolved against the pod that carries it."""

    topology_key: str
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    selector: Selector | None

    @property
    def by_labels(self) -> bool:
        """Whether labels of namespaces decide; an empty namespaceSelector means all, whatever they are."""
        return self.namespace_selector is not None and not self.namespace_selector.empty

    @property
    def negated(self) -> bool:
        """Whether its namespaceSelector only excludes, so that a namespace without labels satisfies it.

        Versions with `NEGATED_NAMESPACES` ask it of no labels at all, after they have resolved it.
        """
        return self.by_labels and self.namespace_selector is not None and self.namespace_selector.matches({})

    def matches(self, template: PodTemplate, namespace_labels: Mapping[str, str]) -> bool:
        """Whether it selects an incoming pod; `namespace_labels` are those of the pod's namespace."""
        inside = template.namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        )
        return inside and self.selector is not None and self.selector.matches(template.labels)


class Terms(Struct, frozen=True, eq=False):
    """A pod's terms with their weights, by kind; a required term weighs 1."""

    required: tuple[tuple[Term, int], ...] = ()
    required_anti: tuple[tuple[Term, int], ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()
    preferred_anti: tuple[tuple[Term, int], ...] = ()

    def of(self, kind: Kind) -> tuple[tuple[Term, int], ...]:
        """The terms of one kind."""
        match kind:
            case "required":
                return self.required
            case "required anti":
                return self.required_anti
            case "preferred":
                return self.preferred
        return self.preferred_anti


KINDS: tuple[Kind, ...] = ("required", "required anti", "preferred", "preferred anti")
NO_TERMS = Terms()


class Selects(Struct, frozen=True):
    """Measure: 1 for each placed pod that an incoming pod's term selects. `namespaces` None = all."""

    namespaces: frozenset[str] | None
    selector: Selector | None

    @property
    def terminating(self) -> bool:
        """Terminating pods still attract and repel."""
        return True

    @property
    def anchors(self) -> Iterable[Anchor]:
        """By a label that the selector asks for."""
        return anchors(self.selector, self.namespaces)

    def weigh(self, template: PodTemplate) -> int:
        """1 where the term selects the pod."""
        if self.selector is None or (
            self.namespaces is not None and template.namespace not in self.namespaces
        ):
            return 0
        return int(self.selector.matches(template.labels))


class Keeps(Selects, frozen=True):
    """Measure: as `Selects`, but for pods that go."""

    @property
    def terminating(self) -> bool:
        """Who goes is near nobody for long."""
        return False


class SelectsAll(Struct, frozen=True):
    """Measure: 1 for each placed pod that every one of the terms selects."""

    terms: tuple[Selects, ...]

    @property
    def terminating(self) -> bool:
        """Terminating pods still attract."""
        return True

    @property
    def anchors(self) -> Iterable[Anchor]:
        """The anchors of the first term; the others narrow further."""
        return self.terms[0].anchors

    def weigh(self, template: PodTemplate) -> int:
        """1 where all terms select the pod."""
        return int(all(t.weigh(template) for t in self.terms))


class Carries:
    """Measure: the weight with which a placed pod carries a term (its number, for required terms)."""

    terminating = True

    def __init__(self, index: TermIndex, kind: Kind, term: Term) -> None:
        """`index` knows the terms of every template."""
        self.index = index
        self.kind: Kind = kind
        self.term = term
        self.anchors: tuple[Anchor, ...] = (carrier_anchor(term.selector),)

    def __hash__(self) -> int:
        """By meaning."""
        return hash((self.kind, self.term))

    def __eq__(self, other: object) -> bool:
        """By meaning."""
        return isinstance(other, Carries) and self.kind == other.kind and self.term == other.term

    def weigh(self, template: PodTemplate) -> int:
        """The weight in all."""
        return sum(weight for term, weight in self.index.of(template).of(self.kind) if term == self.term)


class TermIndex:
    """Every term that a placed pod carries or carried, each once; shared by all branches of a cluster."""

    def __init__(self, snapshot: Snapshot, version: ServerVersion) -> None:
        """`snapshot` knows the namespaces."""
        self._version = version
        self._namespaces = {name: n.metadata.labels for name, n in snapshot.namespaces.items()}
        self.carried: dict[Kind, list[Carries]] = {kind: [] for kind in KINDS}
        self._places: dict[tuple[Kind, Anchor], list[int]] = {}
        """Where in `carried` the terms are that select pods of an anchor."""
        self.by_labels: dict[Kind, list[Term]] = {kind: [] for kind in KINDS}
        """Terms for which labels of namespaces decide."""
        self._known: set[tuple[Kind, Term]] = set()
        self._learned: set[int] = set()
        """Of `Terms` that are remembered, by identity."""

    def of(self, template: PodTemplate) -> Terms:
        """The pod's terms."""
        affinity = template.affinity
        if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
            return NO_TERMS
        return self._of(affinity, template.namespace)

    @remembered(by=lambda affinity, namespace: (id(affinity), namespace))
    def _of(self, affinity: Affinity, namespace: str) -> Terms:
        required, preferred = _resolved(affinity.pod_affinity, namespace)
        required_anti, preferred_anti = _resolved(affinity.pod_anti_affinity, namespace)
        return Terms(required, required_anti, preferred, preferred_anti)

    def learn(self, template: PodTemplate) -> None:
        """A pod of this template is placed."""
        terms = self.of(template)
        if terms is NO_TERMS or id(terms) in self._learned:
            return
        self._learned.add(id(terms))
        for kind in KINDS:
            for term, _ in terms.of(kind):
                if (kind, term) not in self._known:
                    self._known.add((kind, term))
                    for anchor in anchors(term.selector, None):
                        self._places.setdefault((kind, anchor), []).append(len(self.carried[kind]))
                    self.carried[kind].append(Carries(self, kind, term))
                    if term.by_labels:
                        self.by_labels[kind].append(term)

    def selecting(self, template: PodTemplate, kind: Kind, since: int) -> Iterator[Carries]:
        """The carried terms that select an incoming pod, but for so many that were carried first."""
        own = self.labels(template.namespace)
        for anchor in ((), *template.labels.items()):
            places = self._places.get((kind, anchor), ())
            for place in places[bisect_left(places, since) :]:
                if (found := self.carried[kind][place]).term.matches(template, own):
                    yield found

    def labels(self, namespace: str) -> Mapping[str, str]:
        """A namespace's labels; none if it is unknown."""
        return self._namespaces.get(namespace, {})

    def keeps(self, term: Term) -> Keeps:
        """A term of a placed pod as a measure of the pods that it has near."""
        selects = self.selects(term)
        return Keeps(selects.namespaces, selects.selector)

    def selects(self, term: Term) -> Selects:
        """A term of an incoming pod as a measure: its namespaceSelector becomes the namespaces it lists."""
        every = term.namespace_selector is not None and term.namespace_selector.empty
        if every or (term.negated and self._version.has(NEGATED_NAMESPACES)):
            return Selects(None, term.selector)
        names = set(term.namespaces)
        if term.namespace_selector is not None:
            names |= {n for n, labels in self._namespaces.items() if term.namespace_selector.matches(labels)}
        return Selects(frozenset(names), term.selector)


def _resolved(
    affinity: PodAffinity | None, namespace: str
) -> tuple[tuple[tuple[Term, int], ...], tuple[tuple[Term, int], ...]]:
    if affinity is None:
        return (), ()
    required = tuple((_term(t, namespace), 1) for t in affinity.required)
    preferred = tuple((_term(w.pod_affinity_term, namespace), w.weight) for w in affinity.preferred)
    return required, preferred


def _term(written: PodAffinityTerm, namespace: str) -> Term:
    namespaces = written.namespaces
    if not namespaces and written.namespace_selector is None:
        namespaces = (namespace,)
    return Term(
        topology_key=written.topology_key,
        namespaces=tuple(sorted(set(namespaces))),
        namespace_selector=canonical(written.namespace_selector) if written.namespace_selector else None,
        selector=canonical(written.label_selector) if written.label_selector else None,
    )
