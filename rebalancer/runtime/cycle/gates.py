"""Whether a request that can evict a pod may be sent now, and what a move waits for that passes by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import Brake, Brakes, Place
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Check, Moment, Reason, ReasonCode, first_no
from rebalancer.model.snapshot import Snapshot, build_snapshot
from rebalancer.planner.plan import Move
from rebalancer.policy.annotations import PAST, PAUSE, pause_ends, paused, paused_domains
from rebalancer.policy.budgets import Budget, Budgets
from rebalancer.policy.history.waits import Paused
from rebalancer.policy.options import LabelUsers
from rebalancer.policy.quota import Charged, Quotas
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.replacements import controller_of

FRESH = 1.0
"""Seconds that may pass between the beginning of a last look and the request."""
_HOME_EVERY, _REFUSED_EVERY = 5.0, 60.0
"""Seconds after which the brake's own namespace is read again, as the brake itself is the place for a pause;
and after refusals at most: the first are asked again sooner."""


class Pauses:
    """What each object said of a pause when it was last looked at, which outlives a cycle.

    Nobody writes a pause that is over: one that was not there at an earlier look, and whose end was past even
    then, is a slip (a local time with a Z, a wrong year), and holds. Of one that was there at the first look
    nobody knows.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, dict[str, tuple[str, float]]]] = {}
        """Object → when it was looked at last; and what each annotation said then, and after which look that
        was written."""
        self.home: ObjectMeta | None = None
        """The brake's namespace, once it could be read."""
        self.ask_home = -inf
        """When it is read again; `refused`: how often it was refused since."""
        self.refused = 0

    def why_not(self, what: str, notes: Mapping[str, str], now: float, remedy: str = "") -> Reason | None:
        """As `paused` says, and for a slip."""
        if PAUSE not in self.slips(what, notes, now):
            return paused(what, notes, now, remedy)
        say = f"{what} has {PAUSE}={notes[PAUSE].strip()[:200]}, {PAST}, and pauses"
        command = f"`kubectl annotate {what} {PAUSE}-`"
        return Reason(ReasonCode.PAUSED_BY_ANNOTATION, say, remedy=f"{remedy or command} ends it")

    def slips(self, what: str, notes: Mapping[str, str], now: float) -> set[str]:
        """The annotations that pause all, or take a domain out, and hold as they are slips."""
        looked, before = self._seen.get(what, (0.0, {}))
        ends, seen, slips = pause_ends(notes), dict[str, tuple[str, float]](), set[str]()
        for key, until in ends.items():
            said = notes.get(key, "").strip()
            was, written_after = before.get(key, ("", looked))
            seen[key] = said, written_after if was == said else looked
            if 0.0 < until <= now and what not in self._seen:
                log.info("%s has %s=%s: that pause is over", what, key, said[:200])
            if 0.0 < until <= min(now, seen[key][1]):
                slips.add(key)
        self._seen[what] = max(looked, now), seen
        return slips


