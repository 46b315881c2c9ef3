"""Playing the plan forward in the embedded cluster: what `once --execute` would do to it.

The cluster is made from the snapshot's objects, with controllers, kubelets and a scheduler whose choice among
equally good nodes is drawn from the seed; the cycles are those of `run_once`, over HTTP. Pods start and end
in a fraction of a second, so that ages, cool-downs and maintenance windows count as passed.
"""

from __future__ import annotations

import logging
import random
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.drill import drill
from rebalancer.engine.config import DEFAULT_CONFIG
from rebalancer.errors import UserError
from rebalancer.findings import plan_with_findings
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.reading import read_snapshot
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import plural
from rebalancer.model.snapshot import Snapshot, check_readable
from rebalancer.outcome import CycleReport, End, Observer, Observers
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.report.document import span
from rebalancer.report.simulated import (
    SimulatedConstraint,
    SimulatedMove,
    SimulationReport,
    State,
)
from rebalancer.report.text import full_key
from rebalancer.runtime.commands.remembered import HistoryLine, history_of
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.daemon.schedule import Daemon
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions, memory_of
from rebalancer.runtime.live.once import run_once
from rebalancer.runtime.live.places import places_to_act
from rebalancer.sandbox import ApiError, Cluster
from rebalancer.sandbox.cluster import after_outage
from rebalancer.settings import load_settings, plan_options

# Changes to a simulated cluster before it is rebalanced.

_ROLLED = ("Deployment", "StatefulSet")
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_SCALED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")


class Changes(Struct, frozen=True, kw_only=True):
    """Made in this order; the cluster settles after each.

    `add_nodes`: (how many, like which node); `labels`: key=value that these have instead. `scale`:
    namespace/name=replicas. `restart`: namespace/name of
    Deployments and StatefulSets, whose pods are all replaced. `drain`: nodes.
    `fail_domains`: key=value, with "zone" and the like for the well-known keys.
    """

    add_nodes: tuple[int, str] | None = None
    labels: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    fail_domains: tuple[str, ...] = ()


def apply(
    cluster: Cluster, changes: Changes, read: Callable[[], Snapshot], options: PlanOptions, *, patience: float
) -> list[str]:
    """Makes the changes. Returns a sentence for each. Raises UserError if one names nothing.

    `read`: the cluster as it is. `patience`: seconds for the cluster to settle after each, and for a drain.
    """
    done: list[str] = []
    if changes.add_nodes is not None:
        number, like = changes.add_nodes
        _known_node(cluster, like)
        own = {full_key(key): value for key, _, value in (text.partition("=") for text in changes.labels)}
        names = cluster.add_nodes(number, like=like, **own)
        where = f" with {', '.join(changes.labels)}" if own else ""
        done.append(f"added {plural(number, 'node')} like {like}{where}: {_span(names)}")
        done += settled(cluster, patience)
    for text in changes.scale:
        namespace, name, replicas = _scaled(text)
        try:
            cluster.scale(namespace, name, replicas)
        except KeyError as e:
            raise UserError(
                f"no workload {namespace}/{name} that scales", _similar(cluster, namespace, name)
            ) from e
        done.append(f"scaled {namespace}/{name} to {replicas:,}")
        done += settled(cluster, patience)
    for text in changes.restart:
        done.append(_restart(cluster, text))
        done += settled(cluster, patience)
    for node in changes.drain:
        _known_node(cluster, node)
        done.append(f"drained {node}{_drain(cluster, node, patience)}")
        done += settled(cluster, patience)
    for text in changes.fail_domains:
        key, _, value = text.partition("=")
        key = full_key(key)
        found = drill(read(), keys=(f"{key}={value}",), scheduler=options.scheduler).today
        names = cluster.fail_domain(key, value)
        if not names:
            raise UserError(f"no node with {key}={value}", _values(cluster, key))
        pods = f"{span(found[0].least, found[0].most)} pods find no other node"
        how = ", by the order in which they go" if found[0].least < found[0].most else ""
        nodes = plural(len(names), "node")
        done.append(f"{key}={value} failed: {nodes} stopped answering, all at once ({pods}{how})")
        done += settled(cluster, patience)
    return done


def settled(cluster: Cluster, patience: float) -> list[str]:
    """Waits until the cluster is at rest. Returns a sentence if it does not come to rest."""
    try:
        cluster.settle(patience)
    except TimeoutError as e:
        return [f"went on although {e}"]
    return []


