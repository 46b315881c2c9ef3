"""The state between cycles, and the values that gauges show of it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from platform import python_version

from rebalancer import __version__
from rebalancer.engine.agreement import Comparison, Result
from rebalancer.findings import FindingCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.planner.results.pace import Gait, pace

_COMPARED = 1000
"""Comparisons that the share of agreements is of."""
Seen = Iterable[tuple[float, dict[str, str]]]
"""Values with their labels."""

_STATUS = ("balanced", "fixable", "partly-fixable", "unfixable")
_MOST_NAMESPACES = 200
"""Namespaces with a series of their own, worst first; the rest is summed under "other"."""


class State:
    """What is known of the last plan, the last cycle and the process."""

    def __init__(self, constraint_series: int = 0) -> None:
        self.plan: Plan | None = None
        self.snapshot: Snapshot | None = None
        self.last_end = 0.0
        self.last_ok = 0.0
        self.last_seconds = 0.0
        self.bought: float | None = None
        self.leading: bool | None = None
        self.breaker_open = False
        self.foreign_costs: int | None = None
        self.cache_ages: Callable[[], Mapping[str, float]] = dict
        self.excess_now: Callable[[], Mapping[str, int] | None] = lambda: None
        self.gait: Callable[[], Gait] = Gait
        self.notices: Callable[[], Mapping[tuple[str, str], int]] = dict
        self.constraint_series = constraint_series
        self._agreements: deque[bool] = deque(maxlen=_COMPARED)

    def compared(self, comparison: Comparison) -> None:
        """What came of one comparison; those say nothing that are unclear, or where the engine was unsure."""
        if comparison.certain and comparison.result is not Result.UNCLEAR:
            self._agreements.append(comparison.result is Result.AGREES)

    def ended(self, report: CycleReport | None) -> None:
        """Records the end of a cycle. None: it ended in an error."""
        self.last_end = time.time()
        if report is not None:
            self.last_seconds = report.seconds
            if report.ok:
                self.last_ok = self.last_end

    def forget(self) -> None:
        """Forgets what is known of the cluster."""
        self.plan = self.snapshot = self.bought = None
        self.breaker_open = False

    # -- gauges

    def build_info(self) -> Seen:
        """Always 1."""
        yield 1, {"version": __version__, "python_version": python_version()}

    def objects(self) -> Seen:
        """Objects of each kind in the last snapshot."""
        for read in self.snapshot.reads if self.snapshot is not None else ():
            yield read.objects, {"kind": read.kind}

    def unread(self) -> Seen:
        """Kinds that the API server refuses."""
        for kind in sorted(self.snapshot.refused) if self.snapshot is not None else ():
            yield 1, {"kind": kind}

    def constraints(self) -> Seen:
        """Constraints in scope by status, all of them, so that zero is a series."""
        if self.plan is not None:
            found = Counter(str(c.status) for c in self._in_scope())
            for status in _STATUS:
                yield found[status], {"status": status}

    def excess(self) -> Seen:
        """Of this moment, if somebody follows it; else of the last plan. None before the first plan."""
        if self.plan is not None:
            now = self.excess_now()
            yield self.plan.excess if now is None else sum(now.values()), {}

    def namespace_excess(self) -> Seen:
        """Per namespace that has constraints in scope, likewise."""
        now = self.excess_now() if self.plan is not None else {}
        by: Counter[str] = Counter(now or {})
        for c in self._in_scope() if now is None else ():
            by[c.constraint.namespace] += c.excess
        yield from _worst_namespaces(by)

    def irreplaceable(self) -> Seen:
        """Per namespace that has constraints in scope, or such a pod."""
        by = Counter({c.constraint.namespace: 0 for c in self._in_scope()})
        for f in self.plan.findings if self.plan is not None else ():
            if f.code == FindingCode.CANNOT_BE_REPLACED:
                by[f.object.split("/")[1]] += f.numbers["pods"]
        yield from _worst_namespaces(by)

    def worst_loss(self) -> Seen:
        """Of the constraint that is furthest from the best."""
        for namespace, c in self._worst().items():
            yield c.worst_domain_loss, {"namespace": namespace}

    def best_loss(self) -> Seen:
        """What the same constraint could have at best."""
        for namespace, c in self._worst().items():
            yield c.best_domain_loss, {"namespace": namespace}

    def blocked(self) -> Seen:
        """Pods that could have been victims."""
        found = (
            Counter(b.reason.code.value for b in self.plan.blocked) if self.plan is not None else Counter()
        )
        for code, n in sorted(found.items()):
            yield n, {"reason": code}

    def unfixable(self) -> Seen:
        """Constraints in scope that keep an excess, by the reasons given."""
        found: Counter[str] = Counter()
        for c in self._in_scope():
            if c.residual_excess:
                found.update({r.code.value for r in c.reasons} or {"unknown"})
        for code, n in sorted(found.items()):
            yield n, {"reason": code}

    def expected_duration(self) -> Seen:
        """Of the last plan, by the pods of its snapshot."""
        if self.plan is not None and self.snapshot is not None:
            yield pace(self.plan, self.snapshot, self.gait()).seconds, {}

    def findings(self) -> Seen:
        """Findings by severity and code."""
        found = Counter((f.severity.value, f.code) for f in self.plan.findings) if self.plan else Counter()
        for (severity, code), n in sorted(found.items()):
            yield n, {"severity": severity, "code": code}

    def ages(self) -> Seen:
        """Ages of the watch caches."""
        for kind, age in sorted(self.cache_ages().items()):
            yield age, {"kind": kind}

    def skew(self) -> Seen:
        """Per constraint, where series are asked for."""
        return self._per_constraint(lambda c: c.skew)

    def constraint_excess(self) -> Seen:
        """Per constraint, where series are asked for."""
        return self._per_constraint(lambda c: c.excess)

    def agreement(self) -> Seen:
        """Of the last comparisons; none before the first."""
        if known := list(self._agreements):
            yield sum(known) / len(known), {}

    # -- helpers

    def _in_scope(self) -> Iterator[ConstraintResult]:
        return (c for c in self.plan.constraints if c.in_scope) if self.plan is not None else iter(())

    def _worst(self) -> dict[str, ConstraintResult]:
        by: dict[str, list[ConstraintResult]] = defaultdict(list)
        for c in self._in_scope():
            by[c.constraint.namespace].append(c)
        worst = {n: max(cs, key=lambda c: c.worst_domain_loss - c.best_domain_loss) for n, cs in by.items()}
        chosen = sorted(worst, key=lambda n: worst[n].best_domain_loss - worst[n].worst_domain_loss)
        return {n: worst[n] for n in chosen[:_MOST_NAMESPACES]}

    def _per_constraint(self, value: Callable[[ConstraintResult], int]) -> Seen:
        worst = sorted(self._in_scope(), key=lambda c: (-c.excess, -c.skew, c.constraint.namespace))
        found: dict[tuple[str, str, str], int] = {}
        for c in worst[: self.constraint_series]:
            key = (c.constraint.namespace, ",".join(c.workloads), c.constraint.topology_key)
            # Revisions of one workload share the labels: the worse one counts.
            found[key] = max(found.get(key, 0), value(c))
        for (namespace, workload, key_), n in found.items():
            yield n, {"namespace": namespace, "workload": workload, "topology_key": key_}


def _worst_namespaces(by: Counter[str]) -> Seen:
    worst = by.most_common()
    for namespace, n in worst[:_MOST_NAMESPACES]:
        yield n, {"namespace": namespace}
    if len(worst) > _MOST_NAMESPACES:
        yield sum(n for _, n in worst[_MOST_NAMESPACES:]), {"namespace": "other"}
