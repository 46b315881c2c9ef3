"""Whether a kind that may not be read is there at all.

An API server asks for the right before it says that it does not serve a kind. What it serves it tells
everybody.
"""

from __future__ import annotations

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.errors import ForbiddenError, KubeError, NotFoundError, Target
from rebalancer.kube.resources import Resource

ADD_ON_PATIENCE = 10.0
"""Seconds of silence, of an add-on that may hang by itself: no plan waits for it any longer."""


def with_discovery(
    connection: Connection, resource: Resource, error: KubeError, patience: float
) -> KubeError:
    """The error that a list ended with; NotFoundError where it was forbidden, of an add-on that is not
    served."""
    return unless_unserved(connection, resource, error, patience) if resource.add_on else error


def unless_unserved(
    connection: Connection, resource: Resource, error: KubeError, patience: float = ADD_ON_PATIENCE
) -> KubeError:
    """The error that a list ended with; NotFoundError where it was forbidden, of what is not served.
    `patience`: seconds of silence, for who serves it may hang."""
    if not isinstance(error, ForbiddenError):
        return error
    path = f"/apis/{resource.group}/{resource.version}"
    try:
        connection.request("GET", path, Target("get", say=f"get {path}"), read_timeout=patience)
    except NotFoundError as e:
        return e
    except KubeError:
        return error
    return error
