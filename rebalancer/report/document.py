"""The content of the report. Every format renders this and nothing else; its JSON is a public interface.

The names belong to `rebalancer/v1`: fields may be added, but are never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType, field

from rebalancer.model.finding import Severity
from rebalancer.planner.plan import Status
from rebalancer.report.api_version import API_VERSION
from rebalancer.report.drilled.document import DrillReport
from rebalancer.report.failing_domains.grades import NamespaceGrade
from rebalancer.report.failing_domains.risk import Risk
from rebalancer.report.failing_domains.zones import DomainLoss
from rebalancer.report.pace import WaveReport
from rebalancer.report.room.document import RoomReport


class BetweenReport(Struct, frozen=True, rename="camel"):
    """How much excess stays that some placement would not have, for one cause: "not-placed", "forbidden",
    "not-walkable" or "search-gave-up"; `message` says it in words."""

    cause: str
    excess: int
    message: str


class Summary(Struct, frozen=True, rename="camel"):
    """Figures of the whole cluster.

    `violated`, `excess` and `residual_excess` are about the constraints in scope. `lower_bound`: no plan
    reaches the best final state with fewer evictions. `unreadable`: objects that were left out.
    `soft_ignored`: ScheduleAnyway constraints that settings leave out. `expected_seconds`: how long carrying
    out the plan may take; `takes_longest`: why no less, "" if nothing keeps it to more than one wave.
    `waves_bound`: waves that budgets, shares of owners, and moves that depend on landings take at least.
    `least_excess`: no placement of the pods that may move leaves less excess of hard constraints;
    `least_exact`: one leaves as little, as far as room goes. `between`: why the plan leaves more, by cause.
    `undecided`: kinds that may not be read, without which it is not known what else would help.
    """

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
    unreadable: int = 0
    soft_ignored: int = 0
    expected_seconds: int = 0
    waves: int = 0
    waves_bound: int = 0
    takes_longest: str = ""
    least_excess: int = 0
    least_exact: bool = True
    between: tuple[BetweenReport, ...] = ()
    undecided: tuple[str, ...] = ()


class Why(Struct, frozen=True, rename="camel"):
    """A reason with its figures."""

    code: str
    message: str
    numbers: dict[str, int]
    remedy: str


class ConstraintReport(Struct, frozen=True, rename="camel"):
    """A constraint now and after the plan. `selector` is in kubectl's -l syntax, None if absent.

    `worst_domain_loss`: the share of its pods that are lost if the fullest domain fails. `best_domain_loss`:
    the smallest such share that a placement can have. `least_excess`: no placement leaves this constraint
    less, whatever becomes of others; there only where some excess stays.
    """

    namespace: str
    workloads: tuple[str, ...]
    selector: str | None
    topology_key: str
    max_skew: int
    min_domains: int
    when_unsatisfiable: str
    domains: Mapping[str, int]
    after: Mapping[str, int]
    skew: int
    excess: int
    residual_excess: int
    status: Status
    reasons: tuple[Why, ...]
    worst_domain_loss: float
    best_domain_loss: float
    in_scope: bool
    least_excess: int | UnsetType = UNSET


class Destination(Struct, frozen=True, rename="camel"):
    """Where the replacement can land; `certain` = nowhere else. `predicted`: the node that the plan
    assumes."""

    nodes: tuple[str, ...]
    certain: bool
    predicted: str


class Fix(Struct, frozen=True, rename="camel"):
    """A constraint that an eviction helps: its index in `constraints`, the domain that the pod leaves, and
    the domains in which the replacement can land, the predicted one first."""

    constraint: int
    topology_key: str
    source: str = field(name="from")
    targets: tuple[str, ...] = field(name="to")


class JointReport(Struct, frozen=True, rename="camel"):
    """Evictions that go out together, in this order (namespace/name). `waitingIfBrokenOff`: so many
    replacements find no node if not all of them go; `gain`: by so much the excess falls at least."""

    number: int
    pods: tuple[str, ...]
    waiting_if_broken_off: int
    gain: int


class EvictionReport(Struct, frozen=True, rename="camel"):
    """One eviction of the plan. Evictions of one wave may be in flight together. `owner` is Kind/name.
    `waits`: the cap that leaves it to a later cycle; there only where one does. `joint`: the joint move that
    it is a part of; there only where it is."""

    namespace: str
    pod: str
    uid: str
    owner: str
    node: str
    destination: Destination
    wave: int
    fixes: tuple[Fix, ...]
    reason: str
    waits: Why | UnsetType = UNSET
    joint: JointReport | UnsetType = UNSET


class BlockedReport(Struct, frozen=True, rename="camel"):
    """A pod that could have been evicted and is not."""

    namespace: str
    pod: str
    reason: str
    message: str
    remedy: str


class FindingReport(Struct, frozen=True, rename="camel"):
    """A problem that no eviction cures. `remedy`: YAML to paste, or a command. `field`: its place in the
    object. `numbers`: figures of the message; there only where it has some. `since`: when it was seen first;
    there only where the ledger remembers."""

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str
    field: str = ""
    numbers: Mapping[str, int] | UnsetType = UNSET
    since: str | UnsetType = UNSET

    @property
    def says(self) -> str:
        """The message, and since when it is so."""
        return self.message if self.since is UNSET else f"{self.message} (so since {self.since})"


class Report(Struct, frozen=True, rename="camel", kw_only=True):
    """The whole report.

    `warnings`: what could not be read, with the consequences. `cluster_id`: the uid of namespace kube-system,
    "" if it is not known. `captured_at`: the time that the report speaks of. `drill`: there only where it was
    asked for. `room`: there only where nodes are missing.
    """

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
    cluster_id: str = ""
    captured_at: str = ""
    waves: tuple[WaveReport, ...] = ()
    domains: tuple[DomainLoss, ...] = ()
    namespaces: tuple[NamespaceGrade, ...] = ()
    drill: DrillReport | UnsetType = UNSET
    room: RoomReport | UnsetType = UNSET

    @property
    def by_wave(self) -> dict[int, list[EvictionReport]]:
        """The evictions of each wave, in the order of the waves."""
        found: dict[int, list[EvictionReport]] = {}
        for eviction in sorted(self.evictions, key=lambda e: e.wave):
            found.setdefault(eviction.wave, []).append(eviction)
        return found
