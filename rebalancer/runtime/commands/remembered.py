"""What a report takes from the ledger: which owners the daemon leaves alone, whether it trusts itself, and
since when pods cannot be replaced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import nullcontext
from datetime import UTC

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import Brakes, Ledgers
from rebalancer.kube.connection import Connection
from rebalancer.kube.patches import EventNote
from rebalancer.kube.reading import Objects
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.plan import Plan, PlanOptions
from rebalancer.policy.caps import outside
from rebalancer.policy.history.ledger import Entry, Fate, Ledger
from rebalancer.policy.history.ledgers_merged import as_of
from rebalancer.policy.history.waits import HistoryRules, Paused, is_wait
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners, topmost
from rebalancer.runtime.commands.explain import SHORT_KINDS
from rebalancer.runtime.commands.source import Source, connected
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.gates import PauseCheck
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import remembering
from rebalancer.runtime.live.configured import circuit_limits, live_options, memory_rules
from rebalancer.runtime.live.places import known_home, places_of
from rebalancer.runtime.observers.log import EVICTED
from rebalancer.settings import Settings

log = logging.getLogger(__name__)


class Remembered(Struct, frozen=True, eq=False):
    """`memory`: as it is of somebody who watches; None: there is none. `canary`: how many evictions go one or
    two at a time first. `irreplaceable`: workload → since when it has pods that no node would take again.
    `paused`: domains that are taken out. `held`: why nothing at all is evicted now. `daemon`: the rules of
    somebody who does not watch. `source`: the live cluster that is asked what else a plan rests on. `cycle`:
    the one at work, which does not wait for its own evictions."""

    memory: Memory | None = None
    canary: int = 0
    irreplaceable: Mapping[str, float] = {}
    paused: Paused = {}
    held: tuple[Reason, ...] = ()
    daemon: HistoryRules = HistoryRules()
    source: Source | None = None
    cycle: str = ""

    def plan(self, snapshot: Snapshot, planning: PlanOptions) -> tuple[Plan, PlanOptions]:
        """What `rebalancer once --execute` would do now, and the options with the owners that wait."""
        if self.memory is not None:
            self.memory.looked(snapshot)
        with connected(self.source) if self.source is not None else nullcontext() as connection:
            reads = Objects(connection, wait=threading.Event().wait) if connection is not None else None
            plan = remembering(planning, self.memory, reads=reads, paused=lambda: self.paused)(snapshot)
        waits = self._waits(snapshot, plan)
        return plan, replace(planning, policy=replace(planning.policy, waiting_owners=waits))

    def waits(self, snapshot: Snapshot, plan: Plan) -> Iterator[tuple[str, Reason]]:
        """What the daemon waits for that would carry out this plan: owner, "" for everything, and why."""
        yield from (("", reason) for reason in self.held)
        if self.memory is not None:
            self.memory.rules, self.memory.cycle = self.daemon, self.cycle
        movers = {m.owner.key for m in plan.moves}
        yield from ((o, reason) for o, reason in self._waits(snapshot, plan, movers).items())

    def _waits(self, snapshot: Snapshot, plan: Plan, movers: Set[str] = frozenset()) -> dict[str, Reason]:
        """What keeps owners from being in the plan, and what these `movers` that are in it would wait for."""
        owners = Owners(snapshot, PolicyOptions())
        stay = ((owners.of(b.pod), b.reason) for b in plan.blocked if is_wait(b.reason))
        found = {owners.top(owner).key: reason for owner, reason in stay if owner is not None}
        if self.memory is not None and movers:
            every = self.memory.waits(snapshot, plan, self.paused)
            found |= {o: every[o] for o in movers & every.keys()}
        return dict(sorted(found.items()))

    def waits_for(self, snapshot: Snapshot, plan: Plan, pod: Pod) -> Reason | None:
        """What the daemon waits for before it evicts this pod of the plan."""
        if self.memory is not None:
            self.memory.looked(snapshot)
        waits, owner = dict(self.waits(snapshot, plan)), topmost(snapshot, pod)
        return waits.get("") or (waits.get(owner.key) if owner is not None else None)

    def since(self, snapshot: Snapshot, pod: Pod) -> float | None:
        """Since when the pod's workload has pods that no node would take again."""
        owners = Owners(snapshot, PolicyOptions())
        owner = owners.of(pod)
        return self.irreplaceable.get(owners.top(owner).key) if owner is not None else None


_YEAR_9999 = 253_370_764_800.0
"""Its first second. What lies behind it, somebody else has written: no page can show it."""


def remembered(settings: Settings, source: Source) -> Remembered:
    """What the ledger of the cluster says.

    Nothing if the ledger cannot be read, or was never written: then nobody evicts by it, and the report is
    that of the same cluster in a file.

    A report needs no right beyond `list`, so an unreadable ledger is no error. An installed one, whose role
    has no other right, does not ask what else a plan rests on: that is an assumption there.
    """
    with connected(source) as connection:
        asked = None if known_home(settings, connection) else source
        if settings.ledger.mode != "configMap":
            return Remembered(source=asked)
        try:
            return _remembered(settings, connection, asked)
        except UserError as e:
            log.info("the report is made without the ledger: %s", e)
            return Remembered(source=asked)


