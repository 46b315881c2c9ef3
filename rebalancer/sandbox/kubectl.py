"""What clients ask before anything else: groups, resources and the version."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from typing import Any

from rebalancer.sandbox.resources import GROUPS, RESOURCES, Resource, Subresource, unknown_path

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


def _verbs(of: Resource | Subresource, answered: Collection[str]) -> list[str]:
    return [verb for verb in of.verbs if verb in answered]


def resource_list(group: str, version: str, answered: Collection[str]) -> dict[str, Any]:
    """/api/v1 or /apis/GROUP/VERSION; ApiError 404. `answered`: the verbs that this server has."""
    found: list[dict[str, Any]] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group, version):
            continue
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            **_offers(resource, answered),
        }
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
            found.append({**entry, "kind": sub.kind, "verbs": _verbs(sub, answered)})
    if not found:
        raise unknown_path()
    result: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        result["apiVersion"] = "v1"  # the core list comes without it
    word = f"{group}/{version}" if group else version
    return {**result, "groupVersion": word, "resources": sorted(found, key=lambda entry: str(entry["name"]))}


def aggregated(*, core: bool, version: str, answered: Collection[str]) -> dict[str, Any]:
    """/api or /apis for clients that take all resources in one answer (apidiscovery.k8s.io)."""
    items = []
    for group in ("",) if core else GROUPS:
        versions = [
            {
                "version": v,
                "resources": [_aggregated(r, answered) for r in sorted(RESOURCES, key=lambda r: r.plural)
                              if (r.group, r.version) == (group, v)],
                "freshness": "Current",
            }
            for v in _versions(group)
        ]  # fmt: skip
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": f"{AGGREGATED}/{version}"}
    return {**kind, "metadata": {}, "items": items}


def _offers(resource: Resource, answered: Collection[str]) -> dict[str, Any]:
    """What may be done with the resource, and by which other names it goes."""
    others = {"shortNames": list(resource.short), "categories": list(resource.categories)}
    return {"verbs": _verbs(resource, answered), **{name: given for name, given in others.items() if given}}


def _aggregated(resource: Resource, answered: Collection[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        **_offers(resource, answered),
    }
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": _verbs(sub, answered),
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
