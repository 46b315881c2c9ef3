"""States of the engine, compared: the same pods built afresh, all that a state holds, what it answers."""

from __future__ import annotations

from collections.abc import Hashable

from rebalancer.engine.framework import Frameworks, Scores
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate


def rebuilt(state: ClusterState) -> ClusterState:
    """A fresh state with the same pods."""
    fresh = ClusterState(state.snapshot, state.config)
    for key, placed in state.pods.items():
        fresh.add(key, placed.template, placed.row)
        if placed.terminating:
            fresh.terminate(key)
    for key, placed in state.nominated.items():
        fresh.nominate(key, placed.template, placed.row)
    return fresh


def answers(frameworks: Frameworks, templates: list[PodTemplate]) -> list[object]:
    """Feasible nodes and scores of some templates, as plain values."""
    found: list[object] = []
    for template in templates:
        framework = frameworks.of(template)
        feasible = framework.feasible(template)
        scores: Scores = framework.score(template, feasible)
        by_plugin = {name: values[feasible].tolist() for name, values in scores.by_plugin.items()}
        found.append((feasible.tolist(), by_plugin, scores.totals[feasible].tolist()))
    return found


def contents(state: ClusterState) -> object:
    """All that the state holds, as plain values."""
    columns = {str(k): state.requested[k].tolist() for k in state.requested if state.requested[k].any()}
    ports = {k: state.ports[k].tolist() for k in state.ports if state.ports[k].any()}
    volumes = state.volumes
    held = {k: v for k, v in volumes.holders.items() if v}
    attached = {k: volumes.attached[k].tolist() for k in volumes.attached if volumes.attached[k].any()}
    return columns, ports, held, attached, volumes.claims, dict(state.pods), dict(state.nominated)


def shares_a_port(state: ClusterState, key: Hashable, template: PodTemplate, row: int) -> bool:
    """Whether another pod of the node has one of the pod's host ports.

    Then the scheduler's books, and the state, depend on who came and went before: the port is free with the
    first to go. That is not for these tests.
    """
    beside = (p.template for k, p in state.pods.items() if p.row == row and k != key)
    return any(set(template.host_ports) & set(t.host_ports) for t in beside)
