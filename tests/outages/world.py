"""A cluster to which things happen, and the tool beside it, on a clock that passes at once.

The embedded cluster's own controllers and scheduler act; a wait of the tool lets them come to rest, and moves
the clock. What happens is listed with its time, so that it also happens in the middle of a cycle. On a real
cluster time passes as it does; there the history and the tool's waits can be made shorter by one factor.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from secrets import token_hex
from typing import Any

from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError
from rebalancer.kube.reading import read_snapshot
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, End, Eviction, Observer, Outcome
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.history.ledgers_merged import as_of
from rebalancer.policy.history.waits import end_of, is_wait
from rebalancer.runtime.commands.remembered import Remembered
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions, memory_rules
from rebalancer.runtime.live.once import run_once
from rebalancer.sandbox.objects import set_condition
from rebalancer.settings.loading import plan_options
from rebalancer.settings.settings import Settings
from tests.outages.real import RealCluster, RealTime
from tests.support.build import deployment, node, objects, pdb
from tests.support.runs.machine import PLACE
from tests.support.runs.one_cycle import in_time
from tests.support.sandbox.cluster import Cluster
from tests.support.sandbox.faults import Reply
from tests.support.scheduler.plain import HOSTNAME, ZONE, Json, labels_of, node_of, terminating
from tests.support.servers.api import QUICK, FakeTime, connected

EVERY = 30.0
"""Seconds from the end of a cycle to the next one."""
LATEST = 12 * 3600.0
"""Seconds after the last event until which all has to be mended."""


@dataclass
class Figures:
    """`mended`: seconds from the last event until nothing is left that could be mended; None: never.
    `repair`: of them, from the first eviction on. `useless`: evictions that are to lead into a domain that is
    at least as full as the one that is left. `pending`: pods that were Pending right after an eviction and
    not before it. `below`: budgets that an eviction left short. `waiting`: Pending pod-seconds in all.
    `untrue`: what cycles or reports said and was not so."""

    nodes: int = 0
    workloads: int = 0
    pods: int = 0
    evictions: int = 0
    useless: int = 0
    pending: int = 0
    below: int = 0
    waiting: float = 0.0
    mended: float | None = None
    repair: float = 0.0
    untrue: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether the tool did harm, gave up, or said what is not so."""
        harm = self.useless or self.pending or self.below
        return bool(harm or self.untrue or self.mended is None)


def _shorter(settings: Settings, pace: float) -> Settings:
    """With all waits so many times shorter."""
    waits = ("stabilization", "cool_down", "retry_after", "out_wait")
    update = {w: getattr(settings.evictions, w) / pace for w in waits}
    return settings.model_copy(update={"evictions": settings.evictions.model_copy(update=update)})


