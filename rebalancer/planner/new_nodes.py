"""A move whose replacement waits for a node that an autoscaler has yet to add (evictions.intoNewNodes).

Planned only where nothing else helps, one at a time in the cluster, and only by replace first: the old pod
runs and serves until the new one is available, and if no node comes, it is given back to its ReplicaSet. So
no pod that ran ends Pending.

What Karpenter could add is a node for each NodePool and each place that its requirements allow. Such nodes,
empty, stand beside those of the cluster for this plan alone, so that the engine's own filters say which of
them would take the replacement: it has to help on all of them. No node that is there may take it, for there
the scheduler would not wait; and nobody may be preempted by it meanwhile.

cluster-autoscaler does not show where its groups add nodes: where it runs, nothing waits for a node.

Rule: karpenter pkg/controllers/provisioning/scheduling (a pool's requirements, taints and limits against the
pod; a label that the pool does not define is taken for open only if it is well-known).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from msgspec.structs import replace

from rebalancer.model.node import (
    HOSTNAME,
    INITIALIZED,
    NODEPOOL,
    REGION,
    ZONE,
    Node,
    NodePool,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
)
from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.storage import CSINode, CSINodeDriver, CSINodeSpec
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.constraints import View
from rebalancer.planner.plan import ConstraintResult, Move, Plan, PlanOptions, Refusal, Status
from rebalancer.policy.options import Approved, Method
from rebalancer.policy.release import released_of
from rebalancer.policy.replace_first import Release
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import Constraint, beyond, lowest

_ALIKE = ("kubernetes.io/os", "kubernetes.io/arch")
_SIZES = {"cpu": 1_000_000, "memory": 1 << 42, "ephemeral-storage": 1 << 42, "pods": 1000}
"""What a node has of which its pool says nothing, in the scheduler's integers: no instance type is read."""
_MOST = 200
_TRIES = 5
"""Owners whose moves may turn out not to do."""
_APP = ("app.kubernetes.io/name", "app", "k8s-app")


def with_nodes(snapshot: Snapshot, added: Sequence[Node]) -> Snapshot:
    """The snapshot with these nodes, which are empty, and have the CSI drivers of the others."""
    nodes = tuple(sorted((*snapshot.nodes, *added), key=lambda n: n.name))
    names = {d.name for n in snapshot.csi_nodes.values() for d in n.spec.drivers}
    spec = CSINodeSpec(tuple(map(CSINodeDriver, sorted(names))))
    theirs = {n.name: CSINode(n.metadata, spec) for n in added} if names else {}
    return replace(snapshot, nodes=nodes, csi_nodes={**snapshot.csi_nodes, **theirs})


def cluster_autoscaler(snapshot: Snapshot) -> bool:
    """Whether its pods run in the cluster."""
    templates = (g.template.labels for g in snapshot.live)
    return any("cluster-autoscaler" in labels.get(k, "") for labels in templates for k in _APP)


def could_preempt(simulation: Simulation, replacement: PodTemplate) -> str:
    """Whom the pod could preempt while it waits, now or once they come; "" if nobody."""
    if not replacement.preempts:
        return ""
    state, lower = simulation.state, replacement.priority
    if state.lowest_priority < lower:
        return "pods of lower priority run"
    classes, default = state.snapshot.priority_classes.values(), state.snapshot.default_class
    named = next((c.metadata.name for c in classes if c.value < lower), "")
    usual = default.value if default is not None else 0
    return f"PriorityClass {named} is lower" if named else "pods without a class are lower" * (usual < lower)


