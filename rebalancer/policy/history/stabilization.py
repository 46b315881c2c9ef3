"""How long a violation has to last before a pod is evicted because of it, and for how long a domain that came
back has to be there before it is used.

A rollout or an autoscaler may be about to end a young violation. One that came with the nodes of a domain is
not their doing: it need not last, but the domain has to settle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import inf

from msgspec import Struct

from rebalancer.model.node import Node
from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Alike
from rebalancer.policy.history.fingerprints import selects
from rebalancer.policy.history.ledger import Ledger, Opening
from rebalancer.policy.history.waits import ATTENDED, FEWEST, HistoryRules, moment, opening_for, wait
from rebalancer.spread.nodes import tolerated

# Since when a violation lasts.


class Onset(Struct, frozen=True):
    """That watches have seen a violation begin: so many seconds ago, and whether nodes made it, not pods."""

    ago: float
    by_nodes: bool


class Followed(Struct, frozen=True):
    """What watches know of the present violations. `unbroken`: for how many seconds they have missed nothing.
    `onsets`: constraint id → how it began, or later. Without watches nothing is known."""

    unbroken: float = -inf
    onsets: Mapping[str, Onset] = {}


def first_seen(
    ledger: Ledger,
    violated: Iterable[str],
    youngest: Callable[[str], float | None],
    followed: Followed,
    *,
    now: float,
) -> dict[str, float]:
    """When each present violation began: constraint id → epoch seconds. The ledger stores the result.

    `violated`: the id of each violated constraint; `youngest`: when the youngest pod that it counts was
    created, None if unknown; asked only where that matters. One that is known is no older than that pod,
    unless watches have followed it since the ledger was written: it may have ended in between. One that is
    not known is as old as that pod where the ledger has never looked for violations, and otherwise begins
    now.
    """
    since: dict[str, float] = {}
    missed = now - followed.unbroken > ledger.looked
    for constraint in violated:
        onset, known = followed.onsets.get(constraint), ledger.violated.get(constraint)
        began = [now - onset.ago] if onset is not None else []
        began += [known] if known is not None else []
        asked = missed if began else not ledger.looked
        if asked and (made := youngest(constraint)) is not None:
            began.append(made)
        # A clock that was set back does not lengthen the wait.
        since[constraint] = min(now, max(began, default=now))
    return since


def stabilizing(since: float, rules: HistoryRules, now: float, settled: float = inf) -> Reason | None:
    """Why nothing is evicted yet because of a violation that began at `since`; None if it has lasted enough.
    `settled`: from when on it need not last."""
    lasted = since + rules.stabilization
    if now >= min(settled, lasted):
        return None
    if settled < lasted:
        return settling(settled, rules, now)
    why = (
        f"its violation is not known from before {moment(since, now)} and has to last "
        f"{rules.stabilization:.0f} s"
    )
    remedy = f"wait, or shorten evictions.stabilization; {ATTENDED}"
    return wait(ReasonCode.STABILIZING, why, lasted, now, remedy)


# Domains that came back, as the pods of a template see them: what they cannot use is not there.


class Arrival(Struct, frozen=True):
    """A domain that came back, or was opened, not long ago. Epoch seconds.

    `at`: since when one of its nodes can be used. `usable`: from when on it may be used. `settled`: from when
    on a violation that came with it need not last; infinity while a node of it is not Ready, or is shut.
    """

    at: float
    usable: float
    settled: float

    def later(self, other: Arrival) -> Arrival:
        """Both as one."""
        return Arrival(
            min(self.at, other.at), max(self.usable, other.usable), max(self.settled, other.settled)
        )


_UNREADY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def arrival(
    nodes: Sequence[Node],
    template: PodTemplate,
    openings: Mapping[str, Opening],
    rules: HistoryRules,
    now: float,
    *,
    latest: float,
) -> Arrival | None:
    """Whether and when the domain with these nodes has arrived.

    It came back if all of them that are Ready became so lately. Until the others are, it is not used for as
    long as that counts as lately: they may never come.
    """
    lately = max(rules.stabilization, rules.settle)

    def ready(node: Node) -> float:
        return min(node.ready_since or 0.0, latest)  # what its clock says that is ahead is not over

    def usable(node: Node) -> bool:
        return selects(template, node) and not _shut(node, template)

    if not any(n.ready and now - ready(n) >= lately and usable(n) for n in nodes):
        every = [n for n in nodes if usable(n)]
        since = [ready(n) for n in every if n.ready]
        if not since:
            return None
        if len(since) < len(every):
            return Arrival(min(since), min(since) + lately, inf)
        settled = max(since) + rules.settle
        return Arrival(min(since), settled, settled)
    opening = opening_for(openings, template.tolerations)
    mine = [n for n in nodes if selects(template, n)]
    if opening is None or opening.shut or opening.opened <= 0 or len(mine) < FEWEST:
        return None
    if now - opening.opened >= rules.stabilization:
        return None
    shut = any(_shut(n, template) for n in mine)
    return Arrival(opening.opened, -inf, inf if shut else opening.opened + rules.settle)


def _shut(node: Node, template: PodTemplate) -> bool:
    """Whether the pod could not be placed there were the node Ready."""
    return any(t.key not in _UNREADY and not tolerated(t, template.tolerations) for t in node.shut_by)


class Arrivals:
    """The arrivals of these nodes' domains, each looked at once for a template."""

    def __init__(
        self, nodes: Sequence[Node], ledger: Ledger, rules: HistoryRules, now: float, *, latest: float
    ) -> None:
        self._nodes, self._openings, self._rules = nodes, ledger.openings, rules
        self._now, self._latest = now, latest
        lately = now - max(rules.stabilization, rules.settle)
        self._fresh = [n for n in nodes if (n.ready_since or 0.0) > lately]
        self._domains: dict[str, dict[str, list[Node]]] = {}
        self._found: dict[tuple[str, str, int], tuple[PodTemplate, Arrival | None]] = {}
        self._unsettled: dict[tuple[str, int], dict[str, tuple[float, frozenset[str]]]] = {}

    def unsettled(self, key: str, template: PodTemplate) -> Mapping[str, tuple[float, frozenset[str]]]:
        """The domains of this key that are not to be used yet: until when, and their nodes."""
        if (key, id(template)) not in self._unsettled:
            found = {}
            for d in dict.fromkeys(n.labels[key] for n in self._fresh if key in n.labels):
                arrived = self.of(key, d, template)
                if arrived is not None and self._now < arrived.usable:
                    found[d] = arrived.usable, frozenset(n.name for n in self._of(key)[d])
            self._unsettled[key, id(template)] = found
        return self._unsettled[key, id(template)]

    def of(self, key: str, domain: str, template: PodTemplate) -> Arrival | None:
        """A domain as pods of the template see it; None if it has not arrived lately."""
        found = self._found.get((key, domain, id(template)))
        if found is None:
            nodes, openings = self._of(key)[domain], self._openings.get(f"{key}={domain}", {})
            arrived = arrival(nodes, template, openings, self._rules, self._now, latest=self._latest)
            found = self._found[key, domain, id(template)] = template, arrived
        return found[1]

    def settled(
        self, key: str, pods: Mapping[str, int], template: PodTemplate, counted: Iterable[Alike]
    ) -> float:
        """From when on a violation that came with the domains with the fewest pods need not last; infinity
        if one of them has not arrived lately, or a pod there is from before: then it was hardly away.
        `pods`: in each domain; `counted`: they themselves."""
        fewest = min(pods.values(), default=0)
        domains, arrived = self._of(key), dict[str, Arrival]()
        for d in (d for d, n in pods.items() if n == fewest and d in domains):
            if (found := self.of(key, d, template)) is not None:
                arrived[d] = found
            elif any(n.ready for n in domains[d]):
                return inf
        if not arrived:
            return inf
        last = reduce(Arrival.later, arrived.values())
        there = {n.name for d in arrived for n in domains[d]}
        its = (p for some in counted for p in some.pods if p.node_name in there)
        began = (p.created if p.started is None else p.started for p in its)
        return last.settled if all(at is not None and at >= last.at for at in began) else inf

    def _of(self, key: str) -> dict[str, list[Node]]:
        """Domain of this key → its nodes."""
        if key not in self._domains:
            self._domains[key] = defaultdict(list)
            for node in self._nodes:
                if key in node.labels:
                    self._domains[key][node.labels[key]].append(node)
        return self._domains[key]


def settling(until: float, rules: HistoryRules, now: float) -> Reason:
    """That a domain has to settle first."""
    why = f"nodes of a domain that is back have to be Ready, and open, for {rules.settle:.0f} s"
    remedy = f"wait, or shorten schedule.nodeSettle; {ATTENDED}"
    return wait(ReasonCode.STABILIZING, why, until, now, remedy)
