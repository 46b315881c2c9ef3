"""The broken clusters of tests/scenarios, and what their authors say of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.scheduler.plain import Json

_FOLDER = Path(__file__).parents[2] / "scenarios"


@dataclass(frozen=True)
class Figures:
    """Fewest evictions, excess left over at best, and what the integer program alone can know of both.

    `bound` differs where room, or a rollout, forbids what the final state alone would allow.
    """

    evictions: int
    residual: int
    bound: tuple[int, int]


SCENARIOS = {
    "scale_down": Figures(2, 0, (0, 2)),
    "zone_outage": Figures(27, 0, (0, 27)),
    "uneven_zones_two_keys": Figures(4, 0, (0, 4)),
    "zonal_volumes": Figures(0, 2, (2, 0)),
    "protected_pods": Figures(1, 0, (0, 1)),
    "one_slot": Figures(1, 1, (1, 1)),
    "revisions": Figures(4, 0, (0, 4)),
    "random_cluster": Figures(107, 0, (0, 107)),
    "noncarrier": Figures(2, 0, (0, 2)),
    "swap_full": Figures(0, 2, (0, 2)),
    "rollout_in_progress": Figures(0, 2, (2, 0)),
}
"""(residual excess, evictions) of the bound, in that order."""


@cache
def _text(name: str) -> bytes:
    return gzip.decompress((_FOLDER / f"{name}.json.gz").read_bytes())


def scenario(name: str) -> list[Json]:
    """The API objects of a scenario, fresh each time."""
    items: list[Json] = json.loads(_text(name))["items"]
    return items
