"""What is remembered across cycles and restarts, as plain values: evictions, totals, and what began when.

The format has a version, and a reader refuses what a newer version wrote. The number of entries and bytes is
limited. Entries that are dropped are still counted (`Tally`): first those that owners wait for no longer.
What has not ended, and what the present cycle did, stays. Entries have half of the room at least, and what is
known of domains and violations the other half, as waits rest on both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import chain
from math import ceil, inf
from operator import add
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.options import Earlier, Evicted, Refused

T = TypeVar("T")

# How many evictions there were of each owner: what is left of entries that the ledger has no room for.
#
# Caps over an hour or a day must not forget an eviction because there were many: only time makes them
# forget.

HOUR, DAY, WEEK = 3600.0, 86_400.0, 604_800.0
_TOGETHER = 600
"""Seconds: evictions of one owner within ten minutes are counted together, by the last of them."""
_OWNER_LENGTH = 10


class Count(Struct, frozen=True, array_like=True):
    """So many evictions, the last of them at `at` (epoch seconds, rounded up)."""

    at: Annotated[int, Meta(ge=0, lt=253_370_764_800)]
    evictions: Annotated[int, Meta(ge=0)]


Tally = Mapping[str, tuple[Count, ...]]
"""By `owner_id`, the oldest first."""


def owner_id(owner: str) -> str:
    """A short name for an owner (Kind/namespace/name)."""
    return sha256(owner.encode()).hexdigest()[:_OWNER_LENGTH]


def added(tally: Tally, evictions: Iterable[tuple[str, float]]) -> dict[str, tuple[Count, ...]]:
    """The tally with more evictions: owner and time of each."""
    more = ((owner_id(owner), (Count(ceil(at), 1),)) for owner, at in evictions)
    return _together(chain(tally.items(), more), add)


def stricter(one: Tally, other: Tally) -> dict[str, tuple[Count, ...]]:
    """Two accounts of the same evictions as one that has the higher count of each."""
    return _together(chain(one.items(), other.items()), max)


def not_after(tally: Tally, now: float) -> dict[str, tuple[Count, ...]]:
    """The tally with all that is later than now, by a clock that was ahead, as of now."""
    latest = ceil(now)
    earlier = (tuple(Count(min(c.at, latest), c.evictions) for c in counts) for counts in tally.values())
    return _together(zip(tally, earlier, strict=True), add)


def _together(
    tallies: Iterable[tuple[str, tuple[Count, ...]]], joined: Callable[[int, int], int]
) -> dict[str, tuple[Count, ...]]:
    """Counts by owner; those of the same ten minutes are one, `joined` of their numbers."""
    found: dict[str, dict[int, Count]] = defaultdict(dict)
    for owner, counts in tallies:
        slots = found[owner]
        for c in counts:
            slot = c.at // _TOGETHER
            before = slots.get(slot)
            if before is not None:
                c = Count(max(c.at, before.at), joined(before.evictions, c.evictions))
            slots[slot] = c
    return {owner: tuple(slots[slot] for slot in sorted(slots)) for owner, slots in found.items()}


def recent(tally: Tally, now: float) -> dict[str, tuple[Count, ...]]:
    """What still counts for a cap."""
    kept = {owner: tuple(c for c in counts if now - c.at < DAY) for owner, counts in tally.items()}
    return {owner: counts for owner, counts in kept.items() if counts}


# The ledger as a fence: everybody who writes it claims it, and two claims of one term stop both.
#
# A term is the number of times that the lease changed hands. Who has a higher one came later by the lease,
# so the former holder stops. The same term from two holders means that they do not share a lease; then
# nobody acts until one claim is withdrawn or has run out.


class Claim(Struct, frozen=True, omit_defaults=True):
    """`term`: the lease's transitions when its holder last led. `made`, `until`: epoch seconds; without
    another one by then, its holder is gone."""

    until: float
    term: Annotated[int, Meta(ge=0, lt=2**31)] = 0  # leaseTransitions is an int32
    made: float = 0.0


def rival(claims: Mapping[str, Claim], me: str, term: int, now: float) -> Reason | None:
    """Why `me` must not act in this term: somebody else claims it, or a later one."""
    others = {n: c for n, c in claims.items() if n != me and c.until > now and c.term >= term}
    if not others:
        return None
    name, claim = max(others.items(), key=lambda o: (o[1].term, o[0]))
    numbers = {"term": claim.term, "until": int(claim.until)}
    if claim.term > term:
        return Reason(ReasonCode.RIVAL, f"{name} has taken over: it acts on the same ledger", numbers)
    return Reason(
        ReasonCode.RIVAL,
        f"{name} acts on the same ledger without the same lease: nobody evicts until one of the two is gone "
        f"(if it ended without a word, that is known in {(claim.until - now) / 3600:.1f} h)",
        numbers,
        "end one of them, or give both the same leaderElection.name and namespace",
    )


def claimed(claims: Mapping[str, Claim], me: str, mine: Claim, now: float) -> dict[str, Claim]:
    """The claims with that of `me`, without those that ran out or are of an earlier term."""
    others = {n: c for n, c in claims.items() if n != me and c.until > now and c.term >= mine.term}
    return {**others, me: mine}


# How often a scheduler newer than all known rules did as predicted, which ends the canary there.

ENOUGH = 100
"""Decisions in a row after which the last known rules are taken to be this scheduler's as well."""


