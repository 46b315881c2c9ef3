"""PodDisruptionBudgets that are missing, several, or never met."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from rebalancer.engine.certainty import newer
from rebalancer.engine.state.interpod_terms import Kind, Term
from rebalancer.engine.version import NEGATED_NAMESPACES
from rebalancer.findings.survey import FindingCode, Subject, Survey, finding, selector_as_written, yaml_of
from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import Affinity, PodAffinity, PodTemplate
from rebalancer.model.reason import Finding, Severity, plural
from rebalancer.model.selectors import LabelSelector, Selector, canonical
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import PodDisruptionBudget
from rebalancer.policy.annotations import EVICT, METHOD, PAUSE, SCALE_IN, Words, misplaced, unclear
from rebalancer.policy.circuit_breaker import overlooked, silent
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.history.waits import moment
from rebalancer.policy.owners import KNOWN_KINDS
from rebalancer.policy.release import MARK, released, released_of


def check_budgets(survey: Survey) -> Iterator[Finding]:
    """Findings of all workloads and budgets."""
    if "PodDisruptionBudget" not in survey.snapshot.kinds:
        return
    covering: dict[int, list[str]] = {}
    for budget in survey.snapshot.budgets:
        if budget.metadata.namespace not in survey.in_scope or budget.spec.selector is None:
            continue
        covered = survey.labels.select(budget.metadata.namespace, canonical(budget.spec.selector))
        for s in covered:
            covering.setdefault(id(s), []).append(budget.metadata.name)
        yield from _never(budget, covered)
    for s in survey.subjects:
        names = covering.get(id(s), [])
        if len(names) > 1:
            yield finding(
                Severity.ERROR,
                FindingCode.MULTIPLE_PDBS,
                s,
                f"{len(names)} PodDisruptionBudgets cover its pods ({', '.join(sorted(names))}): the API "
                "server refuses every eviction, a node's drain waits for ever",
                f"kubectl delete poddisruptionbudget {sorted(names)[-1]} -n {s.namespace}"
                "   # or narrow its selector",
            )
        elif not names and s.replicated and s.template.spread:
            yield _missing(s)


def _missing(subject: Subject) -> Finding:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": subject.name, "namespace": subject.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": subject.own_labels}},
    }
    return finding(
        Severity.WARNING,
        FindingCode.NO_PDB,
        subject,
        "no PodDisruptionBudget covers its pods: drains and other evictions may take all of them at once",
        yaml_of(budget),
    )


def _never(budget: PodDisruptionBudget, covered: list[Subject]) -> Iterator[Finding]:
    pods = sum(s.most for s in covered)
    if not pods:
        return
    spec = budget.spec
    field = "maxUnavailable" if spec.max_unavailable is not None else "minAvailable"
    written = spec.max_unavailable if spec.max_unavailable is not None else spec.min_available
    if written is None:
        return
    scaled = _scaled(written, pods)
    if scaled is None or (scaled > 0 if field == "maxUnavailable" else scaled < pods):
        return
    name, namespace = budget.metadata.name, budget.metadata.namespace
    instead = " in place of minAvailable" if field == "minAvailable" else ""
    yield Finding(
        Severity.WARNING,
        FindingCode.PDB_NEVER_ALLOWS.value,
        f"PodDisruptionBudget/{namespace}/{name}",
        f"{field} {written} with {plural(pods, 'pod')} never allows an eviction: drains "
        "wait for ever, and skew stays",
        f"# PodDisruptionBudget {name}{instead}\n" + yaml_of({"spec": {"maxUnavailable": 1}}),
        f"spec.{field}",
    )


def _scaled(written: int | str, pods: int) -> int | None:
    """A number of pods; percentages are rounded up (GetScaledValueFromIntOrPercent)."""
    if isinstance(written, int):
        return written
    digits = written.removesuffix("%")
    if digits == written or not digits.isdecimal():
        return None
    return -(-int(digits) * pods // 100)


# Affinity terms that some versions of kube-scheduler apply to more namespaces than they say.

NAME = "kubernetes.io/metadata.name"
"""The label that the API server gives to every namespace."""
FIELDS: dict[Kind, str] = {
    "required": "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[{}]",
    "required anti": "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[{}]",
    "preferred": "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[{}].podAffinityTerm",
    "preferred anti": "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[{}]"
    ".podAffinityTerm",
}


def check_namespaces(subject: Subject, survey: Survey) -> Iterator[Finding]:
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


# A scheduler that is newer than all known rules.


def check_newer_versions(survey: Survey) -> Iterator[Finding]:
    """At most one finding, about the cluster."""
    version = survey.state.version
    if not version.newer_by:
        return
    held = survey.held
    yield Finding(
        Severity.ERROR,
        FindingCode.NEWER_VERSION.value,
        f"Kubernetes/{version.text}",
        held.message if held is not None else newer(version),
        held.remedy
        if held is not None
        else "upgrade the rebalancer; until then `rebalancer explain --compare --watch 5m` shows whether the "
        "scheduler still does what is predicted, and planner.newerVersions: refuse stops evictions",
    )


# A scheduler that has not looked at pods for half a minute: replacements would stay Pending.


def check_scheduler(snapshot: Snapshot) -> Iterator[Finding]:
    """One for each scheduler whose pods wait for it."""
    for name, pods in sorted(overlooked(snapshot.pods, snapshot.latest).items()):
        reason = silent(name, pods)
        yield Finding(
            Severity.ERROR,
            FindingCode.SCHEDULER_SILENT.value,
            f"Scheduler/{name}",
            f"{reason.message}; nothing that it would have to place is evicted",
            reason.remedy,
        )


def check_released(snapshot: Snapshot) -> Iterator[Finding]:
    """One for each pod that was released to be replaced first, and is there still, or is said to be."""
    own = {pod.uid for pod, *_ in released_of(snapshot)}
    for pod, mark in released(snapshot.pods):
        say = f"it was released at {moment(mark.at, snapshot.now)}, by {mark.by}"
        back = f"kubectl annotate pod {pod.name} -n {pod.namespace} {MARK}-"
        label = f"kubectl label pod {pod.name} -n {pod.namespace} {mark.label}={mark.value}"
        yield Finding(
            Severity.WARNING,
            FindingCode.RELEASED_POD.value,
            f"Pod/{pod.key}",
            f"{say}, and runs beside its replacement until it is evicted or given back"
            if pod.uid in own
            else f"its mark says that {say}; no ReplicaSet would take it back",
            f"wait for the rebalancer, or by hand: {label}, then {back}"
            if pod.uid in own
            else f"see whether the pod is needed; the mark goes by {back}",
        )


# Protections that cannot be understood, or that protect nobody.


def check_annotations(survey: Survey, evictable: Evictable) -> Iterator[Finding]:
    """Annotations that forbid because their value is no known word, or that say nothing where they are: one
    finding for each object, and one for all pods of a workload."""
    foreign, owners = evictable.options.foreign_annotations, evictable.owners
    counts: Counter[tuple[str, Words, str]] = Counter()
    # The decoder makes equal annotations one object.
    each = {id(p.annotations): p.annotations for group in survey.snapshot.live for p in group.pods}
    on_pods = {
        i: tuple(unclear(annotations, foreign, "Pod")) for i, annotations in each.items() if annotations
    }
    said = {i for i, found in on_pods.items() if found}
    for group in survey.snapshot.live if said else ():
        if evictable.outside(group.one.namespace) is not None:
            continue
        owner = owners.of(group.one)
        top = owners.top(owner) if owner is not None else None
        for pod in group.pods:
            for words, value in on_pods[id(pod.annotations)] if id(pod.annotations) in said else ():
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
        here = f"{w.kind}/{w.namespace}/{w.name}"
        for words, value in unclear(w.metadata.annotations, foreign, w.kind):
            if copied.get(words.key) != value:
                yield _unclear(here, "", words, value)
        made = w.template if parent is None else None
        yield from _misplaced(here, w.metadata, made.labels if made is not None else {})
    spaces = {n: s.metadata for n, s in survey.snapshot.namespaces.items() if evictable.outside(n) is None}
    others = {f"Namespace/{name}": metadata for name, metadata in spaces.items()}
    others |= {f"Node/{node.name}": node.metadata for node in survey.snapshot.nodes}
    for of, metadata in others.items():
        for words, value in unclear(metadata.annotations, foreign, of.partition("/")[0]):
            yield _unclear(of, "", words, value)
        yield from _misplaced(of, metadata, {})


def _misplaced(of: str, metadata: ObjectMeta, on_pods: Mapping[str, str]) -> Iterator[Finding]:
    for say in misplaced(metadata.annotations, {**metadata.labels, **on_pods}):
        remedy = f"the annotations that are read: {EVICT}, {PAUSE}, {SCALE_IN}, {METHOD}"
        yield Finding(Severity.WARNING, FindingCode.UNCLEAR_ANNOTATION.value, of, say, remedy, "metadata")


def _unclear(of: str, whose: str, words: Words, value: str) -> Finding:
    say, rather = f"is none of {words.known}: it counts as a no", "write one of them"
    if words.clear(value):
        say, rather = "says nothing here", f"it is read on a {' or '.join(words.read)}"
    return Finding(
        Severity.WARNING,
        FindingCode.UNCLEAR_ANNOTATION.value,
        of,
        f"{whose}{words.key}: {value[:200]!r} {say}",
        f"{rather}; remove the annotation if nothing is meant ({words.key}-)",
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
        yield from _names("approval.namespaces", o.approval.namespaces, there, "namespace", "protects")
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
