"""Memory across cycles and restarts: the ledger, and what it means for planning and evicting.

A cycle reads the ledger when it begins. It writes what it intends before it evicts, and the results after.
So a process that is killed in between leaves a trace, and a second process that evicts is noticed.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import inf

from msgspec.structs import replace

from rebalancer.engine.agreement import Comparison
from rebalancer.engine.agreement import Result as Verdict
from rebalancer.engine.branches import within
from rebalancer.engine.config import Witness
from rebalancer.engine.version import ServerVersion
from rebalancer.findings.cannot_be_replaced import dated, first_seen
from rebalancer.kube.config_maps import LedgerConflictError, Ledgers
from rebalancer.kube.errors import KubeError
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod, PodTemplate
from rebalancer.model.reason import Finding, Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.outcome import Outcome, Result
from rebalancer.planner.plan import ConstraintResult, Move, Plan, domains_left
from rebalancer.policy import circuit_breaker as breaker
from rebalancer.policy.circuit_breaker import CircuitLimits
from rebalancer.policy.ledger import (
    COVERED,
    DAY,
    ENOUGH,
    HOUR,
    OPEN,
    Agreed,
    Circuit,
    Claim,
    Entry,
    Fate,
    Fingerprints,
    Ledger,
    Shown,
    Totals,
    as_of,
    claimed,
    constraint_id,
    cut_off,
    earlier,
    merged,
    oldest_first,
    ready_late,
    recent,
    rival,
    shown_key,
    within_limits,
)
from rebalancer.policy.options import Earlier, Method, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.release import released, released_of
from rebalancer.policy.waits import (
    Account,
    HistoryRules,
    Openings,
    Paused,
    account,
    came_back,
    held_back,
    marked,
    moment,
    opened_lately,
    openings_of,
    out_for,
    pairs,
    room_of,
    spread_keys,
    stabilizing,
    together,
    undone_pairs,
    waiting_owners,
    why,
)
from rebalancer.policy.waits import first_seen as first_violated
from rebalancer.runtime.cycle.clock import Clock, LastSent
from rebalancer.spread.constraint import Constraint

# What the ledger says of an outcome, and how it counts.


_THE_PODS_END = (Result.GONE, Result.TERMINATING)
"""It went otherwise: no late delivery of ours evicts it."""


def fate_of(outcome: Outcome) -> Fate | None:
    """What the ledger says of an outcome; None: nothing was evicted."""
    if not outcome.evicted:
        e = outcome.eviction
        late = e is not None and e.unanswered and e.result not in _THE_PODS_END
        return Fate.UNKNOWN if e is not None and (late or e.result is Result.UNKNOWN) else None
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


# The ledger as this process has it, and as it stands in the cluster: read, written and claimed.
#
# Where somebody else has written it in between, the two accounts become one. So what this process remembers
# is never replaced by less: whoever deletes, cuts or edits the ledger, or restores an older one, lifts no
# cap and closes no breaker for it.

log = logging.getLogger(__name__)


class SharedLedger:
    """`ledger` is what this process knows; without a `store` it lasts as long as the process.

    `writer` tells this process from all others. `read_only`: a dry run, which writes nothing to the store.
    `term`: the lease's transitions (`ledger.Claim`). `silent`: for how many seconds this process may write
    nothing although it is there. `elsewhere`: why evictions that it would have to know are counted elsewhere.
    `where`: what a person calls the ledger.
    """

    def __init__(
        self,
        clock: Clock,
        store: Ledgers | None,
        *,
        writer: str,
        read_only: bool,
        term: Callable[[], int],
        silent: float,
        elsewhere: Callable[[], Reason | None],
    ) -> None:
        self.ledger = Ledger()
        self.cycle = ""
        """The name of the cycle at work, or of the last one."""
        self.writer = writer
        self.read_only = read_only
        self.silent = silent
        self._rival: Reason | None = None
        self.where = str(store.place) if store is not None else "the ledger"
        self._clock = clock
        self._store = store
        self._term = term
        self._elsewhere = elsewhere
        self._saved = self.ledger
        self._asked = False

    @property
    def installation(self) -> str:
        """What marks its releases as its own: the name of the ledger; without one, of this process."""
        return str(self._store.place) if self._store is not None else self.writer

    def rival(self) -> Reason | None:
        """Why nothing may be evicted: another rebalancer acts on this ledger, as far as known, or others
        have acted on another one."""
        return self._rival or self._elsewhere()

    def load(self) -> None:
        """Reads what others have written. Raises KubeError if it cannot be read and pods may go; a dry run
        reads once."""
        again, self._asked = self._asked, True
        if self._store is None:
            self.ledger = self._as_of_now(within_limits(self.ledger, self.cycle))
            return
        if self.read_only and again:
            return
        try:
            self._read(self._store)
        except KubeError as e:
            if not self.read_only:
                raise
            log.warning("going on without the ledger, as nothing is evicted: %s", e)
            return
        if self.read_only:
            return
        self._look_for_rival(self.ledger)
        if self._rival is not None:
            # The other one finds this claim when it next writes down what it intends.
            self._try_to_save()

    def _read(self, store: Ledgers) -> bool:
        """Takes over what is in the store, beside what this process remembers; whether that is more. Raises
        KubeError."""
        found = store.load()
        # What was put aside is to be written anew.
        self._saved = found if not store.aside else Ledger()
        theirs, mine = self._as_of_now(found), self._as_of_now(self.ledger)
        if not store.there:
            # Whoever deletes one that could not be read wants to begin anew.
            mine = replace(mine, unread=0.0)
        if mine != Ledger():
            self.ledger = merged(theirs, mine, self.cycle)
            more = len(self.ledger.entries) - len(theirs.entries)
            if more <= 0 and theirs.circuit.until >= self.ledger.circuit.until:
                return False
            tripped = ", and an open circuit breaker" if self.ledger.circuit.trips else ""
            say = "%s has less than this process remembers, which holds: %d more evictions%s"
            log.warning(say, self.where, more, tripped)
            return True
        if all(part.startswith("entries[") for part in store.aside):
            # Some entries less: that is no reason to trust the others more than in a first run.
            row = 0 if store.aside else theirs.totals.in_a_row
            self.ledger = replace(theirs, totals=replace(theirs.totals, in_a_row=row))
        else:
            self.ledger = replace(theirs, totals=Totals(), unread=self._clock.latest() + HOUR)
        return False

    def write(self, ledger: Ledger) -> None:
        """From now on this is the ledger, in the store too. Raises KubeError."""
        if self._store is not None and not self.read_only:
            # Where this fails nothing of it is evicted, so nothing of it may be written later.
            try:
                ledger = self._saved = self._store.save(self._with_claim(ledger), self.cycle)
            except LedgerConflictError as e:
                self._meet()
                if self._rival is None:
                    raise
                raise LedgerConflictError(self._rival.message, self._rival.remedy, target=e.target) from e
        self.ledger = ledger

    def save(self) -> None:
        """Writes what has not been written yet. Never raises."""
        if self.ledger != self._saved:
            self._try_to_save()

    def leave(self) -> None:
        """The process ends: its claim is withdrawn, so that nobody waits for it. What somebody has deleted or
        damaged is written once more. Never raises."""
        if self._store is None or self.read_only or self.writer not in self._saved.claims:
            return
        try:
            if self._read(self._store) or self.writer in self.ledger.claims:
                others = {name: c for name, c in self.ledger.claims.items() if name != self.writer}
                self._store.save(replace(self.ledger, claims=others), self.cycle)
        except KubeError as e:
            log.info("the claim on the ledger runs out by itself: %s", e.message)

    def note(self, ledger: Ledger) -> None:
        """From now on this is the ledger; that alone is no reason to write it."""
        if self.ledger == self._saved:
            self._saved = ledger
        self.ledger = ledger

    def _try_to_save(self) -> None:
        if self._store is None or self.read_only:
            return
        try:
            self.ledger = self._saved = self._store.save(self._with_claim(self.ledger), self.cycle)
        except LedgerConflictError as e:
            log.warning("%s; both accounts are kept", e)
            self._meet()
        except KubeError as e:
            log.warning("the ledger could not be written; it is tried again later: %s", e)

    def _meet(self) -> None:
        """Somebody else has written: takes over what they know, and says that this process is here."""
        assert self._store is not None
        try:
            self._read(self._store)
            self._look_for_rival(self.ledger)
            self.ledger = self._saved = self._store.save(self._with_claim(self.ledger), self.cycle)
        except KubeError as e:
            log.warning("the ledger could not be written: %s", e)

    def _with_claim(self, ledger: Ledger) -> Ledger:
        made = self._clock.latest()
        mine = Claim(until=made + self.silent, term=self._term(), made=made)
        return replace(ledger, claims=claimed(ledger.claims, self.writer, mine, self._clock.now()))

    def _look_for_rival(self, ledger: Ledger) -> None:
        before = self._rival
        self._rival = rival(ledger.claims, self.writer, self._term(), self._clock.now())
        if self._rival is not None and before is None:
            log.warning("%s", self._rival.message)

    def _as_of_now(self, ledger: Ledger) -> Ledger:
        return as_of(ledger, self._clock.latest(), self.silent, earliest=self._clock.now())


# Violations that are too young to act on: a rollout or an autoscaler may still be at work.


def young(
    snapshot: Snapshot, plan: Plan, ledger: Ledger, rules: HistoryRules, *, now: float, latest: float
) -> tuple[dict[str, float], dict[str, Reason]]:
    """When each violation began, and the owners that are left alone because of a young one.

    Returns constraint id → epoch seconds, and owner → reason. Violations of soft constraints come and go. A
    young one does not hold back an owner that has a lasting violation of a hard constraint, and one that came
    with the nodes of a domain is not held back for.
    """
    results = {constraint_id(c.constraint): c for c in plan.constraints if c.in_scope and c.excess}
    violated = {i: c.constraint for i, c in results.items()}
    first = not ledger.looked
    ages = {
        i: _youngest(snapshot, c) if first and i not in ledger.violated else None for i, c in violated.items()
    }
    since = first_violated(ledger, ages, now=latest)
    reasons = {
        i: reason
        for i, began in since.items()
        if stabilizing(began, rules, now) is not None
        and (
            reason := stabilizing(
                began, rules, now, _settled(snapshot, results[i], ledger.openings, rules, latest)
            )
        )
    }
    if not reasons:
        return since, {}
    owners = Owners(snapshot, PolicyOptions())
    counted = {i: _owners(snapshot, c, owners) for i, c in violated.items() if i in reasons or c.hard}
    lasting = {o for i, keys in counted.items() if i not in reasons for o in keys}
    found: dict[str, Reason] = {}
    for i, reason in reasons.items():
        for owner in counted[i]:
            if violated[i].hard or owner not in lasting:
                found.setdefault(owner, reason)
    return since, found


def _settled(
    snapshot: Snapshot, result: ConstraintResult, openings: Openings, rules: HistoryRules, latest: float
) -> float:
    """When all domains with the fewest pods that have come back, or were opened, not long ago have settled;
    never, where one has not: infinity."""
    key, fewest = result.constraint.topology_key, min(result.domains.values(), default=0)
    lowest: dict[str, list[Node]] = {d: [] for d, count in result.domains.items() if count == fewest}
    for node in snapshot.nodes:
        if (domain := node.labels.get(key)) in lowest:
            lowest[domain].append(node)
    settled = (
        min(
            came_back(nodes, rules, latest),
            opened_lately(nodes, openings.get(f"{key}={domain}", {}), rules, latest),
        )
        for domain, nodes in lowest.items()
    )
    return max(settled, default=inf)


def _counted(snapshot: Snapshot, constraint: Constraint) -> Iterator[Pod]:
    """The live pods that a constraint counts."""
    verdicts: dict[int, bool] = {}
    for p in snapshot.pods:
        if p.namespace != constraint.namespace or not p.node_name or p.finished or p.terminating:
            continue
        key = id(p.template)
        if key not in verdicts:
            verdicts[key] = constraint.counts(p.namespace, p.template.labels)
        if verdicts[key]:
            yield p


def _owners(snapshot: Snapshot, constraint: Constraint, owners: Owners) -> list[str]:
    """The topmost owners of the live pods that a constraint counts, each once."""
    found = (owners.of(pod) for pod in _counted(snapshot, constraint))
    return list(dict.fromkeys(owners.top(o).key for o in found if o is not None))


def _youngest(snapshot: Snapshot, constraint: Constraint) -> float | None:
    """When the youngest of the counted pods was created; None if that is not known of all of them."""
    made = [p.created for p in _counted(snapshot, constraint)]
    known = [c for c in made if c is not None]
    return max(known) if known and len(known) == len(made) else None


# Owners whose moves would go where the removal of nodes has undone earlier ones.


def same_keys(domains: Iterable[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The domains (key=value) of a node with these labels, for the keys of `domains`."""
    keys = (d.partition("=")[0] for d in domains)
    return tuple(f"{k}={labels[k]}" for k in keys if k in labels)


