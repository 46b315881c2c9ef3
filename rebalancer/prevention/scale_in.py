"""In which order an owner's pods should go, so that the spread holds at whatever number it stops.

Under one constraint: always from the fullest domain. That is best at every number at once, because it lowers
the highest count as far as it goes, and the lowest only when nothing else is left.

Under several the best ends of two numbers need not lie on one way down. The sum of the excess over all
numbers is what is minimised, so an order that holds at every number is found if there is one. The search goes
from the fullest domains first and comes back where that leads to more excess than has to be; it is bounded by
a count of steps, not by the clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from msgspec import Struct

from rebalancer.model.node import NODEPOOL
from rebalancer.model.pod import Pod
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.policy.annotations import SCALE_IN, SCALE_IN_WORDS

# One ReplicaSet's pods in the domains of their constraints, while they are taken away one by one.
#
# Pods in the same domain of every constraint are interchangeable: together they are a *cell*. Only domains
# that hold pods of the owner change; the others bound the lowest and the highest count.

NOWHERE = -1
"""The domain of a pod that a constraint does not count."""

Cell = tuple[int, ...]
"""The domain in each constraint, or `NOWHERE`."""


class Excess(NamedTuple):
    """The part of the skew above maxSkew, summed over the hard constraints, and over the soft ones. The hard
    ones decide."""

    hard: int = 0
    soft: int = 0

    def plus(self, other: Excess) -> Excess:
        """The sum."""
        return Excess(self.hard + other.hard, self.soft + other.soft)

    def beyond(self, other: Excess) -> Excess:
        """What is above another one."""
        return Excess(self.hard - other.hard, self.soft - other.soft)


class Spread(Struct, frozen=True, kw_only=True):
    """A constraint, as far as it matters to one owner.

    `others[d]`: pods in a domain that holds pods of the owner, which are not the owner's or stay whatever it
    does. `lowest` and `highest` count of the eligible domains without any of its pods, None if there are
    none. `enough_domains`: False if there are fewer than minDomains, so that the minimum counts as 0.
    """

    others: tuple[int, ...]
    max_skew: int
    hard: bool = True
    enough_domains: bool = True
    lowest: int | None = None
    highest: int | None = None


class Levels:
    """The pods in each domain of a constraint, as pods of the owner go. `of[d]`: how many."""

    def __init__(self, spread: Spread, own: Sequence[int]) -> None:
        """`own[d]`: pods of the owner in each domain."""
        self._spread = spread
        self.of = [o + n for o, n in zip(spread.others, own, strict=True)]
        self._having = Counter(self.of)
        self._high = max(self.of, default=0)
        self._low = min(self.of, default=0)

    @property
    def excess(self) -> int:
        """As it is."""
        return self._excess(self._low, self._high)

    def excess_without(self, domain: int) -> int:
        """After one pod of a domain has gone."""
        if domain == NOWHERE:
            return self.excess
        level = self.of[domain]
        alone_on_top = level == self._high and self._having[level] == 1
        return self._excess(min(self._low, level - 1), level - 1 if alone_on_top else self._high)

    def take(self, domain: int) -> None:
        """One pod of a domain goes."""
        if domain == NOWHERE:
            return
        level = self.of[domain]
        self.of[domain] = level - 1
        self._having[level] -= 1
        self._having[level - 1] += 1
        self._low = min(self._low, level - 1)
        while not self._having[self._high]:
            self._high -= 1

    @property
    def span(self) -> tuple[int, int]:
        """(lowest, highest) count, as the excess goes by them."""
        return self._span(self._low, self._high)

    def _excess(self, low: int, high: int) -> int:
        low, high = self._span(low, high)
        return max(0, high - low - self._spread.max_skew)

    def _span(self, low: int, high: int) -> tuple[int, int]:
        s = self._spread
        if s.lowest is not None and s.highest is not None:
            low, high = (min(low, s.lowest), max(high, s.highest)) if self.of else (s.lowest, s.highest)
        return (low if s.enough_domains else 0), high


class Problem(Struct, frozen=True, kw_only=True):
    """An owner's pods under its constraints.

    `costs[c]`: the deletion cost that each pod of a cell has now, in the order in which they go.
    """

    spreads: tuple[Spread, ...]
    cells: tuple[Cell, ...]
    costs: tuple[tuple[int, ...], ...]

    @property
    def pods(self) -> tuple[int, ...]:
        """How many pods are in each cell."""
        return tuple(map(len, self.costs))

    def levels(self, pods: Sequence[int]) -> list[Levels]:
        """For each constraint, with so many pods in each cell."""
        found = []
        for g, spread in enumerate(self.spreads):
            own = [0] * len(spread.others)
            for cell, number in zip(self.cells, pods, strict=True):
                if cell[g] != NOWHERE:
                    own[cell[g]] += number
            found.append(Levels(spread, own))
        return found

    def summed(self, excesses: Sequence[int]) -> Excess:
        """The sum of one figure for each constraint."""
        hard = sum(e for e, s in zip(excesses, self.spreads, strict=True) if s.hard)
        return Excess(hard, sum(excesses) - hard)


EFFORT = 4000
"""Steps that are looked at, beyond one for each pod, before the best order so far is taken."""


class Order(Struct, frozen=True):
    """`cells`: the cell of each pod, in the order in which they go. `excess`: summed over all numbers of pods
    that may be left. `proved`: no order has less."""

    cells: tuple[int, ...]
    excess: Excess
    proved: bool


def order(problem: Problem, effort: int = EFFORT) -> Order:
    """The order with the least excess over all numbers of pods; of several, from the fullest domain."""
    return _Search(problem).run(effort)


class _Way(NamedTuple):
    """Pods that have gone: the cell of the last one, and those before it."""

    cell: int
    before: _Way | None


class _At(NamedTuple):
    """Where a search stands; the least is looked at next.

    `beyond`: excess so far, above what every order has. `left`: how many pods there are still. `turn`: what
    was better is lower. `pods` in each cell.
    """

    beyond: Excess
    left: int
    turn: int
    pods: tuple[int, ...]
    way: _Way | None


class _Search:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._least = _least(problem)
        holding = [Counter(cell[g] for cell in problem.cells) for g in range(len(problem.spreads))]
        self._alone = [
            tuple(d != NOWHERE and holding[g][d] == 1 for g, d in enumerate(cell)) for cell in problem.cells
        ]

    def run(self, effort: int) -> Order:
        """The order."""
        start = _At(Excess(), sum(self._problem.pods), 0, self._problem.pods, None)
        best = self._straight(start)
        if best.beyond == Excess():
            return self._order(best, proved=True)
        waiting, turn, known = [start], 0, set[Hashable]()
        at = start
        for _ in range(effort + start.left):
            at = heappop(waiting)
            if not at.left:
                return self._order(at, proved=True)
            levels = self._problem.levels(at.pods)
            key = tuple(
                sorted(((self._kind(c, at.pods, levels), n) for c, n in enumerate(at.pods)), key=repr)
            )
            if key in known:
                continue
            known.add(key)
            for rank, c in self._ranked(self._waiting(at.pods, levels), levels, at.left):
                turn += 1
                pods = (*at.pods[:c], at.pods[c] - 1, *at.pods[c + 1 :])
                heappush(waiting, _At(at.beyond.plus(rank[0]), at.left - 1, turn, pods, _Way(c, at.way)))
        other = self._straight(at)
        return self._order(min(best, other, key=lambda a: a.beyond), proved=False)

    def _straight(self, at: _At) -> _At:
        """From there on always the step that looks best."""
        pods, levels = list(at.pods), self._problem.levels(at.pods)
        waiting = self._waiting(pods, levels)
        beyond, way = at.beyond, at.way
        for left in range(at.left, 0, -1):
            rank, c = self._ranked(waiting, levels, left)[0]
            beyond, way = beyond.plus(rank[0]), _Way(c, way)
            kind = self._kind(c, pods, levels)
            heappop(waiting[kind])
            if not waiting[kind]:
                del waiting[kind]
            for level, domain in zip(levels, self._problem.cells[c], strict=True):
                level.take(domain)
            pods[c] -= 1
            # No other cell is of another kind now: what it shares with them is told by name.
            self._wait(c, pods, levels, waiting)
        return _At(beyond, 0, 0, tuple(pods), way)

    def _waiting(
        self, pods: Sequence[int], levels: Sequence[Levels]
    ) -> dict[Hashable, list[tuple[int, int]]]:
        """The cells that have pods, by kind: a heap of what their next pod costs now, and the cell."""
        found: dict[Hashable, list[tuple[int, int]]] = {}
        for c in range(len(pods)):
            self._wait(c, pods, levels, found)
        return found

    def _wait(
        self,
        c: int,
        pods: Sequence[int],
        levels: Sequence[Levels],
        into: dict[Hashable, list[tuple[int, int]]],
    ) -> None:
        if pods[c]:
            costs = self._problem.costs[c]
            heappush(into.setdefault(self._kind(c, pods, levels), []), (costs[len(costs) - pods[c]], c))

    def _ranked(
        self, waiting: dict[Hashable, list[tuple[int, int]]], levels: Sequence[Levels], left: int
    ) -> list[tuple[tuple[Excess, int, int], int]]:
        """A cell of each kind, the best first: least excess, fullest domains, what goes first already.

        A pod that a constraint does not count, as it would not be placed where it is, is taken to be in the
        fullest domain.
        """
        p, ranked = self._problem, []
        for heap in waiting.values():
            cost, c = heap[0]
            places = list(zip(levels, p.cells[c], strict=True))
            follows = p.summed([at.excess_without(d) for at, d in places])
            full = sum(at.of[d] if d != NOWHERE else at.span[1] for at, d in places)
            ranked.append(((follows.beyond(self._least[left - 1]), -full, cost), c))
        return sorted(ranked)

    def _kind(self, c: int, pods: Sequence[int], levels: Sequence[Levels]) -> Hashable:
        """Equal for cells from which it makes no difference to take a pod, now and later: a domain that is no
        other cell's matters by its counts only."""
        places = zip(levels, self._problem.cells[c], self._alone[c], strict=True)
        named = tuple((at.of[d], NOWHERE) if alone else (NOWHERE, d) for at, d, alone in places)
        return named, pods[c] if any(self._alone[c]) else 0

    def _order(self, at: _At, *, proved: bool) -> Order:
        cells: list[int] = []
        way = at.way
        while way is not None:
            cells.append(way.cell)
            way = way.before
        excess = at.beyond
        for least in self._least[:-1]:
            excess = excess.plus(least)
        return Order(tuple(reversed(cells)), excess, proved)


