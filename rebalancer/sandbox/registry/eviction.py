"""The eviction subresource.

It follows pkg/registry/core/pod/storage/eviction.go; everything runs under the store's lock, so
the conflicts that the server retries cannot happen here.
"""

from __future__ import annotations

from typing import Any

from rebalancer.sandbox.api.errors import (
    ApiError,
    Cause,
    bad_request,
    forbidden,
    success,
    too_many_requests,
)
from rebalancer.sandbox.api.objects import Object, copied, is_ready, set_condition
from rebalancer.sandbox.api.resources import PDBS, PODS
from rebalancer.sandbox.api.selectors import from_object, matches
from rebalancer.sandbox.registry.deletion import Deletion, check_preconditions, delete
from rebalancer.sandbox.registry.store import Store

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_TOO_MANY = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_MOST_DISRUPTED = 2000


def deletion(options: dict[str, Any], *, dry_run: bool = False) -> Deletion:
    """DeleteOptions as read from a body."""
    conditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy") or ""
    if options.get("orphanDependents") is not None and not propagation:
        propagation = "Orphan" if options["orphanDependents"] else "Background"
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise bad_request(f'invalid propagationPolicy "{propagation}"')
    return Deletion(
        options.get("gracePeriodSeconds"),
        conditions.get("uid"),
        conditions.get("resourceVersion"),
        propagation,
        dry_run or options.get("dryRun") == ["All"],
    )


def evict(store: Store, namespace: str, name: str, eviction: Object, *, dry_run: bool = False) -> Object:
    """The Status to answer with (201); ApiError for what is refused.

    As on the server, the budget is charged *before* the uid precondition is looked at: a wrong uid on a
    guarded pod costs a disruption.
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    wanted = deletion(eviction.get("deleteOptions") or {}, dry_run=dry_run)
    with store.lock:
        record = store.record(PODS, name, namespace)
        pod = record.obj
        if not _beyond_budgets(pod):
            budgets = [b for b in store.list(PDBS, namespace) if covers(b, pod)]
            if len(budgets) > 1:
                raise ApiError(500, "", _SEVERAL)
            if budgets and not _unready_may_go(budgets[0], pod):
                _charge(store, budgets[0], name, dry_run=wanted.dry_run)
        check_preconditions(PODS, pod, wanted)
        if wanted.dry_run:
            return success(201)
        marked = copied(pod)
        set_condition(marked, _TARGET, store.now())
        store.commit(PODS, record, marked)
        # The marking itself moved the version on.
        delete(store, PODS, store.record(PODS, name, namespace), wanted._replace(resource_version=None))
        return success(201)


def _beyond_budgets(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def covers(budget: Object, pod: Object) -> bool:
    """Whether the budget's selector means the pod: absent none, empty all."""
    selector = from_object((budget.get("spec") or {}).get("selector"))
    return selector is not None and matches(selector, pod["metadata"].get("labels"))


def _unready_may_go(budget: Object, pod: Object) -> bool:
    """An unready pod is not among the healthy: it goes uncharged if nothing else suffers by it."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = int(status.get("desiredHealthy", 0))
    return int(status.get("currentHealthy", 0)) >= desired > 0


def _charge(store: Store, budget: Object, pod: str, *, dry_run: bool) -> None:
    metadata, status = budget["metadata"], budget.get("status") or {}
    name, allowed = metadata["name"], int(status.get("disruptionsAllowed", 0))
    if int(status.get("observedGeneration", 0)) < int(metadata.get("generation", 0)):
        text = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(_REFUSED, Cause("DisruptionBudget", text), retry_after=10)
    if allowed < 0:
        raise forbidden(PDBS, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        raise forbidden(PDBS, name, _TOO_MANY)
    if allowed == 0:
        raise too_many_requests(_REFUSED, Cause("DisruptionBudget", _why_exhausted(name, status)))
    if dry_run:
        return

    def charge(new: Object) -> None:
        new["status"]["disruptionsAllowed"] = allowed - 1
        new["status"].setdefault("disruptedPods", {})[pod] = store.now()
        if allowed == 1:
            short = {"type": "DisruptionAllowed", "status": "False",
                     "reason": "InsufficientPods", "message": "",
                     "observedGeneration": status.get("observedGeneration", 0)}  # fmt: skip
            set_condition(new, short, store.now())

    store.modify(PDBS, name, metadata["namespace"], charge, subresource="status")


def _why_exhausted(name: str, status: dict[str, Any]) -> str:
    current, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    failed = [c for c in status.get("conditions") or () if c.get("reason") == "SyncFailed"]
    if current > desired and failed:
        why = failed[0].get("message", "")
        refused = f"The disruption budget {name} does not allow evicting pods currently"
        return f"{refused} because it failed sync: {why}"
    return f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
