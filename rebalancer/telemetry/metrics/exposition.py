"""Metrics as text, for a scrape or as a file for the node exporter."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

log = logging.getLogger(__name__)
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OPEN_METRICS = "application/openmetrics-text"


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """All metrics, and the content type: OpenMetrics, which has exemplars, for who accepts it, else
    Prometheus' own text format."""
    if _OPEN_METRICS in accept:
        body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), _CONTENT_TYPE


def write_textfile(registry: CollectorRegistry, path: Path) -> None:
    """Replaces the file atomically, so that no reader sees half of it. A failure is logged."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(exposition(registry)[0])
            # mkstemp gives 0600; the node exporter runs as another user.
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as e:
        log.warning("metrics are not written: %s: %s", path, (e.strerror or str(e)).lower())
