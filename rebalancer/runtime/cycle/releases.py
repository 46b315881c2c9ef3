"""Replace first, carried out: a pod is released, followed until its replacement is there, and evicted.

What comes next is decided by `policy.release.step`, from what is seen. Here it is read and done. The watch
says when there is something to do; then all of it is read live, and the request is only sent if the step is
the same by that, and within a second. A request that was not answered is not repeated: the next look shows
what became of it. Nothing here is needed after a restart: marks and ledger say it all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.kube.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    ServerError,
    StatusError,
    TooManyRequestsError,
    TransportError,
)
from rebalancer.kube.evictor import Evictor
from rebalancer.kube.patches import ReleasePatches
from rebalancer.kube.reading import Objects
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import ObjectMeta, OwnerReference
from rebalancer.model.pod import DELETION_COST, Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Selector
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.outcome import Eviction, Fate, Observer, Outcome, Result
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.options import LabelUsers, Method
from rebalancer.policy.release import (
    COST_BEFORE,
    LET_GO,
    Do,
    Held,
    Mark,
    Seen,
    Step,
    credible,
    released,
    step,
)
from rebalancer.runtime.cycle.clock import Clock, RateLimit
from rebalancer.runtime.cycle.gates import FRESH, LOOKS, NOBODY, PASSING, FreshLook, Permission, forbidden
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.cycle.released_seen import Glance, Opened, Reads, Sight
from rebalancer.runtime.cycle.replacements import ReplacementWatch

log = logging.getLogger(__name__)

_UNSURE = 12.0
"""Seconds after which a release that was not answered has been made, or never is: the server's own deadline,
and a little."""
_ADOPTED = 30.0
"""Seconds in which the controller adopts what it was given back, and deletes what is too much."""
_AGAIN = 2.0
"""Seconds between two tries of what was refused for a moment, and between two questions to the brake."""
_USERS = 10.0
"""Seconds between two readings of what asks for labels and is not watched, while a pod is released."""
_TRIES = 5
"""Requests that may fail, whatever the answer says, before the next cycle goes on: one may be a proxy's."""
STOP_GRACE = 20.0
"""Seconds in which a stop finishes what is Ready and undoes the rest."""
FINISHING = 60.0
"""Seconds that a release may take beyond the time for its replacement: without them, none begins."""
_MINE = "ReplicaSet"


class ReleaseParts(Struct, frozen=True, eq=False, kw_only=True):
    """What releasing needs. `by`: the name of this installation. `closed`: why nothing may be evicted now,
    whatever it is about. `leading`: whether this process leads, asked before each undoing patch. `reviewed`:
    whether an earlier process's pod (uid) may be evicted. `on`: whether settings or a workload ask for the
    method. `most`: how many pods may be released in the cluster. `label_users`: reads
    what else asks for their labels. `until`: when the cycle's time is over
    (monotonic); None: never. `undo`: nothing is evicted, all is given back."""

    reads: Objects
    watched: WatchCache
    patches: ReleasePatches
    by: str
    closed: Callable[[], Reason | None]
    leading: Callable[[], bool] = lambda: True
    reviewed: Callable[[str], bool] = lambda _: True
    on: Callable[[Snapshot], bool] = lambda _: True
    most: Callable[[], int] = lambda: 5
    label_users: Callable[[], LabelUsers | None] = lambda: None
    until: float | None = None
    undo: bool = False


