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

HASH = "pod-template-hash"
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