class PauseCheck:
    """Whether people have paused everything: read for each answer. Paused namespaces are for the last look.

    A brake that is missing or may not be read holds as well. Its namespace pauses everything, too, where it
    may be read: in an incident that is a likely place. `lease`: the lease's annotations as last seen, which
    paused everything in earlier versions and still do. `pauses`: what was seen before.
    """

    def __init__(
        self,
        brakes: Brakes,
        place: Place,
        clock: Clock,
        lease: Callable[[], Mapping[str, str]] = dict,
        pauses: Pauses | None = None,
    ) -> None:
        self._brakes = brakes
        self._place = place
        self._clock = clock
        self._lease = lease
        self._pauses = pauses or Pauses()
        self._begun: tuple[float, tuple[Brake, ObjectMeta | None] | KubeError] | None = None
        self._out: Paused = {}

    def begin(self) -> None:
        """`why_not` will be asked in a moment: reads at the same time as others, in any thread."""
        at = self._clock.monotonic()
        try:
            self._begun = at, self._read()
        except KubeError as e:
            self._begun = at, e

    def _read(self) -> tuple[Brake, ObjectMeta | None]:
        """The brake, and at the same time its namespace, as far as it may be read and was not just now.

        Raises KubeError, also of a namespace that could be read and may not be any more.
        """
        at, pauses = self._clock.monotonic(), self._pauses
        if at < pauses.ask_home:
            return self._brakes.everything(self._place), pauses.home
        with ThreadPoolExecutor(1, thread_name_prefix="pause") as pool:
            home = pool.submit(self._brakes.namespace, self._place.namespace)
            brake = self._brakes.everything(self._place)
            try:
                pauses.home, pauses.refused = home.result(), 0
                pauses.ask_home = at + _HOME_EVERY
            except ForbiddenError as e:
                if pauses.home is not None:
                    raise
                log.info("whether %s pauses is asked again later: %s", self._place.home.kubectl, e.message)
                pauses.ask_home = at + min(2.0**pauses.refused, _REFUSED_EVERY)
                pauses.refused += 1
        return brake, pauses.home

    def why_not(self) -> Reason | None:
        """Why nothing may be done; raises KubeError where that is not known."""
        begun, self._begun = self._begun, None
        try:
            # What was read for a look that went no further may be old by now.
            if begun is None or self._clock.monotonic() - begun[0] >= FRESH:
                there, home = self._read()
            elif isinstance(begun[1], KubeError):
                raise begun[1]
            else:
                there, home = begun[1]
        except NotFoundError:
            say = f"{self._place}, by which people pause evictions, is missing"
            return _unseen(f"{say}; `rebalancer resume` creates it", "`rebalancer resume` creates it")
        except ForbiddenError as e:
            return _unseen(f"whether evictions are paused cannot be seen: {e.message}", e.remedy)
        except KubeError as e:
            say = f"whether evictions are paused is not known: {e.message}"
            raise KubeError(say, e.remedy, target=e.target) from e
        self._out = self._taken_out(there)
        if (why := self._said(there, home)) is not None:
            return why
        what = self._place.kubectl
        for said, command in there.slips.items():
            ends = command.format(what)
            say = f"{what} has {said}, which is no annotation that pauses, and was meant as one: {ends}"
            return Reason(ReasonCode.PAUSED_BY_ANNOTATION, say, remedy=ends)
        return None

    def _said(self, there: Brake, home: ObjectMeta | None) -> Reason | None:
        """What brake, namespace and lease say. All are looked at: the next look goes by it."""
        now, its = self._clock.now(), home.annotations if home is not None else {}
        whys = [
            self._pauses.why_not(self._place.kubectl, there.metadata.annotations, now, "`rebalancer resume`"),
            self._pauses.why_not(self._place.home.kubectl, its, now),
            self._pauses.why_not("lease", self._lease(), now),
        ]
        return next((why for why in whys if why is not None), None)

    def _taken_out(self, there: Brake) -> Paused:
        notes, now = there.metadata.annotations, self._clock.now()
        return paused_domains(notes, now, self._pauses.slips(self._place.kubectl, notes, now))

    @property
    def out(self) -> Paused:
        """The domains that are taken out, as of the last answer of `why_not`."""
        return self._out

    def domains(self) -> Paused:
        """The domains that are taken out, read now for a plan. `why_not` says what cannot be read."""
        try:
            there, home = self._read()
            self._said(there, home)
            return self._taken_out(there)
        except KubeError:
            return self._out


def _unseen(message: str, remedy: str) -> Reason:
    return Reason(ReasonCode.NO_BRAKE, message, remedy=remedy)


# May a request that can evict a pod be sent now?

LOOKS = 4
"""Looks in a row. The first of a cycle waits for the watch, and a network may stutter."""


class Away(Struct, frozen=True):
    """Moves of the plan whose pods have been evicted; `flying`: those whose replacements have not landed,
    `coming`: those of them whose replacements are on no node yet."""

    gone: tuple[Move, ...] = ()
    flying: tuple[Move, ...] = ()
    coming: tuple[Move, ...] = ()

    def of_its_owner(self, move: Move) -> int:
        """How many pods of the same controller are on their way."""
        return sum(controller_of(m) == controller_of(move) for m in self.flying)


