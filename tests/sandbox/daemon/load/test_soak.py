"""The soak for a short time; `python -m tests.sandbox.daemon.load.soak --seconds 1800` is the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.daemon.load.soak import Soak


@pytest.mark.slow
def test_twenty_seconds_of_faults_and_changes(tmp_path: Path) -> None:
    lines: list[str] = []
    Soak(7, tmp_path, lines.append).run(20.0)
