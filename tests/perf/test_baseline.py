"""What reading and planning cost does not grow unnoticed: counts, no clock."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec

from tests.perf.baseline import FILE, measure

_SLACK, _SLACK_OF_BYTES = 1.05, 1.25
"""Versions of Python and of libraries differ by ties, and more by what their objects take."""


def test_nothing_costs_more_than_the_baseline() -> None:
    known: dict[str, float] = msgspec.json.decode(FILE.read_bytes())
    # In a process of its own: threads that an earlier test left would allocate beside what is measured.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        found = alone.submit(measure).result()
    assert found.keys() == known.keys()
    slack = {n: _SLACK_OF_BYTES if "allocated" in n else _SLACK for n in known}
    dearer = [f"{n}: {v:,.0f}, was {known[n]:,.0f}" for n, v in found.items() if v > known[n] * slack[n]]
    assert not dearer, (
        f"{'; '.join(dearer)}; if that is the price of something, say of what in the commit, and run "
        "python -m tests.perf.baseline --write"
    )