def _drain(cluster: Cluster, node: str, patience: float) -> str:
    try:
        cluster.drain(node, patience)
    except TimeoutError as e:
        return f", but {e}: budgets keep them"
    except ApiError as e:
        return f", but {e}"
    return ""


def _restart(cluster: Cluster, text: str) -> str:
    """Rolls a workload out as `kubectl rollout restart` does. A sentence about it."""
    namespace, _, name = text.rpartition("/")
    namespace = namespace or "default"
    for kind in _ROLLED:
        owner = cluster.store.find(kind, name, namespace)
        if owner is None:
            continue

        def change(found: Any) -> None:
            metadata = found["spec"]["template"].setdefault("metadata", {})
            metadata.setdefault("annotations", {})[_RESTARTED] = "simulated"

        cluster.store.modify(kind, name, namespace, change)
        if _how(owner) == "Recreate":
            return f"restarted {namespace}/{name}: by Recreate, all of its pods are gone at once"
        if _how(owner) == "OnDelete" or owner["spec"].get("paused"):
            return f"restarted {namespace}/{name}: nothing follows, it is paused or updates by OnDelete"
        return f"restarted {namespace}/{name}: all of its pods are replaced, without any budget"
    raise UserError(
        f"no Deployment or StatefulSet {namespace}/{name}", _similar(cluster, namespace, name, _ROLLED)
    )


def _how(owner: Any) -> str:
    spec = owner["spec"]
    return str((spec.get("strategy") or spec.get("updateStrategy") or {}).get("type") or "RollingUpdate")


def _scaled(text: str) -> tuple[str, str, int]:
    workload, _, number = text.rpartition("=")
    namespace, _, name = workload.rpartition("/")
    # deploy/web and the like: the kind is found by the name.
    if not name or not number.isdecimal():
        raise UserError(f"--scale {text}: not of the form NAMESPACE/NAME=REPLICAS")
    return namespace or "default", name, int(number)


def _known_node(cluster: Cluster, name: str) -> None:
    if cluster.store.find("Node", name) is None:
        every = [n["metadata"]["name"] for n in cluster.store.list("Node")]
        raise UserError(f"no node {name} among {len(every):,}", _alike(name, every))


def _similar(cluster: Cluster, namespace: str, name: str, kinds: Iterable[str] = _SCALED) -> str:
    every = [
        f"{o['metadata']['namespace']}/{o['metadata']['name']}"
        for kind in kinds
        for o in cluster.store.list(kind)
        if not o["metadata"].get("ownerReferences")
    ]
    return _alike(f"{namespace}/{name}", every)


def _values(cluster: Cluster, key: str) -> str:
    labels = (n["metadata"].get("labels") or {} for n in cluster.store.list("Node"))
    values = sorted({of[key] for of in labels if key in of})
    return f"there are {', '.join(values[:8])}" if values else f"no node has the label {key}"


def _alike(name: str, every: list[str]) -> str:
    close = get_close_matches(name, every, 5, 0.5)
    return f"similar: {', '.join(close)}" if close else ""


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


_LIMITS = SettleLimits(ready=30.0, pending=3.0, budgets=5.0, poll=0.02)
_LEAST_PATIENCE = 20.0
_PODS_PER_SECOND = 50.0
"""How fast the embedded cluster is at least: bounds the wait for it to settle."""


class Standing(Struct, frozen=True, eq=False):
    """A cluster at one moment, with its plan."""

    snapshot: Snapshot
    plan: Plan


