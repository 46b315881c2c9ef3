"""A cluster drilled: its failures today, and after the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rebalancer.drill import Drill, drill
from rebalancer.drill.failure import NODE, Manner
from rebalancer.errors import UserError
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.report.wording.text import listing
from rebalancer.runtime.commands.topology_keys import full_key
from rebalancer.runtime.cycle.snapshot_checks import check_readable


def _some(what: str, names: Iterable[str]) -> str:
    """What there is instead, for a person who mistyped."""
    return f"{what} are {listing(sorted(set(names)), 5)}"


def drilled(
    snapshot: Snapshot,
    options: PlanOptions,
    *,
    plan: Plan | None,
    nodes: bool = False,
    domains: Sequence[str] = (),
    manner: Manner = "silent",
) -> Drill:
    """Lets fail, one at a time: every node (`nodes`), every domain of the labels, or that of KEY=VALUE; all
    of them if neither is asked for. Raises UserError if no node has a label, or that value of it."""
    check_readable(snapshot)
    keys = [*([NODE] if nodes else []), *map(full_key, domains)]
    for asked in keys:
        key, _, value = asked.partition("=")
        if key == NODE:
            if value and all(n.name != value for n in snapshot.nodes):
                raise UserError(
                    f"no node is called {value}", _some("nodes", (n.name for n in snapshot.nodes))
                )
            continue
        values = {n.labels[key] for n in snapshot.nodes if key in n.labels}
        if not values:
            raise UserError(
                f"no node has the label {key}", _some("labels", (k for n in snapshot.nodes for k in n.labels))
            )
        if value and value not in values:
            raise UserError(f"no node has the label {asked}", _some(f"values of {key}", values))
    return drill(
        snapshot,
        keys=keys,
        manner=manner,
        plan=plan,
        scheduler=options.scheduler,
        on_progress=options.on_progress,
    )