class Agreed(Struct, frozen=True, omit_defaults=True):
    """`release`: the minor release that it is about, as "1.37"; `decisions`: those in a row that were as
    predicted."""

    release: str = ""
    decisions: int = 0

    @property
    def enough(self) -> bool:
        """Whether the canary may end."""
        return self.decisions >= ENOUGH

    def of(self, release: str) -> Agreed:
        """What is known of this release: nothing, where it was about another."""
        return self if self.release == release else Agreed(release)

    def after(self, *, agrees: bool) -> Agreed:
        """With one more decision. One that was not as predicted begins the count anew."""
        return Agreed(self.release, min(self.decisions + 1, ENOUGH) if agrees else 0)

    def stricter(self, other: Agreed) -> Agreed:
        """Of two accounts of one release the lower; this one, where they are about different ones."""
        return other if self.release == other.release and other.decisions < self.decisions else self


# What the scheduler's decisions have shown of its rules, branch by branch (engine/branches.py).

COVERED = 459
"""Decisions as predicted in a row after which a branch is in doubt no more, or is known on a version that is
not: were one in a hundred otherwise, so many would go well with less than one percent: 0.99 ** 459 < 0.01."""
MOST_SHOWN = 300
"""Branches that are kept: those with a disagreement, and then those that changed last."""
_LONGEST = 300
"""Letters of what is kept about a disagreement, and of a branch."""


class Shown(Struct, frozen=True, omit_defaults=True):
    """Of one branch, in one version and profile. `agrees`: decisions in a row that were as predicted.
    `disagreed`: the last that was not, until `COVERED` have been again. `at`: when that changed last."""

    at: Annotated[float, Meta(ge=0, lt=253_370_764_800)] = 0.0
    agrees: Annotated[int, Meta(ge=0, le=COVERED)] = 0
    disagreed: Annotated[str, Meta(max_length=_LONGEST)] = ""

    def after(self, agrees: int, disagreed: str, now: float) -> Shown:
        """With more decisions as predicted; if one was not, with those that came after it."""
        number = min(COVERED, agrees if disagreed else self.agrees + agrees)
        why = "" if number == COVERED else (disagreed or self.disagreed)[:_LONGEST]
        return self if (number, why) == (self.agrees, self.disagreed) else Shown(now, number, why)

    def stricter(self, other: Shown) -> Shown:
        """Two accounts of the same as one that allows less."""
        return Shown(
            max(self.at, other.at), min(self.agrees, other.agrees), self.disagreed or other.disagreed
        )


