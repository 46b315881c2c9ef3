"""Memory across cycles and restarts: the ledger, and what it means for planning and evicting.

A cycle reads the ledger when it begins. It writes what it intends before it evicts, and the results after.
So a process that is killed in between leaves a trace, and a second process that evicts is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison
from rebalancer.findings.checks.replacing.since import dated, first_seen
from rebalancer.kube.coordination.ledger import Ledgers
from rebalancer.model.finding import Finding
from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import Outcome
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy.history.digests import Fingerprints, constraint_id
from rebalancer.policy.history.earlier import earlier
from rebalancer.policy.history.ledger import Circuit, Entry, Fate, Ledger, cut_off
from rebalancer.policy.history.resting_owners import HistoryRules, held_back, resting
from rebalancer.policy.history.tally import DAY, recent
from rebalancer.policy.history.undone_moves import Account, account, marked
from rebalancer.policy.limits import circuit_breaker as breaker
from rebalancer.policy.limits.circuit_breaker import CircuitLimits
from rebalancer.policy.options import Earlier
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.memory.fates import counted_in, fate_of
from rebalancer.runtime.cycle.memory.shared_ledger import SharedLedger
from rebalancer.runtime.cycle.memory.stabilization import young
from rebalancer.runtime.cycle.memory.undone import same_keys, undone
from rebalancer.runtime.cycle.memory.verdicts import Verdicts, release_beyond


class Memory:
    """The memory of one process; `store`, `writer`, `read_only`, `term`, `silent` as in `SharedLedger`."""

    def __init__(
        self,
        clock: Clock,
        rules: HistoryRules,
        *,
        store: Ledgers | None = None,
        limits: CircuitLimits | None = None,
        writer: str = "",
        read_only: bool = False,
        ignore_circuit: bool = False,
        term: Callable[[], int] = lambda: 0,
        silent: float = 3600.0,
    ) -> None:
        self._shared = SharedLedger(
            clock, store, writer=writer, read_only=read_only, term=term, silent=silent
        )
        self._clock = clock
        self.rules = rules
        self._limits = limits
        self._ignore_circuit = ignore_circuit
        self._cycle = ""
        self._began = 0
        self._looked = False
        self._release = ""
        self._nodes: Mapping[str, Mapping[str, str]] = {}
        """The labels of each node when the cluster was read first in this cycle."""
        self._verdicts = Verdicts()

    @property
    def ledger(self) -> Ledger:
        """What is known now, whether it has been written or not."""
        return self._shared.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._shared.ledger = ledger

    def reconfigure(
        self, rules: HistoryRules, limits: CircuitLimits | None, *, read_only: bool, silent: float
    ) -> None:
        """Takes over other rules. Called between cycles."""
        self.rules, self._limits = rules, limits
        self._shared.read_only, self._shared.silent = read_only, silent

    # -- a cycle

    def begin(self) -> None:
        """Begins a cycle: reads the ledger. Raises KubeError if it cannot be read and pods may go."""
        self._began += 1
        self._looked = False
        self._cycle = f"{self._shared.writer}-{self._began}-{int(self._clock.now())}"
        self._shared.load()

    def looked(self, snapshot: Snapshot) -> None:
        """Takes note that the cluster was read. Once a cycle, settles what an earlier process left open."""
        if self._looked:
            return
        self._looked = True
        self._release = release_beyond(snapshot)
        pods = snapshot.pods if self.ledger.entries else ()
        alive = frozenset(p.uid for p in pods if not p.terminating)
        self._nodes = {n.name: n.labels for n in snapshot.nodes}
        now = self._clock.now()
        self.ledger = replace(
            self.ledger,
            entries=marked(cut_off(self.ledger.entries, alive), self._nodes, now),
            counted=recent(self.ledger.counted, now),
        )
        self._on_trial()

    def resting(self, snapshot: Snapshot) -> dict[str, Reason]:
        """Owner → why former evictions leave it alone for now."""

        prints = Fingerprints(snapshot.nodes)

        def cluster(entry: Entry) -> str:
            kind, namespace, name = entry.owner.split("/", 2)
            found = snapshot.workloads_by_name.get((kind, namespace, name))
            return prints.of(found, (entry.node, entry.predicted)) if found is not None else ""

        now = self._clock.now()
        queues = held_back(self.ledger, now)
        return {
            **resting(self.ledger, self.rules, now=now, cycle=self._cycle, cluster=cluster),
            **{w.key: queues[w.namespace] for w in snapshot.workloads if w.namespace in queues},
        }

    def earlier(self) -> Earlier:
        """The evictions that caps count already."""
        return earlier(self.ledger, now=self._clock.now(), cycle=self._cycle)

    def unsettled(self, snapshot: Snapshot, plan: Plan) -> dict[str, Reason]:
        """Owner → why it is left alone: a violation is too young, or what the plan has for it was undone by
        the removal of nodes. Records when each violation began."""
        found = undone(snapshot, plan, self.ledger, self.rules, now=self._clock.now())
        if self.rules.stabilization <= 0:
            return found
        now, latest = self._clock.now(), self._clock.latest()
        since, unripe = young(snapshot, plan, self.ledger, self.rules, now=now, latest=latest)
        self.ledger = replace(self.ledger, violated=since)
        return {**found, **unripe}

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
        """The evictions of an owner's pods (Kind/namespace/name) within a day."""
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
        return max(0, self.rules.canary - self.ledger.totals.in_a_row)

    def listen(self) -> Callable[[Comparison], None]:
        """To be told of the scheduler's decisions beside the engine's answers, from any thread. Without it,
        only replacements are counted as decisions."""
        return self._verdicts.listen()

    def _on_trial(self) -> bool:
        """Whether a scheduler newer than all known rules has still to show that it does as predicted."""
        if not self._release or not self.rules.canary:
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
                cycle=self._cycle,
                namespace=m.pod.namespace,
                pod=m.pod.name,
                uid=m.pod.uid,
                owner=m.owner.key,
                node=m.pod.node_name,
                predicted=m.predicted,
                certain=m.certain,
                destinations=len(m.destinations),
                excess={
                    constraint_id(plan.constraints[i].constraint): plan.constraints[i].excess for i in m.fixes
                },
                leaves=tuple(left),
                cluster=prints.of(m.owner, (m.pod.node_name, m.predicted)),
                reason=m.reason,
            )
            for m, left in zip(moves, leaves, strict=True)
        )
        self._shared.write(replace(self.ledger, entries=(*self.ledger.entries, *new)))

    def landed(self, outcomes: Sequence[Outcome]) -> None:
        """Takes down outcomes, and removes what was intended and not sent. `save` or `intend` writes it."""
        by_uid = {o.move.pod.uid: o for o in outcomes}
        entries: list[Entry] = []
        totals = self.ledger.totals
        for e in self.ledger.entries:
            outcome = by_uid.get(e.uid)
            if outcome is None or e.cycle != self._cycle or e.fate is not Fate.INTENDED:
                entries.append(e)
                continue
            fate = fate_of(outcome)
            if fate is None:
                continue
            settled = replace(
                e,
                fate=fate,
                replacement=outcome.replacement,
                landed=outcome.node,
                gates=outcome.gates,
                into=same_keys(e.leaves, self._nodes.get(outcome.node, {})),
                seconds=round(outcome.seconds, 1),
                message=outcome.message if fate is not Fate.DONE else "",
            )
            entries.append(settled)
            totals = counted_in(totals, fate)
            if fate in (Fate.DONE, Fate.ASTRAY):
                self._verdicts.landed(agrees=fate is Fate.DONE)
        self.ledger = replace(self.ledger, entries=tuple(entries), totals=totals)

    def settled(self) -> None:
        """Nothing is in flight any more: removes what was intended and not sent, and writes. Never raises."""
        sent = (e for e in self.ledger.entries if e.cycle != self._cycle or e.fate is not Fate.INTENDED)
        self.ledger = replace(self.ledger, entries=tuple(sent))
        self.save()

    def save(self) -> None:
        """Writes what has not been written yet. Never raises."""
        self._shared.save()

    def end(self, *, well: bool) -> None:
        """Ends the cycle. `well`: it ended as it should, which closes an open circuit breaker for good."""
        if well and self.ledger.circuit.trips:
            self.ledger = replace(self.ledger, circuit=Circuit(closed=self._clock.latest()))
        if self._looked and self.rules.stabilization > 0:
            self.ledger = replace(self.ledger, looked=self._clock.latest())
        self.save()

    def leave(self) -> None:
        """The process ends: its claim is withdrawn, so that nobody waits for it. Never raises."""
        self._shared.leave()

    def rival(self) -> Reason | None:
        """Why nothing may be evicted: another rebalancer acts on this ledger, as far as known."""
        return self._shared.rival

    # -- the breaker

    def trip(self, why: str) -> Reason | None:
        """Opens the circuit breaker. Returns why, with the time of the next try; None without a breaker."""
        if self._limits is None:
            return None
        now = self._clock.now()
        opened = breaker.tripped(self.ledger.circuit, why, now=self._clock.latest(), limits=self._limits)
        self.ledger = replace(self.ledger, circuit=opened)
        return breaker.still_open(opened, now=now, limits=self._limits)

    def circuit_open(self) -> Reason | None:
        """Why the circuit breaker, opened by an earlier cycle, is still open, or has to be taken for open.

        Where a clock far ahead opened it, it is open from the first time that this is asked.
        """
        unread = breaker.unread(self.ledger, self._shared.where, now=self._clock.now())
        if unread is not None:
            return unread
        if self._limits is None or self._ignore_circuit:
            return None
        now, circuit = self._clock.now(), self.ledger.circuit
        shortened = breaker.from_now(circuit, now=now, limits=self._limits)
        if shortened != circuit:
            self.ledger = replace(self.ledger, circuit=shortened)
        return breaker.still_open(shortened, now=now, limits=self._limits)

    @property
    def limits(self) -> CircuitLimits | None:
        """Limits of the circuit breaker."""
        return self._limits
