"""Settings → the options of planner and policy."""

from __future__ import annotations

from rebalancer.model.selectors import LabelSelector, Selector, canonical
from rebalancer.planner.options import PlanOptions
from rebalancer.policy.options import PolicyOptions
from rebalancer.settings.scheduler_config import scheduler_config
from rebalancer.settings.settings import Namespaces, Settings


def plan_options(settings: Settings) -> PlanOptions:
    """The planner's options under these settings. Raises SettingsError if the scheduler's file cannot be
    read."""
    planner = settings.planner
    return PlanOptions(
        policy=policy_options(settings),
        certainty=planner.certainty,
        soft=planner.soft_constraints,
        newer_versions=planner.newer_versions,
        scheduler=scheduler_config(planner.scheduler_config) if planner.scheduler_config else None,
        effort=planner.effort,
    )


def policy_options(settings: Settings) -> PolicyOptions:
    """Which pods may be evicted, and how many, under these settings."""
    scope, policy, evictions = settings.scope, settings.policy, settings.evictions
    return PolicyOptions(
        namespaces_include=scope.namespaces.include,
        namespaces_exclude=_excluded(scope.namespaces),
        namespace_selector=_selector(scope.namespace_selector),
        label_selector=_selector(scope.label_selector),
        owner_kinds_exclude=scope.owner_kinds_exclude,
        owner_kinds_allow=scope.owner_kinds_allow,
        gangs_allow=scope.gangs_allow,
        own_namespace=scope.own_namespace,
        mode=scope.mode,
        evict_local_storage_pods=policy.evict_local_storage_pods,
        evict_system_critical_pods=policy.evict_system_critical_pods,
        protect_pvc_pods=policy.protect_pvc_pods,
        protect_resource_claim_pods=policy.protect_resource_claim_pods,
        protect_pods_without_pdb=policy.protect_pods_without_pdb,
        protect_paused=policy.protect_paused,
        priority_threshold=policy.priority_threshold,
        priority_threshold_class=policy.priority_threshold_class,
        min_replicas=policy.min_replicas,
        min_pod_age=policy.min_pod_age,
        foreign_annotations=policy.honor_annotations_of,
        max_total=evictions.max_total,
        max_per_node=evictions.max_per_node,
        max_per_namespace=evictions.max_per_namespace,
        max_per_owner=evictions.max_per_owner,
        max_per_domain=evictions.max_per_domain,
        max_total_per_hour=evictions.max_total_per_hour,
        max_per_owner_per_day=evictions.max_per_owner_per_day,
        in_flight_per_owner=evictions.in_flight_per_owner,
    )


def _excluded(namespaces: Namespaces) -> tuple[str, ...]:
    """The named namespaces, and kube-system unless the settings open it."""
    always = () if namespaces.evict_from_kube_system else ("kube-system",)
    return tuple(dict.fromkeys((*always, *namespaces.exclude)))


def _selector(written: LabelSelector | None) -> Selector | None:
    return canonical(written) if written is not None else None
