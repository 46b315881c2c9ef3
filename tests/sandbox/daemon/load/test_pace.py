"""What happens elsewhere costs next to nothing; `python -m tests.sandbox.daemon.load.pace` measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebalancer.outcome import End
from tests.sandbox.daemon.load.pace import ELSEWHERE, FAULTS, pace


@pytest.mark.parametrize("faults", [False, True], ids=["noise elsewhere", "noise elsewhere and faults"])
def test_a_zone_that_is_back_is_used_whatever_happens_elsewhere(faults: bool, tmp_path: Path) -> None:
    """As many evictions as in a quiet cluster, and no more plans."""
    found = pace({**ELSEWHERE, **(FAULTS if faults else {})}, tmp_path, ready_after=0.3)
    assert not found.problems
    assert found.report.end is End.COMPLETE, found.report.message
    assert found.report.evicted == 18
    if not faults:
        assert found.report.plans <= 3, "one, one that sees nothing left, one for a slow machine"
