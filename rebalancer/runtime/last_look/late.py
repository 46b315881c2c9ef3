"""Which replacements of ours are late: a registry, a network or a volume keeps them from starting.

One that is late for a reason of its own is no news. Several at a time are: whoever goes next would not start
either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.results.pace import readiness
from rebalancer.policy.history.ledger import Entry, Fate
from rebalancer.policy.history.tally import DAY
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import Owners

SOONEST = 60.0
"""Seconds before which nothing is late that does not say why it waits."""
_TIMES = 2
"""So many times as long as usual is late."""
_SKEW = 300.0
"""Seconds that the API server's clock, which says when pods were made, and this one may differ."""
_LANDED = frozenset({Fate.DONE, Fate.ASTRAY})


def unresolved(made: Iterable[Entry], pods: Iterable[Pod], now: float) -> list[Entry]:
    """The evictions of the last day whose replacements were not seen to be Ready, the last first."""
    alive = {p.uid for p in pods if not p.terminating}
    found = (e for e in made if e.fate not in _LANDED and abs(now - e.at) < DAY and e.uid not in alive)
    return sorted(found, key=lambda e: -e.at)


def may_be_late(left: Sequence[Entry], pods: Iterable[Pod], now: float) -> int:
    """How many of the pods could be late replacements of these evictions, at a glance."""
    spaces, long = {e.namespace for e in left}, any(now - e.at >= SOONEST for e in left)
    return sum(p.namespace in spaces and _starts(p) and (long or bool(p.stuck)) for p in pods)


def late(snapshot: Snapshot, left: Sequence[Entry], now: float) -> dict[str, str]:
    """namespace/name of the late replacements of these evictions → what they wait for.

    Late is what has taken twice as long as pods of its owner usually do, of the cluster where its owner tells
    nothing; or what has a container that cannot be started, as its kubelet says.
    """
    owners, pods, times = Owners(snapshot, PolicyOptions()), defaultdict[str, list[Pod]](list), list[float]()
    made: Mapping[str, list[Entry]] = defaultdict(list)
    for e in left:
        made[e.owner].append(e)
    for group in snapshot.live:
        times += readiness(group.pods)
        owner = owners.of(group.one)
        if owner is not None and (key := owners.top(owner).key) in made:
            pods[key] += group.pods
    anybody = median(times) if times else 0.0
    found: dict[str, str] = {}
    for key, entries in made.items():
        usual = list(readiness(pods[key]))
        patience = max(SOONEST, _TIMES * (median(usual) if usual else anybody))
        since = entries[-1].at - _SKEW
        new = sorted((p for p in pods[key] if _starts(p) and (p.created or 0.0) >= since), key=_youngest)
        for e, pod in zip(entries, new, strict=False):
            seconds = now - max(e.at, pod.created or 0.0)
            if pod.stuck or seconds >= patience:
                found[pod.key] = pod.stuck or f"not Ready after {seconds:.0f} s"
    return found


def _starts(pod: Pod) -> bool:
    return not (pod.ready or pod.finished or pod.terminating)


def _youngest(pod: Pod) -> tuple[float, str]:
    return -(pod.created or 0.0), pod.key
