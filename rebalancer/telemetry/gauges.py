"""The gauges, and where their values come from. They are observed: a namespace that is gone has no series."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from platform import python_version

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from rebalancer import __version__
from rebalancer.engine.agreement import Comparison, Result
from rebalancer.findings import FindingCode
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport
from rebalancer.planner.pace import Throttle, pace
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.policy.history.waits import end_of

# The state between cycles, and the values that gauges show of it.

_COMPARED = 1000
"""Comparisons that the share of agreements is of."""
Seen = Iterable[tuple[float, dict[str, str]]]
"""Values with their labels."""

_STATUS = ("balanced", "fixable", "partly-fixable", "unfixable")
_MOST_NAMESPACES = 200
"""Namespaces with a series of their own, worst first; the rest is summed under "other"."""


class State:
    """What is known of the last plan, the last cycle and the process.

    Asked at each scrape: `cache_ages`, seconds by kind; `excess_now`, by namespace in scope, None where it is
    not known; `throttle`, what holds evictions back beside the plan; `notices`, messages by receiver and
    result.
    """

    def __init__(self, constraint_series: int = 0) -> None:
        self.plan: Plan | None = None
        self.snapshot: Snapshot | None = None
        self.last_end = 0.0
        self.last_ok = 0.0
        self.last_seconds = 0.0
        self.bought: float | None = None
        self.held: Reason | None = None
        self.leading: bool | None = None
        self.breaker_open = False
        self.foreign_costs: int | None = None
        self.cache_ages: Callable[[], Mapping[str, float]] = dict
        self.excess_now: Callable[[], Mapping[str, int] | None] = lambda: None
        self.throttle: Callable[[], Throttle] = Throttle
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
        self.held = report.reason if report is not None else None
        if report is not None:
            self.last_seconds = report.seconds
            if report.ok:
                self.last_ok = self.last_end

    def forget(self) -> None:
        """Forgets what is known of the cluster."""
        self.plan = self.snapshot = self.bought = None
        self.breaker_open = False

    # -- gauges

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

    def wait_ends(self) -> Seen:
        """The last end for each reason; what no clock ends has none."""
        ends: dict[str, float] = {}
        reasons = [b.reason for b in self.plan.blocked] if self.plan is not None else []
        reasons += [m.waits for m in self.plan.moves if m.waits is not None] if self.plan is not None else []
        for reason in (*reasons, *filter(None, [self.held])):
            if (end := end_of(reason)) < inf:
                ends[reason.code.value] = max(end, ends.get(reason.code.value, 0.0))
        for code, end in sorted(ends.items()):
            yield end, {"reason": code}

    def domains_out(self) -> Seen:
        """1 for each."""
        for f in self.plan.findings if self.plan is not None else ():
            kind, _, domain = f.object.partition("/")
            if kind == "Domain":
                yield 1, {"domain": domain}

    def loss(self, value: Callable[[ConstraintResult], float]) -> Seen:
        """Of each namespace's constraint that is furthest from the best."""
        for namespace, c in self._worst().items():
            yield value(c), {"namespace": namespace}

    def blocked(self) -> Seen:
        """Pods that could have been victims."""
        return _by_reason(b.reason.code.value for b in self.plan.blocked) if self.plan is not None else ()

    def unfixable(self) -> Seen:
        """Constraints in scope that keep an excess, by the reasons given."""
        left = (c.reasons for c in self._in_scope() if c.residual_excess)
        return _by_reason(code for reasons in left for code in {r.code.value for r in reasons} or {"unknown"})

    def expected_duration(self) -> Seen:
        """Of the last plan, by the pods of its snapshot."""
        if self.plan is not None and self.snapshot is not None:
            yield pace(self.plan, self.snapshot, self.throttle()).seconds, {}

    def findings(self) -> Seen:
        """Findings by severity and code."""
        found = Counter((f.severity.value, f.code) for f in self.plan.findings) if self.plan else Counter()
        for (severity, code), n in sorted(found.items()):
            yield n, {"severity": severity, "code": code}

    def ages(self) -> Seen:
        """Ages of the watch caches."""
        for kind, age in sorted(self.cache_ages().items()):
            yield age, {"kind": kind}

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

    def per_constraint(self, value: Callable[[ConstraintResult], int]) -> Seen:
        """Where series of constraints are asked for."""
        worst = sorted(self._in_scope(), key=lambda c: (-c.excess, -c.skew, c.constraint.namespace))
        found: dict[tuple[str, str, str], int] = {}
        for c in worst[: self.constraint_series]:
            key = (c.constraint.namespace, ",".join(c.workloads), c.constraint.topology_key)
            # Revisions of one workload share the labels: the worse one counts.
            found[key] = max(found.get(key, 0), value(c))
        for (namespace, workload, key_), n in found.items():
            yield n, {"namespace": namespace, "workload": workload, "topology_key": key_}


def _by_reason(codes: Iterable[str]) -> Seen:
    return [(n, {"reason": code}) for code, n in sorted(Counter(codes).items())]


def _worst_namespaces(by: Counter[str]) -> Seen:
    worst = by.most_common()
    for namespace, n in worst[:_MOST_NAMESPACES]:
        yield n, {"namespace": namespace}
    if len(worst) > _MOST_NAMESPACES:
        yield sum(n for _, n in worst[_MOST_NAMESPACES:]), {"namespace": "other"}


def _of_plan(value: Callable[[Plan], float]) -> Callable[[State], Seen]:
    """A figure of the last plan; no series before the first plan."""
    return _known(lambda state: value(state.plan) if state.plan is not None else None)


