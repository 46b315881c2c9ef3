"""How many of the placed pods match a selector on each node, kept up to date pod by pod.

A *measure* maps a pod template to a weight: 0 or 1 for a selector, more for weighted affinity terms. Its
column is computed when it is first asked for. From then on it changes with each pod that arrives, starts to
terminate or goes. Of thousands, those that nobody has asked for in a while are dropped. Pods are grouped by
template, so the weight of a template is computed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from msgspec import Struct

from rebalancer.bulk_work import remembered
from rebalancer.model.pod import Affinity, PodTemplate
from rebalancer.model.selectors import Selector, canonical
from rebalancer.spread.arrays import Columns, Ints, Layout, Rows

HELD_BYTES = 32 * 1024 * 1024
"""About what the columns of a tally take."""

Anchor = tuple[str, ...]
"""What measures and templates are indexed by: () = every template; (namespace,); (label key, label value);
or what `carrier_anchor` says."""


def anchors(selector: Selector | None, namespaces: frozenset[str] | None) -> Iterable[Anchor]:
    """The anchors of all pods that a selector matches in these namespaces (None = in all)."""
    if selector is None:
        return ()
    for requirement in selector.requirements:
        if requirement.operator == "In":
            return [(requirement.key, value) for value in requirement.values]
    return ((),) if namespaces is None else [(n,) for n in sorted(namespaces)]


def carrier_anchor(selector: Selector | None) -> Anchor:
    """The anchor of all pods that have a term of inter-pod affinity with this selector."""
    wanted = selector.requirements if selector is not None else ()
    return next((("carries", r.key, *r.values) for r in wanted if r.operator == "In"), ("carries", "", ""))


class Measure(Protocol):
    """A weight for pod templates. It is hashable, and measures that mean the same are equal."""

    @property
    def terminating(self) -> bool:
        """Whether pods that are being deleted count."""

    @property
    def anchors(self) -> Iterable[Anchor]:
        """Anchors such that each template with a weight has exactly one of them; only those are asked."""

    def weigh(self, template: PodTemplate) -> int:
        """The weight of one pod of this template."""


class SpreadMeasure(Struct, frozen=True):
    """Pods counted for a spread constraint: same namespace, selector matches, not terminating.

    An absent or an empty selector counts nothing (podtopologyspread/common.go, countPodsMatchSelector).
    """

    namespace: str
    selector: Selector | None

    @property
    def terminating(self) -> bool:
        """Terminating pods do not count."""
        return False

    @property
    def anchors(self) -> Iterable[Anchor]:
        """A label that the selector asks for, else the namespace."""
        return anchors(self.selector, frozenset((self.namespace,)))

    def weigh(self, template: PodTemplate) -> int:
        """1 if the pod is counted, else 0."""
        s = self.selector
        return int(
            s is not None
            and not s.empty
            and template.namespace == self.namespace
            and s.matches(template.labels)
        )


class _Weights:
    """A template's weights: (measure's number, weight, counts when terminating) of each that is not 0.
    `anchors`: all that it has."""

    def __init__(self, template: PodTemplate, carriers: tuple[Anchor, ...]) -> None:
        self.template = template
        self.anchors: tuple[Anchor, ...] = ((), (template.namespace,), *template.labels.items(), *carriers)
        self.known = 0
        self.found: tuple[tuple[int, int, bool], ...] = ()


class _Registry:
    """What all copies of a cluster share: the measures in use, the templates placed, and their weights."""

    def __init__(self) -> None:
        self.measures: list[Measure] = []
        self.numbers: dict[Measure, int] = {}
        self._measures_at: dict[Anchor, list[int]] = {}
        self._templates_at: dict[Anchor, list[PodTemplate]] = {}
        self._weights: dict[int, _Weights] = {}

    def number(self, measure: Measure) -> int:
        """The measure's number, the same for equal measures."""
        found = self.numbers.get(measure)
        if found is None:
            found = self.numbers[measure] = len(self.measures)
            self.measures.append(measure)
            for anchor in measure.anchors:
                self._measures_at.setdefault(anchor, []).append(found)
        return found

    def weights(self, template: PodTemplate) -> tuple[tuple[int, int, bool], ...]:
        """The template's weights under all measures so far."""
        memo = self._weights.get(id(template))
        if memo is None:
            carriers = self._of_carriers(template.affinity) if template.affinity is not None else ()
            memo = self._weights[id(template)] = _Weights(template, carriers)
            for anchor in memo.anchors:
                self._templates_at.setdefault(anchor, []).append(template)
        if memo.known < len(self.measures):
            for anchor in memo.anchors:
                numbers = self._measures_at.get(anchor, ())
                for n in numbers[bisect_left(numbers, memo.known) :]:
                    if weight := self.measures[n].weigh(template):
                        memo.found += ((n, weight, self.measures[n].terminating),)
            memo.known = len(self.measures)
        return memo.found

    @remembered()
    def _of_carriers(self, a: Affinity) -> tuple[Anchor, ...]:
        """The anchors of the terms that a pod with this affinity has."""
        selectors = [
            term.label_selector
            for part in (a.pod_affinity, a.pod_anti_affinity)
            if part is not None
            for term in (*part.required, *(weighted.pod_affinity_term for weighted in part.preferred))
        ]
        return tuple(
            dict.fromkeys(carrier_anchor(canonical(s) if s is not None else None) for s in selectors)
        )

    def weighed(self, measure: Measure) -> Iterator[tuple[int, int]]:
        """(identity, weight) of each template ever placed that has a weight."""
        for anchor in measure.anchors:
            for template in self._templates_at.get(anchor, ()):
                if weight := measure.weigh(template):
                    yield id(template), weight


