"""What every test leaves as it found it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """A command that runs in the test's own process sets up logging: the next test starts without that."""
    root = logging.getLogger()
    ours = [
        logger
        for name, logger in logging.Logger.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
        and name.split(".")[0] in ("rebalancer", "opentelemetry", "apscheduler")
    ]
    before = [(x, x.level, x.propagate, x.disabled, list(x.filters)) for x in (root, *ours)]
    yield
    for logger, level, propagate, disabled, filters in before:
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled
        logger.filters[:] = filters