class World(Observer):
    """`happens`: what, in seconds from the start, in order. The last of it ends the outage. `real`: a
    kubeconfig; there all takes `pace` times less."""

    def __init__(
        self,
        seed: int,
        *,
        most_nodes: int = 24,
        most_workloads: int = 10,
        real: str = "",
        pace: float = 1.0,
    ) -> None:
        self.rng = rng = Random(f"outage/{seed}")
        run = f"z{token_hex(2)}" if real else ""
        self.zones = [f"{run}{z}" for z in "abcdef"[: rng.randint(3, 6)]]
        self.real, self.pace = real, pace
        per_zone = rng.randint(2, max(2, most_nodes // len(self.zones)))
        machines = [
            node(f"{z}-{i}").zone(z).room(cpu="16", pods=110) for z in self.zones for i in range(per_zone)
        ]
        self.apps = [f"w{i}" for i in range(rng.randint(min(4, most_workloads), most_workloads))]
        things: list[Any] = [machines]
        for app in self.apps:
            number = rng.randint(len(self.zones), 3 * len(self.zones))
            made = deployment(app).spread("zone", 1, taints_policy=rng.choice(("", "Honor", "Honor")))
            if rng.random() < 0.3:
                made.spread("hostname", 2, taints_policy="Honor")
            names = [f"{self.zones[i % len(self.zones)]}-{i % per_zone}" for i in range(number)]
            things.append(made.replicas(number).on_nodes(names))
            if rng.random() < 0.6:
                share = rng.choice((1, "25%", "50%"))
                things.append(pdb(app, {"app": app}, max_unavailable=share))
        self.time: Any = RealTime() if real else FakeTime(at=2_000_000_000.0)
        self.began = self.time.at
        self.no_image: set[str] = set()
        every = objects(*things)
        self.cluster: Any = (
            RealCluster(real, every)
            if real
            else Cluster(
                every,
                seed=seed,
                clock=self.time.now,
                ready_after=self._ready_after,
                grace=0.005,
                patience=0.02,
            )
        )
        self.store: Any = self.cluster.store
        self._made, self._begun = [o for o in every if o["kind"] == "Node"], False
        self.happens: list[tuple[float, Callable[[], object]]] = []
        self.figures = Figures(
            nodes=len(machines), workloads=len(self.apps), pods=sum(o["kind"] == "Pod" for o in every)
        )
        self.refuses_after = 0
        """So many evictions after which the API server refuses everything for five minutes; 0: never."""
        self._zones: dict[str, str] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._planned_at = 0
        self._expect: int | None = None
        self._first: float | None = None
        self._last_event = 0.0
        self._number = 0
        self._events = 0
        self._evicted: dict[str, list[float]] = defaultdict(list)
        self._said: dict[str, tuple[float, int, int]] = {}
        """App → until when a report said that it waits, after how many events and evictions."""
        space = self.cluster.space if isinstance(self.cluster, RealCluster) else PLACE.namespace
        self._place = Place(space, PLACE.name)
        settings = _shorter(Settings(), pace)
        self._attended = memory_rules(settings, attended=True)
        rules = memory_rules(settings, attended=False)
        self._rules = replace(rules, after_undone=tuple(s / pace for s in rules.after_undone))
        planning = plan_options(settings)
        if real:
            policy = replace(planning.policy, namespaces_include=(space,))
            planning = replace(planning, policy=policy)
        self._live = LiveOptions(
            execute=True, planning=planning, backoff=QUICK, settle=SettleLimits(ready=300, pending=60)
        )

    # What can happen.

    def nodes_of(self, zone: str) -> list[str]:
        """Names of a zone's nodes; before the history begins, of those to be made."""
        there = self.store.list("Node") if self._begun else self._made
        return [n["metadata"]["name"] for n in there if labels_of(n)[ZONE] == zone]

    def silent(self, *names: str) -> None:
        """They stop answering."""
        for name in names:
            self.cluster.fail_domain(HOSTNAME, name)

    def answer(self, *names: str) -> None:
        """They answer again."""
        for name in names:
            self.cluster.restore_domain(HOSTNAME, name)

    def remove(self, *names: str) -> list[Json]:
        """They are deleted. What they were."""
        gone = [self.store.get("Node", name) for name in names]
        for name in names:
            self.cluster.remove_node(name)
        return gone

    def buy(self, gone: list[Json], suffix: str = "") -> None:
        """Nodes like these, empty; by default of their names."""
        for old in gone:
            name = old["metadata"]["name"] + suffix
            labels = {**labels_of(old), HOSTNAME: name}
            made = {**old, "metadata": {"name": name, "labels": labels}, "spec": {}}
            self.store.create(made)

    def cordon(self, *names: str, on: bool = True) -> None:
        """They take no new pods, or do so again."""
        for name in names:
            self.cluster.cordon(name, on=on)

    def drain(self, *names: str) -> None:
        """As far as budgets let it, in one go."""
        for name in names:
            try:
                self.cluster.drain(name, timeout=0.4)
            except TimeoutError:
                continue

    def registry(self, zone: str, *, up: bool) -> None:
        """Images can be had there, or not: pods that start there are not Ready until then."""
        if not up:
            self.no_image.add(zone)
            return
        self.no_image.discard(zone)
        here = {*self.nodes_of(zone)}
        for p in self.store.list("Pod"):
            if node_of(p) in here and not terminating(p):
                self.store.modify(
                    "Pod",
                    p["metadata"]["name"],
                    p["metadata"]["namespace"],
                    self._is_ready,
                    subresource="status",
                )

    def _is_ready(self, pod: Json) -> None:
        pod["status"]["phase"] = "Running"
        for kind in ("ContainersReady", "Ready"):
            set_condition(pod, {"type": kind, "status": "True"}, self.store.now())

    def _ready_after(self, pod: Json) -> float | None:
        found = self.store.find("Node", node_of(pod))
        return None if found is not None and labels_of(found)[ZONE] in self.no_image else 0.003

    # The tool beside it.

    def play(self) -> Figures:
        """The whole history, until nothing is left to be mended."""
        with self.cluster:
            self._begun = True
            self.cluster.settle(20)
            self.began = self.time.at
            every = EVERY / self.pace
            while self.happens:
                self._cycle()
                self._pass(min(every, max(1.0, self._due())) if self.happens else every)
            self._last_event = self.time.at
            while self.time.at - self._last_event < LATEST / self.pace:
                report = self._cycle()
                if report is not None and self._done(report):
                    self.figures.mended = self.time.at - self._last_event
                    break
                self._pass(self._until(report))
            if self._first is not None:
                self.figures.repair = max(0.0, self.time.at - max(self._first, self._last_event))
        return self.figures

    @property
    def passed(self) -> float:
        """Seconds of the history since the start."""
        return float((self.time.at - self.began) * self.pace)

    def _due(self) -> float:
        """Seconds until what happens next."""
        return (self.happens[0][0] - self.passed) / self.pace

    def _done(self, report: CycleReport) -> bool:
        plan = report.last or report.first
        return (
            report.end is End.COMPLETE
            and not report.evicted
            and (plan is None or not plan.moves)
            and not any(b.reason.numbers.get("until") for b in (plan.blocked if plan is not None else ()))
        )

    def _until(self, report: CycleReport | None) -> float:
        every = EVERY / self.pace
        if report is None or report.evicted or report.reason is None:
            return every
        until = float(report.reason.numbers.get("until", 0) - self.time.at)
        return min(until, LATEST) + 1 if until > every else every

    def _cycle(self) -> CycleReport | None:
        self._number += 1
        term, time = self._number, self.time
        time.during = self._during
        writer = f"p{term}"
        happened, began = self._events, time.at
        said = dict[str, float]()
        try:
            with self._connected() as c:
                said = self._reported(c)
                store = Ledgers(c, self._place, writer=writer, wait=time.wait, backoff=QUICK)
                memory = Memory(time, self._rules, store=store, writer=writer, term=lambda: term)
                with self._around(c, Surroundings(memory=memory)) as around:
                    report = run_once(c, self._live, clock=time, observers=[self], around=around)
        except (UserError, KubeError):
            return None
        finally:
            time.during = self._during
        plan = report.last or report.first
        if "no eviction helps" in report.message and plan is not None and plan.moves:
            self.figures.untrue.append(report.message)
        self._compare(said, report, began, quiet=happened == self._events)
        return report

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if not self.real:
            with connected(self.cluster.server) as c:
                yield c
            return
        c = Connection(ClusterOptions(kubeconfig=self.real))
        try:
            yield c
        finally:
            c.close()

    @contextmanager
    def _around(self, c: Connection, around: Surroundings) -> Iterator[Surroundings]:
        if self.real:
            yield around
            return
        with in_time(c, self.cluster.server, self._live, self.time, around, 5.0) as within:
            yield within

    def _reported(self, c: Connection) -> dict[str, float]:
        """What `rebalancer report` says now: app → until when it waits. It has to keep to what it has said
        before, unless something happened or a pod of the app was evicted."""
        now = self.time.at
        store = Ledgers(c, self._place, writer="", wait=self.time.wait, backoff=QUICK)
        memory = Memory(self.time, self._attended, store=store, read_only=True)
        memory.ledger = as_of(store.load(), now, 0.0, earliest=now)
        ledger = Remembered(memory=memory, daemon=self._rules)
        snapshot = read_snapshot(c, now=self.time.now, wait=self.time.wait)
        plan, _ = ledger.plan(snapshot, self._live.planning)
        waits = ledger.waits(snapshot, plan)
        found = {owner.rpartition("/")[2]: reason for owner, reason in waits}
        for app, reason in found.items():
            until, since = end_of(reason), (self._events, len(self._evicted[app]))
            before, *then = self._said.get(app, (until, *since))
            if tuple(then) == since and until > before + 1:
                self.figures.untrue.append(f"{app}: said {before - now:.0f} s, then {reason.message}")
            self._said[app] = until, *since
        return {app: end_of(reason) for app, reason in found.items()}

    def _compare(self, said: dict[str, float], report: CycleReport, began: float, *, quiet: bool) -> None:
        """What a report said right before a cycle, beside what the cycle did."""
        for app, until in said.items():
            if any(began <= at < until for at in self._evicted[app]):
                self.figures.untrue.append(
                    f"{app}: a pod was evicted {until - began:.0f} s before the time said"
                )
        plan = report.last or report.first
        for blocked in plan.blocked if plan is not None and quiet and report.end is End.WAITING else ():
            app = blocked.pod.template.labels["app"]
            if not is_wait(blocked.reason) or any(at >= began for at in self._evicted[app]):
                continue
            if abs(end_of(blocked.reason) - said.get(app, 0.0)) > 1:
                self.figures.untrue.append(f"{app}: the report said otherwise than {blocked.reason.message}")

    def _pass(self, seconds: float) -> None:
        while seconds > 0:
            due = self._due() if self.happens else seconds
            step = min(seconds, max(due, 0.1))
            self.time.linger(step)
            seconds -= step

    def _during(self, seconds: float) -> None:
        happened = False
        while self.happens and self._due() <= seconds:
            self.happens.pop(0)[1]()
            happened = True
            self._events += 1
        self._settle()
        waiting = self._pending()
        if self._expect is not None and not happened:
            self.figures.pending += max(0, waiting - self._expect)
        self._expect = None
        self.figures.waiting += waiting * seconds

    def _settle(self) -> None:
        self.cluster.settle(20)

    def _pending(self) -> int:
        return sum(not node_of(p) and not terminating(p) for p in self.store.list("Pod"))

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """A request was answered."""
        if not eviction.evicted:
            return
        self.figures.evictions += 1
        self._evicted[move.pod.template.labels["app"]].append(self.time.at)
        if self._first is None or self._first < self._last_event:
            self._first = self.time.at
        if self.figures.evictions == self.refuses_after:
            refusing = self.cluster.faults.add(Reply(503))
            self.happens.insert(0, (self.passed + 300, lambda: self.cluster.faults.remove(refusing)))
        if self._expect is None:
            self._expect = self._pending()
        app = move.pod.template.labels["app"]
        self.figures.below += sum(
            b["status"].get("currentHealthy", 0) < b["status"].get("desiredHealthy", 0)
            for b in self.store.list("PodDisruptionBudget")
            if b["metadata"]["name"] == app
        )

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """Where the pods of each app are."""
        self._zones = {n.name: n.labels[ZONE] for n in snapshot.nodes if n.labels.get(ZONE) in self.zones}
        self._counts = defaultdict(Counter)
        for p in snapshot.pods:
            if p.node_name in self._zones and not p.terminating:
                self._counts[p.template.labels["app"]][self._zones[p.node_name]] += 1
        self._planned_at = self._events

    def on_outcome(self, outcome: Outcome) -> None:
        """The replacement is on a node: whether in a zone that had as many as the one that was left."""
        left, there = (self._zones.get(n, "") for n in (outcome.move.pod.node_name, outcome.node))
        if left and there and left != there and self._planned_at == self._events:
            counts = self._counts[outcome.move.pod.template.labels["app"]]
            self.figures.useless += counts[there] >= counts[left]
            counts.update({left: -1, there: 1})
