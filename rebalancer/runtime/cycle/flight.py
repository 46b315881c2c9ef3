"""How far the moves of one plan are, and which of them may start now.

A wave is what may be in flight together, not a barrier. A move starts as soon as its own conditions hold:

- Of its chain (`chains`) all moves of earlier waves have landed, each on one of its planned destinations.
  What is certain stays right wherever on them they landed. If one was not evicted, what follows in the chain
  waits for a new plan; if its replacement is stuck or went astray, the whole chain does. Other chains go on.
- A move that is not certain rests on where everything before it landed. It starts only if all moves of
  earlier waves landed exactly as predicted, because then the cluster is as the plan has it.

Where no pod has started yet since the nodes came, few replacements go at first (`Untried`).

Moves of one wave were planned beside each other. Whether a move may start beside those of another wave is
asked elsewhere (`last_look.beside`), and so is whether its budgets have room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.planner.plan import Move, Plan
from rebalancer.planner.results.chains import Chain

log = logging.getLogger(__name__)

_NO_WAVE = 0
_FIRST = 2
"""As many replacements are on their way at first into a domain that is not known to start pods, as the canary
has in flight."""
_ON_EVERY_NODE = frozenset({"DaemonSet", "Node"})


class Flight:
    """The state of one plan's moves. `dry`: nothing is evicted, so everything counts as landed."""

    def __init__(self, chains: Iterable[Chain], *, dry: bool = False) -> None:
        self._dry = dry
        self._chains = [list(chain) for chain in chains]
        self._chain_of = {m.pod.uid: n for n, chain in enumerate(self._chains) for m in chain}
        self._planned = {m.pod.uid: m for chain in self._chains for m in chain}
        self._waiting = set(self._planned)
        # Of each chain the last wave that may start, where it is held; of the plan the first wave that ended
        # otherwise than predicted.
        self._last: dict[int, int] = {}
        self._differs: int | None = None
        self.flying: dict[str, Outcome] = {}

    def may_start(self) -> list[Move]:
        """The moves whose turn it is, earlier waves first."""
        first = min((chain[0].wave for chain in self._chains if chain), default=_NO_WAVE)
        found: list[Move] = []
        for n, chain in enumerate(self._chains):
            wave = chain[0].wave if chain else _NO_WAVE
            if wave > self._last.get(n, wave):
                continue
            as_planned = self._as_planned(wave, first)
            turn = (m for m in chain if m.wave == wave and m.pod.uid in self._waiting)
            found += (m for m in turn if m.certain or as_planned)
        return sorted(found, key=lambda m: m.wave)

    def waits(self, move: Move) -> bool:
        """Whether the move has not started, nor ended without starting."""
        return move.pod.uid in self._waiting

    def rests_on_landings(self) -> bool:
        """Whether a move has not started because it rests on where others landed."""
        return any(
            m.pod.uid in self._waiting and n not in self._last
            for n, chain in enumerate(self._chains)
            for m in chain
        )

    def in_flight(self, owner: str) -> int:
        """How many pods of a controller (its uid) are on their way."""
        return sum(controller_of(o.move) == owner for o in self.flying.values())

    def strangers(self, move: Move) -> Sequence[Move]:
        """The moves in flight beside which this one was not planned; none if all are of its own wave."""
        if all(o.move.wave == move.wave for o in self.flying.values()):
            return ()
        return [o.move for o in self.flying.values()]

    def started(self, outcome: Outcome) -> None:
        """The pod has been evicted."""
        uid = outcome.move.pod.uid
        self._waiting.discard(uid)
        self.flying[uid] = outcome

    def ended(self, outcome: Outcome) -> None:
        """It is known what became of a move, in flight or not."""
        uid, wave = outcome.move.pod.uid, outcome.move.wave
        n = self._chain_of[uid]
        self._waiting.discard(uid)
        self.flying.pop(uid, None)
        self._chains[n] = [m for m in self._chains[n] if m.pod.uid != uid]
        if self._dry:
            return
        # The last look may have found more destinations: no harm, but not what the plan goes on from.
        planned = self._planned[uid].destinations
        if not (outcome.status is MoveStatus.DONE and outcome.node in planned):
            self._last[n] = min(self._last.get(n, wave), _NO_WAVE if outcome.evicted else wave)
        if not outcome.as_planned:
            self._differs = min(self._differs or wave, wave)

    def _as_planned(self, wave: int, first: int) -> bool:
        """Whether all of the waves before this one is over, and ended as predicted."""
        return self._dry or (wave <= first and (self._differs is None or wave <= self._differs))


class Untried:
    """Domains of a plan in which no pod has started since their nodes came (back).

    A zone that returns may lack its registry, its network or its volumes, and says nothing of that before
    somebody tries. So only a few replacements are on their way there until the first is Ready. Pods that
    every node has start without most of these.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        fixed = {plan.constraints[i].constraint.topology_key for m in plan.moves for i in m.fixes}
        self._domains = {
            n.name: [(k, n.labels[k]) for k in sorted(fixed) if k in n.labels] for n in snapshot.nodes
        }
        since = {n.name: n.ready_since or 0.0 for n in snapshot.nodes}
        started = {
            p.node_name
            for p in snapshot.pods
            if p.ready
            and (p.owner is None or p.owner.kind not in _ON_EVERY_NODE)
            and (p.created is None or p.created >= since.get(p.node_name, 0.0))
        }
        self._tried = {d for node in started for d in self._of(node)}
        self._told: set[tuple[str, str]] = set()

    def admits(self, move: Move, flying: Iterable[Outcome]) -> bool:
        """Whether one more replacement may be on its way to where this one is expected."""
        there = [d for o in flying for d in self._of(o.move.predicted)]
        full = [d for d in self._of(move.predicted) if d not in self._tried and there.count(d) >= _FIRST]
        for key, value in full:
            if (key, value) not in self._told:
                self._told.add((key, value))
                say = "no pod has started in %s=%s since its nodes came: %d go there first"
                log.info(say, key, value, _FIRST)
        return not full

    def ended(self, outcome: Outcome) -> None:
        """Where a replacement is Ready, others will be."""
        if outcome.status is MoveStatus.DONE:
            self._tried.update(self._of(outcome.node))

    def _of(self, node: str) -> list[tuple[str, str]]:
        return self._domains.get(node, [])


def controller_of(move: Move) -> str:
    """The uid of the evicted pod's controller."""
    return move.pod.owner.uid if move.pod.owner is not None else ""
