"""What a collector receives of a cycle over the embedded API server: tree, attributes, parents."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from io import StringIO
from typing import Any

import msgspec
import pytest
from opentelemetry.semconv._incubating.attributes import k8s_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes
from rich.console import Console

from rebalancer.model.snapshot import KindRead
from rebalancer.outcome import CycleReport, End, Eviction, Observer
from rebalancer.planner.plan import Move
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.observers.log import LogObserver
from rebalancer.telemetry import span_attributes
from rebalancer.telemetry.logs import JsonFormatter, trace_annotations
from rebalancer.telemetry.span_attributes import of_kind
from rebalancer.telemetry.spans import TreePrinter
from rebalancer.telemetry.start import Telemetry, TelemetryOptions, telemetry_for
from tests.support.build import nodes, objects, pdb, workload
from tests.support.runs.one_cycle import DRY, EXECUTE, SKEWED, cycle
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.otlp import Collector, Seen, collector

BALANCED = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 2, "b-0": 2}))
GUARDED = (*SKEWED, pdb("web", {"app": "web"}, max_unavailable=2))


@pytest.fixture(autouse=True)
def _no_standard_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [n for n in os.environ if n.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def traced(
    things: Iterable[Any], options: LiveOptions = EXECUTE, *faults: tuple[Any, dict[str, Any]], **more: Any
) -> tuple[Collector, CycleReport | None]:
    """A cycle over these objects, and what the collector received."""
    report = None
    with collector() as c, ApiServer(objects(things)) as server:
        for action, where in faults:
            server.faults.add(action, **where)
        try:
            with telemetry_for(TelemetryOptions(endpoint=c.url, cluster="test", **more)) as telemetry:
                report = cycle(server, options, telemetry.observers)
        except Exception:
            if not faults:
                raise
        return c, report


def names_below(c: Collector, span: Seen) -> list[str]:
    return [s.name for s in c.below(span)]


def test_the_tree_from_top_to_bottom() -> None:
    c, report = traced(GUARDED)
    assert report is not None
    assert report.end is End.COMPLETE
    (root,) = c.roots()
    assert root.name == "cycle"
    assert len({s.trace for s in c.spans}) == 1
    assert names_below(c, root)[:4] == ["snapshot", "constraints", "plan", "wave"]
    assert names_below(c, root)[-3:] == ["snapshot", "constraints", "plan"] or report.plans == 1
    waves = c.below(root, "wave")
    evictions = [e for w in waves for e in c.below(w)]
    assert [e.name for e in evictions] == ["eviction"] * report.evicted
    for e in evictions:
        (replacement,) = c.below(e)
        assert replacement.name == "replacement"
    assert not [s.name for s in c.spans if s.error]


def test_times_nest() -> None:
    c, _ = traced(GUARDED)
    by_id = {s.id: s for s in c.spans}
    for s in c.spans:
        assert s.start <= s.end, s.name
        if s.parent and s.name != "replacement":
            above = by_id[s.parent]
            assert above.start <= s.start, (above.name, s.name)
            assert s.end <= above.end, (above.name, s.name)


def test_the_snapshot_has_a_span_for_each_kind() -> None:
    c, _ = traced(SKEWED, DRY)
    (root,) = c.roots()
    snapshot = c.below(root, "snapshot")[0]
    assert snapshot.attributes["rebalancer.pods"] == 6
    listed = {s.name: s.attributes for s in c.below(snapshot)}
    assert {"list Node", "list Pod", "list PodDisruptionBudget"} <= set(listed)
    assert listed["list Pod"]["rebalancer.objects"] == 6
    assert listed["list Pod"]["rebalancer.pages"] == 1
    assert listed["list Pod"]["rebalancer.bytes"] > 500
    assert listed["list Pod"]["rebalancer.seconds"] > 0
    assert snapshot.attributes["rebalancer.bytes"] == sum(a["rebalancer.bytes"] for a in listed.values())


def test_the_plan_has_a_span_for_each_component_and_says_what_it_rests_on() -> None:
    c, report = traced((*SKEWED, workload("api").spread("zone", 1).placed({"b-0": 4})))
    assert report is not None
    assert report.first is not None
    (root,) = c.roots()
    constraints, plan = c.below(root, "constraints")[0], c.below(root, "plan")[0]
    violated = [a for name, a in constraints.events if name == "violated"]
    assert {a["rebalancer.excess"] for a in violated} == {5, 3}
    assert "a=6 b=0 c=0" in {a["rebalancer.domains"] for a in violated}
    assert plan.attributes["rebalancer.lower_bound"] == report.first.lower_bound
    assert plan.attributes["rebalancer.gap"] == 0
    parts = c.below(plan, "component")
    assert len(parts) == len(report.first.components) == 2
    for part in parts:
        assert part.attributes["rebalancer.pods"] > 0
        assert part.attributes["rebalancer.domains"] == 3
        assert part.attributes["rebalancer.solver"]
        assert {"rebalancer.lower_bound", "rebalancer.gap"} <= set(part.attributes)


def test_an_eviction_says_which_pod_from_where_to_where_and_what_for() -> None:
    c, report = traced(GUARDED)
    assert report is not None
    by_pod = {o.move.pod.name: o for o in report.outcomes}
    for e in (s for s in c.spans if s.name == "eviction"):
        a, outcome = e.attributes, by_pod[e.attributes["k8s.pod.name"]]
        assert a["k8s.namespace.name"] == "default"
        assert a["k8s.node.name"] == "a-0"
        assert a["k8s.replicaset.name"] == "web"
        assert a["rebalancer.domain.from"] == ["topology.kubernetes.io/zone=a"]
        assert a["rebalancer.domain.to"][0].startswith("topology.kubernetes.io/zone=")
        assert "a" not in a["rebalancer.domain.to"][0].partition("=")[2].split("|")
        assert a["rebalancer.constraints"] == [
            "default ReplicaSet/web over topology.kubernetes.io/zone, maxSkew 1"
        ]
        assert a["rebalancer.pdb"] == ["web"]
        assert a["http.response.status_code"] == 201
        assert a["rebalancer.attempts"] == 1
        assert e.kind == 3
        (r,) = c.below(e)
        assert r.attributes["rebalancer.node.predicted"] == outcome.move.predicted
        assert r.attributes["k8s.node.name"] == outcome.node
        assert r.attributes["rebalancer.prediction"] in ("hit", "alternative")
        assert 0 <= r.attributes["rebalancer.seconds.scheduled"] <= r.attributes["rebalancer.seconds.ready"]


def test_who_tells() -> None:
    c, _ = traced(BALANCED)
    (root,) = c.roots()
    assert root.resource["service.name"] == "rebalancer"
    assert root.resource["service.version"]
    assert root.resource["service.instance.id"]
    assert root.resource["k8s.cluster.name"] == "test"


def test_a_cycle_that_finds_nothing_is_one_span() -> None:
    c, _ = traced(BALANCED)
    (root,) = c.spans
    assert root.attributes["rebalancer.end"] == "complete"
    assert root.attributes["rebalancer.pods"] == 4


def test_why_pods_stay_is_an_event_and_there_is_no_span_for_them() -> None:
    blocked = (*SKEWED, pdb("web", {"app": "web"}, min_available=6))
    c, report = traced(blocked)
    assert report is not None
    assert report.evicted == 0
    (root,) = c.roots()
    (plan,) = c.below(root, "plan")
    (event,) = [a for name, a in plan.events if name == "blocked"]
    assert event["rebalancer.reason"] == "pdb-exhausted"
    assert event["rebalancer.pods"] == 6
    assert len(event["rebalancer.examples"]) == 5
    assert not [s for s in c.spans if s.name == "eviction"]


def test_a_dry_run_has_evictions_without_replacements() -> None:
    c, report = traced(SKEWED, DRY)
    assert report is not None
    evictions = [s for s in c.spans if s.name == "eviction"]
    assert {s.attributes["rebalancer.result"] for s in evictions} == {"would-evict"}
    assert len(evictions) == len(report.outcomes)
    assert not [s for s in c.spans if s.name == "replacement" or s.error]


def test_a_retry_is_an_event_with_its_status() -> None:
    c, report = traced(SKEWED, EXECUTE, (Reply(429, headers={"Retry-After": "1"}), RETRY))
    assert report is not None
    assert report.end is End.COMPLETE
    first = min((s for s in c.spans if s.name == "eviction"), key=lambda s: s.start)
    assert first.attributes["rebalancer.attempts"] == 2
    assert first.attributes["http.request.resend_count"] == 1
    assert [(name, a["http.response.status_code"]) for name, a in first.events] == [("retry", 429)]
    assert first.error is None


RETRY = {"subresource": "eviction", "times": 1}


def test_an_eviction_that_fails_is_an_error_with_its_exception() -> None:
    c, report = traced(SKEWED, EXECUTE, (Reply(403), {"subresource": "eviction"}))
    assert report is not None
    (eviction,) = [s for s in c.spans if s.name == "eviction"]
    assert eviction.error
    assert eviction.attributes["error.type"] == "ForbiddenError"
    assert eviction.attributes["http.response.status_code"] == 403
    assert "exception" in [name for name, _ in eviction.events]
    (root,) = c.roots()
    assert root.error
    assert root.attributes["rebalancer.end"] == "aborted"


def test_a_cluster_that_cannot_be_read_is_an_error_of_the_snapshot() -> None:
    c, report = traced(SKEWED, DRY, (Reply(403), {"verb": "list", "resource": "nodes"}))
    assert report is None
    (root,) = c.roots()
    assert root.attributes["error.type"] == "ForbiddenError"
    (snapshot,) = c.below(root)
    assert snapshot.name == "snapshot"
    assert "list nodes" in (snapshot.error or "")


def test_sampling() -> None:
    c, _ = traced(SKEWED, sample_ratio=0.0)
    assert c.spans == []


def test_standard_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as other:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", other.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=prod,team=x")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "spread")
        c, _ = traced(BALANCED)
        assert c.spans == []
        (root,) = other.spans
        assert other.headers[0]["authorization"] == "Bearer abc"
        assert (root.resource["k8s.cluster.name"], root.resource["team"]) == ("prod", "x")
        assert root.resource["service.name"] == "spread"


@pytest.mark.parametrize(
    "variable", [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")], ids=lambda v: v[0]
)
def test_standard_variables_switch_off(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*variable)
    c, _ = traced(SKEWED)
    assert c.requests == 0


def test_metrics_are_pushed_when_asked_for() -> None:
    c, _ = traced(SKEWED, metrics=True)
    assert {"rebalancer.cycles", "rebalancer.evictions", "rebalancer.excess_pods"} <= c.metrics


class Carries(Observer):
    """What an Eviction would carry while it is sent."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_move(self, move: Move) -> None:  # noqa: ARG002
        self.seen.append(trace_annotations()[span_attributes.TRACEPARENT])

    def on_eviction(self, move: Move, eviction: Eviction) -> None: ...


