"""Would the API server make the pod that an owner makes next, and as it is planned? If not, it stays.

Rules of admission plugins and of validation: priorities, ServiceAccounts, LimitRanges, RuntimeClasses, what
namespaces say in annotations. Quotas are in `policy/quota.py`, Pod Security in `rebalancer/admission.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, permutations
from math import inf

from msgspec import Struct, json
from msgspec.structs import replace

from rebalancer.admission import LATEST
from rebalancer.model.node import ObjectMeta, Toleration
from rebalancer.model.pod import (
    Container,
    Pod,
    PodTemplate,
    Requests,
    pod_requests,
    with_containers,
)
from rebalancer.model.quantity import milli, resource_list
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.snapshot import WORKLOADS, Snapshot
from rebalancer.model.workload import (
    UNRANKED,
    LimitRange,
    LimitRangeItem,
    PriorityClass,
    RuntimeClass,
    Scheduling,
    ServiceAccount,
    Workload,
)
from rebalancer.policy.replacement import (
    DEFAULT_TOLERATIONS,
    NODE_SELECTORS,
    TOLERATED,
    added_by,
)


def limits_of(containers: Iterable[Container], inits: Iterable[Container], template: PodTemplate) -> Requests:
    """The limits of a pod of this template with these containers, without overhead."""
    return pod_requests(_by_limits(containers), _by_limits(inits), {}, template.pod_level_limits)


def _by_limits(containers: Iterable[Container]) -> list[Container]:
    return [replace(c, requests=c.limits) for c in containers]


def making(owner: Workload, pod: Pod) -> Workload:
    """The owner as it makes a pod in place of this one. Of a kind that is not read no template is known: it
    is taken to use the pod's own, without what the pod says that LimitRanges gave it."""
    if owner.kind in WORKLOADS:
        return owner
    made, noted = pod.template.by_spec or pod.template, {"metadata": {"annotations": pod.annotations}}
    if said := pod.annotations.get(_BY_RANGES, ""):
        own = (tuple(_own(c, said) for c in some) for some in (made.containers, made.init_containers))
        made = with_containers(made, *own)
    return replace(owner, template=made, security=made.secured(json.encode(noted)))


def claims_not_asked(code: ReasonCode, why: str) -> Reason:
    """Why a pod with ephemeral volumes stays: a new pod waits for good for a claim that is refused."""
    say = f"{why}, and whether its replacement's, of ephemeral volumes, would be admitted is not looked at"
    return Reason(code, say, {}, "let the owner replace its pods (kubectl rollout restart)")


def gone(owner: str, kind: str, name: str) -> Reason:
    """That the API server refuses new pods of an owner, as what its template names does not exist."""
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"the template of {owner} names {kind} {name}, which does not exist: no new pod would be admitted",
        {},
        f"create the {kind}, or correct the template",
    )


_VALUES_JUDGED = 33
"""The minor release from which on API servers ask for values that labels can have (kubernetes #128212)."""


def by_affinity(asked: PodTemplate, server_version: str) -> Reason | None:
    """Why no new pod with this node affinity would be admitted, or get a node; None if one would.

    Pods, and templates, that are older than the rule of admission are left as they are. A pod that was placed
    when a single node was open tells nothing of the next one.
    """
    affinity = asked.affinity.node_affinity if asked.affinity is not None else None
    if affinity is None:
        return None
    terms = affinity.required.node_selector_terms if affinity.required is not None else ()
    odd = [r for t in terms for r in t.match_expressions if not r.possible]
    if odd and minor_of(server_version) >= _VALUES_JUDGED:
        say = f"required node affinity has a value that is no label's ({odd[0]}): no new pod is admitted"
    elif affinity.unread:
        say = f"preferred node affinity does not parse ({affinity.unread[0]}): it is not placed"
    else:
        return None
    remedy = "correct the owner's template"
    return Reason(ReasonCode.REPLACEMENT_REFUSED, f"its replacement's {say}", {}, remedy)


