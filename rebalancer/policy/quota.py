"""Whether a replacement would be admitted, as it is planned: quotas, LimitRanges, other admission plugins.

Of quotas, while its victim still terminates.

Rule: kubernetes pkg/quota/v1/evaluator/core/pods.go and the ResourceQuota admission plugin. A terminating pod
is charged until it is gone. A ReplicaSet makes its replacement at once, so the quota needs room for both. A
StatefulSet makes its replacement when the victim is gone and its charge is given back; an owner that lacks
pods may take that first. What the replacement requests decides (`replacement`), which may be more than what
the victim requests. The API server judges by the quota's *status*: a limit whose usage is not known yet
admits nothing. What was lowered in the spec, or is new there, counts too: the status follows within a second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, permutations
from math import inf

import msgspec
from msgspec import Struct

from rebalancer.model.node import ObjectMeta, Toleration
from rebalancer.model.pod import Container, Pod, PodTemplate, Requests, pod_requests
from rebalancer.model.quantity import amount, milli, resource_list
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Requirement
from rebalancer.model.snapshot import Snapshot, consequence
from rebalancer.model.workload import (
    LimitRange,
    LimitRangeItem,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
    Scheduling,
    ScopeSelectorRequirement,
    Workload,
)
from rebalancer.policy.replacement import (
    DEFAULT_TOLERATIONS,
    NODE_SELECTORS,
    TOLERATED,
    Replacements,
    added_by,
)

_PIECES = frozenset({"pods", "count/pods"})
_EXPLICIT = frozenset({"cpu", "memory"})
"""Resources that every container must request if a quota limits them."""
_WITHOUT_DEADLINE = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Owners whose templates cannot have activeDeadlineSeconds, which is what the Terminating scopes ask for."""


class _Limit(Struct, frozen=True, eq=False):
    """One limited resource: `name` as in the quota, `resource` as in a container's requests or limits.

    `hard` and `used` are in the scheduler's integers; `used` is None until the quota controller has counted.
    """

    name: str
    resource: str
    of_limits: bool
    hard: int
    used: int | None


class Quotas:
    """The quotas of a snapshot. `lacking`: namespaces in which an owner has fewer pods than it wants."""

    def __init__(
        self, snapshot: Snapshot, replacements: Replacements | None = None, lacking: Collection[str] = ()
    ) -> None:
        self._replacements = replacements or Replacements()
        self._lacking = lacking
        self._by_namespace: dict[str, list[tuple[ResourceQuota, tuple[_Limit, ...]]]] = defaultdict(list)
        for q in snapshot.quotas:
            self._by_namespace[q.metadata.namespace].append((q, tuple(_limits(q))))

    def why_not(
        self,
        pod: Pod,
        owner: Workload | None,
        promised: Requests | None = None,
        replacement: PodTemplate | None = None,
    ) -> Reason | None:
        """Why the pod's replacement would not be admitted; None if it would be.

        `promised`: what others will be charged before, by "quota/limit" (`charges`). `replacement`: as it was
        planned, where that is known.
        """
        for asked, quota, limit in self._charged(pod, owner, replacement):
            more = (promised or {}).get(_key(quota, limit), 0) + self._extra(quota, limit, pod, asked, owner)
            reason = _judge(quota, limit, asked, more, after_gone=_waits(owner))
            if reason is not None:
                return reason
        return None

    def charges(self, pod: Pod, owner: Workload | None) -> Requests:
        """What is charged for the replacement in addition to the present usage, by "quota/limit"."""
        return {
            _key(quota, limit): self._extra(quota, limit, pod, asked, owner)
            for asked, quota, limit in self._charged(pod, owner)
        }

    def _extra(
        self, quota: ResourceQuota, limit: _Limit, pod: Pod, asked: PodTemplate, owner: Workload | None
    ) -> int:
        """The charge for the replacement, less what its victim has given back by then: nothing, where another
        quota was charged for it, as admission gives new pods another class or requests, or where somebody
        else waits for it."""
        returned = _waits(owner) and pod.namespace not in self._lacking and _covers(quota, pod, pod.template)
        return _needs(limit, asked) - (_needs(limit, pod.template) if returned else 0)

    def _charged(
        self, pod: Pod, owner: Workload | None, replacement: PodTemplate | None = None
    ) -> Iterator[tuple[PodTemplate, ResourceQuota, _Limit]]:
        """The replacement with each limit that it is charged under."""
        there = self._by_namespace.get(pod.namespace, ())
        if not there:
            return
        built = self._replacements.of(pod.template, owner) if owner is not None else pod.template
        asked = replacement or built
        for quota, limits in there:
            if _covers(quota, pod, asked):
                for limit in limits:
                    yield asked, quota, limit