def simulate(
    snapshot: Snapshot,
    objects: Iterable[dict[str, Any]],
    *,
    options: PlanOptions,
    changes: Changes | None = None,
    seed: int = 0,
    max_cycles: int = 10,
    observers: Sequence[Observer] = (),
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[SimulationReport, bool]:
    """Runs cycles until one has nothing left to do or makes no progress, at most `max_cycles`: what came of
    it, and whether a stop was asked for.

    `objects`: those that `snapshot` was read from. `tell` is called with progress in words. Raises UserError
    if a change names nothing.
    """
    check_readable(snapshot)
    policy = msgspec.structs.replace(options.policy, min_pod_age=0.0)
    options = msgspec.structs.replace(options, policy=policy)
    stop = stop or threading.Event()
    clock = SystemClock(stop)
    patience = max(_LEAST_PATIENCE, len(snapshot.pods) / _PODS_PER_SECOND)
    before = _standing(snapshot, options)
    tell(f"starting {len(snapshot.nodes):,} nodes with {len(snapshot.pods):,} pods")
    version: dict[str, Any] = {"version": snapshot.server_version} if snapshot.server_version else {}
    made = Cluster(objects, seed=seed, scheduler=options.scheduler or DEFAULT_CONFIG, **version)
    cycles: list[CycleReport] = []
    with tempfile.TemporaryDirectory(prefix="rebalancer-simulate-") as folder, made as cluster:
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(Path(folder) / "config"))))
        cache = WatchCache(connection).start()

        read = partial(read_snapshot, connection, now=clock.now, wait=clock.wait)
        try:
            notes = settled(cluster, patience)
            if changes is not None and changes != Changes():
                tell("making the changes")
                notes += apply(cluster, changes, read, options, patience=patience)
            changed = _standing(read(), options)
            if changes is not None and changes.restart:
                notes.append(_compared(before.plan, changed.plan))
            live = LiveOptions(execute=True, planning=options, settle=_LIMITS)
            around = Surroundings(cache=cache)
            for number in range(1, max_cycles + 1):
                report = run_once(
                    connection, live, clock=clock, observers=observers, number=number, around=around
                )
                cycles.append(report)
                notes += settled(cluster, patience)
                if not report.evicted or stop.is_set() or report.end is End.ABORTED:
                    break
            # A look is worth it also after an interrupt, which its waits would otherwise end.
            interrupted = stop.is_set()
            stop.clear()
            after = _standing(read(), options)
        finally:
            cache.stop()
            connection.close()
    shown = SimulationReport(
        seed=seed,
        source=snapshot.source,
        notes=tuple(notes),
        before=_state(before),
        changed=_state(changed),
        after=_state(after),
        cycles=tuple(cycles),
        moves=tuple(SimulatedMove(n, o) for n, cycle in enumerate(cycles, 1) for o in cycle.outcomes),
        constraints=tuple(_constraints((before, changed, after))),
        assumptions=(*_REST, *snapshot.warnings),
    )
    return shown, interrupted


def _compared(before: Plan, restarted: Plan) -> str:
    """What a restart came to, beside what evictions could do instead."""
    left, without = restarted.excess, before.residual_excess
    better = "less than" if left < without else "as much as" if left == without else "more than"
    return (
        f"restarted, an excess of {left} is left: {better} the {without} that {len(before.moves)} evictions "
        "would leave"
    )


def _standing(snapshot: Snapshot, options: PlanOptions) -> Standing:
    return Standing(snapshot, plan_with_findings(snapshot, options))


_REST = (
    "the embedded cluster preempts nobody, scales no workload by itself and starts every pod",
    "pods start and end in a fraction of a second: ages, cool-downs and maintenance windows count as passed",
)


def _state(standing: Standing) -> State:
    in_scope = [c for c in standing.plan.constraints if c.in_scope]
    return State(
        nodes=len(standing.snapshot.nodes),
        pods=sum(not (p.finished or p.terminating) for p in standing.snapshot.pods),
        unplaced=sum(not (p.node_name or p.finished or p.terminating) for p in standing.snapshot.pods),
        violated=standing.plan.violated,
        excess=standing.plan.excess,
        worst_loss=max((c.worst_domain_loss for c in in_scope), default=0.0),
    )


def _constraints(moments: tuple[Standing, ...]) -> list[SimulatedConstraint]:
    by: dict[tuple[object, ...], list[ConstraintResult | None]] = {}
    for i, standing in enumerate(moments):
        seen: dict[tuple[object, ...], int] = {}
        for c in standing.plan.constraints:
            if c.in_scope:
                # Pods under different node selectors carry the same constraint over different nodes.
                key: tuple[object, ...] = (c.constraint, c.workloads)
                seen[key] = number = seen.get(key, -1) + 1
                by.setdefault((*key, number), [None] * len(moments))[i] = c
    return [_constraint(results) for results in by.values()]


