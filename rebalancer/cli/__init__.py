"""Command line. `main` is the entry point; what a command needs is imported when the command runs.

entry      the entry point, and errors as one line
app        the commands
commands/  a file for each command, in rooms by what it does to a cluster
options    options that several commands share
acting     what commands that may evict share
exits      exit codes
habits     spellings that kubectl takes
reach      how a command reaches the cluster
lines      prints a cycle in plain lines
live_view/ the demo's live view
sandbox_extra  what is said where the embedded cluster is not installed
progress   shows what the command is waiting for
"""


def main() -> None:
    """The entry point. Nothing is imported before an interrupt is known to be one."""
    try:
        from rebalancer.cli.entry import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


__all__ = ["main"]
