"""Everything that can say no to an eviction, in one table, in the order in which it is asked.

A plan asks its part of every pod; a cycle that begins to carry out a plan asks its own; before each request
that can evict a pod, the first and every further one, all are asked (`runtime.cycle.gates.Permission`). Each
goes by the settings of this moment beside those of the cycle: what became stricter binds the next eviction,
what became looser waits for the next cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from msgspec.structs import replace

from rebalancer.engine.config import DEFAULT_CONFIG
from rebalancer.engine.version import ServerVersion
from rebalancer.errors import UserError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.reason import BEFORE_REQUESTS, Check, Moment, Reason, ReasonCode, first_no
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.constraints import policy_for
from rebalancer.planner.plan import Move, Plan, PlanOptions, domains_left, domains_reached
from rebalancer.policy.budgets import InFlight
from rebalancer.policy.caps import Caps, outside
from rebalancer.policy.evictable import PROTECTIONS, Evictable
from rebalancer.policy.history.waits import HistoryRules, end_of, together
from rebalancer.policy.options import ApprovalRules, Method, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.replace_first import Release
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates import STOP, Away, FreshLook, PauseCheck
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.last_look.health import Health
from rebalancer.runtime.last_look.look import LOOK, LastLook, Looking
from rebalancer.runtime.live.approval import Approvals
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.observers.neighbours import held_by_descheduler


class CycleChecks:
    """The checks of one cycle, made when it begins. `newest`: the settings of this moment, None where they do
    not change; it raises UserError where they cannot be used. What is None is not asked."""

    def __init__(
        self,
        options: LiveOptions,
        clock: Clock,
        *,
        newest: Callable[[], LiveOptions] | None = None,
        leading: Callable[[], bool] | None = None,
        memory: Memory | None = None,
        cache: WatchCache | None = None,
        health: Health | None = None,
        approvals: Approvals | None = None,
        pause: PauseCheck | None = None,
        reviewed: bool = False,
    ) -> None:
        """`reviewed`: only pods go that a person has looked at."""
        self.options = options
        self.reviewed = reviewed
        self.clock = clock
        self.began = clock.monotonic()
        self.newest = newest or (lambda: options)
        self.leading = leading or (lambda: True)
        self.memory = memory or Memory(clock, HistoryRules())
        self.cache = cache
        self.health = health
        self.approvals = approvals
        self.pause = pause

    def closed(self) -> Reason | None:
        """Why no plan may be carried out now. Raises KubeError."""
        no = first_no(CHECKS, Moment.START, Asked(self))
        return no[1] if no is not None else None

    def in_force(self) -> tuple[LiveOptions, ...]:
        """The settings of the cycle and those of this moment; what either forbids is forbidden."""
        try:
            newest = self.newest()
        except UserError:
            return (self.options,)  # `_settings` says so
        return (self.options, newest) if newest != self.options else (self.options,)

    def asked_for(self, move: Move) -> list[ApprovalRules]:
        """By what an approval of this move is asked for."""
        rules = (o.planning.policy.approval for o in self.in_force())
        return [r for r in rules if r.ask(move.pod.namespace)]

    def begin(self) -> None:
        """Reads what takes a request, while others read."""
        for one in (self.health, self.pause):
            if one is not None:
                one.begin()


class PlanChecks(FreshLook):
    """The checks, asked of the moves of one plan. `look`: made for it."""

    def __init__(self, cycle: CycleChecks, snapshot: Snapshot, plan: Plan, look: LastLook) -> None:
        super().__init__(cycle.clock)
        self.cycle = cycle
        self.snapshot = snapshot
        self.look = look
        self.plan = plan
        self.leaves = domains_left(snapshot, plan)
        self.earlier = cycle.memory.earlier()
        self._counted: tuple[PolicyOptions, Owners] | None = None
        self._waits: tuple[HistoryRules, Mapping[str, Reason]] | None = None

    def first_no(self, moment: Moment, move: Move, away: Away) -> tuple[Check, Reason] | None:
        checks = CHECKS
        if move.method is Method.REPLACE_FIRST:
            checks = RELEASE if move.pod.owner is not None else REMOVE if move.pod.finished else FINISH
        return first_no(checks, moment, AskedOfMove(self, move, away))

    def destinations(self, move: Move) -> tuple[str, ...]:
        return self.look.destinations(move)

    def rather(self, move: Move) -> str:
        """Nobody, where a person has chosen the pods that go."""
        chosen = self.cycle.reviewed or self.cycle.asked_for(move)
        return "" if chosen else self.look.room.rather(move.pod)

    def why_back(self, move: Move, pod: Pod, label: str, *, pending: bool) -> Reason | None:
        room, policy = self.look.room, self.cycle.options.planning.policy
        judged = Evictable(room.kin(pod, self.look.now()), replace(policy, label_users=self.label_users))
        reason = judged.replace_first.asked_for(pod, label)
        return room.preempts(move) if reason is None and pending and move.awaits else reason

    def may_overlap(self, move: Move, away: Away) -> bool:
        return self.look.room.may_overlap(move, away)

    def policies(self) -> list[PolicyOptions]:
        """Those in force, for the version that the API server has now."""
        cache = self.cycle.cache
        version = ServerVersion.parse(
            (cache.server_version if cache is not None else "") or self.snapshot.server_version
        )
        every = (policy_for(version, o.planning) for o in self.cycle.in_force())
        refused = self.cycle.memory.refused
        return [replace(policy, label_users=self.label_users, refused=refused) for policy in every]

    def changed(self) -> tuple[PolicyOptions, Owners] | None:
        """The policy of this moment, and the owners by it; None if that is what was planned with: the
        plan has kept its caps."""
        planned, *more = self.policies()
        if not more or planned == more[-1]:
            return None
        if self._counted is None or self._counted[0] != more[-1]:
            self._counted = more[-1], Owners(self.snapshot, more[-1])
        return self._counted

    def waits(self) -> Mapping[str, Reason]:
        """Owner → what it waits for by rules that became stricter; the plan has kept those that it was made
        by."""
        memory = self.cycle.memory
        if (rules := memory.in_force) == memory.rules:
            return {}
        if self._waits is None or self._waits[0] != rules:
            self._waits = rules, memory.waits(self.snapshot, self.plan, {})
        return self._waits[1]


class Asked:
    """What the checks of a cycle are asked about, once."""

    def __init__(self, cycle: CycleChecks) -> None:
        self.cycle = cycle
        self.clock = cycle.clock


class AskedOfMove(Asked):
    """What the checks of one move are asked about, before one request."""

    def __init__(self, plan: PlanChecks, move: Move, away: Away) -> None:
        super().__init__(plan.cycle)
        self.plan, self.move, self.away = plan, move, away

    @property
    def nodes(self) -> Sequence[Node]:
        """As they are now."""
        cache = self.cycle.cache
        return cache.nodes() if cache is not None else self.plan.snapshot.nodes

    @cached_property
    def looking(self) -> Looking:
        """The look, which begins when it is first asked for."""
        cycle = self.cycle
        return Looking(
            self.plan.look,
            self.move,
            self.away,
            self.plan.policies,
            cycle.begin,
        )


# What concerns all evictions of a cycle.


def _settings(a: Asked) -> Reason | None:
    try:
        newest = a.cycle.newest()
    except UserError as e:
        say = f"the settings have changed and cannot be used: {e.message}"
        return Reason(ReasonCode.SETTINGS_INVALID, say, remedy="correct them; nothing is evicted until then")
    say = "evictions.enabled is false now, or no longer in the settings file"
    return Reason(ReasonCode.EVICTIONS_DISABLED, say) if not newest.execute else None


def _time(a: Asked) -> Reason | None:
    seconds = min((o.max_time for o in a.cycle.in_force() if o.max_time is not None), default=None)
    if seconds is None or a.clock.monotonic() < a.cycle.began + seconds:
        return None
    return Reason(
        ReasonCode.CYCLE_TIME,
        f"the cycle has taken {seconds:.0f} s, which is all it may",
        {"seconds": int(seconds)},
        "the next cycle goes on; see schedule.maxCycleTime",
    )


def _windows(a: Asked) -> Reason | None:
    every = (o.windows for o in a.cycle.in_force() if o.windows)
    return next(filter(None, (outside(w, a.clock.now(), a.clock.latest()) for w in every)), None)


def _descheduler(a: Asked) -> Reason | None:
    cache = a.cycle.cache
    if cache is None or all(o.beside_descheduler for o in a.cycle.in_force()):
        return None
    return held_by_descheduler(cache.pods().values())


# What concerns one move, by the policy of this moment.


def _out(a: AskedOfMove) -> Reason | None:
    cycle = a.cycle
    taken_out = cycle.pause.out if cycle.pause is not None else {}
    reasons = cycle.memory.out_for(a.move.replacement, a.nodes, taken_out)
    return together({"": reasons.values()})[""] if reasons else None


def _planner(a: AskedOfMove) -> Reason | None:
    """What a plan by the settings of this moment would not have. Others are in the plan."""
    move, began = a.move, a.cycle.options.planning
    first = partial(_first_by_now, move.pod, began.policy.method)
    if move.method is Method.EVICT and (later := a.looking.protects(first)) is not None:
        return later
    for now in (o.planning for o in a.cycle.in_force()[1:]):
        if now.soft == "ignore" and a.plan.look.room.soft(move):
            say = f"{move.pod.key} serves soft constraints only, and planner.softConstraints is ignore now"
            return Reason(ReasonCode.OUT_OF_SCOPE, say)
        if now.certainty == "certain" != began.certainty and not move.certain:
            say = f"where {move.pod.key}'s replacement lands is likely, and planner.certainty is certain now"
            return Reason(ReasonCode.NOT_CERTAIN, say)
        if _profiles(now) != _profiles(began):
            say = f"{move.pod.key}'s move was planned by another planner.schedulerConfig than there is now"
            return Reason(ReasonCode.NOT_CERTAIN, say)
        if move.worth < (least := now.policy.min_worth):
            say = f"evicting {move.pod.key} saves {move.worth:.2g}, and evictions.minWorth is {least:g} now"
            return Reason(ReasonCode.NOT_WORTH_IT, say)
    return None


def _first_by_now(planned: Pod, method: str, judged: Evictable, pod: Pod) -> Reason | None:
    """Why a pod that was to be evicted at once is to be released by now: the settings say another `method`,
    or it has become Ready. Who cannot be is evicted still."""
    now, ready = judged.options.method, pod.ready and not planned.ready
    if (now == method and not ready) or not isinstance(judged.replace_first.of(pod), Release):
        return None
    why = f"evictions.method is {now} now" if now != method else "it has become Ready since the plan"
    say = f"{why}: {pod.key} is to be replaced before it goes"
    return Reason(ReasonCode.NOT_REPLACED_FIRST, say, remedy="the next plan does so")


def _profiles(planning: PlanOptions) -> list[str]:
    return [p.known_as for p in (planning.scheduler or DEFAULT_CONFIG).profiles]


def _waits(a: AskedOfMove) -> Reason | None:
    reason = a.plan.waits().get(a.move.owner.key)
    if reason is not None and end_of(reason) > a.clock.now():
        return reason
    memory, constraints = a.cycle.memory, a.plan.plan.constraints
    # A planned node that has been shut since is no way out.
    move = replace(a.move, destinations=a.plan.look.room.destinations(a.move) or a.move.destinations)
    if (unsettled := memory.unsettled(a.nodes, [move], constraints).get(move.owner.key)) is not None:
        return unsettled
    there = (*a.nodes, *a.plan.plan.new_nodes)
    if (undone := memory.undone(there, [move], a.plan.leaves).get(move.owner.key)) is not None:
        return undone
    return memory.began_anew(move, constraints)


def _caps(a: AskedOfMove) -> Reason | None:
    if (changed := a.plan.changed()) is None:
        return None
    policy, owners = changed
    caps = Caps(replace(policy, earlier=a.plan.earlier), a.plan.snapshot, owners)
    for gone in a.away.gone:
        caps.count(gone.pod, a.plan.leaves(gone))
    return caps.spend(a.move.pod, a.plan.leaves(a.move))


def _share(a: AskedOfMove) -> Reason | None:
    for judged in a.looking.judges:
        share = InFlight(judged.shares)
        for flying in a.away.flying:
            share.spend(flying.pod)
        if not share.fits(a.move.pod):
            most = share.at_most(a.move.pod)
            return Reason(
                ReasonCode.REPLACEMENT_NOT_READY,
                f"as many pods of {a.move.pod.key}'s owner as may be away together now are on their way "
                f"({most})",
                {"most": most},
                "it goes on as they land; see evictions.inFlightPerOwner",
            )
    return None


def _approved(a: AskedOfMove) -> Reason | None:
    if not (rules := a.cycle.asked_for(a.move)):
        return None
    if a.cycle.approvals is None:
        return Reason(ReasonCode.NOT_APPROVED, "approval.mode is required now, and nobody was asked")
    labels = {n.name: n.labels for n in a.nodes}
    to = domains_reached(a.plan.plan, labels, a.move, a.plan.destinations(a.move))
    if a.move.pod.owner is None and not a.move.fixes:
        # Left by an earlier cycle: what it was to mend is known no more, but where its replacement is.
        there = (labels.get(node, {}).items() for node in a.move.destinations)
        to = frozenset(f"{key}={value}" for found in there for key, value in found)
    return a.cycle.approvals.why_not(a.move, to, rules)


def _cycle(name: str, says: str, ask: Callable[[Any], Reason | None], **more: Any) -> Check:
    """A check that is asked at the start of carrying out a plan, too."""
    return Check(name, says, ask, BEFORE_REQUESTS | {Moment.START}, "cycle", **more)


_LEADS = _cycle(
    "the lease",
    "This instance leads, by its own clock. Asked first, and once more last, as reading may take its time.",
    lambda a: (
        None
        if a.cycle.leading()
        else Reason(ReasonCode.NOT_LEADING, "this instance is not the leader any more")
    ),
)

CHECKS: tuple[Check, ...] = (
    STOP,
    *(replace(c, ask=partial(lambda ask, a: ask(a.looking), c.ask)) for c in LOOK),
    _LEADS,
    _cycle(
        "settings",
        "The settings file of this moment can be used, and evictions.enabled is true in it.",
        _settings,
    ),
    _cycle("the cycle's time", "A cycle evicts nothing after schedule.maxCycleTime.", _time),
    _cycle("windows", "schedule.windows say when evictions may be, and when not.", _windows),
    _cycle(
        "another rebalancer",
        "Nobody else acts on the same ledger, or by the same lease on another.",
        lambda a: a.cycle.memory.rival(),
    ),
    _cycle(
        "the circuit breaker",
        "It is not open because of an earlier cycle.",
        lambda a: a.cycle.memory.circuit_open(),
    ),
    _cycle(
        "the cluster's health",
        "The scheduler works; nodes that are NotReady, displaced pods and late replacements are few.",
        lambda a: a.cycle.health and a.cycle.health.why_not([o.breaker for o in a.cycle.in_force()[1:]]),
        cost="read",
    ),
    _cycle(
        "a descheduler",
        "None runs beside this tool, unless evictions.besideDescheduler says evict.",
        _descheduler,
    ),
    _cycle(
        "a pause",
        "Nobody has paused evictions (`rebalancer pause`), and the brake is there and can be read.",
        lambda a: a.cycle.pause and a.cycle.pause.why_not(),
        cost="read",
    ),
    Check(
        "an approval",
        "Where approval.mode is required, somebody has approved this move of a plan that the process holds.",
        _approved,
        cost="read",
    ),
    Check(
        "an out domain",
        "No domain that the replacement could use is out: its nodes are shut, or `pause --domain` says so.",
        _out,
    ),
    Check(
        "the pod's scheduler",
        "The scheduler that places the replacement works, and pods of its namespace are made.",
        lambda a: a.cycle.health and a.cycle.health.silent(a.move.pod),
    ),
    Check("the planner's settings", "The plan is one that the settings of this moment allow.", _planner),
    Check(
        "waits",
        "Its owner waits for nothing, by the settings of this moment, its violation has not begun anew since "
        "the plan, no domain has just come back that the replacement could land in, and nodes have undone no "
        "such moves.",
        _waits,
    ),
    Check("caps", "No cap of evictions is reached, by the settings of this moment.", _caps),
    Check(
        "pods of one owner",
        "No more of them are away together than evictions.inFlightPerOwner says at this moment.",
        _share,
        cost="read",
    ),
    _LEADS,
    STOP,
)
"""In order: what costs nothing, the look, what concerns the whole cycle, then what a plan counts."""

_CYCLE = tuple(c for c in CHECKS if c.scope == "cycle" and c is not STOP)
_SAID = frozenset({"the namespace", "scope and annotations", "an approval"})
REMOVE = (*(c for c in CHECKS if c.name in _SAID), *_CYCLE)
"""What is asked before a released pod goes that has ended by itself."""
_OF_THE_REPLACEMENT = frozenset(
    {"its replacement", "the method", "a shared volume", "others of the owner", "quotas"}
)
_PROTECTED = {c.name for c in PROTECTIONS} - _OF_THE_REPLACEMENT


def _protected_owner(judged: Evictable, pod: Pod) -> Reason | None:
    """Of "its replacement" only this: the rest is over once that is there."""
    owner = judged.owners.of(pod)
    return judged.owners.protected(owner) if owner is not None else None


_OF_THE_OLD = _PROTECTED | _SAID | {"the pod"}
FINISH = (
    *(c for c in CHECKS if c.name == "the watch"),
    Check(
        "the watch, and the old pod",
        "The watch has the pod, its node and the pods that its constraints count as the API server has them.",
        lambda a: a.looking.watched(),
        cost="read",
    ),
    *(c for c in CHECKS if c.name in _OF_THE_OLD),
    Check(
        "its protected owner",
        "Its Deployment is not paused, and has as many replicas as policy.minReplicas says at this moment.",
        lambda a: a.looking.protects(_protected_owner),
        cost="read",
    ),
    Check(
        "the spread without it",
        "No hard constraint gets worse that would be better if another pod of its ReplicaSet went.",
        lambda a: a.looking.needed(),
        cost="read",
    ),
    *_CYCLE,
    *(c for c in CHECKS if c.name == "an out domain"),
)
"""What is asked before the old pod of a release is evicted: its replacement is there, so its room and owner
were asked before, and caps have counted it. A stop lets it finish."""


def _released(a: AskedOfMove) -> Reason | None:
    off, label, waits = a.cycle.memory.no_release(), a.move.release_label, bool(a.move.awaits)

    def now(judged: Evictable, pod: Pod) -> Reason | None:
        if waits and not judged.options.into_new_nodes:
            return Reason(ReasonCode.NOT_REPLACED_FIRST, "evictions.intoNewNodes is off now")
        return judged.replace_first.why_not(pod, label)

    return off or a.looking.protects(now)


RELEASE = (
    *CHECKS,
    Check(
        "replace first",
        "No undo that took a Ready pod has turned it off, and nothing else asks for the label now.",
        _released,
    ),
)
"""What is asked before a pod is released."""
