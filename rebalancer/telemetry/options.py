"""Options of telemetry."""

from __future__ import annotations

from msgspec import Struct


class TelemetryOptions(Struct, frozen=True, kw_only=True):
    """Traces and metrics of one process.

    `endpoint`: base URL of an OTLP/HTTP receiver; "" = what `OTEL_EXPORTER_OTLP_…` say, else nothing is sent.
    `traces`, `metrics`: which signals go there. `timeout` of one export, `exit_timeout` of everything at the
    end, in seconds. `sample_ratio`: share of the cycles that are traced. `metrics_file`: written when a cycle
    ends, for the node exporter's textfile collector. `constraint_series`: constraints with a series of their
    own, 0 = none. `cluster`: k8s.cluster.name. `instance`: service.instance.id, "" = the host's name.
    Standard `OTEL_…` variables win over all of these.
    """

    endpoint: str = ""
    traces: bool = True
    metrics: bool = False
    timeout: float = 2.0
    exit_timeout: float = 2.5
    sample_ratio: float = 1.0
    metrics_file: str = ""
    constraint_series: int = 100
    cluster: str = ""
    instance: str = ""