class Releases:
    """The releases of one plan, or those that an earlier process left."""

    def __init__(
        self,
        parts: ReleaseParts,
        memory: Memory,
        evictor: Evictor,
        clock: Clock,
        pace: RateLimit,
        observer: Observer,
        replacements: ReplacementWatch,
    ) -> None:
        self._parts, self._memory, self._evictor = parts, memory, evictor
        self._clock, self._pace, self._observer = clock, pace, observer
        self._sight = Sight(parts.watched, memory, clock, replacements, by=parts.by, undo=parts.undo)
        self._open: dict[str, Opened] = {}
        self._stop_at: float | None = None
        self._asked = self._users_at = float("-inf")
        self._there: list[tuple[str, str]] = []
        self._blind: Reason | None = None
        self._sliced = True
        """Whether EndpointSlices are served, as of the last answer."""
        self.closed: Reason | None = None
        """Why nothing may be evicted, as of the last look."""

    # -- a release

    def may_begin(self, move: Move) -> bool:
        """Whether one more pod may be released now, or must be tried so that it is said why not: waiting only
        helps while one of these is open."""
        return not self._open or self._out_of_time(move) or self.full(move) is None

    def look(self) -> None:
        """Notes which pods are released in the cluster, for all moves of a turn. A mark that the ledger does
        not know counts in its own namespace alone: who may make pods there may have written it."""
        try:
            pods = self._parts.watched.pods().values()
        except KubeError as e:
            self._blind = Reason(ReasonCode.NOT_CURRENT, e.message)
            return
        self._blind = None
        self._there = []
        sets: dict[str, dict[str, Workload]] = {}
        for pod, mark in released(pods):
            if mark.label in pod.template.labels:
                continue
            if pod.namespace not in sets:
                every = self._parts.watched.workloads(pod.namespace)
                sets[pod.namespace] = {w.metadata.uid: w for w in every}
            owner = sets[pod.namespace].get(mark.replica_set)
            known = self._memory.released(pod.uid) is not None
            if known or (owner is not None and credible(pod, mark, owner)):
                self._there.append((pod.key, "" if known else pod.namespace))

    def full(self, move: Move) -> Reason | None:
        """Why no further pod may be released, by the last `look`: as many are as may be in the cluster."""
        first, most = self._memory.most_released, self._parts.most()
        most = 1 if move.awaits else most if first is None else min(most, first)
        there = [pod for pod, only in self._there if only in ("", move.pod.namespace)]
        if self._blind or len(there) + sum(not o.seen_mark for o in self._open.values()) < most:
            return self._blind
        named = ", ".join(there[:3])
        say = f"{move.pod.key} is not released: {named} are, and {most} may be at a time"
        return Reason(ReasonCode.RELEASED, say, {"most": most}, "see evictions.maxReleased")

    def _out_of_time(self, move: Move) -> bool:
        until = self._parts.until
        return until is not None and self._clock.monotonic() + self._sight.patience(move) + FINISHING > until

    def release(self, move: Move, look: FreshLook, permission: Permission) -> Eviction:
        """Makes the ReplicaSet let go of the pod, if the last look lets it go: as a trial first."""
        pod, reference = move.pod, move.pod.owner
        no = self._memory.no_release()
        if no is None and self._out_of_time(move):
            say = "the cycle's time is over before a replacement would have to be there: nothing is released"
            longer = "evictions.readyTimeout and the owner's minReadySeconds"
            no = Reason(
                ReasonCode.CYCLE_TIME,
                say,
                {},
                f"the next cycle goes on, if schedule.maxCycleTime is minutes longer than {longer}",
            )
        if no is not None or reference is None:
            return Eviction(result=Result.HELD, message=no.message if no else "it has no owner", reason=no)
        try:
            # Before the look, which would be too old after so many requests.
            look.label_users = self._parts.label_users()
            self._users_at = self._clock.monotonic() + _USERS
            why, live = self._looked(move, look, reference, permission)
            if why is not None:
                return Eviction(result=Result.HELD, message=why.message, reason=why)
            owner = self._parts.reads.workload(reference.kind, pod.namespace, reference.name)
            if live is None or owner is None or live.uid != pod.uid or owner.metadata.uid != reference.uid:
                return _not_as_planned(move, "pod or ReplicaSet are not the planned ones any more")
            value = live.template.labels.get(move.release_label)
            if value is None:
                return _not_as_planned(move, "somebody has released it already")
            mark = Mark(
                label=move.release_label,
                value=value,
                replica_set=reference.uid,
                pod=live.uid,
                at=int(self._clock.latest()),
                by=self._parts.by,
            )
            self._parts.patches.release(live, mark, owner.owner, lambda: True, dry=True)
            if not permission.fresh() and (why := permission()) is not None:
                return Eviction(result=Result.HELD, message=why.message, reason=why)
        except ConflictError:
            return _not_as_planned(move, "it has changed meanwhile")
        except KubeError as e:
            return _not_released(move, e)
        deployment = owner.owner.name if owner.owner is not None and owner.owner.kind == "Deployment" else ""
        unsure = ""
        self._memory.sent(pod.uid)  # before its replacement can be there
        try:
            self._parts.patches.release(live, mark, owner.owner, permission.fresh, dry=False)
        except (TransportError, ServerError, ResponseError) as e:
            if not e.sent if isinstance(e, TransportError) else isinstance(e, ServerError) and e.by_webhook:
                return _not_released(move, e)
            unsure = e.message
        except ConflictError:
            return _not_as_planned(move, "it has changed meanwhile")
        except KubeError as e:
            return _not_released(move, e)
        self._follow(Opened(move, look, reference.name, deployment, self._clock.monotonic()))
        say = f"{pod.key} is released, and runs on until its replacement is there"
        if unsure:
            say = f"{pod.key}: whether it is released is seen next: {unsure}"
        return Eviction(result=Result.RELEASED, message=say, posts=1, status=0 if unsure else 200)

    def _looked(
        self, move: Move, look: FreshLook, reference: OwnerReference, permission: Permission
    ) -> tuple[Reason | None, Pod | None]:
        """The last look, then all that is read before its end: where that takes too long, a release could not
        be ended."""
        top = move.owner.name if move.owner.kind == "Deployment" else ""
        for _ in range(LOOKS):
            if (why := permission()) is not None:
                return why, None
            _, live = self._seen(Opened(move, look, reference.name, top, None), self._parts.reads)
            if permission.fresh():
                return None, live
        say = f"{move.pod.key} is not released: what is read before it ends takes longer than {FRESH:g} s"
        return Reason(ReasonCode.NOT_CURRENT, say, {}, "look at the latency of the API server"), live

    def began(self, outcome: Outcome) -> None:
        """The outcome of a release, so far."""
        self._open[outcome.move.pod.uid].sent = outcome

    def follows(self, uid: str) -> bool:
        """Whether a move's replacement is still to be waited for."""
        return uid not in self._open or self._open[uid].landed is None

    def landed(self, outcome: Outcome) -> bool:
        """What became of the replacement of a released pod; whether it is one."""
        opened = self._open.get(outcome.move.pod.uid)
        if opened is not None and not self._clock.stopping():
            opened.landed = outcome
        return opened is not None

    @property
    def any(self) -> bool:
        """Whether any is open."""
        return bool(self._open)

    def take_up_marked(self, snapshot: Snapshot, looks: Callable[[Plan], FreshLook]) -> None:
        """What is marked as released, by an earlier process or another one, as moves that have begun.
        `looks`: makes what is asked before they are evicted."""
        # Where the method is off, nothing is sent for a mark alone, which anybody may have written.
        on = self._parts.on(snapshot)
        marked = []
        for pod, mark in released(snapshot.pods):
            entry = self._memory.released(pod.uid)
            owner = snapshot.owner_of(pod.namespace, OwnerReference(_MINE, "", mark.replica_set))
            if entry is not None or (on and owner is not None):
                marked.append((pod, mark, entry, owner))
        undoing = {m.replica_set for _, m, _, owner in marked if owner is not None}
        owned = (p for p in snapshot.pods if COST_BEFORE in p.annotations and p.owner is not None)
        left = [p for p in owned if p.owner is not None and p.owner.uid not in undoing]
        if left and on:
            self._ask(self._clock.monotonic())
            if self.closed is None or self.closed.code not in _NOT_OURS:
                restore(left, self._parts.patches, self._parts.leading)
        if not marked:
            return
        look = looks(Plan(constraints=(), moves=(), blocked=()))
        for pod, mark, entry, owner in marked:
            top = snapshot.owner_of(pod.namespace, owner.owner) if owner is not None else None
            if owner is None and entry is not None:
                kind, namespace, name = entry.owner.split("/", 2)
                top = snapshot.workloads_by_name.get((kind, namespace, name))
            nobody = Workload(kind=_MINE, metadata=ObjectMeta(name="", namespace=pod.namespace))
            move = Move(
                pod=pod,
                owner=top or owner or nobody,
                replacement=pod.template,
                destinations=(),
                predicted=entry.predicted if entry is not None else "",
                certain=True,
                wave=1,
                fixes=(),
                reason=entry.reason if entry is not None else "",
                method=Method.REPLACE_FIRST,
                release_label=mark.label,
                awaits=entry.into if entry is not None else (),
            )
            deployment = top.name if top is not None and top.kind == "Deployment" else ""
            self._follow(Opened(move, look, owner.name if owner is not None else "", deployment, None))

    def _follow(self, opened: Opened) -> None:
        """For as long as a replacement and its undo may take; then the cycle goes on without it."""
        opened.until = self._clock.monotonic() + self._sight.patience(opened.move) + FINISHING
        self._open[opened.move.pod.uid] = opened

    # -- from the release to its end

    def advance(self) -> list[Outcome]:
        """One look at each; those that have ended."""
        if not self._open:
            return []
        now = self._clock.monotonic()
        if self._clock.stopping() and self._stop_at is None:
            self._stop_at = now + STOP_GRACE
        if now >= self._asked + _AGAIN:
            self._ask(now)
        if self.closed is not None and self.closed.code in _NOT_OURS:
            return [self._leave(o, "whoever leads now goes on with it") for o in [*self._open.values()]]
        ended, glance = [], Glance(self._parts.watched)
        for opened in [*self._open.values()]:
            try:
                outcome = self._one(opened, glance)
            except KubeError as e:
                log.info("%s is released: %s", opened.move.pod.key, e.message)
                outcome = None
            late = self._sight.late(opened) and opened.seconds > LET_GO
            stuck = opened.idle and (self.closed is not None or late)
            if outcome is None and (stuck or now >= opened.until):
                outcome = self._leave(opened, opened.said or "it takes too long, so the next cycle goes on")
            if outcome is None and self._stop_at is not None and now >= self._stop_at:
                outcome = self._leave(opened, "the process has to end; the next one goes on with it")
            if outcome is not None:
                self._open.pop(opened.move.pod.uid, None)
                ended.append(outcome)
        return ended

    def _ask(self, now: float) -> None:
        """Whether anything may be evicted now, leaving the stop aside."""
        self._asked = now
        try:
            closed = self._parts.closed()
        except KubeError as e:
            # Nothing is evicted without an answer; nor is anything undone for want of one.
            log.info("whether evictions may go on is not known: %s", e.message)
            return
        self.closed = None if closed is not None and closed.code is ReasonCode.STOPPING else closed

    def _seen(self, o: Opened, source: Reads) -> tuple[Seen, Pod | None]:
        return self._sight.seen(o, source, self.closed)

    def _one(self, o: Opened, watch: Reads) -> Outcome | None:
        if o.back is not None:
            return self._given_back(o)
        now = self._clock.monotonic()
        glance, there = self._seen(o, watch)
        if glance.mark is None and not o.seen_mark and glance.there and not glance.ending:
            if o.since is None or now - o.since < _UNSURE or self._seen(o, self._parts.reads)[0].mark:
                return None
            return self._ended(o, Fate.UNDONE, "it was not released: the request came to nothing")
        o.seen_mark = True
        ask = o.missed and not (glance.held or glance.stopping)  # else it is undone all the same
        if ask and there is not None and now >= o.asked + _AGAIN:
            o.minded, o.asked = self._minded(o, there, glance.mark, watch), now
            glance, _ = self._seen(o, watch)
        next_ = step(glance)
        idle = next_.do is Do.WAIT and not glance.ending
        o.idle = idle and o.enough_since is None
        paced = next_.do is Do.EVICT and now < self._pace.next_at
        if idle or paced or now < o.next_at:
            self._say(o, next_)
            return None
        began = self._clock.monotonic()
        live, pod = self._seen(o, self._parts.reads)
        if (asked := step(live)).do is not next_.do:
            return None  # the watch is behind, or ahead by now
        self._say(o, asked)
        try:
            return self._do(
                o,
                (live, pod),
                asked,
                lambda: self._clock.monotonic() - began <= FRESH and self._parts.leading(),
            )
        except ConflictError:
            return None  # it has changed since it was read: the next look judges it anew
        except KubeError as e:
            o.next_at, o.failed = now + _AGAIN, o.failed + 1
            log.warning("%s is released, and what comes next failed: %s", o.move.pod.key, e.message)
            return self._leave(o, e.message) if o.failed >= _TRIES else None

    def _minded(self, o: Opened, pod: Pod, mark: Mark | None, watch: Reads) -> bool:
        """Whether somebody minds by now: a Service, say, that has come to ask for the label sends nothing to
        the pod without it."""
        if mark is None:
            return False
        if (now := self._clock.monotonic()) >= self._users_at:
            self._users_at, o.look.label_users = now + _USERS, self._parts.label_users()
        template = replace(pod.template, labels=pod.template.labels | {mark.label: mark.value})
        owner = OwnerReference(_MINE, o.replica_set, mark.replica_set, "apps/v1")
        was = replace(pod, template=template, owner=owner)
        pending = any(not p.node_name for p in self._sight.own(o, watch))
        no = o.look.why_back(o.move, was, mark.label, pending=pending)
        if no is not None:
            o.refusal = no.message
            self._say(o, Step(do=Do.WAIT, why=no.message))
        return no is not None

    def _do(
        self, o: Opened, read: tuple[Seen, Pod | None], next_: Step, fresh: Callable[[], bool]
    ) -> Outcome | None:
        seen, pod = read
        if pod is None or next_.do is Do.OVER:
            return self._ended(o, Fate.DONE, "it is gone, not by an eviction of this process")
        match next_.do:
            case Do.WAIT:
                return self._ended(o, Fate.DONE, "somebody else deletes it")
            case Do.LEAVE if seen.mark is None and o.giving is not None:
                o.back, o.back_at = o.giving, self._clock.monotonic()  # the answer was lost
            case Do.LEAVE:
                return self._ended(o, Fate.UNDONE, next_.why)
            case Do.HOLD:
                return self._leave(o, next_.why)
            case Do.EVICT if o.sent is None and not self._parts.reviewed(pod.uid):
                return self._leave(o, "its eviction is none of those that were reviewed")
            case Do.EVICT:
                return self._evict(o, pod)
            case Do.COST:
                for found in self._sight.own(o, self._parts.reads):
                    if found.uid == next_.of:
                        # One that scale-in steering wrote is written by it again.
                        was = f"{next_.cost} {found.annotations.get(DELETION_COST, '')}"
                        cost = {DELETION_COST: str(next_.cost), COST_BEFORE: was}
                        self._parts.patches.annotate(found, cost, fresh)
            case Do.REFER if seen.mark is not None:
                self._refer(o, pod, seen.mark, fresh)
            case Do.GIVE_BACK if seen.mark is not None:
                self._give_back(o, pod, seen, seen.mark, next_, fresh)
        return None

    def _give_back(
        self, o: Opened, pod: Pod, seen: Seen, mark: Mark, next_: Step, fresh: Callable[[], bool]
    ) -> None:
        """Where it takes a Ready pod the method is off from before, in case nobody lives to say so after."""
        doubts = next_.takes_ready and o.denial is None and self._memory.no_release() is None
        if doubts:
            say = f"{pod.key} had to be given back, which took a Ready pod: {next_.why}"
            self._memory.doubt_release(say)
        o.unplaced = any(not p.node_name for p in self._sight.own(o, Glance(self._parts.watched)))
        o.giving = next_
        o.at_fault = not (seen.held or seen.stopping or seen.moved_on) and seen.known
        try:
            self._parts.patches.give_back(pod, mark, o.deployment, fresh)
        except StatusError as e:
            if doubts and e.code < 500:
                self._memory.doubt_no_more()
            raise
        o.back, o.back_at = next_, self._clock.monotonic()

    def _refer(self, o: Opened, pod: Pod, mark: Mark, fresh: Callable[[], bool]) -> None:
        """Where that is refused, the pod is given back."""
        owner = OwnerReference(_MINE, o.replica_set, mark.replica_set, "apps/v1")
        try:
            self._parts.patches.refer(pod, owner, fresh)
            o.referred = True
        except StatusError as e:
            if e.code >= 500 or isinstance(e, ConflictError):
                raise
            o.refused = Held.NEVER
            log.warning("%s gets no reference to its ReplicaSet: %s", pod.key, e.message)

    def _evict(self, o: Opened, pod: Pod) -> Outcome | None:
        move = replace(o.move, pod=pod)
        if o.sent is None:
            came = self._sight.came(o, self._parts.reads)
            move = replace(move, destinations=tuple(p.node_name for p in came))
        permission = Permission(o.look, self._clock, move, NOBODY)

        def may_not() -> Reason | None:
            """Before each request, a further one too: Services first, as reading them takes time in which the
            look would get too old; the other pods last."""
            no = self._not_serving(o, pod) or permission()
            if no is not None or step(self._seen(o, self._parts.reads)[0]).do is Do.EVICT:
                return no
            say = (
                f"the other pods of {pod.key}'s owner are not as many, or not as long Available, as it takes"
            )
            return Reason(ReasonCode.REPLACEMENT_NOT_READY, say)

        eviction = self._evictor.evict(pod, o.move.reason, may_not, permission.fresh)
        if eviction.tried:
            self._pace.sent()
            self._observer.on_eviction(o.move, eviction)
        if eviction.evicted:
            return self._ended(o, Fate.DONE, "its replacement is there", eviction)
        reason = eviction.reason
        o.next_at = self._clock.monotonic() + _AGAIN
        no = eviction.result in _NO or (reason is not None and reason.code not in PASSING)
        again, o.denied = no and o.denied, no  # once, something in between may have said it
        if permission.held is not None:
            self.closed = permission.held
        elif reason is not None and reason.code in _LATER:
            o.refused = Held.LATER
        elif again or self._sight.in_vain(o):
            o.refused = Held.NEVER
            if eviction.result in _DENIED or (reason is not None and reason.code in _NOT_LET):
                o.denial = eviction
            needed = reason is not None and reason.code is ReasonCode.WOULD_WORSEN
            o.rather = o.look.rather(o.move) if needed else ""
        o.refusal = eviction.message
        self._say(o, Step(do=Do.WAIT, why=eviction.message))
        return None

    def _not_serving(self, o: Opened, old: Pod) -> Reason | None:
        """Why the owner's other pods do not serve yet: a Service that sends to the old pod lacks one of them.
        Once it has all, they have to do so for a while. Services are read, too: of a kind that is refused the
        watch forgets all. Raises KubeError."""
        every: list[Pod] | None = None
        for service in self._parts.reads.services(old.namespace):
            name, selects = service.metadata.name, Selector.equals(service.spec.selector)
            if not service.spec.sends or not selects.matches(old.template.labels):
                continue
            every = self._sight.own(o, self._parts.reads) if every is None else every
            own = [p for p in every if selects.matches(p.template.labels)]
            try:
                there = self._parts.reads.serving(old.namespace, name)
            except NotFoundError as e:
                # A server without EndpointSlices says so again; a proxy that knows no way to it does not.
                first, self._sliced = self._sliced, False
                return Reason(ReasonCode.REPLACEMENT_NOT_READY, e.message) if first else None
            except ForbiddenError as e:
                say = f"whether Service {name} sends to the pods that stay cannot be seen: {e.message}"
                return Reason(ReasonCode.NOT_REPLACED_FIRST, say, {}, e.remedy)
            self._sliced = True
            if lacks := [p.name for p in own if p.ready and p.uid not in there]:
                o.enough_since = self._clock.monotonic()
                say = f"Service {name} does not send to {', '.join(lacks[:3])} yet"
                return Reason(ReasonCode.REPLACEMENT_NOT_READY, say)
        return None

    def _given_back(self, o: Opened) -> Outcome | None:
        """The label is back. Once its ReplicaSet has as many pods as it wants, costs are as they were."""
        waited = self._clock.monotonic() - o.back_at
        owner = self._parts.reads.workload(_MINE, o.move.pod.namespace, o.replica_set)
        own = [p for p in self._sight.own(o, self._parts.reads) if p.owner and p.owner.name == o.replica_set]
        adopted = any(p.uid == o.move.pod.uid for p in own)
        if owner is not None and waited < _ADOPTED and not (adopted and len(own) <= owner.replicas):
            there = self._parts.reads.pod(o.move.pod.namespace, o.move.pod.name)
            if adopted or (there is not None and not there.finished):
                return None
        restore(own, self._parts.patches, self._parts.leading)
        why = f"its label was given back: {o.back.why if o.back is not None else ''}"
        elsewhere = o.landed is not None and o.landed.expected is False
        missed = o.at_fault and bool(o.move.awaits) and (elsewhere or o.unplaced)
        status = Fate.FAILED if o.at_fault and not (elsewhere or missed) else Fate.UNDONE
        reason = Reason(ReasonCode.NO_NODE_CAME, why) if missed else None
        if o.denial is not None:
            reason = forbidden(o.move, o.denial.error, "evicting")
        return replace(self._ended(o, status, why), reason=reason)

    # -- how it ends

    def _ended(self, o: Opened, status: Fate, message: str, eviction: Eviction | None = None) -> Outcome:
        base = o.landed or o.sent or Outcome(move=o.move, status=status, message="")
        how = "evicted" if eviction is not None else "released"
        say = f"{o.move.pod.key} {how}; {message}"
        if eviction is not None and o.landed is not None:
            say = o.landed.message
        release = (o.sent.eviction if o.sent is not None else None) or _ONLY_RELEASED
        if o.denial is not None:
            release = replace(release, error=o.denial.error)
        return replace(
            base,
            status=status,
            message=say,
            eviction=eviction or release,
            expected=base.expected if o.landed is not None else None,
        )

    def _leave(self, o: Opened, why: str) -> Outcome:
        """It stays as it is."""
        self._open.pop(o.move.pod.uid, None)
        return self._ended(o, Fate.RELEASED, f"it is held beside its replacement: {why}")

    def _say(self, o: Opened, next_: Step) -> None:
        """Tells what is next, once."""
        if next_.why != o.said:
            o.said = next_.why
            log.info("%s is released; %s: %s", o.move.pod.key, next_.do.value, next_.why)


