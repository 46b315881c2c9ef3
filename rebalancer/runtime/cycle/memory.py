"""Memory across cycles and restarts: the ledger, and what it means for planning and evicting.

A cycle reads the ledger when it begins. It writes what it intends before it evicts, and the results after.
So a process that is killed in between leaves a trace, and a second process that evicts is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from math import inf

from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison
from rebalancer.engine.config import Witness
from rebalancer.findings.cannot_be_replaced import dated, first_seen
from rebalancer.kube.config_maps import Ledgers
from rebalancer.kube.errors import StatusError
from rebalancer.model.node import HOSTNAME, Node
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Finding, Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Outcome, Result
from rebalancer.planner.plan import ConstraintResult, Move, Plan, domains_left
from rebalancer.policy import circuit_breaker as breaker
from rebalancer.policy.annotations import BEING_EVICTED
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.history.fingerprints import Fingerprints, constraint_id
from rebalancer.policy.history.ledger import (
    DAY,
    OPEN,
    Circuit,
    Entry,
    Fate,
    Totals,
    cut_off,
    earlier,
    oldest_first,
    ready_late,
    recent,
)
from rebalancer.policy.history.stabilization import Followed, stabilizing
from rebalancer.policy.history.waits import (
    Account,
    HistoryRules,
    Paused,
    account,
    held_back,
    looping,
    marked,
    moment,
    openings_of,
    out_for,
    room_of,
    spread_keys,
    together,
    waiting_owners,
)
from rebalancer.policy.options import Earlier, Method, Refused
from rebalancer.policy.release import released
from rebalancer.runtime.cycle.clock import Clock, LastSent
from rebalancer.runtime.cycle.gates import Pauses
from rebalancer.runtime.cycle.owners_that_wait import (
    not_read,
    released_owners,
    same_keys,
    undone,
    unsettled,
    young,
)
from rebalancer.runtime.cycle.replacements import MIGRATION
from rebalancer.runtime.cycle.scheduler_decisions import Verdicts, release_beyond, witness
from rebalancer.runtime.cycle.shared_ledger import SharedLedger


def fate_of(outcome: Outcome) -> Fate | None:
    """What the ledger says of an outcome; None: nothing was evicted."""
    if not outcome.evicted:
        e = outcome.eviction
        return Fate.UNKNOWN if e is not None and (e.unanswered or e.result is Result.UNKNOWN) else None
    if outcome.status in (Fate.FAILED, Fate.RELEASED, Fate.UNDONE):
        return outcome.status
    if outcome.expected is None:
        return Fate.UNSEEN
    return Fate.DONE if outcome.expected else Fate.ELSEWHERE


def counted_in(totals: Totals, fate: Fate, method: str = "") -> Totals:
    """The totals with one more eviction that ended so."""
    done, away, failed = fate is Fate.DONE, fate is Fate.ELSEWHERE, fate is Fate.FAILED
    return Totals(
        evictions=totals.evictions + 1,
        as_predicted=totals.as_predicted + done,
        elsewhere=totals.elsewhere + away,
        failed=totals.failed + failed,
        in_a_row=0 if away or failed else totals.in_a_row + done,
        replaced=totals.replaced + (done and bool(method)),
    )


_RELEASED_ONE_BY_ONE = 5
"""Releases that have to go well before a second one may be open at a time."""
_ON_ITS_WAY = 180.0
"""Seconds after which what a process sent that is no more has been carried out, and is seen: longer than a
request of it, and than a watch may be silent."""
_REFUSALS = 2
"""Evictions of one owner that are asked for in vain in a cycle. A webhook may refuse all of them."""


def _for_this_cycle(refused: int) -> Reason:
    """Why no further pod of an owner is asked for."""
    say = f"{refused} evictions of its pods were refused in this cycle: it goes on in the next"
    return Reason(ReasonCode.EVICTION_REFUSED, say, {"refused": refused})


class Memory(SharedLedger):
    """The memory of one process. `limits`: of the circuit breaker."""

    def __init__(
        self,
        clock: Clock,
        rules: HistoryRules,
        *,
        store: Ledgers | None = None,
        limits: CircuitLimits | None = None,
        writer: str = "",
        read_only: bool = False,
        attended: bool = False,
        term: Callable[[], int] = lambda: 0,
        silent: float = 3600.0,
        elsewhere: Callable[[], Reason | None] = lambda: None,
    ) -> None:
        super().__init__(
            clock, store, writer=writer, read_only=read_only, term=term, silent=silent, elsewhere=elsewhere
        )
        self.rules = rules
        self.newest: Callable[[], Iterable[HistoryRules]] = tuple
        """Those of the settings of this moment, where they are others."""
        self.limits = limits
        self.attended = attended
        self.last_sent = LastSent()
        self.could_read: set[tuple[str, str]] = set()
        """Kinds and namespaces that this process could read (`kube.reading.Objects`)."""
        self._began = 0
        self._refusals: list[tuple[str, str]] = []
        """Of this cycle: pods (namespace/name) and their owners."""
        self._pauses = Pauses()
        self.closed: dict[str, Reason] = {}
        """Of this cycle: namespaces in which nothing more is asked for. A right or a webhook may come back at
        any moment."""
        self._looked = False
        self._landed: list[tuple[str, float]] = []
        self.unasked: set[str] = set()
        """Namespaces of whose last eviction a webhook could not be asked."""
        self._release = ""
        self._nodes: dict[str, Node] = {}
        """All that this cycle has seen, as they were first. They may be gone, or be labelled otherwise."""
        self._there: Sequence[Node] | None = None
        """Those that are there; None: not looked at yet."""
        self._judged = 0.0
        """When the waits of the plan at work were found out, of the monotonic clock."""
        self._verdicts = Verdicts()
        self.followed: Callable[[], Followed] = Followed
        """What watches have seen of the violations."""
        self.scheduler: Callable[[], str] = lambda: ""
        """Which scheduler decides now, as comparisons name it; "" where none may count as known."""

    def reconfigure(
        self, rules: HistoryRules, limits: CircuitLimits | None, *, read_only: bool, silent: float
    ) -> None:
        """Takes over other rules. Called between cycles."""
        self.rules, self.limits, self.read_only, self.silent = rules, limits, read_only, silent

    @property
    def in_force(self) -> HistoryRules:
        """The rules of the cycle, and what became stricter since."""
        return reduce(HistoryRules.stricter, self.newest(), self.rules)

    # -- a cycle

    def begin(self) -> None:
        """Begins a cycle: reads the ledger. Raises KubeError if it cannot be read and pods may go."""
        self._began += 1
        self._looked, self._landed, self._refusals, self.closed = False, [], [], {}
        self._nodes, self._there = {}, None
        self.cycle = f"{self.writer}-{self._began}-{int(self._clock.now())}"
        self.load()

    def at_work(self) -> str:
        """The cycle that, by the ledger, is evicting now; "" if none is."""
        alive = self._at_work()
        mine = (e.cycle for e in self.ledger.entries if e.fate is Fate.INTENDED and e.cycle.startswith(alive))
        return next(mine, "")

    def _at_work(self) -> tuple[str, ...]:
        """What the cycles of other processes begin with that claim the ledger now, and may act."""
        now, term = self._clock.now(), self._term()
        return tuple(
            f"{name}-"
            for name, claim in self.ledger.claims.items()
            if name != self.writer and now < claim.until and claim.term >= term
        )

    def looked(self, snapshot: Snapshot) -> None:
        """Takes note that the cluster was read. Once a cycle, settles what an earlier process left open."""
        pods = snapshot.pods if self.ledger.entries else ()
        if not self._looked:
            self._looked = True
            self._take_up(snapshot, pods)
        made = (w.template for w in snapshot.workloads if w.template is not None)
        self.ledger = replace(self.ledger, entries=tuple(ready_late(self.ledger.entries, pods)))
        self._saw(snapshot.nodes, spread_keys((*made, *(g.template for g in snapshot.live))) - {HOSTNAME})

    def saw(self, nodes: Sequence[Node]) -> None:
        """Takes note of the nodes that are there now: domains come and go in the course of a long cycle."""
        if nodes is not self._there:
            self._saw(nodes, {d.partition("=")[0] for d in self.ledger.openings})

    def _saw(self, nodes: Sequence[Node], keys: set[str]) -> None:
        self._there = nodes
        self._nodes = {n.name: n for n in nodes} | self._nodes
        now, latest, before = self._clock.now(), self._clock.latest(), self.ledger
        openings = openings_of(nodes, keys, before.openings, now, self.in_force.out_wait, latest=latest)
        self.ledger = replace(before, openings=openings, entries=marked(before.entries, nodes, now))

    def _take_up(self, snapshot: Snapshot, pods: Sequence[Pod]) -> None:
        """What an earlier process left."""
        self._release = release_beyond(snapshot)
        alive = frozenset(p.uid for p in pods if not p.terminating)
        apart = frozenset(p.uid for p, _ in released(pods))
        now = self._clock.now()
        migrate = {p.uid for p in pods if BEING_EVICTED in p.annotations}
        only, working = snapshot.read_namespaces, self._at_work()
        before = tuple(
            replace(e, over_at=self._over_at(e))
            if e.fate is Fate.INTENDED and not e.cycle.startswith(working)
            else e
            for e in self.ledger.entries
        )
        entries = cut_off(
            before,
            alive,
            apart,
            self._clock.latest(),
            lambda e: e.over_at + MIGRATION * (e.uid in migrate) <= now,
            at_work=working,
            read=lambda namespace: not only or namespace in only,
        )
        # Another process may have sent it, so the pace is that of the ledger.
        times = (now if e.fate is Fate.INTENDED else e.at for e in (*self.ledger.entries, *entries))
        ago = max(0.0, now - max(times, default=-inf))
        self.last_sent.at = max(self.last_sent.at, self._clock.monotonic() - ago)
        self.ledger = replace(
            self.ledger,
            entries=entries,
            counted=recent(self.ledger.counted, now),
            refused=self._still_refused(max(self.in_force.retry_after, DAY)),
        )
        self._on_trial()

    def _over_at(self, entry: Entry) -> float:
        """From when on what a process sent that is at work no more has been carried out, if it is at all, and
        is seen. Nobody wrote down when it was sent: at the latest now, where nobody said so before."""
        if entry.cycle.startswith(f"{self.writer}-"):
            return self._clock.now()
        last = self._clock.latest() + _ON_ITS_WAY
        return min(entry.over_at or last, last)

    def _paused(self, snapshot: Snapshot) -> dict[str, Reason]:
        """The namespaces that are paused, by a slip of the hand, too."""
        every = ((n.metadata.name, n.metadata.annotations) for n in snapshot.namespaces.values())
        asked = ((name, self._pauses.why_not(f"namespace {name}", a, snapshot.now)) for name, a in every)
        return {name: why for name, why in asked if why is not None}

    def waits(self, snapshot: Snapshot, plan: Plan, paused: Paused) -> dict[str, Reason]:
        """Owner → all that it waits for, with one end. `plan`: what would be done if nobody waited; `paused`:
        domains that somebody has taken out. Records when each violation began."""

        prints, unread = Fingerprints(snapshot.nodes), not_read(snapshot)
        movers = {m.owner.counted_as: m.owner for m in plan.moves}

        def cluster(entry: Entry) -> str:
            kind, namespace, name = entry.owner.split("/", 2)
            found = snapshot.workloads_by_name.get((kind, namespace, name))
            found = found or next(iter(unread.get(entry.owner, ())), None) or movers.get(entry.owner)
            rested = entry.node, entry.predicted
            return prints.again(entry.cluster, found, rested) if found is not None else ""

        self._judged = self._clock.monotonic()
        self._note_left(plan)
        now, latest, rules = self._clock.now(), self._clock.latest(), self.in_force
        found = waiting_owners(self.ledger, rules, now=now, cycle=self.cycle, cluster=cluster)
        # A plan goes by the names of what is read.
        found |= {w.key: [*found[o]] for o, sets in unread.items() if o in found for w in sets}
        closed = held_back(self.ledger, now) | self.closed | self._paused(snapshot)
        every = (*snapshot.workloads, *movers.values())
        more = [{w.key: closed[w.namespace] for w in every if w.namespace in closed}]
        there = (*snapshot.nodes, *plan.new_nodes)
        more.append(self.undone(there, plan.moves, domains_left(snapshot, plan)))
        more.append(released_owners(snapshot))
        more.append(self.refusing)
        if rules.stabilization > 0:
            since, unripe = young(snapshot, plan, self.ledger, rules, self.followed(), now=now, latest=latest)
            # Of this moment is what it says, and not of the cycle's end.
            self.ledger = replace(self.ledger, violated=since, looked=min(latest, snapshot.now))
            more.append(unripe)
        more.append(self.unsettled(snapshot.nodes, plan.moves, plan.constraints))
        loops = looping(self.ledger, rules, now=now, cluster=cluster)
        for m in plan.moves if loops else ():
            mends = [constraint_id(plan.constraints[i].constraint) for i in m.fixes]
            known = any(r.code is ReasonCode.EVICTION_LOOP for r in found.get(m.owner.key, ()))
            if mends and all(i in loops for i in mends) and not known:
                found.setdefault(m.owner.key, []).append(loops[mends[0]])
        for each in more:
            for owner, reason in each.items():
                found.setdefault(owner, []).append(reason)
        for owner, template in {m.owner.key: m.replacement for m in plan.moves}.items():
            if out := self.out_for(template, snapshot.nodes, paused):
                found[owner] = [*found.get(owner, ()), *out.values()]
        return together(found)

    def _note_left(self, plan: Plan) -> None:
        """What is left of the violations that this cycle evicted for: what comes beyond that is a return."""
        mine = {c for e in self.ledger.entries if e.cycle == self.cycle for c in e.excess}
        if not mine:
            return
        now = {i: c.surplus for c in plan.constraints if (i := constraint_id(c.constraint)) in mine}

        def noted(e: Entry) -> Entry:
            if e.cycle != self.cycle or e.fate in OPEN:
                return e
            # The least, as what undoes a repair may be faster than the next plan.
            left = {c: min(now[c], e.left.get(c, n - 1)) for c, n in e.excess.items() if c in now}
            return replace(e, left=left)

        self.ledger = replace(self.ledger, entries=tuple(map(noted, self.ledger.entries)))

    def unsettled(
        self, nodes: Sequence[Node], moves: Iterable[Move], constraints: Sequence[ConstraintResult]
    ) -> dict[str, Reason]:
        """Owner → that a domain has to settle in which a replacement could land, by these nodes."""
        rules = self.in_force
        if not rules.settle:
            return {}
        now, latest = self._clock.now(), self._clock.latest()
        return unsettled(nodes, moves, constraints, self.ledger, rules, now=now, latest=latest)

    def undone(
        self, nodes: Iterable[Node], moves: Iterable[Move], leaves: Callable[[Move], Sequence[str]]
    ) -> dict[str, Reason]:
        """Owner → that the removal of nodes has undone such moves. `leaves`: `plan.domains_left`."""
        return undone(nodes, moves, leaves, self.ledger, self.in_force, now=self._clock.now())

    def began_anew(self, move: Move, constraints: Sequence[ConstraintResult]) -> Reason | None:
        """That all violations for which a pod was to move ended and began anew since `waits`."""
        rules, seconds = self.in_force, self._clock.monotonic() - self._judged
        onsets = self.followed().onsets if rules.stabilization else {}
        began = [onsets.get(constraint_id(constraints[i].constraint)) for i in move.fixes if onsets]
        if not began or any(o is None or o.ago >= seconds for o in began):
            return None
        last = max(o.ago for o in began if o is not None)
        return stabilizing(self._clock.latest() - last, rules, self._clock.now())

    def out_for(self, template: PodTemplate, nodes: Sequence[Node], paused: Paused) -> dict[str, Reason]:
        """Why no pod of the template moves: domains that it could use and that are out, by these nodes."""
        self.saw(nodes)
        now, out_wait = self._clock.now(), self.in_force.out_wait
        return out_for(template, nodes, self.ledger.openings, paused, out_wait, now)

    @property
    def refusing(self) -> dict[str, Reason]:
        """Owners of which no further pod is asked for in this cycle, and why."""
        asked = Counter(owner for _, owner in self._refusals)
        return {o: _for_this_cycle(n) for o, n in asked.items() if n >= _REFUSALS}

    @property
    def refused(self) -> dict[str, Refused]:
        """Pods (namespace/name) that are not asked for again yet, as their eviction was refused: in this
        cycle, or not long ago."""
        return self._still_refused(self.in_force.retry_after)

    def _still_refused(self, lasts: float) -> dict[str, Refused]:
        now, mine = self._clock.now(), dict(self._refusals)
        return {key: r for key, r in self.ledger.refused.items() if key in mine or now - r.at < lasts}

    def earlier(self) -> Earlier:
        """The evictions that caps count already."""

        def domains(node: str) -> Iterator[str]:
            labels = self._nodes[node].labels if node in self._nodes else {}
            return (f"{key}={value}" for key, value in labels.items())

        return earlier(self.ledger, now=self._clock.now(), cycle=self.cycle, domains=domains)

    def dated(
        self, findings: Sequence[Finding], looked_at: Callable[[str], bool] = lambda _: True
    ) -> tuple[Finding, ...]:
        """The findings with since when they were seen, which is written down for those to come. `looked_at`:
        whether they are those of this namespace too."""
        known = self.ledger.irreplaceable
        seen = first_seen(known, findings, now=self._clock.now(), looked_at=looked_at)
        if seen != known:
            self.ledger = replace(self.ledger, irreplaceable=seen)
        return dated(known, findings)

    def undone_moves(self) -> Account:
        """How many moves of the last week the removal of nodes has undone."""
        return account(self.ledger, self._clock.now())

    def today(self, owner: str) -> tuple[Entry, ...]:
        """The evictions of an owner's pods (`Workload.counted_as`) within a day."""
        now = self._clock.now()
        return tuple(e for e in self.ledger.entries if e.owner == owner and now - e.at < DAY)

    @property
    def most_in_flight(self) -> int | None:
        """How many evictions may be in flight; None: as many as the plan has.

        Until enough evictions in a row went as predicted: one, and once one has, two. Where the scheduler is
        newer than all known rules, until enough of its decisions were as predicted as well.
        """
        if not self.canary_left and not self._on_trial():
            return None
        return 1 + (self.ledger.totals.in_a_row > 0)

    @property
    def canary_left(self) -> int:
        """How many more evictions in a row must go as predicted before more than two may be in flight."""
        return max(0, self.in_force.canary - self.ledger.totals.in_a_row)

    def listen(self) -> Callable[[Comparison], None]:
        """To be told of the scheduler's decisions beside the engine's answers, from any thread. Without it,
        only replacements are counted as decisions."""
        return self._verdicts.listen()

    def witness(self, version: str) -> Witness:
        """What the decisions of this version's scheduler have shown so far; it is taken down."""
        shown = self._verdicts.taken_down(self.ledger.shown, self._clock.now())
        if shown != self.ledger.shown:
            self.ledger = replace(self.ledger, shown=shown)
        return witness(shown, version, self.scheduler)

    def _on_trial(self) -> bool:
        """Whether a scheduler newer than all known rules has still to show that it does as predicted."""
        if not self._release or not self.in_force.canary:
            return False
        agreed = self._verdicts.counted(self.ledger.agreed.of(self._release))
        if agreed != self.ledger.agreed:
            self.ledger = replace(self.ledger, agreed=agreed)
        return not agreed.enough

    def intend(
        self, snapshot: Snapshot, plan: Plan, moves: Sequence[Move], leaves: Sequence[Sequence[str]]
    ) -> None:
        """Writes down what is about to be evicted. Raises KubeError; nothing may be evicted then."""
        now = self._clock.latest()
        prints = Fingerprints(snapshot.nodes)
        new = tuple(
            Entry(
                at=now,
                cycle=self.cycle,
                namespace=m.pod.namespace,
                pod=m.pod.name,
                uid=m.pod.uid,
                owner=m.owner.counted_as,
                node=m.pod.node_name,
                predicted=m.predicted,
                destinations=len(m.destinations),
                likely=not (m.certain or self._release),
                excess={
                    constraint_id(c.constraint): c.surplus for c in (plan.constraints[i] for i in m.fixes)
                },
                leaves=tuple(left),
                into=m.awaits,
                cluster=prints.of(m.owner, (m.pod.node_name, m.predicted)),
                reason=m.reason,
                approved=m.approved,
                method="" if m.method is Method.EVICT else m.method.value,
            )
            for m, left in zip(moves, leaves, strict=True)
        )
        self.write(replace(self.ledger, entries=(*self.ledger.entries, *new)))

    def sent(self, uid: str) -> None:
        """What was intended with that pod was sent: from now on it counts. Nothing is written for it, as what
        is open counts for everybody else as of when it is read."""
        now, every = self._clock.latest(), self.ledger.entries
        made = (replace(e, at=now) if e.uid == uid and e.fate is Fate.INTENDED else e for e in every)
        self.note(replace(self.ledger, entries=oldest_first(made)))

    def landed(self, outcomes: Sequence[Outcome]) -> None:
        """Enters outcomes, and removes what was intended and not sent. `save` or `intend` stores it."""
        by_uid = {o.move.pod.uid: o for o in outcomes}
        entries: list[Entry] = []
        totals = self.ledger.totals
        for e in self.ledger.entries:
            outcome = by_uid.get(e.uid)
            mine = (e.cycle == self.cycle and e.fate is Fate.INTENDED) or e.fate is Fate.RELEASED
            if outcome is None or not mine:
                entries.append(e)
                continue
            fate = fate_of(outcome)
            if fate is None:
                continue
            if fate is Fate.RELEASED:
                entries.append(replace(e, fate=fate, message=outcome.message))
                continue
            here = (n for n in self._there or () if n.name == outcome.node)
            node = next(here, self._nodes.get(outcome.node))
            missed = outcome.reason is not None and outcome.reason.code is ReasonCode.NO_NODE_CAME
            known = node is not None and not missed
            into = same_keys(e.leaves, node.labels) if known and node else outcome.move.awaits
            lost = self._lost(e) if fate is Fate.ELSEWHERE or (fate is Fate.FAILED and not known) else ()
            into = lost or into
            room = room_of(self._there or (), (d.partition("=")[0] for d in into))
            settled = replace(
                e,
                # What was released is evicted at its end.
                at=self._clock.latest() if e.fate is Fate.RELEASED else e.at,
                fate=fate,
                replacement=outcome.replacement,
                landed=outcome.node,
                gates=outcome.gates,
                into=into,
                room=tuple(room[d] for d in into),
                shrank=tuple(self._clock.latest() for _ in into) if missed or lost else e.shrank,
                message=outcome.message if fate is not Fate.DONE else "",
            )
            entries.append(settled)
            totals = counted_in(totals, fate, e.method)
            if fate in (Fate.DONE, Fate.ELSEWHERE):
                self._verdicts.landed(agrees=fate is Fate.DONE)
                self._landed.append((outcome.node, self._clock.monotonic()))
        refused = dict(self.ledger.refused)
        for o in outcomes:
            if o.reason is not None and o.reason.code is ReasonCode.MAY_NOT_EVICT:
                self.closed[o.move.pod.namespace] = o.reason
            result, said = (o.eviction.result, o.eviction.error) if o.eviction is not None else (None, None)
            if result is Result.REFUSED or (result is Result.RELEASED and said is not None):
                self._refusals.append((o.move.pod.key, o.move.owner.key))
                # Any other 4xx may come from something in front of the API server, and pass soon.
                if isinstance(said, StatusError) and said.by_webhook and not said.unasked:
                    refused[o.move.pod.key] = Refused.of(o.move.pod, self._clock.latest(), said.text)
        self.ledger = replace(self.ledger, entries=oldest_first(entries), totals=totals, refused=refused)

    def _lost(self, entry: Entry) -> tuple[str, ...]:
        """The domains where the replacement was to land, if no Ready node is there any more: then it says
        nothing against the move."""
        node = self._nodes.get(entry.predicted)
        into = same_keys(entry.leaves, node.labels) if node is not None else ()
        room = room_of(self._there or (), (d.partition("=")[0] for d in into))
        return tuple(d for d in into if not room[d])

    # -- replace first

    def released(self, uid: str) -> Entry | None:
        """The entry of a pod that is released, or about to be."""
        return next((e for e in self.ledger.entries if e.uid == uid and e.method and e.fate in OPEN), None)

    def no_release(self) -> Reason | None:
        """Why nothing may be released until somebody resumes it."""
        doubt = self.ledger.doubt
        if not doubt.off:
            return None
        say = f"replaceFirst is off since {moment(doubt.at, self._clock.now())}: {doubt.why}"
        return Reason(ReasonCode.RELEASE_OFF, say, {}, "look into it; `rebalancer resume` turns it on again")

    def doubt_release(self, why: str) -> None:
        """Turns the method off. Raises KubeError: then what was to follow must not be done."""
        off = replace(self.ledger.doubt, at=self._clock.latest(), why=why)
        self.write(replace(self.ledger, doubt=off))

    def doubt_no_more(self) -> None:
        """What was to follow came to nothing. `save` or `intend` writes it."""
        doubt = self.ledger.doubt
        self.ledger = replace(self.ledger, doubt=replace(doubt, resumed=doubt.at))

    @property
    def most_released(self) -> int | None:
        """How many pods may be released at a time until the first few have gone well; None: no such limit."""
        return 1 if self.in_force.canary and self.ledger.totals.replaced < _RELEASED_ONE_BY_ONE else None

    def landed_on(self) -> list[tuple[str, float]]:
        """The nodes on which replacements of this cycle became Ready, and how many seconds ago."""
        now = self._clock.monotonic()
        return [(node, now - at) for node, at in self._landed]

    def settled(self) -> None:
        """Nothing is in flight any more: removes what was intended and not sent, and writes. Never raises."""
        sent = (e for e in self.ledger.entries if e.cycle != self.cycle or e.fate is not Fate.INTENDED)
        self.ledger = replace(self.ledger, entries=tuple(sent))
        self.save()

    def end(self, *, well: bool) -> None:
        """Ends the cycle. `well`: it evicted and ended as it should, or everything is as it should be. That
        closes a circuit breaker for good whose time is over."""
        # By the clock by which that is over: a later time would close what another trips until then.
        if well and self.ledger.circuit.trips and self.circuit_waits() is None:
            self.ledger = replace(self.ledger, circuit=Circuit(closed=self._clock.now()))
        self.save()

    # -- the breaker

    @property
    def looked_at_all(self) -> bool:
        """Whether this process looks at all that the breaker was opened for."""
        return not self.attended and (self.limits is None or breaker.covers(self.ledger.circuit, self.limits))

    def trip(self, why: str) -> Reason | None:
        """Opens the circuit breaker. Returns why, with the time of the next try; None without a breaker."""
        if self.limits is None:
            return None
        now = self._clock.now()
        opened = breaker.tripped(self.ledger.circuit, why, now=self._clock.latest(), limits=self.limits)
        self.ledger = replace(self.ledger, circuit=opened)
        return breaker.still_open(opened, now=now, limits=self.limits)

    def circuit_open(self) -> Reason | None:
        """Why the circuit breaker, opened by an earlier cycle, binds this process, or has to be taken for
        open."""
        unread = breaker.unread(self.ledger, self.where, now=self._clock.now())
        return unread if unread is not None or self.attended else self.circuit_waits()

    def circuit_waits(self) -> Reason | None:
        """Why the circuit breaker is still open, also for who does not wait for it.

        Where a clock far ahead opened it, it is open from the first time that this is asked.
        """
        if self.limits is None:
            return None
        now, circuit = self._clock.now(), self.ledger.circuit
        shortened = breaker.from_now(circuit, now=now, limits=self.limits)
        if shortened != circuit:
            self.ledger = replace(self.ledger, circuit=shortened)
        return breaker.still_open(shortened, now=now, limits=self.limits)