ANEW = "default"
"""The ServiceAccount that is made again by itself."""
_STRICT = "kubernetes.io/enforce-mountable-secrets"
"""Annotation by which a ServiceAccount lets its pods have no Secrets but those that it lists."""
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def withheld(owner: Workload, account: ServiceAccount) -> Reason | None:
    """Why the API server refuses new pods of an owner: their account does not list a Secret that the template
    names. Pods that are older than the annotation, or than the account, run on. Of a kind that is not read
    it is not known what they name.

    Rule: plugin/pkg/admission/serviceaccount.
    """
    lacks = owner.secrets.difference(s.name for s in account.secrets)
    lacks |= owner.pull_secrets.difference(s.name for s in account.image_pull_secrets)
    read, name, of = owner.kind in WORKLOADS, f"{owner.kind} {owner.name}", account.metadata.name
    if (read and not lacks) or account.metadata.annotations.get(_STRICT) not in _TRUE:
        return None
    if not read:
        say = f"ServiceAccount {of} withholds Secrets that it does not list (annotation {_STRICT}), and "
        say += f"which ones pods of {name} name is not read: a new pod may not be admitted"
        return Reason(ReasonCode.REPLACEMENT_REFUSED, say, {}, "take the annotation away")
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"the template of {name} names Secret {min(lacks)}, which its ServiceAccount {of} does not list: "
        f"by annotation {_STRICT} no new pod would be admitted",
        {},
        "list the Secret in the ServiceAccount, or take its annotation away",
    )


def named(owner: Workload) -> Iterator[tuple[str, str]]:
    """Kind and name of what the owner's template names, and without which no new pod is admitted.

    The classes of the system are made again by themselves, and so is `ANEW`, which may withhold Secrets only.
    """
    made = owner.template
    account = (made.service_account if made is not None else "") or ANEW
    if account != ANEW or owner.secrets or owner.pull_secrets or owner.kind not in WORKLOADS:
        yield "ServiceAccount", account
    if made is not None and made.runtime_class:
        yield "RuntimeClass", made.runtime_class
    if made is not None and made.priority_class and not made.priority_class.startswith("system-"):
        yield "PriorityClass", made.priority_class


def ranked_otherwise(owner: Workload, snapshot: Snapshot) -> Reason | None:
    """Why the API server refuses new pods of an owner whose template states its priority itself: the class
    gives another one now. A class is made anew for that, or another becomes the default.

    Rule: plugin/pkg/admission/priority.
    """
    stated = {"priority": owner.priority, "preemptionPolicy": owner.preemption_policy or None}
    wanted = owner.template.priority_class if owner.template is not None else ""
    found = snapshot.priority_classes.get(wanted) if wanted else snapshot.default_class
    # Each cluster has those of the system: where there is none they were not read.
    if not snapshot.priority_classes or (wanted and found is None):
        return None
    found = found or UNRANKED
    given = {"priority": found.value, "preemptionPolicy": found.preemption_policy}
    wrong = [field for field, value in stated.items() if value not in (None, given[field])]
    if not wrong:
        return None
    by = f"PriorityClass {found.metadata.name}" if found.metadata.name else "no PriorityClass"
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"the template of {owner.kind} {owner.name} states {wrong[0]} {stated[wrong[0]]}, and by {by} a new "
        f"pod has {given[wrong[0]]}: none would be admitted",
        {},
        f"leave {' and '.join(wrong)} out of the template",
    )


def minor_of(server_version: str) -> int:
    """The minor release of the API server; one beyond all if it is not known."""
    found = re.match(r"v?1\.(\d+)", server_version)
    return int(found.group(1)) if found else LATEST


# LimitRanges: what one container, or one pod, may ask for.
#
# Rule: kubernetes plugin/pkg/admission/limitranger. What a container does not state is set first. Then no
# container's limit may be above the pod's (pkg/apis/core/validation, ``validatePodResourceConsistency``).


