"""Memory across cycles and restarts: the ledger, and what it means for planning and evicting.

A cycle reads it at its start, writes what it intends before a wave and what came of it after the wave. So a
process that is killed in between leaves a trace, and one that evicts beside this one is noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from rebalancer.kube.errors import KubeError
from rebalancer.kube.eviction import Result
from rebalancer.kube.ledger import LedgerConflictError
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Move, Plan
from rebalancer.policy import circuit as breaker
from rebalancer.policy.circuit import CircuitLimits
from rebalancer.policy.cooldown import MemoryRules, cut_off, resting
from rebalancer.policy.fingerprint import constraint_id, fingerprint
from rebalancer.policy.ledger import MOST_ENTRIES, Circuit, Entry, Fate, Ledger, Totals
from rebalancer.runtime.clock import Clock
from rebalancer.runtime.outcome import MoveStatus, Outcome
from rebalancer.runtime.young import young

log = logging.getLogger(__name__)


class Store(Protocol):
    """`rebalancer.kube.ledger.Ledgers`."""

    def load(self) -> Ledger:
        """What is there."""
        ...

    def save(self, ledger: Ledger) -> Ledger:
        """Writes it, unless somebody else has meanwhile."""
        ...


class Memory:
    """The memory of one process. Without a `store` it lasts as long as the process.

    `writer` tells this process from all others. `read_only`: a dry run, which remembers for itself only.
    """

    def __init__(
        self,
        clock: Clock,
        rules: MemoryRules,
        *,
        store: Store | None = None,
        limits: CircuitLimits | None = None,
        writer: str = "",
        read_only: bool = False,
        ignore_circuit: bool = False,
    ) -> None:
        self.ledger = Ledger()
        self._clock = clock
        self.rules = rules
        self._store = store
        self._limits = limits
        self._writer = writer
        self._read_only = read_only
        self._ignore_circuit = ignore_circuit
        self._cycle = ""
        self._began = 0
        self._looked = False
        self._saved = self.ledger

    def reconfigure(self, rules: MemoryRules, limits: CircuitLimits | None, *, read_only: bool) -> None:
        """Takes over other rules, between cycles."""
        self.rules, self._limits, self._read_only = rules, limits, read_only

    # -- a cycle

    def begin(self) -> None:
        """A cycle begins: reads the ledger. Raises KubeError where that cannot be had, and has to be."""
        self._began += 1
        self._looked = False
        self._cycle = f"{self._writer}-{self._began}-{int(self._clock.now())}"
        if self._store is None or (self._read_only and self._began > 1):
            return
        try:
            self.ledger = self._saved = self._store.load()
        except KubeError as e:
            if not self._read_only:
                raise
            log.warning("going on without the ledger, as nothing is evicted: %s", e)

    def looked(self, snapshot: Snapshot) -> None:
        """The cluster was read: what an earlier run left open is settled, once a cycle."""
        if self._looked:
            return
        self._looked = True
        alive = frozenset(p.uid for p in snapshot.pods if not p.terminating)
        self.ledger = replace(self.ledger, entries=cut_off(self.ledger.entries, alive))

    def resting(self, snapshot: Snapshot) -> dict[str, Reason]:
        """Owner → why it is left alone, by former evictions."""

        def cluster(owner: str) -> str:
            kind, namespace, name = owner.split("/", 2)
            found = snapshot.workloads_by_name.get((kind, namespace, name))
            return fingerprint(snapshot.nodes, found) if found is not None else ""

        return resting(self.ledger, self.rules, now=self._clock.now(), cycle=self._cycle, cluster=cluster)

    def unsettled(self, snapshot: Snapshot, plan: Plan) -> dict[str, Reason]:
        """Owner → why it is left alone, because a violation of its pods is too young. Remembers them."""
        if self.rules.stabilization <= 0:
            return {}
        since, found = young(snapshot, plan, self.ledger, self.rules, now=self._clock.now())
        self.ledger = replace(self.ledger, violated=since)
        return found

    def canary(self, evicted: int) -> Reason | None:
        """Why no more may be evicted in this cycle, after so many: until some have gone as predicted, it is
        one."""
        wanted, had = self.rules.canary, self.ledger.totals.in_a_row
        if not wanted or evicted < 1 or had - evicted >= wanted:
            return None
        return Reason(
            ReasonCode.CANARY,
            f"one eviction a cycle until {wanted} in a row have gone as predicted; so far {min(had, wanted)}",
            {"wanted": wanted, "so far": had},
            "the next cycle goes on; evictions.canary: 0 lifts it",
        )

    @property
    def most(self) -> int | None:
        """Evictions of one cycle, None = as many as the plan has."""
        return 1 if self.ledger.totals.in_a_row < self.rules.canary else None

    def intend(
        self, snapshot: Snapshot, plan: Plan, moves: Sequence[Move], leaves: Sequence[Sequence[str]]
    ) -> None:
        """Writes down what is about to be evicted. Raises KubeError: then nothing may be."""
        now = self._clock.now()
        prints = {m.owner.key: fingerprint(snapshot.nodes, m.owner) for m in moves}
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
                cluster=prints[m.owner.key],
                reason=m.reason,
            )
            for m, left in zip(moves, leaves, strict=True)
        )
        intended = replace(self.ledger, entries=(*self.ledger.entries, *new))
        if self._store is not None and not self._read_only:
            # Where this fails nothing of it is evicted, so nothing of it may be written later.
            intended = self._saved = self._store.save(intended)
        self.ledger = intended

    def landed(self, outcomes: Sequence[Outcome]) -> None:
        """Writes down what came of a wave; what was intended and not sent is forgotten. Never raises."""
        by_uid = {o.move.pod.uid: o for o in outcomes}
        entries: list[Entry] = []
        totals = self.ledger.totals
        for e in self.ledger.entries:
            if e.cycle != self._cycle or e.fate is not Fate.INTENDED:
                entries.append(e)
                continue
            outcome = by_uid.get(e.uid)
            fate = _fate(outcome)
            if outcome is None or fate is None:
                continue
            settled = replace(
                e,
                fate=fate,
                replacement=outcome.replacement,
                landed=outcome.node,
                seconds=round(outcome.seconds, 1),
                message=outcome.message if fate is not Fate.DONE else "",
            )
            entries.append(settled)
            totals = _counted_in(totals, fate)
        self.ledger = replace(self.ledger, entries=tuple(entries[-MOST_ENTRIES:]), totals=totals)
        self._try_to_save()

    def end(self, *, well: bool) -> None:
        """The cycle is over; `well`: the breaker, if it was open, closes for good."""
        if well and self.ledger.circuit.trips:
            self.ledger = replace(self.ledger, circuit=Circuit())
        if self._looked and self.rules.stabilization > 0:
            self.ledger = replace(self.ledger, looked=self._clock.now())
        if self.ledger != self._saved:
            self._try_to_save()

    # -- the breaker

    def trip(self, why: str) -> Reason | None:
        """Opens the breaker; when it is tried again. None where there is no breaker."""
        if self._limits is None:
            return None
        now = self._clock.now()
        opened = breaker.tripped(self.ledger.circuit, why, now=now, limits=self._limits)
        self.ledger = replace(self.ledger, circuit=opened)
        return breaker.still_open(opened, now=now, limits=self._limits)

    def circuit_open(self) -> Reason | None:
        """Why the breaker, opened by an earlier cycle, is still open."""
        if self._limits is None or self._ignore_circuit:
            return None
        return breaker.still_open(self.ledger.circuit, now=self._clock.now(), limits=self._limits)

    @property
    def limits(self) -> CircuitLimits | None:
        """Of the breaker."""
        return self._limits

    # -- within

    def _try_to_save(self) -> None:
        if self._store is None or self._read_only:
            return
        for _ in range(2):
            try:
                self.ledger = self._saved = self._store.save(self.ledger)
                return
            except LedgerConflictError as e:
                log.warning("%s; both accounts are kept", e)
                try:
                    self.ledger = _merged(self._store.load(), self.ledger)
                except KubeError as again:
                    log.warning("the ledger could not be written: %s", again)
                    return
            except KubeError as e:
                log.warning("the ledger could not be written; it is tried again with the next wave: %s", e)
                return


def _fate(outcome: Outcome | None) -> Fate | None:
    """None: it was not evicted."""
    if outcome is None:
        return None
    if not outcome.evicted:
        unknown = outcome.eviction is not None and outcome.eviction.result is Result.UNKNOWN
        return Fate.UNKNOWN if unknown else None
    if outcome.status is MoveStatus.FAILED:
        return Fate.FAILED
    if outcome.expected is None:
        return Fate.UNSEEN
    return Fate.DONE if outcome.expected else Fate.ASTRAY


def _counted_in(totals: Totals, fate: Fate) -> Totals:
    done, away, failed = fate is Fate.DONE, fate is Fate.ASTRAY, fate is Fate.FAILED
    return Totals(
        evictions=totals.evictions + 1,
        as_predicted=totals.as_predicted + done,
        astray=totals.astray + away,
        failed=totals.failed + failed,
        in_a_row=0 if away or failed else totals.in_a_row + done,
    )


def _merged(theirs: Ledger, mine: Ledger) -> Ledger:
    """Both accounts: their entries and totals, and ours that they do not have."""
    own = {(e.cycle, e.uid): e for e in mine.entries}
    theirs_left = [e for e in theirs.entries if (e.cycle, e.uid) not in own]
    entries = sorted((*theirs_left, *mine.entries), key=lambda e: e.at)
    return replace(mine, entries=tuple(entries), violated={**theirs.violated, **mine.violated})
