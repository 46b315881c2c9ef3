"""Settings → the options of planner and policy."""

from __future__ import annotations

from typing import Any

from rebalancer.model.selectors import LabelSelector, Selector, canonical
from rebalancer.planner.options import PlanOptions
from rebalancer.policy.options import PolicyOptions
from rebalancer.settings.groups.base import Group
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
        joint=planner.joint,
        newer_versions=planner.newer_versions,
        scheduler=scheduler_config(planner.scheduler_config) if planner.scheduler_config else None,
        effort=planner.effort,
    )


def policy_options(settings: Settings) -> PolicyOptions:
    """Which pods may be evicted, and how many, under these settings.

    What has the same name in both is handed on as it is.
    """
    scope = settings.scope
    return PolicyOptions(
        **{
            **_same_names(scope),
            **_same_names(settings.policy),
            **_same_names(settings.evictions),
            "namespaces_include": scope.namespaces.include,
            "namespaces_exclude": _excluded(scope.namespaces),
            "namespace_selector": _selector(scope.namespace_selector),
            "label_selector": _selector(scope.label_selector),
            "foreign_annotations": settings.policy.honor_annotations_of,
        }
    )


def _same_names(group: Group) -> dict[str, Any]:
    """The settings of a group that are options of policy by the same name."""
    return {name: getattr(group, name) for name in PolicyOptions.__struct_fields__ if hasattr(group, name)}


def _excluded(namespaces: Namespaces) -> tuple[str, ...]:
    """The named namespaces, and kube-system unless the settings open it."""
    always = () if namespaces.evict_from_kube_system else ("kube-system",)
    return tuple(dict.fromkeys((*always, *namespaces.exclude)))


def _selector(written: LabelSelector | None) -> Selector | None:
    return canonical(written) if written is not None else None
