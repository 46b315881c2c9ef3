"""Pods that owners are going to make: in place of those that have to leave their nodes, that end or that a
rollout takes away, and further ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from math import ceil
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rebalancer.model.node import OF_ITS_NODE, deleted_after, is_drained, is_going, is_leaving, is_outdated
from rebalancer.model.pod import Pod, PodTemplate, Requests, Volume
from rebalancer.model.snapshot import Alike, Snapshot, among
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.kubelets import expelling
from rebalancer.planner.cluster.simulation import Simulation, key_of
from rebalancer.policy.pods_to_come import PodsToCome
from rebalancer.policy.replacement import Replacements
from rebalancer.spread.arrays import Bools


class Expelling:
    """The nodes that pods will have to leave: that go or are being drained, or with taints that these do not
    tolerate for ever. An old cordon alone is no drain: many are forgotten."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, table = simulation, simulation.state.table
        drained = partial(is_drained, now=simulation.snapshot.now)
        going, drains, cordoned, outdated = (
            {n for n, yes in zip(table.names, table.answers(ask, key), strict=True) if yes}
            for ask, key in ((is_going, None), (drained, is_drained), (is_leaving, None), (is_outdated, None))
        )
        self._going, self._cordoned, self._outdated = going | (drains & cordoned), cordoned, outdated
        self._tainted = {n: t for n, t in zip(table.names, table.answers(expelling), strict=True) if t}
        self.nodes = frozenset((*cordoned, *outdated, *self._tainted))
        """The names of all that could be among them."""

    def pods(self, snapshot: Snapshot) -> Iterator[Pod]:
        """Those that have to go, with or without an owner that makes them anew; pods of DaemonSets, and
        static ones, stay. `snapshot`: of the pods on these nodes, and of those that end."""
        leaving = self._going | (self._cordoned & {p.node_name for p in snapshot.over if p.terminating})
        for some in _moving(snapshot, leaving | self._tainted.keys()):
            for pod in some.pods:
                taints = self._tainted.get(pod.node_name, ())
                if pod.node_name in leaving or deleted_after(pod.template.tolerations, taints) is not None:
                    yield pod
        # A rollout of nodes drains one for each new node that has come: those that are less than half as full
        # as the old. Which are next is not known: each kind goes from its share of them, of those with most.
        if not (outdated := self._outdated - leaving - self._tainted.keys()):
            return
        simulation, state = self._simulation, self._simulation.state
        owners = ((p, p.template.controller) for p in state.pods.values() if not p.terminating)
        moving = ((p.template, p.row, 1) for p, o in owners if o is not None and o[1] not in OF_ITS_NODE)
        held = simulation.held_by(moving).items()
        shares = (amounts / np.maximum(state.allocatable(r), 1) for r, amounts in held)
        full = np.max([np.zeros(state.table.size), *shares], axis=0)
        old = np.array([name in outdated for name in state.table.names])
        for some in _moving(snapshot, outdated):
            by_node: dict[str, list[Pod]] = defaultdict(list)
            for pod in some.pods:
                by_node[pod.node_name].append(pod)
            usual = full[[state.table.index[name] for name in by_node]].mean()
            fit = simulation.static(some.template)
            new = fit & ~simulation.barred & (2 * full < usual)
            share = ceil(len(by_node) * new.sum() / max(1, (fit & old).sum()))
            most = sorted(by_node.values(), key=len, reverse=True)
            yield from chain.from_iterable(most[: max(1, share)])


def _moving(snapshot: Snapshot, nodes: Collection[str]) -> Iterator[Alike]:
    """The pods on these nodes that are not made for them alone."""
    for some in among(snapshot.live, nodes) if nodes else ():
        if some.owner is None or some.owner.kind not in OF_ITS_NODE:
            yield some


