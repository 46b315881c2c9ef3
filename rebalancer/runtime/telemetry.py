"""Traces and metrics as observers of the loop: the one place where the two meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.runtime.observer import Observer
from rebalancer.settings import Settings
from rebalancer.telemetry import logs
from rebalancer.telemetry.metrics import CycleMetrics
from rebalancer.telemetry.options import TelemetryOptions
from rebalancer.telemetry.spans import CycleSpans
from rebalancer.telemetry.start import Telemetry, start


class TraceObserver(CycleSpans, Observer):
    """`CycleSpans` has the methods."""


class MetricObserver(CycleMetrics, Observer):
    """`CycleMetrics` has the methods."""


class TelemetrySettings(Observer):
    """Takes over what changes while the process runs, in logs, traces and metrics."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def on_settings(self, settings: Settings) -> None:
        """All but where things are sent to, and under which name."""
        logs.change(settings.telemetry.log_level, settings.telemetry.log_format)
        self._telemetry.change(telemetry_options(settings))


@contextmanager
def telling(options: TelemetryOptions, *, print_traces: bool = False) -> Iterator[Telemetry]:
    """Telemetry while the block runs; `observers_of` it are to be told of the loop.

    An error that leaves the block ends the cycle that is under way. However it ends, what is left to send
    takes `exit_timeout` at most.
    """
    telemetry = start(options, print_traces=print_traces, spans=TraceObserver, metrics=MetricObserver)
    try:
        yield telemetry
    except Exception as e:
        for observer in observers_of(telemetry):
            observer.on_error(e)
        raise
    finally:
        telemetry.close()


def observers_of(telemetry: Telemetry) -> list[Observer]:
    """What listens. Traces come first, so that what other observers log belongs to a span."""
    listening = [o for o in (telemetry.spans, telemetry.metrics) if isinstance(o, Observer)]
    return [*listening, TelemetrySettings(telemetry)]


def telemetry_options(settings: Settings, *, context: str = "") -> TelemetryOptions:
    """The options that settings mean. `context` of the kubeconfig, "in-cluster" says nothing."""
    t = settings.telemetry
    return TelemetryOptions(
        endpoint=t.otlp.endpoint,
        traces=t.otlp.traces,
        metrics=t.otlp.metrics,
        timeout=t.otlp.timeout,
        sample_ratio=t.trace_sampling,
        metrics_file=t.metrics_file,
        constraint_series=t.constraint_series,
        cluster=t.cluster_name or ("" if context == "in-cluster" else context),
    )
