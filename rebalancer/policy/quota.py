"""Whether quotas have room for a replacement, while its victim still terminates.

Rule: kubernetes pkg/quota/v1/evaluator/core/pods.go and the ResourceQuota admission plugin. A terminating pod
is charged until it is gone. A ReplicaSet makes its replacement at once, so the quota needs room for both. A
StatefulSet makes its replacement when the victim is gone and its charge is given back; an owner that lacks
pods may take that first. What the replacement requests decides (`replacement`), which may be more than what
the victim requests. The API server judges by the quota's *status*: a limit whose usage is not known yet
admits nothing. What was lowered in the spec, or is new there, counts too: the status follows within a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec import Struct

from rebalancer.model.pod import Pod, PodTemplate, Requests
from rebalancer.model.quantity import amount
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.model.selectors import Requirement
from rebalancer.model.snapshot import Snapshot, consequence
from rebalancer.model.workload import (
    ResourceQuota,
    ScopeSelectorRequirement,
    Workload,
)
from rebalancer.policy.new_pods import claims_not_asked, limits_of
from rebalancer.policy.replacement import Replacements

_PIECES = frozenset({"pods", "count/pods"})
_EXPLICIT = frozenset({"cpu", "memory"})
"""Resources that every container must request if a quota limits them."""
_OF_CLAIMS = frozenset({"persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage"})
_OF_CLASS = (
    ".storageclass.storage.k8s.io/persistentvolumeclaims",
    ".storageclass.storage.k8s.io/requests.storage",
)
"""Ends of resources that are about the claims of one StorageClass."""
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
        for asked in self._replacements.classes(replacement or built, owner):
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
    if asked.claims_anew and (limit.name in _OF_CLAIMS or limit.name.endswith(_OF_CLASS)):
        return claims_not_asked(ReasonCode.QUOTA, f"{where} limits claims ({limit.name})")
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
    there = limits_of(template.containers, template.init_containers, template).get(limit.resource, 0)
    return there + template.overhead.get(limit.resource, 0) if there else 0


def _silent(limit: _Limit, template: PodTemplate) -> str:
    """The first container that lacks a request that the quota demands; "" if there is none."""
    if limit.resource not in _EXPLICIT or limit.name in _PIECES:
        return ""
    for c in template.every_container:
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
        return t.best_effort == (scope.scope_name == "BestEffort")
    if scope.scope_name in ("Terminating", "NotTerminating"):
        # Who ends by itself has a deadline or has none: it may be charged under either.
        sure = not t.ends or (pod.owner is not None and pod.owner.kind in _WITHOUT_DEADLINE)
        return not sure or scope.scope_name == "NotTerminating"
    if scope.scope_name == "CrossNamespacePodAffinity" and t.affinity is not None:
        asked = (a for a in (t.affinity.pod_affinity, t.affinity.pod_anti_affinity) if a is not None)
        terms = (x for a in asked for x in (*a.required, *(w.pod_affinity_term for w in a.preferred)))
        return any(x.namespaces or x.namespace_selector is not None for x in terms)
    return False
