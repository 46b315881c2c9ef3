"""What the demo shows: the pods per domain at this moment, and what has happened so far."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from msgspec import Struct

from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport, MoveStatus, Outcome
from rebalancer.outcome.eviction import Eviction
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import ConstraintResult, Move, Plan
from rebalancer.report.wording.text import clean, plural, short_key
from rebalancer.sandbox import Cluster, is_ready

_KEPT = 200


class Now(Struct, frozen=True):
    """A constraint at this moment. `arriving`: pods that have no node or are not Ready yet."""

    name: str
    key: str
    max_skew: int
    before: Mapping[str, int]
    counts: dict[str, int]
    arriving: int

    @property
    def skew(self) -> int:
        """The highest count minus the lowest."""
        return max(self.counts.values(), default=0) - min(self.counts.values(), default=0)

    @property
    def excess(self) -> int:
        """The part of the skew that is above maxSkew."""
        return max(self.skew - self.max_skew, 0)


class Line(Struct, frozen=True):
    """Something that happened `at` seconds after the start; `style` is a style of rich."""

    at: float
    text: str
    style: str = ""


class Board(Observer):
    """Collects what happens, to be drawn on a terminal, or to be printed line by line through `tell`."""

    def __init__(self, cluster: Cluster, tell: Callable[[Line], None] | None = None) -> None:
        self.lines: deque[Line] = deque(maxlen=_KEPT)
        self.first: Plan | None = None
        self.last: Plan | None = None
        self.cycle = self.wave = self.waves = self.evicted = 0
        self._cluster = cluster
        self._tell = tell
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def say(self, text: str, style: str = "") -> None:
        """Adds a line."""
        line = Line(self.seconds, clean(text), style)
        with self._lock:
            self.lines.append(line)
        if self._tell is not None:
            self._tell(line)

    def recent(self, count: int) -> list[Line]:
        """The newest lines, oldest first."""
        with self._lock:
            return list(self.lines)[-count:]

    def now(self) -> list[Now]:
        """The hard constraints, counted in the cluster itself. Those that were worst at the start come
        first."""
        if self.first is None:
            return []
        zones = {
            n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in self._cluster.store.list("Node")
        }
        pods = self._cluster.store.list("Pod", where=lambda p: "deletionTimestamp" not in p["metadata"])
        found = []
        chosen = (c for c in self.first.constraints if c.in_scope)
        for result in sorted(chosen, key=lambda c: (-c.excess, name_of(c), c.constraint.topology_key)):
            c = result.constraint
            counts = Counter(dict.fromkeys(result.domains, 0))
            arriving = 0
            for pod in pods:
                metadata = pod["metadata"]
                if metadata["namespace"] != c.namespace or c.selector is None:
                    continue
                if not c.selector.matches(metadata.get("labels") or {}):
                    continue
                arriving += not is_ready(pod)
                domain = str(zones.get(pod["spec"].get("nodeName", ""), {}).get(c.topology_key, ""))
                if domain in counts:
                    counts[domain] += 1
            found.append(
                Now(name_of(result), c.topology_key, c.max_skew, result.domains, dict(counts), arriving)
            )
        return found

    # -- the loop tells

    def on_cycle(self, number: int) -> None:
        """A cycle begins."""
        self.cycle = number

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """A plan was made."""
        self.first = self.first or plan
        self.last = plan
        self.wave, self.waves = 0, len(plan.waves)
        if plan.moves:
            moves = f"{plural(len(plan.moves), 'eviction')} in {plural(len(plan.waves), 'wave')}"
            fewest = ", and fewer cannot do it" if plan.optimal else ""
            left = f"excess {plan.excess} → {plan.residual_excess}"
            self.say(f"plan for {len(snapshot.pods)} pods: {moves}, {left}{fewest}", "bold")
        else:
            self.say("plan: nothing left that an eviction would help", "bold")

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """A wave begins."""
        self.wave = wave
        self.say(f"wave {wave} of {self.waves}: {plural(len(moves), 'eviction')}", "cyan")

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """An eviction was tried."""
        if eviction.evicted:
            self.evicted += 1
            self.say(f"evicted  {move.pod.key} from {move.pod.node_name}: {_short(move.reason)}", "yellow")
        else:
            self.say(f"refused  {eviction.message}", "red")

    def on_outcome(self, outcome: Outcome) -> None:
        """What became of a move."""
        if outcome.status is MoveStatus.DONE:
            where = f"{outcome.replacement} is Ready on {outcome.node}"
            self.say(f"restored {where}, after {outcome.seconds:.1f} s", "green")
        else:
            self.say(f"{outcome.status.value}: {outcome.message}", "red")

    def on_report(self, report: CycleReport) -> None:
        """The cycle is over."""
        self.say(f"cycle {self.cycle} over: {report.message}", "bold")

    def on_error(self, error: Exception) -> None:
        """The cycle ended in an error."""
        self.say(f"error: {error}", "bold red")


def _short(reason: str) -> str:
    """A topology key; of a well-known one only the last word."""
    for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname"):
        reason = reason.replace(key, short_key(key))
    return reason


def name_of(result: ConstraintResult) -> str:
    """The workload that the constraint belongs to."""
    whose = ", ".join(w.rpartition("/")[2] for w in result.workloads)
    return f"{result.constraint.namespace}/{whose or result.constraint.selector}"


def counts_of(domains: Mapping[str, int], key: str) -> str:
    """The counts, such as a=5 b=1 c=1; for hostnames, how many nodes have how many pods."""
    if short_key(key) != "hostname":
        return " ".join(f"{name}={count}" for name, count in domains.items())
    many = Counter(domains.values())
    return ", ".join(f"{many[n]} with {n}" for n in sorted(many, reverse=True))
