"""Protections that cannot be understood, or that protect nobody."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from rebalancer.findings.code import FindingCode
from rebalancer.findings.survey import Survey
from rebalancer.model.finding import Finding, Severity
from rebalancer.model.selectors import Selector
from rebalancer.policy.annotations import Words, unclear
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.owners import KNOWN_KINDS


def check_annotations(survey: Survey, evictable: Evictable) -> Iterator[Finding]:
    """Annotations that forbid because their value is no known word: one finding for each object, and one for
    all pods of a workload."""
    foreign, owners = evictable.options.foreign_annotations, evictable.owners
    counts: Counter[tuple[str, Words, str]] = Counter()
    on_pods: dict[int, tuple[Mapping[str, str], tuple[tuple[Words, str], ...]]] = {}
    for group in survey.snapshot.live:
        if evictable.outside(group.one.namespace) is not None:
            continue
        owner = owners.of(group.one)
        top = owners.top(owner) if owner is not None else None
        for pod in group.pods:
            # The decoder makes equal annotations one object, which is kept so that its identity is its own.
            known = on_pods.get(id(pod.annotations))
            if known is None:
                known = pod.annotations, tuple(unclear(pod.annotations, foreign))
                on_pods[id(pod.annotations)] = known
            for words, value in known[1]:
                of = f"{top.kind}/{pod.namespace}/{top.name}" if top else f"Pod/{pod.namespace}/{pod.name}"
                counts[of, words, value] += 1
    for (of, words, value), pods in counts.items():
        whose = "" if of.startswith("Pod/") else f"{pods} of its pods: "
        yield _unclear(of, whose, words, value)
    for w in survey.snapshot.workloads:
        if evictable.outside(w.namespace) is not None:
            continue
        parent = owners.parent(w)
        copied = parent.metadata.annotations if parent is not None else {}
        for words, value in unclear(w.metadata.annotations, foreign):
            if copied.get(words.key) != value:
                yield _unclear(f"{w.kind}/{w.namespace}/{w.name}", "", words, value)
    for name, namespace in survey.snapshot.namespaces.items():
        if evictable.outside(name) is None:
            for words, value in unclear(namespace.metadata.annotations, foreign):
                yield _unclear(f"Namespace/{name}", "", words, value)


def _unclear(of: str, whose: str, words: Words, value: str) -> Finding:
    return Finding(
        Severity.WARNING,
        FindingCode.UNCLEAR_ANNOTATION.value,
        of,
        f"{whose}{words.key}: {value[:200]!r} is none of {words.known}: it counts as a no",
        f"write one of them; remove the annotation if nothing is meant ({words.key}-)",
        "" if whose else "metadata.annotations",
    )


def check_settings(survey: Survey, evictable: Evictable) -> Iterator[Finding]:
    """Names and labels in the settings that nothing in the cluster has: they protect, or choose, nobody.

    Lists that only open something are not looked at: a name that is not there opens nothing.
    """
    snapshot, o = survey.snapshot, evictable.options
    if not snapshot.read_namespaces:
        there = {*snapshot.namespaces, *(g.one.namespace for g in snapshot.live)}
        # kube-system is excluded wherever nobody opens it.
        excluded = [n for n in o.namespaces_exclude if n != "kube-system"]
        yield from _names("scope.namespaces.include", o.namespaces_include, there, "namespace", "chooses")
        yield from _names("scope.namespaces.exclude", excluded, there, "namespace", "protects")
        if o.own_namespace:
            yield from _names("scope.ownNamespace", [o.own_namespace], there, "namespace", "protects")
        if "Namespace" in snapshot.kinds:
            labels = [n.metadata.labels for n in snapshot.namespaces.values()]
            yield from _labels("scope.namespaceSelector", o.namespace_selector, labels, "namespace")
    templates = [g.template.labels for g in snapshot.live]
    yield from _labels("scope.labelSelector", o.label_selector, templates, "pod")
    references = (*(g.owner for g in snapshot.live), *(w.owner for w in snapshot.workloads))
    kinds = KNOWN_KINDS | {r.kind for r in references if r is not None}
    yield from _names("scope.ownerKindsExclude", o.owner_kinds_exclude, kinds, "kind of an owner", "protects")


def _names(
    setting: str, names: Iterable[str], there: Collection[str], what: str, does: str
) -> Iterator[Finding]:
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, sorted(there), n=1, cutoff=0.7)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield _nothing(setting, f"{name} is no {what} in this cluster: it {does} nobody{hint}")


def _labels(
    setting: str, selector: Selector | None, there: Collection[Mapping[str, str]], what: str
) -> Iterator[Finding]:
    for r in selector.requirements if selector is not None else ():
        values = {labels[r.key] for labels in there if r.key in labels}
        for value in r.values if values else ("",):
            if value not in values:
                label = f"{r.key}={value}" if value else r.key
                yield _nothing(setting, f"no {what} has the label {label}, for which the selector asks")


def _nothing(setting: str, message: str) -> Finding:
    return Finding(
        Severity.WARNING,
        FindingCode.MATCHES_NOTHING.value,
        f"Setting/{setting}",
        message,
        f"correct {setting}, or take it out there",
    )
