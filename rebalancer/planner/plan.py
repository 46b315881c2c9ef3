"""What planning gives: moves in waves, the result for each constraint, and what is blocked and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal

import numpy as np
from msgspec import Struct

from rebalancer.engine.config import NO_WITNESS, SchedulerConfig, Witness
from rebalancer.model.node import HOSTNAME, Node
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import WOULD_NOT_HELP, Finding, Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.objective import OnProgress, unwatched
from rebalancer.policy.options import Method, PolicyOptions
from rebalancer.policy.replace_first import Release
from rebalancer.spread.constraint import Constraint, minimum

Status = Literal["balanced", "fixable", "partly-fixable", "unfixable"]


class Move(Struct, frozen=True, eq=False, kw_only=True):
    """Evict one pod; its replacement lands on one of `destinations`.

    `certain`: the scheduler's filter leaves no other node, and wherever on them this replacement and those of
    earlier moves land, the plan ends as it says. Otherwise (`likely`) that rests on the scheduler's scores,
    and the move is planned anew when its turn comes. `predicted` is the destination that the plan's own end
    state counts with. `fixes` are indices into the plan's `constraints`. Waves count from 1. `waits`: the cap
    that leaves the move to a later cycle, None if it may be made in this one. `approved`: by whom, if anybody
    had to. `worth`: how many pods fewer go with the fullest domain, for each eviction of its owner.
    `release_label`: the label whose loss makes the ReplicaSet let go of the pod, "" unless it is replaced
    first; `released`: as it runs on then. `awaits`: where (key=value) an autoscaler has to add a node for the
    replacement, which `destinations` stand for; empty: the node is there.
    """

    pod: Pod
    owner: Workload
    replacement: PodTemplate
    destinations: tuple[str, ...]
    predicted: str
    certain: bool
    wave: int
    fixes: tuple[int, ...]
    reason: str
    waits: Reason | None = None
    approved: str = ""
    worth: float = 0.0
    method: Method = Method.EVICT
    release_label: str = ""
    released: PodTemplate | None = None
    awaits: tuple[str, ...] = ()

    @property
    def release(self) -> Release | None:
        """How the pod is released, if it is replaced first."""
        return Release(self.release_label, self.released) if self.released is not None else None

    def came(self, node: Node) -> bool:
        """Whether this is such a node as is waited for."""
        keys = {d.partition("=")[0] for d in self.awaits} - {HOSTNAME}
        return node.name != self.pod.node_name and all(
            f"{k}={node.labels.get(k)}" in self.awaits for k in keys
        )


class ConstraintResult(Struct, frozen=True, eq=False, kw_only=True):
    """One constraint of the cluster: counts per domain now and after the plan, and what stays and why.

    Domains are the eligible ones, in natural order of their names. `worst_domain_loss` is the share of the
    counted pods that go with the fullest domain, `best_domain_loss` the smallest share that any placement
    over the eligible domains can have. `least_excess`: no placement leaves less; None: it was not asked.
    """

    constraint: Constraint
    workloads: tuple[str, ...]
    domains: Mapping[str, int]
    after: Mapping[str, int]
    skew: int
    excess: int
    residual_excess: int
    status: Status
    reasons: tuple[Reason, ...]
    worst_domain_loss: float
    best_domain_loss: float
    in_scope: bool = True
    least_excess: int | None = None

    @property
    def surplus(self) -> int:
        """Pods above what maxSkew allows beside the emptiest domain, over all domains. Each move that helps
        lowers it; the excess may stay the same until the last empty domain is filled."""
        counts = np.fromiter(self.domains.values(), np.int64)
        above = counts - minimum(counts, self.constraint.min_domains) - self.constraint.max_skew
        return int(np.maximum(above, 0).sum())

    @property
    def selector(self) -> str | None:
        """In kubectl's -l syntax; None if the constraint has none."""
        return str(self.constraint.selector) if self.constraint.selector is not None else None


