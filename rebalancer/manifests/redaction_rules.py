"""What stays of one JSON value in a redacted snapshot: the rules that `redacted_fields` is made of.

A rule takes a value and gives what stays of it; None = nothing. It is asked twice, with a `Naming` that
collects and with one that renames, so that there is one list of the places where names stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from rebalancer.engine.storage import BETA_CLASS, BIND_COMPLETED


class Naming(Protocol):
    """Names → names."""

    @property
    def name(self) -> Callable[[str], str]:
        """Of objects, and whatever else people invent."""
        ...

    def uid(self, text: str) -> str:
        """Of an object."""
        ...

    def key(self, text: str) -> str:
        """Of a label or taint."""
        ...

    def value(self, key: str, text: str) -> str:
        """Of a label or taint with that key."""
        ...

    def resource(self, text: str) -> str:
        """Of what containers ask for and nodes have."""
        ...

    def image(self, text: str) -> str:
        """Of a container."""
        ...

    def present_image(self, text: str) -> str | None:
        """On a node; None = no pod uses it."""
        ...


Rule = Callable[[Any, Naming], Any]
_REASON = re.compile(r"[A-Za-z]{1,64}")
_REDACTED = "(redacted)"
_CONDITIONS = frozenset(
    {"Ready", "PodScheduled", "Initialized", "ContainersReady", "DisruptionTarget", "DisruptionAllowed"}
    | {"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Available", "Progressing"}
)
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


def same(value: Any, _: Naming) -> Any:
    """A number, a truth or one of the API's own words."""
    return value if isinstance(value, str | int | float) else None


def name(value: Any, naming: Naming) -> str | None:
    """A name; the empty one means none."""
    if not isinstance(value, str):
        return None
    return naming.name(value) if value else ""


def uid(value: Any, naming: Naming) -> str | None:
    """A uid."""
    return naming.uid(value) if isinstance(value, str) else None


def key(value: Any, naming: Naming) -> str | None:
    """A label or taint key; the empty one of a toleration means all."""
    if not isinstance(value, str):
        return None
    return naming.key(value) if value else ""


def image(value: Any, naming: Naming) -> str | None:
    """A container's image."""
    return naming.image(value) if isinstance(value, str) and value else None


def resource(value: Any, naming: Naming) -> str:
    """A resource's name."""
    return naming.resource(str(value))


def address(value: Any, naming: Naming) -> str | None:
    """A host's address; that of all its interfaces stays."""
    return value if value in _ANY_ADDRESS else name(value, naming)


def labels(value: Any, naming: Naming) -> dict[str, str] | None:
    """Labels, or what selects them."""
    if not isinstance(value, dict):
        return None
    pairs = ((k, v) for k, v in value.items() if isinstance(v, str))
    return {naming.key(k): naming.value(k, v) if v else "" for k, v in pairs}


def fields(**rules: Rule) -> Rule:
    """An object of which these fields stay."""

    def apply(value: Any, naming: Naming) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        made = ((f, rule(value[f], naming)) for f, rule in rules.items() if value.get(f) is not None)
        return {f: v for f, v in made if v is not None}

    return apply


def each(rule: Rule) -> Rule:
    """A list of such things."""

    def apply(value: Any, naming: Naming) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        return [v for v in (rule(item, naming) for item in value) if v is not None]

    return apply


def keyed(names: Rule) -> Rule:
    """An object whose members' names follow a rule and whose values stay."""

    def apply(value: Any, naming: Naming) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        return {names(k, naming): v for k, v in value.items() if isinstance(v, str | int | float)}

    return apply


def requirement(value: Any, naming: Naming) -> dict[str, Any] | None:
    """key, operator, values; also a toleration's, a taint's single value."""
    found: dict[str, Any] | None = fields(key=key, operator=same, effect=same, tolerationSeconds=same)(
        value, naming
    )
    if found is None:
        return None
    k = value.get("key") if isinstance(value.get("key"), str) else ""
    if isinstance(value.get("values"), list):
        found["values"] = [naming.value(k, v) if v else "" for v in value["values"] if isinstance(v, str)]
    if isinstance(value.get("value"), str):
        found["value"] = naming.value(k, value["value"]) if value["value"] else ""
    return found


def read_annotations(value: Any, naming: Naming) -> dict[str, str] | None:
    """Those that policy, planner or engine read."""
    if not isinstance(value, dict):
        return None
    found = {k: v for k, v in value.items() if isinstance(v, str) and _read(k)}
    for k in _NAMING_ANNOTATIONS & value.keys():
        if (renamed := name(value[k], naming)) is not None:
            found[k] = renamed
    return found or None


_NAMING_ANNOTATIONS = frozenset({"volume.kubernetes.io/selected-node", BETA_CLASS})
_READ_ANNOTATIONS = frozenset(
    {
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "karpenter.sh/do-not-disrupt",
        "karpenter.sh/do-not-evict",
        "descheduler.alpha.kubernetes.io/evict",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "controller.kubernetes.io/pod-deletion-cost",
        "deployment.kubernetes.io/revision",
        "storageclass.kubernetes.io/is-default-class",
        BIND_COMPLETED,
    }
)


def _read(annotation: str) -> bool:
    return annotation in _READ_ANNOTATIONS or annotation.startswith("rebalancer.io/")


def condition(value: Any, naming: Naming) -> dict[str, Any] | None:
    """One of the API's own conditions; that there was a message stays, not what it was."""
    if not isinstance(value, dict) or value.get("type") not in _CONDITIONS:
        return None
    found: dict[str, Any] = fields(type=same, status=same, lastTransitionTime=same, observedGeneration=same)(
        value, naming
    )
    reason = value.get("reason")
    if isinstance(reason, str) and _REASON.fullmatch(reason):
        found["reason"] = reason
    if value.get("message"):
        found["message"] = _REDACTED
    return found


def present_images(value: Any, naming: Naming) -> list[dict[str, Any]] | None:
    """A node's images that a pod uses."""
    found = []
    for item in value if isinstance(value, list) else ():
        every = item.get("names") if isinstance(item, dict) else None
        used = [naming.present_image(n) for n in every or () if isinstance(n, str)]
        if kept := list(dict.fromkeys(n for n in used if n is not None)):
            found.append({"names": kept, "sizeBytes": item.get("sizeBytes") or 0})
    return found


def quota(value: Any, naming: Naming) -> str:
    """What a quota limits: of a storage class by the class's name."""
    storage_class, mark, rest = str(value).partition(".storageclass.storage.k8s.io/")
    return f"{naming.name(storage_class)}{mark}{rest}" if mark else naming.resource(str(value))
