"""All failures, as the cluster is and after a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from rebalancer.drill.after_plan import after_plan
from rebalancer.drill.at_rest import AtRest
from rebalancer.drill.budgets import breaches
from rebalancer.drill.failure import NODE, Failure, Manner, failures, keys_to_try
from rebalancer.drill.lost import Fate, Lost
from rebalancer.drill.replay import losses, replayed
from rebalancer.drill.results import Drill, Drilled
from rebalancer.drill.surely import surely_fine
from rebalancer.engine.config import SchedulerConfig
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.terminating import key_of
from rebalancer.planner.plan import Plan
from rebalancer.planner.progress import OnProgress, unwatched


def drill(
    snapshot: Snapshot,
    *,
    keys: Sequence[str] = (),
    manner: Manner = "silent",
    plan: Plan | None = None,
    scheduler: SchedulerConfig | None = None,
    on_progress: OnProgress = unwatched,
) -> Drill:
    """Lets every node or domain of the keys fail, one at a time.

    `keys`: NODE, labels of nodes, or KEY=VALUE for a single domain; by default nodes and every key of a
    spread constraint. With a `plan` all of it again as the plan leaves the cluster.
    """
    rest = AtRest(snapshot, scheduler, manner, on_progress)
    tried = tuple(keys) or keys_to_try(rest.state.table, _spread_keys(snapshot))
    today = tuple(_all(rest, tried))
    planned: tuple[Drilled, ...] = ()
    if plan is not None:
        after = after_plan(snapshot, plan)
        same = after is snapshot
        planned = today if same else tuple(_all(AtRest(after, scheduler, manner, on_progress), tried))
    return Drill(manner=manner, keys=tried, today=today, planned=planned, waiting=rest.waiting)


def _spread_keys(snapshot: Snapshot) -> Iterator[str]:
    yield "topology.kubernetes.io/zone"
    for template in {id(p.template): p.template for p in snapshot.pods}.values():
        yield from (c.topology_key for c in template.spread)


def _all(rest: AtRest, keys: Iterable[str]) -> Iterator[Drilled]:
    known = {NODE: _each_node} if rest.manner == "silent" else {}
    for key in keys:
        every = list(failures(rest.state.table, [key]))
        yield from known.get(key, _each)(rest, every)


def _each(rest: AtRest, every: Sequence[Failure]) -> Iterator[Drilled]:
    for failure in every:
        rest.on_progress()
        yield replayed(rest, failure)


def _each_node(rest: AtRest, every: Sequence[Failure]) -> Iterator[Drilled]:
    """Nodes whose pods surely find others are not replayed."""
    table = rest.state.table
    lost = [rest.owned.lost(pods) for pods in rest.on_node]
    fine = surely_fine(rest, lost)
    for failure in every:
        row = table.index[failure.value]
        rest.on_progress()
        yield _harmless(rest, failure, lost[row]) if fine[row] else replayed(rest, failure)


def _harmless(rest: AtRest, failure: Failure, lost: list[Lost]) -> Drilled:
    new: dict[Hashable, Lost] = {("new", key_of(one.pod)): one for one in lost}
    return Drilled(
        failure=failure,
        nodes=1,
        workloads=losses(rest, new, set(), set(), {}),
        breaches=breaches(rest, lost, [one for one in lost if one.fate is Fate.MADE]),
        waiting=rest.waiting,
    )
