"""Whether the nodes have the labels that constraints go by, and enough domains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import entry
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey, Written
from rebalancer.model.finding import Finding, Severity
from rebalancer.spread.arrays import Bools

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
_FORMER = {
    ZONE: "failure-domain.beta.kubernetes.io/zone",
    REGION: "failure-domain.beta.kubernetes.io/region",
}
_EXAMPLES = 3


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
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
        if key in _FORMER:
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
    names = [survey.table.names[i] for i in without[:_EXAMPLES]]
    more = f" and {len(without) - len(names):,} more" if len(without) > len(names) else ""
    effect = "never used by its pods" if c.meant.hard else "counted for nothing"
    yield finding(
        Severity.WARNING if c.meant.hard else Severity.INFO,
        FindingCode.TOPOLOGY_KEY_PARTIAL,
        subject,
        f"{len(without):,} of the {int(usable.sum()):,} nodes that its pods may use lack the label {key} and "
        f"are {effect}: {', '.join(names)}{more}",
        "\n".join(f"kubectl label node {name} {key}=<value>" for name in names),
        field,
    )


def _min_domains(subject: Subject, survey: Survey, c: Written) -> Iterator[Finding]:
    group = survey.group(subject.template, c.meant)
    if group.enough_domains:
        return
    pods, cap = survey.expected(c.meant), c.written.max_skew * group.size
    short = f"; {pods} pods do not fit" if pods > cap else ""
    yield finding(
        Severity.ERROR if pods > cap else Severity.WARNING,
        FindingCode.MIN_DOMAINS_UNREACHABLE,
        subject,
        f"minDomains {c.meant.min_domains} over {c.written.topology_key}, and there are {group.size} "
        f"domains: the minimum counts as 0, so that no domain takes more than {c.written.max_skew}{short}",
        entry(subject, c.index, minDomains=max(group.size, 1)),
        f"{c.field}.minDomains",
    )


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
    former = _FORMER[key]
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
