"""ResourceQuotas and LimitRanges: whether a replacement would be admitted.

Of quotas, while its victim still terminates.

Rule: kubernetes pkg/quota/v1/evaluator/core/pods.go and the ResourceQuota admission plugin. A terminating pod
is charged until it is gone. A ReplicaSet makes its replacement at once, so the quota needs room for both. A
StatefulSet makes its replacement when the victim is gone and its charge is given back. What the replacement
requests decides (`replacement`), which may be more than what the victim requests. The API server judges by
the quota's *status*: a limit whose usage is not known yet admits nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from rebalancer.model.pod import Container, Pod, PodTemplate, Requests, pod_requests
from rebalancer.model.quantity import amount, milli, resource_list
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Requirement
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import (
    LimitRange,
    LimitRangeItem,
    ResourceQuota,
    ScopeSelectorRequirement,
    Workload,
)
from rebalancer.policy.replacement import Replacements

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
    """The quotas of a snapshot."""

    def __init__(self, snapshot: Snapshot, replacements: Replacements | None = None) -> None:
        self._replacements = replacements or Replacements()
        self._by_namespace: dict[str, list[tuple[ResourceQuota, tuple[_Limit, ...]]]] = defaultdict(list)
        for q in snapshot.quotas:
            self._by_namespace[q.metadata.namespace].append((q, tuple(_limits(q))))

    def why_not(self, pod: Pod, owner: Workload | None, promised: Requests | None = None) -> Reason | None:
        """Why the pod's replacement would not be admitted; None if it would be.

        `promised`: what others will be charged before, by "quota/limit" (`charges`).
        """
        for asked, quota, limit in self._charged(pod, owner):
            reason = _judge(quota, limit, pod, asked, owner, (promised or {}).get(_key(quota, limit), 0))
            if reason is not None:
                return reason
        return None

    def charges(self, pod: Pod, owner: Workload | None) -> Requests:
        """What is charged for the replacement in addition to the present usage, by "quota/limit"."""
        return {
            _key(quota, limit): _extra(limit, pod, asked, owner)
            for asked, quota, limit in self._charged(pod, owner)
        }

    def _charged(
        self, pod: Pod, owner: Workload | None
    ) -> Iterator[tuple[PodTemplate, ResourceQuota, _Limit]]:
        """The replacement with each limit that it is charged under."""
        there = self._by_namespace.get(pod.namespace, ())
        if not there:
            return
        asked = self._replacements.of(pod.template, owner) if owner is not None else pod.template
        for quota, limits in there:
            if _covers(quota, pod, asked):
                for limit in limits:
                    yield asked, quota, limit


def unseen(snapshot: Snapshot) -> bool:
    """Whether quotas may exist that this tool has no right to read. Any replacement may then be refused."""
    return "ResourceQuota" in snapshot.refused


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


def _extra(limit: _Limit, pod: Pod, asked: PodTemplate, owner: Workload | None) -> int:
    """The charge for the replacement, less what its victim has given back by then."""
    return _needs(limit, asked) - (_needs(limit, pod.template) if _waits(owner) else 0)


def _limits(quota: ResourceQuota) -> Iterator[_Limit]:
    for name, hard in sorted(quota.status.hard.items()):
        of_limits = name.startswith("limits.")
        resource = name.removeprefix("limits.").removeprefix("requests.")
        used = quota.status.used.get(name)
        yield _Limit(
            name,
            resource,
            of_limits,
            amount(resource, str(hard)),
            None if used is None else amount(resource, str(used)),
        )


def _judge(
    quota: ResourceQuota, limit: _Limit, pod: Pod, asked: PodTemplate, owner: Workload | None, promised: int
) -> Reason | None:
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
    if limit.used + promised + _extra(limit, pod, asked, owner) <= limit.hard:
        return None
    unit = "m" if limit.resource == "cpu" else ""
    beside = "" if _waits(owner) else " while it terminates"
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
    whole = pod_requests(_by_limits(template.containers), _by_limits(template.init_containers), {}, {})
    return whole.get(limit.resource, 0)


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
        asks = any(c.requests.get(r) or c.limits.get(r) for c in _all(t) for r in _EXPLICIT)
        if not asks and any(t.requests.get(r) for r in _EXPLICIT):
            return False  # pod-level resources or overhead alone: cannot be told apart here
        return asks == (scope.scope_name == "NotBestEffort")
    if scope.scope_name == "NotTerminating":
        return pod.owner is not None and pod.owner.kind in _WITHOUT_DEADLINE
    return False


def _all(template: PodTemplate) -> Iterator[Container]:
    yield from template.containers
    yield from template.init_containers


# LimitRanges: what one container, or one pod, may ask for.
#
# Rule: kubernetes plugin/pkg/admission/limitranger. What a container does not state is set first.


def out_of_range(ranges: Iterable[LimitRange], asked: PodTemplate) -> Reason | None:
    """Why a LimitRange would refuse a pod of this template; None if none would."""
    every = [(r, item) for r in ranges for item in r.spec.limits]
    containers = [_filled(c, every) for c in asked.containers]
    inits = [_filled(c, every) for c in asked.init_containers]
    for found, item in every:
        judged = []
        if item.type == "Container":
            judged = [(f"container {c.name}", c.requests, c.limits) for c in (*containers, *inits)]
        elif item.type == "Pod" and not asked.pod_level:  # its limits are not known then
            whole = pod_requests(containers, inits, {}, {})
            most = pod_requests(_by_limits(containers), _by_limits(inits), {}, {})
            judged = [("all containers together", whole, most)]
        for what, requests, limits in judged:
            if broken := _broken(item, requests, limits):
                return Reason(
                    ReasonCode.REPLACEMENT_REFUSED,
                    f"LimitRange {found.metadata.namespace}/{found.metadata.name} would refuse its "
                    f"replacement: {broken}, which {what} does not keep",
                    {},
                    "correct the owner's template, or the LimitRange",
                )
    return None


def added(ranges: Iterable[LimitRange], asked: PodTemplate) -> Reason | None:
    """Why a LimitRange would make the replacement larger than it is planned with; None if none would. Pods
    that were made before it know nothing of its defaults."""
    every = [(r, item) for r in ranges for item in r.spec.limits]
    for c in (*asked.containers, *asked.init_containers):
        known = {**c.limits, **c.requests}
        if more := sorted(r for r, n in _filled(c, every).requests.items() if n > known.get(r, 0)):
            return Reason(
                ReasonCode.REPLACEMENT_REFUSED,
                f"a LimitRange of namespace {asked.namespace} would have container {c.name} of its "
                f"replacement ask for {', '.join(more)}, and the pod does not",
                {},
                "state these requests in the owner's template",
            )
    return None


def _filled(container: Container, every: Iterable[tuple[LimitRange, LimitRangeItem]]) -> Container:
    requests, limits = {**container.limits, **container.requests}, dict(container.limits)
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
