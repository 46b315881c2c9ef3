"""What a constraint selects: its own pods, one revision of them, the same for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.engine.version import EMPTY_SELECTORS, releases
from rebalancer.findings.survey import (
    FindingCode,
    Proposed,
    Subject,
    Survey,
    Written,
    entry,
    finding,
    told_apart,
    yaml_of,
)
from rebalancer.model.node import HOSTNAME
from rebalancer.model.pod import PodAffinityTerm, PodTemplate
from rebalancer.model.reason import Change, Finding, Severity
from rebalancer.model.selectors import canonical
from rebalancer.model.storage import PersistentVolume
from rebalancer.model.workload import HASH
from rebalancer.prevention.rollouts import tells_revisions
from rebalancer.spread.arrays import Bools
from rebalancer.spread.constraint import Constraint


def check_selectors(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload."""
    for c in survey.constraints(subject.template):
        selector = c.meant.selector
        if selector is None or selector.empty:
            yield _counts_nothing(subject, c)
        elif not selector.matches(subject.template.labels):
            yield _misses(subject, c)
        elif (
            subject.kind == "Deployment"
            and subject.workload is not None
            and subject.workload.update_strategy != "Recreate"
            and survey.expected(c.meant) > c.written.max_skew
            and not _tells_revisions(subject, c)
        ):
            yield _no_revision(subject, c)
    yield from _mixed(subject)


def _counts_nothing(subject: Subject, c: Written) -> Finding:
    what = "no labelSelector" if c.meant.selector is None else "an empty labelSelector"
    later = "" if c.meant.selector is None else f" (from {releases(EMPTY_SELECTORS)} on it counts all pods)"
    return finding(
        Severity.WARNING,
        FindingCode.SELECTOR_COUNTS_NOTHING,
        subject,
        f"the constraint over {c.written.topology_key} has {what}: the scheduler counts no pod for it, so it "
        f"has no effect{later}",
        entry(subject, c.index, labelSelector={"matchLabels": subject.own_labels}),
        f"{c.field}.labelSelector",
    )


def _misses(subject: Subject, c: Written) -> Finding:
    return finding(
        Severity.ERROR,
        FindingCode.SELECTOR_MISSES_OWN_PODS,
        subject,
        f"the constraint over {c.written.topology_key} selects {c.meant.selector}, which its own pods are "
        "not: they are placed by the count of other pods and are not spread among themselves",
        entry(subject, c.index, labelSelector={"matchLabels": subject.own_labels}),
        f"{c.field}.labelSelector",
    )


def _tells_revisions(subject: Subject, c: Written) -> bool:
    """Whether old and new pods of a rollout are counted apart."""
    own = subject.workload.selector if subject.workload is not None else None
    fixed = {r.key for r in own.requirements} if own is not None else set()
    written = c.written.label_selector
    wanted = (
        (*written.match_labels, *(e.key for e in written.match_expressions)) if written is not None else ()
    )
    return tells_revisions(c.written.match_label_keys, wanted, fixed)


def _no_revision(subject: Subject, c: Written) -> Finding:
    return finding(
        Severity.WARNING,
        FindingCode.NO_REVISION_LABEL,
        subject,
        f"the constraint over {c.written.topology_key} counts the pods of all revisions: during a rollout "
        "the new ones are placed around the old ones, and when these go, skew stays (two of three pods in "
        "one domain, say)",
        told_apart(subject.pod_spec, c.index, c.written, HASH),
        f"{c.field}.matchLabelKeys",
    )