def undone(
    snapshot: Snapshot, plan: Plan, ledger: Ledger, rules: HistoryRules, *, now: float
) -> dict[str, Reason]:
    """Owner → why it is left alone: wherever a replacement of this plan may land, the pair of domains is
    undone_pairs."""
    tired = undone_pairs(ledger, rules, now)
    in_vain = undone_pairs(ledger, rules, now, Fate.UNDONE)
    if not (tired or in_vain):
        return {}
    labels = {n.name: n.labels for n in (*snapshot.nodes, *plan.new_nodes)}
    left = domains_left(snapshot, plan)
    found: dict[str, Reason] = {}
    for move in plan.moves:
        leaves = left(move)
        for pair in pairs(leaves, move.awaits):
            if pair in in_vain:
                found.setdefault(move.owner.key, why(pair, in_vain[pair], now, waited=True))
        there = [pairs(leaves, same_keys(leaves, labels.get(d, {}))) for d in move.destinations]
        if there and all(any(p in tired for p in ps) for ps in there):
            pair = next(p for p in there[0] if p in tired)
            found.setdefault(move.owner.key, why(pair, tired[pair], now))
    return found


# Deployments that are not read: their evictions are known by their names.


def not_read(snapshot: Snapshot) -> dict[str, list[Workload]]:
    """Kind/namespace/name of each Deployment that the snapshot does not have → its ReplicaSets, those that
    want most pods first."""
    sets = [w for w in snapshot.workloads if w.has_deployment]
    found: dict[str, list[Workload]] = defaultdict(list)
    for w in sorted(sets, key=lambda w: -w.replicas):
        if snapshot.owner_of(w.namespace, w.owner) is None:
            found[w.counted_as].append(w)
    return found


