"""Exit codes, and the one place where an error becomes a line on standard error."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from pathlib import Path

from rebalancer.errors import UserError


class ExitCode(IntEnum):
    """What the caller is told. 2 comes from the argument parser, 130 is a shell's for an interrupt."""

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


def main() -> None:
    """Runs the command line and exits."""
    from rebalancer.cli.app import app

    try:
        app(prog_name=program_name(sys.argv[0]))
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Standard output is exchanged so that the interpreter does
        # not fail once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except Exception as e:
        if debugging():
            raise
        if isinstance(e, UserError):
            _say(f"error: {e}")
        else:
            _say(f"error: this is a bug: {type(e).__name__}: {e}; --debug shows where")
        sys.exit(ExitCode.ERROR)


def debugging() -> bool:
    """Whether tracebacks are wanted."""
    return "--debug" in sys.argv or os.environ.get("REBALANCER_DEBUG", "") not in ("", "0")


def _say(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr)
