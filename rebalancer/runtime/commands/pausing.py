"""Pausing and resuming everything: every brake of the cluster, and who has seen it; or one namespace.

A brake that is no installation's is set as well, which harms nobody. What could not be set or seen is named.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import (
    Brakes,
    BrakeSet,
    LedgerConflictError,
    Ledgers,
    Place,
    server_time,
    set_brake,
    slips,
)
from rebalancer.kube.connection import Backoff, Connection, Wait, retry
from rebalancer.kube.errors import KubeError, NotFoundError, ResponseError, StatusError
from rebalancer.kube.leases import BrakeSeen, Found, Lease, LeaseClient, Renewals, find_one
from rebalancer.kube.lists import pages
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.outcome import Observers, Outcome
from rebalancer.policy.annotations import PAUSE, pause_of, paused_domains
from rebalancer.runtime.cycle.carrying_out import settle_leftovers
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.live.assembly import Surroundings, live_parts
from rebalancer.runtime.live.configured import live_options, memory_of
from rebalancer.runtime.live.places import Survey, brakes_to_set, known_home, places_of, survey, usual_homes
from rebalancer.settings import Settings

log = logging.getLogger(__name__)
PATIENCE = 16.0
"""Seconds in which each instance has to show that it saw the pause: a little more than a lease lasts."""
ON_ITS_WAY = 30.0
"""Seconds after which the API server has answered whatever was sent before, with a little to spare."""
_LOOKS = 3
"""For brakes, at most: those that appear meanwhile are set as well, but some may appear without end."""
_AT_ONCE = 16
_POLL = 0.5
_TIMEOUT = 5.0
_HASTY = Backoff(tries=3, cap=2.0)


class Done(Struct, frozen=True, kw_only=True):
    """`brakes`: those that are as they should be; `lifted`: those that had been set, and what they said;
    `longer`: what somebody else's pause says that lasts longer than the one asked for, and stays.
    `still_out`: domains that stay out. `released`: ledgers by which replaceFirst was off until now.
    `seen_by`: who has shown to be bound. `not_set`, `not_seen`: what is not as it should be, in words; of
    brakes that could not be set, and of everything else."""

    brakes: Sequence[Place] = ()
    lifted: Sequence[str] = ()
    longer: Sequence[str] = ()
    still_out: Sequence[str] = ()
    released: Sequence[Place] = ()
    seen_by: Sequence[str] = ()
    not_set: Sequence[str] = ()
    not_seen: Sequence[str] = ()


def pause_all(
    settings: Settings,
    connection: Connection,
    value: Callable[[float], str],
    *,
    domain: str = "",
    namespace: str = "",
    whole: bool = False,
    patience: float = PATIENCE,
) -> Done:
    """Sets every brake, and waits until each instance that runs has seen it.

    `value`: of the annotation, by the time now: the API server's, as this machine's clock may be wrong.
    `domain`: only what this domain (key=value) could change is paused. `namespace`: the installation there,
    or the namespace itself, if it has none. `whole`: with nothing less than an installation. Raises KubeError
    where the API server does not answer, UserError where a namespace cannot be told so.
    """
    wait = threading.Event().wait
    said, key = f"{domain} {value(server_time(connection) or time.time())}".strip(), _key(domain)
    done: dict[Place, BrakeSet] = {}
    # Looking for the others may take long, or fail.
    known = {Place(home, settings.brake.name) for home in usual_homes(settings, connection, namespace)}
    for place in sorted({*known, *brakes_to_set(Survey(), settings, connection, namespace)}, key=str):
        with suppress(StatusError, ResponseError):
            done[place] = retry(
                partial(set_brake, connection, place, said, key=key, create=False), wait=wait, backoff=_HASTY
            )
    tried, not_set = set(done), list[str]()
    # As before an uninstall, with rights there alone. Elsewhere a brake may be a stray one.
    own = bool(done and namespace) and namespace == known_home(settings, connection)
    # Who began to evict after the look may have looked for a brake before one was set.
    for _ in range(_LOOKS):
        found = survey(
            settings,
            connection,
            namespace=namespace,
            only=own,
            wait=wait,
            backoff=_HASTY,
            bears=(KubeError,),
        )
        if found.itself and (domain or whole) and not (found.brakes or found.granted):
            raise UserError(f"no rebalancer is in namespace {namespace}", "leave out -n, or name its own")
        wanted = brakes_to_set(found, settings, connection, namespace)
        # A namespace cannot be told a domain.
        wanted = {p: create for p, create in wanted.items() if p not in tried and (p.namespace or not domain)}
        if not wanted:
            break
        more, problems = _change(connection, found, wanted, (key, said), wait)
        done |= more
        not_set += problems
        tried |= wanted.keys()
    not_set += _not_looked_for(found)
    versions = {place: {d.version} for place, d in done.items()}
    seen_by, not_seen = _seen_by(connection, found.leases, versions, key, wait, patience)
    if "lease" in found.blind:
        not_seen.append(f"which instances run cannot be seen: {found.blind['lease']}")
    not_seen += _without_lease(connection, found, wait)
    if found.unsure and (domain or not found.itself) and not (seen_by or not_seen):
        say = "and elsewhere one may act that does not look there: `rebalancer pause` pauses everything"
        not_seen.append(f"nobody in namespace {namespace} has shown that it saw the pause, {say}")
    longer = [f"{place}: {d.before}" for place, d in done.items() if d.stays and d.before != said]
    return Done(brakes=list(versions), longer=longer, seen_by=seen_by, not_set=not_set, not_seen=not_seen)


def give_back_all(settings: Settings, connection: Connection) -> list[Outcome]:
    """Gives every released pod back to its ReplicaSet, while all is paused; what came of each. Those of
    status RELEASED are released still. Nothing is written to the ledger: whoever leads has it. Raises
    UserError."""
    clock = SystemClock(threading.Event(), connection.time)
    places = places_of(settings, connection, wait=clock.wait)
    options = replace(live_options(settings, connection, places), execute=True)
    memory = memory_of(settings, connection, places, clock, attended=True)
    memory.read_only = True
    cache = WatchCache(connection, namespaces=options.read.namespaces).start()
    try:
        around = Surroundings(memory=memory, cache=cache)
        parts = live_parts(connection, options, clock=clock, observer=Observers([]), around=around)
        assert parts.releases is not None
        snapshot = parts.snapshot()
        memory.begin()
        memory.looked(snapshot)
        undo = replace(parts.releases, undo=True, on=lambda _: True)
        return settle_leftovers(replace(parts, releases=undo), memory, snapshot)
    finally:
        cache.stop()


def nobody_in(connection: Connection, domain: str) -> bool:
    """Whether no node is in the domain (key=value), as far as that can be seen."""
    nodes, wait = replace(RESOURCES["Node"], metadata_only=True), threading.Event().wait
    try:
        return not next(pages(connection, nodes, wait=wait, labels=domain, limit=1, backoff=_HASTY)).items
    except StatusError as e:
        return e.code == HTTPStatus.BAD_REQUEST  # no label can be so
    except KubeError:
        return False


def _without_lease(connection: Connection, found: Survey, wait: Wait) -> list[str]:
    """Who acts on a ledger, by its claims, and has no lease on which to show what it saw."""
    holders = {lease.holder for lease in found.leases}
    now, said = server_time(connection) or time.time(), list[str]()
    for place in (ledger.place for ledger in found.ledgers):
        try:
            ledger = Ledgers(connection, place, writer="", wait=wait, backoff=_HASTY).load()
        except KubeError as e:
            log.info("who acts on %s is not known: %s", place, e.message)
            continue
        said += [
            f"{name} acts on {place} without a lease, or has ended: it cannot show that it saw the "
            f"pause, and what it sent before may evict for {ON_ITS_WAY:g} s more; look at its log, or end it"
            for name, claim in sorted(ledger.claims.items())
            if claim.until > now and name not in holders
        ]
    return said


def resume_all(settings: Settings, connection: Connection, *, domain: str = "", namespace: str = "") -> Done:
    """Lifts every brake that is set, and makes the one that an installation lacks.

    `domain`: what was paused for it alone. `namespace`: as above. Raises KubeError where the API server does
    not answer.
    """
    wait = threading.Event().wait
    found = survey(settings, connection, namespace=namespace, wait=wait, backoff=_HASTY)
    wanted = brakes_to_set(found, settings, connection, namespace)
    key = _key(domain)
    homes = frozenset[str]() if domain else frozenset({namespace}) if namespace else found.homes
    also = [home for home in homes if _paused_itself(connection, home, wait)]
    # Of several mere brakes any may be stray, and the pause of its namespace meant for the pods there.
    mere = not (namespace or found.granted or found.held) and len(homes) > 1
    wanted |= {} if mere else {Place("", home): False for home in also}
    free = [b.place for b in found.brakes if key not in b.annotations]
    done, not_set = _change(
        connection, found, {p: create for p, create in wanted.items() if p not in free}, (key, None), wait
    )
    not_set += _not_looked_for(found)
    not_set += [f"namespace {n} pauses, too; `rebalancer resume -n {n}` ends it" for n in also if mere]
    now = server_time(connection) or time.time()
    released = (
        []
        if domain
        else [p.place for p in found.ledgers if _released_again(connection, p.place, now, not_set)]
    )
    # How everything was paused before there was a brake; it still holds.
    not_set += [
        f"lease {lease.place.namespace}/{lease.place.name} pauses, too; kubectl annotate lease "
        f"{lease.place.name} -n {lease.place.namespace} {PAUSE}- ends it"
        for lease in found.leases
        if not domain and lease.annotations.get(PAUSE, "").lower() not in ("", "false")
    ]
    for place in [] if domain else [b.place for b in found.brakes]:
        try:
            for it, command in slips(connection, place).items():
                not_set.append(f"{place} has {it}, which pauses, too; {command} ends it")
        except KubeError as e:
            not_set.append(f"whether {place} pauses otherwise is not known: {e}")
    # Domains are lifted one by one: who took one out may not know of who paused everything.
    out = {d for b in found.brakes for d in paused_domains(b.annotations, now)} - {domain}
    return Done(
        brakes=[*free, *done],
        lifted=[f"{place} (it said: {d.before})" for place, d in done.items() if d.before],
        still_out=sorted(out),
        released=released,
        not_set=not_set,
    )


def _paused_itself(connection: Connection, home: str, wait: Wait) -> bool:
    """Whether an installation's namespace has a pause, which holds it as its brake does where it sees it."""
    try:
        there = Brakes(connection, wait=wait, backoff=_HASTY).namespace(home)
    except KubeError as e:
        log.info("whether namespace %s pauses is not known: %s", home, e)
        return False
    return there is not None and PAUSE in there.annotations


