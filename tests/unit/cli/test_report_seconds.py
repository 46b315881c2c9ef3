"""`summary.seconds` of a report tells all that it took."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

from rebalancer.runtime.commands import reports
from rebalancer.runtime.commands.reports import report_of
from rebalancer.runtime.commands.source import Source
from rebalancer.settings import load_settings

CLUSTER = Path(__file__).parents[2] / "scenarios" / "one_slot.json.gz"


def test_seconds_tell_the_advice_too() -> None:
    source = Source(snapshots=(str(CLUSTER),))
    with patch.object(reports, "missing_room", lambda *_: time.sleep(0.2)):
        document = report_of(load_settings(None, flags={}), source)
    assert document.summary.seconds >= 0.2