def what_is_shown(constraints: Iterable[ConstraintResult]) -> str:
    """What a plan without moves has shown of the excess that stays, or why none of it may be touched."""
    stays = [c for c in constraints if c.in_scope and c.residual_excess]
    forbidden = dict.fromkeys(r.code for c in stays for r in c.reasons if r.code not in WOULD_NOT_HELP)
    if forbidden.keys() == {ReasonCode.NOT_IN_PLAN}:
        return "nothing of what was approved is left to evict"
    if forbidden:
        codes = (code.value for code in forbidden if code is not ReasonCode.NOT_IN_PLAN)
        return f"nothing more that helps may be evicted ({', '.join(codes)})"
    if any(c.least_excess is not None and c.least_excess < c.residual_excess for c in stays):
        return "no eviction was found that helps"
    return "no eviction helps"


class Refusal(Struct, frozen=True, eq=False):
    """A pod that is not moved, and why."""

    pod: Pod
    reason: Reason


class Demand(Struct, frozen=True):
    """What takes so many waves at least. `owner`: Kind/namespace/name, "" if it is about no single one;
    `reason`: as in "web's budget of 2 at a time"."""

    waves: int
    owner: str
    reason: str


class ComponentFigures(Struct, frozen=True, eq=False, kw_only=True):
    """What solving one component came to: groups that share pods, solved together.

    `groups` are indices into the plan's `constraints`; `pods` how many may move or count with them; `solver`
    is "closed form" or "HiGHS". `least`, `bound`: excess and moves of the best final state; `residual`,
    `moves`: those of the sequence that was found; `proved`: there is no better one.
    """

    groups: tuple[int, ...]
    pods: int
    domains: int
    solver: str
    bound: int
    least: int
    moves: int
    residual: int
    proved: bool

    @property
    def gap(self) -> int:
        """Moves beyond the bound."""
        return max(0, self.moves - self.bound)


class Cause(StrEnum):
    """Why an excess stays that some placement would not have; `words` says it after "for 3 of it"."""

    NOT_PLACED = "not-placed"
    FORBIDDEN = "forbidden"
    NOT_REACHABLE = "not-walkable"
    GAVE_UP = "search-gave-up"

    @property
    def words(self) -> str:
        """In plain words."""
        return _WORDS[self]


_WORDS = {
    Cause.NOT_PLACED: "whatever is evicted, the scheduler keeps pods out of where they would have to go, or "
    "another constraint would end worse",
    Cause.FORBIDDEN: "moves are forbidden: not certain, or in favour of Pending pods or leaving nodes",
    Cause.NOT_REACHABLE: "no order of evictions was found in which none does harm",
    Cause.GAVE_UP: "the search, or the proof, gave up (planner.effort)",
}


class Between(Struct, frozen=True):
    """How much excess lies between what stays and what no placement can beat, for one cause."""

    cause: Cause
    excess: int


class Plan(Struct, frozen=True, eq=False, kw_only=True):
    """The outcome of planning one snapshot.

    `lower_bound`: evictions that the best final state needs at least; `optimal`: no plan does better, proved.
    `assumptions`: what the prediction rests on, in sentences. `components`: those with an excess.
    `least_excess`: no placement leaves less excess of hard constraints in scope; `least_exact`: one leaves as
    much. `between`: why more stays. `demands`: why it takes more than one wave. `steps`: what it took
    (`planner.effort`). `new_nodes`: those that could be added, of which its move waits for one. `findings`
    are none of the planner's: `findings.plan_with_findings` joins them.
    """

    constraints: tuple[ConstraintResult, ...]
    moves: tuple[Move, ...]
    blocked: tuple[Refusal, ...]
    findings: tuple[Finding, ...] = ()
    lower_bound: int = 0
    optimal: bool = True
    assumptions: tuple[str, ...] = ()
    components: tuple[ComponentFigures, ...] = ()
    demands: tuple[Demand, ...] = ()
    least_excess: int = 0
    least_exact: bool = True
    between: tuple[Between, ...] = ()
    steps: int = 0
    new_nodes: tuple[Node, ...] = ()

    @property
    def excess(self) -> int:
        """Sum over the constraints in scope, now."""
        return sum(c.excess for c in self.constraints if c.in_scope)

    @property
    def residual_excess(self) -> int:
        """Sum over the constraints in scope, after the plan."""
        return sum(c.residual_excess for c in self.constraints if c.in_scope)

    @property
    def violated(self) -> int:
        """How many constraints in scope have an excess."""
        return sum(1 for c in self.constraints if c.in_scope and c.excess)

    @property
    def allowed(self) -> tuple[Move, ...]:
        """The moves that caps allow in this cycle."""
        return tuple(m for m in self.moves if m.waits is None)

    @property
    def waves(self) -> tuple[tuple[Move, ...], ...]:
        """The moves, wave by wave."""
        last = max((m.wave for m in self.moves), default=0)
        return tuple(tuple(m for m in self.moves if m.wave == w) for w in range(1, last + 1))

    @property
    def waves_bound(self) -> int:
        """Waves that these moves take at least."""
        return max((d.waves for d in self.demands), default=min(1, len(self.moves)))


