"""How the command ends when something outside ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
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


def interruptible() -> None:
    """A process that was started in the background of a script has been told to ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    "imported",
    [
        "typer",
        "rebalancer.cli.app",
        "msgspec",
        "numpy._core._multiarray_umath",
        "numpy",
        "rebalancer.manifests",
    ],
)
def test_an_interrupt_at_the_start_is_one_word(imported: str, tmp_path: Path) -> None:
    """While modules are imported, too: an extension calls its interrupted import a failed initialization."""
    slow = tmp_path / "pipe"
    subprocess.run(["mkfifo", str(slow)], check=True)
    python, *rest = REPORT
    command = [python, "-X", "importtime", *rest, str(slow)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=interruptible
    ) as process:
        assert process.stderr is not None
        while (line := process.stderr.readline()) and line.rpartition("|")[2].strip() != imported:
            pass
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    said = [line for line in errors.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, out, said) == (130, "", ["interrupted"])
