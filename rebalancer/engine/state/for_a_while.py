"""Pods that are there, or away, for a while: as long as a question is asked of the nodes.

Each way undoes itself: afterwards all is as it was before, host ports that two pods share included.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rebalancer.engine.state.pods_on_nodes import PodsOnNodes
from rebalancer.model.pod import PodTemplate


class PodsForAWhile(PodsOnNodes):
    """Pods on nodes, with the ways to ask what would be if some came, or were gone."""

    guests: tuple[int, tuple[PodTemplate, ...]] | None = None
    """A node, and the pods that are `assumed` there."""

    @contextmanager
    def unhindered(self, key: Hashable) -> Iterator[None]:
        """While it lasts, this pod is not in its own way: what it is nominated for is free to it."""
        placed = self.nominated.pop(key, None)
        try:
            yield
        finally:
            if placed is not None:
                self.nominated[key] = placed

    @contextmanager
    def assumed(self, row: int, pods: Iterable[tuple[Hashable, PodTemplate]]) -> Iterator[None]:
        """While it lasts, these waiting pods run on the node: they are its `guests`."""
        added = [(("nominated", key), template, row) for key, template in pods]
        self.guests = row, tuple(template for _, template, _ in added)
        try:
            with self.also(added):
                yield
        finally:
            self.guests = None

    @contextmanager
    def also(self, pods: Sequence[tuple[Hashable, PodTemplate, int]]) -> Iterator[None]:
        """While it lasts, these pods, by their keys, are on these nodes (rows) too."""
        ports, self.ports = self.ports, self.ports.to_change(template for _, template, _ in pods)
        for key, template, row in pods:
            self.add(key, template, row)
        try:
            yield
        finally:
            for key, _, _ in pods:
                self.remove(key)
            self.ports = ports

    @contextmanager
    def removed(self, keys: Iterable[Hashable]) -> Iterator[None]:
        """While it lasts, these pods are gone."""
        gone = [(key, self.pods[key]) for key in keys]
        ports, self.ports = self.ports, self.ports.to_change(placed.template for _, placed in gone)
        for key, _ in gone:
            self.remove(key)
        try:
            yield
        finally:
            for key, placed in gone:
                self.add(key, placed.template, placed.row)
                if placed.terminating:
                    self.terminate(key)
            self.ports = ports
