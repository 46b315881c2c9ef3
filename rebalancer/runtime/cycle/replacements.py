"""What follows evictions: when each victim is gone and each replacement runs, and where.

A replacement is a pod of the same owner that was not there before the eviction. For a StatefulSet it is the
pod of the same name with another uid. Replacements of one owner are interchangeable. They are assigned to
moves so that as many as possible are on their predicted node.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.kube.errors import KubeError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import HOSTNAME, Node
from rebalancer.model.pod import Pod
from rebalancer.model.selectors import canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.outcome import Fate, Outcome, Result
from rebalancer.planner.pace import AT_FIRST, Chain
from rebalancer.planner.plan import Move, Plan, domains_reached
from rebalancer.policy.queues import added_gates
from rebalancer.runtime.cycle.clock import Clock

# How far the moves of one plan are, and which of them may start now.
#
# A wave is what may be in flight together, not a barrier. A move starts as soon as its own conditions hold:
#
# - Of its chain (`chains`) all moves of earlier waves have landed, each on one of its planned destinations.
# What is certain stays right wherever on them they landed. If one was not evicted, what follows in the
# chain waits for a new plan; if its replacement is stuck or landed elsewhere, the whole chain does. Other
# chains go on.
# - A move that is not certain rests on where everything before it landed. It starts only if all moves of
# earlier waves landed exactly as predicted, because then the cluster is as the plan has it.
#
# Few replacements go at first, and more as they become Ready (`SlowStart`).
#
# Whether a move may start beside those in flight is asked elsewhere (`last_look.room`), and so is whether its
# budgets have room.

log = logging.getLogger(__name__)

_NO_WAVE = 0
_MORE = 4
"""Beside the first five (`AT_FIRST`), so many for each that became Ready and stayed so: in a healthy cluster
the budgets are the limit soon."""
_CLUSTER = ("", "")


class Flight:
    """The state of one plan's moves. `dry`: nothing is evicted, so everything counts as landed."""

    def __init__(self, chains: Iterable[Chain], *, dry: bool = False) -> None:
        self._dry = dry
        self._chains = [list(chain) for chain in chains]
        self._chain_of = {m.pod.uid: n for n, chain in enumerate(self._chains) for m in chain}
        self._planned = {m.pod.uid: m for chain in self._chains for m in chain}
        self._waiting = set(self._planned)
        # By chain, the last wave of which a move may still start; chains that nothing stopped are not in it.
        # Then, of the whole plan, the first wave in which a move did not end as predicted.
        self._last_wave: dict[int, int] = {}
        self._differs: int | None = None
        self.flying: dict[str, Outcome] = {}

    def may_start(self) -> list[Move]:
        """The moves whose turn it is, earlier waves first."""
        first = min((chain[0].wave for chain in self._chains if chain), default=_NO_WAVE)
        found: list[Move] = []
        for n, chain in enumerate(self._chains):
            wave = chain[0].wave if chain else _NO_WAVE
            if wave > self._last_wave.get(n, wave):
                continue
            as_planned = self._as_planned(wave, first)
            turn = (m for m in chain if m.wave == wave and m.pod.uid in self._waiting)
            found += (m for m in turn if m.certain or as_planned)
        return sorted(found, key=lambda m: m.wave)

    def waits(self, move: Move) -> bool:
        """Whether the move has not started, nor ended without starting."""
        return move.pod.uid in self._waiting

    def rests_on_landings(self) -> bool:
        """Whether a move has not started because it rests on where others landed."""
        return any(
            m.pod.uid in self._waiting and n not in self._last_wave
            for n, chain in enumerate(self._chains)
            for m in chain
        )

    def in_flight(self, owner: str) -> int:
        """How many pods of a controller (its uid) are on their way."""
        return sum(controller_of(o.move) == owner for o in self.flying.values())

    def started(self, outcome: Outcome) -> None:
        """The pod has been evicted."""
        uid = outcome.move.pod.uid
        self._waiting.discard(uid)
        self.flying[uid] = outcome

    def ended(self, outcome: Outcome) -> None:
        """It is known what became of a move, in flight or not."""
        uid, wave = outcome.move.pod.uid, outcome.move.wave
        n = self._chain_of[uid]
        self._waiting.discard(uid)
        self.flying.pop(uid, None)
        self._chains[n] = [m for m in self._chains[n] if m.pod.uid != uid]
        if self._dry:
            return
        # The last look may have found more destinations: no harm, but not what the plan goes on from.
        planned = self._planned[uid].destinations
        if not (outcome.status is Fate.DONE and outcome.expected and outcome.node in planned):
            self._last_wave[n] = min(self._last_wave.get(n, wave), _NO_WAVE if outcome.evicted else wave)
        if not outcome.as_planned:
            self._differs = min(self._differs or wave, wave)

    def _as_planned(self, wave: int, first: int) -> bool:
        """Whether all of the waves before this one is over, and ended as predicted."""
        return self._dry or (wave <= first and (self._differs is None or wave <= self._differs))


