"""What docs/scheduler.md asks of who teaches the engine a new release, as far as a test can see it."""

from __future__ import annotations

from pathlib import Path

from rebalancer.engine.version import CHANGES, EMPTY_SELECTORS, FIRST, LAST, ServerVersion
from rebalancer.sandbox.server import ApiServer

ROOT = Path(__file__).parents[3]
FROM, TO = ("{}.{}".format(*minor) for minor in (FIRST, LAST))


def test_the_pages_name_the_releases_that_are_known() -> None:
    scheduler = (ROOT / "docs/scheduler.md").read_text()
    assert f"## Versions {FROM}–{TO}" in scheduler
    assert f"## Newer than {TO}" in scheduler
    assert f"outside {FROM}–{TO}" in scheduler
    assert f"versions {FROM}–{TO}" in (ROOT / "README.md").read_text()


def test_no_change_is_of_a_release_that_is_not_known() -> None:
    """But one of the next, which is in its alphas: it is told of, and vendors may have it."""
    later = [change for change in CHANGES if not FIRST <= change.since <= LAST]
    assert later == [EMPTY_SELECTORS]


def test_the_embedded_cluster_speaks_of_a_known_release() -> None:
    assert ServerVersion.parse(ApiServer().api.version).supported
