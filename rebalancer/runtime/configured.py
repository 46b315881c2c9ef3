"""Settings → how a live cluster is acted on."""

from __future__ import annotations

import msgspec

from rebalancer.kube.connection import Connection
from rebalancer.runtime.live import LiveOptions
from rebalancer.settings import Settings, plan_options


def live_options(settings: Settings, connection: Connection) -> LiveOptions:
    """The options of a cycle; evicts only under `evictions.enabled`.

    In a cluster the tool's own namespace is that of its service account, unless the settings name one.
    """
    planning = plan_options(settings)
    if not planning.policy.own_namespace and connection.context == "in-cluster":
        policy = msgspec.structs.replace(planning.policy, own_namespace=connection.namespace)
        planning = msgspec.structs.replace(planning, policy=policy)
    return LiveOptions(execute=settings.evictions.enabled, planning=planning)
