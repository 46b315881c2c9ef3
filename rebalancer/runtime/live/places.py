"""Where brakes, ledger and lease of this cluster are: as the settings say, or as found.

Who pauses means every brake (`survey`). Who evicts needs the one installation (`places_of`), and objects that
look like one are easily made: a ClusterRoleBinding counts before a brake or a held lease, and where it cannot
be told which is meant nobody is evicted. A ledger makes no installation, nor does a lease that nobody holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config import IN_CLUSTER
from rebalancer.kube.config_maps import Component, Ledgers, Place, by_run, claim_brake, drop_brake, slips
from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, retry
from rebalancer.kube.election import ElectionOptions, Elector, LeaseStatus
from rebalancer.kube.errors import ConflictError, ForbiddenError, KubeError, NotFoundError
from rebalancer.kube.leases import BrakeSeen, Found, Renewals, find, find_one, granted
from rebalancer.model.quantity import epoch
from rebalancer.policy.annotations import paused
from rebalancer.settings import Settings
from rebalancer.settings.settings import Brake, LeaderElection, Ledger

USUAL_HOME = "rebalancer"
"""The namespace of the docs' installation: looked at where nobody may look for others."""

log = logging.getLogger(__name__)


class Places(Struct, frozen=True, kw_only=True):
    """The objects by which the rebalancers of a cluster know of each other, and people stop them.

    `none_yet`: seen from outside of the cluster, nothing is installed.
    """

    brake: Place
    ledger: Place
    lease: Place
    none_yet: bool = False

    @property
    def steering_lease(self) -> Place:
        """Of who writes deletion costs without evictions: each installation has its own, as its costs are."""
        return Place(self.lease.namespace, f"{self.brake.name}-scale-in")

    @property
    def installation(self) -> str:
        """What deletion costs are marked with, as each release has a brake of its own; "" without one."""
        return "" if self.none_yet else f"{self.brake.namespace}/{self.brake.name}"


class Survey(Struct, frozen=True, kw_only=True):
    """What a cluster has. `granted`: the namespaces that an administrator has let in, as far as can be seen.
    `blind`: what kept from looking everywhere, or from seeing who was let in ("grants"). `unsure`: one was
    named, and others have signs of an installation, or may have some that cannot be seen."""

    brakes: Sequence[Found] = ()
    ledgers: Sequence[Found] = ()
    leases: Sequence[Found] = ()
    granted: frozenset[str] = frozenset()
    blind: Mapping[Component | Literal["grants"], KubeError] = {}
    unsure: bool = False

    @property
    def itself(self) -> bool:
        """Whether the named namespace is paused itself: nobody leads there, and others may evict its pods. A
        brake or a binding there may be a stray one."""
        return self.unsure and not self.held

    @property
    def homes(self) -> frozenset[str]:
        """The namespaces of installations. A mere brake is a sign where there is no better."""
        sure = self.granted.union(f.place.namespace for f in self.held)
        return sure or frozenset(f.place.namespace for f in self.live)

    @property
    def live(self) -> list[Found]:
        """Brakes and leases that speak for an installation, or for a run that is under way or paused."""
        return [*(b for b in self.brakes if not by_run(b.annotations)), *self.held]

    @property
    def held(self) -> list[Found]:
        """Leases that somebody holds, most likely."""
        return [x for x in self.leases if x.holder and not x.old]


_NAME_IT = "name the namespace of the one that is meant: --ledger-namespace NAME (ledger.namespace)"
_NOT_ALLOWED: tuple[type[KubeError], ...] = (ForbiddenError, NotFoundError)