# What an operator decides about planning.

Certainty = Literal["certain", "likely"]
SoftConstraints = Literal["ignore", "predicted"]
NewerVersions = Literal["likely", "refuse"]


class PlanOptions(Struct, frozen=True, kw_only=True):
    """How to plan.

    `certainty`: "certain" plans only moves that hold on every node the filter leaves, "likely" also those
    that hold on the best-scored nodes. `soft`: whether ScheduleAnyway constraints are balanced as well.
    `newer_versions`: what is done where the scheduler is a minor release newer than all known rules.
    `witness`: what the scheduler's own decisions have put in doubt.
    `effort`: candidate moves that the search tries per component
    before it settles for less. `proves`: whether it says what no placement beats, which may take longer than
    the plan. `on_progress` is called again and again while a plan is made, many times a
    second; what it raises ends the planning.
    """

    policy: PolicyOptions = PolicyOptions()
    certainty: Certainty = "certain"
    soft: SoftConstraints = "ignore"
    newer_versions: NewerVersions = "likely"
    scheduler: SchedulerConfig | None = None
    witness: Witness = NO_WITNESS
    effort: int = 2000
    proves: bool = True
    on_progress: OnProgress = unwatched


# Why a move is refused, in the words that every output shows.

_MESSAGES = {
    ReasonCode.WOULD_WORSEN: "its replacement could raise the excess of another constraint",
    ReasonCode.NODE_LEAVING: "its replacement could land on a node that is cordoned or about to go",
    ReasonCode.NODE_STARTING: "its replacement could land on a node that is still being set up, or on which "
    "a DaemonSet's pod is still to be made",
    ReasonCode.NODE_EXPIRING: "its replacement could land on a node that is about to be replaced: by "
    "Karpenter, as it has drifted or expires within an hour, or by a rollout of nodes",
    ReasonCode.NOT_CERTAIN: "where its replacement lands cannot be predicted with certainty",
    ReasonCode.NOT_NEEDED: "no eviction of it alone lowers the excess, nor one with others after it",
    ReasonCode.NOT_CARRIED: "is counted by the constraint but does not carry it: its replacement could land "
    "anywhere",
    ReasonCode.SIMULATION_LIMIT: "its move would do no harm by itself, but no sequence of moves was found "
    "that ends with less excess",
}
_REMEDIES = {
    ReasonCode.NO_FEASIBLE_NODE: "make room, or add a node, in the emptier domains",
    ReasonCode.PINNED_BY_VOLUME: "spread the volumes: a zonal volume keeps its pod in its zone",
    ReasonCode.NOT_CARRIED: "give these pods the constraint as well",
    ReasonCode.NODE_LEAVING: "let the drain end, or drop the toleration that admits such nodes",
    ReasonCode.NODE_STARTING: "wait until it is initialized and has its DaemonSets' pods, or drop the "
    "toleration that admits such nodes",
    ReasonCode.NODE_EXPIRING: "let the nodes be replaced; one that Karpenter leaves for an hour counts as "
    "staying",
    ReasonCode.NODE_NOT_READY: "mend the node, or drop the toleration that admits such nodes",
    ReasonCode.NODE_UNFIT: "keep its pods off such nodes, by a node selector in their template",
    ReasonCode.PENDING_PODS: "let the waiting pods be placed first",
    ReasonCode.NOT_CERTAIN: "planner.certainty: likely plans moves that hold on the best-scored nodes",
    ReasonCode.SIMULATION_LIMIT: "a larger planner.effort searches longer",
}


def reason(code: ReasonCode, message: str = "", *, remedy: str = "", **numbers: int) -> Reason:
    """The reason; without a message or remedy, with those that go with the code."""
    return Reason(
        code, message or _MESSAGES.get(code, code.value), numbers, remedy or _REMEDIES.get(code, "")
    )


