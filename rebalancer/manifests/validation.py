"""What the API server refuses in spread constraints, selectors and budgets: every error of an object.

Fields that do not exist and values of a wrong type are found elsewhere (`rebalancer.kube.resources`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

TEMPLATES = ("spec.template", "spec.jobTemplate.spec.template")
_SPREAD_ENUMS = {
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "nodeAffinityPolicy": ("Honor", "Ignore"),
    "nodeTaintsPolicy": ("Honor", "Ignore"),
}
_REQUIRED = ("maxSkew", "topologyKey", "whenUnsatisfiable")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PERCENTAGE = re.compile(r"[0-9]+%")
_SELECTING = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")


class Problem(NamedTuple):
    """`field`: where, as spec.template.spec.topologySpreadConstraints[0].maxSkew; `says`: what is wrong."""

    field: str
    says: str


def validate(kind: str, value: dict[str, Any]) -> Iterator[Problem]:
    """Everything that would be refused, in the order of the fields."""
    if kind == "PodDisruptionBudget":
        yield from _budget(_map(value.get("spec")))
        return
    where, template = pod_template(kind, value)
    if kind in _SELECTING:
        yield from _selects(_map(value.get("spec")), template)
    spec = _map(template.get("spec"))
    field = f"{where}.spec" if where else "spec"
    yield from _constraints(spec.get("topologySpreadConstraints"), f"{field}.topologySpreadConstraints")


def pod_template(kind: str, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(where it is, the template) of an object that makes pods, ("", the object) of a pod."""
    if kind == "Pod":
        return "", value
    for where in TEMPLATES:
        found: Any = value
        for step in where.split("."):
            found = _map(found).get(step)
        if isinstance(found, dict):
            return where, found
    return TEMPLATES[0], {}


def _constraints(written: Any, field: str) -> Iterator[Problem]:
    seen: dict[tuple[str, str], int] = {}
    for i, c in enumerate(written if isinstance(written, list) else ()):
        if not isinstance(c, dict):
            continue
        at = f"{field}[{i}]"
        yield from _constraint(c, at)
        pair = str(c.get("topologyKey")), str(c.get("whenUnsatisfiable"))
        if pair in seen:
            yield Problem(at, f"the same topologyKey and whenUnsatisfiable as in entry {seen[pair]}")
        seen.setdefault(pair, i)


def _constraint(c: dict[str, Any], at: str) -> Iterator[Problem]:
    for name in _REQUIRED:
        if c.get(name) in (None, ""):
            yield Problem(f"{at}.{name}", f"{name} is required")
    for name in ("maxSkew", "minDomains"):
        if isinstance(c.get(name), int) and c[name] < 1:
            yield Problem(f"{at}.{name}", f"{name} {c[name]} has to be at least 1")
    for name, legal in _SPREAD_ENUMS.items():
        if c.get(name) not in (None, "", *legal):
            yield Problem(f"{at}.{name}", f"{c[name]!r} is not one of {', '.join(legal)}")
    key = c.get("topologyKey")
    if isinstance(key, str) and key and not _KEY.fullmatch(key):
        yield Problem(f"{at}.topologyKey", f"{key!r} is no label key")
    selector = _map(c.get("labelSelector"))
    yield from _selector(selector, f"{at}.labelSelector")
    keys = c.get("matchLabelKeys")
    if keys and c.get("labelSelector") is None:
        yield Problem(f"{at}.matchLabelKeys", "it is allowed only with a labelSelector")
    # A list: what is no text need not be hashable.
    used = [*_map(selector.get("matchLabels")), *(e.get("key") for e in _expressions(selector))]
    for k in keys if isinstance(keys, list) else ():
        if k in used:
            yield Problem(f"{at}.matchLabelKeys", f"{k!r} is in the labelSelector already")


def _selector(selector: dict[str, Any], at: str) -> Iterator[Problem]:
    for i, e in enumerate(_expressions(selector)):
        field, operator, values = f"{at}.matchExpressions[{i}]", e.get("operator"), e.get("values")
        if operator not in _OPERATORS:
            yield Problem(f"{field}.operator", f"{operator!r} is not one of {', '.join(_OPERATORS)}")
        elif operator in ("In", "NotIn") and not values:
            yield Problem(f"{field}.values", f"{operator} needs values")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield Problem(f"{field}.values", f"{operator} takes no values")


def _selects(spec: dict[str, Any], template: dict[str, Any]) -> Iterator[Problem]:
    """A workload's selector has to match its own template."""
    selector = _map(spec.get("selector"))
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield Problem("spec.selector", "a selector is required")
        return
    yield from _selector(selector, "spec.selector")
    labels = _map(_map(template.get("metadata")).get("labels"))
    for key, wanted in _map(selector.get("matchLabels")).items():
        if labels.get(key) != wanted:
            yield Problem("spec.selector", f"{key}: {wanted} is not among the template's own labels")


def _budget(spec: dict[str, Any]) -> Iterator[Problem]:
    yield from _selector(_map(spec.get("selector")), "spec.selector")
    given = [n for n in ("minAvailable", "maxUnavailable") if spec.get(n) is not None]
    if len(given) == 2:
        yield Problem("spec.maxUnavailable", "minAvailable and maxUnavailable exclude each other")
    for name in given:
        value = spec[name]
        if isinstance(value, str) and not _PERCENTAGE.fullmatch(value):
            yield Problem(f"spec.{name}", f"{value!r} is neither a number nor a percentage such as 20%")
        elif isinstance(value, int) and value < 0:
            yield Problem(f"spec.{name}", f"{value} has to be at least 0")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        says = f"{policy!r} is not one of IfHealthyBudget, AlwaysAllow"
        yield Problem("spec.unhealthyPodEvictionPolicy", says)


def _expressions(selector: dict[str, Any]) -> list[dict[str, Any]]:
    found = selector.get("matchExpressions")
    return [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
