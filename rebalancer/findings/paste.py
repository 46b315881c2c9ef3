"""Remedies as YAML to paste."""

from __future__ import annotations

from typing import Any

from rebalancer.findings.subject import Subject
from rebalancer.model.pod import TopologySpreadConstraint
from rebalancer.model.selectors import LabelSelector
from rebalancer.yaml import to_yaml

Yaml = dict[str, Any]


def yaml_of(value: Yaml | list[Yaml]) -> str:
    """A remedy's YAML, without the last line's end."""
    return to_yaml(value).removesuffix("\n")


def entry(subject: Subject, index: int, **changes: Any) -> str:
    """One constraint of the workload with changed fields, by the API's names; None leaves one out."""
    written = subject.template.spread[index]
    changed = {k: v for k, v in {**as_written(written), **changes}.items() if v is not None}
    return f"# {subject.pod_spec}.topologySpreadConstraints[{index}]\n" + yaml_of([changed])


def added(subject: Subject, constraint: Yaml) -> str:
    """A further constraint for the workload."""
    return f"# one more in {subject.pod_spec}.topologySpreadConstraints\n" + yaml_of([constraint])


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
