"""Which of the older recordings a run of the tests looks at: another part with each commit, all in time.

`CONFORMANCE=all` asks for every one of them, `CONFORMANCE=10` for a tenth.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from zlib import crc32

from tests.conformance.recordings import Recorded

PARTS = 6


def drawn(one: Recorded) -> bool:
    """Whether this run looks at the recording."""
    asked = os.environ.get("CONFORMANCE", str(PARTS))
    parts = 1 if asked == "all" else int(asked)
    return crc32(f"{_commit()} {one.set} {one.version} {one.case['id']}".encode()) % parts == 0


@cache
def _commit() -> str:
    """What the share goes by; without git (a source archive) always the same."""
    if sha := os.environ.get("GITHUB_SHA"):
        return sha
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
