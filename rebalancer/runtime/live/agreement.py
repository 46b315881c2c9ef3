"""Compares what the scheduler does with what the engine says, pod by pod as the watch tells of them.

A thread of its own follows the pods in the order in which they changed, and judges each decision some seconds
later, when what was under way is known. What else it reads changes seldom. Then its state is built anew some
seconds later, and what was decided meanwhile is unclear. Where it would cost too much, pods are left out: it
is a check, not a need.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from msgspec.structs import replace

from rebalancer.engine.agreement import Agreement, Comparison, Result
from rebalancer.engine.config import SchedulerConfig
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.kube.watch.store import Change
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Object
from rebalancer.spread.constraint import SELECTING

log = logging.getLogger(__name__)

_POLL = 0.5
SETTLED = 3.0
"""Seconds after which a decision is judged: bindings that were under way have arrived. After three times as
many it is told that one disagrees: by then other watches have told of what the scheduler knew."""
_BUDGET = 0.2
"""Seconds of one look after which the engine is asked about no further pod."""
_REBUILD_SHARE = 30
"""A state is built anew at the earliest after so many times what building the last one took, …"""
_REBUILD_AFTER = 10.0
"""… and after so many seconds."""
_ASK = 10.0
"""Seconds after which it is asked anew which scheduler decides."""
_IDLE = 600.0
"""Seconds without a waiting pod after which the state is given up, for the memory that it takes."""
_READ_BY_FILTERS = (
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
)


class AgreementWatch:
    """Tells of every comparison, in its own thread between `start` and `stop`.

    `config`: the scheduler's as it is set now, None for its defaults. `scheduler`: which one decides now, ""
    if that is not known; what another one decided is unclear. Nothing is compared while the cache is not
    ready. No eviction depends on it: an error is logged, and it begins anew.
    """

    def __init__(
        self,
        cache: WatchCache,
        config: Callable[[], SchedulerConfig | None],
        tell: Callable[[Comparison], None],
        *,
        scheduler: Callable[[], str] = lambda: "",
        settled: float = SETTLED,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._feed, self._node_feed = cache.follow("Pod"), cache.follow("Node")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agreement", daemon=True)
        self._config = config
        self._to = tell
        self._ask_scheduler = scheduler
        self._scheduler, self._asked_at = "", float("-inf")
        self._settled = settled
        self._now = now
        self._monotonic = monotonic
        self._agreement: Agreement | None = None
        self._disagreements: deque[tuple[float, Comparison]] = deque()
        self._nodes: dict[str, Node] | None = None
        self._read: tuple[tuple[object, ...], SchedulerConfig | None] | None = None
        self._changed_at = self._built_at = 0.0
        self._next_build = 0.0
        self._busy_at = 0.0

    def start(self) -> Self:
        """Begins."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends within a moment."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._cache.forget("Pod", self._feed)
        self._cache.forget("Node", self._node_feed)

    def look(self) -> None:
        """Takes in what has happened since the last look, and compares what has settled."""
        changes, lost = self._feed.take()
        if lost or self._cache.not_ready() is not None or self._changed_hands():
            self._give_up()
        if self._cache.not_ready() is not None:
            return
        stale = self._stale()
        if self._agreement is None:
            if any(isinstance(pod, Pod) and pod.waits for _, pod, _ in changes):
                self._build(changes)
            return
        self._follow(self._agreement, changes, stale)
        if stale and self._monotonic() >= max(self._next_build, self._changed_at + self._settled):
            self._give_up()
            self._build()
        self._rest()

    def _changed_hands(self) -> bool:
        """Whether another scheduler decides than when it was asked last."""
        now = self._monotonic()
        if now - self._asked_at < _ASK:
            return False
        before, self._scheduler, self._asked_at = self._scheduler, self._ask_scheduler(), now
        return self._scheduler != before

    def _tell(self, comparison: Comparison) -> None:
        self._to(replace(comparison, scheduler=self._scheduler))

    @property
    def waiting(self) -> int:
        """Pods that wait for a decision, or whose decision is not told of yet."""
        return len(self._disagreements) + (self._agreement.waiting if self._agreement is not None else 0)

    def _run(self) -> None:
        while not self._stop.wait(_POLL):
            try:
                self.look()
            except Exception:
                log.exception("what the scheduler does could not be compared")
                self._agreement = None

    def _follow(self, agreement: Agreement, changes: list[Change], stale: bool) -> None:
        """`stale`: what else the state was built from has changed, so that it is no evidence any more."""
        now = self._monotonic()

        def in_time() -> bool:
            return self._monotonic() < until

        until = now + _BUDGET
        self._tell_it(agreement, changes, in_time)
        until = self._monotonic() + _BUDGET
        for found in agreement.settled(now - self._settled, more=in_time):
            if found.result is Result.DISAGREES:
                self._disagreements.append((now + 2 * self._settled, found))
            elif not stale:
                self._tell(found)
            else:
                agrees = found.result is Result.AGREES
                self._tell(replace(found, result=found.result if agrees else Result.UNCLEAR, branches=()))
        if stale:
            self._unclear()
        while self._disagreements and self._disagreements[0][0] <= now:
            self._tell(self._disagreements.popleft()[1])

    def _unclear(self) -> None:
        """What disagreed may have been decided by what is known only now."""
        while self._disagreements:
            self._tell(replace(self._disagreements.popleft()[1], result=Result.UNCLEAR, branches=()))

    def _give_up(self) -> None:
        """The state can be followed no further."""
        if self._agreement is not None:
            for found in self._agreement.given_up():
                self._tell(found)
        self._unclear()
        self._agreement = None

    def _tell_it(
        self, agreement: Agreement, changes: list[Change], ask: Callable[[], bool] = lambda: True
    ) -> None:
        now = self._monotonic()
        for identity, pod, _ in changes:
            if isinstance(pod, Pod):
                agreement.seen(pod, now, ask=ask())
            else:
                agreement.gone("/".join(identity[:2]))
        # A volume is detached some time after its pod is gone.
        agreement.state.attach(self._cache.attachments())

    def _build(self, changes: Sequence[Change] = ()) -> None:
        """A state as before these changes, which are the latest, and then they are told to it."""
        began = self._monotonic()
        snapshot = self._cache.snapshot(self._now())
        config = self._config()
        late, lost = self._feed.take()
        changes = [*changes, *late]
        first: dict[str, Pod | None] = {}
        for identity, pod, _ in changes:
            first.setdefault("/".join(identity[:2]), pod if isinstance(pod, Pod) else None)
        before = (p for p in first.values() if p is not None and not p.waits)
        pods = (*(p for p in snapshot.pods if p.key not in first), *before)
        self._built_at = began
        self._agreement = Agreement(replace(snapshot, pods=pods), config)
        self._tell_it(self._agreement, changes)
        if lost or any(pod is None or not pod.waits for pod in first.values()):
            # What those were before that did not wait is not known: not ending yet, say.
            self._agreement.given_up()
            self._agreement.begin()
        ended = self._monotonic()
        self._next_build = ended + max(_REBUILD_AFTER, _REBUILD_SHARE * (ended - began))

    def _stale(self) -> bool:
        """Whether what the state was built from has changed since, or so shortly before that the scheduler
        may have decided by what was before; also if it has changed back."""
        config = self._config()
        was, self._read = self._read, (self._generations(config), config)
        others = was is not None and not (config is was[1] and self._read[0] == was[0])
        if self._nodes_changed() or others:
            self._changed_at = self._monotonic()
        return self._changed_at > self._built_at - self._settled

    def _nodes_changed(self) -> bool:
        """Whether the scheduler has seen other nodes since the last look, or may have. It need not be seen in
        what they are now: after a stall, a change and its reversal come at once."""
        changes, lost = self._node_feed.take()
        if self._nodes is None or lost:
            first, self._nodes = self._nodes is None, {n.name: n for n in self._cache.nodes()}
            return not first
        changed = False
        for (_, name), node, _ in changes:
            before = self._nodes.pop(name, None)
            if isinstance(node, Node):
                self._nodes[name] = node
            changed = changed or _view(before) != _view(node)
        return changed

    def _generations(self, config: SchedulerConfig | None) -> tuple[object, ...]:
        hard_defaults = config is not None and config.hard_defaults
        kinds = (*_READ_BY_FILTERS, *SELECTING) if hard_defaults else _READ_BY_FILTERS
        return (self._cache.server_version, *(self._cache.generation(kind) for kind in kinds))

    def _rest(self) -> None:
        """Gives the state up where nothing has waited for long."""
        if self._agreement is not None and self._agreement.waiting:
            self._busy_at = self._monotonic()
        elif self._monotonic() - max(self._busy_at, self._next_build) > _IDLE:
            self._agreement = None


def _view(node: Object | None) -> tuple[object, ...] | None:
    """What the scheduler sees of a node, None if it is gone. Heartbeats change the rest all the time."""
    if not isinstance(node, Node):
        return None
    return node.labels, node.spec.taints, node.spec.unschedulable, node.allocatable
