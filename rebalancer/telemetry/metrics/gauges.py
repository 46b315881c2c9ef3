"""The gauges, and where their values come from. They are observed: a namespace that is gone has no series."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from rebalancer.planner.plan import Plan
from rebalancer.telemetry.metrics.state import Seen, State


def _of_plan(value: Callable[[Plan], float]) -> Callable[[State], Seen]:
    """A figure of the last plan; no series before the first plan."""
    return _known(lambda state: value(state.plan) if state.plan is not None else None)


def _known(value: Callable[[State], float | None]) -> Callable[[State], Seen]:
    """A single figure; no series while it is None."""

    def seen(state: State) -> Seen:
        found = value(state)
        return () if found is None else ((found, {}),)

    return seen


Gauge = tuple[str, str, str, Callable[[State], Seen]]

GAUGES: tuple[Gauge, ...] = (
    ("build_info", "", "Version of the rebalancer; the value is always 1.", State.build_info),
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
        State.worst_loss,
    ),
    (
        "best_domain_loss_ratio",
        "",
        "Smallest share that any placement of the same constraint could have.",
        State.best_loss,
    ),
    ("blocked_pods", "", "Pods that could be victims and may not be, by reason.", State.blocked),
    ("unfixable_constraints", "", "Constraints that keep an excess, by reason.", State.unfixable),
    ("findings", "", "Findings of the last plan: what no eviction cures.", State.findings),
    (
        "irreplaceable_pods",
        "",
        "Pods per namespace that run and whose replacement would find no node now.",
        State.irreplaceable,
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
    ("constraint_skew", "", "Skew of the worst constraints, by workload.", State.skew),
    ("constraint_excess_pods", "", "Excess of the worst constraints, likewise.", State.constraint_excess),
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