# Owners with a pod too many: what is planned for them rests on a pod that goes, or comes back.


def released_owners(snapshot: Snapshot) -> dict[str, Reason]:
    """Owner → why it is left alone: a pod of it is released."""
    found: dict[str, Reason] = {}
    for pod, _, owner in released_of(snapshot):
        top = snapshot.owner_of(pod.namespace, owner.owner)
        say = f"{pod.key} is released, and runs beside its replacement"
        found[(top or owner).key] = Reason(ReasonCode.RELEASED, say, {}, _RELEASED_REMEDY)
    return found


_RELEASED_REMEDY = "it is finished, or given back, when evictions may go on; see docs/operations.md"


# Decisions of a scheduler newer than all known rules, counted as they come, from any thread.

_APART = 60.0
_TOLD = {Verdict.AGREES: True, Verdict.DISAGREES: False}
"""The results that say something about where pods land."""


class Verdicts:
    """Comparisons that the ledger has not counted yet. More than `ENOUGH` of them are never of use."""

    def __init__(self) -> None:
        self._new: deque[bool] = deque(maxlen=2 * ENOUGH)
        self._listening = False
        self._lock = threading.Lock()
        self._shown: dict[tuple[str, ...], tuple[int, str]] = {}
        self._missed: dict[tuple[str, ...], None] = {}
        self._counted = set[tuple[tuple[str, ...], str]]()
        self._counted_at = 0.0

    def listen(self) -> Callable[[Comparison], None]:
        """What to call with each comparison. From then on these alone count."""
        self._listening = True
        return self._compared

    def landed(self, *, agrees: bool) -> None:
        """A replacement runs on a planned node, or on another. Where somebody compares all pods, it is among
        those."""
        if not self._listening:
            self._new.append(agrees)

    def counted(self, agreed: Agreed) -> Agreed:
        """With those that have come since the last time."""
        while self._new:
            agreed = agreed.after(agrees=self._new.popleft())
        return agreed

    def shown(self, now: float) -> dict[tuple[str, ...], tuple[int, str]]:
        """By version, profile and branch: how many decisions were as predicted since the last time; and which
        was not, then how many since that one. By whose decisions they are, too: how many show the branch.
        Pods of one owner are no evidence apart: of those of a minute one counts."""
        with self._lock:
            found, self._shown = self._shown, {}
            if now - self._counted_at >= _APART:
                self._counted.clear()
                self._counted_at = now
        return found

    def missed(self) -> Collection[tuple[str, ...]]:
        """By version, profile and branch: of what nothing is shown any more that was before."""
        with self._lock:
            found, self._missed = self._missed, {}
        return found

    def _compared(self, comparison: Comparison) -> None:
        c, agrees = comparison, _TOLD.get(comparison.result)
        if agrees is None:
            return
        with self._lock:
            for branch in c.missed if agrees else c.branches:
                missed = c.version, c.profile, branch
                self._missed[missed] = None
                self._shown = {k: s for k, s in self._shown.items() if not _shows(k, missed)}
            if not c.certain:
                return
            self._new.append(agrees)
            for branch in c.branches:
                key: tuple[str, ...] = (c.version, c.profile, branch)
                if not agrees:
                    self._shown[key] = 0, f"{c.namespace}/{c.pod}: {c.message}"
                else:
                    self._count(key, c.owner)
            for branch in c.shown if agrees and c.scheduler else ():
                self._count((c.version, c.profile, branch, c.scheduler), c.owner)

    def _count(self, key: tuple[str, ...], owner: str) -> None:
        if not owner or (key, owner) not in self._counted:
            self._counted.add((key, owner))
            number, why = self._shown.get(key, (0, ""))
            self._shown[key] = number + 1, why