_NOT_OURS = frozenset({ReasonCode.NOT_LEADING, ReasonCode.RIVAL})
_LATER = frozenset(
    {
        ReasonCode.PAUSED,
        ReasonCode.PAUSED_BY_ANNOTATION,
        ReasonCode.DOMAIN_OUT,
        ReasonCode.NOT_CURRENT,
        ReasonCode.OWNER_UNKNOWN,
    }
)
"""Reasons that end: the move is as right then as it was."""
_NO = frozenset({Result.REFUSED, Result.SEVERAL_BUDGETS})
_DENIED = frozenset({Result.REFUSED, Result.FORBIDDEN, Result.UNASKED})
_NOT_LET = frozenset({ReasonCode.NOT_APPROVED, ReasonCode.EVICTION_REFUSED})
_ONLY_RELEASED = Eviction(result=Result.RELEASED, message="released by an earlier process")


def restore(pods: Iterable[Pod], patches: ReleasePatches, leading: Callable[[], bool]) -> None:
    """Deletion costs that an undo has replaced are as they were, unless somebody has changed them since.
    Never raises."""
    for pod in pods:
        if (was := pod.annotations.get(COST_BEFORE)) is not None:
            given, _, before = was.partition(" ")
            ours = pod.annotations.get(DELETION_COST) == given
            try:
                cost = {DELETION_COST: before or None} if ours else {}
                patches.annotate(pod, {**cost, COST_BEFORE: None}, leading)
            except KubeError as e:
                log.warning("the deletion cost of %s is not as it was: %s", pod.key, e.message)


def _not_as_planned(move: Move, why: str) -> Eviction:
    reason = Reason(ReasonCode.CHANGED_SINCE_PLAN, f"{move.pod.key} was not released: {why}")
    return Eviction(result=Result.HELD, message=reason.message, reason=reason)


def _not_released(move: Move, e: KubeError) -> Eviction:
    """The API server has refused, or was not reached before anything was sent. A right to patch that is
    missing keeps nobody from being evicted, so it is a refusal like any other."""
    result = Result.FAILED
    if isinstance(e, StatusError) and e.by_webhook:
        result = Result.UNASKED if e.unasked else Result.REFUSED
    elif isinstance(e, NotFoundError):
        result = Result.GONE
    elif isinstance(e, TooManyRequestsError):
        result = Result.THROTTLED
    elif isinstance(e, StatusError) and e.code < 500:
        result = Result.REFUSED
    say = f"{move.pod.key} was not released: {e.message}"
    return Eviction(result=result, message=say, posts=1, status=getattr(e, "code", 0), error=e)