class ToBeMade(NamedTuple):
    """Pods that owners are going to make, as they will be: in place of such as end (`again`), of such as have
    to leave their nodes (`leaving`), and of such as a rollout takes away first (`rolls`), these with whether
    they will take more than now, or go elsewhere; and further ones (`coming`). `ends`: pods that a rollout
    takes away, and whose successors are there already or among `coming`. `last`: the ids of those that find
    their nodes after all others, as they may come late, or never."""

    again: Sequence[Pod] = ()
    leaving: Sequence[Pod] = ()
    rolls: Sequence[tuple[Pod, bool]] = ()
    coming: Sequence[Pod] = ()
    ends: Sequence[Pod] = ()
    last: frozenset[int] = frozenset()

    @property
    def pods(self) -> Iterator[Pod]:
        """All of them; one that has to leave its node and is rolled out comes twice."""
        return chain(self.again, self.leaving, (p for p, _ in self.rolls), self.coming)

    @property
    def anew(self) -> dict[Hashable, Pod]:
        """Those on nodes. A pod that has to leave its node, too, is made as the rollout has it."""
        return {key_of(p): p for p in (*self.leaving, *(p for p, _ in self.rolls))}

    def leaves(self, wanted: Callable[[str], bool]) -> list[Pod]:
        """Those of `anew` that may not find the room that they had: they leave their nodes, or take more, or
        others want that room (`wanted`: of a node), and may come first when the old ones end."""
        back = {key_of(p) for p, grows in self.rolls if not (grows or wanted(p.node_name))}
        back -= {key_of(p) for p in self.leaving}
        return [p for key, p in self.anew.items() if key not in back]


NOTHING = ToBeMade()


def to_be_made(
    to_come: PodsToCome, replacements: Replacements, simulation: Simulation, leaving: Iterable[Pod]
) -> list[ToBeMade]:
    """What the owners make before long. `leaving`: the pods that have to leave their nodes (`Expelling`).

    Of a pod that is made anew it is not known for sure what it will be: with all that the former one had and
    others have; as the former one, before a rollout gets there; as its owner's template has it, perhaps
    smaller and without former rules; that without a node selector, and without tolerations either, of which
    nobody knows that admission still adds them. Where these differ, it is all that in each reading. Nor is it
    known whether it comes soon, or at all, as of a Job: in all readings but the first these find their nodes
    last, and further ones are without them."""
    readings = _Readings(to_come, replacements)
    again, left = ([*map(readings.of, p)] for p in (to_come.made_again, filter(to_come.wants, leaving)))
    rolls, beside, ends = _rolling(to_come, readings, simulation)
    coming = [*_coming(to_come, readings), *beside]

    doubtful = [r for r in (*again, *left, *coming) if r.doubt]

    def whole(of: Callable[[_Reading], Pod]) -> ToBeMade:
        rolled, last = [(of(r), grows) for r, grows in rolls], frozenset(id(of(r)) for r in doubtful)
        return ToBeMade([*map(of, again)], [*map(of, left)], rolled, [*map(of, coming)], last=last)

    full = attrgetter("full")
    found = [whole(full)._replace(last=frozenset())]
    if rolls:
        found.append(whole(full)._replace(rolls=()))
    if any(r.as_is is not r.full for r in (*again, *left)):
        found.append(whole(lambda r: r.as_is)._replace(rolls=()))
    if ends:
        # They may stay for long, too: until all new ones are Ready. Where they end, nobody makes them anew.
        over = {*map(key_of, ends)}
        back = [p for p in found[0].leaving if key_of(p) not in over]
        found.append(whole(full)._replace(leaving=back, ends=ends))
    every = (*again, *left, *(r for r, _ in rolls), *coming)
    found += (
        whole(attrgetter(mine))
        for mine, than in (("asked", "full"), ("freed", "asked"), ("plain", "freed"))
        if any(getattr(r, mine) is not getattr(r, than) for r in every)
    )
    for doubt in sorted({r.doubt for r in doubtful}):
        # One that comes late, or never, would hide that the others find no node.
        ended, gone, more = ([r.full for r in some if r.doubt < doubt] for some in (again, left, coming))
        found.append(found[0]._replace(again=ended, leaving=gone, coming=more))
    return found


class _Reading(NamedTuple):
    """The pod as it may be made anew; see `to_be_made`. `doubt`: `PodsToCome.doubt`."""

    doubt: int
    full: Pod
    as_is: Pod
    asked: Pod
    freed: Pod
    plain: Pod


