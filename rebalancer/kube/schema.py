"""Fields and types of the API's objects, as the client's generated models have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

_MODELS = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"), "V1"),
    **dict.fromkeys(("Job", "CronJob", "Pod", "ReplicationController", "PodDisruptionBudget"), "V1"),
}
_TEMPLATE = "V1PodTemplateSpec"
_LIST = re.compile(r"[Ll]ist\[(.+)\]")
_MAPPING = re.compile(r"[Dd]ict\[[^,]+, (.+)\]")
_PLAIN: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "datetime": ((str,), "a time"),
}
"""JSON types that a value of a type may have, and what it is called. `object` stands for anything: an amount,
a number or a percentage."""


def problems(kind: str, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, what is wrong) for fields that do not exist and values of the wrong type.

    Of a kind that is not Kubernetes' own, the pod template in spec.template is looked at.
    """
    if kind in _MODELS:
        yield from _check(value, f"{_MODELS[kind]}{kind}", "")
    else:
        spec = value.get("spec")
        if isinstance(spec, dict):
            yield from _check(spec.get("template"), _TEMPLATE, "spec.template")


@cache
def _fields(model: str) -> dict[str, str] | None:
    """Field → type; None if there is no such model."""
    from kubernetes.client import models

    found = getattr(models, model, None)
    if found is None:
        return None
    return {json: found.openapi_types[name] for name, json in found.attribute_map.items()}


def _check(value: Any, type_: str, path: str) -> Iterator[tuple[str, str]]:
    if value is None or type_ == "object":
        return
    if (listed := _LIST.fullmatch(type_)) is not None:
        if not isinstance(value, list):
            yield path, f"a list is expected, not {_called(value)}"
            return
        for i, item in enumerate(value):
            yield from _check(item, listed.group(1), f"{path}[{i}]")
    elif (mapping := _MAPPING.fullmatch(type_)) is not None:
        if not isinstance(value, dict):
            yield path, f"a mapping is expected, not {_called(value)}"
            return
        for key, item in value.items():
            yield from _check(item, mapping.group(1), f"{path}.{key}")
    elif type_ in _PLAIN:
        allowed, name = _PLAIN[type_]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            yield path, f"{name} is expected, not {_called(value)}"
    elif (fields := _fields(type_)) is not None:
        yield from _members(value, fields, path)


def _members(value: Any, fields: dict[str, str], path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"a mapping is expected, not {_called(value)}"
        return
    for key, item in value.items():
        inner = f"{path}.{key}" if path else str(key)
        if key not in fields:
            similar = get_close_matches(str(key), fields, 1)
            meant = f", {similar[0]} is meant" if similar else ""
            yield inner, f"unknown field {key!r}{meant}"
        else:
            yield from _check(item, fields[key], inner)


def _called(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)