def _released_again(connection: Connection, place: Place, now: float, not_set: list[str]) -> bool:
    """Whether an undo had turned replaceFirst off by this ledger, and it is on again."""
    store = Ledgers(connection, place, writer="resume", wait=threading.Event().wait, backoff=_HASTY)
    for _ in range(_LOOKS):
        try:
            ledger = store.load()
            if not ledger.doubt.off:
                return False
            on = replace(ledger.doubt, resumed=max(now, ledger.doubt.at))
            store.save(replace(ledger, doubt=on))
        except LedgerConflictError:
            continue  # whoever leads has written it meanwhile
        except KubeError as e:
            log.info("whether replaceFirst is off is not known, or it stays so: %s: %s", place, e.message)
            return False
        return True
    not_set.append(f"replaceFirst stays off: {place} is being written; try it again")
    return False


def _key(domain: str) -> str:
    """The annotation."""
    return pause_of(domain) if domain else PAUSE


def _change(
    connection: Connection,
    found: Survey,
    wanted: Mapping[Place, bool],
    said: tuple[str, str | None],
    wait: Wait,
) -> tuple[dict[Place, BrakeSet], list[str]]:
    """What became of each of these brakes, and what could not be done. `said`: annotation and value."""
    key, value = said

    def change(place: Place) -> BrakeSet | str:
        try:
            return retry(
                partial(set_brake, connection, place, value, key=key, create=wanted[place]),
                wait=wait,
                backoff=_HASTY,
            )
        except KubeError as e:
            if isinstance(e, NotFoundError) and e.kind == "namespaces" and place.namespace in found.granted:
                return ""  # the rights of an installation that is gone
            return _refused(place, key, value, e)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = dict(zip(wanted, pool.map(change, wanted), strict=True))
    done = {place: r for place, r in results.items() if isinstance(r, BrakeSet)}
    return done, [r for r in results.values() if r and isinstance(r, str)]