def _least(problem: Problem) -> list[Excess]:
    """For each number of pods that may be left, from 0 on, what no order can undercut: the least excess of
    each constraint by itself."""
    size = sum(problem.pods)
    by_number: list[list[int]] = [[] for _ in range(size + 1)]
    for g in range(len(problem.spreads)):
        levels = problem.levels(problem.pods)[g]
        own = Counter[int]()
        for cell, pods in zip(problem.cells, problem.pods, strict=True):
            own[cell[g]] += pods
        free = own.pop(NOWHERE, 0)
        counted = [levels.excess]
        # A pod's height: how many its domain has while it is the last to have come.
        heights = sorted(((levels.of[d] - i, d) for d, n in own.items() for i in range(n)), reverse=True)
        for _, domain in heights:
            levels.take(domain)
            counted.append(levels.excess)
        for gone in range(size + 1):
            between = counted[max(0, gone - free) : min(gone, size - free) + 1]
            by_number[size - gone].append(min(between))
    return [problem.summed(each) for each in by_number]


# Deletion costs that make a ReplicaSet delete its pods in an order, with the fewest changes.
#
# Pods that may go in any turn among each other share a cost. A pod without a cost counts as 0, and that is
# what the pods have that stay longest; what goes earlier costs less. So most pods of a small workload need
# no cost, and pods that come or go seldom change those of others.


