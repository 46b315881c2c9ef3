"""The scheduler's decisions beside the engine's answers, as something to read.

The JSON names are part of `rebalancer/v1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.report.api_version import API_VERSION
from rebalancer.report.wording.text import clean, plural


class AgreementReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """All comparisons, and how many came to what."""

    api_version: str = API_VERSION
    kind: str = "Agreement"
    compared: int
    results: dict[str, int]
    comparisons: tuple[Comparison, ...]

    @property
    def disagrees(self) -> bool:
        """Whether the scheduler did once what the engine says it would not do."""
        return self.results[Result.DISAGREES.value] > 0


def agreement_report(comparisons: Iterable[Comparison]) -> AgreementReport:
    """Every result is counted, those that did not occur too."""
    found = tuple(comparisons)
    counts = Counter(c.result for c in found)
    return AgreementReport(
        compared=len(found), results={r.value: counts[r] for r in Result}, comparisons=found
    )


def line(c: Comparison) -> str:
    """One comparison."""
    decision = f"bound to {c.node}" if c.node else "refused"
    unsure = "" if c.certain else "; the engine was not certain"
    return clean(f"{c.result.value:13} {c.namespace}/{c.pod}: {c.message or decision}{unsure}")


def total(report: AgreementReport) -> str:
    """All of them in a sentence."""
    if not report.compared:
        return "nothing to compare"
    parts = ", ".join(f"{result} {n}" for result, n in report.results.items() if n)
    return f"{plural(report.compared, 'decision')} of the scheduler compared: {parts}"