class SlowStart:
    """How many replacements may be on their way: five, and four more for each of this cycle that stays Ready.

    What keeps pods from starting, a registry, a network or a volume, says nothing of that before somebody
    tries. It holds for the cluster, and for each domain of the plan's constraints by itself, as one zone may
    start pods and another may not. `ready`: the nodes on which replacements of this cycle became Ready, and
    how many seconds ago; before `stays` they are on their way.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        ready: Callable[[], Iterable[tuple[str, float]]],
        stays: float,
    ) -> None:
        fixed = sorted({plan.constraints[i].constraint.topology_key for m in plan.moves for i in m.fixes})
        self._domains = {
            n.name: [_CLUSTER, *((k, n.labels[k]) for k in fixed if k in n.labels)] for n in snapshot.nodes
        }
        self._ready, self._stays = ready, stays
        self._full = set[tuple[str, str]]()

    def look(self, flying: Iterable[Outcome]) -> None:
        """Beside these, and after what is Ready by now, for all moves of a turn."""
        there = Counter(d for o in flying for d in self._of(o.move.predicted))
        landed = Counter[tuple[str, str]]()
        for node, seconds in self._ready():
            (landed if seconds >= self._stays else there).update(self._of(node))
        self._full = {d for d, n in there.items() if n >= AT_FIRST + _MORE * landed[d]}

    def admits(self, move: Move) -> bool:
        """Whether one more replacement may be on its way to where this one is expected."""
        return self._full.isdisjoint(self._of(move.predicted))

    def _of(self, node: str) -> list[tuple[str, str]]:
        return self._domains.get(node, [_CLUSTER])


def controller_of(move: Move) -> str:
    """The uid of the evicted pod's controller."""
    return move.pod.owner.uid if move.pod.owner is not None else ""


class SettleLimits(Struct, frozen=True, kw_only=True):
    """Seconds. `ready`: from the eviction until the replacement is Ready, beyond the victim's grace period;
    `pending`: how long a replacement may be unschedulable once the victims are gone; `budgets`: how long
    budgets may take to notice that all is well again; `serving`: for how long a replacement that came first
    has to be Available, as endpoints and proxies follow; `poll` between looks."""

    ready: float = 300.0
    pending: float = 60.0
    budgets: float = 15.0
    serving: float = 5.0
    poll: float = 1.0

    def stricter(self, other: SettleLimits) -> SettleLimits:
        """These, with the shorter times for a replacement: one that is late ends the evictions."""
        return replace(self, ready=min(self.ready, other.ready), pending=min(self.pending, other.pending))


_DEFAULTS = SettleLimits()
MIGRATION = 1200.0
"""Seconds that a virtual machine may take to move; descheduler waits as long for one to be over."""
_PATIENCE = 8.0
"""Seconds for a watch to be brought up to date before a failure is believed."""


