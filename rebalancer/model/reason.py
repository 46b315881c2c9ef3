"""Why something is not done or stays as it is. The same typed value goes from policy and planner to every
output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from rebalancer.model.node import Node
from rebalancer.model.pod import TopologySpreadConstraint


class ReasonCode(StrEnum):
    """Every reason that the tool gives. Reports, logs, events, metrics and spans use the same words."""

    # The pod may not be evicted.
    MIRROR_POD = "mirror-pod"
    DAEMONSET_POD = "daemonset-pod"
    BARE_POD = "bare-pod"
    JOB_POD = "job-pod"
    GANG = "gang"
    ADMISSION_QUEUE = "admission-queue"
    EVICTION_RESPONDER = "eviction-responder"
    TERMINATING = "terminating"
    NOT_RUNNING = "not-running"
    OWN_POD = "own-pod"
    EXCLUDED_NAMESPACE = "excluded-namespace"
    OUT_OF_SCOPE = "out-of-scope"
    NOT_IN_PLAN = "not-in-plan"
    NOT_APPROVED = "not-approved"
    NEWER_VERSION = "newer-version"
    OWNER_UNKNOWN = "owner-unknown"
    OWNER_TERMINATING = "owner-terminating"
    OWNER_SCALING = "owner-scaling"
    OWNER_DEGRADED = "owner-degraded"
    REPLACEMENT_REFUSED = "replacement-refused"
    ROLLOUT_IN_PROGRESS = "rollout-in-progress"
    PAUSED = "paused"
    ON_DELETE = "on-delete-revisions"
    REPLACEMENT_NOT_READY = "replacement-not-ready"
    NODE_NOT_READY = "node-not-ready"
    LOCAL_STORAGE = "local-storage"
    DEBUGGED = "debug-container"
    PVC_POD = "pvc-pod"
    RESOURCE_CLAIMS = "resource-claims"
    SYSTEM_CRITICAL = "system-critical"
    PRIORITY = "priority-threshold"
    NO_PDB = "no-pdb"
    MIN_REPLICAS = "min-replicas"
    MIN_AGE = "min-pod-age"
    ANNOTATION = "annotation"
    EVICTION_REFUSED = "eviction-refused"
    MAY_NOT_EVICT = "may-not-evict"
    COOL_DOWN = "cool-down"
    MULTIPLE_PDBS = "multiple-pdbs"
    PDB_EXHAUSTED = "pdb-exhausted"
    PDB_STALE = "pdb-stale"
    NOT_REPLACED_FIRST = "not-replaced-first"
    CAP = "cap-reached"
    QUOTA = "quota"
    WINDOW = "maintenance-window"
    PAUSED_BY_ANNOTATION = "paused-by-annotation"
    NO_BRAKE = "no-brake"
    EVICTIONS_DISABLED = "evictions-disabled"
    SETTINGS_INVALID = "settings-invalid"
    NOT_LEADING = "not-leading"
    RIVAL = "another-rebalancer"
    RELEASE_OFF = "replace-first-off"
    RELEASED = "released"
    DESCHEDULER = "descheduler-running"
    CYCLE_TIME = "cycle-time"
    CIRCUIT_OPEN = "circuit-breaker"
    CLUSTER_UNWELL = "cluster-unwell"
    SCHEDULER_SILENT = "scheduler-silent"
    STABILIZING = "stabilizing"
    DID_NOT_HELP = "did-not-help"
    EVICTION_LOOP = "eviction-loop"
    NODES_REMOVED = "nodes-removed"
    NO_NODE_CAME = "no-node-came"
    DOMAIN_OUT = "domain-out"
    # The world is no longer the one that was planned for.
    CHANGED_SINCE_PLAN = "changed-since-plan"
    NODES_CHANGED = "nodes-changed"
    NOT_CURRENT = "not-current"
    STOPPING = "stopping"
    # The move would not help, or would harm.
    PINNED_BY_VOLUME = "pinned-by-volume"
    NO_FEASIBLE_NODE = "no-feasible-node"
    WOULD_RETURN = "would-return"
    WOULD_WORSEN = "would-worsen"
    NEEDS_PREEMPTION = "needs-preemption"
    NOT_CERTAIN = "not-certain"
    PENDING_PODS = "pending-pods"
    NODE_LEAVING = "node-leaving"
    NODE_STARTING = "node-starting"
    NODE_EXPIRING = "node-expiring"
    NODE_UNFIT = "node-unfit"
    NOT_CARRIED = "not-carried"
    TOO_FEW_DOMAINS = "too-few-domains"
    SIMULATION_LIMIT = "simulation-limit"
    NOT_NEEDED = "not-needed"
    NOT_WORTH_IT = "not-worth-it"


WOULD_NOT_HELP = frozenset(list(ReasonCode)[list(ReasonCode).index(ReasonCode.PINNED_BY_VOLUME) :])
"""Reasons why a move would not help, or would harm; by all others it is not allowed at present."""


class Reason(Struct, frozen=True, eq=False):
    """A reason: its code, a sentence, its figures, and what a person can do about it ("" if nothing)."""

    code: ReasonCode
    message: str
    numbers: dict[str, int] = {}
    remedy: str = ""


def changed(message: str, **numbers: int) -> Reason:
    """The world is no longer the one that was planned for."""
    return Reason(ReasonCode.CHANGED_SINCE_PLAN, message, numbers)


# What may say no to an eviction. Policy and the last look list theirs; all of them are one table in
# `runtime/live/checks.py`.


class Moment(StrEnum):
    """When a check is asked."""

    PLAN = "plan"
    START = "start"
    LAST_LOOK = "last look"
    RESEND = "resend"


BEFORE_REQUESTS = frozenset({Moment.LAST_LOOK, Moment.RESEND})
"""Before the first and before each further request that can evict a pod."""


class Check(Struct, frozen=True, eq=False):
    """One thing that may say no. `says`: what it keeps from happening, in a sentence. `ask`: why not, None if
    it has nothing against it. `scope`: whether a no ends the cycle's evictions or concerns one move. `cost`:
    whether it is answered here, or the API server is asked. `reads`: the annotations that it reads."""

    name: str
    says: str
    ask: Callable[..., Reason | None]
    moments: frozenset[Moment] = BEFORE_REQUESTS
    scope: Literal["cycle", "move"] = "move"
    cost: Literal["local", "read"] = "local"
    reads: tuple[str, ...] = ()


def first_no(checks: Iterable[Check], moment: Moment, *about: object) -> tuple[Check, Reason] | None:
    """The first of the checks asked at this moment that says no, and why; None if none does."""
    for check in checks:
        if moment in check.moments and (reason := check.ask(*about)) is not None:
            return check, reason
    return None


# What no eviction cures: one typed value from the checks to every output.


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Change(Struct, frozen=True, eq=False):
    """One object before and after: the spread constraint at `index` of a workload (`object`:
    Kind/namespace/name), or a node; a new one has no `before` and is `like` another."""

    object: str
    before: TopologySpreadConstraint | Node | None
    after: TopologySpreadConstraint | Node
    index: int = 0
    like: str = ""


class Remedy(Struct, frozen=True, eq=False):
    """A change that was replayed on the snapshot, and helps. `text`: YAML to paste, or a command; `does`:
    what the replay showed; `gives_up`: what is lost by it, "" if nothing.

    `pending`, `stuck`, `excess`: the workload's Pending pods that find no node, its running ones that could
    not be replaced, and its excess, before and after.
    """

    change: Change
    text: str
    does: str
    gives_up: str
    pending: tuple[int, int]
    stuck: tuple[int, int]
    excess: tuple[int, int]


class Finding(Struct, frozen=True, eq=False):
    """Something wrong with a constraint, a node or a budget itself.

    `object`: Kind/namespace/name (Kind/name without a namespace). `remedy`: YAML to paste, or a command:
    what was replayed (`remedies`), else advice, which promises no effect. `untried`: changes that nobody
    replayed, as advice has its bound. `field`: where in the object, as
    spec.template.spec.topologySpreadConstraints[0]. `numbers`: figures of the message, for scripts and
    metrics. `since`: when it was seen first (epoch seconds), None if nobody remembers.
    """

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""
    field: str = ""
    numbers: Mapping[str, int] = {}
    since: float | None = None
    remedies: tuple[Remedy, ...] = ()
    untried: int = 0


# Words of all messages, and names in them, which may come from a hostile snapshot.

_FORMATTING = r"\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
HIDDEN = re.compile(f"[{_FORMATTING}]")
"""Characters that JSON allows, but that change what a terminal or a reader shows."""
_UNSAFE = re.compile(rf"[\x00-\x1f{_FORMATTING}\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with all characters made visible (\\x1b) that move a cursor or change the reading
    direction."""
    return _UNSAFE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def plural(count: int, noun: str, many: str = "") -> str:
    """A number with its noun: 1 pod, 2 pods."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def listing(names: Iterable[str], limit: int = 3) -> str:
    """The first few of a list: a, b, c and 4 more."""
    every = list(names)
    more = f" and {len(every) - limit:,} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