NOBODY = Away()
STOP = Check(
    "a stop",
    "Whoever asks the process to stop stops it before the next request.",
    lambda asked: Reason(ReasonCode.STOPPING, "a stop was asked for") if asked.clock.stopping() else None,
    scope="cycle",
)


class FreshLook:
    """Answers for a dry run, where nothing is looked at: every move of the plan may go, until a stop.

    For real evictions `rebalancer.runtime.live.checks.PlanChecks` answers the same questions, by looking.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.label_users: LabelUsers | None = None
        """What asks for labels of pods and is not watched, as of the last release."""

    def first_no(self, moment: Moment, move: Move, away: Away) -> tuple[Check, Reason] | None:  # noqa: ARG002
        """The check that says no to the move now, and why. Raises KubeError."""
        return first_no((STOP,), moment, self)

    def destinations(self, move: Move) -> tuple[str, ...]:
        """The nodes that the replacement may go to, as the look found them."""
        return move.destinations

    def rather(self, move: Move) -> str:  # noqa: ARG002
        """The uid of the pod that is to go instead of a released one, as the look found it; "" if none is."""
        return ""

    def why_back(self, move: Move, pod: Pod, label: str, *, pending: bool) -> Reason | None:  # noqa: ARG002
        """Why a released pod gets the label back while its replacement is not Ready, as it is watched.

        `pod`: as if it had it still; `pending`: the replacement waits for a node. Raises KubeError.
        """
        return None

    def may_overlap(self, move: Move, away: Away) -> bool:  # noqa: ARG002
        """Whether the move may be in flight beside those that are. Raises KubeError."""
        return True


class Permission:
    """Asked right before each request that can evict a pod, the first and every further one: may it be sent?

    All checks, and all of them within a second: if the API server took longer to answer, what was seen first
    is old, and everything is asked again. `held`: why the whole cycle evicts no more, of the last time.
    `sent`: called when it may.
    """

    def __init__(
        self,
        look: FreshLook,
        clock: Clock,
        move: Move,
        away: Away,
        sent: Callable[[Move], None] = lambda _: None,
    ) -> None:
        self._sent = sent
        self._look = look
        self._clock = clock
        self._move = move
        self._away = away
        self._moment = Moment.LAST_LOOK
        self._began = 0.0
        self.held: Reason | None = None

    def fresh(self) -> bool:
        """Whether the last look began within a second: by then the request has to be on its way."""
        return self._clock.monotonic() - self._began <= FRESH

    def __call__(self) -> Reason | None:
        """Why it must not be sent; None if it may. Raises KubeError."""
        moment, self._moment = self._moment, Moment.RESEND
        for _ in range(LOOKS):
            began = self._began = self._clock.monotonic()
            reason = self._ask(moment)
            seconds = self._clock.monotonic() - began
            if reason is None and seconds <= FRESH:
                self._sent(self._move)
            if reason is not None or seconds <= FRESH:
                return reason
        return Reason(
            ReasonCode.NOT_CURRENT,
            f"the last look at {self._move.pod.key} took {seconds:.1f} s, {LOOKS} times in a row: what "
            "it saw first was old by then",
            {},
            "look at the latency of the API server",
        )

    def _ask(self, moment: Moment) -> Reason | None:
        self.held = None
        no = self._look.first_no(moment, self._move, self._away)
        if no is None:
            return None
        check, reason = no
        # What is asked when a cycle starts to carry out a plan may end it later, too.
        if Moment.START in check.moments:
            self.held = reason
        return reason


# What may keep a move from going now and passes by itself, as it is watched: asked without a request.
#
# The API server counts an eviction against a budget at once. The disruption controller gives it back, and
# the owner counts its Ready pods anew, some time after the replacement is Ready. The watch shows all of it
# a moment later. So a move that was refused for such a reason waits until budgets or owner have changed.

log = logging.getLogger(__name__)


def forbidden(move: Move, e: UserError | None, what: str) -> Reason | None:
    """That RBAC forbids in the pod's namespace what an eviction needs; None: that is not what is wrong."""
    namespace = move.pod.namespace
    if not isinstance(e, ForbiddenError) or e.by_webhook:
        return None
    if e.target is None or e.target.namespace != namespace:
        return None
    say = f"{what} is forbidden in namespace {namespace}: {e.message}"
    return Reason(ReasonCode.MAY_NOT_EVICT, say, {}, e.remedy)


