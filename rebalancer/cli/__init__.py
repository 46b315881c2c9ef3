"""Command line. `main` is the entry point; what a command needs is imported when the command runs.

app       the commands
options   options that several commands share
exits     exit codes, and errors as one line
progress  what is being waited for
report, config: one file per command
"""

from rebalancer.cli.exits import main

__all__ = ["main"]
