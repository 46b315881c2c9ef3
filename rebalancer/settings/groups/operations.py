"""Settings of running it: when, under whose eyes, with which memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rebalancer.settings.field_types import (
    CronText,
    Duration,
    DurationOrOff,
    NamespaceOrEmpty,
    NumberOrPercent,
    TimeZone,
)
from rebalancer.settings.groups.base import Group


class MaintenanceWindow(Group):
    """One maintenance window. It begins at each time of `cron`, by the wall clock of `timeZone`, and lasts
    `duration`. allow: evictions are allowed within it. deny: they are forbidden within it."""

    cron: CronText
    """When it begins: minute hour day month weekday, as in crontab. Names such as MON-FRI are allowed; L is
    the last day of a month, SUN#1 its first Sunday."""
    duration: Duration = Field(gt=0, le=604_800)
    """How long it lasts; a week at most."""
    time_zone: TimeZone = "UTC"
    """Zone of the cron expression, for example Europe/Berlin."""
    action: Literal["allow", "deny"] = "allow"
    """allow or deny. A deny window that is open wins. Otherwise, if there are allow windows, one of them must
    be open."""


class Schedule(Group):
    """When cycles of the daemon start (`rebalancer run`), and when evictions are allowed (`run` and
    `once`)."""

    interval: Duration = Field(default=300.0, gt=0)
    """Time between the starts of two cycles. 5m, because skew is a risk and not an outage, and a cycle should
    see the result of the one before."""
    react: DurationOrOff = 10.0
    """With an interval, a cycle also starts when something has happened that lets it do more than the last
    one: nodes have changed, a rollout or scaling has ended, a budget has opened, there is room for a move
    that found none. At most one in this time. 10s, because a zone that comes back is when spread is worth
    most. off = only by the interval."""
    node_settle: Duration = 10.0
    """How long no node may have changed before such a cycle starts, and for how long all nodes of a domain
    that came back must have been Ready. 10s, because the nodes of a zone come back one after the other."""
    cron: CronText = ""
    """When cycles start, as in crontab (minute hour day month weekday), instead of the interval. Empty = by
    interval."""
    time_zone: TimeZone = "UTC"
    """Zone of `cron`, for example Europe/Berlin."""
    jitter: Duration = 0.0
    """Each cycle starts later by a random time up to this, so that many clusters do not work at the same
    time."""
    max_cycle_time: Duration = Field(default=1800.0, gt=0)
    """After a cycle has taken this long, it evicts no more pods. It waits for the replacements that are on
    their way, and the next cycle continues."""
    windows: tuple[MaintenanceWindow, ...] = ()
    """Maintenance windows, checked before every eviction: a list of {cron, duration, timeZone, action}, for
    example {cron: "0 22 * * MON-THU", duration: 8h, timeZone: Europe/Berlin}. Empty = always allowed."""


class Breaker(Group):
    """When nothing is evicted because something is wrong. While too many nodes are NotReady, too many pods
    displaced, too many replacements late or no scheduler works, evictions wait, and go on as soon as that is
    over. The circuit breaker stops them for a while after a cycle in which the API server failed, a second
    replacement did not become Ready, or it is not known whether a pod was evicted."""

    max_not_ready_nodes: NumberOrPercent = Field(default="20%", validate_default=True)
    """How many nodes may be NotReady. 20%, which allows one node of a few, but not a zone of three."""
    max_displaced: NumberOrPercent = Field(default="1%", validate_default=True)
    """How many pods may be Pending that evictions of the last hour may have left without a node:
    replacements, and pods that would fit where replacements are now. Others do not count. 1% of the cluster's
    pods, which means three at least."""
    max_late: int = Field(default=3, ge=1)
    """While so many replacements are late, nothing more is evicted, until they are Ready or gone. Late is
    what takes twice as long as the pods of its owner usually do, and 60s at least, or has a container whose
    image cannot be pulled or that cannot be created. 3, because one or two may have reasons of their own."""
    pause: Duration = Field(default=600.0, gt=0)
    """How long the circuit breaker stops evictions. Each further trip in a row doubles it, up to eight times
    this. `once --execute` does not wait."""


class Ledger(Group):
    """What is remembered across cycles and restarts: evictions, where each replacement was expected and where
    it landed, when violations began, and since when pods cannot be replaced. It is kept in a ConfigMap and
    takes 512 KiB at most."""

    mode: Literal["configMap", "memory"] = "configMap"
    """configMap: no pod is evicted unless that can be written to the ledger first. memory: the ledger is kept
    in the process only, so a CronJob forgets everything between two runs."""
    namespace: NamespaceOrEmpty = ""
    """Namespace of the ConfigMap. Empty = the tool's own namespace in a cluster, else that of the context."""
    name: str = Field(default="rebalancer-ledger", min_length=1)
    """Name of the ConfigMap. Each rebalancer of a cluster needs one of its own."""


class Brake(Group):
    """The ConfigMap by which people pause all evictions (`rebalancer pause`). Every installation has it. No
    pod is evicted while it is missing or may not be read."""

    namespace: NamespaceOrEmpty = ""
    """Namespace of the ConfigMap. Empty = that of the ledger."""
    name: str = Field(default="rebalancer-brake", min_length=1)
    """Name of the ConfigMap. Its annotation rebalancer.io/pause pauses evictions: until a time, or with any
    other value until it is removed."""


class LeaderElection(Group):
    """Makes sure that only one of several daemons evicts pods. A single daemon needs it too, because there
    are two while it is being replaced."""

    enabled: bool = True
    """Whether `run` takes part in leader election when it may evict. Set it to false only if something else
    makes sure that one daemon runs."""
    namespace: NamespaceOrEmpty = ""
    """Namespace of the lease. Empty = that of the ledger."""
    name: str = Field(default="rebalancer", min_length=1)
    """Name of the lease. Each rebalancer of a cluster needs one of its own."""
    lease_duration: Duration = 15.0
    """How long other instances wait after the leader's last update before they take over."""
    renew_deadline: Duration = 10.0
    """How long a leader keeps acting after its last confirmed update; shorter than leaseDuration."""
    retry_period: Duration = 2.0
    """Time between two attempts to renew or to acquire the lease."""

    @model_validator(mode="after")
    def _in_order(self) -> LeaderElection:
        if not 0 < self.retry_period * 1.2 < self.renew_deadline <= 0.8 * self.lease_duration:
            raise ValueError(
                "retryPeriod, renewDeadline and leaseDuration must each be clearly longer than the one "
                "before, renewDeadline at most 0.8 of leaseDuration"
            )
        return self


class Health(Group):
    """The HTTP server for probes and metrics of the daemon: /healthz, /readyz, /metrics."""

    address: str = Field(default="auto", pattern=r"^(auto|none|.*:\d{1,5})$")
    """host:port to listen on; :8080 means port 8080 on all addresses. auto = :8080 in a cluster and no server
    elsewhere. none = no server."""
    hung_after: Duration = Field(default=600.0, gt=0)
    """/healthz fails when the loop has made no progress for this long. 10m, because it may take some minutes
    to find out what became of an eviction whose answer was lost."""
