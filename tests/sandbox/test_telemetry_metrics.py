"""Metrics of cycles over the embedded API server: the official parser, Prometheus, dashboard and alerts."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.runtime.outcome import End
from rebalancer.runtime.telemetry import observers_of, telemetry_options, telling
from rebalancer.sandbox import ApiServer, Reply
from rebalancer.settings import load_settings
from rebalancer.telemetry.gauges import GAUGES
from rebalancer.telemetry.options import TelemetryOptions
from rebalancer.telemetry.start import Telemetry
from tests.sandbox.test_cycle_once import EXECUTE, SKEWED
from tests.sandbox.test_telemetry_traces import cycle
from tests.support.build import nodes, objects, pdb, workload
from tests.support.hands import Hands
from tests.support.scrape import (
    PROMETHEUS,
    PROMTOOL,
    endpoint,
    label_names,
    metric_names,
    prometheus,
)

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "deploy" / "observability"
RUNBOOK = ROOT / "docs" / "observability.md"
DASHBOARD = json.loads((OBSERVABILITY / "dashboard.json").read_text())
RULES = yaml.safe_load((OBSERVABILITY / "alerts.yaml").read_text())["spec"]
ALERTS = [r for g in RULES["groups"] for r in g["rules"]]

STUCK = (
    *nodes(a=1, b=1, c=1),
    workload("web").spread("zone", 1).placed({"a-0": 6}),
    workload("held").spread("zone", 1).placed({"a-0": 3}),
    pdb("held", {"app": "held"}, min_available=3),
    workload("soft").placed({"b-0": 1}),
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(telemetry: Telemetry) -> Samples:
    """All samples by name and labels."""
    body, kind = telemetry.exposition()
    assert kind.startswith("text/plain; version=0.0.4")
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(body.decode())
        for s in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[(name, tuple(sorted(labels.items())))]


@contextmanager
def after_a_cycle(options: TelemetryOptions | None = None) -> Iterator[Telemetry]:
    """Telemetry of a daemon that has mended what it could."""
    with (
        ApiServer(objects(STUCK)) as server,
        telling(options or TelemetryOptions(constraint_series=10)) as telemetry,
    ):
        report = cycle(server, EXECUTE, observers_of(telemetry))
        assert report.evicted == 4
        telemetry.metrics.on_leading(True)
        telemetry.metrics.on_breaker(False, "")
        telemetry.metrics.on_held(Reason(ReasonCode.WINDOW, "closed"))
        telemetry.metrics.on_rejected("default", "web-1", Reason(ReasonCode.CHANGED_SINCE_PLAN, "gone"))
        telemetry.watch_caches(lambda: {"Pod": 1.5, "Node": 2.0})
        yield telemetry


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
    } <= {"rebalancer_findings"}


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
            cycle(server, EXECUTE, observers_of(telemetry))
        gone = {name for name, _ in samples(telemetry)}
    assert "rebalancer_blocked_pods" not in gone
    assert "rebalancer_namespace_excess_pods" not in gone


def test_errors_and_skips_are_counted() -> None:
    with ApiServer(objects(SKEWED)) as server, telling(TelemetryOptions()) as telemetry:
        server.faults.add(Reply(403), subresource="eviction")
        cycle(server, EXECUTE, observers_of(telemetry))
        found = samples(telemetry)
    assert value(found, "rebalancer_evictions_total", result="forbidden", reason="") == 1
    assert value(found, "rebalancer_cycles_total", end="aborted") == 1
    assert ("rebalancer_last_success_timestamp_seconds", ()) not in found


def test_a_cluster_that_cannot_be_read_is_a_cycle_that_ends_in_error(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    with ApiServer(objects(SKEWED)) as server:
        server.faults.add(Reply(403), verb="list", resource="nodes")
        options = TelemetryOptions(metrics_file=str(path))
        with pytest.raises(Exception, match="list nodes"), telling(options) as telemetry:
            cycle(server, EXECUTE, observers_of(telemetry))
    assert 'rebalancer_cycles_total{end="error"} 1.0' in path.read_text()


def test_misses_are_counted() -> None:
    with ApiServer(objects(SKEWED)) as server, telling(TelemetryOptions()) as telemetry:
        hands = Hands(server, choose=lambda _pod, _nodes: "a-0")
        cycle(server, EXECUTE, observers_of(telemetry), hands)
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


# -- dashboard and alerts


def queries() -> list[tuple[str, str]]:
    return [(p["title"], t["expr"]) for p in DASHBOARD["panels"] for t in p.get("targets", ())]


def resolved(expression: str) -> str:
    """As Grafana sends it."""
    return expression.replace("$job", ".*").replace("$__rate_interval", "5s")


def test_every_query_of_dashboard_and_alerts_matches_an_exported_metric() -> None:
    with after_a_cycle() as telemetry:
        found = samples(telemetry)
    exported = {name for name, _ in found} | {"rebalancer_findings"}
    labels = {label for _, pairs in found for label, _ in pairs} | {"severity", "code"}
    asked = queries() + [(r["alert"], r["expr"]) for r in ALERTS]
    for title, expression in asked:
        assert metric_names(expression), title
        assert metric_names(expression) <= exported, title
        assert label_names(expression) <= labels, title


def test_every_metric_is_on_the_dashboard() -> None:
    with after_a_cycle() as telemetry:
        exported = {f.name for f in text_string_to_metric_families(telemetry.exposition()[0].decode())}
    shown = {name for _, e in queries() for name in metric_names(e)}
    shown |= {re.sub(r"_(total|bucket)$", "", name) for name in shown}
    assert exported - shown <= {"target_info", "target"}


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    taken: set[tuple[int, int]] = set()
    for p in DASHBOARD["panels"]:
        at = p["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, p["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_alert_has_its_section_in_the_runbook() -> None:
    headings = {
        re.sub(r"[^a-z0-9-]", "", line.lstrip("# ").lower().replace(" ", "-"))
        for line in RUNBOOK.read_text().splitlines()
        if line.startswith("#")
    }
    for rule in ALERTS:
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert ROOT / path == RUNBOOK
        assert anchor == rule["alert"].lower()
        assert anchor in headings
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")
def test_promtool_accepts_all_rules_and_queries(tmp_path: Path) -> None:
    assert PROMTOOL
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(RULES))
    asked = [{"record": f"q{n}", "expr": resolved(e)} for n, (_, e) in enumerate(queries())]
    panels = tmp_path / "queries.yaml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": asked}]}))
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(rules), str(panels)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


CASES: list[tuple[str, dict[str, str], str, bool]] = [
    ("RebalancerAbsent", {}, "1h", True),
    ("RebalancerAbsent", {"rebalancer_build_info": "1x120"}, "1h", False),
    ("RebalancerNoGoodCycle", {"rebalancer_last_success_timestamp_seconds": "0x120"}, "70m", True),
    ("RebalancerCyclesFail", {'rebalancer_cycles_total{end="error"}': "0+1x120"}, "1h", True),
    ("RebalancerCyclesFail", {'rebalancer_cycles_total{end="complete"}': "0+1x120"}, "1h", False),
    (
        "RebalancerEvictionsForbidden",
        {'rebalancer_evictions_total{result="forbidden"}': "0x50 1x70"},
        "1h",
        True,
    ),
    ("RebalancerEvictionUnknown", {'rebalancer_evictions_total{result="unknown"}': "0x50 1x70"}, "1h", True),
    ("RebalancerReplacementsFail", {"rebalancer_replacements_failed_total": "0x50 1x70"}, "1h", True),
    ("RebalancerReplacementsFail", {"rebalancer_replacements_failed_total": "0x120"}, "1h", False),
    (
        "RebalancerMispredicts",
        {
            'rebalancer_predictions_total{prediction="miss"}': "0x50 5x70",
            'rebalancer_predictions_total{prediction="hit"}': "0x50 20x70",
        },
        "1h",
        True,
    ),
    (
        "RebalancerMispredicts",
        {
            'rebalancer_predictions_total{prediction="miss"}': "0x50 5x70",
            'rebalancer_predictions_total{prediction="hit"}': "0x50 500x70",
        },
        "1h",
        False,
    ),
    (
        "RebalancerDisruptsForLittle",
        {
            "rebalancer_excess_removed_pods_total": "0+1x120",
            "rebalancer_measured_evictions_total": "0+4x120",
        },
        "90m",
        True,
    ),
    ("RebalancerBreakerOpen", {"rebalancer_breaker_open": "1x120"}, "20m", True),
    ("RebalancerNoLeader", {'rebalancer_leader{instance="a"}': "0x60"}, "20m", True),
    (
        "RebalancerNoLeader",
        {'rebalancer_leader{instance="a"}': "0x60", 'rebalancer_leader{instance="b"}': "1x60"},
        "20m",
        False,
    ),
    (
        "RebalancerSeveralLeaders",
        {'rebalancer_leader{instance="a"}': "1x60", 'rebalancer_leader{instance="b"}': "1x60"},
        "20m",
        True,
    ),
    ("RebalancerCacheStale", {'rebalancer_cache_age_seconds{kind="Pod"}': "0+60x60"}, "30m", True),
    (
        "RebalancerCyclesSlow",
        {
            'rebalancer_cycle_duration_seconds_bucket{le="3600"}': "0+1x120",
            'rebalancer_cycle_duration_seconds_bucket{le="1800"}': "0x120",
            'rebalancer_cycle_duration_seconds_bucket{le="+Inf"}': "0+1x120",
        },
        "90m",
        True,
    ),
    ("SpreadViolationPersists", {"rebalancer_excess_pods": "3x500"}, "7h", True),
    ("SpreadViolationPersists", {"rebalancer_excess_pods": "3x400 0 3x99"}, "7h", False),
    (
        "SpreadLossHigh",
        {
            'rebalancer_worst_domain_loss_ratio{namespace="a"}': "0.7x120",
            'rebalancer_best_domain_loss_ratio{namespace="a"}': "0.34x120",
        },
        "90m",
        True,
    ),
    (
        "RebalancerSpansDropped",
        {'rebalancer_telemetry_dropped_spans_total{reason="exit"}': "0+1x120"},
        "90m",
        True,
    ),
]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    assert PROMTOOL
    assert {c[0] for c in CASES} == {r["alert"] for r in ALERTS}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    tests = []
    for alert, series, at, fires in CASES:
        wanted = [{"labels": "{}", "value": 1}] if fires else []
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": wanted,
                    }
                ],
            }
        )
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(tmp_path / "tests.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is not installed")
def test_prometheus_has_something_for_every_panel(tmp_path: Path) -> None:
    with (
        after_a_cycle() as telemetry,
        endpoint(telemetry.exposition) as port,
        prometheus(port, tmp_path) as query,
    ):
        empty = [
            title
            for title, expression in queries()
            if not query(resolved(expression)) and "rebalancer_findings" not in expression
        ]
        assert query("up{job='rebalancer'}")[0]["value"][1] == "1"
    assert empty == []


def test_collector_and_monitor_are_well_formed() -> None:
    config = yaml.safe_load((OBSERVABILITY / "collector.yaml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= set(config[part])
    sampled = config["processors"]["tail_sampling"]["policies"][1]["numeric_attribute"]["key"]
    assert sampled == "rebalancer.evicted"
    monitor = yaml.safe_load((OBSERVABILITY / "podmonitor.yaml").read_text())
    assert monitor["spec"]["podMetricsEndpoints"][0]["path"] == "/metrics"


def test_every_metric_is_documented() -> None:
    with after_a_cycle() as telemetry:
        exported = {f.name for f in text_string_to_metric_families(telemetry.exposition()[0].decode())}
    documented = set(re.findall(r"^\| `(rebalancer_[a-z_]+?)(?:_total)?` \|", RUNBOOK.read_text(), re.M))
    assert exported - {"target_info", "target"} <= documented