def out_of_range(ranges: Iterable[LimitRange], asked: PodTemplate) -> Reason | None:
    """Why a LimitRange would refuse a pod of this template; None if none would."""
    every = [(r, item) for r in ranges for item in r.spec.limits]
    containers = [_filled(c, every) for c in asked.containers]
    inits = [_filled(c, every) for c in asked.init_containers]
    for found, item in every:
        judged = []
        if item.type == "Container":
            judged = [(f"container {c.name}", c.requests, c.limits) for c in (*containers, *inits)]
        elif item.type == "Pod":
            whole = pod_requests(containers, inits, {}, asked.pod_level)
            judged = [("all containers together", whole, limits_of(containers, inits, asked))]
        for what, requests, limits in judged:
            if broken := _broken(item, requests, limits):
                return Reason(
                    ReasonCode.REPLACEMENT_REFUSED,
                    f"LimitRange {found.metadata.namespace}/{found.metadata.name} would refuse its "
                    f"replacement: {broken}, which {what} does not keep",
                    {},
                    "correct the owner's template, or the LimitRange",
                )
    # Of init containers only their own requests are compared.
    bounded = ((c, asked.pod_level_limits) for c in containers)
    for c, most in chain(bounded, ((c, dict[str, int]()) for c in inits)):
        over = (
            (c.limits, most, "more {} as its limit than the pod has", "lower"),
            (c.requests, c.limits, "less {} as its limit than it requests", "raise"),
        )
        for amounts, limits, what, do in over:
            if above := sorted(r for r, n in amounts.items() if n > limits.get(r, n)):
                return Reason(
                    ReasonCode.REPLACEMENT_REFUSED,
                    f"a LimitRange of namespace {asked.namespace} would give container {c.name} of its "
                    f"replacement {what.format(', '.join(above))}: none is admitted",
                    {},
                    f"state the limit in the owner's template, or {do} the LimitRange's default",
                )
    return None


def added(
    ranges: Iterable[LimitRange], asked: PodTemplate, template: PodTemplate | None = None
) -> Reason | None:
    """Why a LimitRange would make the replacement larger than it is planned with; None if none would. Pods
    that were made before it know nothing of its defaults, or were given others. `template`: the owner's."""
    every = [(r, item) for r in ranges for item in r.spec.limits]
    planned = {c.name: c for c in asked.every_container}
    for c in (*asked.every_container, *(template.every_container if template is not None else ())):
        known, new = planned[c.name], _filled(c, every)
        more = {r for r, n in new.requests.items() if n > known.requests.get(r, 0)}
        # A limit keeps nothing from a node. Quotas of these two demand one; others, and those of a QoS class,
        # count what the pod does not show.
        shown = () if asked.best_effort else ("cpu", "memory")
        more |= {r for r, n in new.limits.items() if n > known.limits.get(r, n if r in shown else 0)}
        if more:
            return Reason(
                ReasonCode.REPLACEMENT_REFUSED,
                f"a LimitRange of namespace {asked.namespace} would have container {c.name} of its "
                f"replacement ask for {', '.join(sorted(more))}, and the pod does not, or for less",
                {},
                "state these requests and limits in the owner's template",
            )
    return None


def _given_before(
    ranges: Iterable[LimitRange], asked: PodTemplate, made: PodTemplate, said: str
) -> Reason | None:
    """Why the replacement asks for less than it is planned with: LimitRanges gave something to the pod, which
    `said` so, and none gives so much now. A quota may demand it, and other nodes may have room. `made`: the
    owner's template. A pass after a webhook's writes over what the pod says: of which resources counts, and
    not of which container, but for one that the template lacks, to which a webhook gave what is not said."""
    every = [(r, item) for r in ranges for item in r.spec.limits]
    stated = {c.name: c for c in made.every_container}
    for was in asked.every_container if said else ():
        c, by = stated.get(was.name, Container(was.name)), "" if was.name in stated else was.name
        new = _filled(c, every)
        # A vertical autoscaler makes more of what one gives.
        least = {r: min(n, 1) if asked.autosized else n for r, n in was.requests.items()}
        less = {r for r, n in least.items() if new.requests.get(r, 0) < n and r not in c.requests}
        less = {r for r in less if _gave(said, r, "request", by)}
        less |= {r for r in was.limits if r not in new.limits and _gave(said, r, "limit", by)}
        if less:
            return Reason(
                ReasonCode.REPLACEMENT_REFUSED,
                f"LimitRanges of namespace {asked.namespace} gave the pod {', '.join(sorted(less))}, and "
                f"none gives its container {c.name} so much now: its replacement may be refused for that, or "
                "go elsewhere",
                {},
                "state these in the owner's template, or let it replace its pods (kubectl rollout restart)",
            )
    return None


def _own(container: Container, said: str) -> Container:
    """The container without what its pod says that LimitRanges gave it."""
    to = "" if said.endswith("…") else container.name
    requests = {r: n for r, n in container.requests.items() if not _gave(said, r, "request", to)}
    limits = {r: n for r, n in container.limits.items() if not _gave(said, r, "limit", to)}
    return replace(container, requests=requests, limits=limits)


