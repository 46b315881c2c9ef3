"""Whether kube-scheduler does with a pod what the engine says of it.

Nobody sees the moment at which the scheduler decides. It lies between the pod's creation and its binding, and
bindings arrive out of order: for the scheduler a pod is on its node from the moment of its decision. So what
happened to other pods around a decision may have come before it or after. A decision is judged by both, some
time later, when the bindings under way are known: it disagrees only where no order of the events fits.

Each question that a filter asks of a node is answered the more readily the fewer (or the more) pods are in
the node's domain, and the more (or the fewer) elsewhere. So of all orders those with the most and the fewest
pods in each of its domains are enough to show that none fits. Where that shows nothing, it is unclear.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from math import inf
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.branches import UNKNOWN, Touched, blamed, branch, plugin_in, plugin_of
from rebalancer.engine.certainty import older, uncertainties
from rebalancer.engine.config import DEFAULT_CONFIG, SchedulerConfig
from rebalancer.engine.framework import Diagnosis, Frameworks, summary
from rebalancer.engine.state.cluster import ClusterState, Placed
from rebalancer.engine.state.storage import claim_volumes
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.snapshot import Snapshot
from rebalancer.spread.arrays import Bools, Rows

MOST_EVENTS = 4000
"""Changes of pods that are remembered. What may have been decided before them is unclear where it does not
fit now."""
MOST_DECISIONS = 2000
"""Decisions that wait to be judged; of more than these the oldest are unclear."""
QUIET = 40
"""Changes around a decision up to which it is evidence: with more of them, too much would fit."""
NAMED = 10
"""Nodes that a comparison names at most."""
_BY_PODS = (
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""Plugins that may reject a node because of pods."""

T = TypeVar("T")


class Result(StrEnum):
    """What came of a comparison.

    `AGREES`: the engine takes the node that the scheduler took, or refuses the pod for the same reasons.
    `DISAGREES`: it rejects that node, or finds a node where the scheduler found none. `OTHER_REASONS`: both
    refuse the pod, for different reasons. `UNCLEAR`: the cluster changed too much in between.
    """

    AGREES = "agrees"
    DISAGREES = "disagrees"
    OTHER_REASONS = "other-reasons"
    UNCLEAR = "unclear"


