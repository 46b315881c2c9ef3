"""Metrics as text, for a scrape or as a file for the node exporter."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

log = logging.getLogger(__name__)
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """The text format, and its content type."""
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