def _mixed(subject: Subject) -> Iterator[Finding]:
    if len({id(template.spread) for template, _ in subject.running}) < 2:
        return  # equal lists of constraints are one object
    by: dict[frozenset[tuple[object, ...]], int] = {}
    seen: dict[int, frozenset[tuple[object, ...]]] = {}
    for template, count in subject.running:
        # Equal lists of constraints are one object, so each is looked at once.
        signature = seen.get(id(template.spread))
        if signature is None:
            signature = seen[id(template.spread)] = _signature(template)
        by[signature] = by.get(signature, 0) + count
    if len(by) < 2:
        return
    counts = " and ".join(f"{n:,}" for n in sorted(by.values(), reverse=True))
    yield finding(
        Severity.WARNING,
        FindingCode.MIXED_CONSTRAINTS,
        subject,
        f"its pods have {len(by)} different sets of spread constraints ({counts} pods): each is placed by "
        "its own rules, and what one obeys another breaks",
        f"kubectl rollout restart {subject.kind.lower()}/{subject.name} -n {subject.namespace}"
        if subject.kind in ("Deployment", "StatefulSet", "DaemonSet")
        else "# let its owner make the pods anew from one template",
        "topologySpreadConstraints",
    )


def _signature(template: PodTemplate) -> frozenset[tuple[object, ...]]:
    """The constraints as somebody wrote them, without what the API server took from matchLabelKeys."""
    return frozenset(
        (
            c.topology_key,
            c.max_skew,
            c.when_unsatisfiable,
            c.min_domains or 1,
            c.node_affinity_policy,
            c.node_taints_policy,
            tuple(sorted(c.match_label_keys)),
            tuple(
                r
                for r in (canonical(c.label_selector).requirements if c.label_selector is not None else ())
                if r.key not in c.match_label_keys
            ),
            c.label_selector is None,
        )
        for c in template.spread
    )


# Requirements that cannot hold together: two constraints, or a constraint and an affinity.


def check_together(subject: Subject, survey: Survey) -> Iterator[Finding | Proposed]:
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


def _contradiction(subject: Subject, survey: Survey, one: Written, other: Written) -> Iterator[Proposed]:
    a, b = (survey.group(subject.template, c.meant) for c in (one, other))
    usable = survey.usable(subject.template)
    pods = subject.replicas
    if not a.size or not b.size or max(one.written.max_skew, other.written.max_skew) >= pods:
        return
    for (fine, c), (coarse, d) in (((a, one), (b, other)), ((b, other), (a, one))):
        sizes = survey.nested(fine, coarse, usable)
        if not sizes:
            continue
        if 0 in sizes or _elsewhere(survey, c.meant, usable & fine.eligible & coarse.eligible):
            return  # pods that are where none can go now count in one of them only
        nested = Nested(
            sizes,
            c.written.max_skew,
            d.written.max_skew,
            not fine.enough_domains,
            not coarse.enough_domains,
        )
        if not nested.holds(pods):
            yield _cannot(subject, c, d, nested, pods)
        return


def _elsewhere(survey: Survey, constraint: Constraint, nodes: Bools) -> bool:
    counts = survey.state.counts_once(constraint.namespace, constraint.selector)
    return bool(counts[~nodes].any())


def _cannot(subject: Subject, fine: Written, coarse: Written, nested: Nested, pods: int) -> Proposed:
    low, high = fine.written.max_skew + 1, pods
    while low < high:
        middle = (low + high) // 2
        wider = Nested(nested.sizes, middle, nested.coarse, nested.fine_floor, nested.coarse_floor)
        low, high = (low, middle) if wider.holds(pods) else (middle + 1, high)
    spread = sorted(set(nested.sizes))
    there = f"{spread[0]}" if len(spread) == 1 else f"{spread[0]} to {spread[-1]}"
    found = finding(
        Severity.ERROR,
        FindingCode.CONTRADICTING_CONSTRAINTS,
        subject,
        f"no placement of {pods} pods satisfies both maxSkew {coarse.written.max_skew} over "
        f"{coarse.written.topology_key} ({len(nested.sizes)} domains) and maxSkew {fine.written.max_skew} "
        f"over {fine.written.topology_key} ({there} domains in each of them)",
        f"# a higher maxSkew over {fine.written.topology_key}, or fewer pods",
        f"{fine.field}.maxSkew",
    )
    change = Change(subject.object, fine.written, replace(fine.written, max_skew=low), fine.index)
    return Proposed(finding=found, subject=subject, changes=(change,), anew=True)


