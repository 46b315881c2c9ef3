"""Exit codes, and the name that the program was called by."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """The exit code of the process. 2 comes from the argument parser; 130 is what shells use for an
    interrupt."""

    OK = 0
    ERROR = 1
    USAGE = 2
    VIOLATIONS = 3
    SOME_FAILED = 4
    INTERRUPTED = 130


PLUGIN = "kubectl-rebalancer"


def program_name(argv0: str) -> str:
    """What the user typed: kubectl runs a plugin by its file name."""
    return "kubectl rebalancer" if Path(argv0).stem == PLUGIN else "rebalancer"
