"""What is installed beside the daemon to watch it: the Collector's configuration, the PodMonitor."""

from __future__ import annotations

from pathlib import Path

import yaml

OBSERVABILITY = Path(__file__).parents[2] / "deploy" / "observability"
COLLECTOR = yaml.safe_load((OBSERVABILITY / "collector.yaml").read_text())
PIPELINES = COLLECTOR["service"]["pipelines"]


def test_every_component_of_the_collector_is_defined_and_used() -> None:
    for part in ("receivers", "processors", "exporters"):
        used = {name for pipeline in PIPELINES.values() for name in pipeline[part]}
        assert used == set(COLLECTOR[part])


def test_the_pod_is_looked_up_before_its_connection_is_forgotten() -> None:
    for pipeline in PIPELINES.values():
        order = pipeline["processors"]
        assert order[0] == "memory_limiter"
        assert order[-1] == "batch"
        later = [order.index(name) for name in ("tail_sampling", "batch") if name in order]
        assert order.index("k8sattributes") < min(later)


def test_every_trace_with_an_eviction_is_kept() -> None:
    policies = {p["name"]: p[p["type"]] for p in COLLECTOR["processors"]["tail_sampling"]["policies"]}
    assert policies["evicted"]["key"] == "rebalancer.evicted"
    assert policies["evicted"]["min_value"] == 1


def test_the_pod_monitor_asks_for_the_metrics() -> None:
    monitor = yaml.safe_load((OBSERVABILITY / "podmonitor.yaml").read_text())
    assert monitor["spec"]["podMetricsEndpoints"][0]["path"] == "/metrics"
