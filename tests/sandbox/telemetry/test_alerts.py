"""The alert rules: each fires when it should, names a metric that is exported, and has its runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.servers.metrics import RUNBOOK, after_a_cycle, samples
from tests.support.servers.scrape import PROMTOOL, label_names, metric_names

ROOT = Path(__file__).parents[3]
OBSERVABILITY = ROOT / "deploy" / "observability"
RULES = yaml.safe_load((OBSERVABILITY / "alerts.yaml").read_text())["spec"]
ALERTS = [r for g in RULES["groups"] for r in g["rules"]]
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")


def test_every_alert_asks_for_what_is_exported() -> None:
    with after_a_cycle() as telemetry:
        found = samples(telemetry)
    exported = {name for name, _ in found}
    labels = {label for _, pairs in found for label, _ in pairs}
    for rule in ALERTS:
        assert metric_names(rule["expr"]), rule["alert"]
        assert metric_names(rule["expr"]) <= exported, rule["alert"]
        assert label_names(rule["expr"]) <= labels, rule["alert"]


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


@needs_promtool
def test_promtool_accepts_all_rules(tmp_path: Path) -> None:
    assert PROMTOOL
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(RULES))
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(rules)], capture_output=True, text=True, check=False
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
    ("RebalancerPodsStayReleased", {'rebalancer_findings{code="released-pod"}': "1x120"}, "70m", True),
    ("RebalancerPodsStayReleased", {'rebalancer_findings{code="released-pod"}': "1x120"}, "30m", False),
    ("PodsCannotBeReplaced", {'rebalancer_irreplaceable_pods{namespace="a"}': "2x60"}, "20m", True),
    ("PodsCannotBeReplaced", {'rebalancer_irreplaceable_pods{namespace="a"}': "0x60"}, "20m", False),
    (
        "RebalancerSpansDropped",
        {'rebalancer_telemetry_dropped_spans_total{reason="exit"}': "0+1x120"},
        "90m",
        True,
    ),
]


@needs_promtool
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
