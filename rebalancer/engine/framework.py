"""A profile's plugins over a cluster state: which nodes may take a pod, which is preferred; what follows
where none may.

Rule: pkg/scheduler/framework/runtime/framework.go (``RunPreFilterPlugins``, ``RunFilterPlugins``,
``RunFilterPluginsWithNominatedPods``, ``RunScorePlugins``).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from importlib import import_module

import numpy as np
from msgspec import Struct

from rebalancer.engine import config
from rebalancer.engine.branches import doubts
from rebalancer.engine.certainty import assumptions, uncertainties, unread
from rebalancer.engine.config import Profile
from rebalancer.engine.plugins.inter_pod_affinity import InterPodAffinity
from rebalancer.engine.plugins.node_ports import NodePorts
from rebalancer.engine.plugins.plugin import UNRESOLVABLE, UNSCHEDULABLE, Filter, Plugin, Rejection, Score
from rebalancer.engine.plugins.pod_topology_spread import PodTopologySpread
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows, among

PLUGINS: dict[str, type[Plugin]] = {
    p.name: getattr(import_module(f"rebalancer.engine.plugins.{p.file}"), p.name) for p in config.PLUGINS
}


# What a framework remembers of the templates that it was asked about, and brings up to date.
#
# A scheduler works all of it out anew in each scheduling cycle. Here only the nodes that have changed since
# are looked at again.

CACHED_BYTES = 64 * 1024 * 1024
"""About what the framework remembers of the templates it was asked about."""
_FILTERED, _SCORED = 30, 100
"""About the bytes for each node that the filters of a template take, and its scores with them."""


class KnownTemplate:
    """What is remembered of one template: the plugins' filters and scores, up to date at `clock`."""

    def __init__(
        self,
        state: ClusterState,
        profile: Profile,
        plugins: Mapping[str, Plugin],
        template: PodTemplate,
        node_name: str,
    ) -> None:
        self.template = template
        self.filters: dict[str, Filter] = {}
        wanted = dict.fromkeys((*profile.pre_filters, *profile.filters))
        for name in wanted:
            found = plugins[name].filter(template, node_name)
            if found is not None:
                self.filters[name] = found
        self.scores: dict[str, Score] | None = None
        self.scored_at = self.clock = state.clock
        active = [self.filters[n] for n in profile.filters if n in self.filters]
        self.rowwise = [f for f in active if f.rowwise]
        self.whole = [f for f in active if not f.rowwise]
        self.narrow = [
            f.only for n in profile.pre_filters if (f := self.filters.get(n)) and f.only is not None
        ]
        self.joined: Bools = state.table.every.copy()
        for f in self.rowwise:
            self.joined &= f.mask()
        for only in self.narrow:
            self.joined &= only

    def refresh(self, state: ClusterState) -> None:
        """Brings the filters up to date, for the nodes that have changed."""
        if self.clock == state.clock:
            return
        rows = (state.stamp > self.clock).nonzero()[0]
        self.clock = state.clock
        for found in self.filters.values():
            found.update(rows)
        joined = np.ones(len(rows), dtype=np.bool_)
        for f in self.rowwise:
            joined &= f.mask()[rows]
        for only in self.narrow:
            joined &= only[rows]
        self.joined[rows] = joined

    def refresh_scores(self, state: ClusterState) -> dict[str, Score]:
        """The scores, brought up to date only when they are asked for: most verdicts need none."""
        assert self.scores is not None, "made by `KnownTemplates` first"
        if self.scored_at != state.clock:
            rows = (state.stamp > self.scored_at).nonzero()[0]
            self.scored_at = state.clock
            for score in self.scores.values():
                score.update(rows)
        return self.scores