class Comparison(Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision of the scheduler beside the engine's answer.

    `owner`: the pod's, as Kind/namespace/name, "" if it has none. `node`: where it was bound, "" if it was
    refused. `certain`: the engine knows of no reason to doubt its answer. `nodes`: those in question, at most
    `NAMED`; `plugins`: those that the engine, or the scheduler, says decide. `branches`: what the decision is
    evidence for, or against if it disagrees, under the `profile` and server `version`; none where it says
    nothing, because too much happened around it.

    `shown`: what the decision proves, as it could hardly have been as predicted by chance: the engine had
    named this one node, or one that the scheduler would have preferred to it. `missed`: the branches of the
    one that was named, where the pod went to another. `scheduler`: whose decision it is, "" if not known.
    """

    namespace: str
    pod: str
    node: str
    result: Result
    certain: bool
    owner: str = ""
    version: str = ""
    profile: str = ""
    nodes: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    scheduler: str = ""
    message: str = ""


class _NoTimeError(Exception):
    """A decision has too many orders of events for the time that there is."""


class _Event(Struct, frozen=True, eq=False):
    """A pod is on a node, no more, or otherwise than before; or, nowhere before and after, waits no more.
    `waited`: since which event it had waited for the scheduler; None: it did not."""

    key: str
    before: Placed | None
    after: Placed | None
    waited: int | None


class _Waiting(Struct, eq=False):
    """A pod without a node. `since`: the number of the event after which the scheduler may decide about it
    next, -1 where that is not known; `refused`: that of its last refusal; `said`: with these words. `shown`:
    the branches that its refusals were evidence for; they are so once."""

    since: int
    refused: int
    said: str
    shown: frozenset[str] = frozenset()


class _Decision(Struct, frozen=True, eq=False):
    """What the scheduler has decided, as seen before event number `seen`, at the time `at`; `since`: see
    `_Waiting`. `fits`: the engine agreed at once; `found`: the comparison is complete, but for its branches.
    """

    pod: Pod
    since: int
    seen: int
    at: float
    fits: bool = False
    found: Comparison | None = None


class _Around(Struct, frozen=True, eq=False):
    """What may have been at the time of a decision: by pod and node the most and the least of it.

    `known`: it is all that there may have been; `keys`: the pods of which it tells.
    """

    keys: frozenset[str]
    forms: dict[tuple[str, int], tuple[Placed | None, Placed | None]]
    known: bool

    @property
    def may(self) -> int:
        """How many may have been otherwise."""
        return sum(most is not least for most, least in self.forms.values())


class Agreement:
    """Follows the pods of one cluster, told of them in the order in which they changed."""

    def __init__(self, snapshot: Snapshot, config: SchedulerConfig | None = None) -> None:
        self.state = ClusterState(snapshot, config or DEFAULT_CONFIG)
        self._frameworks = Frameworks(self.state)
        self._events: deque[_Event] = deque(maxlen=MOST_EVENTS)
        self._number = 0
        self._nominations = 0
        self._waiting: dict[str, _Waiting] = {}
        self._decisions: deque[_Decision] = deque()
        self._more: Callable[[], bool] = lambda: True
        for pod in snapshot.pods:
            self.seen(pod)
        self.state.attach(snapshot.attachments)
        self.begin()

    def begin(self) -> None:
        """Of what happened so far nobody knows all."""
        self._events.clear()
        for waiting in self._waiting.values():
            waiting.since = waiting.refused = -1

    @property
    def waiting(self) -> int:
        """How many pods wait, or were decided about and are not judged yet."""
        return len(self._waiting) + len(self._decisions)

    def seen(self, pod: Pod, now: float = 0.0, *, ask: bool = True) -> None:
        """A pod as it is now. `ask`: whether there is time to ask about it at once, if it was decided about;
        that makes it evidence, and a refusal is not judged without. `now`: by a clock that never goes back.
        """
        waits = self._waiting.get(pod.key)
        if waits is None and self._placed(pod):
            return
        if waits is not None:
            if pod.node_name:
                fits = ask and self._fits_now(pod)
                self._decisions.append(_Decision(pod, waits.since, self._number, now, fits))
            elif ask and pod.unschedulable and pod.unschedulable != waits.said:
                found = None if self._open(pod).any() else self._reasons(pod)
                if found is not None:
                    new = frozenset(found.branches) - waits.shown
                    shown = found.shown if new else ()
                    found = replace(found, branches=tuple(sorted(new)), shown=shown)
                    waits.shown |= new
                self._decisions.append(_Decision(pod, waits.since, self._number, now, found=found))
        self._put(pod, waits.since if waits is not None else None)
        if not pod.waits or not self.state.config.places(pod.template.scheduler_name):
            self._waits_no_more(pod.key, bound=bool(pod.node_name))
        elif waits is None:
            self._waiting[pod.key] = _Waiting(self._number, self._number, pod.unschedulable)
        elif pod.unschedulable != waits.said:
            # The refusal was written some time after it was decided, so the next may have come before.
            waits.since, waits.refused, waits.said = waits.refused, self._number, pod.unschedulable

    def gone(self, key: str) -> None:
        """The pod of this namespace/name does not exist any more."""
        self._waits_no_more(key, bound=False)
        self._put(key, None)

    def settled(self, until: float = inf, *, more: Callable[[], bool] = lambda: True) -> list[Comparison]:
        """Judges the decisions that were seen until then; as many as there is time for, by `more`."""
        self._more, found = more, list[Comparison]()
        while len(self._decisions) > MOST_DECISIONS:
            found.append(self._compared(self._decisions.popleft().pod, Result.UNCLEAR))
        begun = False
        while self._decisions and self._decisions[0].at <= until and more():
            decision = self._decisions[0]
            try:
                judged = self._bound(decision) if decision.pod.node_name else self._refused(decision)
            except _NoTimeError:
                if begun:
                    break  # there is more for it at the next look, where it comes first
                judged = self._compared(decision.pod, Result.UNCLEAR)
            begun = True
            self._decisions.popleft()
            found.append(judged)
        return found

    def given_up(self) -> list[Comparison]:
        """What was not judged yet, as unclear: what the state was built from has changed."""
        found = [self._compared(d.pod, Result.UNCLEAR) for d in self._decisions]
        self._decisions.clear()
        return found

    def refused(self, pod: Pod) -> Comparison:
        """The scheduler found no node for the pod and says why in its condition; judged by the cluster as it
        is now. Pods may have gone since."""
        open_ = np.flatnonzero(self._open(pod))
        if len(open_) and _by_pods(pod.unschedulable):
            return self._compared(pod, Result.UNCLEAR)
        return self._finds(pod, open_) if len(open_) else self._reasons(pod)

    # -- judging

    def _bound(self, decision: _Decision) -> Comparison:
        pod, around = decision.pod, self._around(decision)
        row = self.state.table.index.get(pod.node_name)
        if row is None or not (around.known or decision.fits):
            return self._compared(pod, Result.UNCLEAR)
        if decision.fits and (around.may > QUIET or not around.known):
            return self._compared(pod, Result.AGREES)
        why: dict[tuple[str, int], tuple[str, ...]] = {}
        first_seen: list[Touched] = []
        framework = self._frameworks.of(pod.template)

        def failing() -> frozenset[tuple[str, int]]:
            """What rejects the node: the plugins, each with the number of its question."""
            if not first_seen:
                first_seen.append(Touched(framework, pod.template))
            numbers: Counter[str] = Counter()
            found = set()
            for question in framework.questions(pod.template):
                numbers[question.plugin] += 1
                if not question.pass_[row]:
                    found.add((question.plugin, numbers[question.plugin]))
                    why[question.plugin, numbers[question.plugin]] = question.why(row) or (question.words,)
            if not found and self._nominations <= decision.since:
                rejection = framework.diagnose_node(pod.template, row)
                if rejection is not None:
                    found.add((rejection.plugin, 0))
                    why[rejection.plugin, 0] = rejection.reasons
            return frozenset(found)

        orders = self._in_all_orders(pod, row, around, failing, lambda f: bool(f) == decision.fits)
        here, rows = first_seen[0], np.array([row])
        unclear = self._unclear(decision)
        if not all(orders):
            if not decision.fits or any(orders):
                return self._compared(pod, Result.AGREES)
            tested, proves, missed = self._tested(decision, around, here, row)
            touched = (b for b in here.takes(rows) | tested if plugin_in(b) not in unclear)
            agrees = self._compared(pod, Result.AGREES, branches=touched)
            return replace(agrees, shown=tuple(sorted(proves)), missed=tuple(sorted(missed)))
        shown = [q for q in frozenset.intersection(*orders) if q[0] not in unclear]
        if not shown or decision.fits:
            return self._compared(pod, Result.AGREES if decision.fits else Result.UNCLEAR)
        # A plugin may ask before the filters only.
        order = (*framework.profile.filters, *sorted(q[0] for q in shown))
        plugins = [p for p in dict.fromkeys(order) if any(p == q[0] for q in shown)]
        first = min(q for q in shown if q[0] == plugins[0])
        found = self._compared(
            pod,
            Result.DISAGREES,
            nodes=(pod.node_name,),
            plugins=plugins,
            branches=here.rejects(rows, plugins),
            message=f"the scheduler put it on {pod.node_name}, which the engine rejects: {plugins[0]} "
            f"({', '.join(why[first])})",
        )
        plain = [p for p in plugins if p in self._plain(pod)]
        if found.certain or not plain:
            return found
        return replace(found, certain=True, branches=tuple(sorted(here.rejects(rows, plain))))

    def _tested(
        self, decision: _Decision, around: _Around, here: Touched, row: int
    ) -> tuple[set[str], set[str], set[str]]:
        """The branches that kept the pod from a node which the scheduler would have preferred, by the scores
        that the engine knows: a pod that was put elsewhere says nothing of a node that had no chance. And
        what the decision shows, and where it missed the only node that was predicted."""
        pod, state = decision.pod, self.state
        framework = self._frameworks.of(pod.template)
        if framework.profile.nodes_to_find(state.table.size) < state.table.size or state.nominated:
            return set(), set(), set()
        first = self._number - len(self._events)
        since = islice(self._events, max(0, decision.since - first), None)
        if any(e.key != pod.key for e in since) or self._others_wait(decision):
            return set(), set(), set()
        found: set[str] = set()
        with self._as(around, lambda _: False, pod):
            open_ = framework.feasible(pod.template)
            totals = framework.score(pod.template, open_).totals
            best = np.flatnonzero(open_ & (totals == totals[open_].max()))
            if row not in best:
                return set(), set(), here.takes(best)
            # Of several that are as good any may have been taken: the others are not shown to be open.
            shown = here.shown(row, "takes") if len(best) == 1 else set()
            for which, rows in here.kept_out().items():
                with_them = open_.copy()
                with_them[rows] = True
                totals = framework.score(pod.template, with_them).totals
                if totals[rows].max() > totals[open_].max():
                    found.add(which)
                    shown |= here.shown(int(rows[totals[rows].argmax()]), "rejects", [plugin_in(which)])
        return found, shown, set()

    def _plain(self, pod: Pod) -> tuple[str, ...]:
        """The plugins whose rejection holds, whatever else the engine is unsure of."""
        if older(self.state.version):
            return ()
        gated = any(t.operator in ("Lt", "Gt") for t in pod.template.tolerations)
        return ("NodeUnschedulable", "NodeAffinity", *([] if gated else ["TaintToleration"]))

    def _refused(self, decision: _Decision) -> Comparison:
        pod, around = decision.pod, self._around(decision)
        if (found := decision.found) is not None:
            same = found.result is Result.AGREES
            if around.known and not around.may and not self._unclear(decision):
                return replace(found, result=Result.OTHER_REASONS) if found.message else found
            return self._compared(pod, Result.AGREES if same else Result.UNCLEAR)
        if not around.known:
            return self._compared(pod, Result.UNCLEAR)
        open_ = self.state.table.every
        for choice in (lambda _: True, lambda _: False):
            with self._as(around, choice, pod):
                open_ = open_ & self._passing(pod)
        left = []
        for row in np.flatnonzero(open_)[:NAMED].tolist():
            ask, refused = lambda row=row: bool(self._passing(pod)[row]), lambda passes: not passes
            if all(self._in_all_orders(pod, row, around, ask, refused)):
                left.append(row)
        if not left:
            return self._compared(pod, Result.UNCLEAR if open_.any() else Result.AGREES)
        if _by_pods(pod.unschedulable) and (
            self._unclear(decision) or self.state.nominated or self._others_wait(decision)
        ):
            return self._compared(pod, Result.UNCLEAR)
        with self._as(around, lambda _: True, pod):
            return self._finds(pod, np.array(left))

    def _unclear(self, decision: _Decision) -> frozenset[str]:
        """The plugins whose verdict on a node may have been another one than all known orders say: pods that
        still wait may be counted by the scheduler already; and an attraction between pods and an aversion are
        not one question."""
        terms = self.state.terms.of(decision.pod.template)
        mixed = len(terms.required) + bool(terms.required_anti) > 1
        if not self._others_wait(decision):
            return frozenset({"InterPodAffinity"} if terms.required and mixed else ())
        return frozenset({"PodTopologySpread", *(["InterPodAffinity"] if terms.required else [])})

    def _others_wait(self, decision: _Decision) -> bool:
        """Whether the scheduler may have counted a pod on a node of which nobody was told: its binding is
        still under way, or it ended before, or its volumes could not be bound there."""
        first = self._number - len(self._events)
        return any(
            key != decision.pod.key and not w.said and w.since <= decision.seen
            for key, w in self._waiting.items()
        ) or any(
            (e.after is None or (e.key != decision.pod.key and _may_fail(e.after.template)))
            and e.waited is not None
            and e.waited <= decision.seen
            for e in list(self._events)[max(0, decision.since - first) :]
        )

    def _finds(self, pod: Pod, rows: Rows) -> Comparison:
        """The scheduler refuses the pod, and the engine has these nodes for it."""
        framework = self._frameworks.of(pod.template)
        names = tuple(self.state.table.names[row] for row in rows[:NAMED])
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        with self.state.unhindered(pod.key):
            diagnosis = framework.diagnose(pod.template)
            here = Touched(framework, pod.template)
        ours = Counter(r for n in diagnosis.nodes if n is not None for r in n.reasons)
        plugins = blamed(ours, _counts(pod.unschedulable))
        known = [p for p in plugins if p != UNKNOWN]
        branches = here.takes(rows, known) | {branch(UNKNOWN, "takes") for p in plugins if p == UNKNOWN}
        return self._compared(
            pod,
            Result.DISAGREES,
            nodes=names,
            plugins=known,
            branches=branches,
            message=f"the scheduler refuses it ({_reasons_of(pod.unschedulable)}); the engine finds "
            f"{', '.join(names)}{more}",
        )

    def _reasons(self, pod: Pod) -> Comparison:
        """Both refuse the pod: for the same reasons? How many nodes have which may change in between, so that
        other numbers are only told of."""
        framework = self._frameworks.of(pod.template)
        with self.state.unhindered(pod.key):
            diagnosis = framework.diagnose(pod.template)
            here = Touched(framework, pod.template)
            kept_out = here.kept_out()
            shown = {
                s
                for which, rows in kept_out.items()
                for row in rows[:NAMED].tolist()
                for s in here.shown(row, "rejects", [plugin_in(which)])
            }
        ours = summary(diagnosis, self.state.table.size)
        said, known = _counts(pod.unschedulable), _counts(ours)
        if said == known:
            agrees = self._compared(pod, Result.AGREES, branches=kept_out)
            return replace(agrees, shown=tuple(sorted(shown)))
        message = (
            f"both refuse it; the scheduler says: {_reasons_of(pod.unschedulable)}, the engine: "
            f"{_reasons_of(ours)}"
        )
        if said.keys() == known.keys():
            return self._compared(pod, Result.AGREES, plugins=blamed(known, said), message=message)
        nodes, plugins = self._differing(diagnosis, frozenset(said))
        return self._compared(pod, Result.OTHER_REASONS, nodes=nodes, plugins=plugins, message=message)

    def _differing(
        self, diagnosis: Diagnosis, said: frozenset[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The nodes, and the plugins, whose reasons the scheduler does not give."""
        if diagnosis.prefilter is not None:
            return (), (diagnosis.prefilter.plugin,)
        found = [
            (name, r.plugin)
            for name, r in zip(self.state.table.names, diagnosis.nodes, strict=True)
            if r is not None and not said.issuperset(r.reasons)
        ]
        plugins = tuple(dict.fromkeys(plugin for _, plugin in found if plugin))
        return tuple(name for name, _ in found[:NAMED]), plugins

    def _compared(
        self,
        pod: Pod,
        result: Result,
        nodes: tuple[str, ...] = (),
        plugins: Iterable[str] = (),
        branches: Iterable[str] = (),
        message: str = "",
    ) -> Comparison:
        framework = self._frameworks.of(pod.template)
        return Comparison(
            namespace=pod.namespace,
            pod=pod.name,
            owner=f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}" if pod.owner is not None else "",
            node=pod.node_name,
            result=result,
            certain=not uncertainties(self.state, framework.profile, pod.template),
            version=self.state.version.text,
            profile=framework.profile.known_as,
            nodes=nodes,
            plugins=tuple(plugins),
            branches=tuple(sorted(branches)),
            message=message,
        )

    # -- what may have been

    def _around(self, decision: _Decision) -> _Around:
        """What may have been when the scheduler decided; of what fits only as much as says that it was not
        quiet."""
        first = self._number - len(self._events)
        begin = max(decision.since, first)
        matters = self._mattering(decision.pod)
        could: dict[str, list[Placed | None]] = {}
        closed: set[str] = set()
        for number, e in enumerate(islice(self._events, begin - first, None), begin):
            if e.key == decision.pod.key or e.key in closed or not any(map(matters, (e.before, e.after))):
                continue
            forms = could.setdefault(e.key, [e.before])
            # Seen before the decision was, or decided before and seen after it.
            if number < decision.seen or (e.waited is not None and e.waited <= decision.seen):
                forms.append(e.after)
            else:
                closed.add(e.key)
            if decision.fits and len(could) > 2 * QUIET:
                break
        found: dict[tuple[str, int], tuple[Placed | None, Placed | None]] = {}
        for key, forms in could.items():
            for there in {f.row for f in forms if f is not None}:
                on = [f if f is not None and f.row == there else None for f in forms]
                found[key, there] = max(on, key=_presence), min(on, key=_presence)
        known = decision.since >= first and not any(
            len({id(f.template) for f in forms if f is not None}) > 1 for forms in could.values()
        )
        return _Around(frozenset(could), found, known)

    def _mattering(self, pod: Pod) -> Callable[[Placed | None], bool]:
        """Whether another pod matters to the verdict on this one: on its node, or because of what one of
        them asks of the other."""
        row = self.state.table.index.get(pod.node_name)
        hard = self.state.constraints(pod.template, hard=True)
        own = self.state.terms.of(pod.template)
        selected = [self.state.terms.selects(t) for t, _ in (*own.required, *own.required_anti)]
        known: dict[int, bool] = {}

        def asks(t: PodTemplate) -> bool:
            return (
                bool((t.volumes and pod.template.volumes) or self.state.terms.of(t).required_anti)
                or any(c.counts(t.namespace, t.labels) for c in hard)
                or any(s.weigh(t) for s in selected)
            )

        def matters(placed: Placed | None) -> bool:
            if placed is None or row is None or placed.row == row:
                return placed is not None
            if id(placed.template) not in known:
                known[id(placed.template)] = asks(placed.template)
            return known[id(placed.template)]

        return matters

    def _in_all_orders(
        self, pod: Pod, row: int, around: _Around, ask: Callable[[], T], enough: Callable[[T], bool]
    ) -> list[T]:
        """What `ask` says of the state as it may have been at a decision about this node, in every way that
        could matter; the last answer may be `enough`."""
        choices: list[Callable[[int], bool]] = [lambda _: False]
        if around.may:
            choices += [lambda _: True, lambda at: at == row, lambda at: at != row]
            for key in self._keys(pod):
                inside = self.state.table.domains(key).ids == self.state.table.domains(key).ids[row]
                choices += [inside.item, (~inside).item]
        found: list[T] = []
        for choice in choices:
            if found and not self._more():
                raise _NoTimeError
            with self._as(around, choice, pod):
                found.append(ask())
            if enough(found[-1]):
                break
        return found

    def _keys(self, pod: Pod) -> tuple[str, ...]:
        """The topology keys of what the pod asks of others."""
        terms = self.state.terms.of(pod.template)
        found = [c.topology_key for c in self.state.constraints(pod.template, hard=True)]
        found += [t.topology_key for t, _ in (*terms.required, *terms.required_anti)]
        return tuple(dict.fromkeys(found))

    @contextmanager
    def _as(self, around: _Around, most: Callable[[int], bool], pod: Pod) -> Iterator[None]:
        """While it lasts, the pod is nowhere, and of the others there is the most on such nodes, else the
        least."""
        state = self.state
        wanted: dict[str, list[Placed]] = {key: [] for key in (*around.keys, pod.key)}
        for (key, row), forms in around.forms.items():
            if (form := forms[not most(row)]) is not None:
                wanted[key].append(form)
        now = {key: [state.pods[key]] if key in state.pods else [] for key in wanted}
        changed = [key for key, forms in wanted.items() if forms != now[key]]
        gone = [(key, placed) for key in changed for placed in now[key]]
        there = [((key, placed.row), placed) for key in changed for placed in wanted[key]]
        ports = state.ports
        state.ports = ports.to_change([p.template for _, p in (*gone, *there)])
        for key, _ in gone:
            state.remove(key)
        for at, placed in there:
            self._add(at, placed)
        try:
            with state.unhindered(pod.key):
                yield
        finally:
            for at, _ in there:
                state.remove(at)
            for key, placed in gone:
                self._add(key, placed)
            state.ports = ports

    def _add(self, key: str | tuple[str, int], placed: Placed) -> None:
        self.state.add(key, placed.template, placed.row)
        if placed.terminating:
            self.state.terminate(key)

    # -- the state

    def _waits_no_more(self, key: str, *, bound: bool) -> None:
        waited = self._waiting.pop(key, None)
        if waited is not None and not bound:
            self._events.append(_Event(key, None, None, waited.since))
            self._number += 1

    def _put(self, pod: Pod | str, waited: int | None) -> None:
        """The pod is so from now on; or the one of this key is gone."""
        key = pod if isinstance(pod, str) else pod.key
        before, nominated = self.state.pods.get(key), self.state.nominated.get(key)
        self.state.drop(key)
        if isinstance(pod, Pod):
            self.state.put(pod, key)
        after = self.state.pods.get(key)
        if before != after:
            self._events.append(_Event(key, before, after, waited if before is None else None))
            self._number += 1
        if nominated != self.state.nominated.get(key):
            self._nominations = self._number = self._number + 1
            self._events.append(_Event(key, None, None, None))

    def _fits_now(self, pod: Pod) -> bool:
        row = self.state.table.index.get(pod.node_name)
        with self.state.unhindered(pod.key):
            framework = self._frameworks.of(pod.template)
            return row is not None and framework.diagnose_node(pod.template, row) is None

    def _open(self, pod: Pod) -> Bools:
        """bool[N]: nodes that take the pod."""
        with self.state.unhindered(pod.key):
            return self._frameworks.of(pod.template).feasible(pod.template)

    def _passing(self, pod: Pod) -> Bools:
        """bool[N]: nodes that would take the pod if none were nominated."""
        found = self.state.table.every
        for question in self._frameworks.of(pod.template).questions(pod.template):
            found = found & question.pass_
        return found

    def _placed(self, pod: Pod) -> bool:
        """Whether the state has the pod just so: most changes are of a status that nobody looks at here."""
        placed = self.state.pods.get(pod.key)
        return (
            placed is not None
            and not pod.finished
            and placed.template is pod.template
            and placed.terminating == pod.terminating
            and self.state.table.index.get(pod.node_name) == placed.row
        )


