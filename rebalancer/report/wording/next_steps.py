"""What to do with a report: commands that act on the cluster that it is of, and on no other."""

from __future__ import annotations

import shlex

from msgspec import Struct

from rebalancer.report.document import Report

IN_CLUSTER = "in-cluster"


class Command(Struct, frozen=True):
    """How the report was asked for. `program`: as it was called; `flags`: those that choose the cluster, the
    user, the settings and the namespaces, as they were given."""

    program: str = "rebalancer"
    flags: tuple[str, ...] = ()

    def line(self, verb: str, *arguments: str, context: str = "") -> str:
        """A command to paste; `context` is named unless the flags name one."""
        named = any(f == "--context" or f.startswith("--context=") for f in self.flags)
        pinned = ("--context", context) if context and not named else ()
        return shlex.join((*self.program.split(), verb, *self.flags, *pinned, *arguments))


AS_CALLED = Command()


def next_steps(report: Report, command: Command = AS_CALLED) -> list[str]:
    """A sentence each. The plan of a file is carried out as a reviewed one, which knows its cluster."""
    steps = []
    context = "" if report.cluster == IN_CLUSTER else report.cluster
    if report.evictions and report.cluster:
        steps.append(
            f"Nothing was changed. To carry it out: {command.line('once', '--execute', context=context)}"
        )
        review = command.line("once", "--plan", "plan.json", "--execute", context=context)
        steps.append(f"To review it first: -o json --output-file plan.json, then {review}")
    elif report.evictions:
        carry = command.line("once", "--plan", "plan.json", "--execute", context="CONTEXT")
        steps.append(
            "Nothing was changed. To carry it out on the cluster that this is of: "
            f"-o json --output-file plan.json, then {carry}"
        )
    if report.blocked or any(c.residual_excess for c in report.constraints):
        steps.append("Every pod and constraint with its reason: -o wide, or -o json")
    return steps
