"""The findings by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rebalancer.findings.subject import Subject
from rebalancer.model.finding import Finding, Severity


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