def test_log_lines_and_annotations_lead_to_the_span() -> None:
    stream, carries = StringIO(), Carries()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("rebalancer")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        with (
            collector() as c,
            ApiServer(objects(SKEWED)) as server,
            telemetry_for(TelemetryOptions(endpoint=c.url)) as telemetry,
        ):
            cycle(server, EXECUTE, [*telemetry.observers, LogObserver(), carries])
            telemetry.close()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    by_id = {s.id: s for s in c.spans}
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    evicted = [line for line in lines if "evicted from" in line["message"]]
    assert evicted
    for line in evicted:
        span = by_id[line["span_id"]]
        assert span.name == "eviction"
        assert span.trace == line["trace_id"]
        assert span.attributes["k8s.pod.name"] in line["message"]
    spans = {f"00-{s.trace}-{s.id}-01" for s in c.spans if s.name == "eviction"}
    assert set(carries.seen) == spans


def test_events_in_the_cluster_lead_to_the_span() -> None:
    with collector() as c, ApiServer(objects(SKEWED)) as server:
        with telemetry_for(TelemetryOptions(endpoint=c.url)) as telemetry:
            cycle(server, msgspec.structs.replace(EXECUTE, events="all"), telemetry.observers)
        found = {
            e["metadata"]["annotations"][span_attributes.TRACEPARENT] for e in server.store.list("Event")
        }
    assert found == {f"00-{s.trace}-{s.id}-01" for s in c.spans if s.name == "eviction"}


