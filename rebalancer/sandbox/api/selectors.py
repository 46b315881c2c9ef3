"""Label and field selectors: as query strings, and labels also as the objects that specs carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rebalancer.model.selectors import Requirement
from rebalancer.sandbox.api.errors import bad_request
from rebalancer.sandbox.api.resources import Resource


class Comparison(NamedTuple):
    """`key>bound`, `key<bound`: known to query strings only, not to the selectors of specs."""

    key: str
    greater: bool
    bound: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        try:
            number, bound = int(labels.get(self.key, "")), int(self.bound)
        except ValueError:
            return False
        return number > bound if self.greater else number < bound


LabelSelector = tuple[Requirement | Comparison, ...]


def matches(selector: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """An empty selector matches everything."""
    return all(requirement.matches(labels or {}) for requirement in selector)


_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_COMPARE = re.compile(r"^(?P<key>[^\s=!<>]+)\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[^\s=!<>]*)$")
_KEY = re.compile(r"^(!?)\s*([A-Za-z0-9][-A-Za-z0-9_./]*)$")


def _split(text: str) -> list[str]:
    """At the commas that are not inside parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def parse_labels(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`; ApiError 400 where it does not parse."""
    if not text.strip():
        return ()
    found: list[Requirement | Comparison] = []
    for part in _split(text):
        if match := _SET.match(part):
            values = tuple(value.strip() for value in match["values"].split(","))
            found.append(Requirement(match["key"], "In" if match["op"] == "in" else "NotIn", values))
        elif match := _COMPARE.match(part):
            key, word, value = match["key"], match["op"], match["value"]
            if word in "<>":
                found.append(Comparison(key, word == ">", value))
            else:
                found.append(Requirement(key, "NotIn" if word == "!=" else "In", (value,)))
        elif match := _KEY.match(part):
            found.append(Requirement(match[2], "DoesNotExist" if match[1] else "Exists"))
        else:
            raise bad_request(f"unable to parse requirement: found '{part}', expected: identifier")
    return tuple(found)


def from_object(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """A `LabelSelector` of a spec: None (matches nothing) for null, () (matches all) for `{}`."""
    if selector is None:
        return None
    found = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    found += [
        Requirement(term["key"], term["operator"], tuple(term.get("values") or ()))
        for term in selector.get("matchExpressions") or ()
    ]
    return tuple(found)


_EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
    "reason", "reportingComponent", "source", "type",
)  # fmt: skip
# What each kind supports beside metadata.name and metadata.namespace (pkg/apis/*/v1/conversion.go).
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
             "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": _EVENT_FIELDS,
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicationcontrollers": ("status.replicas",),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
}  # fmt: skip
# events.k8s.io names some fields otherwise.
_ALIAS = {"reportingController": "reportingComponent", "regarding.kind": "involvedObject.kind",
          "regarding.namespace": "involvedObject.namespace", "regarding.name": "involvedObject.name",
          "regarding.uid": "involvedObject.uid"}  # fmt: skip

FieldTest = Callable[[dict[str, Any]], bool]


def _value(obj: dict[str, Any], path: Sequence[str]) -> str:
    found: Any = obj
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if not isinstance(found, dict) else str(found.get("component", ""))


def parse_fields(text: str, resource: Resource) -> tuple[FieldTest, ...]:
    """`spec.nodeName=a,status.phase!=Running`; ApiError 400 for a field that the kind does not index."""
    tests: list[FieldTest] = []
    supported = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.storage, ()))
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        label = _ALIAS.get(match[1], match[1]) if resource.plural == "events" else match[1]
        if label not in supported:
            if resource.storage in _FIELDS:
                raise bad_request(f"field label not supported: {label}")
            only = 'only "metadata.name", "metadata.namespace"'
            raise bad_request(f'"{label}" is not a known field selector: {only}')
        # An unset boolean is false to the server, not empty.
        default = "false" if label in ("spec.unschedulable", "spec.hostNetwork") else ""
        tests.append(_field_test(tuple(label.split(".")), match[2] != "!=", match[3], default))
    return tuple(tests)


def _field_test(path: tuple[str, ...], equal: bool, wanted: str, default: str) -> FieldTest:
    if path == ("spec", "nodeName"):  # by far the most asked, over all pods: keep it cheap
        return lambda obj: ((obj.get("spec") or {}).get("nodeName", "") == wanted) is equal
    return lambda obj: ((_value(obj, path) or default) == wanted) is equal
