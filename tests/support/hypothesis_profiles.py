"""Hypothesis profiles: few examples and always the same ones, so that the suite is quick and never flaky;
a failure is not shrunk.

HYPOTHESIS_PROFILE=long looks further, at other examples each time, and shrinks.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_SLOW = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.filter_too_much,
]

settings.register_profile(
    "quick",
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=_SLOW,
    phases=[Phase.explicit, Phase.generate],
)
settings.register_profile(
    "long", max_examples=1000, deadline=None, database=None, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
