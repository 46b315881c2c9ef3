"""Since when pods of a workload cannot be replaced, as far as somebody has looked and remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from rebalancer.findings.code import FindingCode
from rebalancer.model.finding import Finding


def first_seen(
    known: Mapping[str, float],
    findings: Iterable[Finding],
    *,
    now: float,
    looked_at: Callable[[str], bool] = lambda _: True,
) -> dict[str, float]:
    """Workload (Kind/namespace/name) → epoch seconds at which this was seen first, of those of which it is so
    now. `known`: what was remembered before; who can be replaced again is forgotten, as far as somebody
    looked at the namespace."""
    elsewhere = {w: at for w, at in known.items() if not looked_at(w.split("/")[1])}
    return elsewhere | {
        f.object: min(known.get(f.object, now), now)
        for f in findings
        if f.code == FindingCode.CANNOT_BE_REPLACED
    }


def dated(known: Mapping[str, float], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, those with their time whose workload was remembered."""
    return tuple(
        replace(f, since=known[f.object])
        if f.code == FindingCode.CANNOT_BE_REPLACED and f.object in known
        else f
        for f in findings
    )