def survey(
    settings: Settings,
    connection: Connection,
    *,
    namespace: str = "",
    only: bool = False,
    wait: Wait,
    backoff: Backoff = DEFAULT_BACKOFF,
    bears: tuple[type[KubeError], ...] = _NOT_ALLOWED,
) -> Survey:
    """Looks for all of them by label and by name. `namespace`: those there are given back, and `unsure`.
    `only`: an installation is known to be there, and no other is asked for.

    Where that ends with an error that it `bears`, those of the usual names are looked at in the namespaces
    that come to mind. Raises any other KubeError.
    """
    blind: dict[Component | Literal["grants"], KubeError] = {}
    everywhere = True
    named = namespace or settings.ledger.namespace
    homes = usual_homes(settings, connection, namespace)

    def look(component: Component, name: str) -> list[Found]:
        nonlocal everywhere
        for where in dict.fromkeys((namespace if only else "", namespace)):
            try:
                return find(connection, component, name, where, wait=wait, backoff=backoff)
            except bears as e:
                log.info("the %s of another namespace cannot be looked for: %s", component, e.message)
                everywhere = False
                if not named or not isinstance(e, _NOT_ALLOWED):
                    blind[component] = e
        found = []
        for home in homes:
            try:
                found.append(find_one(connection, component, Place(home, name), wait=wait, backoff=backoff))
            except bears as e:
                blind[component] = e
        return [f for f in found if f is not None]

    let_in = frozenset[str]()
    try:
        if not only:
            let_in = granted(connection, wait=wait, backoff=backoff)
    except bears as e:
        log.info("where the tool was installed cannot be seen: %s", e.message)
        blind["grants"] = e
    found = Survey(
        brakes=look("brake", settings.brake.name),
        ledgers=look("ledger", settings.ledger.name),
        leases=look("lease", settings.leader_election.name),
        granted=let_in,
        blind=blind,
    )
    if not namespace:
        return found

    signs = (f.place.namespace for f in found.live)

    def there(every: Sequence[Found]) -> list[Found]:
        return [f for f in every if f.place.namespace == namespace]

    return Survey(
        brakes=there(found.brakes),
        ledgers=there(found.ledgers),
        leases=there(found.leases),
        granted=found.granted & {namespace},
        blind=blind,
        unsure=not only and not (everywhere and {namespace}.issuperset({*found.granted, *signs})),
    )