class KnownTemplates:
    """Each `KnownTemplate` of a profile over one state, as many as there is room for; the oldest go first."""

    def __init__(self, state: ClusterState, profile: Profile, plugins: Mapping[str, Plugin]) -> None:
        self._state = state
        self._profile = profile
        self._plugins = plugins
        self._templates: OrderedDict[tuple[int, str], KnownTemplate] = OrderedDict()
        self._scored: OrderedDict[tuple[int, str], KnownTemplate] = OrderedDict()
        """Templates with scores: these take more room, and are asked for less often."""
        self._room, self._room_scored = (
            max(16, CACHED_BYTES // (size * max(1, state.table.size))) for size in (_FILTERED, _SCORED)
        )

    def of(self, template: PodTemplate, node_name: str) -> KnownTemplate:
        """What is remembered of the template, its filters up to date."""
        known = self._known(template, node_name)
        known.refresh(self._state)
        return known

    def scores(self, template: PodTemplate, node_name: str) -> dict[str, Score]:
        """The template's scores by plugin, up to date; its filters need not be."""
        known = self._known(template, node_name)
        if known.scores is None:
            known.scores = {
                name: found
                for name, _ in self._profile.scores
                if (found := self._plugins[name].score(template)) is not None
            }
            known.scored_at = self._state.clock
            self._scored[id(template), node_name] = known
            if len(self._scored) > self._room_scored:
                self._scored.popitem(last=False)[1].scores = None
        self._scored.move_to_end((id(template), node_name))
        return known.refresh_scores(self._state)

    def _known(self, template: PodTemplate, node_name: str) -> KnownTemplate:
        key = id(template), node_name
        known = self._templates.get(key)
        if known is None:
            known = KnownTemplate(self._state, self._profile, self._plugins, template, node_name)
            self._templates[key] = known
            if len(self._templates) > self._room:
                self._scored.pop(self._templates.popitem(last=False)[0], None)
        else:
            self._templates.move_to_end(key)
        return known


NARROWED = Rejection("", "PreFilterResult", ("node(s) didn't satisfy plugin(s) PreFilterResult",))
"""A node that a PreFilter plugin left out of the search."""


class Diagnosis(Struct, frozen=True, eq=False):
    """Every node's verdict on a pod.

    `prefilter`: the pod fails before any node is looked at. `nodes[i]`: the first plugin, in profile order,
    that rejects node i, None = it fits; empty when `prefilter` is set. `by_plugin`: each filter plugin asked
    alone, its status on each node that it rejects. `narrowed_by`: plugins whose PreFilter left nodes out.
    """

    prefilter: Rejection | None
    nodes: tuple[Rejection | None, ...]
    by_plugin: dict[str, dict[int, Rejection]]
    narrowed_by: tuple[str, ...] = ()


class Question(Struct, frozen=True, eq=False):
    """One thing that a filter plugin asks of a pod's nodes, and the nodes that `pass_`, bool[N].

    `words`: what it asks; "" where only `why` can say it, which is the reasons for a node that does not pass.
    """

    plugin: str
    words: str
    pass_: Bools
    why: Callable[[int], tuple[str, ...]]


class Scores(Struct, frozen=True, eq=False):
    """Weighted scores, int64[N], valid on the feasible nodes; plugins that skip the pod are absent."""

    by_plugin: dict[str, Ints]
    totals: Ints


class Frameworks:
    """The frameworks of all profiles over one state."""

    def __init__(self, state: ClusterState) -> None:
        """Binds every profile of the state's configuration."""
        self.state = state
        self._by_profile = {id(p): Framework(state, p) for p in state.config.profiles}

    def of(self, template: PodTemplate) -> Framework:
        """The one that places the pod, by its schedulerName; for a foreign scheduler the first."""
        return self._by_profile[id(self.state.config.profile(template.scheduler_name))]


class Framework:
    """A profile bound to a state. The state may change between calls, through its own methods."""

    def __init__(self, state: ClusterState, profile: Profile | None = None) -> None:
        """Uses the profile for `default-scheduler` unless told otherwise."""
        self.state = state
        self.profile = profile if profile is not None else state.config.profile("default-scheduler")
        self.plugins: dict[str, Plugin] = {
            name: type_(state, self.profile) for name, type_ in PLUGINS.items()
        }
        self._templates = KnownTemplates(state, self.profile, self.plugins)

    def feasible(
        self, template: PodTemplate, node_name: str = "", *, spread: bool = True, affinity: bool = True
    ) -> Bools:
        """bool[N]: nodes that take the pod; without `spread`, whatever its spread constraints say, without
        `affinity`, whatever is required between pods. The array is the caller's."""
        known = self._templates.of(template, node_name)
        if self._blocked(known) is not None:
            return self.state.table.none.copy()
        mask = known.joined.copy()
        left_out: set[str] = set()
        if not (spread and affinity):
            asked = ((PodTopologySpread.name, spread), (InterPodAffinity.name, affinity))
            left_out = {name for name, ask in asked if not ask}
        others = [known.filters.get(name) for name in left_out]
        for f in known.whole:
            if not f.skipped and f not in others:
                mask &= f.mask()
        if self.state.nominated:
            for row, rejections in self._with_nominated(known).items():
                mask[row] &= left_out.issuperset(rejections)
        return mask

    def spread_fits(self, template: PodTemplate) -> tuple[Bools, ...]:
        """bool[N] for each hard spread constraint: the nodes that it alone would let the pod have."""
        f = self._templates.of(template, "").filters.get(PodTopologySpread.name)
        return tuple(fits for _, fits in f.questions()) if f is not None and not f.skipped else ()

    def fits_beside(self, template: PodTemplate) -> Bools:
        """bool[N]: the nodes that host ports and what is required between pods would let the pod have."""
        filters, mask = self._templates.of(template, "").filters, self.state.table.every
        for name in (NodePorts.name, InterPodAffinity.name):
            if (f := filters.get(name)) is not None and not f.skipped:
                mask = mask & f.mask()
        return mask

    def diagnose(self, template: PodTemplate, node_name: str = "") -> Diagnosis:
        """The verdict on each node, with the plugin that decides and its reasons."""
        known = self._templates.of(template, node_name)
        nominated = self._with_nominated(known)
        by_plugin = {name: self._alone(name, known, nominated) for name in self.profile.filters}
        blocked = self._blocked(known)
        if blocked is not None:
            return Diagnosis(blocked, (), by_plugin)
        nodes: list[Rejection | None] = []
        for row in range(self.state.table.size):
            if any(not only[row] for only in known.narrow):
                nodes.append(NARROWED)
                continue
            # First as if the nominated pods ran there, then without them.
            first = (nominated.get(row, {}).get(n) for n in self.profile.filters)
            then = (by_plugin[n].get(row) for n in self.profile.filters)
            nodes.append(next((r for r in (*first, *then) if r is not None), None))
        narrowed_by = tuple(n for n, f in sorted(known.filters.items()) if f.only is not None)
        return Diagnosis(None, tuple(nodes), by_plugin, narrowed_by)

    def rejections(self, template: PodTemplate, rows: Rows) -> list[Rejection | None]:
        """What `diagnose` says of these nodes, for many pods and nodes: no plugin is asked after the first
        that rejects a node."""
        known = self._templates.of(template, "")
        if (blocked := self._blocked(known)) is not None:
            return [blocked] * len(rows)
        nominated = self._with_nominated(known)
        found: dict[int, Rejection] = {}
        for row in map(int, rows) if known.narrow or nominated else ():
            first = next((r for n in self.profile.filters if (r := nominated.get(row, {}).get(n))), None)
            if any(not only[row] for only in known.narrow):
                found[row] = NARROWED
            elif first is not None:
                found[row] = first
        left = np.array([row for row in rows if row not in found], dtype=np.intp)
        for name in self.profile.filters:
            f = known.filters.get(name)
            if f is not None and not f.skipped and len(left):
                fits = f.mask()[left]
                found.update((int(row), Rejection(name, *f.reject(int(row)))) for row in left[~fits])
                left = left[fits]
        return [found.get(int(row)) for row in rows]

    def questions(self, template: PodTemplate) -> tuple[Question, ...]:
        """All that is asked of the nodes, in profile order, nominated pods aside.

        `diagnose` says the same node by node; this is for many thousand nodes.
        """
        known = self._templates.of(template, "")
        table = self.state.table
        found: list[Question] = []
        for name in dict.fromkeys((*self.profile.pre_filters, *self.profile.filters)):
            f = known.filters.get(name)
            if f is None:
                continue
            if name in self.profile.pre_filters:
                if f.blocked is not None:
                    found.append(Question(name, ", ".join(f.blocked.reasons), table.none, lambda _: ()))
                if f.only is not None:
                    found.append(Question(name, "", f.only, _reasons(f)))
            if name in self.profile.filters and not f.skipped:
                found += (Question(name, words, mask, _reasons(f)) for words, mask in f.questions())
        return tuple(found)

    def close(self, plugin: str, template: PodTemplate, row: int) -> bool:
        """Whether the node only just passes, or only just does not; see `Filter.close`."""
        f = self._templates.of(template, "").filters.get(plugin)
        return f is None or f.skipped or f.close(row)

    def diagnose_node(self, template: PodTemplate, row: int, node_name: str = "") -> Rejection | None:
        """The verdict on one node; None = it takes the pod."""
        known = self._templates.of(template, node_name)
        blocked = self._blocked(known)
        if blocked is not None:
            return blocked
        if any(not only[row] for only in known.narrow):
            return NARROWED
        nominated = self._with_nominated(known, row).get(row, {})
        first = next((nominated[n] for n in self.profile.filters if n in nominated), None)
        return first or next(iter(self._rejections(known, row).values()), None)

    def uncertainties(self, template: PodTemplate) -> tuple[str, ...]:
        """Why the verdict on the pod cannot be certain, in sentences; none = it is."""
        return (*uncertainties(self.state, self.profile, template), *doubts(self, template))

    def assumptions(self) -> tuple[str, ...]:
        """What every verdict rests on, in sentences; and every plan, for want of kinds that were not read."""
        return (*assumptions(self.state, self.profile), *unread(self.state))

    def _blocked(self, known: KnownTemplate) -> Rejection | None:
        """PreFilter in profile order: the first unresolvable rejection, or else the first at all."""
        blocked = [f.blocked for n in self.profile.pre_filters if (f := known.filters.get(n)) and f.blocked]
        return next((b for b in blocked if b.code == UNRESOLVABLE), blocked[0] if blocked else None)

    def _rejections(self, known: KnownTemplate, row: int) -> dict[str, Rejection]:
        """What rejects one node, in profile order."""
        asked = ((n, known.filters.get(n)) for n in self.profile.filters)
        return {
            n: Rejection(n, *f.reject(row))
            for n, f in asked
            if f is not None and not f.skipped and not f.mask()[row]
        }

    def _with_nominated(
        self, known: KnownTemplate, only: int | None = None
    ) -> dict[int, dict[str, Rejection]]:
        """For each node that pods of at least equal priority wait for: what rejects it if these ran there."""
        waiting: dict[int, list[tuple[Hashable, PodTemplate]]] = {}
        for key, placed in self.state.nominated.items():
            if placed.template.priority >= known.template.priority and only in (None, placed.row):
                waiting.setdefault(placed.row, []).append((key, placed.template))
        # A plugin that skips the pod is not told of nominated ones.
        asked = [(n, f) for n in self.profile.filters if (f := known.filters.get(n)) and not f.skipped]
        verdicts: dict[int, dict[str, Rejection]] = {}
        for row, pods in waiting.items():
            with self.state.assumed(row, pods):
                known.refresh(self.state)
                verdicts[row] = {n: Rejection(n, *f.reject(row)) for n, f in asked if not f.mask()[row]}
            known.refresh(self.state)
        return verdicts

    def _alone(
        self, name: str, known: KnownTemplate, nominated: dict[int, dict[str, Rejection]]
    ) -> dict[int, Rejection]:
        """What one plugin rejects, asked alone."""
        f = known.filters.get(name)
        if f is not None and f.blocked is not None:
            status = Rejection(name, f.blocked.code, ("PreFilter", *f.blocked.reasons))
            return dict.fromkeys(range(self.state.table.size), status)
        if f is None or f.skipped:
            return {}
        found = {}
        mask = f.mask()
        for row in range(self.state.table.size):
            if f.only is not None and not f.only[row]:
                found[row] = Rejection(name, NARROWED.code, ("PreFilterResult",))
            elif name in nominated.get(row, {}):
                found[row] = nominated[row][name]
            elif not mask[row]:
                found[row] = Rejection(name, *f.reject(row))
        return found

    def score(self, template: PodTemplate, feasible: Bools, node_name: str = "") -> Scores:
        """Weighted scores over the feasible nodes."""
        scores = self._templates.scores(template, node_name)
        by_plugin: dict[str, Ints] = {}
        totals: Ints = np.zeros(self.state.table.size, dtype=np.int64)
        for name, weight in self.profile.scores:
            found = scores.get(name)
            values = found.values(feasible) if found is not None else None
            if values is not None:
                by_plugin[name] = weighted = values if weight == 1 else weight * values
                totals += weighted
        return Scores(by_plugin, totals)

    def best(self, template: PodTemplate, feasible: Bools) -> Bools:
        """bool[N]: the feasible nodes that may score best: of all or, where only a part is scored, of that of
        any search. Each goes on in a circle from where the last one found enough."""
        totals = self.score(template, feasible).totals
        most = self.profile.nodes_to_find(self.state.table.size)
        if np.count_nonzero(feasible) <= most:
            best: Bools = feasible & (totals == totals.max(where=feasible, initial=0))
            return best
        rows = self.state.table.searched
        rows = rows[feasible[rows]]
        scored = totals[rows]
        lowest = np.roll(_of_stretches(np.minimum, _of_stretches(np.maximum, scored, most), most), most - 1)
        return among(self.state.table.size, rows[scored == lowest])


def _of_stretches(extreme: np.ufunc, values: Ints, length: int) -> Ints:
    """By its first place, the highest (`extreme`: maximum) or lowest of each stretch in a circle."""
    number = len(values)
    blocks = np.resize(values, (-(-(number + length - 1) // length), length))
    before, after = extreme.accumulate(blocks, axis=1), extreme.accumulate(blocks[:, ::-1], axis=1)[:, ::-1]
    found: Ints = extreme(after.ravel()[:number], before.ravel()[length - 1 :][:number])
    return found


def _reasons(f: Filter) -> Callable[[int], tuple[str, ...]]:
    return lambda row: f.reject(row)[1]


# The scheduler's one-line summary of why a pod is Pending.
#
# Rule: pkg/scheduler/framework/types.go, ``FitError.Error``; pkg/scheduler/schedule_one.go.

# DefaultPreemption, as far as it says whether a pod that fits nowhere would push others out.
#
# Rule: plugins/defaultpreemption/default_preemption.go (``SelectVictimsOnNode``,
# ``PodEligibleToPreemptOthers``), framework/preemption/preemption.go. Only nodes that were rejected as
# Unschedulable are tried, each with all pods of lower priority gone. Budgets do not forbid preemption.

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NEVER = "not eligible due to preemptionPolicy=Never."


class Preemption(Struct, frozen=True, eq=False):
    """What preemption would come to. `possible`: nodes that removing lower-priority pods would open.

    `reasons`: of each other node, by index; `ineligible`: why the pod may not preempt at all.
    """

    possible: tuple[int, ...] = ()
    reasons: dict[int, tuple[str, ...]] = {}
    ineligible: str = ""


def nobody_preempted(diagnosis: Diagnosis, nodes: int) -> Preemption:
    """The verdict of a scheduler that finds no victims anywhere. `nodes`: how many there are."""
    found = (diagnosis.prefilter or diagnosis.nodes[row] for row in range(nodes))
    codes = (rejection.code if rejection is not None else "" for rejection in found)
    return Preemption(
        reasons={r: (NO_VICTIMS if code == UNSCHEDULABLE else NOT_HELPFUL,) for r, code in enumerate(codes)}
    )


def preempt(framework: Framework, template: PodTemplate, diagnosis: Diagnosis) -> Preemption:
    """Tries each node that rejected the pod as Unschedulable; the state is unchanged afterwards."""
    if not template.preempts:
        return Preemption(ineligible=NEVER)
    state = framework.state
    victims: dict[int, list[Hashable]] = {}
    for key, placed in state.pods.items():
        if placed.template.priority < template.priority:
            victims.setdefault(placed.row, []).append(key)
    possible: list[int] = []
    reasons: dict[int, tuple[str, ...]] = {}
    for row in range(state.table.size):
        rejection = diagnosis.prefilter or diagnosis.nodes[row]
        if rejection is None:
            continue
        if rejection.code != UNSCHEDULABLE:
            reasons[row] = (NOT_HELPFUL,)
        elif row not in victims:
            reasons[row] = (NO_VICTIMS,)
        else:
            still = _without(framework, template, row, victims[row])
            if still:
                reasons[row] = still
            else:
                possible.append(row)
    return Preemption(tuple(possible), reasons)


def would_preempt(framework: Framework, template: PodTemplate, rows: Iterable[int], most: int = 50) -> bool:
    """Whether pushing lower-priority pods out of one of these nodes would let the pod in; tries `most`."""
    state = framework.state
    if not template.preempts or state.lowest_priority >= template.priority:
        return False
    wanted = set(rows)
    victims: dict[int, list[Hashable]] = {}
    for key, placed in state.pods.items():
        if placed.row in wanted and placed.template.priority < template.priority:
            victims.setdefault(placed.row, []).append(key)
    return any(not _without(framework, template, row, victims[row]) for row in sorted(victims)[:most])


def _without(
    framework: Framework, template: PodTemplate, row: int, victims: list[Hashable]
) -> tuple[str, ...]:
    """Why the node rejects the pod even without the victims; () = it would take it."""
    with framework.state.removed(victims):
        rejection = framework.diagnose_node(template, row)
    return rejection.reasons if rejection is not None else ()


def summary(diagnosis: Diagnosis, nodes: int, preemption: Preemption | None = None) -> str:
    """The text of the FailedScheduling event; "" if a node takes the pod. `nodes`: how many there are.

    Without `preemption` the part on preemption is left out, and so it is if preemption would help.
    """
    if not nodes:
        return "no nodes available to schedule pods"
    if diagnosis.prefilter is not None:
        text = _available(nodes, ", ".join(diagnosis.prefilter.reasons))
    elif any(r is None for r in diagnosis.nodes):
        return ""
    else:
        left_out = f"node(s) didn't satisfy plugin(s) [{' '.join(diagnosis.narrowed_by)}]"
        reasons = ((left_out,) if r is NARROWED else r.reasons for r in diagnosis.nodes if r is not None)
        text = _available(nodes, _histogram(reasons))
    if preemption is None or preemption.possible:
        return text
    if preemption.ineligible:
        return f"{text} preemption: {preemption.ineligible}"
    return f"{text} preemption: {_available(nodes, _histogram(preemption.reasons.values()))}"


def _available(nodes: int, reasons: str) -> str:
    return f"0/{nodes} nodes are available:" + (f" {reasons}." if reasons else "")


def _histogram(reasons: Iterable[tuple[str, ...]]) -> str:
    """Each reason with the number of its nodes; sorted as text, numbers included, as upstream does."""
    counts = Counter(reason for every in reasons for reason in every)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


# Which nodes are shut to a pod, by what shuts them.

NOMINATED = "held for pods that are nominated"


class Shut(Struct, frozen=True, eq=False):
    """Nodes that are shut to a pod for one cause.

    `plugin`: the filter, "" for pods that are nominated for the node. `cause`: a spread constraint by maxSkew
    and key, else the filter's own reasons. `nodes`: bool[N], where it is the first cause, in the scheduler's
    order. `alone`: bool[N], where it is the only one.
    """

    plugin: str
    cause: str
    nodes: Bools
    alone: Bools

    @property
    def count(self) -> int:
        """How many nodes it is the first cause for."""
        return int(np.count_nonzero(self.nodes))


def shut_nodes(framework: Framework, template: PodTemplate) -> tuple[Shut, ...]:
    """Every node that does not take the pod, under its first cause; the cause of most nodes first."""
    table = framework.state.table
    asked = framework.questions(template)
    failed: Ints = np.zeros(table.size, dtype=np.int64)
    for question in asked:
        failed += ~question.pass_
    left = ~framework.feasible(template)
    found: list[Shut] = []
    for question in asked:
        first = left & ~question.pass_
        left = left & question.pass_
        rows = np.flatnonzero(first)
        texts = (question.words or ", ".join(question.why(row)) for row in rows.tolist())
        for cause, mask in _by_text(texts, rows.tolist(), table.size).items():
            found.append(Shut(question.plugin, cause, mask, mask & (failed == 1)))
    if left.any():
        found.append(Shut("", NOMINATED, left, left))
    return tuple(sorted(found, key=lambda s: (-s.count, s.plugin, s.cause)))


def told(shut: Iterable[Shut]) -> str:
    """The causes in words: `6 nodes: maxSkew 1 over zone; 2 nodes: Insufficient cpu`."""
    return "; ".join(f"{s.count:,} {'node' if s.count == 1 else 'nodes'}: {s.cause}" for s in shut)


def _by_text(texts: Iterable[str], rows: list[int], size: int) -> dict[str, Bools]:
    found: dict[str, Bools] = {}
    for text, row in zip(texts, rows, strict=True):
        if text not in found:
            found[text] = np.zeros(size, dtype=np.bool_)
        found[text][row] = True
    return found