def shown_key(version: str, profile: str, branch: str, scheduler: str = "") -> str:
    """The name under which a branch is remembered; with what this scheduler has shown of it."""
    return "|".join((version, profile, branch, *([scheduler] if scheduler else [])))[:_LONGEST]


VERSION = 1
MOST_ENTRIES = 1000
MOST_BYTES = 512 * 1024
"""Of everything but counts: half of what a ConfigMap may hold."""
MOST_VIOLATIONS = 2000
MOST_IRREPLACEABLE = 500
"""Of a name each, which may have 300 bytes."""
MOST_REFUSED = 500


Time = Annotated[float, Meta(ge=0, lt=253_370_764_800)]
"""Epoch seconds, before the year 9999: what lies behind it, no page could show."""
Number = Annotated[int, Meta(ge=0)]
OwnerKey = Annotated[str, Meta(pattern=r"^[^/]+/[^/]*/[^/]+$")]


class Fate(StrEnum):
    """What became of a move. `RECORDED` and `SKIPPED` evict nothing and are not in the ledger; only there
    `DONE` is told apart from `ELSEWHERE` and `UNSEEN`, and `UNKNOWN` from `FAILED`."""

    INTENDED = "intended"
    """On its way. The ledger has it before the request is sent. If it stays so, the process was killed, and
    the next cycle finds out from the pod what happened."""
    RECORDED = "recorded"
    """Dry run: it would have been evicted."""
    SKIPPED = "skipped"
    """Not evicted, because it was no longer valid."""
    UNKNOWN = "unknown"
    """The pod is gone. Whether this eviction was the cause, and where the replacement went, was not seen."""
    DONE = "done"
    """Its replacement is Ready on one of the planned destinations."""
    ELSEWHERE = "astray"
    """Its replacement runs on a node that is not a planned destination."""
    FAILED = "failed"
    """The eviction failed, or its replacement did not become Ready in time."""
    UNSEEN = "unseen"
    """It was evicted, and nobody waited for the replacement."""
    RELEASED = "released"
    """Replace first: its ReplicaSet has let go of it, and it runs beside its replacement."""
    UNDONE = "undone"
    """Replace first: it was released, and given back to its ReplicaSet."""


OPEN = (Fate.INTENDED, Fate.RELEASED)
"""Of what has not ended."""