class ReplacementWatch:
    """Follows the replacements of one `plan`, made from `snapshot`, through the watch: no request is sent.

    `watched`: None in dry runs, where nothing is followed. `plan`: None if all of it is over. `until`: when
    the cycle's time is over (of the monotonic clock), from which on victims that take their time to end are
    not waited for; None: never.
    `newest`: the limits of this moment.

    `unplaced`: uids of the victims whose replacements were on no node yet at the last look.
    """

    def __init__(
        self,
        watched: WatchCache | None,
        snapshot: Snapshot,
        clock: Clock,
        limits: SettleLimits = _DEFAULTS,
        until: float | None = None,
        newest: Callable[[], Iterable[SettleLimits]] = tuple,
        plan: Plan | None = None,
    ) -> None:
        self._source = watched
        self._snapshot, self._plan = snapshot, plan
        self._nodes = snapshot.nodes
        self._clock = clock
        self._limits, self._newest = limits, newest
        self._until = until
        # By the controller's uid: pods that cannot be the replacement of any that is on its way.
        self._old: dict[str, set[str]] = {}
        # By the victim's uid: the others of its LeaderWorkerSet's group, their uids by name.
        self._group: dict[str, dict[str, str]] = {}
        self._placed: dict[str, float] = {}
        self._ready: dict[str, float] = {}
        self._unschedulable: dict[str, float] = {}
        self._gates: dict[str, tuple[str, ...]] = {}
        self._checked: set[str] = set()
        self.unplaced: frozenset[str] = frozenset()

    @property
    def limits(self) -> SettleLimits:
        """Those of the cycle and of this moment."""
        return reduce(SettleLimits.stricter, self._newest(), self._limits)

    @property
    def _watched(self) -> WatchCache:
        assert self._source is not None, "nothing is evicted without a watch"
        return self._source

    def nodes(self) -> Sequence[Node]:
        """As the watch has them, or had them before it fell behind."""
        with suppress(KubeError):
            self._nodes = self._watched.nodes()
        return self._nodes

    def before(self, move: Move, flying: Iterable[Outcome]) -> None:
        """Notes which pods the owner has, just before one of them is evicted: only what comes later can
        replace it, or those that are `flying`. What came for another reason, as somebody else deleted a
        sibling, replaces none of ours.

        Raises CacheNotReadyError.
        """
        owner, pods = controller_of(move), self._watched.pods()
        there = {
            p.uid: p
            for p in pods.values()
            if p.owner and p.owner.uid == owner and p.namespace == move.pod.namespace
        }
        ours = [o.move for o in flying if controller_of(o.move) == owner]
        old = self._old.get(owner, there.keys()) if ours else there.keys()
        came = [p for uid, p in there.items() if uid not in old and not p.terminating and not p.finished]
        theirs = {p.uid for p in assign(ours, came).values()}
        self._old[owner] = there.keys() - theirs
        if group := move.pod.template.restarts_with:
            others = (p for p in pods.values() if p.template.restarts_with == group)
            self._group[move.pod.uid] = {p.name: p.uid for p in others if p.uid != move.pod.uid}

    def landed(self, flying: Sequence[Outcome]) -> list[Outcome]:
        """What became of those evictions of which it is known by now, or whose time is up."""
        stop = self._clock.stopping()
        try:
            seen = self._look(flying)
        except KubeError as e:
            log.info("waiting for replacements: %s", e.message)
            seen = {}
        outcomes = []
        for evicted in flying:
            outcome = self._judge(evicted, seen.get(evicted.move.pod.uid), stop)
            if outcome is None:
                continue
            if outcome.status is Fate.FAILED and self._to_be_checked(evicted.move.pod.uid):
                continue
            outcomes.append(outcome)
        self._forget(flying, outcomes, seen)
        return outcomes

    def _look(self, flying: Sequence[Outcome]) -> dict[str, _Seen]:
        """By the victim's uid: whether it is gone, and which pod replaced it."""
        by_owner: dict[str, list[Move]] = defaultdict(list)
        for o in flying:
            by_owner[controller_of(o.move)].append(o.move)
        pods: dict[str, list[Pod]] = {owner: [] for owner in by_owner}
        # A group that is made anew has owners of the same names, and other uids.
        groups = {g: controller_of(o.move) for o in flying if (g := o.move.pod.template.restarts_with)}
        if by_owner:
            for p in self._watched.pods().values():
                owner = p.owner.uid if p.owner is not None else ""
                if groups:
                    owner = groups.get(p.template.restarts_with) or owner
                # Anybody may write down the uid of an owner elsewhere.
                if owner in pods and p.namespace == by_owner[owner][0].pod.namespace:
                    pods[owner].append(p)
        seen: dict[str, _Seen] = {}
        for owner, moves in by_owner.items():
            # A virtual machine's pod that was moved has Succeeded, and stays.
            there = {p.uid: p for p in pods[owner] if not p.finished}
            old = self._old.get(owner, set())
            new = [p for p in pods[owner] if p.uid not in old and not p.terminating and not p.finished]
            given = assign(moves, new)
            live = self._workload(moves[0]) if len(given) < len(moves) else None
            for m in moves:
                seen[m.pod.uid] = _Seen(there.get(m.pod.uid), given.get(m.pod.uid), live)
        return seen

    def _judge(self, evicted: Outcome, seen: _Seen | None, stop: bool) -> Outcome | None:
        move, since = evicted.move, evicted.at
        now = self._clock.monotonic()
        pod = seen.pod if seen is not None else None
        if pod is not None and pod.node_name:
            self._placed.setdefault(pod.uid, now)
            if move.awaits and (new := self._come(move, pod.node_name)) is not None:
                evicted = replace(evicted, move=(move := new))
        if pod is not None and (added := added_gates(pod.template, move.replacement)):
            self._gates[move.pod.uid] = added
        gates = self._gates.get(move.pod.uid, ())
        held = f"held by {', '.join(gates)}" if gates else ""

        def ended(status: Fate, message: str) -> Outcome:
            node = pod.node_name if pod is not None else ""
            # One that was not waited for says nothing of the plan before it is Ready: it may never start.
            known = bool(node) and (status is Fate.FAILED or (pod is not None and pod.ready))
            there = node in move.destinations or self._opened(move, node)
            as_planned = pod is not None and there and counts(move, pod)
            return replace(
                evicted,
                status=status,
                message=f"{move.pod.key} evicted; {message}",
                replacement=pod.key if pod is not None else "",
                node=node,
                gates=gates,
                expected=as_planned if known else None,
                # It may have run before, for another move of its owner.
                scheduled=max(0.0, self._placed[pod.uid] - since) if pod is not None and node else None,
                seconds=now - since,
            )

        if seen is not None and seen.gone and pod is not None and self._available(pod, move, now):
            came = pod.node_name not in move.destinations and self._opened(move, pod.node_name)
            how = "which takes pods only since then" if came else went(move, pod.node_name)
            where = f"its replacement {pod.name} is Ready on {pod.node_name}, {how}"
            return ended(Fate.DONE, where if counts(move, pod) else f"{where}; {UNCOUNTED}")
        if stop:
            return ended(Fate.DONE, "stopped without waiting for its replacement")
        if seen is not None and seen.gone and pod is None and (why := self._unmade(seen.owner, move)):
            return ended(Fate.DONE, why)
        waits = (pod.unschedulable or held) if pod is not None and not pod.node_name else ""
        if seen is not None and seen.gone and pod is not None and waits and not move.awaits:
            first = self._unschedulable.setdefault(pod.uid, now)
            if now - first >= self.limits.pending:
                return ended(Fate.FAILED, f"its replacement {pod.name} stays Pending: {waits}")
        grace = move.pod.grace_seconds
        if self._until is not None and now >= self._until and now - since < grace and not _gone(seen):
            say = f"it may take {grace:.0f} s to end, and the cycle's time is over: it is not waited for"
            return ended(Fate.DONE, say)
        if now - since >= self._patience(evicted):
            return ended(Fate.FAILED, _late(seen, now - since))
        return None

    def _opened(self, move: Move, name: str) -> bool:
        """Whether the node takes pods only since the plan, and is of the domains where the replacement was to
        end. Then nothing went wrong, though nobody could name it."""
        node = next((n for n in self.nodes() if n.name == name), None)
        before = next((n for n in self._snapshot.nodes if n.name == name), None)
        if self._plan is None or node is None:
            return False
        if before is not None and before.ready and before.shut_by == node.shut_by:
            return False
        labels = {n.name: n.labels for n in self._snapshot.nodes} | {name: node.labels}
        planned = domains_reached(self._plan, labels, move, move.destinations)
        into = domains_reached(self._plan, labels, move, (name,))
        return {d for d in into if d.partition("=")[0] != HOSTNAME} <= planned

    def _come(self, move: Move, name: str) -> Move | None:
        """The move with the node that it has waited for, if that is it."""
        node = next((n for n in self._watched.nodes() if n.name == name and move.came(n)), None)
        if node is None:
            return None
        at = tuple(
            f"{k}={node.labels[k]}" for k in sorted(node.labels) if f"{k}={node.labels[k]}" in move.awaits
        )
        return replace(move, destinations=(name,), predicted=name, awaits=at or move.awaits)

    def _available(self, pod: Pod, move: Move, now: float) -> bool:
        """Whether it has been Ready for as long as its owner asks of a pod that it counts as available."""
        if not (pod.node_name and pod.ready):
            self._ready.pop(pod.uid, None)
            return False
        lasted = now - self._ready.setdefault(pod.uid, now) >= move.owner.min_ready_seconds
        return lasted and self._others_are_back(move)

    def _others_are_back(self, move: Move) -> bool:
        """Whether the others of its group are Ready; anew, where their leader went."""
        pods, leads = self._watched.pods(), move.pod.template.leads
        return all(
            (p := pods.get((move.pod.namespace, name))) is not None
            and p.ready
            and not p.terminating
            and not (leads and p.uid == uid)
            for name, uid in self._group.get(move.pod.uid, {}).items()
        )

    def _patience(self, evicted: Outcome) -> float:
        """Seconds from the eviction until its replacement counts as failed."""
        usual = self.limits.ready + evicted.move.pod.grace_seconds + evicted.move.owner.min_ready_seconds
        moves = evicted.eviction is not None and evicted.eviction.result is Result.MIGRATING
        return max(usual, MIGRATION) if moves else usual

    def _to_be_checked(self, victim: str) -> bool:
        """Brings the watch up to date, once, before a failure is believed: its connection may be dead."""
        if victim in self._checked:
            return False
        self._checked.add(victim)
        self._watched.wait_current(("Pod",), self._watched.monotonic(), _PATIENCE, self._clock.stopping)
        return True

    def _forget(self, flying: Sequence[Outcome], ended: Sequence[Outcome], seen: dict[str, _Seen]) -> None:
        """What has landed replaces nobody else; of owners of which nothing is left nothing is remembered."""
        over = {o.move.pod.uid for o in ended}
        left = {controller_of(o.move) for o in flying if o.move.pod.uid not in over}
        for uid in over:
            if uid in seen and (pod := seen[uid].pod) is not None and pod.owner is not None:
                self._old.setdefault(pod.owner.uid, set()).add(pod.uid)
        for owner in self._old.keys() - left:
            del self._old[owner]
        self.unplaced = frozenset(
            uid
            for o in flying
            if (uid := o.move.pod.uid) not in over
            and not (uid in seen and (pod := seen[uid].pod) is not None and pod.node_name)
        )

    def _unmade(self, owner: Workload | None, move: Move) -> str:
        """Why nothing is made in place of the pod; "" if it may be."""
        planned = self._snapshot.owner_of(move.pod.namespace, move.pod.owner)
        if planned is None:
            return ""
        name, meta = f"{planned.kind} {planned.name}", planned.metadata
        if owner is None or owner.metadata.uid != meta.uid or owner.metadata.deletion_timestamp is not None:
            return f"{name} was deleted meanwhile"
        return f"{name} was scaled down meanwhile" if owner.replicas < move.owner.replicas else ""

    def _workload(self, move: Move) -> Workload | None:
        owner = self._snapshot.owner_of(move.pod.namespace, move.pod.owner)
        if owner is None:
            return None
        return self._watched.workload(owner.kind, owner.namespace, owner.name)