def possible_nodes(snapshot: Snapshot, replacements: Collection[PodTemplate]) -> tuple[Node, ...]:
    """What NodePools could add for one of these pods: a node for each pool, and each place that it allows and
    that the cluster, or the pool, knows; none where these are too many. A pod's own choice among what a pool
    leaves open is granted."""
    keys = sorted({c.topology_key for t in replacements for c in t.spread} - {ZONE, REGION, HOSTNAME})
    alike = {k: {n.labels.get(k, "") for n in snapshot.nodes} for k in _ALIKE}
    common = {k: next(iter(v)) for k, v in alike.items() if len(v) == 1}
    found: dict[tuple[tuple[str, str], ...], Node] = {}
    names = Counter[str]()
    for pool in sorted(snapshot.node_pools, key=lambda p: p.metadata.name):
        if not pool.works or pool.left.get("nodes", 1) < 1:
            continue
        own = {k: v for k, v in common.items() if pool.adds({k: v})} | pool.labels
        status = NodeStatus(allocatable=_size(pool, snapshot.nodes))
        choices = dict.fromkeys(tuple(_asked(t, pool)) for t in replacements)
        for asked, place in product(choices, _places(pool, keys, snapshot.nodes)):
            labels = {**own, **dict(asked), **place}
            alone = tuple(sorted({**labels, NODEPOOL: pool.metadata.name}.items()))
            if not pool.adds(labels) or alone in found:
                continue
            if len(found) >= _MOST:
                return ()
            where = ", ".join(v for k, v in place.items() if k != REGION)
            name = f"new node of NodePool {pool.metadata.name}" + (f" in {where}" if where else "")
            names[name] += 1
            name += f" ({names[name]})" if names[name] > 1 else ""
            labels |= {NODEPOOL: pool.metadata.name, INITIALIZED: "true", HOSTNAME: name}
            spec = NodeSpec(taints=pool.spec.template.spec.taints)
            found[alone] = Node(ObjectMeta(name=name, labels=labels), spec, status)
    return tuple(found.values())


def _places(pool: NodePool, keys: Iterable[str], nodes: Sequence[Node]) -> Iterator[dict[str, str]]:
    """Zones with their regions, of nodes that are there or named by the pool, and values of the other keys in
    all combinations, as far as its nodes have them."""
    zones = {tuple((k, n.labels[k]) for k in (ZONE, REGION) if k in n.labels): None for n in nodes}
    known = {pair for place in zones for pair in place}
    zones |= {((ZONE, v),): None for v in pool.values(ZONE) if (ZONE, v) not in known}
    others = []
    for key in filter(pool.defines, keys):
        values = pool.values(key) or sorted({n.labels[key] for n in nodes if key in n.labels})
        others.append([(key, v) for v in values])
    for zone, rest in product(zones, product(*others)):
        yield {**dict(zone), **dict(rest)}


def _asked(template: PodTemplate, pool: NodePool) -> Iterator[tuple[str, str]]:
    """What the pod asks of a node's labels, and the pool leaves open: the first that it may have."""
    yield from ((k, v) for k, v in sorted(template.node_selector.items()) if pool.adds({k: v}))
    affinity = template.affinity.node_affinity if template.affinity is not None else None
    required = affinity.required if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for r in term.match_expressions:
            open_ = (v for v in r.values if r.operator == "In" and pool.adds({r.key: v}))
            yield from ((r.key, v) for v in [*open_][:1])


def _size(pool: NodePool, nodes: Iterable[Node]) -> dict[str, str | int | float]:
    """As much as its limits leave; of devices what its nodes have."""
    sizes = dict(_SIZES)
    for node in nodes:
        if node.labels.get(NODEPOOL) == pool.metadata.name:
            for r, n in node.allocatable.items():
                sizes[r] = max(sizes.get(r, 0), n)
    sizes |= {r: max(0, min(n, sizes[r])) for r, n in pool.left.items() if r in sizes}
    return {r: f"{n}m" if r == "cpu" else n for r, n in sizes.items()}


# One move, found by planning with these nodes beside those that are there.