def _node_affinity(subject: Subject, survey: Survey, c: Written) -> Iterator[Finding | Proposed]:
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
        honored = Change(subject.object, c.written, replace(c.written, node_affinity_policy="Honor"), c.index)
        told = finding(
            Severity.ERROR,
            FindingCode.AFFINITY_CONTRADICTS_SPREAD,
            subject,
            f"its node affinity admits {_of(reach, every, survey)} of {key}, and nodeAffinityPolicy Ignore "
            f"counts the others as empty: no more than {skew * reach} of {pods} pods can be placed",
            entry(subject, c.index, nodeAffinityPolicy="Honor"),
            f"{c.field}.nodeAffinityPolicy",
        )
        yield Proposed(finding=told, subject=subject, changes=(honored,)) if survey.has_nodes else told
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


# Spread that volumes forbid: a pod goes where its volume can be reached.


def check_volumes(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload."""
    if not subject.mounted or not subject.template.spread:
        return
    volumes = list(_volumes(subject, survey))
    keys = [_keys(v) for _, v in volumes]
    for c in survey.constraints(subject.template):
        key = c.written.topology_key
        pinned = sum(1 for k in keys if any(_narrows(own, key) for own in k))
        if not pinned:
            continue
        excess = 0
        if survey.has_nodes:
            common = subject.common
            meant = next((w.meant for w in survey.constraints(common) if w.index == c.index), c.meant)
            group = survey.group(common, meant)
            excess = group.excess(group.counts_once(survey.state))
        skewed = f", which exceeds maxSkew by {excess}" if excess else ""
        yield finding(
            Severity.WARNING if excess else Severity.INFO,
            FindingCode.PINNED_BY_ZONAL_VOLUMES,
            subject,
            f"{pinned} of its {subject.replicas} pods mount volumes that only some domains of {key} reach: "
            f"replacements return to where their volumes are, so no eviction mends the constraint{skewed}",
            _remedy(survey, [v for (_, v), k in zip(volumes, keys, strict=True) if k]),
            c.field,
        )


def _volumes(subject: Subject, survey: Survey) -> Iterator[tuple[str, PersistentVolume]]:
    """(pod, volume) of the bound claims; one volume of a pod that has several."""
    for pod in subject.mounted:
        for name in pod.template.claims:
            claim = survey.snapshot.claims.get(f"{pod.namespace}/{name}")
            volume = survey.snapshot.volumes.get(claim.spec.volume_name) if claim is not None else None
            if volume is not None and _keys(volume):
                yield pod.name, volume
                break


def _keys(volume: PersistentVolume) -> frozenset[str]:
    """Node labels that decide which nodes reach the volume."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    found = {e.key for t in (required.node_selector_terms if required else ()) for e in t.match_expressions}
    # The zone labels of a volume itself are obeyed too (VolumeZone).
    found |= {k for k in volume.metadata.labels if k.endswith(("/zone", "/region"))}
    return frozenset(found)


def _narrows(volume_key: str, topology_key: str) -> bool:
    """Whether a volume's label ties it to domains of a key.

    A node is in one domain of every key; drivers have zone labels of their own, topology.<driver>/zone.
    """
    if volume_key in (topology_key, HOSTNAME):
        return True
    return volume_key.rpartition("/")[2] == topology_key.rpartition("/")[2]


def _remedy(survey: Survey, volumes: list[PersistentVolume]) -> str:
    """A class that makes volumes where the scheduler has put the pod, if that is what was missing."""
    for volume in volumes:
        known = survey.snapshot.storage_classes.get(volume.spec.storage_class_name)
        if known is not None and known.volume_binding_mode == "Immediate":
            made = yaml_of(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": f"{known.metadata.name}-wait"},
                    "provisioner": known.provisioner,
                    "volumeBindingMode": "WaitForFirstConsumer",
                }
            )
            return f"# for new volumes: made in the zone that the scheduler chooses for the pod\n{made}"
    return (
        "# move the data of a pod in the fullest domain, then delete its claim and the pod: it gets a new one"
    )
