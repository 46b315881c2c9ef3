"""Affinity terms that some versions of kube-scheduler apply to more namespaces than they say."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.engine.state.interpod_terms import Kind, Term
from rebalancer.engine.version import NEGATED_NAMESPACES
from rebalancer.findings.code import FindingCode, finding
from rebalancer.findings.paste import selector_as_written, yaml_of
from rebalancer.findings.subject import Subject
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.pod import Affinity, PodAffinity, PodTemplate
from rebalancer.model.selectors import LabelSelector

NAME = "kubernetes.io/metadata.name"
"""The label that the API server gives to every namespace."""
FIELDS: dict[Kind, str] = {
    "required": "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[{}]",
    "required anti": "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[{}]",
    "preferred": "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[{}].podAffinityTerm",
    "preferred anti": "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[{}]"
    ".podAffinityTerm",
}


def check(subject: Subject, survey: Survey) -> Iterator[Finding]:
    """Findings of one workload, in every term that only excludes namespaces."""
    version = survey.state.version
    if not (version.has(NEGATED_NAMESPACES) or version.doubt(NEGATED_NAMESPACES)):
        return
    for kind, index, term, written in _terms(subject.template, survey):
        if not term.negated or written is None:
            continue
        mended = selector_as_written(written)
        mended["matchExpressions"] = [*mended["matchExpressions"], {"key": NAME, "operator": "Exists"}]
        field = f"{FIELDS[kind].format(index)}.namespaceSelector"
        yield finding(
            Severity.WARNING,
            FindingCode.NAMESPACE_SELECTOR_IGNORED,
            subject,
            f"the term selects namespaces by what they lack ({term.namespace_selector}), and from 1.34 on "
            "kube-scheduler takes that for every namespace, until a patch release has the fix (kubernetes "
            f"{NEGATED_NAMESPACES.source}): pods of the excluded namespaces attract or repel too",
            f"# {subject.pod_spec}.{field}\n"
            "# the same namespaces: all of them have this label, and a selector that asks for one is obeyed\n"
            + yaml_of({"namespaceSelector": mended}),
            field,
        )


def _terms(template: PodTemplate, survey: Survey) -> Iterator[tuple[Kind, int, Term, LabelSelector | None]]:
    """Each term with its kind, its place in the list and its namespaceSelector as written."""
    resolved = survey.state.terms.of(template)
    for kind, selectors in _written(template.affinity or Affinity()):
        for i, ((term, _), selector) in enumerate(zip(resolved.of(kind), selectors, strict=True)):
            yield kind, i, term, selector


def _written(affinity: Affinity) -> Iterator[tuple[Kind, list[LabelSelector | None]]]:
    near, apart = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    yield "required", [t.namespace_selector for t in near.required]
    yield "required anti", [t.namespace_selector for t in apart.required]
    yield "preferred", [w.pod_affinity_term.namespace_selector for w in near.preferred]
    yield "preferred anti", [w.pod_affinity_term.namespace_selector for w in apart.preferred]
