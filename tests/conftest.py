"""What holds for every test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from zlib import crc32

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

import tests.support.hypothesis_profiles  # noqa: F401  (sets the profile for every test)

TOGETHER = {
    "tests/deploy/test_wheel.py",
    "tests/sandbox/server/test_wire.py",
    "tests/unit/report/test_long_names.py",
}
"""Files whose tests share what takes long to make: one process has all of them."""


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Test by test, but for these files. (A mark `xdist_group` is lost on the way from pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in TOGETHER else nodeid


def pytest_configure() -> None:
    """As the command itself (`rebalancer.cli.entry`): garbage is looked for less often."""
    gc.set_threshold(50_000)


def pytest_collection_finish() -> None:
    """What was collected stays to the end, half a million objects: not to be walked again for each test."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no worker ends with it alone; then file after file, mixed: those
    that wait for a server run beside those that calculate. What is left to the night is run by `-m nightly`
    only.

    There is a second try for what a busy machine makes late, and for nothing else: it would hide a real race.
    """
    if "nightly" not in config.option.markexpr:
        left = [item for item in items if item.get_closest_marker("nightly") is not None]
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]
        config.hook.pytest_deselected(items=left)
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, crc32(item.location[0].encode())))
    for item in items:
        if item.get_closest_marker("timing") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1))


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