def into_new_node(
    view: View, options: PlanOptions, made: Plan, plan: Callable[[Snapshot, PlanOptions], Plan]
) -> Plan:
    """`made`, which has no moves, with one that waits for a node; or with why there is none. `plan`: makes a
    plan of a snapshot."""
    snapshot, owners = view.snapshot, view.evictable.owners
    stuck = [b.pod for b in made.blocked if b.reason.code in _NO_NODE]
    if not stuck or not (any(p.works for p in snapshot.node_pools) or cluster_autoscaler(snapshot)):
        return made
    policy = replace(options.policy, auto_first=True)
    first, replacements = view.evictable.replace_first, view.evictable.replacements
    why: dict[str, str] = {}
    movers: dict[str, tuple[str, PodTemplate]] = {}
    for pod in stuck:
        owner, how = owners.of(pod), first.of(pod, auto_first=True)
        new = replacements.of(pod.template, owner) if owner is not None else pod.template
        top = owners.top(owner).key if owner is not None else ""
        if not isinstance(how, Release):
            why[top] = how.message if how is not None else "its pods are evicted, not replaced first"
        elif preempted := could_preempt(view.simulation, new):
            why[top] = f"the waiting replacement could preempt others: {preempted}"
        else:
            movers[pod.uid] = top, new
    if movers and (reason := _nobody(snapshot)):
        why, movers = {top: reason for top, _ in movers.values()}, {}
    new_nodes = possible_nodes(snapshot, [t for _, t in movers.values()]) if movers else ()
    beside = with_nodes(snapshot, new_nodes)
    for _ in range(_TRIES if new_nodes else 0):
        allowed = replace(policy, approved=Approved(frozenset(movers), "the plan"))
        found = plan(beside, replace(options, certainty="certain", soft="ignore", policy=allowed))
        why |= {movers[b.pod.uid][0]: b.reason.message for b in found.blocked if b.pod.uid in movers}
        if not found.moves:
            break
        move = found.moves[0]
        if not (reason := _does_not_do(view, options, move, new_nodes)):
            fixes = [i for i, c in enumerate(made.constraints) if c.residual_excess and _in(found, move, c)]
            if fixes:
                return _with(made, replace(move, fixes=tuple(fixes)), found, new_nodes, snapshot)
            reason = "it mends nothing that is violated now"
        why[move.owner.key] = reason
        movers = {uid: m for uid, m in movers.items() if m[0] != move.owner.key}
    return replace(made, constraints=tuple(_saying(c, why) for c in made.constraints))


_NO_NODE = (ReasonCode.NO_FEASIBLE_NODE, ReasonCode.NEEDS_PREEMPTION)


def _nobody(snapshot: Snapshot) -> str:
    """Why no move waits for a node, whatever it is about."""
    if cluster_autoscaler(snapshot):
        return "cluster-autoscaler runs, and does not show where its groups add nodes"
    if (pod := next((p for p, *_ in released_of(snapshot)), None)) is not None:
        return f"{pod.key} is released, and one such move is made at a time"
    return ""


def _does_not_do(view: View, options: PlanOptions, move: Move, new: Sequence[Node]) -> str:
    """Why the first move of the plan with further nodes cannot be made to wait for one of them."""
    if move.method is not Method.REPLACE_FIRST:
        return "replaced first it would not help"
    if not {n.name for n in new}.issuperset(move.destinations):
        return "not only new nodes would take its replacement"
    if _landing(view.simulation, move).any():
        return "a node that is there would take its replacement"
    keys = {c.topology_key for c in move.replacement.spread} - {HOSTNAME}
    seen = {(k, n.labels.get(k)) for n in view.snapshot.nodes for k in keys}
    known = [n for n in new if all((k, n.labels.get(k)) in seen for k in keys)]
    if len(known) < len(new):
        # A domain counts from its first node on: without one of it, others may be open.
        simulation = Simulation(with_nodes(view.snapshot, known), options.scheduler, options.on_progress)
        if _landing(simulation, move).any():
            return "the node could come where no node is yet, or not, and where that does not help"
    return ""


def _landing(simulation: Simulation, move: Move) -> Bools:
    landing = simulation.landing(move.pod, move.replacement, after_gone=False, release=move.release)
    return landing.anywhere


def _in(found: Plan, move: Move, c: ConstraintResult) -> bool:
    """Whether a plan's move mends the constraint."""
    return any(found.constraints[i].constraint == c.constraint for i in move.fixes)