PASSING = frozenset(
    {
        ReasonCode.PDB_EXHAUSTED,
        ReasonCode.PDB_STALE,
        ReasonCode.REPLACEMENT_NOT_READY,
        ReasonCode.OWNER_SCALING,
        ReasonCode.OWNER_DEGRADED,
    }
)
"""Reasons for which a move may wait a little."""


class WatchedLimits:
    """Budgets, quotas and owners of one plan's moves. Which there are, `snapshot` says; how they are now, the
    watch. A budget or quota that is new since then is found by the last look.

    `watched`: None in dry runs, where nothing is limited.
    """

    def __init__(self, watched: WatchCache | None, snapshot: Snapshot) -> None:
        self._watched = watched
        self._snapshot = snapshot
        self._planned = Budgets(snapshot)
        self._refused: dict[str, tuple[str, ...]] = {}

    def allow(self, move: Move) -> bool:
        """Whether the move's budgets have room, and something has changed since it was refused."""
        try:
            budgets = self._budgets([move])
            if move.pod.uid in self._refused and self._refused[move.pod.uid] == self._versions(move):
                return False
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False
        return all(not b.stale and (not b.costs(move.pod) or b.allowed > 0) for b in budgets)

    def admit(self, move: Move, coming: Sequence[Move]) -> bool:
        """Whether the quotas have room for its replacement beside those that are still to be made."""
        if self._watched is None:
            return True
        try:
            charged = Charged(Quotas(build_snapshot(self._watched.quotas(move.pod.namespace), now=0.0)))
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)
            return False
        for other in coming:
            charged.spend(other.pod, other.owner)
        return charged.fits(move.pod, move.owner)

    def refused(self, move: Move) -> None:
        """Notes that the move was refused with budgets and owner as they are."""
        try:
            self._refused[move.pod.uid] = self._versions(move)
        except KubeError as e:
            log.info("waiting for the watch: %s", e.message)

    def as_planned(self, moves: Iterable[Move]) -> bool:
        """Whether the budgets of these moves allow as much again as when they were planned.

        A plan made before would take them for exhausted.
        """
        moves = list(moves)
        planned = {b.key: b.allowed for m in moves for b in self._planned.of(m.pod)}
        try:
            return all(b.allowed >= planned[b.key] for b in self._budgets(moves))
        except KubeError as e:
            log.info("waiting for budgets: %s", e.message)
            return False

    def _budgets(self, moves: Iterable[Move]) -> list[Budget]:
        """The budgets that cover these pods, as they are."""
        covering = {b.key: b for m in moves for b in self._planned.of(m.pod)}
        if not covering or self._watched is None:
            return []
        there = {
            f"{n}/{b.metadata.name}": b
            for n in {key.partition("/")[0] for key in covering}
            for b in self._watched.budgets(n)
        }
        return [Budget(there[key], b.selector, b.lost) for key, b in sorted(covering.items()) if key in there]

    def _versions(self, move: Move) -> tuple[str, ...]:
        owner = self._snapshot.owner_of(move.pod.namespace, move.pod.owner)
        found = [b.budget.metadata.resource_version for b in self._budgets([move])]
        if self._watched is not None and owner is not None:
            live = self._watched.workload(owner.kind, owner.namespace, owner.name)
            found.append(live.metadata.resource_version if live is not None else "")
        return tuple(found)
