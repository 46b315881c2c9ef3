"""KubeSchedulerConfiguration as operators have it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rebalancer.engine.config import (
    FILTERS,
    PLUGINS,
    ConfigError,
    Profile,
    SchedulerConfig,
    parse_config,
)
from rebalancer.engine.plugins import plugin
from rebalancer.planner import PlanOptions, plan
from tests.support.build import deployment, node, nodes, pod, snapshot
from tests.unit.engine.judge import Asked


def config(*profiles: dict[str, Any], version: str = "v1", **top: object) -> SchedulerConfig:
    return parse_config(
        {
            "apiVersion": f"kubescheduler.config.k8s.io/{version}",
            "kind": "KubeSchedulerConfiguration",
            "profiles": list(profiles),
            **top,
        }
    )


UNREAD = {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["1.5"]}]}


def only(config: SchedulerConfig) -> Profile:
    (profile,) = config.profiles
    return profile


@pytest.mark.parametrize("version", ["v1", "v1beta3", "v1beta2", "v1beta1"])
def test_a_document_without_profiles_is_the_default_profile(version: str) -> None:
    profile = only(config(version=version))
    assert profile.filters == FILTERS
    assert profile.scores == Profile().scores


def test_a_disabled_plugin_is_gone_from_its_point_only() -> None:
    profile = only(config({"plugins": {"filter": {"disabled": [{"name": "TaintToleration"}]}}}))
    assert "TaintToleration" not in profile.filters
    assert "TaintToleration" in dict(profile.scores)


@pytest.mark.parametrize(("plugin", "keeps"), [("PodTopologySpread", False), ("ImageLocality", True)])
def test_where_no_pod_is_kept_by_hard_constraints_none_are_violated(plugin: str, keeps: bool) -> None:
    scheduler = config({"plugins": {"multiPoint": {"disabled": [{"name": plugin}]}}})
    made = plan(
        snapshot(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4})),
        PlanOptions(scheduler=scheduler),
    )
    assert bool(made.constraints) is bool(made.moves) is keeps
    assert any("keeps no hard spread constraint" in said for said in made.assumptions) is not keeps


def test_multi_point_disables_everywhere() -> None:
    profile = only(config({"plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}}))
    assert "TaintToleration" not in profile.filters
    assert "TaintToleration" not in dict(profile.scores)


def test_a_star_leaves_only_what_is_named() -> None:
    named = [{"name": "ImageLocality", "weight": 4}, {"name": "NodeAffinity"}]
    profile = only(config({"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": named}}}))
    assert profile.scores == (("ImageLocality", 4), ("NodeAffinity", 1))


def test_a_plugin_configured_again_comes_first() -> None:
    again = {"score": {"enabled": [{"name": "ImageLocality", "weight": 9}]}}
    profile = only(config({"plugins": again}))
    assert profile.scores[0] == ("ImageLocality", 9)
    assert len(profile.scores) == len(Profile().scores)


def test_a_multi_point_weight_replaces_the_default() -> None:
    again = {"multiPoint": {"enabled": [{"name": "PodTopologySpread", "weight": 7}]}}
    assert dict(only(config({"plugins": again})).scores)["PodTopologySpread"] == 7


def test_unknown_plugins_and_extenders_are_warned_of_and_make_nothing_certain() -> None:
    found = config(
        {"plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}},
        extenders=[{"urlPrefix": "http://extender"}],
    )
    assert found.warnings == (
        "scheduler extender 'http://extender' is not asked",
        "plugin 'Coscheduling' of profile 'default-scheduler' is unknown",
    )
    doubts = Asked(nodes(a=1), pod("new"), config=found).doubts
    assert "http://extender" in doubts
    assert "Coscheduling" in doubts


def test_the_profile_follows_the_scheduler_name() -> None:
    packing = {"scoringStrategy": {"type": "MostAllocated"}}
    found = config(
        {"schedulerName": "default-scheduler"},
        {
            "schedulerName": "packing",
            "plugins": {"filter": {"disabled": [{"name": "NodeUnschedulable"}, {"name": "TaintToleration"}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": packing}],
        },
    )
    new = pod("new")
    new._spec["schedulerName"] = "packing"
    asked = Asked(node("n1").cordoned(), new, config=found)
    assert asked.fits == ["n1"]
    assert asked.doubts == ""
    assert asked.framework.profile.fit_strategy == "MostAllocated"


def test_the_percentage_of_a_profile_goes_before_the_general_one() -> None:
    found = config({"percentageOfNodesToScore": 30}, {"schedulerName": "b"}, percentageOfNodesToScore=70)
    assert [p.percentage_of_nodes_to_score for p in found.profiles] == [30, 70]


@pytest.mark.parametrize(
    ("percentage", "nodes", "found"),
    [
        (0, 80, 80),
        (0, 150, 100),
        (0, 1000, 420),
        (0, 5000, 500),
        (0, 10000, 500),
        (100, 5000, 5000),
        (1, 5000, 100),
    ],
)
def test_the_search_stops_when_enough_nodes_are_found(percentage: int, nodes: int, found: int) -> None:
    assert Profile(percentage_of_nodes_to_score=percentage).nodes_to_find(nodes) == found


@pytest.mark.parametrize(
    "added",
    [
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, UNREAD]}},
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": UNREAD}]},
    ],
    ids=["required", "preferred"],
)
def test_an_added_affinity_with_which_no_scheduler_starts_is_refused(added: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"addedAffinity does not parse \(gen Gt 1\.5\)"):
        config({"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": added}}]})


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"kind": "KubeSchedulerConfiguration", "apiVersion": "v1alpha1"}, "apiVersion"),
        ({"kind": "Pod", "apiVersion": "v1"}, "kind"),
        (
            {
                "kind": "KubeSchedulerConfiguration",
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "profiles": [
                    {"pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "x"}}]}
                ],
            },
            "PodTopologySpread",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_where(document: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_config(document)


def test_every_plugin_of_the_engine_is_in_the_table() -> None:
    """One entry is all that a plugin has beside its file: order, weight, and the words of its reasons."""
    files = {p.stem for p in Path(plugin.__file__).parent.glob("*.py")} - {"__init__", "plugin"}
    assert files == {p.file for p in PLUGINS}
    modules = (import_module(f"{plugin.__package__}.{f}") for f in files)
    types = {v for m in modules for v in vars(m).values() if isinstance(v, type)}
    found = {t.name for t in types if issubclass(t, plugin.Plugin) and t is not plugin.Plugin}
    assert found == {p.name for p in PLUGINS}
