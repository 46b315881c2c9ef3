"""`rebalancer once`: one cycle, for a person or a CronJob."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from rebalancer.cli import options
from rebalancer.cli.console import ExitCode, progress
from rebalancer.cli.options import USUAL, Reach, reaches_a_cluster
from rebalancer.errors import UserError
from rebalancer.model.reason import ReasonCode, clean

if TYPE_CHECKING:
    from rebalancer.kube.config_maps import Place
    from rebalancer.outcome import CycleReport
    from rebalancer.planner.plan import ConstraintResult
    from rebalancer.runtime.commands.pausing import Done
    from rebalancer.runtime.commands.source import Source
    from rebalancer.runtime.live.once import Reviewed
    from rebalancer.settings import Settings


ONCE_EXAMPLES = """\b
Examples:
  # What would be done
  rebalancer once
  # Do it; on a terminal the plan is shown first, and you are asked
  rebalancer once --execute
\b
  # Ask the API server whether it would allow each planned eviction
  rebalancer once --dry-run=server
\b
  # Review first, then do exactly that
  rebalancer report -o json --output-file plan.json
  rebalancer once --plan plan.json --execute
"""


@reaches_a_cluster
def once(
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="Evict only the pods in this report (JSON), each only if its eviction is still right.",
        ),
    ] = None,
    execute: options.Execute = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another rebalancer leads, instead of ending at once.")
    ] = False,
    dry_run: options.DryRun = "",
    trace: options.Trace = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not show the plan and ask before --execute evicts.")
    ] = False,
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    ledger_namespace: options.LedgerNamespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Run one cycle: plan and evict until nothing is left to do.

    Nothing is evicted without --execute or evictions.enabled. On a terminal --execute shows its plan and
    asks. It evicts only the pods that were shown; where a fresh plan has others, it asks again. An interrupt
    ends the cycle between two evictions. --execute assumes that somebody is watching, so it does not wait for
    stabilization, cool-downs, the canary or an open circuit breaker. With evictions.enabled alone, as in a
    CronJob, it does.
    """
    from rebalancer.cli.lines import Lines
    from rebalancer.outcome import End
    from rebalancer.policy.options import ApprovalRules
    from rebalancer.runtime.cycle.clock import SystemClock
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.runtime.live.configured import (
        LiveOptions,
        Newest,
        live_options,
        notifying,
        telemetry_options,
    )
    from rebalancer.runtime.live.once import read_reviewed, run_once, session, steered_after
    from rebalancer.runtime.live.places import places_of
    from rebalancer.runtime.observers.neighbours import NeighbourWatch
    from rebalancer.settings import load_settings
    from rebalancer.settings.loading import enabled_in_file
    from rebalancer.telemetry.start import telemetry_for

    said = options.flags(
        namespace,
        all_namespaces,
        execute=execute,
        dry_run=dry_run,
        ledger_namespace=ledger_namespace,
    )
    file = options.settings_file(config)
    enabled, settings = enabled_in_file(file), load_settings(config, flags=said)
    options.set_up_logging(settings, least="warning")
    reviewed = read_reviewed(plan) if plan is not None else None
    expected: Sequence[ConstraintResult] = ()
    if settings.evictions.enabled and settings.approval.mode == "required" and reviewed is None:
        raise UserError(
            "approval.mode is required: `once` evicts nothing that nobody has looked at",
            "approve the daemon's plan (`rebalancer approve`), or hand over one that you read: --plan FILE",
        )
    if execute and reviewed is None and not (yes or options.is_dry(dry_run)) and _somebody_there():
        reviewed, expected = _asked(
            settings, options.source_of(reach, namespaces=settings.scope.read_namespaces), namespace
        )
    with options.connected(reach) as connection:
        if reviewed is not None:
            for warning in options.doubts(reviewed, connection.context, time.time()):
                typer.echo(f"warning: {warning}", err=True)
        stop = threading.Event()
        clock = SystemClock(stop, connection.time)
        places = places_of(settings, connection, wait=stop.wait)

        def options_of(settings: Settings) -> LiveOptions:
            live = live_options(
                settings, connection, places, ask_server=dry_run == "server", attended=execute
            )
            planning = live.planning
            if reviewed is not None:  # who hands over a plan approves it
                policy = replace(planning.policy, approval=ApprovalRules())
                planning = replace(planning, policy=policy)
            return replace(live, must_exist=tuple(namespace or ()), planning=planning)

        live = options_of(settings)
        newest = Newest(file, lambda: load_settings(config, flags=said), options_of, enabled)
        lines = Lines(expected)
        sent = telemetry_options(settings, context=connection.context)
        with (
            stop_on_signals(stop),
            telemetry_for(sent, print_traces=trace) as telemetry,
            notifying(settings, context=connection.context) as told,
            session(
                settings, connection, places, clock, newest=newest, attended=execute, wait=wait
            ) as around,
        ):
            telemetry.metrics.state.notices = told.mailboxes.results
            report = run_once(
                connection,
                live,
                clock=clock,
                observers=[*telemetry.observers, lines, NeighbourWatch(lines), told.observer],
                reviewed=reviewed,
                around=around,
                afterwards=steered_after(connection, live, clock, [*telemetry.observers, lines], around),
            )
    if report.end is End.RECORDED:
        judged = ": the API server only gave its verdicts" if live.ask_server else ""
        typer.echo(f"nothing was evicted{judged}; --execute does it")
    raise typer.Exit(ExitCode.INTERRUPTED if stop.is_set() else _exit_code(report))


