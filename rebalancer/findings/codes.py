"""The findings by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.findings.survey import Subject
from rebalancer.model.node import Node
from rebalancer.model.pod import TopologySpreadConstraint
from rebalancer.model.reason import Change, Finding, Severity
from rebalancer.model.selectors import LabelSelector
from rebalancer.yaml import to_yaml


class FindingCode(StrEnum):
    """Every finding; the same word in report, lint and documentation."""

    # What the constraint selects.
    SELECTOR_MISSES_OWN_PODS = "selector-misses-own-pods"
    SELECTOR_COUNTS_NOTHING = "selector-counts-nothing"
    NO_REVISION_LABEL = "no-revision-label"
    MIXED_CONSTRAINTS = "mixed-constraints"
    # Whether it has an effect.
    NO_EFFECT = "no-effect"
    HOSTNAME_ONLY = "hostname-only"
    ONLY_SOFT = "only-soft"
    # The nodes and domains that it needs.
    TOPOLOGY_KEY_MISSING = "topology-key-missing"
    TOPOLOGY_KEY_PARTIAL = "topology-key-partial"
    INCONSISTENT_NODE_LABELS = "inconsistent-node-labels"
    MIN_DOMAINS_UNREACHABLE = "min-domains-unreachable"
    MIN_DOMAINS_SOFT = "min-domains-soft"
    DOMAIN_UNAVAILABLE = "domain-unavailable"
    DOMAIN_FULL = "domain-full"
    # What it cannot be joined with.
    CONTRADICTING_CONSTRAINTS = "contradicting-constraints"
    AFFINITY_CONTRADICTS_SPREAD = "affinity-contradicts-spread"
    PINNED_BY_ZONAL_VOLUMES = "pinned-by-zonal-volumes"
    # What they come to where the pods are now.
    CANNOT_BE_REPLACED = "cannot-be-replaced"
    # What the scheduler makes of other rules.
    NAMESPACE_SELECTOR_IGNORED = "namespace-selector-ignored"
    NEWER_VERSION = "newer-version"
    # Disruption budgets.
    NO_PDB = "no-pdb"
    MULTIPLE_PDBS = "multiple-pdbs"
    PDB_NEVER_ALLOWS = "pdb-never-allows"
    # Protections that do not say what they were meant to say.
    UNCLEAR_ANNOTATION = "unclear-annotation"
    MATCHES_NOTHING = "matches-nothing"
    # Who is to place the replacements.
    SCHEDULER_SILENT = "scheduler-silent"
    # Pods between two states.
    RELEASED_POD = "released-pod"


def finding(
    severity: Severity,
    code: FindingCode,
    subject: Subject,
    message: str,
    remedy: str = "",
    field: str = "",
    numbers: Mapping[str, int] | None = None,
) -> Finding:
    """A finding about a workload; `field` is relative to its pod spec."""
    where = f"{subject.pod_spec}.{field}" if field else ""
    return Finding(severity, code.value, subject.object, message, remedy, where, numbers or {})


class Proposed(Struct, frozen=True, eq=False, kw_only=True):
    """A finding, and changes that may help: they are replayed before one is printed. Its own `remedy` stands
    if none helps. `anew`: it says that the pods cannot all be placed, which is replayed with all of them
    placed anew."""

    finding: Finding
    subject: Subject
    changes: tuple[Change, ...]
    anew: bool = False


# Remedies as YAML to paste.

Yaml = dict[str, Any]


def yaml_of(value: Yaml | list[Yaml]) -> str:
    """A remedy's YAML, without the last line's end."""
    return to_yaml(value).removesuffix("\n")


def entry(subject: Subject, index: int, **changes: Any) -> str:
    """One constraint of the workload with changed fields, by the API's names; None leaves one out."""
    return _at(subject, index, {**as_written(subject.template.spread[index]), **changes})


def changed_entry(subject: Subject, change: Change) -> str:
    """`entry` of a change."""
    assert isinstance(change.after, TopologySpreadConstraint)
    return _at(subject, change.index, as_written(change.after))


def _at(subject: Subject, index: int, made: Yaml) -> str:
    made = {k: v for k, v in made.items() if v is not None}
    return f"# {subject.pod_spec}.topologySpreadConstraints[{index}]\n" + yaml_of([made])


def added(subject: Subject, constraint: Yaml) -> str:
    """A further constraint for the workload."""
    return f"# one more in {subject.pod_spec}.topologySpreadConstraints\n" + yaml_of([constraint])


def shown(value: TopologySpreadConstraint | Node | None) -> Yaml:
    """What a change makes, or finds, by the API's field names; of a node what decides who may go there."""
    if isinstance(value, Node):
        return {"kind": "Node", "metadata": {"name": value.name}, "spec": msgspec.to_builtins(value.spec)}
    return as_written(value) if value is not None else {}


def as_written(c: TopologySpreadConstraint) -> Yaml:
    """A constraint by the API's field names, defaults left out."""
    made: Yaml = {
        "maxSkew": c.max_skew,
        "topologyKey": c.topology_key,
        "whenUnsatisfiable": c.when_unsatisfiable,
    }
    if c.label_selector is not None:
        made["labelSelector"] = selector_as_written(c.label_selector)
    if c.match_label_keys:
        made["matchLabelKeys"] = list(c.match_label_keys)
    if c.min_domains is not None:
        made["minDomains"] = c.min_domains
    if c.node_affinity_policy != "Honor":
        made["nodeAffinityPolicy"] = c.node_affinity_policy
    if c.node_taints_policy != "Ignore":
        made["nodeTaintsPolicy"] = c.node_taints_policy
    return made


def selector_as_written(selector: LabelSelector) -> Yaml:
    """A label selector by the API's field names."""
    made: Yaml = {}
    if selector.match_labels:
        made["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        made["matchExpressions"] = [
            {"key": e.key, "operator": e.operator, **({"values": list(e.values)} if e.values else {})}
            for e in selector.match_expressions
        ]
    return made