def deletion_costs(problem: Problem, order: Order) -> tuple[int, ...]:
    """The cost of each pod, in the order in which they go: it never falls from one pod to the next."""
    steps = _steps(problem, order)
    present = _present(problem, order)
    values = _values([Counter(present[turn] for turn in step) for step in steps])
    costs = [0] * len(present)
    for step, value in zip(steps, values, strict=True):
        for turn in step:
            costs[turn] = value
    return tuple(costs)


def _present(problem: Problem, order: Order) -> list[int]:
    """What each pod of the order costs now."""
    gone = Counter[int]()
    costs = []
    for cell in order.cells:
        costs.append(problem.costs[cell][gone[cell]])
        gone[cell] += 1
    return costs


def _steps(problem: Problem, order: Order) -> list[list[int]]:
    """The turns of the order in runs, those that stay longest first.

    The pods of a run lower the same count, in every constraint, and the highest count before the run and the
    lowest after it are so near that no turn among them makes more excess than the order does.
    """
    levels = problem.levels(problem.pods)
    heights: list[Hashable] = []
    spans = [[level.span for level in levels]]
    excess = [[level.excess for level in levels]]
    for c in order.cells:
        places = list(zip(levels, problem.cells[c], strict=True))
        heights.append(tuple(level.of[d] if d != NOWHERE else NOWHERE for level, d in places))
        for level, d in places:
            level.take(d)
        spans.append([level.span for level in levels])
        excess.append([level.excess for level in levels])

    def harmless(first: int, last: int) -> bool:
        if len(problem.spreads) == 1:
            return True  # Of one constraint the same counts follow, by whatever domain they begin.
        return all(
            spans[first][g][1] - spans[last + 1][g][0] - s.max_skew <= max(0, excess[between][g])
            for g, s in enumerate(problem.spreads)
            for between in range(first + 1, last + 1)
        )

    runs: list[list[int]] = []
    for turn in reversed(range(len(order.cells))):
        alike = runs and heights[turn] == heights[runs[-1][0]]
        if alike and harmless(turn, runs[-1][0]):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return runs