def _gave(said: str, resource: str, what: str, to: str) -> bool:
    """Whether a pod says that LimitRanges gave this request, or limit, to the container; where that is "", to
    any, and also where what it says is too long to be kept whole."""
    named = re.escape(to) if to else r"[^;]+"
    resources = re.findall(rf"(?:^|: |; )([^:;]+) {what} for (?:init )?container {named}(?:;|$)", said)
    return (not to and said.endswith("…")) or any(resource in found.split(", ") for found in resources)


def _filled(container: Container, every: Iterable[tuple[LimitRange, LimitRangeItem]]) -> Container:
    requests, limits = dict(container.requests), dict(container.limits)
    for _, item in every:
        if item.type == "Container":
            # As the API server completes a LimitRange itself.
            default = resource_list({**item.max, **item.default})
            requests = {
                **resource_list(item.min),
                **default,
                **resource_list(item.default_request),
                **requests,
            }
            limits = {**default, **limits}
    return replace(container, requests=requests, limits=limits)


def _broken(item: LimitRangeItem, requests: Mapping[str, int], limits: Mapping[str, int]) -> str:
    """The first bound that is not kept; "" if all are."""
    for r, least in resource_list(item.min).items():
        if r not in requests or min(requests[r], limits.get(r, requests[r])) < least:
            return f"{r} is at least {item.min[r]}"
    for r, most in resource_list(item.max).items():
        if r not in limits or max(limits[r], requests.get(r, 0)) > most:
            return f"{r} is at most {item.max[r]}"
    for r, ratio in item.max_limit_request_ratio.items():
        asked, most = requests.get(r, 0), limits.get(r, 0)
        if not asked or not most or most * 1000 > asked * milli(str(ratio)):
            return f"the limit of {r} is at most {ratio} times the request"
    return ""


# Admission plugins that may refuse a new pod, or make another of it than was planned with.
#
# Whether the API server has those of a namespace's annotations switched on cannot be seen. Where a pod lacks
# what they add, it is older than they are, or they are off: it stays.


_BY_RANGES = "kubernetes.io/limit-ranger"
"""Annotation by which a pod tells that LimitRanges gave it some of its requests and limits."""


class Admission(Struct, frozen=True, kw_only=True):
    """What plugins go by now, as far as it was read. `pod`: the annotations of the pod that is replaced."""

    pod: Mapping[str, str] = {}
    namespace: ObjectMeta | None = None
    ranges: tuple[LimitRange, ...] | None = None
    runtime_class: RuntimeClass | None = None
    priority_class: PriorityClass | None = None


def not_as_planned(asked: PodTemplate, owner: Workload, by: Admission) -> Reason | None:
    """Why no new pod of the owner would be admitted as `asked`; None if it would be, or nothing is known."""
    made = owner.template or asked
    return next(filter(None, (rule(asked, made, by) for rule in PLUGINS.values())), None)


def _by_ranges(asked: PodTemplate, made: PodTemplate, by: Admission) -> Reason | None:
    if by.ranges is None:
        return None
    bounds = (r.metadata for r in by.ranges for item in r.spec.limits if item.type == "PersistentVolumeClaim")
    if asked.claims_anew and (first := next(bounds, None)) is not None:
        return claims_not_asked(
            ReasonCode.REPLACEMENT_REFUSED, f"LimitRange {first.namespace}/{first.name} bounds claims"
        )
    said = by.pod.get(_BY_RANGES, "")
    found = [_by_order(order, asked, made, said) for order in _orders(by.ranges)]
    reason = next(filter(None, found), None)
    if reason is None or len({r and r.message for r in found}) == 1:
        return reason
    message = f"{reason.message} (by one order of the LimitRanges; which is taken is not known)"
    return replace(reason, message=message)


def _by_order(
    ranges: Iterable[LimitRange], asked: PodTemplate, made: PodTemplate, said: str
) -> Reason | None:
    stated = (asked, made) if made is not asked else (asked,)
    refused = next(filter(None, (out_of_range(ranges, t) for t in stated)), None)
    return refused or added(ranges, asked, made) or _given_before(ranges, asked, made, said)


