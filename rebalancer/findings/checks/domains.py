"""Domains that hold the global minimum down because no pod can go there: down, closed, or full."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import as_written, yaml_of
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey, Written
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.pod import PodTemplate
from rebalancer.planner.cluster.groups import Group
from rebalancer.spread.arrays import Bools, Ints

_EXAMPLES = 3
_SOME = 50
"""Nodes that are asked first."""


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload, by the template that most of its pods have."""
    if not survey.has_nodes or not subject.running:
        return
    template = subject.common
    for c in survey.constraints(template):
        if c.meant.hard and c.meant.self_match(template.labels):
            yield from _constraint(subject, survey, template, c)


def _constraint(subject: Subject, survey: Survey, template: PodTemplate, c: Written) -> Iterator[Finding]:
    group = survey.group(template, c.meant)
    if group.size < 2 or not group.enough_domains:
        return
    counts = group.counts_once(survey.state)
    lowest = counts == counts.min()
    if lowest.all():
        return
    if not _holds_down(group, counts, lowest):
        return  # nor does a part of them: the rest would be at the minimum
    closed = lowest & ~survey.domains(group, survey.reachable(template))
    if closed.any() and _holds_down(group, counts, closed):
        yield _unavailable(subject, survey, template, c, group, counts, closed)
        return
    # Room is asked for only where the answer matters: it is the costly question. A pod with a volume finds
    # no room wherever its volume is not, which is another finding.
    if subject.mounted:
        return
    asked = lowest & survey.domains(group, survey.table.admitted(template)) & ~closed
    full = asked & ~_with_room(survey, template, group, asked)
    if full.any() and _holds_down(group, counts, full):
        yield _full(subject, c, group, counts, full)


def _with_room(survey: Survey, template: PodTemplate, group: Group, asked: Bools) -> Bools:
    """bool[D]: which of these domains have a node with room for another pod. Some nodes mostly tell."""
    found = np.zeros(group.size, dtype=np.bool_)
    rows = np.flatnonzero(asked[group.domain_of] & (group.domain_of >= 0))
    for some in (rows[:_SOME], rows[_SOME:]):
        found[group.domain_of[some[survey.simulation.has_room(template, some)]]] = True
        if found[asked].all():
            break
    return found


def _holds_down(group: Group, counts: Ints, out: Bools) -> bool:
    """Whether the other domains are full already, because those in `out` keep the minimum down."""
    others = ~out
    may = (int(counts.min()) + group.constraint.max_skew) * int(others.sum())
    return int(counts[others].sum()) >= may


def _told(group: Group, counts: Ints, which: Bools) -> tuple[str, str]:
    """(domains, verb)."""
    names = [group.names[i] for i in np.flatnonzero(which)]
    more = f" and {len(names) - _EXAMPLES:,} more" if len(names) > _EXAMPLES else ""
    count = int(counts[np.flatnonzero(which)[0]])
    pods = "1 pod" if count == 1 else f"{count} pods"
    each = " each" if len(names) > 1 else ""
    return f"{group.constraint.topology_key} {', '.join(names[:_EXAMPLES])}{more} ({pods}{each})", (
        "are" if len(names) > 1 else "is"
    )


def _effect(group: Group, counts: Ints) -> str:
    cap = int(counts.min()) + group.constraint.max_skew
    return f"it holds the minimum down, so that no other domain may have more than {cap}"


def _unavailable(
    subject: Subject,
    survey: Survey,
    template: PodTemplate,
    c: Written,
    group: Group,
    counts: Ints,
    closed: Bools,
) -> Finding:
    told, verb = _told(group, counts, closed)
    rows = np.isin(group.domain_of, np.flatnonzero(closed))
    why = []
    if (rows & ~survey.ready).any():
        why.append("NotReady")
    if (rows & survey.table.unschedulable).any():
        why.append("cordoned")
    if (rows & survey.table.untolerated(template.tolerations)).any():
        why.append("tainted")
    remedy = {**as_written(c.written), "nodeTaintsPolicy": "Honor"}
    return finding(
        Severity.WARNING,
        FindingCode.DOMAIN_UNAVAILABLE,
        subject,
        f"{told} {verb} {' and '.join(why)} and counted all the same: {_effect(group, counts)}",
        f"# {subject.pod_spec}.topologySpreadConstraints[{c.index}]\n{yaml_of([remedy])}",
        f"{c.field}.nodeTaintsPolicy",
    )


def _full(subject: Subject, c: Written, group: Group, counts: Ints, full: Bools) -> Finding:
    told, verb = _told(group, counts, full)
    return finding(
        Severity.WARNING,
        FindingCode.DOMAIN_FULL,
        subject,
        f"{told} {verb} full: no node there has room for another pod; {_effect(group, counts)}",
        "# no setting helps: add a node there, or make room",
        c.field,
    )
