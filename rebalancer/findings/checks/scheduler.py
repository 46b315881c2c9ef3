"""A scheduler that has not looked at pods for half a minute: replacements would stay Pending."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.findings.code import FindingCode
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.policy.limits.silent_scheduler import overlooked, silent


def check(snapshot: Snapshot) -> Iterator[Finding]:
    """One for each scheduler whose pods wait for it."""
    for name, pods in sorted(overlooked(snapshot.pods, snapshot.now).items()):
        reason = silent(name, pods)
        yield Finding(
            Severity.ERROR,
            FindingCode.SCHEDULER_SILENT.value,
            f"Scheduler/{name}",
            f"{reason.message}; nothing that it would have to place is evicted",
            reason.remedy,
        )
