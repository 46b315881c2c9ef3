"""Workloads that run, and whose next pod to die would stay Pending: no node would take its replacement."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.engine.shut_nodes import Shut, shut_nodes, told
from rebalancer.findings.checks.replacing.kept import Kept, kept_pods
from rebalancer.findings.checks.replacing.remedy import remedy
from rebalancer.findings.checks.replacing.stuck import gone, stuck_pods
from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.pod import Pod
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable

Found = list[tuple[Kept, list[Pod]]]
_NAMED = 3


def check(survey: Survey, evictable: Evictable) -> Iterator[Finding]:
    """A finding for each workload in scope of which a pod could not be replaced."""
    known = {(s.kind, s.namespace, s.name): s for s in survey.subjects}
    every = kept_pods(survey.snapshot, evictable, survey.table)
    by_subject: dict[int, tuple[Subject, list[Kept]]] = {}
    for kept in every:
        top = evictable.owners.top(kept.owner)
        subject = known.get((top.kind, top.namespace, top.name))
        if subject is not None:
            by_subject.setdefault(id(subject), (subject, []))[1].append(kept)
    for subject, own in by_subject.values():
        found = list(stuck_pods(survey.simulation, own))
        if found:
            yield _finding(survey, subject, found, sum(len(k.pods) for k in own))


def _finding(survey: Survey, subject: Subject, found: Found, total: int) -> Finding:
    simulation = survey.simulation
    kept, pods = max(found, key=lambda f: len(f[1]))
    number = sum(len(p) for _, p in found)
    with gone(simulation, pods[0]):
        shut = shut_nodes(simulation.framework(kept.replacement), kept.replacement)
        change = remedy(simulation, subject, kept, shut)
    names = sorted(p.name for _, some in found for p in some)
    more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    if total == 1:
        what = f"if its pod {names[0]} died now, no node would take its replacement"
    elif number == total:
        what = f"if one of its {total:,} pods died now, no node would take its replacement"
    else:
        what = (
            f"if one died now, no node would take the replacement of {number:,} of its {total:,} pods "
            f"({', '.join(names[:_NAMED])}{more})"
        )
    return _told(subject, what, shut, change, number, total)


def not_placed(simulation: Simulation, subject: Subject, number: int) -> Finding:
    """The finding about pods of a workload that find no node when they are first placed."""
    new, total = subject.template, subject.replicas
    owner = subject.workload
    assert owner is not None
    kept = Kept(owner, new, new, [], simulation.state.table)
    shut = shut_nodes(simulation.framework(new), new)
    change = remedy(simulation, subject, kept, shut)
    if number > 1:
        change = f"# for one more of them\n{change}"
    if total == 1:
        what = "its pod finds no node"
    elif number == total:
        what = f"none of its {total:,} pods finds a node"
    else:
        what = f"{number:,} of its {total:,} pods {'finds' if number == 1 else 'find'} no node"
    return _told(subject, what, shut, change, number, total)


def _told(
    subject: Subject, what: str, shut: tuple[Shut, ...], change: str, number: int, total: int
) -> Finding:
    return finding(
        Severity.ERROR,
        FindingCode.CANNOT_BE_REPLACED,
        subject,
        f"{what}: {told(shut)}",
        change,
        numbers={"pods": number, "of": total},
    )
