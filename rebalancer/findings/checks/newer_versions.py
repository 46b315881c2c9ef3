"""A scheduler that is newer than all known rules."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.engine.certainty import newer
from rebalancer.findings.code import FindingCode
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity


def check(survey: Survey) -> Iterator[Finding]:
    """At most one finding, about the cluster."""
    version = survey.state.version
    if not version.newer_by:
        return
    held = survey.held
    yield Finding(
        Severity.ERROR,
        FindingCode.NEWER_VERSION.value,
        f"Kubernetes/{version.text}",
        held.message if held is not None else newer(version),
        held.remedy
        if held is not None
        else "upgrade the rebalancer; until then `rebalancer explain --compare --watch 5m` shows whether the "
        "scheduler still does what is predicted, and planner.newerVersions: refuse stops evictions",
    )