def _not_looked_for(found: Survey) -> list[str]:
    why = found.blind.get("brake")
    say = f"brakes of other namespaces cannot be looked for: {why}, or name theirs: -n NAMESPACE"
    return [say] if why is not None else []


def _refused(place: Place, key: str, value: str | None, error: KubeError) -> str:
    """What is left to do, as a command for somebody who may."""
    said = f"{key}-" if value is None else f"{key}={shlex.quote(value)} --overwrite"
    command = f"kubectl annotate {place.kubectl} {said}"
    if error.target is not None and error.target.verb == "create":
        command = f"kubectl create {place.kubectl} && {command}"
    if not place.namespace and value is not None:
        command += "; `rebalancer pause` pauses everything"
    what = "lifted" if value is None else "set"
    return f"{place} is not {what}: {error}; somebody who may does it with: {command}"


def _seen_by(
    connection: Connection,
    leases: Sequence[Found],
    versions: dict[Place, set[str]],
    key: str,
    wait: Wait,
    patience: float,
) -> tuple[list[str], list[str]]:
    """Who has shown to be bound by one of these versions of the brakes, and who has not, and why."""
    began = time.monotonic()
    seen: list[str] = []
    open_ = {lease.place: "" for lease in leases if lease.holder}
    renewals = Renewals()
    while open_:
        for place in list(open_):
            try:
                lease = LeaseClient(connection, place.namespace, place.name).get(_TIMEOUT)
            except KubeError as e:
                open_[place] = f"lease {place.namespace}/{place.name} cannot be read: {e}"
                continue
            if lease is None or not lease.spec.holder_identity:
                del open_[place]
                continue
            who = f"{lease.spec.holder_identity} (lease {place.namespace}/{place.name})"
            shown = BrakeSeen.read(lease.annotations)
            if _bound(connection, shown, lease, versions, key, wait):
                seen.append(who)
                del open_[place]
                continue
            if renewals.run_out(place, lease.spec.renew_time, lease.spec.lease_duration_seconds):
                del open_[place]
                continue
            open_[place] = f"{who} has not shown within {patience:g} s that it saw the pause: " + _why(
                shown, lease, versions
            )
        if open_ and (time.monotonic() - began >= patience or wait(_POLL)):
            break
    return seen, list(open_.values())


def _bound(
    connection: Connection,
    shown: BrakeSeen | None,
    lease: Lease,
    versions: dict[Place, set[str]],
    key: str,
    wait: Wait,
) -> bool:
    if shown is None or shown.holder != lease.spec.holder_identity or shown.brake not in versions:
        return False
    known = versions[shown.brake]
    if shown.version not in known:
        # Somebody else may have written to the brake since, and left the pause as it is.
        with suppress(KubeError):
            now = find_one(connection, "brake", shown.brake, wait=wait, backoff=_HASTY)
            if now is not None and now.annotations.get(key):
                known.add(now.version)
    return shown.version in known


def _why(shown: BrakeSeen | None, lease: Lease, versions: dict[Place, set[str]]) -> str:
    if shown is None or shown.holder != lease.spec.holder_identity:
        return "it is of a version that does not show it, or no rebalancer; look at it, or end it"
    if shown.brake not in versions:
        return f"it looks at {shown.brake}, which is not set"
    return f"it has not read {shown.brake} since, or an eviction is on its way; look at its log, or end it"