class _Seen(Struct, frozen=True, eq=False):
    """The state of one move at one look. `victim`: None once it is gone. `owner` is only read where a
    replacement is missing."""

    victim: Pod | None
    pod: Pod | None
    owner: Workload | None

    @property
    def gone(self) -> bool:
        """Whether nothing is left of the victim."""
        return self.victim is None


def assign(moves: Sequence[Move], pods: Sequence[Pod]) -> dict[str, Pod]:
    """Victim's uid → its replacement, out of the owner's new pods."""
    given: dict[str, Pod] = {}
    left = sorted(pods, key=lambda p: (not p.ready, not p.node_name, p.name))
    ranks: tuple[Callable[[Move, Pod], bool], ...] = (
        lambda m, p: p.node_name == m.predicted,
        lambda m, p: p.node_name in m.destinations,
        lambda _m, _p: True,
    )
    for fits in ranks:
        for move in moves:
            if move.pod.uid in given:
                continue
            by_name = move.owner.kind == "StatefulSet"
            found = next((p for p in left if (p.name == move.pod.name if by_name else fits(move, p))), None)
            if found is not None:
                given[move.pod.uid] = found
                left.remove(found)
    return given


def _gone(seen: _Seen | None) -> bool:
    return seen is not None and seen.gone


def went(move: Move, node: str) -> str:
    """Whether a replacement on this node is where it was predicted."""
    many = len(move.destinations)
    if node in move.destinations:
        return "as predicted" if many == 1 else f"one of the {many} nodes predicted"
    return f"{move.predicted} was predicted" if many == 1 else f"none of the {many} nodes predicted"


