"""Which owners are left alone, as former evictions and the age of violations have it.

Three rules over the ledger, in this order:

- an owner rests for `cool_down` after each eviction of an earlier cycle;
- a move that did not help (its replacement went astray, or did not become Ready) is not tried again while the
  nodes, the owner's template and its replicas are as they were, for `retry_after` at most;
- an owner whose violation has come back `max_returns` times though its evictions went as predicted is in a
  loop with something else: it is left alone until the cluster changed, for `retry_after` at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy.ledger import Entry, Fate, Ledger

_AWAY = frozenset({Fate.ASTRAY, Fate.FAILED})


class MemoryRules(Struct, frozen=True, kw_only=True):
    """Durations in seconds; 0 switches a rule off. `canary`: evictions in a row that have to go as predicted
    before a cycle may evict more than one."""

    cool_down: float = 0.0
    retry_after: float = 6 * 3600.0
    max_returns: int = 2
    stabilization: float = 0.0
    canary: int = 0


def resting(
    ledger: Ledger,
    rules: MemoryRules,
    *,
    now: float,
    cycle: str,
    cluster: Callable[[str], str],
) -> dict[str, Reason]:
    """Owner (Kind/namespace/name) → why it is left alone.

    `cycle`: the one at work, whose own evictions do not make an owner rest. `cluster`: the fingerprint, now,
    of what an owner's moves rest on; "" where the owner is gone.
    """
    by_owner: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        by_owner[entry.owner].append(entry)
    found: dict[str, Reason] = {}
    for owner, entries in by_owner.items():
        reason = _cooling([e for e in entries if e.cycle != cycle], rules, now)
        if reason is None:
            recent = [e for e in entries if now - e.at < rules.retry_after]
            if any(e.fate in _AWAY for e in recent) or len(recent) > rules.max_returns:
                same = cluster(owner)
                alike = [e for e in recent if e.cluster and e.cluster == same]
                reason = _no_help(alike, rules) or _loop(alike, rules)
        if reason is not None:
            found[owner] = reason
    return found


def _cooling(entries: Sequence[Entry], rules: MemoryRules, now: float) -> Reason | None:
    last = max((e.at for e in entries), default=None)
    # A clock that was put back far must not make owners rest for good.
    if last is None or abs(now - last) >= rules.cool_down:
        return None
    left = rules.cool_down - (now - last)
    return Reason(
        ReasonCode.COOL_DOWN,
        f"its owner rests: a pod of it was evicted {now - last:.0f} s ago, the cool-down is "
        f"{rules.cool_down:.0f} s",
        {"seconds": int(left)},
        "wait, or shorten evictions.coolDown",
    )


def _no_help(alike: Sequence[Entry], rules: MemoryRules) -> Reason | None:
    failed = next((e for e in reversed(alike) if e.fate in _AWAY), None)
    if failed is None:
        return None
    what = f"went to {failed.landed}" if failed.fate is Fate.ASTRAY else "did not become Ready"
    return Reason(
        ReasonCode.DID_NOT_HELP,
        f"evicting {failed.key} did not help: its replacement {what}; nodes and workload are as they were",
        {},
        f"it is tried again when they change, or after {rules.retry_after / 3600:g} h (evictions.retryAfter)",
    )


def _loop(alike: Sequence[Entry], rules: MemoryRules) -> Reason | None:
    """Cycles of one owner in which a constraint's excess was not below that of the cycle before."""
    if rules.max_returns < 1:
        return None
    before: dict[str, tuple[str, int]] = {}
    returned: dict[str, set[str]] = defaultdict(set)
    for e in sorted(alike, key=lambda e: e.at):
        for constraint, excess in e.excess.items():
            last = before.get(constraint)
            if last is not None and last[0] == e.cycle:
                continue  # later plans of one cycle have less to do
            if last is not None and excess >= last[1]:
                returned[constraint].add(e.cycle)
            before[constraint] = (e.cycle, excess)
    most = max((len(cycles) for cycles in returned.values()), default=0)
    if most < rules.max_returns:
        return None
    return Reason(
        ReasonCode.EVICTION_LOOP,
        f"its violation has come back {most} times after evictions that went as predicted: something else "
        "keeps undoing them",
        {"returns": most},
        "look for another descheduler, an autoscaler or a job that moves its pods; it is tried again when "
        f"nodes or workload change, or after {rules.retry_after / 3600:g} h (evictions.retryAfter)",
    )


def first_seen(ledger: Ledger, violated: Mapping[str, float | None], *, now: float) -> dict[str, float]:
    """Since when each violation lasts, constraint id → epoch seconds; what to remember.

    `violated`: id → when the youngest of the counted pods was made, None if unknown. That stands in where
    nobody has looked before; after a look, what was not violated then has begun since.
    """
    since: dict[str, float] = {}
    for constraint, youngest in violated.items():
        known = ledger.violated.get(constraint)
        if known is not None:
            since[constraint] = min(known, now)  # a clock that was put back does not lengthen the wait
        elif ledger.looked:
            since[constraint] = now
        else:
            since[constraint] = min(youngest, now) if youngest is not None else now
    return since


def stabilizing(since: float, rules: MemoryRules, now: float) -> Reason | None:
    """Why a violation that began `since` is not acted on yet."""
    lasted = now - since
    if lasted >= rules.stabilization:
        return None
    return Reason(
        ReasonCode.STABILIZING,
        f"its violation was first seen {lasted:.0f} s ago and has to last {rules.stabilization:.0f} s",
        {"seconds": int(rules.stabilization - lasted)},
        "wait, or shorten evictions.stabilization",
    )


def cut_off(entries: Iterable[Entry], alive: frozenset[str]) -> tuple[Entry, ...]:
    """Entries that another run only intended, settled by what is seen: a pod that lives was not evicted."""
    settled = []
    for e in entries:
        if e.fate is not Fate.INTENDED:
            settled.append(e)
        elif e.uid not in alive:
            settled.append(replace(e, fate=Fate.UNKNOWN, message="cut off while evicting"))
    return tuple(settled)