class _Readings:
    """How pods may be made anew by their owners."""

    def __init__(self, to_come: PodsToCome, replacements: Replacements) -> None:
        self._owners, self._to_come, self._replacements = to_come.owners, to_come, replacements

    def of(self, pod: Pod) -> _Reading:
        """The pod itself, where its owner is not known."""
        owner = self._owners.of(pod)
        return self.under(owner, pod) if owner is not None else _Reading(2, *[pod] * 5)

    def under(self, owner: Workload, pod: Pod) -> _Reading:
        """As this owner makes it, of its present revision or, as it is, of the pod's own."""
        like = self._to_come.youngest(owner)
        made_by = self._owners.of(like) if like is not None else None
        templates = self._replacements.next_of(pod.template, self._to_come.maker(owner), like, made_by)
        made = {id(t): replace(pod, template=t) for t in templates}
        return _Reading(self._to_come.doubt(owner), *(made[id(t)] for t in templates))

    def further(self, owner: Workload, template: PodTemplate) -> _Reading:
        """One more pod of an owner, beside one of this template."""
        found = self.under(owner, Pod(owner.name, owner.namespace, "", template))
        return found._replace(as_is=found.full)


def _coming(to_come: PodsToCome, readings: _Readings) -> Iterator[_Reading]:
    """Those of `PodsToCome.further`, with what admission gives them, as one that is there shows it."""
    for owner, number in to_come.further:
        if owner.template is None:
            continue
        template, like = owner.template, to_come.like_next(owner)
        if like is not None:
            template = like.template.by_spec or like.template
            own = tuple(v for v in template.volumes if v.name not in owner.claim_templates)
            template = replace(template, volumes=own)
        reading = readings.further(owner, template)
        for claims in to_come.claims(owner, number):
            yield _with_claims(reading, claims) if claims else reading


def _with_claims(reading: _Reading, claims: tuple[Volume, ...]) -> _Reading:
    pods = reading[1:]
    made = {
        id(pod): replace(pod, template=replace(pod.template, volumes=(*pod.template.volumes, *claims)))
        for pod in pods
    }
    return _Reading(reading.doubt, *(made[id(pod)] for pod in pods))


def _rolling(
    to_come: PodsToCome, readings: _Readings, simulation: Simulation
) -> tuple[list[tuple[_Reading, bool]], list[_Reading], list[Pod]]:
    """Those of `PodsToCome.rolled_out` in place of which others are made, first such as take more or go
    elsewhere: the others find the room that they had. And those that come while the old ones are there,
    which has to be where these stand if a constraint does not count them: by `matchLabelKeys`, say. And the
    old ones in place of which none is made once they are gone."""
    at = simulation.state.table.index
    back = cache(partial(_back, simulation))
    rolls, beside, ends = list[tuple[_Reading, bool]](), list[_Reading](), list[Pod]()

    def grows(p: Pod, new: PodTemplate) -> bool:
        if _is_more(new.requests, p.template.requests):
            return True
        return p.node_name in at and not back(p.template, new)[at[p.node_name]]

    def apart(p: Pod, new: PodTemplate) -> bool:
        hard = simulation.state.constraints(new, hard=True)
        return not all(c.counts(p.namespace, p.template.labels) for c in hard)

    for owner, pods, number, first in to_come.rolled_out():
        made = ((p, readings.under(owner, p)) for p in pods)
        judged = [
            (p, r, any(grows(p, new.template) for new in (r.full, r.asked, r.freed, r.plain)))
            for p, r in made
        ]
        for i, (p, r, more) in enumerate(sorted(judged, key=lambda found: not found[2])):
            if i < first or (i < number and not apart(p, r.full.template)):
                rolls.append((r, more))
                continue
            ends.append(p)
            if i < number:
                beside.append(readings.further(owner, p.template))
    return rolls, beside, ends


def _back(simulation: Simulation, old: PodTemplate, new: PodTemplate) -> Bools:
    """bool[N]: nodes that would take the new pod where the old one was, as far as constraints go: none if it
    has to be near others, who may have left, or away from others than the old one."""
    state, found, a = simulation.state, simulation.static(new), new.affinity
    near, apart = (a.pod_affinity, a.pod_anti_affinity) if a is not None else (None, None)
    if any(kind is not None and kind.required for kind in (near, apart if a is not old.affinity else None)):
        return state.table.none
    for c in state.constraints(new, hard=True):
        group = simulation.group(c, state.eligible(new, c))
        if not group.size:
            continue
        came, went = (c.counts(t.namespace, t.labels) for t in (new, old))
        open_ = group.admits(group.counts(state), came - went)
        found = found & np.append(open_, True)[group.domain_of]
    return found


def _is_more(requests: Requests, than: Requests) -> bool:
    return any(amount > than.get(r, 0) for r, amount in requests.items())