UNCOUNTED = "a constraint that counted the evicted pod does not count it: its labels are not its template's"


def counts(move: Move, pod: Pod) -> bool:
    """Whether the constraints that counted the victim, and should count its replacement, do: a webhook may
    have taken a label away."""
    planned = (move.pod.template.labels, move.replacement.labels)
    selectors = (canonical(c.label_selector) for c in move.replacement.spread if c.label_selector is not None)
    return all(
        s.matches(pod.template.labels) for s in selectors if all(s.matches(labels) for labels in planned)
    )


def _late(seen: _Seen | None, seconds: float) -> str:
    after = f"after {seconds:.0f} s"
    if seen is None:
        return f"the cluster could not be looked at for its replacement, {after}"
    if seen.victim is not None and not seen.victim.terminating:
        why = "a webhook, or a migration that has not ended"
        return f"it is not terminating {after}, though its eviction was accepted: {why}"
    if not seen.gone:
        return f"it is still terminating {after}: a finalizer, or a kubelet that does not answer"
    if seen.pod is None:
        return f"no replacement has appeared {after}"
    where = f"on {seen.pod.node_name}" if seen.pod.node_name else "and not scheduled"
    return f"its replacement {seen.pod.name} is not Ready {after}, {seen.pod.phase} {where}"
