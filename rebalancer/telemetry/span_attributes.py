"""Constraints, moves and plans as attributes of spans."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rebalancer.model.reason import Finding
from rebalancer.model.snapshot import KindRead, Snapshot
from rebalancer.outcome import CycleReport, Eviction, Fate, Outcome
from rebalancer.planner.plan import ComponentFigures, ConstraintResult, Move, Plan, Refusal
from rebalancer.policy.budgets import Budgets

# Names of spans and attributes.
#
# `k8s.…`, `http.…`, `error.…` and `service.…` are OpenTelemetry's semantic conventions (registry: k8s,
# http, error, service); everything of our own is under `rebalancer.`. Durations are in seconds.

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that the names follow; all of them are stable there."""

# Spans. Never a pod's name in them: backends group by span name.
CYCLE = "cycle"
SNAPSHOT = "snapshot"
LIST = "list"
CACHE = "cache"
CONSTRAINTS = "constraints"
PLAN = "plan"
COMPONENT = "component"
WAVE = "wave"
EVICTION = "eviction"
REPLACEMENT = "replacement"

# Semantic conventions.
CLUSTER = "k8s.cluster.name"
NAMESPACE = "k8s.namespace.name"
NODE = "k8s.node.name"
POD = "k8s.pod.name"
POD_UID = "k8s.pod.uid"
OWNERS = {
    kind: f"k8s.{kind.lower()}.name"
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
}
"""Kind of an owner → its attribute; there is none for other kinds."""
STATUS_CODE = "http.response.status_code"
RESEND_COUNT = "http.request.resend_count"
ERROR_TYPE = "error.type"

# Our own.
TRACEPARENT = "rebalancer.io/traceparent"
"""Annotation of Evictions and events: the span that they belong to, as W3C Trace Context writes it."""


def own(name: str) -> str:
    """An attribute of our own."""
    return f"rebalancer.{name}"


Value = str | bool | int | float | Sequence[str]
Attributes = dict[str, Value]

NAMED = 5
"""Pods, nodes and domains that are named one by one; the rest is counted."""


def constraint_name(result: ConstraintResult) -> str:
    """shop Deployment/web over topology.kubernetes.io/zone, maxSkew 1."""
    c = result.constraint
    who = ", ".join(result.workloads) or "nobody"
    return f"{c.namespace} {who} over {c.topology_key}, maxSkew {c.max_skew}"


def counts(domains: Mapping[str, int]) -> str:
    """a=3 b=1; the fullest first where there are many."""
    if len(domains) <= 2 * NAMED:
        return " ".join(f"{name}={n}" for name, n in domains.items())
    fullest = sorted(domains.items(), key=lambda d: (-d[1], d[0]))[:NAMED]
    rest = f" … {len(domains) - NAMED} more, least {min(domains.values())}"
    return " ".join(f"{name}={n}" for name, n in fullest) + rest


def of_kind(read: KindRead) -> Attributes:
    """The list of one kind."""
    found: Attributes = {
        own("kind"): read.kind,
        own("objects"): read.objects,
        own("known"): read.known,
    }
    if read.age is not None:
        found[own("age")] = round(read.age, 3)
        return found
    found |= {
        own("pages"): read.pages,
        own("bytes"): read.bytes,
        own("seconds"): round(read.seconds, 6),
    }
    if read.retries:
        found[RESEND_COUNT] = read.retries
    return found


def of_snapshot(snapshot: Snapshot) -> Attributes:
    """A snapshot in figures."""
    return {
        own("nodes"): len(snapshot.nodes),
        own("pods"): len(snapshot.pods),
        own("bytes"): sum(r.bytes for r in snapshot.reads),
        own("pages"): sum(r.pages for r in snapshot.reads),
        own("server_version"): snapshot.server_version,
        own("warnings"): snapshot.warnings[:NAMED],
    }


def of_constraints(plan: Plan) -> Attributes:
    """How many constraints, by status."""
    status = Counter(c.status for c in plan.constraints if c.in_scope)
    return {
        own("constraints"): len(plan.constraints),
        own("constraints.violated"): plan.violated,
        own("excess"): plan.excess,
        **{own(f"constraints.{name}"): n for name, n in sorted(status.items())},
    }


def of_constraint(result: ConstraintResult) -> Attributes:
    """A violated constraint."""
    return {
        own("constraint"): constraint_name(result),
        own("domains"): counts(result.domains),
        own("after"): counts(result.after),
        own("skew"): result.skew,
        own("excess"): result.excess,
        own("excess.residual"): result.residual_excess,
        own("status"): result.status,
        own("reasons"): tuple(f"{r.code.value}: {r.message}" for r in result.reasons),
    }


def of_plan(plan: Plan) -> Attributes:
    """The plan in figures."""
    return {
        own("evictions"): len(plan.moves),
        own("waves"): len(plan.waves),
        own("lower_bound"): plan.lower_bound,
        own("gap"): max(0, len(plan.moves) - plan.lower_bound),
        own("optimal"): plan.optimal,
        own("excess"): plan.excess,
        own("excess.residual"): plan.residual_excess,
        own("blocked"): len(plan.blocked),
        own("assumptions"): plan.assumptions[:NAMED],
    }