def _somebody_there() -> bool:
    """Whether somebody can be shown a plan, and asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _asked(
    settings: Settings, source: Source, named: list[str] | None
) -> tuple[Reviewed, Sequence[ConstraintResult]]:
    """The plan to which somebody said yes, if it was still the same afterwards, and the constraints as it
    leaves them. Exits where they say no."""
    from rebalancer.report.output import render_plan
    from rebalancer.runtime.commands.reports import report_of
    from rebalancer.runtime.live.once import Reviewed, ReviewedEviction

    seen: object = None
    while True:
        document = report_of(settings, source, named or (), shows=progress)
        moves = [e.move for e in document.evictions]
        plan = {(m.pod.uid, m.destinations, m.method) for m in moves}
        now = sum(m.waits is None for m in moves)
        if not plan or plan == seen:
            reviewed = Reviewed(
                evictions=tuple(
                    ReviewedEviction(
                        m.pod.namespace, m.pod.name, m.pod.uid, e.owner, m.pod.node_name, m.wave, m.method
                    )
                    for e, m in zip(document.evictions, moves, strict=True)
                ),
                cluster=document.cluster,
                cluster_id=document.cluster_id,
                source="the plan shown",
            )
            return reviewed, document.constraints
        if seen is not None:
            typer.echo("the plan has changed meanwhile", err=True)
        typer.echo(render_plan(document, sys.stderr), err=True)
        if not now:
            typer.echo("nothing was evicted")
            raise typer.Exit
        which = f"{now} of these {len(moves)} pods now" if now < len(moves) else f"these {now} pods"
        _ask(f"evict {'this pod' if len(moves) == 1 else which}?", "nothing was evicted")
        seen = plan


def _ask(question: str, no: str) -> None:
    """Goes on after a yes; else says so and exits, without any answer as where it is interrupted."""
    try:
        if typer.confirm(question, err=True):
            return
    except typer.Abort:
        typer.echo(f"\n{no}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    typer.echo(no)
    raise typer.Exit


def _exit_code(report: CycleReport) -> ExitCode:
    from rebalancer.outcome import End

    if report.end is End.STOPPED:
        return ExitCode.INTERRUPTED
    if report.failed:
        return ExitCode.SOME_FAILED
    without_brake = report.reason is not None and report.reason.code is ReasonCode.NO_BRAKE
    return ExitCode.ERROR if without_brake or not report.ok else ExitCode.OK


# `rebalancer run`: the daemon.

RUN_EXAMPLES = """\b
Examples:
  # Watch the cluster and log what would be done, every schedule.interval
  rebalancer run
  # Keep the cluster balanced
  rebalancer run --execute
