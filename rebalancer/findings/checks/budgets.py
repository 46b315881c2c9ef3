"""PodDisruptionBudgets that are missing, several, or never met."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import yaml_of
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.selectors import canonical
from rebalancer.model.workload import PodDisruptionBudget


def check(survey: Survey) -> Iterator[Finding]:
    """Findings of all workloads and budgets."""
    if "PodDisruptionBudget" not in survey.snapshot.kinds:
        return
    covering: dict[int, list[str]] = {}
    for budget in survey.snapshot.budgets:
        if budget.metadata.namespace not in survey.in_scope or budget.spec.selector is None:
            continue
        covered = survey.labels.select(budget.metadata.namespace, canonical(budget.spec.selector))
        for s in covered:
            covering.setdefault(id(s), []).append(budget.metadata.name)
        yield from _never(budget, covered)
    for s in survey.subjects:
        names = covering.get(id(s), [])
        if len(names) > 1:
            yield finding(
                Severity.ERROR,
                FindingCode.MULTIPLE_PDBS,
                s,
                f"{len(names)} PodDisruptionBudgets cover its pods ({', '.join(sorted(names))}): the API "
                "server refuses every eviction, a node's drain waits for ever",
                f"kubectl delete poddisruptionbudget {sorted(names)[-1]} -n {s.namespace}"
                "   # or narrow its selector",
            )
        elif not names and s.replicated and s.template.spread:
            yield _missing(s)


def _missing(subject: Subject) -> Finding:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": subject.name, "namespace": subject.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": subject.own_labels}},
    }
    return finding(
        Severity.WARNING,
        FindingCode.NO_PDB,
        subject,
        "no PodDisruptionBudget covers its pods: drains and other evictions may take all of them at once",
        yaml_of(budget),
    )


def _never(budget: PodDisruptionBudget, covered: list[Subject]) -> Iterator[Finding]:
    pods = sum(s.most for s in covered)
    if not pods:
        return
    spec = budget.spec
    field = "maxUnavailable" if spec.max_unavailable is not None else "minAvailable"
    written = spec.max_unavailable if spec.max_unavailable is not None else spec.min_available
    if written is None:
        return
    scaled = _scaled(written, pods)
    if scaled is None or (scaled > 0 if field == "maxUnavailable" else scaled < pods):
        return
    name, namespace = budget.metadata.name, budget.metadata.namespace
    instead = " in place of minAvailable" if field == "minAvailable" else ""
    yield Finding(
        Severity.WARNING,
        FindingCode.PDB_NEVER_ALLOWS.value,
        f"PodDisruptionBudget/{namespace}/{name}",
        f"{field} {written} with {'1 pod' if pods == 1 else f'{pods} pods'} never allows an eviction: drains "
        "wait for ever, and skew stays",
        f"# PodDisruptionBudget {name}{instead}\n" + yaml_of({"spec": {"maxUnavailable": 1}}),
        f"spec.{field}",
    )


def _scaled(written: int | str, pods: int) -> int | None:
    """A number of pods; percentages are rounded up (GetScaledValueFromIntOrPercent)."""
    if isinstance(written, int):
        return written
    digits = written.removesuffix("%")
    if digits == written or not digits.isdecimal():
        return None
    return -(-int(digits) * pods // 100)
