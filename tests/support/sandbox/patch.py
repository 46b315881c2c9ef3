"""Patches: JSON merge (RFC 7386), JSON (RFC 6902) and Kubernetes' strategic merge."""

from __future__ import annotations

from typing import Any

from rebalancer.sandbox.handlers import MERGE, merge
from rebalancer.sandbox.objects import copied
from rebalancer.sandbox.resources import ApiError, bad_request

JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# patchMergeKey tags of k8s.io/api, by the field's name. Lists that are not here (tolerations, taints,
# args, terms of an affinity, …) are atomic.
_MERGE_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "podIPs": "ip",
    "conditions": "type",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "secrets": "name",
    "addresses": "type",
    "drivers": "name",
}
# Lists of plain values that merge as sets.
_SETS = frozenset({"finalizers", "podCIDRs"})


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise bad_request(f"jsonpatch: invalid path {path!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _walk(doc: Any, steps: list[str], path: str) -> Any:
    for step in steps:
        try:
            doc = doc[int(step)] if isinstance(doc, list) else doc[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise _unprocessable(f"replace operation does not apply: doc is missing path: {path}") from None
    return doc


def _unprocessable(message: str) -> ApiError:
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}", {}
    )


def _add(doc: Any, steps: list[str], value: Any, path: str) -> Any:
    if not steps:
        return value
    parent = _walk(doc, steps[:-1], path)
    if isinstance(parent, list):
        if steps[-1] != "-" and not (steps[-1].isdigit() and int(steps[-1]) <= len(parent)):
            raise _unprocessable(f"add operation does not apply: doc is missing path: {path}")
        parent.insert(len(parent) if steps[-1] == "-" else int(steps[-1]), value)
    elif isinstance(parent, dict):
        parent[steps[-1]] = value
    else:
        raise _unprocessable(f"add operation does not apply: doc is missing path: {path}")
    return doc


def _remove(doc: Any, steps: list[str], path: str) -> None:
    parent = _walk(doc, steps[:-1], path)
    _walk(parent, steps[-1:], path)
    del parent[int(steps[-1]) if isinstance(parent, list) else steps[-1]]


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902. ApiError 422 where a `test` fails or a path is missing, 400 for what is no patch."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    doc = copied(target)
    for operation in operations:
        kind, path = operation.get("op"), operation.get("path", "")
        steps = _pointer(path)
        match kind:
            case "add":
                doc = _add(doc, steps, copied(operation.get("value")), path)
            case "remove":
                _remove(doc, steps, path)
            case "replace":
                if steps:
                    _remove(doc, steps, path)
                doc = _add(doc, steps, copied(operation.get("value")), path)
            case "test":
                if _walk(doc, steps, path) != operation.get("value"):
                    raise _unprocessable(f"testing value {path} failed")
            case "move" | "copy":
                source = operation.get("from", "")
                value = copied(_walk(doc, _pointer(source), source))
                if kind == "move":
                    _remove(doc, _pointer(source), source)
                doc = _add(doc, steps, value, path)
            case _:
                raise bad_request(f"Unexpected kind: {kind}")
    return doc


def _merge_key(field: str, patch: list[Any], current: list[Any]) -> str:
    if field == "ports":
        # A container's ports merge by containerPort, a Service's by port.
        sample = next((item for item in (*patch, *current) if isinstance(item, dict)), {})
        return "containerPort" if "containerPort" in sample else "port"
    return _MERGE_KEYS.get(field, "")


def _merge_list(field: str, current: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    key = _merge_key(field, patch, current)
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [copied(item) for item in patch if "$patch" not in item]
    if field in _SETS:
        return current + [item for item in patch if item not in current]
    if not key or not all(isinstance(item, dict) for item in (*patch, *current)):
        return [copied(item) for item in patch]
    result = list(current)
    for item in patch:
        wanted = item.get(key)
        at = next((i for i, old in enumerate(result) if old.get(key) == wanted), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(strategic({}, item))
        else:
            result[at] = strategic(result[at], item)
    if order is not None:
        rank = {entry.get(key): i for i, entry in enumerate(order) if isinstance(entry, dict)}
        result.sort(key=lambda item: rank.get(item.get(key), len(rank)))
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Strategic merge: like `merge`, but lists of named things merge by their key.

    Understands `$patch: delete|replace`, `$retainKeys`, `$setElementOrder/…` and
    `$deleteFromPrimitiveList/…`.
    """
    if not isinstance(patch, dict):
        return copied(patch)
    if patch.get("$patch") == "replace":
        return copied({key: value for key, value in patch.items() if key != "$patch"})
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if (retain := patch.get("$retainKeys")) is not None:
        result = {key: value for key, value in result.items() if key in retain}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.split("/", 1)[1]
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            order = patch.get(f"$setElementOrder/{key}")
            result[key] = _merge_list(key, result.get(key) or [], value, order)
        else:
            result[key] = strategic(result.get(key), value)
    return result


def apply(content_type: str, target: Any, patch: Any) -> Any:
    """The patched copy; ApiError 415 for a media type that is none of the four."""
    match content_type:
        case "application/merge-patch+json":
            return merge(target, patch)
        case "application/json-patch+json":
            return json_patch(target, patch)
        case "application/strategic-merge-patch+json" | "application/apply-patch+yaml":
            # Server-side apply without field ownership: what it says is set, nothing is pruned.
            return strategic(target, patch)
    accepted = ", ".join((JSON, MERGE, STRATEGIC, APPLY))
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    raise ApiError(415, "UnsupportedMediaType", message, {})
