"""The pods and constraints of one namespace: what a constraint counts never lies in another one."""

from __future__ import annotations

from collections.abc import Hashable

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.index.counted import Counted
from rebalancer.spread.index.rules import Territories
from rebalancer.spread.tally import Anchor, anchors


class _Template:
    """A template that pods have: the constraints that they carry, and those that count them."""

    __slots__ = ("carried", "counted", "pods", "template")

    def __init__(self, template: PodTemplate) -> None:
        self.template = template
        self.pods = 0
        self.carried: tuple[Counted, ...] = ()
        self.counted: list[Counted] = []


class Namespace:
    """`pods` by name; `excess` of each constraint that has one. `kinds`: True for hard ones, False for soft
    ones."""

    def __init__(self, kinds: tuple[bool, ...]) -> None:
        self.pods: dict[str, Pod] = {}
        self.excess: dict[Constraint, int] = {}
        self._kinds = kinds
        self._templates: dict[int, _Template] = {}
        self._counted: dict[tuple[Constraint, Hashable], Counted] = {}
        # Most constraints have one set of eligible nodes; two with equal sets are one.
        self._of_constraint: dict[Constraint, list[Counted]] = {}
        self._counted_at: dict[Anchor, list[Counted]] = {}
        self._templates_at: dict[Anchor, dict[int, _Template]] = {}

    @property
    def constrained(self) -> bool:
        """Whether any pod of it carries a constraint."""
        return bool(self._counted)

    @property
    def templates(self) -> int:
        """How many templates its pods have."""
        return len(self._templates)

    def shift(self, template: PodTemplate, row: int | None, by: int, where: Territories) -> None:
        """A pod comes (`by` 1) or goes (-1); None: it has no node yet."""
        known = self._templates.get(id(template)) or self._enter(template, where)
        known.pods += by
        for c in known.carried:
            c.carriers += by
        if row is not None:
            for c in known.counted:
                c.add(row, by)
                if c.judge():
                    self._sum(c.constraint)
        if not known.pods:
            self._leave(known)

    def move(self, where: Territories) -> None:
        """The nodes are others now. Pods of those that changed have been taken out before."""
        for c in self._counted.values():
            c.move(where)
        for constraint in self._of_constraint:
            self._sum(constraint)

    def _enter(self, template: PodTemplate, where: Territories) -> _Template:
        where.asked += 1
        new = self._templates[id(template)] = _Template(template)
        for label in _labels(template):
            self._templates_at.setdefault(label, {})[id(template)] = new
            new.counted += (c for c in self._counted_at.get(label, ()) if _counts(c, template))
        for hard in self._kinds:
            for constraint in where.rules.constraints(template, hard):
                key = (constraint, where.rules.eligibility(template, constraint))
                if key not in self._counted:
                    self._counted[key] = self._begin(Counted(*key, template, where), where)
                new.carried += (self._counted[key],)
        return new

    def _leave(self, known: _Template) -> None:
        """No pod is of this template any more."""
        del self._templates[id(known.template)]
        for label in _labels(known.template):
            there = self._templates_at[label]
            del there[id(known.template)]
            if not there:
                del self._templates_at[label]
        for c in known.carried:
            if not c.carriers and c in self._of_constraint.get(c.constraint, ()):
                self._end(c)

    def _begin(self, new: Counted, where: Territories) -> Counted:
        """Counts the pods for a constraint that none has carried so far."""
        constraint = new.constraint
        self._of_constraint.setdefault(constraint, []).append(new)
        counting = set[int]()
        for label in anchors(constraint.selector, None):
            self._counted_at.setdefault(label, []).append(new)
            for known in self._templates_at.get(label, {}).values():
                if _counts(new, known.template):
                    known.counted.append(new)
                    counting.add(id(known.template))
        for pod in self.pods.values() if counting else ():
            if id(pod.template) in counting and (row := where.row(pod)) is not None:
                new.add(row, 1)
        new.judge()
        self._sum(constraint)
        return new

    def _end(self, c: Counted) -> None:
        """Nobody carries it any more."""
        del self._counted[c.constraint, c.eligibility]
        for label in anchors(c.constraint.selector, None):
            self._counted_at[label].remove(c)
            if not self._counted_at[label]:
                del self._counted_at[label]
            for known in self._templates_at.get(label, {}).values():
                if c in known.counted:
                    known.counted.remove(c)
        self._of_constraint[c.constraint].remove(c)
        self._sum(c.constraint)
        if not self._of_constraint[c.constraint]:
            del self._of_constraint[c.constraint]

    def _sum(self, constraint: Constraint) -> None:
        """Over its sets of eligible nodes; those that are equal now count once, as for the planner."""
        every = self._of_constraint[constraint]
        excess = sum({id(c.layout): c.excess for c in every}.values())
        if excess:
            self.excess[constraint] = excess
        else:
            self.excess.pop(constraint, None)


def _labels(template: PodTemplate) -> tuple[Anchor, ...]:
    return ((), *template.labels.items())


def _counts(c: Counted, template: PodTemplate) -> bool:
    return c.constraint.counts(template.namespace, template.labels)
