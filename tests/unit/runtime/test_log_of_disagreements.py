"""Disagreements with the scheduler in the log: with nodes and plugins, and not one for each pod for ever."""

from __future__ import annotations

import logging

import pytest

from rebalancer.engine.agreement import Comparison, Result
from rebalancer.runtime.observers.log import LogObserver


def comparison(result: Result, *, certain: bool = True) -> Comparison:
    return Comparison(
        namespace="shop",
        pod="web-1",
        node="a-0",
        result=result,
        certain=certain,
        nodes=("a-0",),
        plugins=("TaintToleration",),
        message="the scheduler put it on a-0, which the engine rejects",
    )


def test_only_disagreements_are_told_with_what_is_in_question(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = LogObserver()
    for result in Result:
        log.on_comparison(comparison(result, certain=result is Result.DISAGREES))
    first, second = caplog.records
    assert first.getMessage() == (
        "the engine and the scheduler differ about shop/web-1: the scheduler put it on a-0, which the engine "
        "rejects"
    )
    assert vars(first)["fields"] == {
        "namespace": "shop",
        "pod": "web-1",
        "node": "a-0",
        "result": "disagrees",
        "nodes": "a-0",
        "plugins": "TaintToleration",
    }
    assert second.getMessage().endswith("rejects (the engine was not certain)")


def test_many_of_them_are_told_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = LogObserver(monotonic=lambda: now[0])
    for _ in range(500):
        log.on_comparison(comparison(Result.DISAGREES))
    assert len(caplog.records) == 10
    assert caplog.records[-1].getMessage().endswith("no more of these for some time")
    now[0] = 601.0
    log.on_comparison(comparison(Result.DISAGREES))
    assert len(caplog.records) == 11
