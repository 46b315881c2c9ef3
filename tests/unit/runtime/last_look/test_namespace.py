"""What a namespace says just before a request, beside what it said in the plan."""

from __future__ import annotations

import pytest

from rebalancer.model.node import ObjectMeta
from rebalancer.model.reason import ReasonCode
from rebalancer.policy.annotations import EVICT, PAUSE
from rebalancer.runtime.last_look.look import namespace_refuses

OVER = "2001-01-01T00:00:00Z"
CASES = {
    "a pause that has begun holds": ({}, {PAUSE: "true"}, ReasonCode.PAUSED_BY_ANNOTATION),
    "a pause that is lifted forbids nothing": ({PAUSE: "true"}, {}, None),
    "a pause that has ended forbids nothing": ({PAUSE: OVER}, {PAUSE: OVER}, None),
    "one that was over when it was written does": ({}, {PAUSE: OVER}, ReasonCode.CHANGED_SINCE_PLAN),
    "a protection that has come changes the plan": ({}, {EVICT: "false"}, ReasonCode.CHANGED_SINCE_PLAN),
    "a remark is nothing": ({}, {"team": "shop"}, None),
}


@pytest.mark.parametrize(("planned", "live", "code"), CASES.values(), ids=CASES)
def test_a_namespace(planned: dict[str, str], live: dict[str, str], code: ReasonCode | None) -> None:
    before, now = (ObjectMeta(name="shop", annotations=a) for a in (planned, live))
    reason = namespace_refuses("shop", before, now, 1.8e9)
    assert (reason.code if reason is not None else None) is code