"""


@reaches_a_cluster
def run(
    execute: options.Execute = False,
    dry_run: options.DryRun = "",
    namespace: options.Namespaces = None,
    all_namespaces: options.AllNamespaces = False,
    ledger_namespace: options.LedgerNamespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Run cycles on a schedule. A signal ends it between two evictions.

    Nothing is evicted without --execute or evictions.enabled. When the configuration file changes, or on
    SIGHUP without a terminal, the settings are read again. Invalid ones are refused, and the old ones stay
    in effect.
    """
    from rebalancer.outcome import Observers
    from rebalancer.runtime.daemon.schedule import stop_on_signals
    from rebalancer.runtime.daemon.service import Reloader, Service, serve
    from rebalancer.runtime.live.configured import notifying, telemetry_options
    from rebalancer.runtime.observers.log import LogObserver
    from rebalancer.settings import load_settings, plan_options
    from rebalancer.settings.loading import enabled_in_file
    from rebalancer.telemetry import logs
    from rebalancer.telemetry.start import telemetry_for

    said = options.flags(
        namespace,
        all_namespaces,
        execute=execute,
        dry_run=dry_run,
        ledger_namespace=ledger_namespace,
    )

    def load() -> Settings:
        return load_settings(config, flags=said)

    file = options.settings_file(config)
    enabled, settings = enabled_in_file(file), load()
    plan_options(settings)  # the scheduler's file is part of them
    options.set_up_logging(settings)
    stop = threading.Event()
    with (
        options.connected(reach) as connection,
        telemetry_for(telemetry_options(settings, context=connection.context)) as telemetry,
        notifying(settings, context=connection.context) as told,
    ):
        telemetry.metrics.state.notices = told.mailboxes.results
        observer = Observers([*telemetry.observers, LogObserver(), told.observer])

        def follow_service(service: Service) -> None:
            state = telemetry.metrics.state
            state.cache_ages, state.excess_now = service.cache_ages, service.excess
            state.throttle = service.throttle

        def follow(changed: Settings) -> None:
            logs.change(changed.telemetry.log_level, changed.telemetry.log_format)
            telemetry.change(telemetry_options(changed))
            told.change(changed)

        reloader = Reloader(settings, load, file=file, observer=observer, follow=follow, enabled=enabled)
        also: dict[int, Callable[[], object]] = {
            signal.SIGUSR1: lambda: logs.switch_level(settings.telemetry.log_level),
        }
        if not (sys.stdin.isatty() or sys.stderr.isatty()):  # else its terminal is closed
            also[signal.SIGHUP] = reloader.ask
        with stop_on_signals(stop, also=also):
            serve(
                connection,
                reloader,
                stop=stop,
                observers=[observer],
                ask_server=dry_run == "server",
                metrics=telemetry.exposition,
                begun=follow_service,
            )


# `rebalancer pause` and `resume`: the brake, for an incident.

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Only the rebalancer in this namespace; where none is there, the namespace's own pods.",
    ),
]
Domain = Annotated[
    str,
    typer.Option(
        "--domain",
        metavar="KEY=VALUE",
        help="This zone (zone=eu-1c) or other domain alone is out: what it could change waits.",
    ),
]
PAUSE_EXAMPLES = """\b
Examples:
  # No evictions until somebody says `rebalancer resume`
  rebalancer pause --reason "incident 4711"
  # No evictions for two hours; the pause ends by itself
  rebalancer pause --for 2h
  # Zone eu-1c is out: only what its return could change waits
  rebalancer pause --domain zone=eu-1c --for 2h
"""
RESUME_EXAMPLES = """\b
Examples:
  # Evictions are allowed again, as far as the settings allow them
  rebalancer resume
"""


@reaches_a_cluster
def pause(
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Ends by itself after this time, such as 2h or 90m."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; reports and logs show it.")
    ] = "",
    domain: Domain = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Give released pods back to their owners too: before uninstalling.")
    ] = False,
    namespace: Namespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Pause all evictions in the cluster, of the daemon, the CronJob and `once`.

    Sets every brake that it finds, and ends when each running instance has shown that it saw it. It takes
    effect before the next eviction. Replacements that are on their way are not affected.
    """

    from rebalancer.policy.annotations import pause_value
    from rebalancer.policy.history.ledger import Fate
    from rebalancer.runtime.commands.pausing import ON_ITS_WAY, give_back_all, nobody_in, pause_all
    from rebalancer.settings.field_types import format_duration, parse_duration

    lasts = None
    if for_ is not None:
        try:
            lasts = parse_duration(for_)
        except ValueError as e:
            raise typer.BadParameter(str(e), param_hint="--for") from e
        if not lasts:
            raise typer.BadParameter("it must be longer than 0s", param_hint="--for")

    domain = _domain(domain)
    if domain and undo:
        raise typer.BadParameter(
            "all is given back, so all is paused: leave out --domain", param_hint="--undo"
        )

    def value(now: float) -> str:
        return pause_value(None if lasts is None else now + lasts, " ".join(reason.split()))

    with options.reached(config, reach) as (settings, connection):
        done = pause_all(settings, connection, value, domain=domain, namespace=namespace, whole=undo)
        slip = bool(domain) and nobody_in(connection, domain)
        undone = give_back_all(settings, connection) if undo and not done.not_set else []
    end = f"rebalancer resume --domain {domain}" if domain else "rebalancer resume"
    paused = f"evictions that {domain} could change are paused" if domain else "evictions are paused"
    itself = not all(p.namespace for p in done.brakes)
    soon = f"\nwhat was sent before may evict for {ON_ITS_WAY:g} s more" if itself else ""
    if namespace:
        end += f" -n {namespace}"
        by = "in" if itself else "by the rebalancer of"
        paused = paused.replace("evictions", f"evictions {by} namespace {namespace}")
    until = f"until `{end}`" if lasts is None else f"for {format_duration(lasts)}"
    if slip:
        paused = f"no node is in {domain}: unless one has been, all evictions are paused"
    if done.not_set:
        paused += " only in part"
    elif done.not_seen:
        paused = "the brake is set"
    if done.brakes:
        typer.echo(f"{paused}{'' if done.longer else f' {until}'}: {_named(done.brakes)}{soon}")
    for said in done.longer:
        typer.echo(f"it was paused already, and for as long or longer; that stays: {clean(said)}")
    for who in done.seen_by:
        typer.echo(f"seen by {clean(who)}")
    for outcome in undone:
        typer.echo(clean(outcome.message))
    left = [clean(f"{o.move.pod.key} is released still") for o in undone if o.status is Fate.RELEASED]
    _end(replace(done, not_seen=[*done.not_seen, *left]))


@reaches_a_cluster
def resume(
    domain: Domain = "",
    namespace: Namespace = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """End the pause of all evictions. Creates the brake where an installation lacks it."""
    from rebalancer.runtime.commands.pausing import resume_all

    with options.reached(config, reach) as (settings, connection):
        done = resume_all(settings, connection, domain=_domain(domain), namespace=namespace)
    if done.lifted:
        typer.echo(
            f"the pause is over{' only in part' if done.not_set else ''}: {clean(', '.join(done.lifted))}"
        )
    elif done.brakes:
        typer.echo(f"nothing was paused: {_named(done.brakes)}")
    if done.released:
        typer.echo(f"replaceFirst is on again: {_named(done.released)}")
    for name in done.still_out:
        typer.echo(clean(f"{name} is still out: `rebalancer resume --domain {name}` ends that"))
    _end(done)


# `rebalancer approve` and `refuse`: the plan that a daemon shows.

Shown = Annotated[
    str,
    typer.Option("--namespace", "-n", metavar="NAME", help="Where it is shown. Default: the tool's own."),
]
Revision = Annotated[
    str, typer.Option("--revision", metavar="TEXT", help="The plan that you have read; nobody is asked then.")
]
APPROVE_EXAMPLES = """\b
Examples:
  # Show the plan that waits, and ask
  rebalancer approve
  # A team approves what concerns one of its workloads
  rebalancer approve -n shop --only shop/web
