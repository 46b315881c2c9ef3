"""What a framework remembers of the templates that it was asked about, and brings up to date.

A scheduler works all of it out anew in each scheduling cycle. Here only the nodes that have changed since are
looked at again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np

from rebalancer.engine.config import Profile
from rebalancer.engine.plugins.plugin import Filter, Plugin, Score
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools

CACHED_BYTES = 64 * 1024 * 1024
"""About what the framework remembers of the templates it was asked about."""
_FILTERED, _SCORED = 30, 100
"""About the bytes for each node that the filters of a template take, and its scores with them."""


class Cycle:
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
        assert self.scores is not None, "made by `Cycles` first"
        if self.scored_at != state.clock:
            rows = (state.stamp > self.scored_at).nonzero()[0]
            self.scored_at = state.clock
            for score in self.scores.values():
                score.update(rows)
        return self.scores


class Cycles:
    """Those of a profile over one state, as many as there is room for; the ones asked for longest ago go."""

    def __init__(self, state: ClusterState, profile: Profile, plugins: Mapping[str, Plugin]) -> None:
        self._state = state
        self._profile = profile
        self._plugins = plugins
        self._cycles: OrderedDict[tuple[int, str], Cycle] = OrderedDict()
        self._scored: OrderedDict[tuple[int, str], Cycle] = OrderedDict()
        """Those of them with scores: these take more, and are asked for less often."""
        self._room, self._room_scored = (
            max(16, CACHED_BYTES // (size * max(1, state.table.size))) for size in (_FILTERED, _SCORED)
        )

    def of(self, template: PodTemplate, node_name: str) -> Cycle:
        """What is remembered of the template, its filters up to date."""
        cycle = self._known(template, node_name)
        cycle.refresh(self._state)
        return cycle

    def scores(self, template: PodTemplate, node_name: str) -> dict[str, Score]:
        """The template's scores by plugin, up to date; its filters need not be."""
        cycle = self._known(template, node_name)
        if cycle.scores is None:
            cycle.scores = {
                name: found
                for name, _ in self._profile.scores
                if (found := self._plugins[name].score(template)) is not None
            }
            cycle.scored_at = self._state.clock
            self._scored[id(template), node_name] = cycle
            if len(self._scored) > self._room_scored:
                self._scored.popitem(last=False)[1].scores = None
        self._scored.move_to_end((id(template), node_name))
        return cycle.refresh_scores(self._state)

    def _known(self, template: PodTemplate, node_name: str) -> Cycle:
        key = id(template), node_name
        cycle = self._cycles.get(key)
        if cycle is None:
            cycle = Cycle(self._state, self._profile, self._plugins, template, node_name)
            self._cycles[key] = cycle
            if len(self._cycles) > self._room:
                self._scored.pop(self._cycles.popitem(last=False)[0], None)
        else:
            self._cycles.move_to_end(key)
        return cycle
