"""Is the watch of nodes and pods known to be up to date?

A connection that is half open is silent for minutes before it is found out, and the cluster can be another
one by then. So the kinds on which the room question rests are followed closely while evictions are under way
(`kube.watch.reflector`), and nothing is evicted unless they are known to be a few seconds old at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from rebalancer.model.reason import Reason, ReasonCode

_KINDS = ("Node", "Pod")
_BESIDE = ("PodDisruptionBudget", "ResourceQuota", "VerticalPodAutoscaler")
"""Kinds by which a plan waits and goes on, or that size a replacement. What the first two say of one pod
is read just before it goes, or kept by the API server; the last a cluster need not have. So nothing waits for
them; but a dead connection is found out as soon."""
_WITHIN = 5.0
"""Seconds that the watch may be behind the API server; a close watch confirms it every two or so."""
_PATIENCE = 8.0
"""Seconds that are waited for it: a watch that was found dead is opened anew within them."""
_AHEAD = 30.0
"""Seconds after a look for which the watch goes on to be close: the next look is mostly not far."""


class CloseWatch(Protocol):
    """`rebalancer.kube.watch.cache.WatchCache`, as far as it is needed here."""

    def monotonic(self) -> float:
        """Seconds of its clock."""
        ...

    def follow_closely(self, kinds: Collection[str], seconds: float) -> None:
        """Keeps these kinds current within a few seconds, for so many seconds."""
        ...

    def wait_current(
        self, kinds: Collection[str], as_of: float, patience: float, stopping: Callable[[], bool]
    ) -> str:
        """Waits until these kinds are known as of that time or later; what is not, or ""."""
        ...


class WatchAge:
    """Made when a cycle begins. The first answer rests on what was confirmed after that, each further one on
    what was confirmed within seconds. `stopping`: whether a stop was asked for."""

    def __init__(self, watch: CloseWatch, stopping: Callable[[], bool]) -> None:
        self._watch = watch
        self._stopping = stopping
        self._made = watch.monotonic()

    def begin(self) -> None:
        """Begins to follow closely: some time before the first question, which then need not wait."""
        self._watch.follow_closely((*_KINDS, *_BESIDE), _AHEAD)

    def why_not(self) -> Reason | None:
        """What is not known to be up to date; None if all is. Waits for some seconds at most."""
        self.begin()
        as_of = max(self._made, self._watch.monotonic() - _WITHIN)
        late = self._watch.wait_current(_KINDS, as_of, _PATIENCE, self._stopping)
        if not late:
            return None
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the watch is behind: {late}",
            {},
            "look at the network and the proxies between here and the API server",
        )