"""
REFUSE_EXAMPLES = """\b
Examples:
  # None of it, and nothing more of what was approved of it
  rebalancer refuse
"""


@reaches_a_cluster
def approve(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAME", help="Only this workload or pod: [KIND/]NAMESPACE/NAME. Repeatable."
        ),
    ] = None,
    revision: Revision = "",
    namespace: Shown = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Approve the plan that a daemon shows (approval.mode: required).

    It evicts only these pods, each only if that is still right, until the plan expires.
    """
    _answer(config, reach, namespace, revision, only or [], yes=True)


@reaches_a_cluster
def refuse(
    revision: Revision = "",
    namespace: Shown = "",
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Refuse the plan that a daemon shows, also where it was approved before, in whatever namespace."""
    _answer(config, reach, namespace, revision, [], yes=False)


def _answer(
    config: Path | None, reach: Reach, namespace: str, revision: str, only: list[str], *, yes: bool
) -> None:
    from rebalancer.cli.lines import say
    from rebalancer.runtime.live.approval import answer, waiting
    from rebalancer.runtime.live.places import places_of

    with options.reached(config, reach) as (settings, connection):
        if not namespace:
            namespace = places_of(settings, connection, wait=threading.Event().wait).brake.namespace
        shown = waiting(connection, namespace, yes=yes)
        for line in shown["plan"].splitlines():
            say(line)
        if not revision:
            if not sys.stdin.isatty():
                raise UserError("nobody can be asked here", f"--revision {shown['revision']} needs no answer")
            _ask("approve it?" if yes else "refuse it?", "nothing was changed")
        answer(connection, namespace, revision or shown["revision"], only, yes=yes)
    typer.echo(f"{'approved' if yes else 'refused'}: {revision or shown['revision']}")


def _domain(text: str) -> str:
    """The domain with its whole key."""
    from rebalancer.report.text import full_key

    key, _, value = text.partition("=")
    if text and not (key and value and not set(text) & set(" \t\n")):
        raise typer.BadParameter("it is KEY=VALUE, such as zone=eu-1c", param_hint="--domain")
    return full_key(text) if text else ""


def _named(places: Sequence[Place]) -> str:
    return ", ".join(map(str, places))


def _end(done: Done) -> None:
    """Says what is not as it should be; then the exit code is 4."""

    for problem in (*done.not_set, *done.not_seen):
        typer.echo(clean(f"error: {problem}"), err=True)
    if done.not_set or done.not_seen:
        raise typer.Exit(ExitCode.SOME_FAILED)
