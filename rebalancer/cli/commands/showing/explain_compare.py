"""`rebalancer explain --compare`: whether the scheduler does what the engine says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from rebalancer.cli.exits import ExitCode
from rebalancer.cli.progress import progress

if TYPE_CHECKING:
    from pathlib import Path

    from rebalancer.runtime.commands.source import Source


def seconds_of(text: str) -> float:
    """The seconds of --watch."""
    from rebalancer.settings.field_types import parse_duration

    try:
        return parse_duration(text)
    except ValueError as e:
        raise typer.BadParameter(str(e), param_hint="--watch") from e


def explain_compare(source: Source, settings: Path | None, watch: str, *, json: bool) -> None:
    """Compares and prints; exit code 3 if the scheduler did once what the engine says it would not do."""
    from rebalancer.engine.agreement import Comparison
    from rebalancer.report.explain.agreement import agreement_report, line, total
    from rebalancer.report.output import to_json
    from rebalancer.runtime.commands.explain.compare import compare_refusals, compare_watched
    from rebalancer.settings import load_settings, plan_options

    seconds = seconds_of(watch) if watch else 0.0
    config = plan_options(load_settings(settings)).scheduler

    def tell(comparison: Comparison) -> None:
        if not json:
            sys.stdout.write(line(comparison) + "\n")
            sys.stdout.flush()

    if watch:
        with progress(f"watching the scheduler for {watch}"):
            report = agreement_report(compare_watched(source, config, seconds, tell))
    else:
        with progress("reading the cluster and the scheduler's events"):
            report = agreement_report(compare_refusals(source, config))
        for comparison in report.comparisons:
            tell(comparison)
    if json:
        sys.stdout.write(to_json(report))
    else:
        hint = (
            ""
            if report.compared or watch
            else (": the scheduler refused no pod in the last minute; --watch 5m sees what it does meanwhile")
        )
        sys.stdout.write(f"{total(report)}{hint}\n")
    if report.disagrees:
        raise typer.Exit(ExitCode.VIOLATIONS)