def _values(steps: Sequence[Counter[int]]) -> list[int]:
    """A cost for each step, each less than the one before and none above 0, such that most pods keep theirs.

    `steps`: how many pods of each step have which cost now. With the number of the step added, costs that may
    stand together do not rise: the heaviest such sequence is kept, and the others follow it closely.
    """
    offers = [(i, cost + i, pods) for i, step in enumerate(steps) for cost, pods in step.items()]
    offers = [(i, height, pods) for i, height, pods in offers if height <= 0]
    # Of the sequences that end with a height: the heaviest, as (-height, weight), both rising; and its end.
    ends: list[tuple[int, int, int]] = []
    before: dict[int, int] = {}
    waiting: list[tuple[int, int, int]] = []
    step = -1

    def settle() -> None:
        for low, weight, offer in waiting:
            at = bisect_left(ends, (low,))
            if at and ends[at - 1][1] >= weight:
                continue
            if at < len(ends) and ends[at][0] == low and ends[at][1] >= weight:
                continue
            while at < len(ends) and ends[at][1] <= weight:
                del ends[at]
            ends.insert(at, (low, weight, offer))
        waiting.clear()

    for offer, (i, height, pods) in enumerate(offers):
        if i != step:
            settle()
            step = i
        at = bisect_right(ends, (-height, 1 << 62, 0))
        weight = pods
        if at:
            weight += ends[at - 1][1]
            before[offer] = ends[at - 1][2]
        waiting.append((-height, weight, offer))
    settle()
    kept: dict[int, int] = {}
    last: int | None = ends[-1][2] if ends else None
    while last is not None:
        i, height, _ = offers[last]
        kept[i] = height
        last = before.get(last)
    values, height = [], 0
    for i in range(len(steps)):
        height = kept.get(i, height)
        values.append(height - i)
    return values


# Whose scale-in is steered: nobody's, unless settings or annotations ask for it.

ScaleInMode = Literal["off", "annotated", "all"]


class ScaleInOptions(Struct, frozen=True, kw_only=True):
    """Whose scale-in is steered.

    `mode`: off = nobody's; annotated = where `SCALE_IN` says "spread"; all = where it does not say "off".
    Never in `excluded` namespaces; only in `included` ones, if there are any, whose labels match the
    `selector`: no pod of another one is touched. `beside_karpenter`: also where Karpenter runs, to whose
    choice of nodes these costs are a tie-break. `by`: the installation that writes, "" if none does:
    costs of another one are left alone.
    """

    mode: ScaleInMode = "off"
    beside_karpenter: bool = True
    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ("kube-system",)
    selector: Selector | None = None
    by: str = ""

    def reaches(self, name: str, snapshot: Snapshot) -> bool:
        """Whether pods of a namespace may be touched; not where its labels matter and are not known."""
        if name in self.excluded or (self.included and name not in self.included):
            return False
        known = snapshot.namespaces.get(name)
        return self.selector is None or (known is not None and self.selector.matches(known.metadata.labels))

    def owns(self, pod: Pod) -> bool:
        """Whether no other installation has set the pod's cost, as far as that is known."""
        return not self.by or pod.cost_by in ("", self.by)


def held_back(snapshot: Snapshot, options: ScaleInOptions) -> str:
    """Why nothing is steered in this cluster at all; "" if nothing speaks against it."""
    if options.beside_karpenter or not any(NODEPOOL in n.labels for n in snapshot.nodes):
        return ""
    return "Karpenter runs here, and prevention.besideKarpenter is false"


def steered(snapshot: Snapshot, options: ScaleInOptions) -> Iterator[tuple[Workload, bool]]:
    """The ReplicaSets whose scale-in is to be steered, and whether that is known: where their namespaces may
    not be read they could say otherwise."""
    if options.mode == "off":
        return
    for owner in snapshot.workloads:
        if owner.kind == "ReplicaSet" and owner.replicas:
            wanted = _wanted(owner, snapshot, options)
            if wanted is not False:
                yield owner, wanted is not None


def _wanted(owner: Workload, snapshot: Snapshot, options: ScaleInOptions) -> bool | None:
    if not options.reaches(owner.namespace, snapshot) or owner.metadata.deletion_timestamp is not None:
        return False
    parent = snapshot.owner_of(owner.namespace, owner.owner)
    namespace = snapshot.namespaces.get(owner.namespace)
    for said_by in (parent, owner, namespace):
        said = said_by.metadata.annotations.get(SCALE_IN) if said_by is not None else None
        if said is None:
            continue
        yes = bool(SCALE_IN_WORDS.says(said))
        # What a controller has copied asks for nothing; a no that is not read where it stands may still hold.
        if not (said_by is owner and owner.annotations_are_copies and (yes or parent is not None)):
            return yes
    if namespace is None and "Namespace" in snapshot.refused:
        return None
    return options.mode == "all"
