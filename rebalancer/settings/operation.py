"""Settings of running it: when, under whose eyes, with which memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rebalancer.settings.group import Group
from rebalancer.settings.types import CronText, Duration, NumberOrPercent, TimeZone


class MaintenanceWindow(Group):
    """One maintenance window. It begins whenever `cron` comes up in `timeZone`, by the wall clock, and lasts
    `duration`; allow: evictions are allowed within, deny: they are forbidden within."""

    cron: CronText
    """When it begins: minute hour day month weekday, as in crontab; names such as MON-FRI are fine."""
    duration: Duration = Field(gt=0, le=604_800)
    """How long it lasts, a week at most."""
    time_zone: TimeZone = "UTC"
    """Zone of the cron expression, for example Europe/Berlin."""
    action: Literal["allow", "deny"] = "allow"
    """allow or deny. A deny window that is open wins; otherwise, if there are allow windows, one of them must
    be open."""


class Schedule(Group):
    """When the daemon works (`rebalancer run`), and when evictions are allowed at all (`run` and `once`)."""

    interval: Duration = Field(default=300.0, gt=0)
    """Time between the starts of two cycles. 5m: skew is a risk, not an outage, and a cycle should see the
    result of the one before."""
    cron: CronText = ""
    """Instead of the interval: when cycles start, as in crontab (minute hour day month weekday). Empty = by
    interval."""
    time_zone: TimeZone = "UTC"
    """Zone of `cron`, for example Europe/Berlin."""
    jitter: Duration = 0.0
    """Cycles start up to so much later, at random, so that many clusters do not all work at the same time."""
    max_cycle_time: Duration = Field(default=1800.0, gt=0)
    """No eviction after a cycle has taken so long; what is in flight is waited for. The next one goes on."""
    windows: tuple[MaintenanceWindow, ...] = ()
    """Maintenance windows, checked before every eviction: a list of {cron, duration, timeZone, action}, for
    example {cron: "0 22 * * MON-THU", duration: 8h, timeZone: Europe/Berlin}. Empty = always allowed."""


class Breaker(Group):
    """The circuit breaker: stops a cycle, and evictions for a while, when the cluster or the API server is
    unwell, when replacements fail to become Ready (the second of a cycle), or an outcome is unknown."""

    max_not_ready_nodes: NumberOrPercent = Field(default="20%", validate_default=True)
    """Nodes that may be NotReady. 20%: one node of a few, not a whole zone of three."""
    max_new_pending: int = Field(default=3, ge=0)
    """Pods of the whole cluster that may become Pending during a cycle."""
    pause: Duration = Field(default=600.0, gt=0)
    """How long evictions stop; doubled each time that it happens again at once, up to eight times. `once
    --execute` does not wait."""


class Ledger(Group):
    """Memory across cycles and restarts: evictions, where replacements were predicted and went, when
    violations began. Kept in a ConfigMap, in at most 512 KiB of it."""

    mode: Literal["configMap", "memory"] = "configMap"
    """configMap: nothing is evicted unless it can be written down first. memory: consent to evict without; a
    CronJob then forgets everything between two runs."""
    namespace: str = ""
    """Namespace of the ConfigMap. Empty = the tool's own in a cluster, the context's elsewhere."""
    name: str = Field(default="rebalancer-ledger", min_length=1)
    """Name of the ConfigMap; one for each rebalancer of a cluster."""


class LeaderElection(Group):
    """So that of several daemons one acts. A single one needs it too: while it is replaced there are two."""

    enabled: bool = True
    """Whether `run` stands for election when it may evict. false where something else makes sure that there
    is one."""
    namespace: str = ""
    """Namespace of the lease. Empty = as the ledger's."""
    name: str = Field(default="rebalancer", min_length=1)
    """Name of the lease. Its annotation rebalancer.io/pause, with any value or a time, pauses evictions."""
    lease_duration: Duration = 15.0
    """How long others wait after the last sign of a leader."""
    renew_deadline: Duration = 10.0
    """How long a leader acts without having been confirmed; shorter than leaseDuration."""
    retry_period: Duration = 2.0
    """Time between two attempts to renew or to get the lease."""

    @model_validator(mode="after")
    def _in_order(self) -> LeaderElection:
        if not 0 < self.retry_period * 1.2 < self.renew_deadline <= 0.8 * self.lease_duration:
            raise ValueError(
                "retryPeriod, renewDeadline and leaseDuration must each be clearly longer than the one "
                "before, renewDeadline at most 0.8 of leaseDuration"
            )
        return self


class Health(Group):
    """HTTP for probes and metrics of the daemon: /healthz, /readyz, /metrics."""

    address: str = Field(default="auto", pattern=r"^(auto|none|.*:\d{1,5})$")
    """host:port to listen on (:8080 = on all addresses). auto = :8080 in a cluster and nothing elsewhere,
    none = nothing."""
    hung_after: Duration = Field(default=600.0, gt=0)
    """/healthz fails when the loop has not moved for so long. An eviction whose answer is lost may take some
    minutes to be cleared up, hence 10m."""