def unseen(snapshot: Snapshot) -> str:
    """Why any replacement may be refused: quotas may exist that cannot be read; "" if none."""
    kind = "ResourceQuota"
    return f"{kind}s cannot be read: {consequence(kind)}" if kind in snapshot.refused else ""


class Charged:
    """What the replacements of one wave are charged before their victims are gone."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._promised: Requests = defaultdict(int)

    def fits(self, pod: Pod, owner: Workload | None) -> bool:
        """Whether the pod's replacement is admitted beside the others of the wave."""
        return self._quotas.why_not(pod, owner, self._promised) is None

    def spend(self, pod: Pod, owner: Workload | None) -> None:
        """Adds the pod to the wave."""
        for key, needed in self._quotas.charges(pod, owner).items():
            self._promised[key] += needed


def _key(quota: ResourceQuota, limit: _Limit) -> str:
    return f"{quota.metadata.namespace}/{quota.metadata.name}/{limit.name}"


def _waits(owner: Workload | None) -> bool:
    """Whether the owner makes the replacement only once the victim is gone."""
    return owner is not None and owner.kind == "StatefulSet"


def _limits(quota: ResourceQuota) -> Iterator[_Limit]:
    for name, hard in sorted({**quota.spec.hard, **quota.status.hard}.items()):
        of_limits = name.startswith("limits.")
        resource = name.removeprefix("limits.").removeprefix("requests.")
        used = quota.status.used.get(name)
        yield _Limit(
            name,
            resource,
            of_limits,
            min(amount(resource, str(h)) for h in (hard, quota.spec.hard.get(name, hard))),
            None if used is None else amount(resource, str(used)),
        )


def _judge(
    quota: ResourceQuota, limit: _Limit, asked: PodTemplate, more: int, *, after_gone: bool
) -> Reason | None:
    """Why the limit refuses the replacement, `more` being charged beyond what is used now."""
    where = f"ResourceQuota {quota.metadata.namespace}/{quota.metadata.name}"
    silent = _silent(limit, asked)
    if silent:
        return Reason(
            ReasonCode.QUOTA,
            f"{where} limits {limit.name}, which container {silent} does not state: "
            "its replacement would be refused",
            {},
            f"state {limit.name} in the owner's template, or have a LimitRange add it",
        )
    needed = _needs(limit, asked)
    if not needed:
        return None
    if limit.used is None:
        return Reason(
            ReasonCode.QUOTA,
            f"{where} does not say yet how much of {limit.name} is used",
            {},
            "wait; if it stays so, look at kube-controller-manager",
        )
    if limit.used + more <= limit.hard:
        return None
    unit = "m" if limit.resource == "cpu" else ""
    beside = "" if after_gone else " while it terminates"
    return Reason(
        ReasonCode.QUOTA,
        f"{where} has no room for its replacement{beside}: {limit.name} {limit.used}{unit} used of "
        f"{limit.hard}{unit}, {needed}{unit} needed",
        {"used": limit.used, "hard": limit.hard, "needed": needed},
        f"raise {limit.name} of the quota by at least one pod's worth",
    )


def _needs(limit: _Limit, template: PodTemplate) -> int:
    """What a pod is charged under the limit; 0 if the limit is not about pods."""
    if limit.name in _PIECES:
        return 1
    if not limit.of_limits:
        return template.requests.get(limit.resource, 0)
    there = _limits_of(template.containers, template.init_containers, template).get(limit.resource, 0)
    return there + template.overhead.get(limit.resource, 0) if there else 0


