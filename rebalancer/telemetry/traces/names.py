"""Names of spans and attributes.

`k8s.…`, `http.…`, `error.…` and `service.…` are OpenTelemetry's semantic conventions (registry: k8s, http,
error, service); everything of our own is under `rebalancer.`. Durations are in seconds.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that the names follow; all of them are stable there."""

# Spans. Never a pod's name in them: backends group by span name.
CYCLE = "cycle"
SNAPSHOT = "snapshot"
LIST = "list"
CACHE = "cache"
CONSTRAINTS = "constraints"
PLAN = "plan"
COMPONENT = "component"
WAVE = "wave"
EVICTION = "eviction"
REPLACEMENT = "replacement"

# Semantic conventions.
CLUSTER = "k8s.cluster.name"
NAMESPACE = "k8s.namespace.name"
NODE = "k8s.node.name"
POD = "k8s.pod.name"
POD_UID = "k8s.pod.uid"
OWNERS = {
    kind: f"k8s.{kind.lower()}.name"
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
}
"""Kind of an owner → its attribute; there is none for other kinds."""
STATUS_CODE = "http.response.status_code"
RESEND_COUNT = "http.request.resend_count"
ERROR_TYPE = "error.type"

# Our own.
TRACEPARENT = "rebalancer.io/traceparent"
"""Annotation of Evictions and events: the span that they belong to, as W3C Trace Context writes it."""


def own(name: str) -> str:
    """An attribute of our own."""
    return f"rebalancer.{name}"
