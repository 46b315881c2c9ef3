"""What a constraint selects: its own pods, one revision of them, the same for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.engine.version import EMPTY_SELECTORS, releases
from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import entry
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey, Written
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.pod import PodTemplate
from rebalancer.model.selectors import canonical
from rebalancer.prevention.rollouts.rule import HASH, tells_revisions


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
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
        entry(subject, c.index, matchLabelKeys=[*c.written.match_label_keys, HASH]),
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
