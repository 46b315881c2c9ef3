"""Findings: what is wrong with constraints, nodes and budgets themselves, which no eviction cures.

code        the findings by name
subject     the workloads that are checked
survey      what the checks look at
paste       remedies as YAML
selecting, effect, node_labels, domains, together, volumes, budgets: the checks
"""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.planner.findings import budgets, domains, effect, node_labels, selecting, together, volumes
from rebalancer.planner.findings.code import FindingCode
from rebalancer.planner.findings.survey import Survey
from rebalancer.planner.plan import Finding, Severity
from rebalancer.planner.simulation import Simulation
from rebalancer.policy.evictable import Evictable

__all__ = ["FindingCode", "findings", "order"]

_WEIGHT = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
_CHECKS = (selecting.check, effect.check, node_labels.check, domains.check, together.check, volumes.check)


def findings(simulation: Simulation, evictable: Evictable) -> tuple[Finding, ...]:
    """All findings of the cluster as it is, for the namespaces in scope: errors first, then by code, object.

    Without nodes (manifests alone) only what does not depend on them.
    """
    return tuple(sorted(_all(Survey(simulation, evictable)), key=order))


def order(f: Finding) -> tuple[int, str, str, str]:
    """A sort key."""
    return _WEIGHT[f.severity], f.code, f.object, f.field


def _all(survey: Survey) -> Iterator[Finding]:
    for subject in survey.subjects:
        if subject.template.spread and subject.kind != "DaemonSet":
            for check in _CHECKS:
                yield from check(subject, survey)
    if survey.has_nodes:
        yield from node_labels.check_nodes(survey)
    yield from budgets.check(survey)
