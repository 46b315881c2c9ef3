"""What only `lint` looks for: it has no nodes to compare with, and reads what people write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import StrEnum

from rebalancer.findings.paste import yaml_of
from rebalancer.findings.subject import Subject
from rebalancer.model.finding import Finding, Severity

_KEYS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/hostname",
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
_SHORT = {"zone": _KEYS[0], "region": _KEYS[1], "hostname": _KEYS[2]}
_FORMER = {
    "failure-domain.beta.kubernetes.io/zone": _KEYS[0],
    "failure-domain.beta.kubernetes.io/region": _KEYS[1],
}
_CLOSE = 0.85


class LintCode(StrEnum):
    """Findings of `lint` alone."""

    UNREADABLE = "unreadable-manifest"
    INVALID = "invalid-manifest"
    DUPLICATE_KEY = "duplicate-key"
    KEY_TYPO = "topology-key-typo"
    NO_SPREAD = "no-spread"


def checks(subjects: Iterable[Subject]) -> Iterator[Finding]:
    """Findings of all workloads."""
    for s in subjects:
        if s.replicated and not s.template.spread:
            yield _no_spread(s)
        for i, c in enumerate(s.template.spread):
            if meant := _meant(c.topology_key):
                field = f"{s.pod_spec}.topologySpreadConstraints[{i}].topologyKey"
                yield Finding(
                    Severity.WARNING,
                    LintCode.KEY_TYPO.value,
                    s.object,
                    f"{c.topology_key!r} is no label that nodes usually have; {meant} is meant?",
                    f"topologyKey: {meant}",
                    field,
                )


def _meant(key: str) -> str:
    """The well-known key that a key resembles, "" if it is one or resembles none."""
    if key in _KEYS:
        return ""
    if key in _SHORT or key in _FORMER:
        return _SHORT.get(key) or _FORMER[key]
    found = get_close_matches(key, _KEYS, 1, _CLOSE)
    return found[0] if found else ""


def _no_spread(s: Subject) -> Finding:
    constraint = {
        "maxSkew": 1,
        "topologyKey": _KEYS[0],
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": s.own_labels},
    }
    return Finding(
        Severity.WARNING,
        LintCode.NO_SPREAD.value,
        s.object,
        f"{s.most} pods without a spread constraint: the scheduler's defaults decide, which are soft",
        f"# {s.pod_spec}\n" + yaml_of({"topologySpreadConstraints": [constraint]}),
        s.pod_spec,
    )