def test_kinds_of_a_watch_cache_have_their_age() -> None:
    watched, listed = (of_kind(KindRead(kind="Pod", objects=3, age=age)) for age in (1.25, None))
    assert (watched["rebalancer.age"], watched["rebalancer.objects"]) == (1.25, 3)
    assert "rebalancer.pages" not in watched
    assert "rebalancer.pages" in listed


def test_the_names_are_those_of_the_semantic_conventions() -> None:
    assert span_attributes.POD == k8s_attributes.K8S_POD_NAME
    assert span_attributes.POD_UID == k8s_attributes.K8S_POD_UID
    assert span_attributes.NODE == k8s_attributes.K8S_NODE_NAME
    assert span_attributes.NAMESPACE == k8s_attributes.K8S_NAMESPACE_NAME
    assert span_attributes.CLUSTER == k8s_attributes.K8S_CLUSTER_NAME
    known = {v for k, v in vars(k8s_attributes).items() if k.startswith("K8S_") and isinstance(v, str)}
    assert set(span_attributes.OWNERS.values()) <= known
    assert span_attributes.STATUS_CODE == http_attributes.HTTP_RESPONSE_STATUS_CODE
    assert span_attributes.RESEND_COUNT == http_attributes.HTTP_REQUEST_RESEND_COUNT
    assert span_attributes.ERROR_TYPE == error_attributes.ERROR_TYPE


def test_the_tree_in_the_terminal() -> None:
    out = StringIO()
    telemetry = Telemetry(
        TelemetryOptions(), printer=TreePrinter(Console(file=out, width=200, highlight=False))
    )
    from rebalancer.telemetry.spans import CycleSpans

    spans = CycleSpans(telemetry._tracers.get_tracer("t"))
    with ApiServer(objects(GUARDED)) as server:
        report = cycle(server, EXECUTE, [spans])
    spans.abandon()
    telemetry.close()
    text = out.getvalue()
    assert text.startswith("cycle 1 ")
    found = Counter(line.strip("│├└─ ").split(" ")[0] for line in text.splitlines())
    assert found["eviction"] == found["replacement"] == report.evicted
    assert "cache Pod" in text, "who evicts follows the cluster by watches"
    assert "more kinds, of which there are no objects" in text
    assert "· violated fixable" in text
