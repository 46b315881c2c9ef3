"""Is the cluster well enough to move pods in it? Asked before each eviction, looked at every few seconds.

Nothing of it is remembered: what is over is over at the next look.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.version import ServerVersion
from rebalancer.kube.errors import CacheNotReadyError, KubeError
from rebalancer.kube.leases import Lease, LeaseClient
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.pod import Affinity, Pod, PodTemplate
from rebalancer.model.quantity import epoch
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import Identity, Snapshot
from rebalancer.planner.cluster.groups import can_conflict
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.pace import AT_FIRST, readiness
from rebalancer.policy.circuit_breaker import (
    CircuitLimits,
    expired,
    judged_since,
    made_since,
    not_made,
    overlooked,
    silent,
    too_many_displaced,
    too_many_late,
    too_many_not_ready,
    too_many_unsettled,
)
from rebalancer.policy.history.ledger import DAY, HOUR, Entry, Fate
from rebalancer.policy.options import PolicyOptions
from rebalancer.policy.owners import ARRIVAL, Owners
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.cycle.gates import FRESH
from rebalancer.runtime.cycle.memory import Memory

# Which Pending pods may have been left without a node by our evictions?
#
# Pods wait for many reasons, mostly for an autoscaler. An eviction can be the reason in two ways: the pod
# is a replacement that found no node, or it would find one if our replacements were not where they are now.


def displaced(snapshot: Snapshot, made: Sequence[Entry], config: SchedulerConfig | None) -> frozenset[str]:
    """namespace/name of the Pending pods that these evictions may have left without a node."""
    waiting = [p for p in snapshot.pods if p.unschedulable and p.waits]
    if not waiting or not made:
        return frozenset()
    there = {p.key: p for p in snapshot.pods if p.node_name and not p.terminating}
    landed = [there[e.replacement] for e in made if e.replacement in there]
    settled = {p.key for p in landed}
    missing = Counter(e.owner for e in made if e.replacement not in settled)
    ours = _replacements(snapshot, waiting, missing)
    others = [p for p in waiting if p.key not in ours]
    return ours | _kept_out(snapshot, others, landed, config)


def _replacements(snapshot: Snapshot, waiting: Sequence[Pod], missing: Counter[str]) -> frozenset[str]:
    """The Pending pods of owners of which pods were evicted: no more than were, the youngest."""
    if not missing:
        return frozenset()
    owners, found = Owners(snapshot, PolicyOptions()), set[str]()
    for pod in sorted(waiting, key=lambda p: (-(p.created or 0.0), p.key)):
        owner = owners.of(pod)
        if owner is not None and missing[top := owners.top(owner).key] > 0:
            missing[top] -= 1
            found.add(pod.key)
    return frozenset(found)


def _kept_out(
    snapshot: Snapshot, waiting: Sequence[Pod], landed: Sequence[Pod], config: SchedulerConfig | None
) -> frozenset[str]:
    """The Pending pods for which a node would have room without the replacements that have landed, and has
    none now, or may be closed to them by affinity or a count of these.

    Only their nodes are looked at; so what depends on other nodes, spread and affinity to pods, is not asked.
    """
    rows = {p.node_name for p in landed}
    if not rows or not waiting:
        return frozenset()
    nodes, here = tuple(n for n in snapshot.nodes if n.name in rows), {p.key for p in landed}
    there = tuple(p for p in snapshot.pods if p.node_name in rows)
    now = Simulation(replace(snapshot, nodes=nodes, pods=there), config)
    before = tuple(p for p in there if p.key not in here)
    without = Simulation(replace(snapshot, nodes=nodes, pods=before), config)
    replacements = {id(p.template): p.template for p in landed}.values()
    out: dict[int, bool] = {}
    for template in {id(p.template): p.template for p in waiting}.values():
        bare = _bare(template)
        open_, still = (s.framework(bare).feasible(bare) for s in (without, now))
        counts = now.state.constraints(template, hard=True)
        bound = any(
            can_conflict(template, r) or any(c.counts(r.namespace, r.labels) for c in counts)
            for r in replacements
        )
        out[id(template)] = bool((open_ if bound else open_ & ~still).any())
    return frozenset(p.key for p in waiting if out[id(p.template)])


def _bare(template: PodTemplate) -> PodTemplate:
    node = template.affinity.node_affinity if template.affinity is not None else None
    return replace(template, spread=(), affinity=Affinity(node_affinity=node) if node is not None else None)


# Which replacements of ours are late: a registry, a network or a volume keeps them from starting.
#
# One that is late for a reason of its own is no news. Several at a time are: whoever goes next would not
# start either.

SOONEST = 60.0
"""Seconds before which nothing is late that does not say why it waits."""
_TIMES = 2
"""So many times as long as usual is late."""
_LATE_SKEW = 300.0
"""Seconds that the API server's clock, which says when pods were made, and this one may differ."""
_LANDED = frozenset({Fate.DONE, Fate.ELSEWHERE})
_OVER = frozenset({*_LANDED, Fate.UNDONE})