def _limits_of(
    containers: Iterable[Container], inits: Iterable[Container], template: PodTemplate
) -> Requests:
    """The limits of a pod of this template with these containers, without overhead."""
    return pod_requests(_by_limits(containers), _by_limits(inits), {}, template.pod_level_limits)


def _by_limits(containers: Iterable[Container]) -> list[Container]:
    return [msgspec.structs.replace(c, requests=c.limits) for c in containers]


def _silent(limit: _Limit, template: PodTemplate) -> str:
    """The first container that lacks a request that the quota demands; "" if there is none."""
    if limit.resource not in _EXPLICIT or limit.name in _PIECES:
        return ""
    for c in (*template.containers, *template.init_containers):
        if limit.resource not in (c.limits if limit.of_limits else c.requests):
            return c.name
    return ""


def _covers(quota: ResourceQuota, pod: Pod, asked: PodTemplate) -> bool:
    """Whether the quota is charged for the pod: every scope must match."""
    selector = quota.spec.scope_selector
    scopes = [ScopeSelectorRequirement(s) for s in quota.spec.scopes]
    if selector is not None:
        scopes += selector.match_expressions
    return all(_in_scope(s, pod, asked) for s in scopes)


def _in_scope(scope: ScopeSelectorRequirement, pod: Pod, t: PodTemplate) -> bool:
    if scope.scope_name == "PriorityClass":
        labels = {"PriorityClass": t.priority_class} if t.priority_class else {}
        return Requirement("PriorityClass", scope.operator, scope.values).matches(labels)  # type: ignore[arg-type]
    if scope.scope_name in ("BestEffort", "NotBestEffort"):
        # Rule: qos.ComputePodQOS. What a pod asks for as a whole counts alone; overhead never does.
        whole = (t.pod_level, t.pod_level_limits)
        stated = whole if any(whole) else (x for c in _all(t) for x in (c.requests, c.limits))
        asks = any(x.get(r) for x in stated for r in _EXPLICIT)
        return asks == (scope.scope_name == "NotBestEffort")
    if scope.scope_name in ("Terminating", "NotTerminating"):
        # Who ends by itself has a deadline or has none: it may be charged under either.
        sure = not t.ends or (pod.owner is not None and pod.owner.kind in _WITHOUT_DEADLINE)
        return not sure or scope.scope_name == "NotTerminating"
    if scope.scope_name == "CrossNamespacePodAffinity" and t.affinity is not None:
        asked = (a for a in (t.affinity.pod_affinity, t.affinity.pod_anti_affinity) if a is not None)
        terms = (x for a in asked for x in (*a.required, *(w.pod_affinity_term for w in a.preferred)))
        return any(x.namespaces or x.namespace_selector is not None for x in terms)
    return False


def _all(template: PodTemplate) -> Iterator[Container]:
    yield from template.containers
    yield from template.init_containers


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
            judged = [("all containers together", whole, _limits_of(containers, inits, asked))]
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
    planned = {c.name: c for c in _all(asked)}
    for c in (*_all(asked), *(_all(template) if template is not None else ())):
        known, new = planned[c.name], _filled(c, every)
        more = {r for r, n in new.requests.items() if n > known.requests.get(r, 0)}
        # A limit counts for quotas, and keeps nothing from a node.
        more |= {r for r, n in new.limits.items() if n > known.limits.get(r, n)}
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
    every, stated = [(r, item) for r in ranges for item in r.spec.limits], {c.name: c for c in _all(made)}
    for was in _all(asked) if said else ():
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
                "state these requests and limits in the owner's template",
            )
    return None


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
    return msgspec.structs.replace(container, requests=requests, limits=limits)


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
    said = by.pod.get(_BY_RANGES, "")
    found = [_by_order(order, asked, made, said) for order in _orders(by.ranges)]
    reason = next(filter(None, found), None)
    if reason is None or len({r and r.message for r in found}) == 1:
        return reason
    message = f"{reason.message} (by one order of the LimitRanges; which is taken is not known)"
    return msgspec.structs.replace(reason, message=message)


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
then. ResourceQuota is above; NamespaceLifecycle, PodSecurity and what must exist: `policy/owners.py`."""
