"""Command line. `main` is the entry point; what a command needs is imported when the command runs.

entry      the entry point, and errors as one line
app        the commands; commands/ has them by what they do to a cluster
options    options that several commands share, and how a command reaches the cluster
console    exit codes, progress, and what is said where the embedded cluster is not installed
lines      a cycle in plain lines; live_view: the demo as a screen
"""


def main() -> None:
    """The entry point. Nothing is imported before an interrupt is known to be one."""
    try:
        from rebalancer.cli.entry import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


__all__ = ["main"]