def unresolved(made: Iterable[Entry], pods: Iterable[Pod], now: float) -> list[Entry]:
    """The evictions of the last day whose replacements were not seen to be Ready, the last first. `now`: the
    earlier of two clocks, by which a day ends later."""
    alive = {p.uid for p in pods if not p.terminating}
    found = (e for e in made if e.fate not in _OVER and now - e.at < DAY and e.uid not in alive)
    return sorted(found, key=lambda e: -e.at)


def may_be_late(left: Sequence[Entry], pods: Iterable[Pod], now: float) -> int:
    """How many of these evictions could have late replacements, made or not, at a glance."""
    spaces, long = {e.namespace for e in left}, sum(now - e.at >= SOONEST for e in left)
    return long + sum(p.namespace in spaces and _starts(p) and bool(p.symptoms.stuck) for p in pods)


def fallen(
    made: Iterable[Entry], pods: Mapping[Identity, Pod], now: float, latest: float
) -> tuple[dict[str, str], list[Entry]]:
    """namespace/name of the replacements of the last day that were Ready and are not any more, or of what
    came in the place of one that is gone → why; and the evictions of which nothing has come in their place.

    What crashes some seconds after its start, for want of a database or a configuration in its new zone, was
    Ready for a moment, most of all where there is no readiness probe, and is again between two crashes. So
    was what a kubelet throws out again for want of space. `now`, `latest`: the earlier and the later of two
    clocks; kubelets may go by either.
    """
    found, gone = {}, defaultdict[tuple[str, str], list[Entry]](list)
    for e in made:
        if e.fate in _LANDED and e.replacement and now - e.at < DAY:
            namespace, _, name = e.replacement.partition("/")
            pod = pods.get((namespace, name))
            if pod is None or pod.finished or pod.terminating:
                # One that went with its node, in an outage, was not thrown out.
                if e.removed or any(e.shrank):
                    continue
                if pod is not None and pod.deleted and e.owner.startswith("StatefulSet/"):
                    # Somebody's rollout or scale-in, as long as its kubelet has time for it.
                    if latest > pod.deleted:
                        found[pod.key] = "it was Ready, and none of its name comes before it is gone"
                else:
                    gone[namespace, _made_as(name)].append(e)
            elif _starts(pod):
                found[pod.key] = pod.symptoms.stuck or "it was Ready, and is not any more"
            elif (
                pod.symptoms.crashed is not None
                and now - pod.symptoms.crashed < SOONEST
                and now - e.at < HOUR
            ):
                # Later it is none of the move's doing: of a thousand pods some restart at any time.
                found[pod.key] = "it was restarted within the last minute"
    if gone:
        for pod in pods.values():
            # After a rollout the name is another one: who is gone then was not thrown out.
            if _starts(pod) and (entries := gone.get((pod.namespace, _made_as(pod.name)))):
                entries.pop()
                found[pod.key] = pod.symptoms.stuck or "it came for one that was Ready, and is not"
    return found, sorted((e for entries in gone.values() for e in entries), key=lambda e: -e.at)


def _made_as(name: str) -> str:
    """What a controller's pods of one template have in common in their names."""
    return name.rpartition("-")[0]


