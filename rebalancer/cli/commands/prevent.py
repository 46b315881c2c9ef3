"""`rebalancer prevent`: how scale-ins are steered, and the end of it."""

from __future__ import annotations

import json
import shlex
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from rebalancer.cli import options
from rebalancer.cli.console import ExitCode
from rebalancer.cli.options import USUAL, KubectlCommand, Reach, reaches_a_cluster
from rebalancer.errors import UserError
from rebalancer.model.reason import clean, plural

if TYPE_CHECKING:
    from rebalancer.settings import Settings


app = typer.Typer(
    help="Steer scale-ins so that they keep the spread.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_SHOW = """\b
Examples:
  # Which deletion costs would be written if every workload's scale-in were steered (changes nothing)
  rebalancer prevent show --all
\b
  # The same for a cluster in a file, as the settings say
  rebalancer prevent show --snapshot cluster.json --config rebalancer.yaml
"""
_OFF = """\b
Examples:
  # Remove every deletion cost that this tool has written
  rebalancer prevent off
"""


@app.command(epilog=_SHOW, cls=KubectlCommand)
@reaches_a_cluster
def show(
    files: options.Files = None,
    snapshot: options.Snapshots = None,
    every: Annotated[
        bool, typer.Option("--all", help="As with prevention.scaleIn: all, whatever the settings say.")
    ] = False,
    config: options.ConfigFile = None,
    namespace: options.Namespaces = None,
    reach: Reach = USUAL,
) -> None:
    """Show which pods would get which deletion cost, so that scale-ins keep the spread.

    And how many scale-ins would have ended better, as far as a daemon has seen them. Nothing is changed.
    """

    from rebalancer.outcome import CostOutcome, CostResult, SteeringReport
    from rebalancer.prevention.steering import steer
    from rebalancer.report.words import steering_lines
    from rebalancer.runtime.commands.source import load_snapshot
    from rebalancer.runtime.live.configured import scale_in_scope
    from rebalancer.settings import plan_options

    settings = options.settings_of(config, namespace)
    planning = plan_options(settings)
    scope = scale_in_scope(settings, planning.policy)
    if every:
        scope = replace(scope, mode="all")
    if not (files or snapshot):
        _tell_recorded(settings, reach)
    if scope.mode == "off":
        typer.echo("prevention.scaleIn is off: no scale-in is steered; --all shows what could be")
        return
    source = options.source_of(reach, files, snapshot, namespaces=settings.scope.read_namespaces)
    found = steer(load_snapshot(source).snapshot, scope, planning.scheduler)
    outcomes = tuple(CostOutcome(c, CostResult.RECORDED) for o in found.owners for c in o.changes)
    for line in steering_lines(SteeringReport(steering=found, outcomes=outcomes)):
        typer.echo(clean(line))
    steered = sum(o.order is not None for o in found.owners)
    typer.echo(f"{plural(steered, 'workload')} steered, {plural(found.changes, 'deletion cost')} to write")


def _tell_recorded(settings: Settings, reach: Reach) -> None:
    from rebalancer.kube.errors import KubeError
    from rebalancer.runtime.commands.fix import recorded
    from rebalancer.runtime.cycle.clock import SystemClock

    try:
        with options.connected(reach) as connection:
            seen = recorded(settings, connection, SystemClock(threading.Event()))
    except (KubeError, UserError) as e:
        typer.echo(clean(f"what a daemon has seen of scale-ins cannot be read: {e.message}"), err=True)
        return
    if seen is None:
        typer.echo("no daemon that evicts, or has prevention.scaleIn on, has recorded scale-ins yet")
        return
    since = datetime.fromtimestamp(seen.since, UTC)
    what = f"{plural(seen.all, 'scale-in')}, {seen.excess} ended with an excess"
    typer.echo(f"since {since:%Y-%m-%d %H:%M} UTC: {what}, {seen.avoidable} would have ended better")


@app.command(epilog=_OFF, cls=KubectlCommand)
@reaches_a_cluster
def off(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="In this namespace only.")
    ] = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Remove every deletion cost that this tool has written. Set prevention.scaleIn: off first.

    Needs the rights to list and to patch pods. Costs that somebody else has set are left alone.
    """
    from rebalancer.outcome import CostOutcome, CostResult
    from rebalancer.runtime.commands.fix import take_back
    from rebalancer.runtime.cycle.clock import SystemClock
    from rebalancer.runtime.daemon.schedule import stop_on_signals

    def tell(outcome: CostOutcome) -> None:
        if outcome.result is CostResult.FAILED:
            typer.echo(clean(f"  failed: {outcome.change.pod.key}: {outcome.message}"), err=True)

    stop = threading.Event()
    with options.reached(config, reach) as (settings, connection), stop_on_signals(stop):
        if settings.prevention.scale_in != "off":
            typer.echo(
                "warning: prevention.scaleIn is on in these settings: the costs will come back", err=True
            )
        removed, left = take_back(connection, namespace, SystemClock(stop), tell)
    typer.echo(f"removed from {plural(removed, 'pod')}" + (f", {left} are left" if left else ""))
    if left:
        raise typer.Exit(ExitCode.INTERRUPTED if stop.is_set() else ExitCode.ERROR)


# `rebalancer fix`: what keeps spread through rollouts, added to manifests.

FIX_EXAMPLES = """\b
Examples:
  # What would be changed
  rebalancer fix deploy/
\b
  # Change the files; comments and layout stay
  rebalancer fix --write deploy/
  # What a Deployment of the cluster lacks, as a patch; --apply changes it, which rolls it out
  rebalancer fix shop/web
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
            help="YAML or JSON; - is standard input. NAMESPACE/NAME: a Deployment of the cluster.",
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
    GitOps tool. Patches of kustomizations are read together with the Deployments that they change. The exit
    code is 1 if something has to be done by hand.
    """
    if write and apply:
        raise typer.BadParameter("--write and --apply exclude each other")
    named = [f for f in files if _is_name(f)]
    if apply or (named and not write):
        if len(named) < len(files):
            other = next(f for f in files if f not in named)
            raise typer.BadParameter(f"{other!r} is not NAMESPACE/NAME of a Deployment")
        done = _cluster(files, reach, apply=apply)
    else:
        done = _files(files, write)
    if not done:
        raise typer.Exit(ExitCode.ERROR)


def _is_name(text: str) -> bool:
    """Whether it is NAMESPACE/NAME, and no file."""
    parts = text.split("/")
    manifest = text.endswith((".yaml", ".yml", ".json"))
    return len(parts) == 2 and all(parts) and not manifest and not Path(text).exists()


def _files(paths: list[str], write: bool) -> bool:
    """Whether all was done that is to be done."""
    from rebalancer.manifests.documents import texts
    from rebalancer.output_file import output_file
    from rebalancer.runtime.commands.fix import fixed_all, manifests

    files, templates = manifests(paths)
    mended, trouble = 0, False
    for found in fixed_all(texts(files)):
        for problem in found.problems:
            trouble = True
            typer.echo(clean(f"error: {problem}"), err=True)
        mended += len(found.workloads)
        name = found.text.name
        if name == "stdin":
            typer.echo(found.text.encoded(found.after), nl=False)
        elif write and found.workloads:
            with output_file(name) as file:
                file.write(found.text.encoded(found.after))
            typer.echo(clean(f"{name}: {', '.join(found.workloads)}"))
        elif found.workloads:
            typer.echo(found.diff, nl=False)
    if templates:
        some = f"{plural(len(templates), 'template')} of charts left out ({templates[0]}, …)"
        typer.echo(clean(f"{some}; see what they make: helm template … | rebalancer fix -"), err=True)
    said = "mended" if write else "would be mended; --write does it" if mended else "would be mended"
    typer.echo(f"{plural(mended, 'workload')} {said}", err=True)
    return not trouble


def _cluster(names: list[str], reach: Reach, *, apply: bool) -> bool:
    """Whether all of them are as they should be; the first that does not get there ends it. Without `apply`
    the patch is printed that would be made."""
    from rebalancer.kube.patches import Deployments
    from rebalancer.runtime.commands.fix import ROLLED_OUT, wanted
    from rebalancer.runtime.commands.fix import apply as roll_out
    from rebalancer.runtime.cycle.clock import SystemClock
    from rebalancer.runtime.daemon.schedule import stop_on_signals

    stop, done = threading.Event(), True
    with options.connected(reach) as connection, stop_on_signals(stop):
        live = Deployments(connection)
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
            if not apply:
                namespace, _, deployment = name.partition("/")
                patch = {
                    "spec": {"template": {"spec": {"topologySpreadConstraints": list(found.constraints)}}}
                }
                made = shlex.quote(json.dumps(patch, separators=(",", ":")))
                typer.echo(
                    clean(f"  kubectl patch deployment {deployment} -n {namespace} --type merge -p {made}")
                )
                typer.echo(clean(f"  or: rebalancer fix --apply {name}; either rolls it out"))
                continue
            said = ""
            for said in roll_out(live, found, SystemClock(stop)):
                typer.echo(clean(f"  {said}"))
            if said != ROLLED_OUT:
                done = False
                break
    if stop.is_set():
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not done:
        typer.echo("error: not all of them are as they should be", err=True)
    return done