def _may_fail(template: PodTemplate) -> bool:
    """Whether a pod that has a node may still get another: what it needs there is bound only then."""
    return bool(template.resource_claims) or any(claim_volumes(template))


def _presence(placed: Placed | None) -> int:
    """How much a pod is on a node: not at all, on its way out, or there."""
    return 0 if placed is None else 2 - placed.terminating


_AVAILABLE = re.compile(r"^\d+/\d+ nodes are available:\s*")
_COUNT = re.compile(r"^(\d+) ")


def _reasons_of(message: str) -> str:
    """The part of a FailedScheduling message on the nodes, without what the PostFilter plugins add to it.

    The scheduler closes the first with a full stop, and joins the second with commas (framework/types.go,
    FitError; runtime/framework.go, RunPostFilterPlugins).
    """
    return _AVAILABLE.sub("", message).partition(". ")[0].rstrip(".")


def _by_pods(message: str) -> bool:
    """Whether pods may be why a FailedScheduling message leaves out a node."""
    return not {plugin_of(r) for r in _counts(message)}.isdisjoint(_BY_PODS)


def _counts(message: str) -> dict[str, int]:
    """The reasons in a FailedScheduling message, with the numbers of their nodes."""
    parts = re.split(r", (?=\d+ )", _reasons_of(message))
    return {_COUNT.sub("", p): int(m[1]) if (m := _COUNT.match(p)) else 1 for p in parts}