def late(
    snapshot: Snapshot, left: Sequence[Entry], now: float, apart: float = 0.0, *, at_once: bool = False
) -> dict[str, str]:
    """namespace/name of the late replacements of these evictions → what they wait for; of one that was not
    made, those of the evicted pod. `at_once`: of all that are not Ready yet, however short that is.

    Late is what has taken twice as long as pods of its owner usually do, of the cluster where its owner tells
    nothing; or what has a container that cannot be started, as its kubelet says. `now` is the later of two
    clocks, as the ledger has it, and `apart` what lies between them: pods may be dated by the other one.
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
    ending = Counter(
        owners.top(owner).key for p in snapshot.over if not p.finished and (owner := owners.of(p)) is not None
    )
    wanted = {w.key: w.replicas for w in snapshot.workloads if w.key in made}
    anybody = median(times) if times else 0.0
    found: dict[str, str] = {}
    for key, entries in made.items():
        usual = list(readiness(pods[key]))
        patience = 0.0 if at_once else max(SOONEST, _TIMES * (median(usual) if usual else anybody))
        since = entries[-1].at - apart - _LATE_SKEW
        new = sorted((p for p in pods[key] if _starts(p) and (p.created or 0.0) >= since), key=_youngest)
        for e, pod in zip(entries, new, strict=False):
            seconds = now - max(e.at, pod.created or 0.0)
            if pod.symptoms.stuck or seconds >= patience:
                found[pod.key] = pod.symptoms.stuck or f"not Ready after {seconds:.0f} s"
        # Its owner makes it when the evicted pod is gone, or before.
        missing = max(0, wanted.get(key, 0) - len(pods[key]) - ending[key])
        grace = 0.0 if at_once else max((p.grace_seconds for p in pods[key]), default=0.0)
        for e in entries[len(new) :][:missing]:
            if now - e.at >= patience + grace:
                found[f"{e.namespace}/{e.pod}"] = f"no new pod after {now - e.at:.0f} s"
    return found


def _starts(pod: Pod) -> bool:
    return not (pod.ready or pod.finished or pod.terminating)


def _youngest(pod: Pod) -> tuple[float, str]:
    return -(pod.created or 0.0), pod.key


log = logging.getLogger(__name__)

_EVERY = 5.0
"""Seconds between two looks: each goes through all nodes and pods."""
_SEEN = 5.0
"""Seconds that a silence must last under our own eyes: the clocks of two machines may differ."""
_TIMEOUT = 5.0
_RENEWED = 30.0
"""Seconds since a lease was seen renewed after which nobody may hold it any more: twice what it lasts."""
_SHARE = 4
"""A lease is renewed four times or more while it lasts: client-go's defaults, OpenShift's."""
_SKEW = 60.0
"""Seconds that the clocks of scheduler and API server may differ."""

SCHEDULER_LEASE = ("kube-system", "kube-scheduler")
CONTROLLERS_LEASE = ("kube-system", "kube-controller-manager")


class DecidingScheduler:
    """Called, a name for the scheduler at work, another one once it has started anew. "" where it is not
    known, or not seen to renew its lease, and where its decisions cannot make its rules known: pods or nodes
    have fields that no known version has."""

    def __init__(
        self, cache: WatchCache, lease: LeaseClient, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._cache = cache
        self._lease = lease
        self._monotonic = monotonic
        self._last: tuple[str, str] = ("", "")
        self._renewed_at = float("-inf")

    def __call__(self) -> str:
        if not ServerVersion.parse(self._cache.server_version).newer_by or self._cache.unknown_field():
            return ""
        try:
            found = self._lease.get(_TIMEOUT)
        except KubeError as e:
            log.info("whose decisions the scheduler's are is not known: %s", e.message)
            return ""
        now, (holder, renewal) = self._monotonic(), self._last
        self._last = ("", "")
        if found is not None:
            self._last = found.spec.holder_identity, _renewal(self._lease.name, found)
        if holder != self._last[0]:
            self._renewed_at = float("-inf")
        elif renewal != self._last[1]:
            self._renewed_at = now
        if not holder or now - self._renewed_at > _RENEWED:
            return ""
        return blake2b(holder.encode(), digest_size=8).hexdigest()


class Health:
    """Says no while too many nodes are NotReady, too many pods displaced, too many replacements late, or the
    scheduler or the controllers do not work, and to a pod if the scheduler of its own does not.

    `config`: the scheduler's. `leases`: where theirs are read. One that is not there, or may not be read,
    says nothing: managed control planes hide them.
    """

    def __init__(
        self,
        watched: WatchCache,
        memory: Memory | None,
        clock: Clock,
        config: SchedulerConfig,
        leases: Sequence[LeaseClient] = (),
    ) -> None:
        self._watched = watched
        self._memory = memory
        self._clock = clock
        self._config = config
        self._leases = leases
        self._next = float("-inf")
        self._also: Sequence[CircuitLimits] = ()
        self._closed: Reason | None = None
        self._silent: Mapping[str, Reason] = {}
        self._not_made: tuple[Reason | None, frozenset[str]] = None, frozenset()
        self._since: dict[str, float] = {}
        self._renewed: dict[str, str] = {}
        self._beats: set[str] = set()
        self._longest = 2 * _SEEN
        self._begun: list[tuple[float, Mapping[str, Lease]]] = []

    def begin(self) -> None:
        """`why_not` will be asked in a moment: reads at the same time as others, in any thread."""
        if self._clock.monotonic() >= self._next:
            self._begun = [(self._clock.monotonic(), self._read_leases())]

    def why_not(self, also: Sequence[CircuitLimits] = ()) -> Reason | None:
        """Why nothing may be evicted. `also`: limits that hold beside those of the memory."""
        if self._clock.monotonic() >= self._next or also != self._also:
            self._also = also
            self._closed = self._look()
            self._next = self._clock.monotonic() + _EVERY
        return self._closed

    def silent(self, pod: Pod) -> Reason | None:
        """Why this pod may not be evicted, as of the last `why_not`: its scheduler does not work, or new pods
        of its namespace may be refused."""
        reason, made_in = self._not_made
        not_made = reason if pod.namespace not in made_in else None
        return self._silent.get(pod.template.scheduler_name) or not_made

    def _look(self) -> Reason | None:
        try:
            silence = self._silence()
            until = self._clock.monotonic() + self._longest
            while any(s.silent is None for s in silence) and self._clock.monotonic() < until:
                # Seen for the first time: is it still so in some seconds?
                if self._clock.wait(_SEEN):
                    return Reason(ReasonCode.STOPPING, "a stop was asked for")
                silence = self._silence()
            self._silent = {s.scheduler: s.silent for s in silence if s.silent is not None}
            ours = (r for name, r in sorted(self._silent.items()) if not name or self._config.places(name))
            return next(ours, None) or self.unwell(self._also)
        except CacheNotReadyError as e:
            say = f"how well the cluster is cannot be seen: {e.message}"
            return Reason(ReasonCode.NOT_CURRENT, say, remedy=e.remedy)

    # -- the scheduler

    def _silence(self) -> list[_Silence]:
        """The schedulers that seem not to work."""
        waiting = overlooked(self._watched.pods().values(), self._clock.latest())
        now = self._clock.monotonic()
        begun, self._begun = self._begun, []
        leases = begun[0][1] if begun and now - begun[0][0] < FRESH else self._read_leases()
        seen = {p.uid or p.key for pods in waiting.values() for p in pods}
        for name, lease in leases.items():
            renewal = _renewal(name, lease)
            seen.add(renewal)
            if self._renewed.get(name, renewal) != renewal:
                self._beats.add(name)
            self._renewed[name] = renewal
        self._since = {key: self._since.get(key, now) for key in seen}
        found = []
        for scheduler, pods in waiting.items():
            long = [p for p in pods if now - self._since[p.uid or p.key] >= _SEEN]
            found.append(_Silence(scheduler, silent(scheduler, long) if long else None))
        late = (self._late(name, lease, now) for name, lease in leases.items())
        return found + [silence for silence in late if silence is not None]

    def _late(self, name: str, lease: Lease, now: float) -> _Silence | None:
        """Whether the lease has expired by what was seen of it; until it was seen renewed, by its time."""
        spec, seen = lease.spec, now - self._since[_renewal(name, lease)]
        lasts = max(spec.lease_duration_seconds, _SEEN)
        renewed = epoch(spec.renew_time) or float("-inf")
        ages = self._clock.now() - renewed, self._clock.latest() - renewed
        # A time ahead of ours says nothing: then it has to be seen renewed.
        if seen < lasts and (name in self._beats or all(-_SKEW <= age < lasts for age in ages)):
            return None
        # Pods tell whether somebody works without this lease, by the control plane's own clocks. Age does
        # not: a scheduler that has been down for days leaves the same lease as one that uses none.
        pods, since = self._watched.pods().values(), renewed + lasts + _SKEW
        if name == CONTROLLERS_LEASE[1]:
            works = made_since(pods, since)
        else:
            works = judged_since((p for p in pods if self._config.places(p.template.scheduler_name)), since)
        if works:
            return None
        reason = expired(name, spec.holder_identity, spec.renew_time)
        patience = max(_SEEN, lasts / _SHARE)
        self._longest = 2 * patience
        return _Silence("", reason if seen >= patience else None)

    def _read_leases(self) -> Mapping[str, Lease]:
        """By name the leases that can be seen."""
        found = {}
        for client in self._leases:
            try:
                if (lease := client.get(_TIMEOUT)) is not None:
                    found[client.name] = lease
            except KubeError as e:
                log.info("whether %s works is seen by pods alone: %s", client.name, e.message)
        return found

    # -- the cluster

    def unwell(self, also: Sequence[CircuitLimits] = ()) -> Reason | None:
        """Why nothing is evicted, whatever the schedulers do. Raises CacheNotReadyError."""
        pods, now = self._watched.pods(), self._clock.now()
        self._not_made = reason, made_in = not_made(self._watched.workloads(), pods.values(), now)
        if reason is not None and not made_in:
            return reason
        if self._memory is None or self._memory.limits is None:
            return None
        limits = (self._memory.limits, *also)
        nodes = self._watched.nodes()
        reason = next((r for x in limits if (r := too_many_not_ready(nodes, x)) is not None), None)
        if reason is not None:
            return reason
        latest = self._clock.latest()
        left = unresolved(self._memory.ledger.entries, pods.values(), now)
        again, lost = fallen(self._memory.ledger.entries, pods, now, latest)
        most = min(x.late for x in limits)
        if len(again) + len(lost) + may_be_late(left, pods.values(), latest) >= most:
            snapshot = self._watched.snapshot(now)
            found = late(snapshot, left, latest, latest - now)
            short = late(snapshot, lost, latest, latest - now, at_once=True)
            found |= {key: short[key] for e in lost if (key := f"{e.namespace}/{e.pod}") in short}
            if (reason := too_many_late({**again, **found}, most)) is not None:
                return reason
        # A slow start or a canary by each process would be none at all where processes come and go.
        earlier = [e for e in left if e.cycle != self._memory.cycle]
        on_their_way = [e for e in earlier if e.fate is not Fate.FAILED and now - e.at < ARRIVAL]
        for made, most in ((earlier, AT_FIRST), (on_their_way, self._memory.most_in_flight or AT_FIRST)):
            if len(made) >= most:
                found = late(self._watched.snapshot(now), made, latest, latest - now, at_once=True)
                if (reason := too_many_unsettled(found, most)) is not None:
                    return reason
        most = min(x.most_displaced(len(pods)) for x in limits)
        if sum(bool(p.unschedulable) and p.waits for p in pods.values()) <= most:
            return None
        alive = {p.uid for p in pods.values() if not p.terminating}
        made = [e for e in self._memory.ledger.entries if now - e.at < HOUR and e.uid not in alive]
        return too_many_displaced(displaced(self._watched.snapshot(now), made, self._config), most)


class _Silence(Struct, frozen=True):
    """A scheduler that seems not to work; "" = none does. `silent`: the reason, None while it was not seen
    for long enough."""

    scheduler: str
    silent: Reason | None


def _renewal(name: str, lease: Lease) -> str:
    return f"lease {name} {lease.spec.holder_identity} {lease.spec.renew_time}"
