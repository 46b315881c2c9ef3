"""As much OpenAPI as `kubectl apply` needs."""

from __future__ import annotations

from typing import Any

from rebalancer.sandbox.resources import RESOURCES, unknown_path


def openapi_index() -> dict[str, Any]:
    """/openapi/v3: where the documents of each group and version are."""
    words = dict.fromkeys(f"apis/{r.group}/{r.version}" if r.group else f"api/{r.version}" for r in RESOURCES)
    return {"paths": {word: {"serverRelativeURL": f"/openapi/v3/{word}"} for word in words}}


def openapi(group: str, version: str) -> dict[str, Any]:
    """/openapi/v3/…: that every kind exists and that its patch takes `fieldValidation`.

    That is all `kubectl apply` looks for before it leaves validation to the server; without schemas its
    three-way merge falls back on the types built into it.
    """
    param = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    dry = {"name": "dryRun", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group, version):
            continue
        gvk = {"group": group, "version": version, "kind": resource.kind}
        inner = "/namespaces/{namespace}" if resource.namespaced else ""
        operation = {
            "parameters": [dry, param],
            "x-kubernetes-group-version-kind": gvk,
            "responses": {"200": {"description": "OK"}},
        }
        patch = {**operation, "x-kubernetes-action": "patch"}
        paths[f"{base}{inner}/{resource.plural}/{{name}}"] = {"patch": patch, "put": operation}
        paths[f"{base}{inner}/{resource.plural}"] = {"post": {**operation, "x-kubernetes-action": "post"}}
    if not paths:
        raise unknown_path()
    info = {"title": "Kubernetes", "version": version}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
