"""The one thread that all controllers run in: changes come in, keys of work go out, timers ring.

One thread makes a cluster repeatable: what happens depends on the order of changes only. Controllers read
the store itself, not a cache that lags behind it, and so need no expectations.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import msgspec

from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.decode import Decoder
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import KINDS, build_snapshot
from rebalancer.sandbox.objects import Object
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import NODES, PODS, RESOURCES, ApiError, Resource
from rebalancer.sandbox.storage import Event, Record

log = logging.getLogger(__name__)

_RETRY = 0.05
_TRIES = 4
_LATER = 5.0


class Controller:
    """`notice` learns of a change and asks for work; `sync` does the work of one key.

    `late`: works only when no other controller has anything to do.
    """

    late: ClassVar[bool] = False

    def __init__(self, store: Store, loop: Loop) -> None:
        self.store = store
        self.loop = loop

    def notice(self, event: Event) -> None:
        """A change. Must not write."""

    def sync(self, key: str) -> None:
        """Brings what the key names in order. May raise ApiError: it is tried again."""


Work = tuple[Controller, str]


class Loop:
    """Runs controllers; `settle` waits until they have nothing to do."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.controllers: list[Controller] = []
        self.error: BaseException | None = None
        self.now = monotonic
        self._events: deque[Event] = deque()
        self._work: dict[Work, None] = {}
        self._late: dict[Work, None] = {}
        self._timers: list[tuple[float, int, bool, Work]] = []
        self._number = count()
        self._foreground = 0
        self._failures: dict[Work, int] = {}
        self._busy = True
        self._stopping = False
        self._wake = threading.Event()
        self._rest = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- for controllers, in the loop's thread

    def add(self, controller: Controller, key: str = "") -> None:
        """Asks for work, once however often it is asked for."""
        (self._late if controller.late else self._work)[controller, key] = None

    def after(
        self, seconds: float, controller: Controller, key: str = "", *, background: bool = False
    ) -> None:
        """Asks for work in some seconds. `background`: the cluster counts as settled meanwhile."""
        due = self.now() + max(seconds, 0.0)
        heapq.heappush(self._timers, (due, next(self._number), background, (controller, key)))
        self._foreground += not background

    # -- from outside

    def start(self) -> None:
        """Everything that is in the store counts as new."""
        with self.store.lock:
            for storage in dict.fromkeys(r.storage for r in RESOURCES):
                collection = self.store.collection(next(r for r in RESOURCES if r.storage == storage))
                for record in collection.scan():
                    self._events.append(Event(record.rv, "ADDED", collection.resource, record, None))
            self._unsubscribe = self.store.subscribe(self._changed)
        self._thread = threading.Thread(target=self._run, name="sandbox-controllers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        if self._thread is None:
            return
        self._unsubscribe()
        self._stopping = True
        self._wake.set()
        self._thread.join(10)
        self._thread = None

    def settle(self, timeout: float) -> None:
        """Waits until nothing is left to do. TimeoutError says what is; RuntimeError: a controller broke."""
        with self._rest:
            rested = self._rest.wait_for(lambda: self.error is not None or self._resting(), timeout)
        if self.error is not None:
            raise RuntimeError("a controller of the sandbox failed") from self.error
        if not rested:
            raise TimeoutError(f"the cluster has not settled in {timeout:g} s: {self._left()}")

    # -- within

    def _changed(self, event: Event) -> None:
        # Under the store's lock: only remembered here.
        self._events.append(event)
        self._wake.set()

    def _resting(self) -> bool:
        # In this order: `_busy` is raised before an event is taken out.
        return not self._events and not self._busy and not self._foreground

    def _left(self) -> str:
        work = [
            *self._work,
            *self._late,
            *(w for *_, background, w in sorted(self._timers)[:5] if not background),
        ]
        named = ", ".join(f"{type(c).__name__} {key}".strip() for c, key in work[:5])
        return named or f"{len(self._events)} changes not looked at"

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._busy = True
                self._ring()
                self._notice()
                work = next(iter(self._work or self._late), None)
                if work is not None:
                    (self._work if work in self._work else self._late).pop(work)
                    self._sync(work)
                    continue
                self._wake.clear()
                with self._rest:
                    self._busy = False
                    self._rest.notify_all()
                if not self._events and not self._stopping:
                    self._wake.wait(max(self._timers[0][0] - self.now(), 0.0) if self._timers else None)
        except BaseException as error:
            log.exception("a controller of the sandbox failed")
            with self._rest:
                self.error = error
                self._rest.notify_all()

    def _ring(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            *_, background, work = heapq.heappop(self._timers)
            self._foreground -= not background
            self.add(*work)

    def _notice(self) -> None:
        while self._events:
            event = self._events.popleft()
            for controller in self.controllers:
                controller.notice(event)

    def _sync(self, work: Work) -> None:
        controller, key = work
        try:
            controller.sync(key)
            self._failures.pop(work, None)
        except ApiError as error:
            failures = self._failures[work] = self._failures.get(work, 0) + 1
            log.debug("%s %s: %s", type(controller).__name__, key, error)
            # What fails for good (an invalid template, a namespace that ends) must not keep `settle` waiting.
            stuck = failures >= _TRIES
            self.after(_LATER if stuck else _RETRY * failures, controller, key, background=stuck)


# The engine's state of the cluster, kept equal to the store. Pods are added and removed one by one.
#
# The engine computes once what depends on nodes, volumes and selectors. So changes of those make a new
# state; pods that come, go or terminate are entries in the present one.


def _node_view(obj: Object) -> Any:
    """What the engine reads of a node: not its heartbeats."""
    status = obj.get("status") or {}
    ready = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return (
        obj["metadata"].get("labels"),
        obj.get("spec"),
        status.get("allocatable"),
        status.get("images"),
        ready,
    )


def _selector(obj: Object) -> Any:
    return (obj.get("spec") or {}).get("selector")


def _labels(obj: Object) -> Any:
    return obj["metadata"].get("labels")


def _whole(obj: Object) -> Any:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}


_VIEWS: dict[str, Callable[[Object], Any]] = {
    "Node": _node_view,
    "Namespace": _labels,
    "Service": _selector,
    "ReplicaSet": _selector,
    "ReplicationController": _selector,
    "StatefulSet": _selector,
    "PersistentVolume": _whole,
    "PersistentVolumeClaim": _whole,
    "StorageClass": _whole,
    "CSINode": _whole,
    "VolumeAttachment": _whole,
    "CSIDriver": _whole,
    "CSIStorageCapacity": _whole,
}
"""By kind: what of an object the engine keeps. Other kinds it does not read."""

_READ: tuple[Resource, ...] = tuple(
    r for r in RESOURCES if r.kind in _VIEWS and r.group in ("", "apps", "storage.k8s.io")
)


class LiveState:
    """`changes` counts what may make an unschedulable pod schedulable, or a choice of node different."""

    def __init__(self, store: Store, config: SchedulerConfig, version: str) -> None:
        self.changes = 0
        self._store = store
        self._config = config
        self._version = version
        self._decoder = Decoder()
        self._pods: dict[str, Pod] = {}
        self._state: ClusterState | None = None
        self._frameworks: dict[str, Framework] = {}

    def notice(self, event: Event) -> Pod | None:
        """Takes a change in; the pod, if it was one's (None also where it is gone)."""
        if event.resource is not PODS:
            view = _VIEWS.get(event.resource.kind) if event.resource in _READ else None
            if view is not None and (
                event.type != "MODIFIED" or event.old is None or view(event.old.obj) != view(event.obj)
            ):
                self._state = None
                self.changes += 1
            return None
        uid = event.obj["metadata"]["uid"]
        if event.type == "DELETED":
            self._pods.pop(uid, None)
            state = self._state
            if state is not None and (uid in state.pods or uid in state.nominated):
                state.drop(uid)
                self.changes += 1
            return None
        pod = self._decoded(event.record)
        self._pods[uid] = pod
        if self._state is not None:
            self.changes += self._enter(self._state, pod)
        return pod

    def pod(self, uid: str) -> Pod | None:
        """The pod as last seen."""
        return self._pods.get(uid)

    @property
    def state(self) -> ClusterState:
        """The cluster now."""
        if self._state is None:
            self._state = self._built()
            self._frameworks.clear()
        return self._state

    def framework(self, scheduler_name: str) -> Framework:
        """The profile's plugins over `state`."""
        state = self.state
        found = self._frameworks.get(scheduler_name)
        if found is None:
            found = Framework(state, self._config.profile(scheduler_name))
            self._frameworks[scheduler_name] = found
        return found

    def decoded_pod(self, obj: Object) -> Pod:
        """A pod that is not in the store, as the engine would see it."""
        pod = self._decoder.decode("Pod", msgspec.json.encode(obj))
        assert isinstance(pod, Pod)
        return pod

    def assume(self, pod: Pod, row: int) -> None:
        """The pod is bound to a node; the store's own word of it follows."""
        self.state.drop(pod.uid)
        self.state.add(pod.uid, pod.template, row)
        self.changes += 1

    def _decoded(self, record: Record) -> Pod:
        pod = self._decoder.decode("Pod", record.item())
        assert isinstance(pod, Pod)
        return pod

    def _built(self) -> ClusterState:
        objects = [
            self._decoder.decode(resource.kind, record.item())
            for resource in _READ
            for record in self._store.collection(resource).scan()
        ]
        snapshot = build_snapshot(
            objects,
            now=self._store.clock(),
            source="sandbox",
            server_version=self._version,
            kinds=KINDS,
        )
        state = ClusterState(snapshot, self._config)
        for pod in self._pods.values():
            self._enter(state, pod)
        state.attach(snapshot.attachments)
        return state

    def _enter(self, state: ClusterState, pod: Pod) -> bool:
        """Makes the state hold the pod as it is; whether that was a change."""
        placed = state.pods.get(pod.uid)
        row = None if pod.finished else state.table.index.get(pod.node_name)
        if row is None:
            waits = state.nominated.get(pod.uid)
            state.drop(pod.uid)
            state.put(pod)
            return placed is not None or state.nominated.get(pod.uid) != waits
        if placed is None or placed.template is not pod.template or placed.row != row:
            state.drop(pod.uid)
            placed = None
        changed = placed is None
        if placed is None:
            state.add(pod.uid, pod.template, row)
        if pod.terminating and (placed is None or not placed.terminating):
            state.terminate(pod.uid)
            changed = True
        return changed


def is_node_change(event: Event) -> bool:
    """Whether a node changed in what a scheduler sees of it."""
    return event.resource is NODES and (
        event.type != "MODIFIED" or event.old is None or _node_view(event.old.obj) != _node_view(event.obj)
    )