def of_component(figures: ComponentFigures, plan: Plan) -> Attributes:
    """Constraints that share pods, and how they were solved."""
    return {
        own("constraints"): tuple(constraint_name(plan.constraints[g]) for g in figures.groups[:NAMED]),
        own("pods"): figures.pods,
        own("domains"): figures.domains,
        own("solver"): figures.solver,
        own("evictions"): figures.moves,
        own("lower_bound"): figures.bound,
        own("gap"): figures.gap,
        own("optimal"): figures.proved,
        own("excess.residual"): figures.residual,
        own("excess.least"): figures.least,
    }


def of_finding(finding: Finding) -> Attributes:
    """A finding."""
    return {
        own("code"): finding.code,
        own("severity"): finding.severity.value,
        own("object"): finding.object,
        own("message"): finding.message,
    }


def of_blocked(blocked: Sequence[Refusal]) -> list[Attributes]:
    """Why pods stay: for each reason the number of pods, and the first of them with their sentence."""
    by_code: dict[str, list[Refusal]] = defaultdict(list)
    for b in blocked:
        by_code[b.reason.code.value].append(b)
    return [
        {
            own("reason"): code,
            own("pods"): len(of_code),
            own("examples"): tuple(f"{b.pod.key}: {b.reason.message}" for b in of_code[:NAMED]),
        }
        for code, of_code in sorted(by_code.items())
    ]


def of_move(move: Move, snapshot: Snapshot, plan: Plan, budgets: Budgets) -> Attributes:
    """What is to be evicted, from where to where, and what for."""
    keys = dict.fromkeys(plan.constraints[i].constraint.topology_key for i in move.fixes)
    nodes = {n.name: n.labels for n in snapshot.nodes if n.name in (move.pod.node_name, *move.destinations)}
    there = [nodes.get(name, {}) for name in move.destinations]
    here = nodes.get(move.pod.node_name, {})
    found: Attributes = {
        NAMESPACE: move.pod.namespace,
        POD: move.pod.name,
        POD_UID: move.pod.uid,
        NODE: move.pod.node_name,
        own("owner"): f"{move.owner.kind}/{move.owner.name}",
        own("constraints"): tuple(constraint_name(plan.constraints[i]) for i in move.fixes),
        own("domain.from"): tuple(f"{k}={here.get(k, '')}" for k in keys),
        own("domain.to"): tuple(
            f"{k}={_few(sorted({labels[k] for labels in there if k in labels}))}" for k in keys
        ),
        own("node.predicted"): move.predicted,
        own("nodes.possible"): len(move.destinations),
        own("certain"): move.certain,
        own("method"): move.method.value,
        own("reason"): move.reason,
        own("pdb"): tuple(b.key.partition("/")[2] for b in budgets.of(move.pod)),
    }
    if move.owner.kind in OWNERS:
        found[OWNERS[move.owner.kind]] = move.owner.name
    return found


def of_eviction(eviction: Eviction) -> Attributes:
    """The result of an eviction."""
    found: Attributes = {
        own("result"): eviction.result.value,
        own("message"): eviction.message,
        own("attempts"): eviction.posts,
        own("read_back"): eviction.read_back,
    }
    if eviction.status:
        found[STATUS_CODE] = eviction.status
    if eviction.posts > 1:
        found[RESEND_COUNT] = eviction.posts - 1
    if eviction.error is not None and not eviction.evicted:
        found[ERROR_TYPE] = type(eviction.error).__name__
    return found


def of_replacement(outcome: Outcome) -> Attributes:
    """The replacement, its node, and how long it took."""
    found: Attributes = {
        NAMESPACE: outcome.move.pod.namespace,
        own("status"): outcome.status.value,
        own("message"): outcome.message,
        own("node.predicted"): outcome.move.predicted,
        own("prediction"): outcome.prediction,
    }
    if outcome.replacement:
        found[POD] = outcome.replacement.partition("/")[2]
    if outcome.node:
        found[NODE] = outcome.node
    if outcome.scheduled is not None:
        found[own("seconds.scheduled")] = round(outcome.scheduled, 3)
    if outcome.status is Fate.DONE and outcome.node:
        found[own("seconds.ready")] = round(outcome.seconds, 3)
    return found


def of_report(report: CycleReport) -> Attributes:
    """The cycle in figures."""
    found: Attributes = {
        own("end"): report.end.value,
        own("message"): report.message,
        own("plans"): report.plans,
        own("evicted"): report.evicted,
        own("failed"): report.failed,
        own("mispredicted"): report.mispredicted,
    }
    if report.first is not None:
        found[own("excess.before")] = report.first.excess
        found[own("lower_bound")] = report.first.lower_bound
    if report.last is not None:
        found[own("excess.after")] = report.last.excess
    return found


def _few(found: Sequence[str]) -> str:
    more = f" or {len(found) - NAMED} more" if len(found) > NAMED else ""
    return "|".join(found[:NAMED]) + more
