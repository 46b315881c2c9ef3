"""What would have to change so that a replacement finds a node: a maxSkew, a cordon, or one node."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugins.node_unschedulable import CORDON, NodeUnschedulable
from rebalancer.engine.plugins.pod_topology_spread import HOSTNAME, PodTopologySpread
from rebalancer.engine.plugins.resources.node_resources_fit import NodeResourcesFit
from rebalancer.engine.plugins.taint_toleration import TaintToleration
from rebalancer.engine.shut_nodes import Shut
from rebalancer.findings.checks.replacing.kept import Kept
from rebalancer.findings.paste import entry
from rebalancer.findings.subject import Subject
from rebalancer.planner.cluster.groups import Group
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.spread.arrays import Bools, Ints
from rebalancer.spread.nodes import FILTERED_EFFECTS, tolerated

_NAMED = 3


def remedy(simulation: Simulation, subject: Subject, kept: Kept, shut: tuple[Shut, ...]) -> str:
    """In the state in which the pod is gone: what opens a node by itself. `shut`: why none is open."""
    paste = [_skew(simulation, subject, kept), _uncordon(simulation, kept)]
    found = [*paste, _node(simulation, kept, shut) or _single(simulation, shut)]
    either = "\n# or ".join(filter(None, found))
    if not either:
        return "# no single change helps: two of these causes have to go"
    return either if any(paste) else f"# {either}"


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


def _uncordon(simulation: Simulation, kept: Kept) -> str:
    """The command that opens a cordoned node to which nothing else is shut."""
    table, new = simulation.state.table, kept.replacement
    open_ = table.unschedulable
    for question in simulation.framework(new).questions(new):
        if question.plugin not in (NodeUnschedulable.name, TaintToleration.name):
            open_ = open_ & question.pass_
    for row in np.flatnonzero(open_).tolist():
        taints = (t for t in table.nodes[row].spec.taints if t.effect in FILTERED_EFFECTS)
        if all(t.key == CORDON.key or tolerated(t, new.tolerations) for t in taints):
            return f"kubectl uncordon {table.names[row]}"
    return ""


def _single(simulation: Simulation, shut: tuple[Shut, ...]) -> str:
    """Nodes that one cause alone shuts, whichever it is; maxSkew and room are told in other words."""
    for s in shut:
        if s.alone.any() and s.plugin not in (PodTopologySpread.name, NodeResourcesFit.name):
            return f"on {_names(simulation, s.alone)} only this has to go: {s.cause}"
    return ""


def _names(simulation: Simulation, nodes: Bools) -> str:
    names = [simulation.state.table.names[i] for i in np.flatnonzero(nodes)]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _node(simulation: Simulation, kept: Kept, shut: tuple[Shut, ...]) -> str:
    """Room on nodes where nothing else is missing, or one more node like one that is full or taken."""
    table, new = simulation.state.table, kept.replacement
    full = table.none
    for s in shut:
        if s.plugin == NodeResourcesFit.name:
            full = full | s.alone
    if full.any():
        return f"room for it on one of these nodes, or one more like them: {_names(simulation, full)}"
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
