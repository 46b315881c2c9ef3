"""What manifests come to on nodes that are given: their pods are placed, empty nodes first, as the scheduler
would, and those that find no node, or would find none again, are findings."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from rebalancer.drill.placing import Placing, by_template
from rebalancer.findings import order
from rebalancer.findings.checks.replacing import check as replacing
from rebalancer.findings.subject import REPLICATED, Subject, subjects
from rebalancer.findings.survey import Survey
from rebalancer.manifests.nodes import HOSTNAME, ZONE, GivenNodes
from rebalancer.model.finding import Finding
from rebalancer.model.kinds import KINDS, Object
from rebalancer.model.node import Node
from rebalancer.model.object_meta import OwnerReference
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot, build_snapshot
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions

_EVERYWHERE = PolicyOptions(namespaces_exclude=())
_MOST = 5_000
_KNOWN = frozenset({ZONE, HOSTNAME})


class OnNodes(NamedTuple):
    """`found`: the workloads of which a pod finds no node among those, or would not find one again.
    `not_judged`: how many workloads were left out."""

    found: list[Finding]
    not_judged: int


def on_nodes(objects: Iterable[Object], given: GivenNodes) -> OnNodes:
    """Places the pods of the manifests on the nodes, which are empty at first."""
    kept = [o for o in objects if not isinstance(o, Node | Pod)]
    empty = build_snapshot([*kept, *given.nodes], now=0.0, kinds=KINDS)
    simulation = Simulation(empty, None)
    every = subjects(empty, Evictable(empty, _EVERYWHERE).owners)
    every = [s for s in every if s.workload is not None and s.kind in REPLICATED and s.replicas]
    judged = [s for s in every if _suffice(s, simulation, counted=given.counted)]
    placing, table = Placing(simulation.state), simulation.state.table
    whose: dict[Hashable, tuple[Subject, int]] = {
        (s.object, i): (s, i) for s in judged for i in range(s.replicas)
    }
    left = placing.place(by_template((key, s.template) for key, (s, _) in whose.items()))
    pods = tuple(_pod(*whose[key], table.names[row]) for key, row in placing.placed.items())
    unplaced = {s.object: (s, len(w.keys)) for w in left for s, _ in [whose[w.keys[0]]]}
    found = _found(replace(empty, pods=pods), unplaced)
    return OnNodes(sorted(found, key=order), len(every) - len(judged))


def _found(placed: Snapshot, unplaced: dict[str, tuple[Subject, int]]) -> Iterator[Finding]:
    evictable = Evictable(placed, _EVERYWHERE)
    survey = Survey(Simulation(placed, None), evictable)
    for subject, number in unplaced.values():
        yield replacing.not_placed(survey.simulation, subject, number)
    for f in replacing.check(survey, evictable):
        if f.object not in unplaced:
            yield f


def _suffice(subject: Subject, simulation: Simulation, *, counted: bool) -> bool:
    """Whether manifests and nodes say where its pods can go: volumes that are nowhere, and pods that they
    want to be near, are not known, and of counted nodes no label but zone and name."""
    template, table = subject.template, simulation.state.table
    if subject.replicas > _MOST:
        return False
    if any(v.claim or v.kind == "ephemeral" for v in template.volumes) or template.scheduling_gates:
        return False
    if simulation.state.terms.of(template).required:
        return False
    if not counted:
        return True
    keys = {c.topology_key for c in simulation.state.constraints(template, hard=True)}
    return keys <= _KNOWN and bool(table.admitted(template).all())


def _pod(subject: Subject, number: int, node: str) -> Pod:
    """One as it runs on the node."""
    owner = subject.workload
    assert owner is not None
    return Pod(
        name=f"{owner.name}-{number}",
        namespace=owner.namespace,
        uid=f"{owner.key}/{number}",
        template=subject.template,
        node_name=node,
        phase="Running",
        ready=True,
        owner=OwnerReference(owner.kind, owner.name, owner.metadata.uid, controller=True),
    )
