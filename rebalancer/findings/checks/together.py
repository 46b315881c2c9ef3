"""Requirements that cannot hold together: two constraints, or a constraint and an affinity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import entry
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey, Written
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.pod import PodAffinityTerm, PodTemplate
from rebalancer.model.selectors import canonical

HOSTNAME = "kubernetes.io/hostname"


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload."""
    found = survey.constraints(subject.template)
    for c in found:
        if survey.expected(c.meant) > 1:
            yield from _node_affinity(subject, survey, c)
            yield from _pod_affinity(subject, survey, c)
    if survey.has_nodes and subject.replicated:
        judged = [c for c in found if c.meant.hard and survey.alone(subject, c.meant)]
        for one, other in combinations(judged, 2):
            yield from _contradiction(subject, survey, one, other)


class Nested(Struct, frozen=True, eq=False):
    """Two constraints. Each domain of the fine one lies in one domain of the coarse one.

    `sizes`: how many fine domains each coarse one has. `fine`, `coarse`: their maxSkew; `fine_floor`,
    `coarse_floor`: whether their minimum is 0 for lack of domains (minDomains).
    """

    sizes: Sequence[int]
    fine: int
    coarse: int
    fine_floor: bool = False
    coarse_floor: bool = False

    def holds(self, pods: int) -> bool:
        """Whether some placement of so many pods satisfies both.

        With the lowest count of each given, what a coarse domain can have is an interval, and so is their
        sum: only the lowest counts have to be tried.
        """
        domains = sum(self.sizes)
        for low in _lowest(pods, domains, self.fine, self.fine_floor):
            for base in _lowest(pods, len(self.sizes), self.coarse, self.coarse_floor):
                least = [max(low * size, base) for size in self.sizes]
                most = [min((low + self.fine) * size, base + self.coarse) for size in self.sizes]
                fits = all(a <= b for a, b in zip(least, most, strict=True))
                if fits and sum(least) <= pods <= sum(most):
                    return True
        return False


def _lowest(pods: int, domains: int, skew: int, floor: bool) -> range:
    """Lowest counts that so many pods in so many domains can have within a skew."""
    if floor:
        return range(1)
    return range(max(0, -(-pods // domains) - skew), pods // domains + 1)


def _contradiction(subject: Subject, survey: Survey, one: Written, other: Written) -> Iterator[Finding]:
    a, b = (survey.group(subject.template, c.meant) for c in (one, other))
    usable = survey.usable(subject.template)
    pods = subject.replicas
    if not a.size or not b.size or max(one.written.max_skew, other.written.max_skew) >= pods:
        return
    for (fine, c), (coarse, d) in (((a, one), (b, other)), ((b, other), (a, one))):
        sizes = survey.nested(fine, coarse, usable)
        if not sizes:
            continue
        found = Nested(
            sizes,
            c.written.max_skew,
            d.written.max_skew,
            not fine.enough_domains,
            not coarse.enough_domains,
        )
        if not found.holds(pods):
            yield _cannot(subject, c, d, found, pods)
        return


def _cannot(subject: Subject, fine: Written, coarse: Written, nested: Nested, pods: int) -> Finding:
    low, high = fine.written.max_skew + 1, pods
    while low < high:
        middle = (low + high) // 2
        wider = Nested(nested.sizes, middle, nested.coarse, nested.fine_floor, nested.coarse_floor)
        low, high = (low, middle) if wider.holds(pods) else (middle + 1, high)
    spread = sorted(set(nested.sizes))
    there = f"{spread[0]}" if len(spread) == 1 else f"{spread[0]} to {spread[-1]}"
    return finding(
        Severity.ERROR,
        FindingCode.CONTRADICTING_CONSTRAINTS,
        subject,
        f"no placement of {pods} pods satisfies both maxSkew {coarse.written.max_skew} over "
        f"{coarse.written.topology_key} ({len(nested.sizes)} domains) and maxSkew {fine.written.max_skew} "
        f"over {fine.written.topology_key} ({there} domains in each of them)",
        entry(subject, fine.index, maxSkew=low),
        f"{fine.field}.maxSkew",
    )


def _node_affinity(subject: Subject, survey: Survey, c: Written) -> Iterator[Finding]:
    template, key = subject.template, c.written.topology_key
    pods, skew = survey.expected(c.meant), c.written.max_skew
    if survey.has_nodes:
        if survey.table.admitted(template) is survey.table.every:
            return
        domains = survey.table.domains(key)
        every = int(domains.among(survey.table.every).sum())
        reach = int(domains.among(survey.table.admitted(template)).sum())
    else:
        every, reach = 2, 1 if _pinned(template, key) else 2
    if not reach or reach == every:
        return
    ignored = c.written.node_affinity_policy == "Ignore"
    if ignored and c.meant.hard and pods > skew * reach:
        yield finding(
            Severity.ERROR,
            FindingCode.AFFINITY_CONTRADICTS_SPREAD,
            subject,
            f"its node affinity admits {_of(reach, every, survey)} of {key}, and nodeAffinityPolicy Ignore "
            f"counts the others as empty: no more than {skew * reach} of {pods} pods can be placed",
            entry(subject, c.index, nodeAffinityPolicy="Honor"),
            f"{c.field}.nodeAffinityPolicy",
        )
    elif reach == 1:
        yield finding(
            Severity.WARNING,
            FindingCode.AFFINITY_CONTRADICTS_SPREAD,
            subject,
            f"its node affinity admits one domain of {key} only: the constraint over it spreads nothing",
            f"# take {key} out of nodeSelector and nodeAffinity, or remove the constraint",
            c.field,
        )


def _of(reach: int, every: int, survey: Survey) -> str:
    return f"{reach} of {every} domains" if survey.has_nodes else "one domain"


def _pinned(template: PodTemplate, key: str) -> bool:
    """Whether nodeSelector or every term of the required affinity leaves one value of a label."""
    if key in template.node_selector:
        return True
    affinity = template.affinity.node_affinity if template.affinity is not None else None
    if affinity is None or affinity.required is None or not affinity.required.node_selector_terms:
        return False
    values = set()
    for term in affinity.required.node_selector_terms:
        own = [e for e in term.match_expressions if e.key == key and e.operator == "In"]
        if not own or len(own[0].values) != 1:
            return False
        values.add(own[0].values[0])
    return len(values) == 1


def _pod_affinity(subject: Subject, survey: Survey, c: Written) -> Iterator[Finding]:
    affinity = subject.template.affinity.pod_affinity if subject.template.affinity is not None else None
    for term in affinity.required if affinity is not None else ():
        same = term.topology_key == c.written.topology_key or term.topology_key == HOSTNAME
        if not same or not _attracts_itself(term, subject.template.namespace, subject.template.labels):
            continue
        pods = survey.expected(c.meant)
        stuck = c.meant.hard and pods > c.written.max_skew
        yield finding(
            Severity.ERROR if stuck else Severity.WARNING,
            FindingCode.AFFINITY_CONTRADICTS_SPREAD,
            subject,
            f"its required pod affinity wants its pods together in one domain of {term.topology_key}, its "
            f"constraint wants them apart over {c.written.topology_key}"
            + (f": after {c.written.max_skew} of {pods} no further pod can be placed" if stuck else ""),
            "# move the term to preferredDuringSchedulingIgnoredDuringExecution, or remove the constraint",
            "affinity.podAffinity",
        )
        return


def _attracts_itself(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a term selects the pod that has it (an absent selector none, an empty one all)."""
    if term.namespaces and namespace not in term.namespaces and term.namespace_selector is None:
        return False
    return term.label_selector is not None and canonical(term.label_selector).matches(labels)
