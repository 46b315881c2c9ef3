"""What clients ask before anything else: groups, resources, version, and as much OpenAPI as apply needs."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from rebalancer.sandbox.errors import unknown_path
from rebalancer.sandbox.resources import GROUPS, RESOURCES, Resource

AGGREGATED = "apidiscovery.k8s.io"


def _versions(group: str) -> list[str]:
    return list(dict.fromkeys(r.version for r in RESOURCES if r.group == group))


def api_versions(address: str) -> dict[str, Any]:
    """/api"""
    servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}


def _group(name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in _versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def api_groups() -> dict[str, Any]:
    """/apis"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in GROUPS]}


def api_group(name: str) -> dict[str, Any]:
    """/apis/NAME; ApiError 404."""
    if name not in GROUPS:
        raise unknown_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _storage_hash(resource: Resource) -> str:
    digest = hashlib.sha256(f"{resource.api_version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def resource_list(group: str, version: str) -> dict[str, Any]:
    """/api/v1 or /apis/GROUP/VERSION; ApiError 404."""
    found: list[dict[str, Any]] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group, version):
            continue
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short:
            entry["shortNames"] = list(resource.short)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        if "list" in resource.verbs:
            entry["storageVersionHash"] = _storage_hash(resource)
        found.append(entry)
        for sub in resource.subresources:
            entry = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if sub.group:
                entry |= {"group": sub.group, "version": sub.version}
            found.append({**entry, "kind": sub.kind, "verbs": list(sub.verbs)})
    if not found:
        raise unknown_path()
    result: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        result["apiVersion"] = "v1"  # the core list comes without it
    word = f"{group}/{version}" if group else version
    return {**result, "groupVersion": word, "resources": sorted(found, key=lambda entry: str(entry["name"]))}


def aggregated(*, core: bool, version: str) -> dict[str, Any]:
    """/api or /apis for clients that take all resources in one answer (apidiscovery.k8s.io)."""
    items = []
    for group in ("",) if core else GROUPS:
        versions = [
            {
                "version": v,
                "resources": [_aggregated(r) for r in sorted(RESOURCES, key=lambda r: r.plural)
                              if (r.group, r.version) == (group, v)],
                "freshness": "Current",
            }
            for v in _versions(group)
        ]  # fmt: skip
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": f"{AGGREGATED}/{version}"}
    return {**kind, "metadata": {}, "items": items}


def _aggregated(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]
    return entry


def version_info(version: str) -> dict[str, Any]:
    """/version for a version like "1.36.2"."""
    major, minor, *_ = version.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


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