def _orders(ranges: tuple[LimitRange, ...]) -> Iterator[tuple[LimitRange, ...]]:
    """The orders that make a difference. The API server takes any, and who gives a container something first
    has given it. A request and a limit are compared, so each two come first; more need not."""
    for first in permutations(ranges, min(2, len(ranges))):
        yield (*first, *(r for r in ranges if r not in first))


def _by_node_selector(asked: PodTemplate, _: PodTemplate, by: Admission) -> Reason | None:
    """Rule: plugin/pkg/admission/podnodeselector; OpenShift's has a key of its own."""
    said = by.namespace.annotations if by.namespace is not None else {}
    there = [key for key in NODE_SELECTORS if key in said]
    if not there:
        return None
    found = added_by({key: said[key] for key in there})
    wanted = found.node_selector or {} if found is not None else None
    if wanted is not None and wanted.items() <= asked.node_selector.items():
        return None
    return _otherwise(by, there[0], "node selector, which the pod does not have")


def _by_tolerations(asked: PodTemplate, _: PodTemplate, by: Admission) -> Reason | None:
    """Rule: plugin/pkg/admission/podtolerationrestriction."""
    said = by.namespace.annotations if by.namespace is not None else {}
    found = added_by({k: said[k] for k in (DEFAULT_TOLERATIONS, TOLERATED) if k in said})
    if found is None or not all(_held(t, asked.tolerations) for t in found.tolerations or ()):
        return _otherwise(by, DEFAULT_TOLERATIONS, "tolerations, which the pod does not have")
    if found.tolerated and not all(_held(t, found.tolerated) for t in asked.tolerations):
        return _otherwise(by, TOLERATED, "list of what may be tolerated, and the pod tolerates more")
    return None


def _held(one: Toleration, by: Iterable[Toleration]) -> bool:
    """Whether one of `by` tolerates all that the toleration does. Rule: tolerations.isSuperset."""
    return any(
        (o.key == one.key or (not o.key and o.operator == "Exists"))
        and o.effect in ("", one.effect)
        and (o.toleration_seconds is None or o.toleration_seconds >= (one.toleration_seconds or inf))
        and (o.operator == "Exists" or (one.operator != "Exists" and o.value == one.value))
        for o in by
    )


def _otherwise(by: Admission, key: str, what: str) -> Reason:
    name = by.namespace.name if by.namespace is not None else ""
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"namespace {name} gives new pods by its annotation {key} a {what}",
        {},
        "let the owner replace its pods (kubectl rollout restart), or correct the annotation",
    )


def _by_runtime_class(asked: PodTemplate, made: PodTemplate, by: Admission) -> Reason | None:
    if (runs := by.runtime_class) is None:
        return None
    scheduling, overhead = runs.scheduling or Scheduling(), runs.takes
    if (
        asked.handler == runs.handler
        and asked.overhead == overhead
        and made.overhead in ({}, overhead)
        and scheduling.node_selector.items() <= asked.node_selector.items()
        and set(scheduling.tolerations) <= set(asked.tolerations)
    ):
        return None
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"RuntimeClass {runs.metadata.name} has another handler, overhead, node selector or tolerations "
        "than its replacement is planned with, or than its template has",
        {},
        "it is planned anew; where the template contradicts the RuntimeClass, correct it",
    )


def _by_priority(asked: PodTemplate, _: PodTemplate, by: Admission) -> Reason | None:
    found = by.priority_class
    if found is None:
        return None
    preempts = found.preemption_policy != "Never"
    if (found.value, preempts) == (asked.priority, asked.preempts):
        return None
    return Reason(
        ReasonCode.REPLACEMENT_REFUSED,
        f"PriorityClass {found.metadata.name} gives priority {found.value}, preemptionPolicy "
        f"{found.preemption_policy}, and its replacement is planned with another",
        {"priority": found.value, "planned": asked.priority},
    )


PLUGINS: Mapping[str, Callable[[PodTemplate, PodTemplate, Admission], Reason | None]] = {
    "LimitRanger": _by_ranges,
    "PodNodeSelector": _by_node_selector,
    "PodTolerationRestriction": _by_tolerations,
    "Priority": _by_priority,
    "RuntimeClass": _by_runtime_class,
}
"""By upstream's name. Asked for a plan, as far as the snapshot tells, and before each request of what is read
then. Of NamespaceLifecycle, PodSecurity and what must exist: `Owners.refused`."""
