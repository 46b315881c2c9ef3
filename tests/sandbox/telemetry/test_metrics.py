"""Metrics of cycles over the embedded API server: read by the official parser."""

from __future__ import annotations

import importlib
import pkgutil
import re
import stat
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv import attributes
from opentelemetry.semconv.schemas import Schemas
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.outcome import End, Observer, Result
from rebalancer.runtime.live.configured import telemetry_options
from rebalancer.settings import load_settings
from rebalancer.telemetry import span_attributes
from rebalancer.telemetry.gauges import GAUGES
from rebalancer.telemetry.logs import current
from rebalancer.telemetry.start import Telemetry, TelemetryOptions, resource_of, telemetry_for
from tests.support.build import nodes, objects, workload
from tests.support.runs.one_cycle import DRY, EXECUTE, SKEWED, cycle
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.hands import Hands
from tests.support.servers.metrics import RUNBOOK, Samples, after_a_cycle, samples


def value(found: Samples, name: str, **labels: str) -> float:
    return found[(name, tuple(sorted(labels.items())))]


def test_a_cycle_in_figures() -> None:
    with after_a_cycle() as telemetry:
        found = samples(telemetry)
    assert value(found, "rebalancer_cycles_total", end="complete") == 1
    assert value(found, "rebalancer_cycle_duration_seconds_count") == 1
    assert value(found, "rebalancer_phase_duration_seconds_count", phase="plan") >= 2
    assert value(found, "rebalancer_evictions_total", result="evicted", reason="") == 4
    assert value(found, "rebalancer_excess_pods") == value(found, "rebalancer_residual_excess_pods") == 2
    assert value(found, "rebalancer_namespace_excess_pods", namespace="default") == 2
    assert value(found, "rebalancer_constraints", status="unfixable") == 1
    assert value(found, "rebalancer_constraints", status="fixable") == 0
    assert value(found, "rebalancer_blocked_pods", reason="pdb-exhausted") == 3
    assert value(found, "rebalancer_unfixable_constraints", reason="pdb-exhausted") == 1
    assert value(found, "rebalancer_worst_domain_loss_ratio", namespace="default") == 1
    assert value(found, "rebalancer_best_domain_loss_ratio", namespace="default") == pytest.approx(1 / 3)
    assert value(found, "rebalancer_measured_evictions_total") == 4
    assert value(found, "rebalancer_excess_removed_pods_total") == 5
    hits = [value(found, "rebalancer_predictions_total", prediction=p) for p in ("hit", "alternative")]
    assert sum(hits) == 4
    assert value(found, "rebalancer_predictions_total", prediction="miss") == 0
    assert value(found, "rebalancer_replacement_ready_duration_seconds_count") == 4
    assert value(found, "rebalancer_cache_age_seconds", kind="Pod") == 1.5
    assert value(found, "rebalancer_leader") == 1
    assert value(found, "rebalancer_breaker_open") == 0


def test_names_and_units_follow_prometheus() -> None:
    with after_a_cycle() as telemetry:
        families = list(text_string_to_metric_families(telemetry.exposition()[0].decode()))
    for family in families:
        assert re.fullmatch(r"(rebalancer|target)(_[a-z]+)+", family.name), family.name
        assert family.documentation
        if family.type == "counter":
            assert all(s.name.endswith("_total") for s in family.samples)
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
    assert {f"rebalancer_{name}" + ("_seconds" if unit else "") for name, unit, _, _ in GAUGES} - {
        f.name for f in families
    } <= {
        "rebalancer_domains_out",
        "rebalancer_findings",
        "rebalancer_foreign_deletion_costs",
        "rebalancer_missing_nodes",
        "rebalancer_unread_kinds",
        "rebalancer_wait_end_timestamp_seconds",
    }


def test_labels_are_bounded_and_know_no_pod() -> None:
    with after_a_cycle() as telemetry:
        found = samples(telemetry)
    pods = {"web-", "held-"}
    allowed = {"reason": {r.value for r in ReasonCode} | {"", "queue-full", "export-failed", "exit"}}
    for name, labels in found:
        if name == "target_info":
            continue
        for label, text in labels:
            assert label not in ("pod", "uid", "node", "trace_id")
            assert not any(text.startswith(p) for p in pods), (name, label, text)
            assert text in allowed.get(label, {text}), (name, label, text)