def _constraint(results: list[ConstraintResult | None]) -> SimulatedConstraint:
    one = next(c for c in results if c is not None)
    before, changed, after = ({} if c is None else c.domains for c in results)
    excess = [0 if c is None else c.excess for c in results]
    last = results[-1]
    return SimulatedConstraint(
        namespace=one.constraint.namespace,
        workloads=one.workloads,
        selector=one.selector,
        topology_key=one.constraint.topology_key,
        max_skew=one.constraint.max_skew,
        before=before,
        changed=changed,
        after=after,
        excess=dict(zip(("before", "changed", "after"), excess, strict=True)),
        reasons=tuple(r.message for r in last.reasons) if last is not None else (),
    )


# `rebalancer demo`: the daemon on the embedded cluster, until nothing is left to do.

GRACE = 1.5
READY_AFTER = (1.5, 4.0)
"""Seconds from a pod's place to Ready, at random in between: a real cluster takes tens of seconds."""
INTERVAL = 2.0
_UNHURRIED = SettleLimits(ready=30.0, pending=10.0, serving=2.0, poll=0.1)


class DemoResult(Struct, frozen=True, eq=False):
    """All cycles in order. `converged`: the last one found nothing to do, and no pod is left Pending.
    `history`: what the ledger tells, oldest first."""

    cycles: tuple[CycleReport, ...]
    pending: tuple[str, ...]
    converged: bool
    interrupted: bool
    history: tuple[HistoryLine, ...] = ()

    @property
    def evicted(self) -> int:
        """Pods evicted in all."""
        return sum(c.evicted for c in self.cycles)


@contextmanager
def demo_cluster(seed: int) -> Iterator[tuple[Cluster, Path]]:
    """The cluster after the outage, running, and a kubeconfig for it that kubectl takes too."""
    rng = random.Random(seed)
    cluster = Cluster(after_outage(), seed=seed, ready_after=lambda _: rng.uniform(*READY_AFTER), grace=GRACE)
    with tempfile.TemporaryDirectory(prefix="rebalancer-demo-") as folder, cluster:
        cluster.settle()
        yield cluster, cluster.kubeconfig(Path(folder) / "kubeconfig")


def run_demo(
    cluster: Cluster,
    kubeconfig: Path,
    *,
    stop: threading.Event,
    observers: Sequence[Observer] = (),
    timeout: float = 55.0,
) -> DemoResult:
    """Runs the daemon as `rebalancer run --execute` does; returns when a cycle has found nothing to do, when
    one has failed, when `stop` is set, or after `timeout` seconds. Brake, ledger and events are there."""
    connection = Connection(ClusterOptions(kubeconfig=str(kubeconfig)))
    clock = SystemClock(stop)
    settings = load_settings(env={}, flags={"evictions": {"enabled": True, "method": "auto"}})
    places = places_to_act(settings, connection, wait=clock.wait)
    # Somebody watches, so nothing has to wait; what is evicted is written down as ever.
    memory = memory_of(settings, connection, places, clock, attended=True)
    live = LiveOptions(
        execute=True, settle=_UNHURRIED, brake=places.brake, events="all", planning=plan_options(settings)
    )
    cycles: list[CycleReport] = []
    end = threading.Event()

    def over() -> None:
        end.set()
        stop.set()

    given_up = threading.Timer(timeout, over)
    given_up.daemon = True

    def cycle(number: int) -> None:
        try:
            report = run_once(
                connection, live, clock=clock, observers=observers, number=number, around=around
            )
        except Exception:
            # A daemon would try again; here no network is to blame.
            over()
            raise
        cycles.append(report)
        if report.end is End.COMPLETE and not report.evicted:
            over()

    # That a cycle takes longer than the interval is no news here.
    logging.getLogger("apscheduler.scheduler").setLevel(logging.ERROR)
    cache = WatchCache(connection).start()
    around = Surroundings(cache=cache, memory=memory)
    try:
        cache.wait_ready(timeout)
        given_up.start()
        Daemon(cycle, interval=INTERVAL, stop=stop, observer=Observers(observers)).run()
    finally:
        given_up.cancel()
        memory.leave()
        cache.stop()
        connection.close()
    pending = tuple(
        f"{p['metadata']['namespace']}/{p['metadata']['name']}"
        for p in cluster.store.list("Pod", where=lambda p: not p["spec"].get("nodeName"))
    )
    last = cycles[-1] if cycles else None
    done = last is not None and last.end is End.COMPLETE and not last.evicted
    history = tuple(history_of(memory.ledger, ()))
    return DemoResult(tuple(cycles), pending, done and not pending, not end.is_set(), history)
