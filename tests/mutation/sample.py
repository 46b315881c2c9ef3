"""Which mistakes are tried: a hundred, drawn by a fixed seed; the tests that must see them; those that change
nothing."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from tests.mutation.operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
SEED = 26
SIZE = 100
LEAST = 4
"""So many of each file at least."""

_POLICY = ("tests/unit/policy",)
_MEMORY = ("tests/unit/runtime/cycle/memory", "tests/property/test_damaged_ledger.py")
_LOOK = ("tests/unit/runtime/last_look", "tests/sandbox/cycle/last_look/test_last_look.py")
CLOSEST = {
    "rebalancer/planner/objective.py": (
        "tests/unit/planner/test_objective.py",
        "tests/unit/planner/search",
        "tests/unit/planner/moves",
    ),
    "rebalancer/policy/budgets.py": _POLICY,
    "rebalancer/policy/caps.py": _POLICY,
    "rebalancer/policy/circuit_breaker.py": (
        *_POLICY,
        *_MEMORY,
        "tests/unit/runtime/last_look/test_health.py",
    ),
    "rebalancer/policy/evictable.py": _POLICY,
    "rebalancer/policy/history/ledger.py": (*_POLICY, *_MEMORY),
    "rebalancer/policy/history/ledger_json.py": (*_POLICY, *_MEMORY),
    "rebalancer/policy/history/ledgers_merged.py": (*_POLICY, *_MEMORY),
    "rebalancer/policy/new_pods.py": (*_POLICY, "tests/sandbox/cycle/limits/test_admission.py"),
    "rebalancer/policy/owners.py": (*_POLICY, "tests/sandbox/cycle/limits/test_owners.py"),
    "rebalancer/policy/pods_to_come.py": (*_POLICY, "tests/unit/planner/cluster"),
    "rebalancer/policy/history/waits.py": (*_POLICY, *_MEMORY),
    "rebalancer/kube/evictor.py": (
        "tests/sandbox/kube/test_evict.py",
        "tests/sandbox/kube/test_evict_again.py",
        "tests/unit/runtime/cycle/test_evicting.py",
    ),
    "rebalancer/runtime/cycle/gates.py": (
        "tests/unit/runtime/cycle/gates",
        "tests/unit/runtime/cycle/test_evicting.py",
        "tests/sandbox/cycle/last_look/test_held.py",
    ),
    "rebalancer/runtime/cycle/memory.py": (
        *_MEMORY,
        "tests/sandbox/cycle/limits/test_fence.py",
        "tests/sandbox/cycle/limits/test_domain_out.py",
        "tests/sandbox/cycle/limits/test_refused.py",
    ),
    "rebalancer/runtime/cycle/owners_that_wait.py": (*_MEMORY, "tests/unit/policy/history"),
    "rebalancer/runtime/cycle/shared_ledger.py": (*_MEMORY, "tests/sandbox/cycle/limits/test_fence.py"),
    "rebalancer/runtime/last_look/cluster_now.py": _LOOK,
    "rebalancer/runtime/last_look/health.py": (
        "tests/unit/runtime/last_look/test_health.py",
        "tests/sandbox/cycle/limits/test_health.py",
        "tests/sandbox/cycle/limits/test_irreplaceable.py",
        "tests/sandbox/cycle/limits/test_late.py",
    ),
    "rebalancer/runtime/last_look/look.py": (*_LOOK, "tests/sandbox/cycle/limits/test_owners.py"),
    "rebalancer/runtime/last_look/room.py": _LOOK,
}
"""File → the tests that must see a mistake in it, the quickest first. Slow ones are left out."""

_ANY_ORDER = "only whether a name is among them is asked"
EQUIVALENT: dict[str, str] = {
    ": DETOURS = 3  →  DETOURS = (2)": "a bound of a search, chosen by measuring: tests/golden has its plans",
    "Agreed.stricter: return other if self.release == other.release and other.decisions < self.decisions "
    "else self  →  return other if self.release == other.release and (other.decisions <= self.decisions) "
    "else self": ("accounts with equal figures are equal"),
    ': *("july", "august", "september", "october", "november", "december"),  →  '
    "*(('august', 'july', 'september', 'october', 'november', 'december')),": _ANY_ORDER,
    ': *("july", "august", "september", "october", "november", "december"),  →  '
    "*(('july', 'august', 'september', 'october', 'december', 'november')),": _ANY_ORDER,
    ': _BESIDE = ("PodDisruptionBudget", "ResourceQuota", "VerticalPodAutoscaler")  →  '
    "_BESIDE = (('ResourceQuota', 'PodDisruptionBudget', 'VerticalPodAutoscaler'))": _ANY_ORDER,
    "late: anybody = median(times) if times else 0.0  →  anybody = median(times) if times else (1.0)": (
        "twice a second is less than SOONEST as well"
    ),
    "account: times, last = 0, 0.0  →  times, last = 0, (1.0)": "nothing was evicted in 1970",
}
"""Mistakes that change nothing, or nothing that anybody could want tested, by their key → why."""


def all_mutants() -> dict[str, list[Mutant]]:
    """Every mistake by file."""
    return {path: mutants(path, (ROOT / path).read_bytes()) for path in CLOSEST}


def sample() -> list[Mutant]:
    """The mistakes that are tried: of each file in proportion to its own.

    Those with the lowest hash of seed and key: a change of the code changes little of the sample.
    """
    found = all_mutants()
    total = sum(map(len, found.values()))
    room = SIZE - LEAST * len(found)
    exact = {path: room * len(of_file) / total for path, of_file in found.items()}
    shares = {path: LEAST + int(share) for path, share in exact.items()}
    by_rest = sorted(exact, key=lambda path: (int(exact[path]) - exact[path], path))
    for path in by_rest[: SIZE - sum(shares.values())]:
        shares[path] += 1
    return [
        mutant
        for path, of_file in found.items()
        for mutant in sorted(sorted(of_file, key=_lot)[: shares[path]], key=lambda m: m.line)
    ]


def _lot(mutant: Mutant) -> str:
    return sha256(f"{SEED} {mutant.key}".encode()).hexdigest()
