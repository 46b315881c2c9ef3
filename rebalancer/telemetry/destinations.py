"""Where signals are sent. Standard `OTEL_…` variables win over the options."""

from __future__ import annotations

from collections.abc import Mapping
from socket import gethostname
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from rebalancer import __version__
from rebalancer.telemetry.options import TelemetryOptions
from rebalancer.telemetry.traces.names import SCHEMA_URL


class Destinations:
    """Which signals are sent, and where to."""

    def __init__(self, options: TelemetryOptions, env: Mapping[str, str]) -> None:
        self._options = options
        self._env = env
        off = env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self.traces = not off and self._wanted("TRACES", options.traces)
        self.metrics = not off and self._wanted("METRICS", options.metrics)

    @property
    def host(self) -> str:
        """For messages: without path and credentials."""
        parts = urlsplit(
            self._env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            or self._env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
            or self._options.endpoint
            or "http://localhost:4318"
        )
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def url(self, signal: str) -> str | None:
        """The receiver of a signal; None: the SDK finds it in the environment."""
        if self._named(signal.upper()) or not self._options.endpoint:
            return None
        return f"{self._options.endpoint.rstrip('/')}/v1/{signal}"

    def timeout(self, signal: str) -> float | None:
        """Seconds of one export; None: the environment says so."""
        named = (f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
        return None if any(self._env.get(name) for name in named) else self._options.timeout

    def _named(self, signal: str) -> bool:
        names = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return any(self._env.get(name) for name in names)

    def _wanted(self, signal: str, chosen: bool) -> bool:
        named = words(self._env, f"OTEL_{signal}_EXPORTER")
        if named:
            return "otlp" in named
        own = bool(self._env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
        return own or (chosen and bool(self._options.endpoint or self._named(signal)))


def words(env: Mapping[str, str], name: str) -> set[str]:
    return {word.strip().lower() for word in env.get(name, "").split(",") if word.strip()}


def resource_of(options: TelemetryOptions, env: Mapping[str, str]) -> Resource:
    """What identifies this process: service, version, instance, cluster, and its pod if the downward API
    names it."""
    own: dict[str, str] = {
        "service.name": "rebalancer",
        "service.version": __version__,
        "service.instance.id": options.instance or env.get("POD_NAME") or gethostname(),
        "k8s.cluster.name": options.cluster,
        "k8s.pod.name": env.get("POD_NAME", ""),
        "k8s.namespace.name": env.get("POD_NAMESPACE", ""),
        "k8s.node.name": env.get("NODE_NAME", ""),
    }
    made = Resource.create({key: value for key, value in own.items() if value}, SCHEMA_URL)
    # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say comes last: it wins.
    return made.merge(OTELResourceDetector().detect())
