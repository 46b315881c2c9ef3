"""Label selectors and node selectors.

A `Selector` is canonical: two spellings of the same requirements compare and hash equal, which gives a
spread constraint its semantic identity. Rules: k8s.io/apimachinery/pkg/labels and
k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

LabelOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
NodeOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""What a label may have as its value. Rule: apimachinery's validation, ``IsValidLabelValue``."""


class LabelSelectorRequirement(Struct, frozen=True, rename="camel"):
    """One `matchExpressions` entry as written."""

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, rename="camel", eq=False):
    """metav1.LabelSelector as written; `canonical` gives it a meaning."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Requirement(Struct, frozen=True, order=True):
    """One canonical requirement; `values` sorted, unique, empty for Exists and DoesNotExist."""

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a label set satisfies it; NotIn and DoesNotExist hold where the key is absent."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "Exists")

    def __str__(self) -> str:
        """The requirement in kubectl's -l syntax."""
        if self.operator == "In":
            if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            return f"{self.key} in ({','.join(self.values)})"
        if self.operator == "NotIn":
            return f"{self.key} notin ({','.join(self.values)})"
        return self.key if self.operator == "Exists" else f"!{self.key}"


class Selector(Struct, frozen=True, order=True):
    """Requirements that must all hold, in canonical order. Without a requirement it matches everything.

    What an *absent* or an *empty* selector means depends on where it is used, so the callers decide: for
    spread both match nothing; for budgets and inter-pod affinity an absent one matches nothing and an empty
    one all. `everything`: it has no requirement, and selects all whoever uses it.
    """

    requirements: tuple[Requirement, ...] = ()
    everything: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is no requirement at all, so that who uses it decides."""
        return not self.requirements and not self.everything

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a label set satisfies every requirement."""
        for r in self.requirements:  # noqa: SIM110  a loop takes half the time, and this is asked most of all
            if not r.matches(labels):
                return False
        return True

    def __str__(self) -> str:
        """The selector in kubectl's -l syntax; "" when it is empty."""
        return ",".join(str(r) for r in self.requirements)

    @staticmethod
    def of(*requirements: Requirement) -> Selector:
        """Canonical form: sorted, duplicates merged, several In of one key intersected."""
        allowed: dict[str, set[str]] = {}
        rest: set[Requirement] = set()
        for r in requirements:
            if r.operator == "In":
                values = set(r.values)
                allowed[r.key] = allowed[r.key] & values if r.key in allowed else values
            else:
                rest.add(Requirement(r.key, r.operator, tuple(sorted(set(r.values)))))
        merged = {Requirement(k, "In", tuple(sorted(v))) for k, v in allowed.items()}
        return Selector(tuple(sorted(merged | rest)))

    @staticmethod
    def equals(labels: Mapping[str, str]) -> Selector:
        """The selector that asks for exactly these label values."""
        return Selector.of(*(Requirement(k, "In", (v,)) for k, v in labels.items()))

    def also(self, *requirements: Requirement) -> Selector:
        """This selector and further requirements."""
        return Selector.of(*self.requirements, *requirements)


@lru_cache(16_384)
def canonical(selector: LabelSelector) -> Selector:
    """What a LabelSelector as written means; remembered, as each is asked about again and again."""
    return Selector.of(
        *(Requirement(k, "In", (v,)) for k, v in selector.match_labels.items()),
        *(Requirement(e.key, e.operator, e.values) for e in selector.match_expressions),
    )


class NodeSelectorRequirement(Struct, frozen=True, rename="camel"):
    """One requirement on a node's labels, or on its fields (`metadata.name` only)."""

    key: str
    operator: NodeOperator
    values: tuple[str, ...] = ()

    @property
    def possible(self) -> bool:
        """Whether labels can have its values. API servers from 1.33 on ask that of required node affinity."""
        return all(map(LABEL_VALUE.fullmatch, self.values))

    @property
    def parses(self) -> bool:
        """Whether the scheduler can read it, as one on labels. Rule: labels.NewRequirement."""
        if self.operator == "Gt" or self.operator == "Lt":
            return len(self.values) == 1 and _integer(self.values[0]) is not None and self.possible
        return bool(self.values) == (self.operator in ("In", "NotIn")) and self.possible

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node's labels satisfy it; Gt and Lt compare integers and fail on anything else."""
        value = labels.get(self.key)
        if self.operator == "Gt" or self.operator == "Lt":
            have, want = _integer(value), _integer(self.values[0] if len(self.values) == 1 else None)
            if have is None or want is None:
                return False
            return have > want if self.operator == "Gt" else have < want
        return Requirement(self.key, self.operator, self.values).matches(labels)

    def __str__(self) -> str:
        """The requirement in words, as it is written."""
        return " ".join((self.key, self.operator, *self.values))


class NodeSelectorTerm(Struct, frozen=True, rename="camel"):
    """Requirements that must all hold; a term without any, or with one that does not parse, matches no node.

    Rule: component-helpers' nodeaffinity.go, ``newNodeSelectorTerm``.
    """

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()

    @property
    def unread(self) -> tuple[NodeSelectorRequirement, ...]:
        """Requirements that the scheduler cannot read."""
        fields = (r for r in self.match_fields if r.operator not in ("In", "NotIn") or len(r.values) != 1)
        return (*(r for r in self.match_expressions if not r.parses), *fields)

    @property
    def selects(self) -> bool:
        """Whether it may match a node at all."""
        return bool(self.match_expressions or self.match_fields) and not self.unread

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node of this name and these labels satisfies the term."""
        if not self.selects:
            return False
        fields = {"metadata.name": name}
        return all(r.matches(labels) for r in self.match_expressions) and all(
            r.matches(fields) for r in self.match_fields
        )


class NodeSelector(Struct, frozen=True, rename="camel"):
    """Terms of which at least one must hold; without any term no node matches."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node of this name and these labels satisfies one of the terms."""
        return any(t.matches(name, labels) for t in self.node_selector_terms)


def _integer(text: str | None) -> int | None:
    """Go's strconv.ParseInt(text, 10, 64); None where it fails."""
    if text is None or not text.lstrip("+-").isascii() or not text.lstrip("+-").isdecimal():
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None
