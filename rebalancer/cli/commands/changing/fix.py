"""`rebalancer fix`: what keeps spread through rollouts, added to manifests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli import acting
from rebalancer.cli.exits import ExitCode
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

if TYPE_CHECKING:
    from rebalancer.kube.client.config import ClusterOptions

EXAMPLES = """\b
Examples:
  # What would be changed
  rebalancer fix deploy/
\b
  # Change the files; comments and layout stay
  rebalancer fix --write deploy/
  # Two Deployments of the cluster, one after the other; this rolls them out
  rebalancer fix --apply shop/web shop/api
\b
  # A filter
  rebalancer fix - < deployment.yaml > fixed.yaml
"""


@reaches_a_cluster
def fix(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR|-|NAMESPACE/NAME...",
            help="YAML or JSON; - is standard input. With --apply: Deployments of the cluster.",
        ),
    ],
    write: Annotated[bool, typer.Option("--write", help="Change the files, instead of showing how.")] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Change these Deployments in the cluster. This rolls each of them out."),
    ] = False,
    reach: Reach = USUAL,
) -> None:
    """Add matchLabelKeys: [pod-template-hash] to manifests, so that rollouts keep the spread.

    Deployments only, and only constraints that select their own pods and by which nothing tells revisions
    apart yet. Comments and layout stay. With --apply Deployments are changed in the cluster, which rolls them
    out: one at a time, each rolled out before the next; not those that are paused, rolling, or kept by a
    GitOps tool. The exit code is 1 if something has to be done by hand.
    """
    if write and apply:
        raise typer.BadParameter("--write and --apply exclude each other")
    if apply:
        done = _apply(files, acting.cluster_options(reach))
    else:
        done = _files(files, write)
    if not done:
        raise typer.Exit(ExitCode.ERROR)


def _files(paths: list[str], write: bool) -> bool:
    """Whether all was done that is to be done."""
    from rebalancer.manifests.files import texts
    from rebalancer.report.wording.text import clean, plural
    from rebalancer.runtime.commands.fix.fix import fixed

    mended, trouble = 0, False
    for text in texts(paths):
        found = fixed(text)
        for problem in found.problems:
            trouble = True
            typer.echo(clean(f"error: {problem}"), err=True)
        mended += len(found.workloads)
        if text.name == "stdin":
            typer.echo(found.after, nl=False)
        elif write and found.workloads:
            _write(found.file, found.after)
            typer.echo(clean(f"{found.file}: {', '.join(found.workloads)}"))
        elif found.workloads:
            typer.echo(found.diff, nl=False)
    said = "mended" if write else "would be mended; --write does it" if mended else "would be mended"
    typer.echo(f"{plural(mended, 'workload')} {said}", err=True)
    return not trouble


def _apply(names: list[str], cluster: ClusterOptions) -> bool:
    """Whether all of them are as they should be; the first that does not get there ends it."""
    from rebalancer.kube.client.connection import Connection
    from rebalancer.kube.patch.deployments import Deployments
    from rebalancer.report.wording.text import clean
    from rebalancer.runtime.commands.fix.fix_live import ROLLED_OUT, apply, wanted
    from rebalancer.runtime.cycle.clock import SystemClock
    from rebalancer.runtime.daemon.schedule import stop_on_signals

    wrong = [n for n in names if n.count("/") != 1 or not all(n.split("/"))]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is not NAMESPACE/NAME of a Deployment")
    stop = threading.Event()
    connection = Connection(cluster)
    live, done = Deployments(connection), True
    with stop_on_signals(stop):
        for name in names:
            found = wanted(live.get(*name.split("/")))
            if not found.constraints:
                typer.echo(clean(f"{name}: nothing is missing"))
                continue
            typer.echo(clean(f"Deployment {name}"))
            for line in found.added:
                typer.echo(clean(f"  {line}"))
            if found.refused:
                typer.echo(clean(f"  left alone: {found.refused}"))
                done = False
                continue
            said = ""
            for said in apply(live, found, SystemClock(stop)):
                typer.echo(clean(f"  {said}"))
            if said != ROLLED_OUT:
                done = False
                break
    connection.close()
    return done


def _write(path: str, text: str) -> None:
    from rebalancer.output_file import output_file

    with output_file(path) as file:
        file.write(text.encode())
