"""What no placement can beat, in sentences."""

from __future__ import annotations

from rebalancer.report.document import Report


def beyond_reach(report: Report) -> str:
    """How much of the excess that stays no placement can avoid, and why the rest stays; "" if none does."""
    s = report.summary
    if not s.residual_excess:
        return ""
    least = f"no placement of the pods that may move leaves less than {s.least_excess:,}"
    if not s.between:
        return f"Excess {s.residual_excess:,} stays: {least}."
    rest = "; ".join(f"for {b.excess:,} of it {b.message}" for b in s.between)
    return f"Excess {s.residual_excess:,} stays, and {least}. As to the rest, {rest}."