def _with(made: Plan, move: Move, found: Plan, new: Sequence[Node], snapshot: Snapshot) -> Plan:
    """The plan with this move alone."""
    nodes = {n.name: n.labels for n in (*snapshot.nodes, *new)}
    counting = (c.constraint for c in found.constraints if c.constraint.hard)
    labels = move.pod.template.labels
    keys = {c.topology_key for c in counting if c.counts(move.pod.namespace, labels)}
    awaits = {f"{k}={nodes[d][k]}" for k in keys for d in move.destinations if k in nodes[d]}
    move = replace(
        move,
        awaits=tuple(sorted(awaits)),
        certain=False,
        wave=1,
        reason=f"{move.reason}, and waits for a node",
    )
    left, entered = nodes[move.pod.node_name], nodes[move.predicted]
    constraints = tuple(
        _after(c, left.get(c.constraint.topology_key, ""), entered.get(c.constraint.topology_key, ""))
        if c.constraint.counts(move.pod.namespace, labels)
        else c
        for c in made.constraints
    )
    residual = sum(c.residual_excess for c in constraints if c.in_scope)
    pools = {p.metadata.name: p for p in snapshot.node_pools}
    used = sorted({n.labels[NODEPOOL] for n in new if n.name in move.destinations})
    return replace(
        made,
        constraints=constraints,
        moves=(move,),
        blocked=_still_blocked(made, move, constraints),
        lower_bound=max(1, made.lower_bound),
        optimal=False,
        least_excess=min(made.least_excess, residual),
        least_exact=False,
        between=(),
        assumptions=(
            *dict.fromkeys((*made.assumptions, *found.assumptions)),
            *(_assumed(pools[name]) for name in used),
        ),
        new_nodes=tuple(new),
    )


def _still_blocked(made: Plan, move: Move, constraints: Iterable[ConstraintResult]) -> tuple[Refusal, ...]:
    """Of whom it is still to be said why they are not moved: others than this one, whose excess stays."""
    left = defaultdict[str, list[Constraint]](list)
    for c in constraints:
        if c.residual_excess:
            left[c.constraint.namespace].append(c.constraint)
    return tuple(
        b
        for b in made.blocked
        if b.pod.uid != move.pod.uid
        and (
            b.reason.code not in _NO_NODE
            or any(c.counts(b.pod.namespace, b.pod.template.labels) for c in left[b.pod.namespace])
        )
    )


def _assumed(pool: NodePool) -> str:
    name = pool.metadata.name
    zones = "" if pool.names(ZONE) else ", and in no other zones than the cluster's nodes are in"
    return (
        f"Karpenter adds a node of NodePool {name} for a replacement that waits: one of its instance types "
        f"is large enough and to be had{zones}; no other autoscaler adds one"
    )


def _after(c: ConstraintResult, left: str, entered: str) -> ConstraintResult:
    """The result with one pod moved."""
    after = dict(c.after)
    if left in after:
        after[left] -= 1
    if entered in after or (entered and c.excess):
        after[entered] = after.get(entered, 0) + 1
    least = lowest(min(after.values(), default=0), len(after), c.constraint.min_domains)
    residual = beyond(max(after.values(), default=0), least, c.constraint.max_skew)
    status: Status = "fixable" if not residual else "partly-fixable" if residual < c.excess else "unfixable"
    kept = c.least_excess if c.least_excess is None else min(c.least_excess, residual)
    return replace(
        c,
        after=after,
        residual_excess=residual,
        status=status if residual or c.excess else "balanced",
        reasons=c.reasons if residual else (),
        least_excess=kept,
    )


def _saying(c: ConstraintResult, why: Mapping[str, str]) -> ConstraintResult:
    """The result, with why no move of its workloads waits for a node."""
    keys = (f"{w.partition('/')[0]}/{c.constraint.namespace}/{w.partition('/')[2]}" for w in c.workloads)
    said = next((why[k] for k in keys if k in why), "")
    if not said or not c.residual_excess:
        return c
    more = f"; none is waited for (evictions.intoNewNodes): {said}"
    reasons = (
        Reason(r.code, r.message + more, r.numbers, r.remedy) if r.code in _NO_NODE else r for r in c.reasons
    )
    return replace(c, reasons=tuple(reasons))
