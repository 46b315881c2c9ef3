"""Domains that hold the global minimum down because no pod can go there: down, closed, or full."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.findings.cannot_be_replaced import leaving_out, one_more_like
from rebalancer.findings.survey import FindingCode, Proposed, Subject, Survey, Written, added, entry, finding
from rebalancer.model.node import HOSTNAME, REGION, ZONE
from rebalancer.model.pod import PodTemplate
from rebalancer.model.reason import Change, Finding, Severity, listing, plural
from rebalancer.model.workload import HASH
from rebalancer.planner.cluster.groups import Group
from rebalancer.spread.arrays import Bools, Ints


def check_domains(subject: Subject, survey: Survey) -> Iterator[Proposed]:
    """Findings of one workload, by the template that most of its pods have."""
    if not survey.has_nodes or not subject.running:
        return
    template = subject.common
    for c in survey.constraints(template):
        if c.meant.hard and c.meant.self_match(template.labels):
            yield from _constraint(subject, survey, template, c)


def _constraint(subject: Subject, survey: Survey, template: PodTemplate, c: Written) -> Iterator[Proposed]:
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
        yield _full(subject, survey, c, group, counts, full)


def _with_room(survey: Survey, template: PodTemplate, group: Group, asked: Bools) -> Bools:
    """bool[D]: which of these domains have a node with room for another pod. One of each mostly tells."""
    found = np.zeros(group.size, dtype=np.bool_)
    roomiest = survey.roomiest(group)[asked]
    found[group.domain_of[roomiest[survey.simulation.has_room(template, roomiest)]]] = True
    if not found[asked].all():
        rows = np.flatnonzero((asked & ~found)[group.domain_of] & (group.domain_of >= 0))
        found[group.domain_of[rows[survey.simulation.has_room(template, rows)]]] = True
    return found


def _holds_down(group: Group, counts: Ints, out: Bools) -> bool:
    """Whether the other domains are full already, because those in `out` keep the minimum down."""
    others = ~out
    may = (int(counts.min()) + group.constraint.max_skew) * int(others.sum())
    return int(counts[others].sum()) >= may


def _told(group: Group, counts: Ints, which: Bools) -> tuple[str, str]:
    """(domains, verb)."""
    names = [group.names[i] for i in np.flatnonzero(which)]
    pods = plural(int(counts[np.flatnonzero(which)[0]]), "pod")
    each = " each" if len(names) > 1 else ""
    return f"{group.constraint.topology_key} {listing(names)} ({pods}{each})", (
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
) -> Proposed:
    told, verb = _told(group, counts, closed)
    rows = np.isin(group.domain_of, np.flatnonzero(closed))
    why = []
    if (rows & ~survey.ready).any():
        why.append("NotReady")
    if (rows & survey.table.unschedulable).any():
        why.append("cordoned")
    if (rows & survey.table.untolerated(template.tolerations)).any():
        why.append("tainted")
    found = finding(
        Severity.WARNING,
        FindingCode.DOMAIN_UNAVAILABLE,
        subject,
        f"{told} {verb} {' and '.join(why)} and counted all the same: {_effect(group, counts)}",
        "# repair or uncordon its nodes",
        f"{c.field}.nodeTaintsPolicy",
    )
    return Proposed(finding=found, subject=subject, changes=_of_constraint(survey, subject, template, c))


def _of_constraint(survey: Survey, subject: Subject, template: PodTemplate, c: Written) -> tuple[Change, ...]:
    every = leaving_out(survey.state, subject, template)
    return tuple(change for change in every if change.index == c.index)


def _full(subject: Subject, survey: Survey, c: Written, group: Group, counts: Ints, full: Bools) -> Proposed:
    told, verb = _told(group, counts, full)
    found = finding(
        Severity.WARNING,
        FindingCode.DOMAIN_FULL,
        subject,
        f"{told} {verb} full: no node there has room for another pod; {_effect(group, counts)}",
        "# add a node there, or make room",
        c.field,
    )
    there = np.flatnonzero(full[group.domain_of] & (group.domain_of >= 0))
    like = one_more_like(survey.table.nodes[int(there[0])])
    return Proposed(finding=found, subject=subject, changes=(like,))


# Whether constraints do what people expect of them.


def check_effect(subject: Subject, survey: Survey) -> Iterator[Finding]:
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
                **({"matchLabelKeys": [HASH]} if subject.kind == "Deployment" else {}),
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


# Whether the nodes have the labels that constraints go by, and enough domains.

FORMER = {
    ZONE: "failure-domain.beta.kubernetes.io/zone",
    REGION: "failure-domain.beta.kubernetes.io/region",
}


def check_node_labels(subject: Subject, survey: Survey) -> Iterator[Finding | Proposed]:
    """Findings of one workload."""
    if not survey.has_nodes:
        return
    usable: Bools | None = None
    for c in survey.constraints(subject.template):
        if usable is None:
            usable = survey.usable(subject.template)
        yield from _key(subject, survey, c, usable)
        if c.meant.hard and c.written.min_domains is not None:
            yield from _min_domains(subject, survey, c)


def check_nodes(survey: Survey) -> Iterator[Finding]:
    """Findings of the nodes, for the keys that workloads in scope use."""
    keys = {c.topology_key for s in survey.subjects for c in s.template.spread}
    for key in sorted(keys):
        yield from _spellings(survey, key)
        if key in FORMER:
            yield from _former(survey, key)
    if HOSTNAME in keys:
        yield from _shared_hostnames(survey)
    if ZONE in keys:
        yield from _zone_in_regions(survey)


def _key(subject: Subject, survey: Survey, c: Written, usable: Bools) -> Iterator[Finding]:
    key = c.written.topology_key
    present = survey.table.domains(key).present
    without = np.flatnonzero(usable & ~present)
    if not len(without):
        return
    field = f"{c.field}.topologyKey"
    effect = "its pods can be placed on none" if c.meant.hard else "the constraint has no effect"
    if not (usable & present).any():
        yield finding(
            Severity.ERROR if c.meant.hard else Severity.WARNING,
            FindingCode.TOPOLOGY_KEY_MISSING,
            subject,
            f"no node that its pods may use has the label {key}: {effect}",
            f"kubectl label node {survey.table.names[without[0]]} {key}=<value>   # and all others",
            field,
        )
        return
    names = [survey.table.names[i] for i in without]
    effect = "never used by its pods" if c.meant.hard else "counted for nothing"
    yield finding(
        Severity.WARNING if c.meant.hard else Severity.INFO,
        FindingCode.TOPOLOGY_KEY_PARTIAL,
        subject,
        f"{len(without):,} of the {int(usable.sum()):,} nodes that its pods may use lack the label {key} and "
        f"are {effect}: {listing(names)}",
        "\n".join(f"kubectl label node {name} {key}=<value>" for name in names[:3]),
        field,
    )


def _min_domains(subject: Subject, survey: Survey, c: Written) -> Iterator[Proposed]:
    group = survey.group(subject.template, c.meant)
    if group.enough_domains:
        return
    pods, cap = survey.expected(c.meant), c.written.max_skew * group.size
    short = f"; {pods} pods do not fit" if pods > cap else ""
    found = finding(
        Severity.ERROR if pods > cap else Severity.WARNING,
        FindingCode.MIN_DOMAINS_UNREACHABLE,
        subject,
        f"minDomains {c.meant.min_domains} over {c.written.topology_key}, and there are {group.size} "
        f"domains: the minimum counts as 0, so that no domain takes more than {c.written.max_skew}{short}",
        f"# nodes in {c.meant.min_domains - group.size} more, or a lower minDomains",
        f"{c.field}.minDomains",
    )
    yield Proposed(finding=found, subject=subject, changes=_of_constraint(survey, subject, subject.common, c))


def _node(severity: Severity, name: str, message: str, remedy: str, field: str) -> Finding:
    code = FindingCode.INCONSISTENT_NODE_LABELS.value
    return Finding(severity, code, f"Node/{name}", message, remedy, f"metadata.labels.{field}")


def _spellings(survey: Survey, key: str) -> Iterator[Finding]:
    """Values that differ only in case or blanks: people mean one domain, and the scheduler sees two."""
    domains = survey.table.domains(key)
    by: dict[str, list[str]] = {}
    for name in domains.names:
        by.setdefault("".join(name.split()).lower(), []).append(name)
    for spellings in by.values():
        if len(spellings) < 2:
            continue
        counts = {n: int((domains.ids == domains.names.index(n)).sum()) for n in spellings}
        usual = max(sorted(spellings), key=lambda n: counts[n])
        odd = next(n for n in sorted(spellings) if n != usual)
        name = survey.table.names[int(np.flatnonzero(domains.ids == domains.names.index(odd))[0])]
        yield _node(
            Severity.WARNING,
            name,
            f"{key} is spelled {' and '.join(map(repr, sorted(spellings)))}: to the scheduler these are "
            "different domains",
            f"kubectl label node {name} {key}={usual} --overwrite",
            key,
        )


def _former(survey: Survey, key: str) -> Iterator[Finding]:
    former = FORMER[key]
    for node in survey.table.nodes:
        old, new = node.labels.get(former), node.labels.get(key)
        if old is not None and new is not None and old != new:
            yield _node(
                Severity.WARNING,
                node.name,
                f"{key} is {new!r} and its former name {former} is {old!r}: one of the two is wrong",
                f"kubectl label node {node.name} {former}={new} --overwrite",
                key,
            )


def _shared_hostnames(survey: Survey) -> Iterator[Finding]:
    by: dict[str, list[str]] = {}
    for node in survey.table.nodes:
        if (value := node.labels.get(HOSTNAME)) is not None:
            by.setdefault(value, []).append(node.name)
    for value, names in by.items():
        if len(names) > 1:
            yield _node(
                Severity.WARNING,
                names[1],
                f"{len(names)} nodes have the {HOSTNAME} {value!r} and count as one: {', '.join(names[:3])}",
                f"kubectl label node {names[1]} {HOSTNAME}={names[1]} --overwrite",
                HOSTNAME,
            )


def _zone_in_regions(survey: Survey) -> Iterator[Finding]:
    by: dict[str, dict[str, str]] = {}
    for node in survey.table.nodes:
        zone, region = node.labels.get(ZONE), node.labels.get(REGION)
        if zone is not None and region is not None:
            by.setdefault(zone, {}).setdefault(region, node.name)
    for zone, regions in by.items():
        if len(regions) > 1:
            name = sorted(regions.items())[1][1]
            yield _node(
                Severity.WARNING,
                name,
                f"zone {zone!r} is in {len(regions)} regions ({', '.join(sorted(regions))}): its nodes count "
                "as one domain although they are in different places",
                f"kubectl label node {name} {ZONE}=<value> --overwrite",
                ZONE,
            )