def _known(value: Callable[[State], float | None]) -> Callable[[State], Seen]:
    """A single figure; no series while it is None."""

    def seen(state: State) -> Seen:
        found = value(state)
        return () if found is None else ((found, {}),)

    return seen


_BUILD = ((1, {"version": __version__, "python_version": python_version()}),)
Gauge = tuple[str, str, str, Callable[[State], Seen]]

GAUGES: tuple[Gauge, ...] = (
    ("build_info", "", "Version of the rebalancer; the value is always 1.", lambda _: _BUILD),
    ("snapshot_objects", "", "Objects of a kind in the last snapshot.", State.objects),
    ("unread_kinds", "", "1 for each kind that may not be read.", State.unread),
    ("constraints", "", "Spread constraints in scope by status.", State.constraints),
    (
        "excess_pods",
        "",
        "Excess of all constraints in scope: pods beyond what maxSkew allows; `run` follows it all the time.",
        State.excess,
    ),
    ("residual_excess_pods", "", "Excess that the last plan leaves.", _of_plan(lambda p: p.residual_excess)),
    ("namespace_excess_pods", "", "Excess per namespace, likewise.", State.namespace_excess),
    (
        "worst_domain_loss_ratio",
        "",
        "Share of pods lost if the fullest domain fails, of the namespace's worst constraint.",
        lambda s: s.loss(lambda c: c.worst_domain_loss),
    ),
    (
        "best_domain_loss_ratio",
        "",
        "Smallest share that any placement of the same constraint could have.",
        lambda s: s.loss(lambda c: c.best_domain_loss),
    ),
    ("blocked_pods", "", "Pods that could be victims and may not be, by reason.", State.blocked),
    (
        "wait_end_timestamp",
        "s",
        "When the last of what the last cycle left waiting may go, by reason.",
        State.wait_ends,
    ),
    ("unfixable_constraints", "", "Constraints that keep an excess, by reason.", State.unfixable),
    ("findings", "", "Findings of the last plan: what no eviction cures.", State.findings),
    (
        "irreplaceable_pods",
        "",
        "Pods per namespace that run and whose replacement would find no node now.",
        State.irreplaceable,
    ),
    (
        "domains_out",
        "",
        "1 for each domain (key=value) that is out: its nodes were shut, or somebody has said so.",
        State.domains_out,
    ),
    ("plan_evictions", "", "Evictions in the last plan.", _of_plan(lambda p: len(p.moves))),
    ("plan_waves", "", "Waves in the last plan.", _of_plan(lambda p: len(p.waves))),
    (
        "plan_waves_bound",
        "",
        "Waves that budgets and shares of owners take at least.",
        _of_plan(lambda p: p.waves_bound),
    ),
    (
        "plan_expected_duration",
        "s",
        "How long the last plan may take, if pods become Ready as they did before.",
        State.expected_duration,
    ),
    (
        "plan_lower_bound",
        "",
        "Evictions that the best final state needs at least.",
        _of_plan(lambda p: p.lower_bound),
    ),
    (
        "plan_gap",
        "",
        "Evictions of the last plan beyond its lower bound.",
        _of_plan(lambda p: max(0, len(p.moves) - p.lower_bound)),
    ),
    ("plan_optimal", "", "1 if it is proved that no plan does better.", _of_plan(lambda p: int(p.optimal))),
    ("last_cycle_timestamp", "s", "When the last cycle ended.", _known(lambda s: s.last_end or None)),
    (
        "last_success_timestamp",
        "s",
        "When the last cycle ended in which nothing failed.",
        _known(lambda s: s.last_ok or None),
    ),
    (
        "last_cycle_duration",
        "s",
        "How long the last cycle took.",
        _known(lambda s: s.last_seconds if s.last_end else None),
    ),
    (
        "excess_removed_per_eviction",
        "",
        "What the last disruption bought: excess removed, divided by pods evicted.",
        _known(lambda s: s.bought),
    ),
    (
        "leader",
        "",
        "1 if this instance leads, 0 if it stands by.",
        _known(lambda s: None if s.leading is None else int(s.leading)),
    ),
    (
        "breaker_open",
        "",
        "1 while the circuit breaker keeps evictions back.",
        _known(lambda s: int(s.breaker_open)),
    ),
    (
        "foreign_deletion_costs",
        "",
        "Pods whose deletion cost somebody else has set, of workloads whose scale-ins are steered.",
        _known(lambda s: s.foreign_costs),
    ),
    (
        "engine_agreement",
        "",
        "Share of the scheduler's last 1,000 decisions about pods that the engine agrees with.",
        State.agreement,
    ),
    ("cache_age", "s", "Time since the watch cache of a kind was last known to be current.", State.ages),
    (
        "constraint_skew",
        "",
        "Skew of the worst constraints, by workload.",
        lambda s: s.per_constraint(lambda c: c.skew),
    ),
    (
        "constraint_excess_pods",
        "",
        "Excess of the worst constraints, likewise.",
        lambda s: s.per_constraint(lambda c: c.excess),
    ),
)
"""Name without its prefix, unit, description, and where the values come from."""


def register(meter: Meter, state: State) -> None:
    """Makes all gauges of the state."""
    for name, unit, description, values in GAUGES:
        meter.create_observable_gauge(
            f"rebalancer.{name}", callbacks=[_observing(state, values)], unit=unit, description=description
        )


def _observing(
    state: State, values: Callable[[State], Seen]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, labels) for value, labels in values(state)]

    return observe
