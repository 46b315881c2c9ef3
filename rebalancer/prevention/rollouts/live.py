"""Whether a Deployment may be changed in its cluster, which rolls it out, and whether it is rolled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
_MARKS = (
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "fluxcd.io/",
    "objectset.rio.cattle.io/",
    "fleet.cattle.io/",
    "configsync.gke.io/",
    "configmanagement.gke.io/",
)
"""How labels and annotations begin that tools put on what they keep as it stands in a repository."""
_MANAGERS = (
    "argocd-",
    "kustomize-controller",
    "helm-controller",
    "flux",
    "fleetagent",
    "configsync",
    "kapp-controller",
)
"""How their field managers begin."""


def why_not(deployment: Json) -> str:
    """Why a Deployment (as JSON) is left alone; "" if nothing speaks against changing it."""
    metadata, spec = _of(deployment, "metadata"), _of(deployment, "spec")
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner.get('kind')} {owner.get('name')} manages it: change that"
    for field in ("labels", "annotations"):
        for key in _of(metadata, field):
            if key.startswith(_MARKS):
                return f"it is kept as it stands in a repository ({key}): change it there"
    for entry in metadata.get("managedFields") or ():
        manager = str(entry.get("manager") or "")
        if manager.startswith(_MANAGERS):
            return f"it is kept as it stands in a repository (by {manager}): change it there"
    if spec.get("paused"):
        return "it is paused"
    if not rolled_out(deployment):
        return "it is being rolled out, or its pods are not available"
    return ""


def rolled_out(deployment: Json) -> bool:
    """Whether all its pods are of the present revision, and available."""
    metadata, spec, status = (_of(deployment, part) for part in ("metadata", "spec", "status"))
    wanted = spec.get("replicas", 1)
    return int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0) and all(
        int(status.get(field) or 0) == wanted
        for field in ("replicas", "updatedReplicas", "availableReplicas")
    )


def gave_up(deployment: Json) -> str:
    """What the controller says of a rollout that makes no progress; "" if it does not say so."""
    for condition in _of(deployment, "status").get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "no progress")
    return ""


def _of(value: Json, field: str) -> Json:
    found = value.get(field)
    return found if isinstance(found, Mapping) else {}
