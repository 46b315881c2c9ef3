"""What would have to change so that a replacement finds a node: a maxSkew, or one node."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugins.pod_topology_spread import HOSTNAME, PodTopologySpread
from rebalancer.engine.plugins.resources.node_resources_fit import NodeResourcesFit
from rebalancer.engine.shut_nodes import Shut
from rebalancer.findings.checks.replacing.kept import Kept
from rebalancer.findings.paste import entry
from rebalancer.findings.subject import Subject
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.spread.arrays import Bools, Ints

_NAMED = 3


def remedy(simulation: Simulation, subject: Subject, kept: Kept, shut: tuple[Shut, ...]) -> str:
    """In the state in which the pod is gone: what opens a node by itself. `shut`: why none is open."""
    found = [_skew(simulation, subject, kept), _node(simulation, kept, shut)]
    either = "\n# or ".join(filter(None, found))
    if not either:
        return "# no single change helps: two of these causes have to go"
    return either if found[0] else f"# {either}"


def _skew(simulation: Simulation, subject: Subject, kept: Kept) -> str:
    """The constraint whose maxSkew alone opens a node when it is raised, by the least."""
    state, new = simulation.state, kept.replacement
    if len(subject.template.spread) != len(new.spread):
        return ""
    asked = simulation.framework(new).questions(new)
    every = state.table.every
    spread = [q for q in asked if q.plugin == PodTopologySpread.name]
    others = every
    for question in asked:
        if question.plugin != PodTopologySpread.name:
            others = others & question.pass_
    hard = [i for i, c in enumerate(new.spread) if c.when_unsatisfiable == "DoNotSchedule"]
    best: tuple[int, int, int] | None = None
    for place, constraint in enumerate(state.constraints(new, hard=True)[: len(hard)]):
        open_ = others
        for i, question in enumerate(spread):
            if i != place:
                open_ = open_ & question.pass_
        group = Group(-1, constraint, state.eligible(new, constraint), state)
        needed = _needed(group, group.counts_once(state), open_, constraint.self_match(new.labels))
        if needed is not None and (best is None or needed - constraint.max_skew < best[0]):
            best = needed - constraint.max_skew, hard[place], needed
    return entry(subject, best[1], maxSkew=best[2]) if best is not None else ""


def _needed(group: Group, counts: Ints, open_: Bools, counts_itself: bool) -> int | None:
    """The lowest maxSkew with which the constraint admits one of the nodes."""
    domains = np.unique(group.domain_of[open_])
    domains = domains[domains >= 0]
    if not len(domains):
        return None
    return int(counts[domains].min()) + int(counts_itself) - group.minimum(counts)


def _node(simulation: Simulation, kept: Kept, shut: tuple[Shut, ...]) -> str:
    """Room on nodes where nothing else is missing, or one more node like one that is full or taken."""
    table, new = simulation.state.table, kept.replacement
    full = table.none
    for s in shut:
        if s.plugin == NodeResourcesFit.name:
            full = full | s.alone
    if full.any():
        names = [table.names[i] for i in np.flatnonzero(full)]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        which = ", ".join(names[:_NAMED]) + more
        return f"room for it on one of these nodes, or one more like them: {which}"
    # A new node is empty, and a host of its own.
    open_ = simulation.static(new)
    state = simulation.state
    for question, constraint in zip(
        (q for q in simulation.framework(new).questions(new) if q.plugin == PodTopologySpread.name),
        state.constraints(new, hard=True),
        strict=False,
    ):
        if constraint.topology_key != HOSTNAME:
            open_ = open_ & question.pass_
    if not open_.any():
        return ""
    return f"one more node like {table.names[int(np.flatnonzero(open_)[0])]}"
