"""Random interleavings of replace first without threads: 10,000 of them take minutes.

python -m tests.loops.interleavings [--first 0] [--count 10000]

Cycles run over the embedded cluster in this one thread, in time that passes by waiting only. Before and after
each request, and whenever somebody waits, chance decides: controllers work a little or not, the watch follows
or stays behind, others scale, roll out, delete, drain, lose the ledger, pull the brake; an answer is lost; a
second process of the same installation runs a cycle of its own; the process is killed. What is ours is real,
from the cycle down to the requests; the checks before a request are shortened to those of pod, owner and
brake.

The promise is that of `histories`, which plays the same over HTTP.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from random import Random
from typing import Any, cast

from rebalancer.kube.config_maps import Ledgers
from rebalancer.kube.connection import Backoff, Connection, Response
from rebalancer.kube.errors import KubeError, Target, TransportError, error_of
from rebalancer.kube.evictor import LiveEvictor
from rebalancer.kube.patches import ReleasePatches
from rebalancer.kube.reading import Objects
from rebalancer.model.decode import Decoder
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.reason import BEFORE_REQUESTS, Check, Moment, Reason, ReasonCode
from rebalancer.model.snapshot import KINDS as KINDS_OF_ALL
from rebalancer.model.snapshot import Identity, Snapshot, build_snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.release import released
from rebalancer.runtime.cycle.carrying_out import Parts
from rebalancer.runtime.cycle.clock import RateLimit
from rebalancer.runtime.cycle.gates import Away, FreshLook, WatchedLimits
from rebalancer.runtime.cycle.loop import Cycle
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.releases import ReleaseParts
from rebalancer.runtime.cycle.replacements import ReplacementWatch, SettleLimits
from rebalancer.sandbox import handlers
from rebalancer.sandbox.listing import Form, encode, negotiate
from rebalancer.sandbox.registry import evict
from rebalancer.sandbox.resources import PODS, ApiError
from rebalancer.sandbox.storage import Event, Record
from tests.loops.histories import History, Judge
from tests.sandbox.cycle.test_release import BLOCKED, FIRST, NOTHING_NEW, PLACE, Killed, marks, rolled_out
from tests.support.build import NOW, objects
from tests.support.runs.one_cycle import Story
from tests.support.sandbox import Cluster
from tests.support.sandbox.app import GuardedApi
from tests.support.servers.api import FakeTime

LIMITS = SettleLimits(ready=40.0, pending=15.0, budgets=5.0, serving=5.0, poll=1.0)
KINDS = ("Node", "Pod", "Deployment", "ReplicaSet", "PodDisruptionBudget")
_CHECK = Check("chance", "", lambda _: None, BEFORE_REQUESTS)
_ONCE = Backoff(tries=2, first=0.1, cap=0.1)


class Watch:
    """What the watch of one process has: the store as it was a while ago."""

    def __init__(self, world: Interleaving) -> None:
        self._world = world
        self.seen = world.read()

    def monotonic(self) -> float:
        return self._world.time.now()

    def pods(self) -> Mapping[Identity, Pod]:
        if self._world.random.random() < 0.8:
            self.seen = self._world.read()
        return {(p.namespace, p.name): p for p in self.seen.pods}

    def nodes(self) -> tuple[Node, ...]:
        return self.seen.nodes

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        return self.seen.workloads_by_name.get((kind, namespace, name))

    def workloads(self, namespace: str) -> tuple[Workload, ...]:
        return tuple(w for w in self.seen.workloads if w.namespace == namespace)

    def services(self, _: str) -> tuple[()]:
        return ()

    def wait_current(self, _: Collection[str], __: float, ___: float, ____: Callable[[], bool]) -> str:
        self.seen = self._world.read()
        return ""


class Looks(FreshLook):
    """The last look: what concerns owner, pod and brake; anything else by chance. In every fourth history the
    spread needs some of the old pods, for good, and another one is to go instead."""

    def __init__(self, world: Interleaving, planned: Snapshot) -> None:
        super().__init__(cast("Any", world.time))
        self._world, self._planned = world, planned

    def first_no(self, moment: Moment, move: Move, away: Away) -> tuple[Check, Reason] | None:  # noqa: ARG002
        now, r = self._world.read(), self._world.random
        live = {p.uid: p for p in now.pods}.get(move.pod.uid)
        if self._world.closed() is not None or live is None or live.terminating or r.random() < 0.04:
            return _CHECK, Reason(ReasonCode.CHANGED_SINCE_PLAN, "the look says no")
        if move.pod.owner is not None and self._wants(now) != self._wants(self._planned):
            return _CHECK, Reason(ReasonCode.OWNER_SCALING, "its owner has changed")
        if move.pod.owner is None and self.rather(move):
            return _CHECK, Reason(ReasonCode.WOULD_WORSEN, "the spread needs it")
        return None

    def rather(self, move: Move) -> str:
        chance, pods = Random(f"{self._world.seed} {move.pod.uid}"), self._world.read().pods
        if self._world.seed % 4 or chance.random() < 0.5:
            return ""
        mark = next((mark for pod, mark in released(pods) if pod.uid == move.pod.uid), None)
        own = [p.uid for p in pods if mark is not None and p.owner and p.owner.uid == mark.replica_set]
        return chance.choice(own) if own else ""

    @staticmethod
    def _wants(there: Snapshot) -> list[tuple[str, int, int]]:
        return sorted((w.key, w.replicas, w.metadata.generation) for w in there.workloads)


class InProcess:
    """The connection of one process. It dies at its `dies_at`th write, before or after it (`sent`)."""

    who = "the embedded cluster"
    evicting_until = 0.0
    decoded, evicting = Connection.decoded, Connection.evicting

    def __init__(
        self, world: Interleaving, dies_at: int = 0, *, sent: bool = False, calm: bool = False
    ) -> None:
        self._world, self._dies_at, self._sent, self._calm = world, dies_at, sent, calm
        self._writes = 0
        self._asks = world.judge.process()

    def request(self, method: str, path: str, target: Target, **more: Any) -> Response:
        """As `Connection.request`."""
        world, write, r = self._world, method != "GET", self._world.random
        world.between(calm=self._calm)
        self._writes += write
        dies, chance = write and self._writes == self._dies_at, 1.0 if self._calm else r.random()
        if dies and not self._sent:
            raise Killed
        fresh = more.get("fresh")
        if (fresh is not None and not fresh()) or chance < 0.01:
            raise TransportError("not sent", sent=False, target=target)
        self._asks(method, path)
        answer = self._answer(method, path, target, more)
        if dies:
            raise Killed
        world.between(calm=self._calm)
        if 0.01 <= chance < 0.025:
            raise TransportError("no answer", sent=True, target=target)
        return answer

    def _answer(self, method: str, path: str, target: Target, more: Mapping[str, Any]) -> Response:
        named = handlers.parse(method, path)
        try:
            assert named.served is not None
            form = Form(negotiate(more.get("accept", "")), named.served)
            query = {k: str(v) for k, v in (more.get("query") or {}).items()}
            headers = {"content-type": more.get("content_type", "application/json")}
            body = json.dumps(more["body"]).encode() if more.get("body") is not None else b""
            call = handlers.Call(self._world.cluster.store, named.served, named, query, form, headers, body)
            code, data = handlers.handle(call, GuardedApi.verbs)
        except ApiError as e:
            raise error_of(e.code, {}, encode(e.status()), target, who=self.who) from e
        return Response(code, {}, data)


class Interleaving(History):
    """One history, by a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.time = FakeTime(NOW)
        self.time.during = self.passes
        self.cluster = Cluster(
            objects(*BLOCKED), ready_after=self.starts, clock=self.time.now, seed=seed, fresh_timeout=0.0
        )
        self.loop = self.cluster.loop
        self.loop.now = self.time.now
        self.who = "others"
        self.brake = False
        self.depth, self.term = 0, 0
        self.acts = 0
        self._read: tuple[int, Snapshot] | None = None
        self._known: dict[str, tuple[Record, Any]] = {}
        self._decoder = Decoder()
        for kind in KINDS:
            collection = self.cluster.store.collection(kind)
            for record in collection.scan():
                self.loop._events.append(Event(record.rv, "ADDED", collection.resource, record, None))
        self.cluster.store.subscribe(self.loop._changed)
        self.settle()
        self.judge = Judge(self.cluster, lambda: self.who, self.time.now)

    def starts(self, _: Any) -> float | None:
        """Seconds until a pod is Ready; some never are."""
        return None if self.random.random() < 0.1 else self.random.choice((0.5, 3.0, 12.0))

    def read(self) -> Snapshot:
        """The store as it is."""
        store = self.cluster.store
        if self._read is None or self._read[0] != store.revision:
            records = [r for kind in KINDS for r in store.collection(kind).scan()]
            every = [self._decoded(r) for r in records]
            found = build_snapshot(every, now=self.time.now(), server_version="v1.36.2", kinds=KINDS_OF_ALL)
            self._read = store.revision, found
        return self._read[1]

    def _decoded(self, record: Record) -> Any:
        if (known := self._known.get(record.obj["kind"] + record.key)) is None or known[0] is not record:
            made = self._decoder.decode(record.obj["kind"], json.dumps(record.obj).encode())
            known = self._known[record.obj["kind"] + record.key] = record, made
        return known[1]

    def closed(self) -> Reason | None:
        """The brake."""
        return Reason(ReasonCode.PAUSED_BY_ANNOTATION, "somebody has paused it") if self.brake else None

    # -- what happens between two requests

    def work(self, most: int) -> None:
        """The controllers do so much of what there is to do."""
        before, self.who = self.who, "sandbox-controllers"
        loop = self.loop
        for _ in range(most):
            loop._ring()
            loop._notice()
            todo = next(iter(loop._work or loop._late), None)
            if todo is None:
                break
            (loop._work if todo in loop._work else loop._late).pop(todo)
            loop._sync(todo)
        self.who = before

    def settle(self) -> None:
        """Until they have nothing to do."""
        for _ in range(400):
            self.work(500)
            if not loop_waits(self.cluster):
                return
            self.time.at += 0.5

    def between(self, *, calm: bool = False) -> None:
        """Around a request."""
        r = self.random
        self.time.at += r.choice((0.0, 0.005, 0.1))
        self.work(500 if calm else r.choice((0, 0, 1, 3, 500)))
        if calm:
            return
        if self.acts and r.random() < 0.03:
            self.act()
        if self.depth == 1 and r.random() < 0.004:
            self.told.append("a second process")
            self.process(dies_at=r.randint(1, 12), sent=r.random() < 0.5)

    def passes(self, seconds: float) -> None:
        """Somebody waits."""
        self.work(500)
        if self.acts and self.random.random() < min(seconds, 1.0) * 0.08:
            self.act()
        self.work(self.random.choice((0, 500, 500, 500)))

    def act(self) -> None:
        """Others do something."""
        self.acts -= 1
        acts: list[Callable[[Cluster], None]] = [
            self.scale, self.kill, self.sick, self.well, self.lose, self.pull, self.drain, rolled_out,
        ]  # fmt: skip
        does = self.random.choice(acts)
        self.told.append(does.__name__)
        before, self.who = self.who, "others"
        does(self.cluster)
        self.who = before

    def pull(self, _: Cluster) -> None:
        """The brake, or it is let go."""
        self.brake = not self.brake

    def drain(self, cluster: Cluster) -> None:
        """One node is cordoned, and its pods are evicted as far as budgets let them."""
        node = self.random.choice(("a-0", "a-1", "b-0", "b-1"))
        cluster.cordon(node)
        for pod in cluster._evictable(node):
            body = {"metadata": {"name": pod["metadata"]["name"]}}
            with suppress(ApiError):  # kept by its budget
                evict(cluster.store, "default", body["metadata"]["name"], body)
        cluster.cordon(node, on=False)

    # -- processes

    def process(self, *, dies_at: int = 0, sent: bool = False, fresh: bool = False) -> None:
        """A cycle of a new process; `fresh`: undisturbed, and it plans nothing of its own."""
        self.depth, self.term = self.depth + 1, self.term + 1
        before, self.who = self.who, "us"
        try:
            self._cycle(InProcess(self, dies_at, sent=sent, calm=fresh), NOTHING_NEW if fresh else FIRST)
        except (Killed, KubeError):
            pass  # as where the ledger cannot be read when it begins
        finally:
            self.depth, self.who = self.depth - 1, before

    def _cycle(self, made: InProcess, planning: PlanOptions) -> None:
        clock, connection = cast("Any", self.time), cast("Connection", made)
        reads = Objects(connection, wait=clock.wait, backoff=_ONCE)
        watch, term = Watch(self), self.term
        store = Ledgers(connection, PLACE, writer=f"p{term}", wait=clock.wait, backoff=_ONCE)
        memory = Memory(clock, HistoryRules(), store=store, writer=f"p{term}", term=lambda: term)

        def closed() -> Reason | None:
            return memory.rival() or self.closed()

        def planned(snapshot: Snapshot) -> Any:
            if planning is not NOTHING_NEW:
                found = plan(snapshot, planning)
                if not memory.waits(snapshot, found, {}):
                    return found
            return Plan(constraints=(), moves=(), blocked=())

        Cycle(
            Parts(
                snapshot=self.read,
                plan=planned,
                look=lambda snapshot, _: Looks(self, snapshot),
                replacements=lambda seen, _: ReplacementWatch(cast("Any", watch), seen, clock, LIMITS),
                limited=lambda snapshot: WatchedLimits(None, snapshot),
                evictor=LiveEvictor(connection, reads.pod, wait=clock.wait, linger=clock.linger,
                                    monotonic=clock.monotonic, backoff=_ONCE),
                clock=clock,
                pace=RateLimit(clock),
                observer=Story(),
                closed=closed,
                memory=memory,
                releases=ReleaseParts(reads=reads, watched=cast("Any", watch),
                                      patches=ReleasePatches(connection), by=memory.installation,
                                      closed=closed),
            )
        ).run()  # fmt: skip

    def play(self) -> list[str]:
        """What was wrong with it."""
        r, judge = self.random, self.judge
        for term in range(1, r.randint(2, 4)):
            self.acts, at, sent = r.randint(0, 3), r.randint(1, 16), r.random() < 0.5
            self.told.append(f"process {term} dies at {at}{' sent' if sent else ''}")
            self.process(dies_at=at, sent=sent)
            self.passes(r.choice((0.0, 5.0)))
        self.acts, self.brake = 0, False
        self.heal(self.cluster)
        self.did = judge.did
        for _ in range(2):
            self.process(fresh=True)
            self.settle()
        left = marks(self.cluster)
        if left and not self.by_hand(self.cluster):
            judge.broken.append(f"left: {left}")
        return judge.broken

    def heal(self, cluster: Cluster) -> None:
        """All pods become Ready."""
        cluster.kubelet.ready_after = 0.5
        self.who = "others"
        for _ in range(5):
            self.settle()
            for pod in cluster.store.list(PODS):
                if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                    self.sick(cluster, "True", pod["metadata"]["name"])


def loop_waits(cluster: Cluster) -> bool:
    """Whether a timer of a controller is still to ring that the cluster waits for."""
    return cluster.loop._foreground > 0


def main() -> None:
    """Plays them; those that break the promise are printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    broken, did, began = 0, Counter[str](), time.monotonic()
    for number, seed in enumerate(range(options.first, options.first + options.count), 1):
        history = Interleaving(seed)
        if wrong := history.play():
            broken += 1
            print(seed, history.told, wrong, flush=True)
        did += history.did
        if number % 500 == 0 or number == options.count:
            took = time.monotonic() - began
            print(f"{number} interleavings in {took:.0f} s, {broken} broken; {dict(did)}", flush=True)


if __name__ == "__main__":
    main()