def _remembered(settings: Settings, connection: Connection, asked: Source | None) -> Remembered:
    wait = threading.Event().wait
    # Of a namespace that is named it is found out only for who evicts whether an installation is there.
    evicts = settings.evictions.model_copy(update={"enabled": True})
    meant = settings.model_copy(update={"evictions": evicts}) if settings.ledger.namespace else settings
    places = places_of(meant, connection, wait=wait)
    store = Ledgers(connection, places.ledger, writer="", wait=wait)
    clock = SystemClock(server=connection.time)
    rules, limits = memory_rules(settings, attended=True), circuit_limits(settings)
    memory = Memory(clock, rules, store=store, limits=limits, read_only=True)
    pause = PauseCheck(Brakes(connection, wait=wait), places.brake, clock)
    found, why = store.load(), pause.why_not()
    if why is not None and why.code is ReasonCode.NO_BRAKE and places.none_yet:
        why = None  # whoever evicts where nothing is installed brings a brake
    if not found.serial:
        return Remembered(held=() if why is None else (why,), source=asked)
    stuck = {w: at for w, at in found.irreplaceable.items() if 0 < at < _YEAR_9999}
    known = as_of(found, clock.latest(), 0.0, earliest=clock.now())
    memory.ledger = replace(known, irreplaceable=stuck)
    in_a_row = memory.ledger.totals.in_a_row
    canary = max(0, settings.evictions.canary - in_a_row)
    windows = live_options(settings, connection, places).windows
    shut = outside(windows, clock.now(), clock.latest()) if windows else None
    held = tuple(r for r in (why, memory.circuit_open(), shut) if r is not None)
    daemon = memory_rules(settings, attended=False)
    return Remembered(memory, canary, stuck, pause.out, held, daemon, asked, memory.at_work())


# What happened to a pod or an owner, from the ledger and from Events.

_SAME = 300.0
"""Seconds by which an event and the ledger's entry of one eviction may differ, as two clocks do."""


class HistoryLine(Struct, frozen=True, kw_only=True):
    """One line of `rebalancer history`, and its JSON: an eviction, or a warning about one.

    `at`: epoch seconds. `node` → `landed`, as far as known. `destinations`: how many nodes were predicted, of
    which `predicted` is one. `method`: "replaceFirst" where the replacement came before the eviction.
    """

    at: float
    namespace: str
    pod: str
    owner: str
    fate: str
    node: str = ""
    predicted: str = ""
    destinations: int = 1
    replacement: str = ""
    landed: str = ""
    reason: str = ""
    message: str = ""
    method: str = "evict"

    @property
    def path(self) -> str:
        """From where to where, as it was predicted and as it went."""
        went = "its replacement was not seen"
        if self.replacement:
            went = f"{self.replacement} {f'on {self.landed}' if self.landed else 'had no node'}"
        if self.destinations > 1:
            many = f"one of the {self.destinations} nodes predicted, such as {self.predicted}"
            return f"from {self.node} to {many}: {went}"
        return f"from {self.node}, {self.predicted} was predicted: {went}"


def history_of(ledger: Ledger, events: Iterable[EventNote], what: str = "") -> list[HistoryLine]:
    """The lines, oldest first. `what`: namespace/pod, pod, Kind/name, namespace/owner or owner; "" = all.

    The ledger comes first. Events add evictions that it does not have.
    """
    found = [_of_entry(e) for e in ledger.entries]
    known = [(p.pod, p.namespace, p.at) for p in found]
    for event in events:
        seen = _of_event(event)
        if seen is None:
            continue
        twice = any(
            (seen.pod, seen.namespace) == (pod, space) and abs(seen.at - at) < _SAME
            for pod, space, at in known
        )
        if not (twice and event.reason == EVICTED):
            found.append(seen)
    return sorted((p for p in found if _matches(p, what)), key=lambda p: p.at)


def _of_entry(e: Entry) -> HistoryLine:
    return HistoryLine(
        at=e.at,
        namespace=e.namespace,
        pod=e.pod,
        owner=e.owner,
        fate="being evicted" if e.fate is Fate.INTENDED else e.fate.value,
        node=e.node,
        predicted=e.predicted,
        destinations=e.destinations,
        replacement=e.replacement,
        landed=e.landed,
        reason=e.reason,
        method=e.method or "evict",
        message="; ".join(filter(None, [e.message, e.approved and f"approved by {e.approved}"])),
    )


def _of_event(event: EventNote) -> HistoryLine | None:
    """From the pod's own Event, and from warnings on owners. Other Events on owners repeat the pod's."""
    about = event.regarding
    if event.event_time is None or (about.kind != "Pod" and event.type != "Warning"):
        return None
    pod, other = (about, event.related) if about.kind == "Pod" else (event.related, about)
    when = event.event_time if event.event_time.tzinfo else event.event_time.replace(tzinfo=UTC)
    return HistoryLine(
        at=when.timestamp(),
        namespace=about.namespace,
        pod=pod.name if pod is not None else "",
        owner=f"{other.kind}/{other.namespace}/{other.name}" if other is not None else "",
        fate="warning" if event.type == "Warning" else "evicted",
        reason=event.reason,
        message=event.note,
    )


def _matches(p: HistoryLine, what: str) -> bool:
    if not what:
        return True
    kind, namespace, name = [*p.owner.lower().split("/", 2), "", ""][:3]
    head, _, tail = what.lower().partition("/")
    names = {
        p.pod,
        f"{p.namespace}/{p.pod}",
        f"pod/{p.pod}",
        p.replacement,
        p.replacement.partition("/")[2],
        name,
        f"{namespace}/{name}",
        f"{kind}/{name}",
        p.owner.lower(),
    } - {""}
    return what.lower() in names or f"{SHORT_KINDS.get(head, head)}/{tail}" in names