def refused(pod: Pod, code: ReasonCode, message: str = "", *, remedy: str = "", **numbers: int) -> Refusal:
    """A pod that is not moved; without a message or remedy, with those that go with the code."""
    return Refusal(pod, reason(code, message, remedy=remedy, **numbers))


def comes_first(pod: Pod, other: Pod) -> Refusal:
    """A pod that stays in favour of one that waits for a node, that ends and is made again, or is to come."""
    what = _named(other)
    if other.uid:
        what = f"{other.key} {'waits for a node' if other.waits else 'ends and is made again'}, and"
    return refused(pod, ReasonCode.PENDING_PODS, f"{what} may take what the replacement needs")


def _named(other: Pod) -> str:
    """One that a move could harm, in words."""
    if not other.uid:
        return f"a pod to come of {other.key}"
    return f"{other.key}, which {'waits for a node' if other.waits else 'will be made anew'},"


def counted_by_then(pod: Pod, other: Pod) -> Refusal:
    """A pod that stays as its constraints will count another one, nobody knows where."""
    message = f"its constraints will count {_named(other)} wherever that goes: its replacement is made later"
    return refused(pod, ReasonCode.PENDING_PODS, message)


def leaves_out(pod: Pod, other: Pod) -> Refusal:
    """A pod that stays as its replacement could leave another one without a node: by its room, or as the two
    keep apart."""
    message = f"its replacement could take the place that {_named(other)} needs"
    return refused(pod, ReasonCode.PENDING_PODS, message)


def leaves_homeless(pod: Pod, other: Pod) -> Refusal:
    """A pod that stays as its replacement could leave no node to one that will lose its own."""
    message = f"its replacement could take the place that {other.key} needs, which a pod to come may preempt"
    return refused(pod, ReasonCode.PENDING_PODS, message)


def lets_preempt(pod: Pod, other: Pod) -> Refusal:
    """A pod that stays as another could then preempt its way in."""
    message = f"{_named(other)} could then preempt pods of lower priority"
    return refused(pod, ReasonCode.PENDING_PODS, message)


LET_LEAVE = "let the drain end"
LET_COME = "let the DaemonSet make its pods, or make room for them on that node"


def bars(others: Sequence[Pod]) -> str:
    """What keeps a pod: the replacement could find no node, as these may leave their nodes first."""
    leave = f"{others[0].key} leaves {others[0].node_name}, as it has to"
    if len(others) > 1:
        leave = f"such pods as {others[0].key} leave their nodes, as they have to"
    return f"its replacement may find no node once {leave}"


LAST_NEAR = "it is the last pod in its domain that another's required affinity names"


def left_alone(pod: Pod) -> Refusal:
    """A pod that stays for the sake of one that has to be near it."""
    return refused(pod, ReasonCode.WOULD_WORSEN, LAST_NEAR)


def crowded_out(pod: Pod) -> Refusal:
    """A pod whose move was planned and then not kept."""
    return Refusal(
        pod,
        Reason(
            ReasonCode.NO_FEASIBLE_NODE,
            "in no wave would its replacement surely find room, and leave others theirs: of the plan, or "
            "pods that will be made anew",
            {},
            "the next cycle plans it anew",
        ),
    )


# The domains that a pod leaves. Caps count by them, and the ledger records them.


def domains_left(snapshot: Snapshot, plan: Plan) -> Callable[[Move], list[str]]:
    """For a move of the plan: the domains (key=value) that the pod leaves, by the constraints that the move
    mends."""
    labels = {n.name: n.labels for n in snapshot.nodes}

    def left(move: Move) -> list[str]:
        here = labels.get(move.pod.node_name, {})
        keys = (plan.constraints[i].constraint.topology_key for i in move.fixes)
        return [f"{k}={here[k]}" for k in dict.fromkeys(keys) if k in here]

    return left


def domains_reached(
    plan: Plan, labels: Mapping[str, Mapping[str, str]], move: Move, nodes: Iterable[str]
) -> frozenset[str]:
    """The domains (key=value) of the constraints that the move mends, on these nodes."""
    keys = {plan.constraints[i].constraint.topology_key for i in move.fixes}
    if move.awaits:
        return frozenset(d for d in move.awaits if d.partition("=")[0] in keys)
    return frozenset(f"{key}={labels.get(node, {}).get(key, '')}" for key in keys for node in nodes)
