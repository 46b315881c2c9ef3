"""Whether constraints do what people expect of them."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import added, entry
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload."""
    for c in survey.constraints(subject.template):
        pods = survey.expected(c.meant)
        if c.meant.hard and pods >= 2 and c.written.max_skew >= pods:
            yield finding(
                Severity.WARNING,
                FindingCode.NO_EFFECT,
                subject,
                f"maxSkew {c.written.max_skew} over {c.written.topology_key} with {pods} pods: all of them "
                "may be in one domain, so the constraint has no effect",
                entry(subject, c.index, maxSkew=1),
                f"{c.field}.maxSkew",
            )
        if c.written.min_domains is not None and not c.meant.hard:
            yield finding(
                Severity.ERROR,
                FindingCode.MIN_DOMAINS_SOFT,
                subject,
                "minDomains goes with DoNotSchedule only: the API server refuses it with ScheduleAnyway",
                entry(subject, c.index, whenUnsatisfiable="DoNotSchedule"),
                f"{c.field}.minDomains",
            )
    if subject.replicated and subject.template.spread:
        yield from _hostname_only(subject, survey)
        yield from _only_soft(subject)


def _hostname_only(subject: Subject, survey: Survey) -> Iterator[Finding]:
    template = subject.template
    keys = {c.topology_key for c in template.spread}
    affinity = template.affinity.pod_anti_affinity if template.affinity is not None else None
    apart = {t.topology_key for t in affinity.required} if affinity is not None else set()
    if keys != {HOSTNAME} or apart - {HOSTNAME}:
        return
    if survey.has_nodes and survey.table.domains(ZONE).among(survey.usable(template)).sum() < 2:
        return
    labels = subject.own_labels
    yield finding(
        Severity.WARNING,
        FindingCode.HOSTNAME_ONLY,
        subject,
        f"it is spread over nodes only: one zone can hold all of its {subject.most} pods, and fail with them",
        added(
            subject,
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
                **({"matchLabelKeys": ["pod-template-hash"]} if subject.kind == "Deployment" else {}),
            },
        ),
        "topologySpreadConstraints",
    )


def _only_soft(subject: Subject) -> Iterator[Finding]:
    wide = [(i, c) for i, c in enumerate(subject.template.spread) if c.topology_key != HOSTNAME]
    if not wide or any(c.when_unsatisfiable == "DoNotSchedule" for _, c in wide):
        return
    index, first = wide[0]
    if first.min_domains is not None:
        return  # told already, with the same remedy
    yield finding(
        Severity.INFO,
        FindingCode.ONLY_SOFT,
        subject,
        f"its spread over {first.topology_key} is only preferred (ScheduleAnyway): the scheduler gives it up "
        "for other preferences, and a hard constraint is what is kept and restored",
        entry(subject, index, whenUnsatisfiable="DoNotSchedule"),
        f"topologySpreadConstraints[{index}].whenUnsatisfiable",
    )
