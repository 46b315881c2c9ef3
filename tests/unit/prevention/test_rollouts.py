"""The rule about `matchLabelKeys`, on the table that the policies are held to as well."""

from __future__ import annotations

import pytest

from rebalancer.prevention.rollouts import additions
from tests.support.rollouts import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_what_a_workload_lacks(case: Case) -> None:
    made = case.manifest
    found = {a.index: list(a.keys) for a in additions(case.kind, made["spec"])}
    assert found == case.keys
    assert not list(additions(case.kind, case.fixed["spec"])), "what was mended lacks nothing"


@pytest.mark.parametrize(
    "spec", [{}, {"template": []}, {"template": {"spec": {"topologySpreadConstraints": [3]}}}]
)
def test_what_is_malformed_lacks_nothing(spec: dict[str, object]) -> None:
    assert not list(additions("Deployment", spec))
