"""Goes through every state that the actors can reach, and looks for a loop of the rebalancer's own.

python -m tests.loops.explore [--nodes 4] [--pods 6]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque

from msgspec import Struct

from tests.loops.model import State, World, alike, by_others, rebalanced


class LoopError(AssertionError):
    """The rebalancer comes back to a state that it has left, without anybody else doing anything."""


class Found(Struct):
    """What the exploration came to.

    `states`, `steps`: how many there are, and how many actions of others between them. `longest`: most
    evictions until it is quiet, from any state. `added`: by how many each kind of action can prolong that.
    """

    states: int
    steps: int
    longest: int
    added: dict[str, int]


class Explorer:
    """Explores one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._longest: dict[State, int] = {}

    def longest(self, state: State, path: tuple[State, ...] = ()) -> int:
        """The most evictions that the rebalancer makes from here until it is quiet. Raises LoopError."""
        if state in path:
            raise LoopError(f"{state} comes again after {path[path.index(state) :]}")
        if state not in self._longest:
            ends = rebalanced(self.world, state)
            self._longest[state] = max((1 + self.longest(e, (*path, state)) for e in ends), default=0)
        return self._longest[state]

    def visit(self, start: State) -> Found:
        """All states that can be reached from this one."""
        known, queue = {start}, deque([start])
        steps, added = 0, Counter[str]()
        while queue:
            state = queue.popleft()
            here = self.longest(state)
            for kind, after in by_others(self.world, state):
                steps += 1
                added[kind] = max(added[kind], self.longest(after) - here)
                if after not in known:
                    known.add(after)
                    queue.append(after)
            for after in rebalanced(self.world, state):
                if after not in known:
                    known.add(after)
                    queue.append(after)
        return Found(len(known), steps, max(self._longest.values()), dict(added))


def main() -> None:
    """Prints what is found for one key and for two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--pods", type=int, default=6)
    options = parser.parse_args()
    for keys in (("zone",), ("zone", "hostname")):
        began = time.perf_counter()
        found = Explorer(World(keys, nodes=options.nodes, pods=options.pods)).visit(alike([(1,)]))
        print(f"{' and '.join(keys)}: {found}, {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