def _shows(key: Sequence[str], which: tuple[str, ...]) -> bool:
    """Whether it was shown, by key, of this version, profile and branch, or of one that reads more."""
    return len(key) == 4 and tuple(key[:2]) == which[:2] and within(key[2], which[2])


def release_beyond(snapshot: Snapshot) -> str:
    """The server's minor release, as "1.37", if it is newer than all known rules, else ""."""
    version = ServerVersion.parse(snapshot.server_version)
    return f"{version.minor[0]}.{version.minor[1]}" if version.newer_by else ""


_RELEASED_ONE_BY_ONE = 5
"""Releases that have to go well before a second one may be open at a time."""


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
        self._began = 0
        self._looked = False
        self._landed: list[tuple[str, float]] = []
        self._release = ""
        self._nodes: Mapping[str, Node] = {}
        """As they were when the cluster was read first in this cycle."""
        self._verdicts = Verdicts()
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
        self._looked, self._landed = False, []
        self.cycle = f"{self.writer}-{self._began}-{int(self._clock.now())}"
        self.load()

    def at_work(self) -> str:
        """The cycle that, by the ledger, is evicting now; "" if none is."""
        now, claims = self._clock.now(), self.ledger.claims
        alive = tuple(f"{writer}-" for writer, claim in claims.items() if now < claim.until)
        mine = (e.cycle for e in self.ledger.entries if e.fate is Fate.INTENDED and e.cycle.startswith(alive))
        return next(mine, "")

    def looked(self, snapshot: Snapshot) -> None:
        """Takes note that the cluster was read. Once a cycle, settles what an earlier process left open."""
        if self._looked:
            return
        self._looked = True
        self._release = release_beyond(snapshot)
        pods = snapshot.pods if self.ledger.entries else ()
        alive = frozenset(p.uid for p in pods if not p.terminating)
        apart = frozenset(p.uid for p, _ in released(pods))
        self._nodes = {n.name: n for n in snapshot.nodes}
        now = self._clock.now()
        keys = spread_keys(w.template for w in snapshot.workloads if w.template is not None)
        entries = cut_off(self.ledger.entries, alive, apart, self._clock.latest())
        # Another process may have sent it, so the pace is that of the ledger.
        times = (now if e.fate is Fate.INTENDED else e.at for e in (*self.ledger.entries, *entries))
        ago = max(0.0, now - max(times, default=-inf))
        self.last_sent.at = max(self.last_sent.at, self._clock.monotonic() - ago)
        self.ledger = replace(
            self.ledger,
            openings=openings_of(snapshot.nodes, keys, self.ledger.openings, now, self.in_force.out_wait),
            entries=marked(ready_late(entries, pods), snapshot.nodes, now),
            counted=recent(self.ledger.counted, now),
        )
        self._on_trial()

    def waits(self, snapshot: Snapshot, plan: Plan, paused: Paused) -> dict[str, Reason]:
        """Owner → all that it waits for, with one end. `plan`: what would be done if nobody waited; `paused`:
        domains that somebody has taken out. Records when each violation began."""

        prints, unread = Fingerprints(snapshot.nodes), not_read(snapshot)

        def cluster(entry: Entry) -> str:
            kind, namespace, name = entry.owner.split("/", 2)
            found = snapshot.workloads_by_name.get((kind, namespace, name))
            found = found or next(iter(unread.get(entry.owner, ())), None)
            return prints.of(found, (entry.node, entry.predicted)) if found is not None else ""

        now, latest, rules = self._clock.now(), self._clock.latest(), self.in_force
        found = waiting_owners(self.ledger, rules, now=now, cycle=self.cycle, cluster=cluster)
        # A plan goes by the names of what is read.
        found |= {w.key: [*found[o]] for o, sets in unread.items() if o in found for w in sets}
        queues = held_back(self.ledger, now)
        more = [{w.key: queues[w.namespace] for w in snapshot.workloads if w.namespace in queues}]
        more.append(undone(snapshot, plan, self.ledger, rules, now=now))
        more.append(released_owners(snapshot))
        if rules.stabilization > 0:
            since, unripe = young(snapshot, plan, self.ledger, rules, now=now, latest=latest)
            self.ledger = replace(self.ledger, violated=since)
            more.append(unripe)
        for each in more:
            for owner, reason in each.items():
                found.setdefault(owner, []).append(reason)
        for owner, template in {m.owner.key: m.replacement for m in plan.moves}.items():
            if out := self.out_for(template, snapshot.nodes, paused):
                found[owner] = [*found.get(owner, ()), *out.values()]
        return together(found)

    def out_for(self, template: PodTemplate, nodes: Sequence[Node], paused: Paused) -> dict[str, Reason]:
        """Why no pod of the template moves: domains that it could use and that are out, by these nodes."""
        now, openings, out_wait = self._clock.now(), self.ledger.openings, self.in_force.out_wait
        keys = {d.partition("=")[0] for d in openings}
        seen = openings_of(nodes, keys, openings, self._clock.latest(), out_wait)
        return out_for(template, nodes, seen, paused, out_wait, now)

    def earlier(self) -> Earlier:
        """The evictions that caps count already."""
        return earlier(self.ledger, now=self._clock.now(), cycle=self.cycle)

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
        now = self._clock.now()
        missed, new = self._verdicts.missed(), self._verdicts.shown(now)
        shown = {
            key: Shown(now) if s.agrees and any(_shows(key.split("|"), which) for which in missed) else s
            for key, s in self.ledger.shown.items()
        }
        for parts, (agrees, said) in new.items():
            key = shown_key(*parts)
            shown[key] = shown.get(key, Shown()).after(agrees, said, now)
        if shown != self.ledger.shown:
            self.ledger = replace(self.ledger, shown=shown)
        own = [(key.split("|"), s) for key, s in shown.items() if key.startswith(f"{version}|")]
        here = {(k[1], k[2]): s for k, s in own if len(k) == 3}
        enough = [k for k, s in own if len(k) == 4 and s.agrees == COVERED]
        scheduler = self.scheduler() if enough else ""
        return Witness(
            covered=frozenset((k[1], k[2]) for k in enough if scheduler and k[3] == scheduler),
            doubted={
                (
                    profile,
                    branch,
                ): f"the scheduler did otherwise than predicted, and until {COVERED} decisions in a row on "
                f"{branch!r} are as predicted, or planner.schedulerConfig is another, what rests on it is "
                f"likely: {s.disagreed}"
                for (profile, branch), s in here.items()
                if s.disagreed
            },
        )

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
                excess={
                    constraint_id(plan.constraints[i].constraint): plan.constraints[i].excess for i in m.fixes
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
            node = self._nodes.get(outcome.node)
            missed = outcome.reason is not None and outcome.reason.code is ReasonCode.NO_NODE_CAME
            known = node is not None and not missed
            into = same_keys(e.leaves, node.labels) if known and node else outcome.move.awaits
            room = room_of(self._nodes.values(), (d.partition("=")[0] for d in into))
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
                shrank=tuple(self._clock.latest() for _ in into) if missed else e.shrank,
                message=outcome.message if fate is not Fate.DONE else "",
            )
            entries.append(settled)
            totals = counted_in(totals, fate, e.method)
            if fate in (Fate.DONE, Fate.ELSEWHERE):
                self._verdicts.landed(agrees=fate is Fate.DONE)
                self._landed.append((outcome.node, self._clock.monotonic()))
        self.ledger = replace(self.ledger, entries=oldest_first(entries), totals=totals)

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
        if well and self.ledger.circuit.trips and self.circuit_waits() is None:
            self.ledger = replace(self.ledger, circuit=Circuit(closed=self._clock.latest()))
        if self._looked and self.rules.stabilization > 0:
            self.ledger = replace(self.ledger, looked=self._clock.latest())
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