class Entry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One eviction. `at`: when it was sent (epoch seconds); until that is known, when it was intended or
    released. `owner`: of the pod (`Workload.counted_as`). `likely`: by known rules, it may end elsewhere.

    `excess`: id of each constraint that the move was to mend → its `surplus` when the move was planned.
    `gates`: scheduling gates that the replacement had, and its template has not.
    `leaves`: the domains (key=value) that the pod left; `into`: those of the same keys where the replacement
    landed; `removed`: when its node was first found gone, 0 = it was not. `room`: millicores of
    the Ready nodes of each domain of `into` when it landed, 0 once there was none; `shrank`: since when that
    domain has less. `cycle` names the cycle, unique across restarts.
    `left`: what its cycle left of it.
    `cluster`: the digest of what the move rested on (`Fingerprints`). `approved`: by whom. `method`: "" where
    it was just evicted. `over_at`: from when on what a process sent that is no more has been carried out, if
    it ever is; 0 = that process is at work, as far as known.
    """

    at: Time
    cycle: str
    namespace: str
    pod: str
    uid: str
    owner: OwnerKey
    node: str
    predicted: str
    fate: Fate = Fate.INTENDED
    destinations: Number = 1
    likely: bool = False
    replacement: str = ""
    landed: str = ""
    excess: dict[str, int] = {}
    left: dict[str, int] = {}
    leaves: tuple[str, ...] = ()
    into: tuple[str, ...] = ()
    removed: Time = 0.0
    room: tuple[Number, ...] = ()
    shrank: tuple[Time, ...] = ()
    gates: tuple[str, ...] = ()
    cluster: str = ""
    reason: str = ""
    message: str = ""
    approved: str = ""
    method: str = ""
    over_at: Time = 0.0

    @property
    def key(self) -> str:
        """namespace/name of the pod."""
        return f"{self.namespace}/{self.pod}"


class Opening(Struct, frozen=True, array_like=True):
    """Nodes of one domain that have the same taints: `opened`: since when some are there, 0: since before
    anybody looked; `shut`: since when none is there any more, 0: there are some; `several`: whether there has
    been more than one at a time."""

    opened: Time = 0.0
    shut: Time = 0.0
    several: bool = False


def taints_in(opening: str) -> int:
    """How many taints the nodes had. With fewer they were open to more pods."""
    return len(opening.split(",")) if opening else 0


class Circuit(Struct, frozen=True, omit_defaults=True):
    """The circuit breaker: no evictions before `until` (epoch seconds); `trips` in a row.

    `sooner`: the end for clocks by which `until` lies further ahead than any trip can mean. 0: none.
    `opened`: when it tripped last. `closed`: when a cycle that ended well closed it for good. 0: never.
    `scope`: the namespaces that those who tripped it looked at (`configured.circuit_limits`); () = all.
    """

    until: Time = 0.0
    trips: Number = 0
    reason: str = ""
    sooner: Time = 0.0
    opened: Time = 0.0
    closed: Time = 0.0
    scope: tuple[str, ...] = ()


class Totals(Struct, frozen=True, omit_defaults=True):
    """Counts since the ledger began. `in_a_row`: evictions as predicted since the last one that was not.
    `replaced`: those after which the replacement had come first."""

    evictions: Number = 0
    as_predicted: Number = 0
    elsewhere: Number = field(name="astray", default=0)
    failed: Number = 0
    in_a_row: Number = 0
    replaced: Number = 0


class Doubt(Struct, frozen=True, omit_defaults=True):
    """Replace first is off since `at` because of `why`, unless somebody has resumed it since (`resumed`)."""

    at: Time = 0.0
    why: str = ""
    resumed: Time = 0.0

    @property
    def off(self) -> bool:
        """Whether nothing may be released."""
        return self.at > self.resumed

    def stricter(self, other: Doubt) -> Doubt:
        """Two accounts of the same as one: the last of each."""
        last = max(self, other, key=lambda d: d.at)
        return Doubt(last.at, last.why, max(self.resumed, other.resumed))


class Ledger(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole ledger. `entries`: evictions, the oldest first. `violated`: constraint id → when its
    violation began (epoch seconds). `looked`: when violations were last looked for; 0 = never.
    `irreplaceable`: workload (Kind/namespace/name) → when a pod of it was first seen of which no node would
    take the replacement. `openings`: domain (key=value) → the taints that its nodes have or had → since when.

    `refused`: pods (namespace/name) that a webhook or a policy did not let go. One that is made anew under
    its name is the same: some webhooks refuse an eviction and have an operator restart the pod instead.

    `unread`: until when nothing is evicted, because a ledger that was there could not be read and nobody
    remembered what stood in it. 0: nothing of the kind.

    `counted`: evictions whose entries were dropped (`Tally`). `doubt`: why replace first is off. `agreed`:
    how often a scheduler newer than all known rules did what was predicted. `shown`: the same by branch, of
    every version.

    `claims`: who acts on this ledger (`Claim`). `writer` and `serial`: which process wrote it, and a number
    that grows with each write. By them a process recognises what it wrote itself.
    """

    version: int = VERSION
    writer: str = ""
    serial: int = 0
    looked: Time = 0.0
    unread: Time = 0.0
    entries: tuple[Entry, ...] = ()
    counted: dict[str, tuple[Count, ...]] = {}
    violated: dict[str, Time] = {}
    irreplaceable: dict[str, float] = {}
    refused: dict[str, Refused] = {}
    openings: dict[str, dict[str, Opening]] = field(name="doors", default_factory=dict)
    totals: Totals = Totals()
    circuit: Circuit = Circuit()
    doubt: Doubt = Doubt()
    agreed: Agreed = Agreed()
    shown: dict[Annotated[str, Meta(max_length=_LONGEST)], Shown] = {}
    claims: dict[str, Claim] = {}


