"""Findings: what is wrong with constraints, nodes and budgets themselves, which no eviction cures.

survey    what the checks look at
remedies  changes that they propose, replayed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from rebalancer.bulk_work import bulk_work
from rebalancer.findings import cannot_be_replaced as replacing
from rebalancer.findings import cluster_checks, constraint_checks, domain_checks
from rebalancer.findings.remedies import Replays
from rebalancer.findings.survey import FindingCode, Proposed, Survey
from rebalancer.model.reason import Finding, Severity
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.objective import Effort, for_advice, with_progress
from rebalancer.planner.plan import Plan, PlanOptions
from rebalancer.planner.planner import plan_view, view_of
from rebalancer.policy.evictable import Evictable

__all__ = ["FindingCode", "findings", "order", "plan_with_findings"]

_WEIGHT = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
_CHECKS = (
    constraint_checks.check_selectors,
    domain_checks.check_effect,
    domain_checks.check_node_labels,
    domain_checks.check_domains,
    constraint_checks.check_together,
    constraint_checks.check_volumes,
)


def findings(
    simulation: Simulation, evictable: Evictable, effort: Effort | None = None
) -> tuple[Finding, ...]:
    """All findings of the cluster as it is, for the namespaces in scope: errors first, then by code, object.

    Without nodes (manifests alone) only what does not depend on them. `effort`: what replays of remedies
    may take; by default what advice may take in any case.
    """
    survey = Survey(simulation, evictable)
    kept = replacing.kept_by_workload(survey, evictable) if survey.has_nodes else {}
    found = list(_all(survey, evictable, kept))
    replays = Replays(survey, evictable.owners, kept, effort or for_advice(0))
    return tuple(sorted(replays.all(found), key=order))


@bulk_work()
def plan_with_findings(snapshot: Snapshot, options: PlanOptions | None = None) -> Plan:
    """The plan of a snapshot, and the findings about its constraints, nodes and budgets."""
    options = options or PlanOptions()
    view = view_of(snapshot, options)
    made = plan_view(view, options)
    options.on_progress()
    return replace(made, findings=findings(view.simulation, view.evictable, for_advice(made.steps)))


def order(f: Finding) -> tuple[int, str, str, str]:
    """A sort key."""
    return _WEIGHT[f.severity], f.code, f.object, f.field


def _all(
    survey: Survey, evictable: Evictable, kept: Mapping[str, list[replacing.Kept]]
) -> Iterator[Finding | Proposed]:
    for subject in with_progress(survey.subjects, survey.simulation.on_progress):
        if subject.template.spread and subject.kind != "DaemonSet":
            for check in _CHECKS:
                yield from check(subject, survey)
        if subject.kind != "DaemonSet":
            yield from cluster_checks.check_namespaces(subject, survey)
    if survey.has_nodes:
        yield from domain_checks.check_nodes(survey)
        yield from cluster_checks.check_scheduler(survey.snapshot)
        yield from cluster_checks.check_newer_versions(survey)
        yield from replacing.check(survey, kept)
        yield from cluster_checks.check_settings(survey, evictable)
    yield from cluster_checks.check_released(survey.snapshot)
    yield from cluster_checks.check_annotations(survey, evictable)
    yield from cluster_checks.check_budgets(survey)
