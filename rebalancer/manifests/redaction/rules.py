"""The rules that `redacted_fields` consists of: what is kept of one JSON value in a redacted snapshot.

A rule takes a value and returns what is kept of it; None = nothing. It is called twice: with a `Naming` that
collects names, and with one that replaces them. So the places where names stand are listed only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from rebalancer.engine.state.storage import BETA_CLASS, BIND_COMPLETED
from rebalancer.model.decode.resizes import RESIZE_PENDING
from rebalancer.model.kinds import BUILT_IN
from rebalancer.model.node import IMPLICIT
from rebalancer.planner.cluster.leaving_nodes import LEAVING_CONDITIONS
from rebalancer.policy import gangs
from rebalancer.policy.admission_queues import QUEUES
from rebalancer.policy.annotations import PAUSE, STEERING


class Naming(Protocol):
    """Maps names to names."""

    @property
    def name(self) -> Callable[[str], str]:
        """The name of an object, or any other name that people choose."""
        ...

    def uid(self, text: str) -> str:
        """The uid of an object."""
        ...

    def key(self, text: str) -> str:
        """The key of a label or taint."""
        ...

    def value(self, key: str, text: str) -> str:
        """The value of a label or taint with that key."""
        ...

    def resource(self, text: str) -> str:
        """The name of a resource that containers request and nodes have."""
        ...

    def image(self, text: str) -> str:
        """The image of a container."""
        ...

    def present_image(self, text: str) -> str | None:
        """An image on a node; None if no pod uses it."""
        ...


Rule = Callable[[Any, Naming], Any]
_REASON = re.compile(r"[A-Za-z]{1,64}")
_REDACTED = "(redacted)"
_CONDITIONS = frozenset(
    {"Ready", "PodScheduled", "Initialized", "ContainersReady", "DisruptionTarget", "DisruptionAllowed"}
    | {"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Available", "Progressing"}
    | {"Consolidatable", RESIZE_PENDING, *LEAVING_CONDITIONS}
)
_KNOWN_GROUPS = BUILT_IN | {"policy", "autoscaling", "argoproj.io", gangs.VOLCANO.rstrip("/")}
_VERSION = re.compile(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?")
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


_WORD = re.compile(r"[A-Za-z0-9.+-][A-Za-z0-9./:+%_-]{0,252}|")
"""What the API's own words, times, quantities and qualified names are made of; sentences are not."""


def same(value: Any, _: Naming) -> Any:
    """A number, a truth or one of the API's own words; what somebody wrote in their place is redacted."""
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else _REDACTED
    return value if isinstance(value, int | float) else None


def api_version(value: Any, naming: Naming) -> str | None:
    """Group and version of an object's kind. A group is a name, unless Kubernetes or a rule has it."""
    if not isinstance(value, str):
        return None
    group, slash, version = value.rpartition("/")
    if not slash or group in _KNOWN_GROUPS or group.endswith((".k8s.io", ".x-k8s.io")):
        return str(same(value, naming))
    return f"{naming.name(group)}/{version if _VERSION.fullmatch(version) else 'v1'}"


def name(value: Any, naming: Naming) -> str | None:
    """A name; an empty one is kept."""
    if not isinstance(value, str):
        return None
    return naming.name(value) if value else ""


def uid(value: Any, naming: Naming) -> str | None:
    """A uid."""
    return naming.uid(value) if isinstance(value, str) else None


def key(value: Any, naming: Naming) -> str | None:
    """The key of a label or taint; the empty key of a toleration, which means all keys, is kept."""
    if not isinstance(value, str):
        return None
    return naming.key(value) if value else ""


def image(value: Any, naming: Naming) -> str | None:
    """The image of a container."""
    return naming.image(value) if isinstance(value, str) and value else None


def resource(value: Any, naming: Naming) -> str:
    """The name of a resource, which may hold that of a device class; what is no name is redacted."""
    text = str(value)
    if text.startswith(IMPLICIT):
        return IMPLICIT + naming.name(text.removeprefix(IMPLICIT))
    return naming.resource(text) if _WORD.fullmatch(text) else _REDACTED


def address(value: Any, naming: Naming) -> str | None:
    """The address of a host; the one that means all interfaces is kept."""
    return value if value in _ANY_ADDRESS else name(value, naming)


def labels(value: Any, naming: Naming) -> dict[str, str] | None:
    """Labels, or a mapping that selects labels."""
    if not isinstance(value, dict):
        return None
    pairs = ((k, v) for k, v in value.items() if isinstance(v, str))
    return {naming.key(k): naming.value(k, v) if v else "" for k, v in pairs}


def fields(**rules: Rule) -> Rule:
    """An object of which these fields are kept."""

    def apply(value: Any, naming: Naming) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        made = ((f, rule(value[f], naming)) for f, rule in rules.items() if value.get(f) is not None)
        return {f: v for f, v in made if v is not None}

    return apply


def each(rule: Rule) -> Rule:
    """A list to whose items a rule applies."""

    def apply(value: Any, naming: Naming) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        return [v for v in (rule(item, naming) for item in value) if v is not None]

    return apply


def keyed(names: Rule) -> Rule:
    """An object whose keys follow a rule and whose values are kept."""

    def apply(value: Any, naming: Naming) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        found = ((k, same(v, naming)) for k, v in value.items())
        return {names(k, naming): v for k, v in found if v is not None}

    return apply


def requirement(value: Any, naming: Naming) -> dict[str, Any] | None:
    """A requirement with key, operator and values; also a toleration or taint with its single value."""
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
    """Those that policy, planner or engine read, with values that mean something to them; of others, which
    people write for people, stays that there was one."""
    if not isinstance(value, dict):
        return None
    found = {
        k: v if _MEANS_SOMETHING.fullmatch(v.strip()) else _REDACTED
        for k, v in value.items()
        if isinstance(v, str) and k in _READ_ANNOTATIONS
    }
    for k in _NAMING_ANNOTATIONS & value.keys():
        if (renamed := name(value[k], naming)) is not None:
            found[k] = renamed
    return found or None


_NAMING_ANNOTATIONS = frozenset(
    {"volume.kubernetes.io/selected-node", BETA_CLASS, *gangs.ANNOTATIONS, *QUEUES}
)
_READ_ANNOTATIONS = frozenset(
    {
        *STEERING,
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "deployment.kubernetes.io/revision",
        "storageclass.kubernetes.io/is-default-class",
        BIND_COMPLETED,
        PAUSE,
    }
)
_MEANS_SOMETHING = re.compile(
    r"true|false|yes|no|allow|deny|prefer|avoid|never|api|file|http"
    r"|[+-]?[0-9]{1,20}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{1,15}(Z|[+-][0-9:]{2,5})?)?|",
    re.IGNORECASE,
)


def condition(value: Any, naming: Naming) -> dict[str, Any] | None:
    """A condition of the API. A message is kept only as the fact that there is one."""
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
    """The images on a node that a pod uses."""
    found = []
    for item in value if isinstance(value, list) else ():
        every = item.get("names") if isinstance(item, dict) else None
        used = [naming.present_image(n) for n in every or () if isinstance(n, str)]
        if kept := list(dict.fromkeys(n for n in used if n is not None)):
            found.append({"names": kept, "sizeBytes": item.get("sizeBytes") or 0})
    return found


def quota(value: Any, naming: Naming) -> str:
    """The limits of a quota; a limit on a storage class contains the name of the class."""
    storage_class, mark, rest = str(value).partition(".storageclass.storage.k8s.io/")
    return f"{naming.name(storage_class)}{mark}{rest}" if mark else naming.resource(str(value))