class Tally:
    """Sums of measures over the placed pods, per node."""

    def __init__(self, size: int) -> None:
        """No pods on `size` nodes."""
        self._registry = _Registry()
        self._columns: Columns[int] = Columns(size)
        self._most = max(64, HELD_BYTES // (8 * max(1, size)))
        self._live: dict[int, dict[int, int]] = {}
        self._leaving: dict[int, dict[int, int]] = {}
        self._own: set[int] = set()

    def copy(self) -> Tally:
        """An independent copy, cheap until written."""
        other = Tally.__new__(Tally)
        other._registry = self._registry
        other._columns = self._columns.copy()
        other._most = self._most
        other._live = dict(self._live)
        other._leaving = dict(self._leaving)
        other._own = set()
        self._own = set()
        return other

    def add(self, template: PodTemplate, row: int, terminating: bool = False) -> None:
        """A pod is placed on the node `row`."""
        self._count(template, row, 1, terminating)
        for number, weight, when_terminating in self._registry.weights(template):
            if (when_terminating or not terminating) and number in self._columns:
                self._columns.add(number, row, weight)

    def add_all(self, template: PodTemplate, rows: Iterable[int]) -> None:
        """Pods of one template are placed, one on each of these nodes."""
        there = Counter(rows)
        if self._live.get(id(template)):
            for row, number in there.items():
                self._count(template, row, number, False)
        else:
            self._own_counts(template)
            self._live[id(template)] = dict(there)
        for measure, weight, _ in self._registry.weights(template):
            if measure in self._columns:
                for row, number in there.items():
                    self._columns.add(measure, row, number * weight)

    def remove(self, template: PodTemplate, row: int, terminating: bool = False) -> None:
        """A pod is gone from the node `row`."""
        self._count(template, row, -1, terminating)
        for number, weight, when_terminating in self._registry.weights(template):
            if (when_terminating or not terminating) and number in self._columns:
                self._columns.add(number, row, -weight)

    def terminate(self, template: PodTemplate, row: int, sign: int = 1) -> None:
        """A pod on the node `row` starts to terminate; `sign` -1 undoes that."""
        self._count(template, row, -sign, False)
        self._count(template, row, sign, True)
        for number, weight, when_terminating in self._registry.weights(template):
            if not when_terminating and number in self._columns:
                self._columns.add(number, row, -sign * weight)

    def nodes(self, template: PodTemplate) -> Rows:
        """The numbers of the nodes with pods of this very template that are not terminating, each once."""
        there = self._live.get(id(template), {})
        return np.fromiter(there, dtype=np.intp, count=len(there))

    def column(self, measure: Measure) -> Ints:
        """int64[N]: the measure's sum on each node. Callers must not change it, nor use it after the next
        change."""
        return self.numbered(self.number(measure))

    def once(self, measure: Measure) -> Ints:
        """`column` of a measure that will hardly be asked for again: it is not kept, nor up to date later."""
        kept = self._kept(measure)
        return kept if kept is not None else self._summed(measure)

    def by_domain_once(self, measure: Measure, layout: Layout) -> Ints:
        """`once`, summed by domain: int64[D]. Where few nodes have a pod, no other is looked at."""
        kept = self._kept(measure)
        if kept is not None:
            return layout.by_domain(kept)
        return layout.summed(self._weighed(measure))

    def number(self, measure: Measure) -> int:
        """The measure's number, which is the same in every copy."""
        return self._registry.number(measure)

    def numbered(self, number: int) -> Ints:
        """`column` of the measure of this number."""
        if number not in self._columns:
            self._columns.set(number, self._summed(self._registry.measures[number]))
            self._columns.keep_latest(self._most)
        return self._columns.latest(number)

    def _kept(self, measure: Measure) -> Ints | None:
        number = self._registry.numbers.get(measure)
        return self._columns[number] if number is not None and number in self._columns else None

    def _summed(self, measure: Measure) -> Ints:
        values = np.zeros(self._columns.size, dtype=np.int64)
        for rows, counts, weight in self._weighed(measure):
            values[rows] += counts * weight  # a template's nodes are named once
        return values

    def _weighed(self, measure: Measure) -> Iterator[tuple[Rows, Ints, int]]:
        """(nodes, pods on each, the weight of one) of each template that has a weight."""
        for key, weight in self._registry.weighed(measure):
            for groups in (self._live, self._leaving) if measure.terminating else (self._live,):
                if there := groups.get(key):
                    rows = np.fromiter(there, dtype=np.intp, count=len(there))
                    yield rows, np.fromiter(there.values(), dtype=np.int64, count=len(there)), weight

    def _count(self, template: PodTemplate, row: int, amount: int, terminating: bool) -> None:
        self._own_counts(template)
        rows = (self._leaving if terminating else self._live)[id(template)]
        count = rows.get(row, 0) + amount
        if count:
            rows[row] = count
        else:
            del rows[row]

    def _own_counts(self, template: PodTemplate) -> None:
        """What is counted of the template no longer belongs to a copy as well."""
        key = id(template)
        if key not in self._own:
            self._live[key] = dict(self._live.get(key, ()))
            self._leaving[key] = dict(self._leaving.get(key, ()))
            self._own.add(key)
