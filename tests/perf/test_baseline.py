"""What reading and planning cost does not grow unnoticed: counts, no clock."""

from __future__ import annotations

import msgspec

from tests.perf.baseline import FILE, measure

_SLACK = 1.05
"""Versions of Python and of libraries differ by some bytes and by ties."""


def test_nothing_costs_more_than_the_baseline() -> None:
    known: dict[str, float] = msgspec.json.decode(FILE.read_bytes())
    found = measure()
    assert found.keys() == known.keys()
    dearer = [f"{n}: {v:,.0f}, was {known[n]:,.0f}" for n, v in found.items() if v > known[n] * _SLACK]
    assert not dearer, (
        f"{'; '.join(dearer)}; if that is the price of something, say of what in the commit, and run "
        "python -m tests.perf.baseline --write"
    )
