"""The excess of every constraint of a cluster, kept up to date pod by pod and node by node.

A pod that comes, goes, ends or moves changes a few counts, so what that costs does not depend on the size of
the cluster. What it says is what a plan of the same moment would say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from typing import Protocol

from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.spread import constraint as skew
from rebalancer.spread.arrays import Bools, Layout
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.nodes import NodeTable
from rebalancer.spread.tally import Anchor, anchors

# Which constraints a pod has, and over which nodes, as `SpreadIndex` asks for them.


class Rules(Protocol):
    """`rebalancer.engine.state.cluster.ClusterState`, as far as it is needed here. It may be without pods."""

    table: NodeTable

    def constraints(self, template: PodTemplate, hard: bool) -> tuple[Constraint, ...]:
        """The pod's hard or soft constraints, in order."""
        ...

    def eligible(self, template: PodTemplate, constraint: Constraint) -> Bools:
        """bool[N]: nodes whose pods and domains take part."""
        ...

    def eligibility(self, template: PodTemplate, constraint: Constraint) -> Hashable:
        """Equal where `eligible` is equal whatever nodes there are."""
        ...


class Territories:
    """The domains of constraints over the nodes of one time; equal ones are one object.

    `asked`: about how many templates the rules were asked, and may remember something.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.table = rules.table
        self.asked = 0
        self._layouts: dict[tuple[str, bytes], Layout] = {}
        self._known: dict[tuple[str, Hashable], Layout] = {}

    def of(self, template: PodTemplate, constraint: Constraint, eligibility: Hashable) -> Layout:
        """The domains of a constraint that a pod of this template carries."""
        name = constraint.topology_key
        found = self._known.get((name, eligibility))
        if found is None:
            eligible = self.rules.eligible(template, constraint)
            layout = self.table.layout(name, eligible)
            found = self._layouts.setdefault((name, eligible.tobytes()), layout)
            self._known[name, eligibility] = found
        return found

    def row(self, pod: Pod) -> int | None:
        """The number of the node on which it counts; None if it does not count anywhere."""
        return None if pod.finished or pod.terminating else self.table.index.get(pod.node_name)


# One constraint with its pods per domain, changed pod by pod.


class Counted:
    """A constraint over one set of eligible nodes.

    They go by `eligibility`, and by `template`, that of a pod which carries it.

    `carriers`: how many pods carry it. `excess`: what of its skew exceeds maxSkew.
    """

    __slots__ = ("_alike", "_counts", "carriers", "constraint", "eligibility", "excess", "layout", "template")

    def __init__(
        self, constraint: Constraint, eligibility: Hashable, template: PodTemplate, where: Territories
    ) -> None:
        """Without any pod."""
        self.constraint = constraint
        self.eligibility = eligibility
        self.template = template
        self.carriers = 0
        self.excess = 0
        # By name, as the numbers of domains change with the nodes. Domains without a pod are not in it.
        self._counts: dict[str, int] = {}
        # How many domains hold so many pods: few numbers, also where there are thousands of domains.
        self._alike: dict[int, int] = {}
        self.move(where)

    def move(self, where: Territories) -> None:
        """There are other nodes; the pods that are counted are where they were."""
        self.layout = where.of(self.template, self.constraint, self.eligibility)
        self.judge()

    def add(self, row: int, by: int) -> None:
        """So many pods more, or fewer, on a node; `judge` has to follow."""
        domain = self.layout.rows[row]
        if domain < 0:
            return
        name, alike = self.layout.names[domain], self._alike
        before = self._counts.get(name, 0)
        after = before + by
        if before:
            if alike[before] == 1:
                del alike[before]
            else:
                alike[before] -= 1
        if after:
            self._counts[name] = after
            alike[after] = alike.get(after, 0) + 1
        else:
            del self._counts[name]

    def judge(self) -> bool:
        """Works out the excess; whether it has changed."""
        before, domains, c = self.excess, self.layout.size, self.constraint
        most = max(self._alike, default=0)
        least = min(self._alike, default=0) if len(self._counts) == domains else 0
        lowest = skew.lowest(least, domains, c.min_domains)
        self.excess = skew.beyond(most, lowest, c.max_skew) if domains else 0
        return self.excess != before


# The pods and constraints of one namespace: what a constraint counts never lies in another one.


class _Template:
    """A template that pods have: the constraints that they carry, and those that count them."""

    __slots__ = ("carried", "counted", "pods", "template")

    def __init__(self, template: PodTemplate) -> None:
        self.template = template
        self.pods = 0
        self.carried: tuple[Counted, ...] = ()
        self.counted: list[Counted] = []


class Namespace:
    """`pods` by name; `excess` of each constraint that has one; `ended`: those that had one, until somebody
    clears it. `kinds`: True for hard ones, False for soft ones."""

    def __init__(self, kinds: tuple[bool, ...]) -> None:
        self.pods: dict[str, Pod] = {}
        self.excess: dict[Constraint, int] = {}
        self.ended: set[Constraint] = set()
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
        elif self.excess.pop(constraint, None) is not None:
            self.ended.add(constraint)


def _labels(template: PodTemplate) -> tuple[Anchor, ...]:
    return ((), *template.labels.items())


def _counts(c: Counted, template: PodTemplate) -> bool:
    return c.constraint.counts(template.namespace, template.labels)


_OUTDATED = 5000
"""Templates of pods that are gone, of which the rules may remember something."""


class SpreadIndex:
    """Starts without a pod. `soft`: constraints that are soft count too. Not for several threads."""

    def __init__(self, rules: Rules, *, soft: bool = False) -> None:
        kinds = (True, False) if soft else (True,)
        self.kept: set[Constraint] = set()
        """Those that a pod's change has left without an excess, until somebody clears it: they may have one
        again by now."""
        self._where = Territories(rules)
        self._namespaces: defaultdict[str, Namespace] = defaultdict(lambda: Namespace(kinds))

    @property
    def outdated(self) -> bool:
        """Whether the rules have been asked about so many pods that are gone that new ones (`move`) pay."""
        return self._where.asked > 2 * sum(s.templates for s in self._namespaces.values()) + _OUTDATED

    def put(self, pod: Pod) -> Pod | None:
        """A pod that is new, or as it is now. Returns what it was before."""
        space = self._namespaces[pod.namespace]
        before = space.pods.get(pod.name)
        if before is None or not _alike(before, pod):
            if before is not None:
                self._take(space, before)
            self._shift(space, pod, 1)
            self._ended(space)
        space.pods[pod.name] = pod
        return before

    def drop(self, namespace: str, name: str) -> Pod | None:
        """A pod is gone: what it was; None if it was not known."""
        space = self._namespaces.get(namespace)
        if space is None or (before := space.pods.get(name)) is None:
            return None
        self._take(space, before)
        self._ended(space)
        if not space.pods:
            del self._namespaces[namespace]
        return before

    def move(self, rules: Rules, changed: Collection[str]) -> None:
        """There are other nodes now, or they have other labels or taints.

        `rules`: over the nodes as they are, and all else as before. `changed`: the names of all nodes that
        came, went or changed.
        """
        aside = [
            (space, pod)
            for space in self._namespaces.values()
            for pod in space.pods.values()
            if pod.node_name in changed
        ]
        for space, pod in aside:
            self._take(space, pod)
        self._where = Territories(rules)
        for space in self._namespaces.values():
            space.move(self._where)
        for space, pod in aside:
            self._shift(space, pod, 1)
            space.pods[pod.name] = pod
        for space in self._namespaces.values():
            space.ended.clear()  # pods were only taken aside

    def excess(self) -> dict[str, dict[Constraint, int]]:
        """The constraints with an excess, by namespace; a namespace without constraints is not in it."""
        return {name: dict(space.excess) for name, space in self._namespaces.items() if space.constrained}

    def _ended(self, space: Namespace) -> None:
        """A pod has changed as a whole."""
        if space.ended:
            self.kept |= space.ended - space.excess.keys()
            space.ended.clear()

    def _take(self, space: Namespace, pod: Pod) -> None:
        del space.pods[pod.name]
        self._shift(space, pod, -1)

    def _shift(self, space: Namespace, pod: Pod, by: int) -> None:
        row = self._where.row(pod)
        if row is not None or pod.waits:
            space.shift(pod.template, row, by, self._where)


def _alike(before: Pod, pod: Pod) -> bool:
    """Whether a pod counts as before: most of its changes are about something else."""
    return (
        before.template is pod.template
        and before.node_name == pod.node_name
        and before.finished == pod.finished
        and before.terminating == pod.terminating
    )