def test_every_end_of_a_cycle_counts_from_zero() -> None:
    found = samples(Telemetry(TelemetryOptions()))
    ends = {dict(labels)["end"] for name, labels in found if name == "rebalancer_cycles_total"}
    assert ends == {e.value for e in End} | {"error"}


@pytest.mark.parametrize(("cap", "series"), [(0, 0), (1, 1), (10, 2)])
def test_series_of_single_constraints_are_capped(cap: int, series: int) -> None:
    with after_a_cycle(TelemetryOptions(constraint_series=cap)) as telemetry:
        found = [dict(labels) for name, labels in samples(telemetry) if name == "rebalancer_constraint_skew"]
    assert len(found) == series
    if series:
        assert found[0] == {
            "namespace": "default",
            "workload": "ReplicaSet/held",
            "topology_key": "topology.kubernetes.io/zone",
        }


def test_what_is_gone_has_no_series() -> None:
    with after_a_cycle() as telemetry:
        assert any(name == "rebalancer_blocked_pods" for name, _ in samples(telemetry))
        with ApiServer(objects((*nodes(a=1), workload("web").placed({"a-0": 1})))) as server:
            cycle(server, EXECUTE, telemetry.observers)
        gone = {name for name, _ in samples(telemetry)}
    assert "rebalancer_blocked_pods" not in gone
    assert "rebalancer_namespace_excess_pods" not in gone


def test_errors_and_skips_are_counted() -> None:
    with ApiServer(objects(SKEWED)) as server, telemetry_for(TelemetryOptions()) as telemetry:
        server.faults.add(Reply(403), subresource="eviction")
        cycle(server, EXECUTE, telemetry.observers)
        found = samples(telemetry)
    assert value(found, "rebalancer_evictions_total", result="forbidden", reason="may-not-evict") == 1
    assert value(found, "rebalancer_cycles_total", end="aborted") == 1
    assert ("rebalancer_last_success_timestamp_seconds", ()) not in found