def _survey_to_act(
    settings: Settings,
    connection: Connection,
    watched: Renewals,
    *,
    wait: Wait,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Survey:
    """A `survey`. For who evicts no lease is `old` by its holder's clock alone: one that seems so is watched
    until it is renewed, or has run out. Raises KubeError."""
    found = survey(settings, connection, wait=wait, backoff=backoff)
    leases, most = {x.place: x for x in found.leases}, settings.leader_election.lease_duration

    def doubtful() -> list[Found]:
        some = [x for x in leases.values() if x.holder and x.old and settings.evictions.enabled]
        return [x for x in some if not watched.run_out(x.place, x.renewed, min(x.lasts, most))]

    while (some := doubtful()) and not wait(_AGAIN):
        for x in some:
            now = find_one(connection, "lease", x.place, wait=wait, backoff=backoff)
            if now is None:
                del leases[x.place]
            else:
                leases[x.place] = replace(now, old=now.renewed == x.renewed)
    return replace(found, leases=list(leases.values()))


def usual_homes(settings: Settings, connection: Connection, namespace: str = "") -> list[str]:
    """The namespaces that come to mind where nobody says where the tool is."""
    named = namespace or settings.ledger.namespace
    return [named] if named else sorted({own_home(settings, connection), USUAL_HOME})


def own_home(settings: Settings, connection: Connection) -> str:
    """The namespace of all three where nobody finds them elsewhere."""
    return known_home(settings, connection) or connection.namespace or "default"


def known_home(settings: Settings, connection: Connection) -> str:
    """The namespace that the settings name, or the one in which this process runs; "" if there is none."""
    inside = connection.namespace if connection.context == IN_CLUSTER else ""
    return settings.ledger.namespace or settings.scope.own_namespace or inside


def brakes_to_set(
    found: Survey, settings: Settings, connection: Connection, namespace: str = ""
) -> dict[Place, bool]:
    """Every brake that who pauses has to set, and those that are missing; of each whether it is created.

    Beside those that were found: the one that a running instance says it looks at (in its own namespace,
    since a lease may be anybody's), and one in each place where an installation, or the settings, want one.
    Those that most likely count come first, as anybody may have made any number. Of a namespace that is
    paused `itself` none is made: nobody would read it.
    """
    wanted = {b.place: True for b in found.brakes}
    for lease in found.leases:
        seen = BrakeSeen.read(lease.annotations)
        if lease.holder and seen is not None and seen.brake.namespace == lease.place.namespace:
            wanted[seen.brake] = True
    said = namespace or settings.brake.namespace or settings.ledger.namespace
    if found.itself:
        return wanted | {Place("", namespace): False}
    lacking = ({said} if said else found.granted) - {p.namespace for p in wanted}
    held = {x.place.namespace for x in found.held}
    if not wanted and not lacking:
        lacking = held or {own_home(settings, connection)}
    # Where nobody may look around, a new one might be one too many.
    wanted |= {Place(n, settings.brake.name): "brake" not in found.blind for n in lacking}

    def doubt(place: Place) -> tuple[bool, ...]:
        here = place.namespace
        return here != said, here not in found.granted, here not in held, place.name != settings.brake.name

    return {place: wanted[place] for place in sorted(wanted, key=lambda p: (doubt(p), str(p)))}


def places_of(
    settings: Settings, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF
) -> Places:
    """The places of this cluster.

    In a cluster they are in the tool's own namespace. On a laptop the installation's are looked for, so that
    `once` there meets the daemon; if there is none, they are in the context's namespace. Names and namespaces
    that the settings give have precedence. Raises UserError where it cannot be told which is meant, KubeError
    where the API server does not answer.
    """
    home, found, none_yet = own_home(settings, connection), Survey(), False
    if not known_home(settings, connection):
        watched = Renewals()
        found = _survey_to_act(settings, connection, watched, wait=wait, backoff=backoff)
        if _without_brake(found):
            found = _survey_to_act(settings, connection, watched, wait=wait, backoff=backoff)
        there = _installed(found, settings, home)
        home = there or home
        none_yet = not found.blind and home not in found.granted and _makes_its_own(found, there, home)
        if none_yet and settings.evictions.enabled:
            _tell_of_others(found, home)
    elif settings.evictions.enabled and settings.ledger.namespace and connection.context != IN_CLUSTER:

        def look() -> Survey:
            def one(component: Component, name: str) -> list[Found]:
                there = find_one(connection, component, Place(home, name), wait=wait, backoff=backoff)
                return [there] if there is not None else []

            brakes = one("brake", settings.brake.name)
            return Survey(brakes=brakes, leases=[] if brakes else one("lease", settings.leader_election.name))

        near = look()
        if _without_brake(near):
            near = look()
        alone = _makes_its_own(near, "", home)
        none_yet = alone and not _let_in(connection, home, wait=wait, backoff=backoff)
    default = Settings.defaults()

    def place(
        said: Brake | Ledger | LeaderElection,
        usual: Brake | Ledger | LeaderElection,
        candidates: Sequence[Found],
    ) -> Place:
        if (said.namespace, said.name) != (usual.namespace, usual.name):
            return Place(said.namespace or home, said.name)
        own = [c.place for c in candidates if c.place.namespace == home]
        if len(own) > 1 and all(p.name != said.name for p in own):
            raise UserError(
                f"namespace {home} has several rebalancers: {', '.join(p.name for p in own)}",
                "give the settings of the one that is meant: --config FILE",
            )
        return own[0] if len(own) == 1 else Place(home, said.name)

    return Places(
        brake=place(settings.brake, default.brake, found.brakes),
        ledger=place(settings.ledger, default.ledger, found.ledgers),
        lease=place(settings.leader_election, default.leader_election, found.leases),
        none_yet=none_yet,
    )


def _installed(found: Survey, settings: Settings, home: str) -> str:
    """The namespace of the installation; "" if there is none. Raises UserError where it cannot be told; for
    who evicts also where it cannot be seen, as that of another namespace may be paused, or lack its brake."""
    live = {f.place.namespace for f in found.live}
    let_in = found.granted
    unseen = [e for what, e in found.blind.items() if what == "grants" or (what != "ledger" and not let_in)]
    if unseen and settings.evictions.enabled:
        say = f"where this cluster's rebalancers are cannot be seen: {unseen[0].message}; nothing is done"
        raise UserError(say, _NAME_IT)
    there = sorted((let_in & live) or let_in or live)
    # What only has the labels anybody may have made: that is no reason to believe its ledger.
    usual = {settings.brake.name, settings.leader_election.name}
    known = let_in | {home} | {f.place.namespace for f in found.live if f.place.name in usual}
    if len(there) < 2 and (known.issuperset(there) or not settings.evictions.enabled):
        return next(iter(there), "")
    signs = [_sign(f) for f in found.live if f.place.namespace in there]
    several = "this cluster has several rebalancers, or what looks like them"
    single = "what has the labels of a rebalancer may be anybody's"
    raise UserError(
        f"{several if len(there) > 1 else single}: {', '.join(signs or there)}; nothing is done",
        _NAME_IT,
    )


def _sign(f: Found) -> str:
    return f"{f.holder} leads by lease {f.place.namespace}/{f.place.name}" if f.holder else str(f.place)


def _makes_its_own(found: Survey, there: str, home: str) -> bool:
    """Whether a run here needs a brake of its own: none is there, or one that another such run made."""
    brakes = [b for b in found.brakes if b.place.namespace == home]
    if brakes:
        return all(by_run(b.annotations) for b in brakes)
    return not there and home not in _without_brake(found)


def _without_brake(found: Survey) -> set[str]:
    """Where a lease is of an installation that lost its brake: a run makes its brake first, and removes its
    lease first. One that began between the two looks seems to be one too, until the next look."""
    return {x.place.namespace for x in found.leases} - {b.place.namespace for b in found.brakes}


def _let_in(connection: Connection, home: str, *, wait: Wait, backoff: Backoff) -> bool:
    """Whether an administrator has let the tool in there: then a missing brake was taken away. Where that may
    not be seen it counts as if."""
    try:
        return home in granted(connection, wait=wait, backoff=backoff)
    except _NOT_ALLOWED:
        return True


def _tell_of_others(found: Survey, home: str) -> None:
    for other in found.ledgers:
        if other.place.namespace != home:
            log.warning(
                "%s was left by a run elsewhere, and what it says of evictions does not count here; with "
                "--ledger-namespace %s it does",
                other.place,
                other.place.namespace,
            )


def places_to_act(
    settings: Settings, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF
) -> Places:
    """The places of this cluster, for a process that is to evict, and stays.

    Where nobody has installed the tool, a person who lets it evict from outside of the cluster is the first:
    the brake is created, so that others can pause. Elsewhere a missing brake was taken away, and holds.
    """
    places = places_of(settings, connection, wait=wait, backoff=backoff)
    if settings.evictions.enabled and places.none_yet:
        try:
            make_brake(settings, connection, places, "", wait=wait)
        except UserError:
            # Who sees this one waits for its end, and what is left over looks like an installation.
            take_brake_away(connection, places.brake, "")
            raise
    return places


def make_brake(
    settings: Settings, connection: Connection, places: Places, by: str, *, wait: Wait, leads: bool = True
) -> None:
    """Where nothing is installed: the brake of a process that stays, or of the run `by`.

    A run makes it before it has the lease, since a lease without a brake looks like an installation that lost
    it; and once more when it `leads`, since the run before may have taken its own away meanwhile. Raises
    UserError if somebody has paused by another one before this one could be found, or has begun to act
    elsewhere at the same time; KubeError if that cannot be seen.
    """
    brake = places.brake
    try:
        # One that was created although the answer got lost is there when it is asked for again.
        retry(lambda: claim_brake(connection, brake, by, leads=leads), wait=wait)
    except KubeError as e:
        # Its absence holds evictions, and says so.
        log.warning("%s, by which people pause evictions, cannot be created: %s", brake, e)
    if not leads:
        return
    began, watched = time.monotonic(), Renewals()
    while True:
        found = _survey_to_act(settings, connection, watched, wait=wait)
        for other in found.brakes:
            what = other.place.kubectl
            why = paused(what, other.annotations, connection.time() or time.time(), "`rebalancer resume`")
            if why is not None and other.place != brake:
                raise UserError(why.message, why.remedy)
            if other.place != brake:
                for said, command in slips(connection, other.place).items():
                    raise UserError(f"{what} has {said}, which was meant as a pause", command)
        late = time.monotonic() - began > settings.leader_election.lease_duration
        if not _others_act(found, settings, places, late=late) or wait(_AGAIN):
            return


def take_brake_away(connection: Connection, brake: Place, by: str) -> None:
    """What `make_brake` made for a process that ends. Raises nothing."""
    try:
        drop_brake(connection, brake, by)
    except KubeError as e:
        log.warning("%s stays, and pauses nothing: %s", brake, e.message)


def _others_act(found: Survey, settings: Settings, places: Places, *, late: bool) -> bool:
    """Whether somebody else may act who, like this process, saw nobody at first. Where nobody named a
    namespace, that is looked for when others can see this one: so of two one at least sees the other.

    The first by namespace waits until the others, who see it, have ended. Raises UserError for these, and
    where it is `late`: then they have not seen it.
    """
    own = {places.brake.namespace, places.lease.namespace}
    others = [f for f in found.live if f.place.namespace not in own and not settings.ledger.namespace]
    first = min(others, key=lambda f: f.place.namespace, default=None)
    if first is not None and (late or first.place.namespace < min(own)):
        raise UserError(
            f"another rebalancer has begun at the same time: {_sign(first)}; nothing is done",
            "start it again when that one has ended: --wait waits for it",
        )
    return bool(others)


# Leading by the lease: the elector as settings ask for it, and taking the lease for one cycle.

_POLL = 0.05
_AGAIN = 0.5
"""Seconds between two looks at who else acts."""
_FRESH = 60.0
"""Seconds since its last renewal, by the clocks of both machines, after which a holder may be dead. That is
found out by waiting, as every candidate does."""


def elector_of(
    settings: Settings,
    connection: Connection,
    places: Places,
    *,
    identity: str,
    on_change: Callable[[bool], None] = lambda _: None,
    component: Component = "lease",
) -> Elector:
    """An elector that has not been started. `component`: "scale-in" for who writes deletion costs only."""
    wanted = settings.leader_election
    lease = places.lease if component == "lease" else places.steering_lease

    def claimed() -> int:
        """The latest term in which somebody acted, by the ledger; -1 where it names none, or may not be read:
        then nothing is evicted. Raises KubeError."""
        if settings.ledger.mode != "configMap":
            return -1
        try:
            ledger = Ledgers(connection, places.ledger, writer=identity, wait=lambda _: True).load()
        except ForbiddenError as e:
            log.info("in which term others have acted is not known: %s", e.message)
            return -1
        except KubeError as e:
            raise KubeError(f"in which term others have acted is not known: {e.message}", e.remedy) from e
        return max((c.term for c in ledger.claims.values()), default=-1)

    return Elector(
        connection,
        lease.namespace,
        lease.name,
        identity=identity,
        options=ElectionOptions(
            duration=wanted.lease_duration, renew_deadline=wanted.renew_deadline, retry=wanted.retry_period
        ),
        on_change=on_change,
        claimed=claimed,
        brake=places.brake,
        ledger=places.ledger if component == "lease" and settings.ledger.mode == "configMap" else None,
        component=component,
    )


def take_lease(elector: Elector, *, wait: bool, stop: threading.Event, patience: float) -> None:
    """Returns when the started elector leads, or when `stop` is set.

    `wait`: as long as it takes; else raises UserError at once if somebody else leads. A holder that has not
    renewed the lease for a minute may be dead, so it is waited for up to `patience` seconds; so is a lease
    without a holder that nobody has handed back. Raises KubeError where the lease may not be used, or where
    errors last longer than `patience`.
    """
    began = well = time.monotonic()
    while not elector.still_leading():
        status, now = elector.status(), time.monotonic()
        late = now - began > patience
        if status.error is None or isinstance(status.error, ConflictError):
            well = now  # who was quicker is seen next
        elif isinstance(status.error, ForbiddenError) or now - well > patience:
            raise status.error
        held = status.holder and status.holder != elector.identity
        if held and not wait and (late or _fresh(status)):
            raise UserError(
                f"{status.holder} leads by lease {elector.namespace}/{elector.name}, so nothing is done",
                "--wait waits until it does not",
            )
        if late and not wait:
            raise UserError(
                f"lease {elector.namespace}/{elector.name} has no holder and was not handed back, so "
                "somebody may still act by it; nothing is done",
                "--wait waits until it has run out",
            )
        if stop.wait(_POLL):
            return


def _fresh(status: LeaseStatus) -> bool:
    renewed = epoch(status.renewed)
    return renewed is None or abs(time.time() - renewed) < _FRESH
