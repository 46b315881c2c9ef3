"""Where brake, ledger and lease of this cluster are: as the settings say, or as found by label."""

from __future__ import annotations

import logging

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.coordination.brakes import create_brake, exists
from rebalancer.kube.coordination.place import Component, Place
from rebalancer.kube.coordination.search import find
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError
from rebalancer.settings import Settings
from rebalancer.settings.groups.operations import Brake, LeaderElection, Ledger

IN_CLUSTER = "in-cluster"

log = logging.getLogger(__name__)


class Places(Struct, frozen=True, kw_only=True):
    """The objects by which the rebalancers of a cluster know of each other, and people stop them.

    `none_yet`: seen from outside of the cluster, none of the three was found where they were looked for.
    """

    brake: Place
    ledger: Place
    lease: Place
    none_yet: bool = False


def places_of(
    settings: Settings, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF
) -> Places:
    """The places of this cluster.

    In a cluster they are in the tool's own namespace. On a laptop the installation's are looked for by label,
    so that `once` there meets the daemon; if there is none, they are in the context's namespace. Names and
    namespaces that the settings give have precedence. Raises UserError where several are found, KubeError
    where the API server does not answer.
    """
    default = Settings.defaults()
    groups: tuple[tuple[Component, Brake | Ledger | LeaderElection, Brake | Ledger | LeaderElection], ...] = (
        ("brake", settings.brake, default.brake),
        ("ledger", settings.ledger, default.ledger),
        ("lease", settings.leader_election, default.leader_election),
    )
    found: dict[Component, Place] = {}
    none_yet = connection.context != IN_CLUSTER
    if not settings.ledger.namespace and connection.context != IN_CLUSTER:
        for component, said, usual in groups:
            if (said.namespace, said.name) == (usual.namespace, usual.name):
                try:
                    places = find(connection, component, wait=wait, backoff=backoff)
                except (ForbiddenError, NotFoundError) as e:
                    log.info("the %s of another namespace cannot be looked for: %s", component, e.message)
                    none_yet = False
                    continue
                if places:
                    found[component] = _only(component, places)
                    none_yet = False
    here = next((p.namespace for p in found.values()), "")
    home = settings.ledger.namespace or settings.scope.own_namespace or here or connection.namespace
    return Places(
        **{
            component: found.get(component) or Place(said.namespace or home or "default", said.name)
            for component, said, _ in groups
        },
        none_yet=none_yet,
    )


def _only(component: Component, places: list[Place]) -> Place:
    if len(places) > 1:
        raise UserError(
            f"this cluster has several rebalancers: a {component} in each of "
            + ", ".join(sorted(p.namespace for p in places)),
            "name the namespace of the one that is meant: ledger.namespace",
        )
    return places[0]


def places_to_act(
    settings: Settings, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF
) -> Places:
    """The places of this cluster, for a process that is to evict.

    Where nobody has installed the tool, a person who lets it evict from outside of the cluster is the first:
    the brake is created, so that others can pause. Elsewhere a missing brake was taken away, and holds.
    """
    places = places_of(settings, connection, wait=wait, backoff=backoff)

    def found_the_brake() -> None:
        if not any(exists(connection, place) for place in (places.brake, places.ledger)):
            create_brake(connection, places.brake)
            log.info("%s, by which people pause evictions, was created", places.brake)

    if settings.evictions.enabled and places.none_yet:
        try:
            # One that was created although the answer got lost is there when it is asked for again.
            retry(found_the_brake, wait=wait)
        except KubeError as e:
            # Its absence holds evictions, and says so.
            log.warning("%s, by which people pause evictions, cannot be created: %s", places.brake, e)
    return places
