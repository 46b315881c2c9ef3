"""The profiles of config/ are settings, each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebalancer.settings import load_settings

PROFILES = sorted((Path(__file__).parents[3] / "config").glob("*.yaml"))


@pytest.mark.parametrize("file", PROFILES, ids=[p.stem for p in PROFILES])
def test_it_is_read(file: Path) -> None:
    load_settings(file, env={})


def test_that_of_other_controllers_opens_none_that_may_lose_data() -> None:
    [file] = [p for p in PROFILES if p.stem == "other-controllers"]
    assert load_settings(file, env={}).scope.owner_kinds_allow == ("CloneSet",)
