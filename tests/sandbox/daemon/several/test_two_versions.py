"""Two versions at work side by side over one ledger, as during a rolling upgrade and on the way back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rebalancer.policy.history.ledger import Fate
from rebalancer.policy.history.ledger_json import decode
from tests.support.processes.pair import EARLIER, EVICTIONS, NOW, Pair
from tests.support.waiting import until

pytestmark = pytest.mark.slow
LEDGER = ("ConfigMap", "rebalancer-ledger", "default")


@pytest.mark.parametrize(
    ("first", "second"), [(EARLIER, NOW), (NOW, EARLIER)], ids=["an upgrade", "the way back"]
)
def test_the_second_goes_on_where_the_first_ends(
    first: Sequence[str], second: Sequence[str], tmp_path: Path
) -> None:
    with Pair(tmp_path, programs=(first, second)) as pair:
        pair.go()
        until(lambda: pair.evictions("first") >= 2)
        assert pair.first.end() == 0
        before = pair.carried_out()["first"]
        assert before < EVICTIONS
        until(lambda: "this instance leads" in pair.second.said())
        until(pair.balanced)
        until(lambda: "cycle over (complete)" in pair.second.said())
        assert pair.second.end() == 0
        pair.check()
        assert pair.carried_out()["second"] == EVICTIONS - before
        ledger = decode(pair.cluster.store.get(*LEDGER)["data"]["ledger.json"])
    assert {e.uid for e in ledger.entries} == set(pair.witness.evicted)
    # Whether a replacement that is not Ready when its process ends becomes Ready, nobody saw.
    assert {e.fate for e in ledger.entries} <= {Fate.DONE, Fate.UNSEEN}
    assert ledger.totals.evictions == EVICTIONS
