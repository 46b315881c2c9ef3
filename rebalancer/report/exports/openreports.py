"""The report as objects of openreports.io, which viewers of policy reports show: `… | kubectl apply -f -`.

One Report for each namespace and a ClusterReport for what belongs to none, as a List.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from rebalancer.report.document import ConstraintReport, FindingReport, Report
from rebalancer.report.wording import text

API_VERSION = "openreports.io/v1alpha1"
_SOURCE = "rebalancer"
_LONGEST = 1024
_MOST_RESULTS = 1000
"""Of one report: with more it could become larger than what an API server stores."""
_WORST_FIRST = {"error": 0, "fail": 1, "warn": 2, "skip": 3, "pass": 4}
_SEVERITIES = {"error": "high", "warning": "medium", "info": "info"}
_RESULTS = {"error": "fail", "warning": "warn", "info": "skip"}
_APPS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
_API = {
    **dict.fromkeys(_APPS, "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    "PodDisruptionBudget": "policy/v1",
    **dict.fromkeys(("Pod", "Node", "Namespace", "ReplicationController"), "v1"),
}
Json = dict[str, Any]


def to_openreports(report: Report) -> Json:
    """A List of objects to apply."""
    when = {"seconds": int(datetime.fromisoformat(report.generated_at).timestamp()), "nanos": 0}
    by: dict[str, list[Json]] = {"": []}
    for c in report.constraints:
        if c.in_scope:
            by.setdefault(c.namespace, []).append({**_constraint(c), "timestamp": when})
    for f in report.findings:
        parts = f.object.split("/")
        by.setdefault(parts[1] if len(parts) == 3 else "", []).append({**_finding(f), "timestamp": when})
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [_object(namespace, results) for namespace, results in sorted(by.items())],
    }


def _object(namespace: str, results: list[Json]) -> Json:
    labels = {"app.kubernetes.io/managed-by": _SOURCE}
    counts = Counter(r["result"] for r in results)
    kept = sorted(results, key=lambda r: _WORST_FIRST[r["result"]])[:_MOST_RESULTS]
    return {
        "apiVersion": API_VERSION,
        "kind": "Report" if namespace else "ClusterReport",
        "metadata": {
            "name": "topology-spread",
            **({"namespace": namespace} if namespace else {}),
            "labels": labels,
        },
        "source": _SOURCE,
        "summary": {k: counts[k] for k in ("pass", "fail", "warn", "error", "skip")},
        "results": kept,
    }


def _constraint(c: ConstraintReport) -> Json:
    said = f"{text.short_key(c.topology_key)}: skew {c.skew}, maxSkew {c.max_skew}: {text.change(c)}"
    if c.reasons and c.residual_excess:
        said += f"; excess {c.residual_excess} stays: {c.reasons[0].message}"
    return _result(
        "topology-spread-constraint",
        c.topology_key,
        "fail" if c.excess else "pass",
        "high" if c.residual_excess else "medium" if c.excess else "info",
        said,
        [_reference(c.namespace, w) for w in c.workloads],
        {
            "status": c.status,
            "excess": str(c.excess),
            "residualExcess": str(c.residual_excess),
            "worstDomainLoss": text.percent(c.worst_domain_loss),
            "bestDomainLoss": text.percent(c.best_domain_loss),
        },
    )


def _finding(f: FindingReport) -> Json:
    kind, _, rest = f.object.partition("/")
    namespace, _, name = rest.rpartition("/")
    severity = f.severity.value
    more = {"remedy": f.remedy[:_LONGEST]} if f.remedy else {}
    subject = _reference(namespace, f"{kind}/{name}")
    return _result(f.code, f.field, _RESULTS[severity], _SEVERITIES[severity], f.says, [subject], more)


def _result(
    policy: str,
    rule: str,
    result: str,
    severity: str,
    message: str,
    subjects: list[Json],
    properties: dict[str, str],
) -> Json:
    found: Json = {
        "source": _SOURCE,
        "policy": policy,
        **({"rule": rule} if rule else {}),
        "category": "Availability",
        "severity": severity,
        "result": result,
        "scored": True,
        "message": text.clean(message)[:_LONGEST],
    }
    if subjects:
        found["resources"] = subjects
    if properties:
        found["properties"] = properties
    return found


def _reference(namespace: str, workload: str) -> Json:
    kind, name = workload.partition("/")[0], workload.rpartition("/")[2]
    found = {"apiVersion": _API[kind]} if kind in _API else {}
    return {**found, "kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}
