"""How the command ends when something outside ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPORT = [sys.executable, "-m", "rebalancer", "report", "--snapshot"]
FILE = str(Path(__file__).parents[2] / "scenarios" / "zone_outage.json.gz")


def test_a_full_disk_under_standard_output_is_no_bug() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*REPORT, FILE], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the output: cannot be written: no space left on device; free some ")


def test_a_locale_without_arrows_gets_them_spelled() -> None:
    env = {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*REPORT, FILE], capture_output=True, text=True, env=env, check=True)
    assert r"\u2192" in done.stdout


@pytest.mark.parametrize("after", [0.1, 0.2, 0.25, 0.3, 0.35, 0.4])
def test_an_interrupt_in_the_first_second_is_one_word(after: float, tmp_path: Path) -> None:
    """While modules are imported, too: an extension calls its interrupted import a failed initialization."""
    slow = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(slow)], check=True)
    process = subprocess.Popen(
        [*REPORT, str(slow)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert (process.returncode, *said) == (130, "", "interrupted\n")
