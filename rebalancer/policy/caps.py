"""Caps on evictions: of one cycle, in all and per node, namespace, owner and domain; of an hour and a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.ledger import DAY, HOUR, owner_id
from rebalancer.policy.options import Evicted, Limit, PolicyOptions
from rebalancer.policy.owners import Owners
from rebalancer.policy.waits import one_run, wait

_Key = tuple[str, str]
"""A cap, as its sentence names it, and what it is counted for."""
_TOTAL, _NODE, _NAMESPACE = "in total and cycle", "per node and cycle", "per namespace and cycle"
_OWNER, _DOMAIN = "per owner and cycle", "per domain and cycle"
_HOUR, _DAY = "in total and hour", "per owner and day"
PER_DAY = "perDay"
"""The figure that a reason has if it is the cap of an owner's day."""
_LONG = {_HOUR: (HOUR, "maxTotalPerHour"), _DAY: (DAY, "maxPerOwnerPerDay")}
"""Caps that the next cycle does not lift: for how long an eviction counts, and the setting."""


class Caps:
    """Counts evictions against the caps; those of `options.earlier` are counted already.

    A cap in percent is of the replicas for a cap per owner, else of the pods that run there: of the node's
    pods for the cap per node, and so on. What this cycle has evicted from a node or a domain counts as if it
    still ran there, so that a cap does not shrink while it is used.
    """

    def __init__(self, options: PolicyOptions, snapshot: Snapshot, owners: Owners) -> None:
        limits = {
            _TOTAL: options.max_total,
            _NODE: options.max_per_node,
            _NAMESPACE: options.max_per_namespace,
            _OWNER: options.max_per_owner,
            _DOMAIN: options.max_per_domain,
            _HOUR: options.max_total_per_hour,
            _DAY: options.max_per_owner_per_day,
        }
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._snapshot = snapshot
        self._owners = owners
        self._live: Counter[_Key] | None = None
        self._labels = {n.name: n.labels for n in snapshot.nodes}
        self._domains: dict[str, int] = {}
        earlier = options.earlier
        self._gone = Counter(key for e in earlier.this_cycle for key in _of_cycle(e))
        self._spent = Counter(self._gone)
        self._times = {(_HOUR, ""): earlier.last_hour}
        self._times |= {(_DAY, owner): times for owner, times in earlier.last_day.items()}
        self._spent |= Counter({key: sum(n for _, n in times) for key, times in self._times.items()})

    def spend(self, pod: Pod, domains: Iterable[str]) -> Reason | None:
        """Counts an eviction and returns None, or returns which cap forbids it and counts nothing.

        `domains`: the domains (key=value) that the pod leaves.
        """
        owner = self._owners.of(pod)
        top = self._owners.top(owner).key if owner is not None else ""
        evicted = Evicted(top, pod.namespace, pod.node_name, tuple(domains))
        keys = [*_of_cycle(evicted), (_HOUR, ""), (_DAY, owner_id(top))]
        for key in keys:
            limit = self._limits.get(key[0])
            if limit is None:
                continue
            most = limit.number if limit.number is not None else limit.of(self._base(key, pod))
            if self._spent[key] >= most:
                return self._reached(key, top, limit, most)
        self._spent.update(keys)
        return None

    def _reached(self, key: _Key, top: str, limit: Limit, most: int) -> Reason:
        what, name = key
        named = f" ({top})" if what == _DAY else f" ({name})" if name else ""
        say = f"the cap of {limit} evictions {what}{named} is reached"
        if what not in _LONG:
            return Reason(ReasonCode.CAP, say, {"cap": most}, "the next cycle goes on")
        span, setting = _LONG[what]
        remedy = f"wait, or raise evictions.{setting}; {one_run(setting, 'none')}"
        numbers = {"cap": most, **({PER_DAY: 1} if what == _DAY else {})}
        if not most:
            return Reason(ReasonCode.CAP, say, numbers, remedy)
        # When so many are old enough that one more may go; moves of this plan count from now on.
        now, left = self._snapshot.now, self._spent[key] - most
        since = now
        for at, evictions in sorted(self._times.get(key, ())):
            if (left := left - evictions) < 0:
                since = at
                break
        return wait(ReasonCode.CAP, say, since + span, now, remedy, **numbers)

    def _base(self, key: _Key, pod: Pod) -> int:
        """How many pods a percentage is of."""
        what, name = key
        if what in (_OWNER, _DAY):
            owner = self._owners.of(pod)
            # Of a kind that is not read, only the pods are known.
            return max(self._owners.top(owner).replicas, len(self._owners.active(owner))) if owner else 1
        if what == _HOUR:
            return self._running()[_TOTAL, ""]
        if what != _DOMAIN:
            return self._running()[key] + (self._gone[key] if what == _NODE else 0)
        if name not in self._domains:
            label, _, value = name.partition("=")
            here = (node for node, labels in self._labels.items() if labels.get(label) == value)
            self._domains[name] = sum(self._running()[_NODE, node] for node in here) + self._gone[key]
        return self._domains[name]

    def _running(self) -> Counter[_Key]:
        """The running pods in all, by node and by namespace."""
        if self._live is None:
            self._live = Counter()
            for pod in self._snapshot.pods:
                if pod.node_name and not pod.finished and not pod.terminating:
                    self._live.update(((_TOTAL, ""), (_NODE, pod.node_name), (_NAMESPACE, pod.namespace)))
        return self._live


def _of_cycle(e: Evicted) -> Iterable[_Key]:
    yield from ((_TOTAL, ""), (_NODE, e.node), (_NAMESPACE, e.namespace), (_OWNER, e.owner))
    yield from ((_DOMAIN, d) for d in e.domains)