def oldest_first(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The oldest first."""
    return tuple(sorted(entries, key=lambda e: e.at))


def cut_off(
    entries: Sequence[Entry],
    alive: frozenset[str],
    marked: frozenset[str],
    now: float,
    over: Callable[[Entry], bool],
    *,
    at_work: tuple[str, ...] = (),
    read: Callable[[str], bool] = lambda _: True,
) -> tuple[Entry, ...]:
    """The entries, with those settled that an earlier run wrote that was killed. Processes `at_work` (what
    the names of their cycles begin with) settle theirs themselves.

    What was intended with a pod that is there still (`alive`: uids) did not happen and is dropped, once
    requests of then are `over`. If the pod is gone, the fate is unknown, and it may have been sent just now,
    unless an entry that is as young says what became of it: of an older one the pod lived on. Who is released
    is `marked`; who was and is not was given back by somebody. Of namespaces that were not `read` only time
    is known.
    """
    settled, known = [], dict[str, float]()
    for e in entries:
        if e.fate not in OPEN:
            known[e.uid] = max(e.at, known.get(e.uid, 0.0))
    # Whoever has written down the same pod meanwhile: it can go only once.
    last = {e.uid: e for e in sorted(entries, key=lambda e: (e.fate is Fate.RELEASED, e.at))}
    for e in entries:
        if e.fate not in OPEN or e.cycle.startswith(at_work):
            settled.append(e)
        elif last[e.uid] is not e and last[e.uid].fate in OPEN:
            continue
        elif not read(e.namespace):
            lost = e.fate is Fate.INTENDED and over(e)
            settled.append(replace(e, at=e.over_at, fate=Fate.UNKNOWN, message=_CUT_OFF) if lost else e)
        elif e.uid not in alive:
            if e.at > known.get(e.uid, -inf):
                settled.append(replace(e, at=now, fate=Fate.UNKNOWN, message=_CUT_OFF))
        elif e.method and (e.uid in marked or e.fate is Fate.RELEASED):
            settled.append(replace(e, fate=Fate.RELEASED if e.uid in marked else Fate.UNDONE))
        elif not over(e):
            settled.append(e)
    return oldest_first(settled)


_CUT_OFF = "cut off while evicting"


def ready_late(entries: Iterable[Entry], pods: Iterable[Pod]) -> Iterator[Entry]:
    """The entries; a replacement that was given up, and is Ready by now where the pod had to go, has come."""
    ready = {p.key: p.node_name for p in pods if p.ready and not p.terminating}
    for e in entries:
        late = e.fate is Fate.FAILED and e.landed and ready.get(e.replacement) == e.landed
        gone = bool(e.into) and not {*e.into} & {*e.leaves}
        yield replace(e, fate=Fate.DONE, message="") if late and gone else e


# The evictions that caps count: those of the present cycle, of the last hour and of the last day.


def earlier(
    ledger: Ledger, *, now: float, cycle: str, domains: Callable[[str], Iterable[str]] = lambda _: ()
) -> Earlier:
    """The evictions that count at `now`, whatever became of them; only time makes them count no more. What is
    open may be evicted at this moment. `domains`: those (key=value) of a node when the cycle began."""
    by_owner: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for e in ledger.entries:
        at = now if e.fate in OPEN else e.at
        if now - at < DAY:
            by_owner[owner_id(e.owner)].append((at, 1))
    for owner, counts in recent(ledger.counted, now).items():
        by_owner[owner] += [(c.at, c.evictions) for c in counts]
    return Earlier(
        this_cycle=tuple(
            Evicted(e.owner, e.namespace, e.node, (*e.leaves, *domains(e.node)), e.landed)
            for e in ledger.entries
            if e.cycle == cycle
        ),
        last_hour=tuple((at, n) for each in by_owner.values() for at, n in each if now - at < HOUR),
        last_day={owner: tuple(each) for owner, each in by_owner.items()},
    )