def test_a_cluster_that_cannot_be_read_is_a_cycle_that_ends_in_error(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    with ApiServer(objects(SKEWED)) as server:
        server.faults.add(Reply(403), verb="list", resource="nodes")
        options = TelemetryOptions(metrics_file=str(path))
        with pytest.raises(Exception, match="list nodes"), telemetry_for(options) as telemetry:
            cycle(server, DRY, telemetry.observers)
    assert 'rebalancer_cycles_total{end="error"} 1.0' in path.read_text()


def test_whatever_may_come_of_an_eviction_counts_from_zero() -> None:
    found = samples(Telemetry(TelemetryOptions()))
    results = {dict(labels)["result"] for name, labels in found if name == "rebalancer_evictions_total"}
    reasons = {text for _, labels in found for label, text in labels if label == "reason"}
    assert {*Result, "skipped"} <= results
    assert reasons - {"", "queue-full", "export-failed", "exit"} <= set(ReasonCode)


def test_who_no_longer_leads_forgets_the_cluster() -> None:
    with after_a_cycle() as telemetry:
        telemetry.metrics.on_held(Reason(ReasonCode.CIRCUIT_OPEN, "too many nodes are not Ready"))
        assert value(samples(telemetry), "rebalancer_breaker_open") == 1
        telemetry.metrics.on_leading(False)
        found = samples(telemetry)
    assert {name for name, _ in found} & {"rebalancer_excess_pods", "rebalancer_snapshot_objects"} == set()
    assert value(found, "rebalancer_leader") == value(found, "rebalancer_breaker_open") == 0
    assert value(found, "rebalancer_cycles_total", end="complete") == 1


def test_misses_are_counted() -> None:
    with ApiServer(objects(SKEWED)) as server, telemetry_for(TelemetryOptions()) as telemetry:
        hands = Hands(server, choose=lambda _pod, _nodes: "a-0")
        cycle(server, EXECUTE, telemetry.observers, hands)
        found = samples(telemetry)
    assert value(found, "rebalancer_predictions_total", prediction="miss") == 2


def test_the_textfile_is_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "rebalancer.prom"
    with after_a_cycle(TelemetryOptions(metrics_file=str(path))):
        first = path.read_text()
    families = {f.name for f in text_string_to_metric_families(path.read_text())}
    assert "rebalancer_cycles" in families
    assert "rebalancer_cycles_total" in first
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [p.name for p in tmp_path.iterdir()] == ["rebalancer.prom"]


def test_a_textfile_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with after_a_cycle(TelemetryOptions(metrics_file=str(tmp_path / "gone" / "x.prom"))):
        pass
    assert "metrics are not written" in caplog.text


def test_every_setting_reaches_telemetry() -> None:
    flags = {
        "telemetry": {
            "otlp": {"endpoint": "http://c:4318", "traces": False, "metrics": True, "timeout": "1s"},
            "traceSampling": 0.5,
            "metricsFile": "/m.prom",
            "constraintSeries": 7,
            "clusterName": "prod",
        }
    }
    options = telemetry_options(load_settings(env={}, flags=flags))
    default = TelemetryOptions()
    same = {f for f in default.__struct_fields__ if getattr(options, f) == getattr(default, f)}
    assert same == {"instance", "exit_timeout"}
    assert telemetry_options(load_settings(env={}), context="kind").cluster == "kind"
    assert telemetry_options(load_settings(env={}), context="in-cluster") == default


def test_every_metric_is_documented() -> None:
    with after_a_cycle() as telemetry:
        exported = {f.name for f in text_string_to_metric_families(telemetry.exposition()[0].decode())}
    documented = set(re.findall(r"^\| `(rebalancer_[a-z_]+?)(?:_total)?` \|", RUNBOOK.read_text(), re.M))
    assert exported - {"target_info", "target"} <= documented


def test_a_latency_leads_to_its_trace() -> None:
    with ApiServer(objects(SKEWED)) as server, telemetry_for(TelemetryOptions()) as telemetry:
        seen: list[str] = []

        class Traces(Observer):
            def on_cycle(self, number: int) -> None:  # noqa: ARG002
                found = current()
                assert found is not None
                seen.append(found.trace)

        cycle(server, EXECUTE, [*telemetry.observers, Traces()])
        body, kind = telemetry.exposition("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2")
        again, _ = telemetry.exposition("application/openmetrics-text")
        plain, _ = telemetry.exposition("text/plain")
    assert kind.startswith("application/openmetrics-text")
    families = list(openmetrics_families(body.decode()))  # type: ignore[no-untyped-call]
    linked: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            if sample.exemplar is not None:
                linked.setdefault(family.name, set()).add(sample.exemplar.labels["trace_id"])
    assert linked.keys() == {
        f"rebalancer_{name}_duration_seconds"
        for name in ("cycle", "phase", "replacement_ready", "replacement_scheduled")
    }
    assert set.union(*linked.values()) == set(seen)
    assert again.count(b"trace_id") == body.count(b"trace_id"), "they stay until newer ones come"
    assert b"trace_id" not in plain


def test_cycles_that_are_not_traced_have_no_exemplars() -> None:
    with after_a_cycle(TelemetryOptions(sample_ratio=0.0)) as telemetry:
        assert b"trace_id" not in telemetry.exposition("application/openmetrics-text")[0]


def test_names_from_the_semantic_conventions_are_stable_in_the_schema_that_is_named() -> None:
    stable = {
        value
        for module in pkgutil.iter_modules(attributes.__path__)
        for value in vars(importlib.import_module(f"{attributes.__name__}.{module.name}")).values()
        if isinstance(value, str)
    }
    used = {
        value
        for key, value in vars(span_attributes).items()
        if key.isupper() and isinstance(value, str) and value.startswith(("k8s.", "http.", "error."))
    }
    assert (
        used | set(span_attributes.OWNERS.values()) | set(resource_of(TelemetryOptions(), {}).attributes)
        <= stable
    )
    assert span_attributes.SCHEMA_URL in {s.value for s in Schemas}
    with telemetry_for(TelemetryOptions(cluster="prod")) as telemetry:
        span = telemetry.spans._tracer.start_span("cycle")
        assert isinstance(span, ReadableSpan)
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.schema_url == span_attributes.SCHEMA_URL
        assert span.resource.schema_url == span_attributes.SCHEMA_URL
