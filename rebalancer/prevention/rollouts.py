"""Which constraints of a Deployment need `matchLabelKeys: [pod-template-hash]`.

A selector that covers the pods of both revisions makes the scheduler balance their sum: new pods are placed
around old ones, and when these go, skew remains. With the hash each revision is counted by itself (KEP-3243).

Deployments only. A StatefulSet deletes a pod before it makes the new one, which so takes the old one's place
in the sum: its spread survives a rollout without that. With `Recreate` no old pod is left when new ones come.

deploy/prevention/ has the same rule in CEL; one table of cases holds both to it (tests/support/rollouts.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.model.selectors import LabelSelector, canonical
from rebalancer.model.workload import HASH

_REVISION = re.compile(r"(?:^|[/_.-])(?:version|revision|rev|release|build|commit|sha|hash)$", re.IGNORECASE)
"""Label keys that by their name differ from release to release."""
Json = Mapping[str, Any]


class Addition(Struct, frozen=True):
    """The `matchLabelKeys` of the constraint at `index`, as they should be. `before`: as they are."""

    index: int
    keys: tuple[str, ...]
    before: tuple[str, ...] | None


def tells_revisions(
    match_label_keys: Iterable[str], selected: Iterable[str], fixed: frozenset[str] | set[str]
) -> bool:
    """Whether old and new pods of a rollout are counted apart.

    `selected`: keys that the constraint's selector names. `fixed`: those of the Deployment's own selector,
    which never changes, so that none of them can tell revisions apart.
    """
    if any(key not in fixed for key in match_label_keys):
        return True
    return any(key not in fixed and _REVISION.search(key) for key in selected)


def additions(kind: str, spec: Json) -> Iterator[Addition]:
    """What a Deployment with this spec (as JSON) lacks. Raises nothing: what is malformed lacks nothing."""
    if kind != "Deployment" or _of(spec, "strategy").get("type") == "Recreate":
        return
    template = _of(spec, "template")
    labels = _of(_of(template, "metadata"), "labels")
    fixed = set(_keys(_of(spec, "selector")))
    constraints = _of(template, "spec").get("topologySpreadConstraints")
    for index, written in enumerate(constraints if isinstance(constraints, list) else ()):
        selector = _of(written, "labelSelector") if isinstance(written, Mapping) else {}
        keys = _keys(selector)
        if not keys or not _matches(selector, labels):
            continue  # it counts no pod, or others than its own
        now = written.get("matchLabelKeys")
        present = tuple(now) if isinstance(now, list) else ()
        if not tells_revisions(present, keys, fixed):
            yield Addition(index, (*present, HASH), present if isinstance(now, list) else None)


def _of(value: Any, field: str) -> Json:
    found = value.get(field) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _keys(selector: Json) -> list[str]:
    expressions = selector.get("matchExpressions")
    named = [e.get("key") for e in expressions or () if isinstance(e, Mapping)]
    return [*_of(selector, "matchLabels"), *(k for k in named if isinstance(k, str))]


def _matches(selector: Json, labels: Json) -> bool:
    try:
        return canonical(msgspec.convert(selector, LabelSelector)).matches(dict(labels))
    except (msgspec.ValidationError, ValueError, TypeError):
        return False


# Whether a Deployment may be changed in its cluster, which rolls it out, and whether it is rolled out.

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
    metadata, spec = _of_live(deployment, "metadata"), _of_live(deployment, "spec")
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner.get('kind')} {owner.get('name')} manages it: change that"
    for field in ("labels", "annotations"):
        for key in _of_live(metadata, field):
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
    metadata, spec, status = (_of_live(deployment, part) for part in ("metadata", "spec", "status"))
    wanted = spec.get("replicas", 1)
    return int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0) and all(
        int(status.get(field) or 0) == wanted
        for field in ("replicas", "updatedReplicas", "availableReplicas")
    )


def gave_up(deployment: Json) -> str:
    """What the controller says of a rollout that makes no progress; "" if it does not say so."""
    for condition in _of_live(deployment, "status").get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "no progress")
    return ""


def _of_live(value: Json, field: str) -> Json:
    found = value.get(field)
    return found if isinstance(found, Mapping) else {}
