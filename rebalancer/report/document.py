"""The report's content. Every format renders this and nothing else; as JSON it is a public interface.

Names are those of `rebalancer/v1`; fields may be added, never renamed. Everything but `generatedAt` and
`summary.seconds` follows from the snapshot and the settings alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from heapq import merge

from msgspec import Struct, field

from rebalancer.model.reason import Reason
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner.findings import order
from rebalancer.planner.plan import ConstraintResult, Finding, Move, Plan, Severity, Status
from rebalancer.report.risk import Risk, risks

API_VERSION = "rebalancer/v1"


class Summary(Struct, frozen=True, rename="camel"):
    """Figures of the whole cluster. `violated`, `excess` and `residual_excess` are over the constraints in
    scope; `lower_bound`: no plan needs fewer evictions for the best final state."""

    nodes: int
    pods: int
    constraints: int
    violated: int
    excess: int
    evictions: int
    lower_bound: int
    optimal: bool
    residual_excess: int
    seconds: float


class Why(Struct, frozen=True, rename="camel"):
    """A reason with its figures."""

    code: str
    message: str
    numbers: dict[str, int]
    remedy: str


class ConstraintReport(Struct, frozen=True, rename="camel"):
    """A constraint now and after the plan. `selector` in kubectl's -l syntax, None if absent.

    `worst_domain_loss`: share of its pods that go with the fullest domain; `best_domain_loss`: the smallest
    that any placement could have.
    """

    namespace: str
    workloads: tuple[str, ...]
    selector: str | None
    topology_key: str
    max_skew: int
    min_domains: int
    when_unsatisfiable: str
    domains: dict[str, int]
    after: dict[str, int]
    skew: int
    excess: int
    residual_excess: int
    status: Status
    reasons: tuple[Why, ...]
    worst_domain_loss: float
    best_domain_loss: float
    in_scope: bool


class Destination(Struct, frozen=True, rename="camel"):
    """Where the replacement can land: `certain` = nowhere else. `predicted`: what the plan counts with."""

    nodes: tuple[str, ...]
    certain: bool
    predicted: str


class Fix(Struct, frozen=True, rename="camel"):
    """A constraint that an eviction helps: its index in `constraints`, the domain that the pod leaves and
    those that the replacement can land in, the predicted one first."""

    constraint: int
    topology_key: str
    source: str = field(name="from")
    targets: tuple[str, ...] = field(name="to")


class EvictionReport(Struct, frozen=True, rename="camel"):
    """One eviction of the plan; those of a wave may be in flight together. `owner` is Kind/name."""

    namespace: str
    pod: str
    uid: str
    owner: str
    node: str
    destination: Destination
    wave: int
    fixes: tuple[Fix, ...]
    reason: str


class BlockedReport(Struct, frozen=True, rename="camel"):
    """A pod that could have been evicted and is not."""

    namespace: str
    pod: str
    reason: str
    message: str
    remedy: str


class FindingReport(Struct, frozen=True, rename="camel"):
    """What no eviction cures. `remedy`: YAML to paste or a command; `field`: where in the object."""

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str
    field: str = ""


class Report(Struct, frozen=True, rename="camel", kw_only=True):
    """The whole report. `warnings`: what could not be read, and what follows from that."""

    api_version: str = API_VERSION
    kind: str = "Report"
    generated_at: str
    cluster: str
    source: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    summary: Summary
    constraints: tuple[ConstraintReport, ...]
    evictions: tuple[EvictionReport, ...]
    blocked: tuple[BlockedReport, ...]
    findings: tuple[FindingReport, ...]
    risks: tuple[Risk, ...] = ()

    @property
    def waves(self) -> dict[int, list[EvictionReport]]:
        """The evictions by wave, waves in order."""
        waves: dict[int, list[EvictionReport]] = {}
        for eviction in sorted(self.evictions, key=lambda e: e.wave):
            waves.setdefault(eviction.wave, []).append(eviction)
        return waves


def build_report(
    plan: Plan,
    snapshot: Snapshot,
    *,
    generated_at: float,
    seconds: float,
    cluster: str = "",
    around: Iterable[Finding] = (),
) -> Report:
    """The report of a plan for a snapshot.

    `generated_at` in seconds since the epoch, `seconds` what reading and planning took, `cluster` the name
    of the context ("" for files), `around` findings that are none of the plan's: of others that move pods.
    """
    labels = {n.name: n.labels for n in snapshot.nodes}
    return Report(
        generated_at=rfc3339(generated_at),
        cluster=cluster,
        source=snapshot.source,
        assumptions=plan.assumptions,
        warnings=snapshot.warnings,
        summary=Summary(
            nodes=len(snapshot.nodes),
            pods=len(snapshot.pods),
            constraints=len(plan.constraints),
            violated=plan.violated,
            excess=plan.excess,
            evictions=len(plan.moves),
            lower_bound=plan.lower_bound,
            optimal=plan.optimal,
            residual_excess=plan.residual_excess,
            seconds=round(seconds, 3),
        ),
        constraints=tuple(map(_constraint, plan.constraints)),
        evictions=tuple(
            _eviction(move, plan, labels)
            for move in sorted(plan.moves, key=lambda m: (m.wave, m.pod.namespace, m.pod.name))
        ),
        blocked=tuple(
            BlockedReport(b.pod.namespace, b.pod.name, b.reason.code.value, b.reason.message, b.reason.remedy)
            for b in sorted(plan.blocked, key=lambda b: (b.pod.namespace, b.pod.name, b.reason.code))
        ),
        findings=tuple(
            FindingReport(f.severity, f.code, f.object, f.message, f.remedy, f.field)
            for f in merge(plan.findings, sorted(around, key=order), key=order)
        ),
        risks=risks(plan, snapshot),
    )


def rfc3339(seconds: float) -> str:
    """A time as the API writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _constraint(result: ConstraintResult) -> ConstraintReport:
    c = result.constraint
    return ConstraintReport(
        namespace=c.namespace,
        workloads=result.workloads,
        selector=str(c.selector) if c.selector is not None else None,
        topology_key=c.topology_key,
        max_skew=c.max_skew,
        min_domains=c.min_domains,
        when_unsatisfiable=c.when_unsatisfiable,
        domains=result.domains,
        after=result.after,
        skew=result.skew,
        excess=result.excess,
        residual_excess=result.residual_excess,
        status=result.status,
        reasons=tuple(map(_why, result.reasons)),
        worst_domain_loss=round(result.worst_domain_loss, 4),
        best_domain_loss=round(result.best_domain_loss, 4),
        in_scope=result.in_scope,
    )


def _why(reason: Reason) -> Why:
    return Why(reason.code.value, reason.message, dict(reason.numbers), reason.remedy)


def _eviction(move: Move, plan: Plan, labels: Mapping[str, Mapping[str, str]]) -> EvictionReport:
    def domains(nodes: Iterable[str], key: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(labels.get(n, {}).get(key, "") for n in nodes))

    keys = [(i, plan.constraints[i].constraint.topology_key) for i in move.fixes]
    landing = (move.predicted, *move.destinations)
    return EvictionReport(
        namespace=move.pod.namespace,
        pod=move.pod.name,
        uid=move.pod.uid,
        owner=f"{move.owner.kind}/{move.owner.name}",
        node=move.pod.node_name,
        destination=Destination(move.destinations, move.certain, move.predicted),
        wave=move.wave,
        fixes=tuple(
            Fix(i, key, domains([move.pod.node_name], key)[0], domains(landing, key)) for i, key in keys
        ),
        reason=move.reason,
    )
