"""How far the moves of one plan are, and which of them may start now.

A wave is what may be in flight together, not a barrier. A move starts as soon as its own conditions hold:

- Of its chain (`chains`) all moves of earlier waves have landed, each on one of its planned destinations.
  What is certain stays right wherever on them they landed. If one was not evicted, what follows in the chain
  waits for a new plan; if its replacement is stuck or went astray, the whole chain does. Other chains go on.
- A move that is not certain rests on where everything before it landed. It starts only if all moves of
  earlier waves landed exactly as predicted, because then the cluster is as the plan has it.

Moves of one wave were planned beside each other. Whether a move may start beside those of another wave is
asked elsewhere (`last_look.beside`), and so is whether its budgets have room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rebalancer.outcome.cycle import MoveStatus, Outcome
from rebalancer.planner.plan import Move
from rebalancer.planner.results.chains import Chain

_NO_WAVE = 0


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


def controller_of(move: Move) -> str:
    """The uid of the evicted pod's controller."""
    return move.pod.owner.uid if move.pod.owner is not None else ""
