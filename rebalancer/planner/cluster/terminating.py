"""Pods that terminate in a simulated state: they hold their room, and may then let go of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

from rebalancer.engine.state.cluster import ClusterState, Placed
from rebalancer.model.pod import Pod


def key_of(pod: Pod) -> Hashable:
    """The key under which the state holds the pod of a snapshot."""
    return pod.uid or pod.key


class Terminating:
    """The victims that terminate in a state; it can be put back as it was."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.placed: dict[Hashable, Placed] = {}
        self._gone: set[Hashable] = set()

    def take(self, victim: Pod) -> None:
        """One more pod terminates."""
        key = key_of(victim)
        self.placed[key] = self._state.pods[key]
        self._state.terminate(key)

    def let_go(self, *victims: Pod) -> None:
        """These victims are gone; without a name, all of them."""
        for key in [key_of(v) for v in victims] or self.placed:
            if key not in self._gone:
                self._state.remove(key)
                self._gone.add(key)

    def hold_again(self, victim: Pod) -> None:
        """A victim that let go terminates and holds its room as before."""
        key = key_of(victim)
        self._gone.remove(key)
        self._state.add(key, self.placed[key].template, self.placed[key].row)
        self._state.terminate(key)

    @contextmanager
    def back(self, victims: Sequence[Pod]) -> Iterator[None]:
        """The state as if these victims, who are gone, had not been evicted; as it was afterwards."""
        were = {key_of(v): self.placed[key_of(v)] for v in victims}
        with self._state.also([(key, placed.template, placed.row) for key, placed in were.items()]):
            yield

    def undo(self, *victims: Pod) -> None:
        """These victims are as they were; without a name, all of them."""
        for key in [key_of(v) for v in victims] or list(self.placed):
            placed = self.placed.pop(key)
            if key in self._gone:
                self._gone.remove(key)
                self._state.add(key, placed.template, placed.row)
            else:
                self._state.restore(key)
