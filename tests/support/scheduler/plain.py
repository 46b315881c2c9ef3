"""Kubernetes JSON read in the plainest way: quantities, selectors, affinity, tolerations, requests.

Part of the judge: it shares no rule with the package under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

Json = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

_FACTORS = {
    **{s: Fraction(1024) ** (i + 1) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{s: Fraction(1000) ** (i + 1) for i, s in enumerate(("k", "M", "G", "T", "P", "E"))},
    "m": Fraction(1, 1000),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
}


@lru_cache(maxsize=4096)
def quantity(text: str | int | float) -> Fraction:
    """The exact value of a quantity in base units."""
    text = str(text)
    for suffix, factor in _FACTORS.items():
        if text.endswith(suffix):
            return Fraction(text[: -len(suffix)]) * factor
    return Fraction(text)


def amount(resource: str, text: str | int | float) -> int:
    """Millicores for cpu, whole units for everything else, rounded up."""
    return ceil(quantity(text) * (1000 if resource == "cpu" else 1))


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """A resource list as integers."""
    return {name: amount(name, q) for name, q in (quantities or {}).items()}


def requests(pod: Json) -> dict[str, int]:
    """What a pod takes of its node, the pod itself ("pods": 1) among it."""
    spec = pod["spec"]
    total: dict[str, int] = {}
    for container in spec.get("containers", ()):
        for name, value in _asked(container).items():
            total[name] = total.get(name, 0) + value
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers", ()):
        asked = _asked(container)
        together = {n: sidecars.get(n, 0) + asked.get(n, 0) for n in {*sidecars, *asked}}
        for name, value in together.items():
            peak[name] = max(peak.get(name, 0), value)
        if container.get("restartPolicy") == "Always":
            sidecars = together
    for name, value in sidecars.items():
        total[name] = total.get(name, 0) + value
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    total.update(amounts((spec.get("resources") or {}).get("requests")))
    for name, value in amounts(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    total["pods"] = 1
    return total


def _asked(container: Json) -> dict[str, int]:
    return amounts((container.get("resources") or {}).get("requests"))


def labels_of(thing: Json) -> dict[str, str]:
    """Labels of any object."""
    return thing["metadata"].get("labels") or {}


def namespace_of(thing: Json) -> str:
    """Namespace of a namespaced object."""
    return thing["metadata"].get("namespace") or "default"


def key_of(pod: Json) -> str:
    """namespace/name."""
    return f"{namespace_of(pod)}/{pod['metadata']['name']}"


def holds(expression: Json, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy one matchExpressions entry of a label or node selector."""
    value, wanted = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not _integer(value) or len(wanted) != 1 or not _integer(wanted[0]):
                return False
            return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
    raise ValueError(f"operator {expression['operator']}")


def _integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit()


def expressions(selector: Json) -> list[Json]:
    """A label selector with its matchLabels written as expressions."""
    pairs = (selector.get("matchLabels") or {}).items()
    written = [{"key": k, "operator": "In", "values": [v]} for k, v in pairs]
    return written + list(selector.get("matchExpressions") or ())


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    return all(holds(e, labels) for e in expressions(selector))


def admits(pod: Json, node: Json) -> bool:
    """Whether the pod's nodeSelector and required node affinity admit the node."""
    spec, labels = pod["spec"], labels_of(node)
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: Json, node: Json) -> bool:
    on_labels, on_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not on_labels and not on_fields:
        return False
    fields = {"metadata.name": node["metadata"]["name"]}
    return all(holds(e, labels_of(node)) for e in on_labels) and all(holds(e, fields) for e in on_fields)


def volume_reaches(volume: Json, node: Json) -> bool:
    """Whether a PersistentVolume's node affinity admits the node."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or any(_term_matches(t, node) for t in required.get("nodeSelectorTerms") or ())


def tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    """Whether one of the tolerations covers the taint."""
    for t in tolerations:
        if t.get("effect") and t["effect"] != taint["effect"]:
            continue
        if t.get("key") and t["key"] != taint["key"]:
            continue
        if t.get("operator") == "Exists":
            return True
        if t.get("operator", "Equal") in ("", "Equal") and t.get("value", "") == taint.get("value", ""):
            return True
    return False


def untolerated(pod: Json, node: Json) -> list[Json]:
    """NoSchedule and NoExecute taints of the node that the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or ()
    return [
        taint
        for taint in node["spec"].get("taints") or ()
        if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint)
    ]


def finished(pod: Json) -> bool:
    """Succeeded or Failed: out of the scheduler's view."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def terminating(pod: Json) -> bool:
    """Being deleted."""
    return pod["metadata"].get("deletionTimestamp") is not None


def node_of(pod: Json) -> str:
    """The node that it is assigned to, "" while it is Pending."""
    return pod["spec"].get("nodeName") or ""


def controller_of(thing: Json) -> Json | None:
    """The owner reference of the controller."""
    return next((o for o in thing["metadata"].get("ownerReferences") or () if o.get("controller")), None)


def ready(pod: Json) -> bool:
    """Whether its Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
