"""`rebalancer config from-descheduler`: every field of a policy is translated or listed, none is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.settings import load_settings
from rebalancer.settings.descheduler_policy import (
    DISABLED,
    ENABLED,
    EVICTOR,
    EVICTOR_ARGS,
    POLICY,
    TOPOLOGY,
    TOPOLOGY_ARGS,
    To,
    translate,
)
from rebalancer.settings.loading import walk
from rebalancer.settings.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "from-descheduler.md"


def policy(
    top: dict[str, Any] | None = None,
    evictor: dict[str, Any] | None = None,
    topology: dict[str, Any] | None = None,
    balance: tuple[str, ...] = (TOPOLOGY,),
) -> dict[str, Any]:
    """A policy with one profile."""
    profile = {
        "name": "default",
        "pluginConfig": [
            {"name": EVICTOR, "args": evictor or {}},
            {"name": TOPOLOGY, "args": topology or {}},
        ],
        "plugins": {"balance": {"enabled": list(balance)}},
    }
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    return {**head, **(top or {}), "profiles": [profile]}


TRANSLATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("an empty policy says nothing", {}, {}),
    (
        "limits are caps of a cycle",
        {
            "top": {
                "maxNoOfPodsToEvictPerNode": 3,
                "maxNoOfPodsToEvictPerNamespace": 5,
                "maxNoOfPodsToEvictTotal": 9,
            }
        },
        {"evictions": {"maxPerNode": 3, "maxPerNamespace": 5, "maxTotal": 9}},
    ),
    (
        "the evictor's own words",
        {"evictor": {"minReplicas": 2, "minPodAge": "1h0m0s", "ignorePvcPods": True, "nodeFit": True}},
        {"policy": {"minReplicas": 2, "minPodAge": "1h0m0s", "protectPvcPods": True}},
    ),
    (
        "protections, the newer spelling",
        {
            "evictor": {
                "podProtections": {
                    "defaultDisabled": ["PodsWithLocalStorage"],
                    "extraEnabled": ["PodsWithoutPDB", "PodsWithResourceClaims"],
                }
            }
        },
        {
            "policy": {
                "evictLocalStoragePods": True,
                "protectPodsWithoutPdb": True,
                "protectResourceClaimPods": True,
            }
        },
    ),
    (
        "grace period and events of failures",
        {"top": {"gracePeriodSeconds": 20, "evictionFailureEventNotification": False}},
        {"evictions": {"gracePeriod": "20s", "events": "evictions"}},
    ),
    (
        "a grace period of 0, which is none: the API server forgets the pod while it runs",
        {"top": {"gracePeriodSeconds": 0}},
        {"evictions": {"gracePeriod": "1s"}},
    ),
    (
        "a priority threshold by name",
        {"evictor": {"priorityThreshold": {"name": "high"}}},
        {"policy": {"priorityThresholdClass": "high"}},
    ),
    (
        "a priority threshold by value",
        {"evictor": {"priorityThreshold": {"value": 0}}},
        {"policy": {"priorityThreshold": 0}},
    ),
    (
        "soft constraints",
        {"topology": {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}},
        {"planner": {"softConstraints": "predicted"}},
    ),
    (
        "kube-system stays excluded",
        {"topology": {"namespaces": {"exclude": ["infra"]}}},
        {"scope": {"namespaces": {"exclude": ["infra"]}}},
    ),
    (
        "selectors of both plugins hold together",
        {
            "evictor": {"labelSelector": {"matchLabels": {"tier": "web", "team": "a"}}},
            "topology": {"labelSelector": {"matchLabels": {"tier": "api"}}},
        },
        {
            "scope": {
                "labelSelector": {
                    "matchLabels": {"tier": "web", "team": "a"},
                    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["api"]}],
                }
            }
        },
    ),
]


@pytest.mark.parametrize(("given", "wanted"), [c[1:] for c in TRANSLATED], ids=[c[0] for c in TRANSLATED])
def test_what_has_a_counterpart(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    made = translate(policy(**given))
    assert made.settings == wanted
    assert made.notes == ()
    load_settings(env={}, flags=made.settings)


LISTED: list[tuple[str, dict[str, Any], str]] = [
    ("nodes cannot be chosen", {"top": {"nodeSelector": "pool=a"}}, "nodeSelector"),
    ("utilisation means nothing", {"top": {"metricsCollector": {"enabled": True}}}, "metricsCollector"),
    ("other plugins", {"balance": (TOPOLOGY, "RemoveDuplicates")}, "profiles[0].plugins: RemoveDuplicates"),
    ("no topology plugin", {"balance": ("RemoveDuplicates",)}, "profiles"),
    (
        "hard constraints cannot be left out",
        {"topology": {"constraints": ["ScheduleAnyway"]}},
        "profiles[0].pluginConfig[1].args.constraints",
    ),
    (
        "one class of volumes cannot be protected alone",
        {
            "evictor": {
                "podProtections": {
                    "extraEnabled": ["PodsWithPVC"],
                    "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}},
                }
            }
        },
        "profiles[0].pluginConfig[0].args.podProtections.config.PodsWithPVC",
    ),
    (
        "nodeFit cannot be turned off",
        {"evictor": {"nodeFit": False}},
        "profiles[0].pluginConfig[0].args.nodeFit",
    ),
    ("a field that nobody knows", {"evictor": {"tpyo": 1}}, "profiles[0].pluginConfig[0].args.tpyo"),
]


@pytest.mark.parametrize(("given", "path"), [c[1:] for c in LISTED], ids=[c[0] for c in LISTED])
def test_what_has_none_is_listed_with_its_place(given: dict[str, Any], path: str) -> None:
    assert path in [note.path for note in translate(policy(**given)).notes]


def test_only_the_first_profile_that_balances_counts() -> None:
    both = policy(evictor={"minReplicas": 2})
    both["profiles"].append(both["profiles"][0] | {"name": "second"})
    made = translate(both)
    assert made.settings == {"policy": {"minReplicas": 2}}
    assert [note.path for note in made.notes] == ["profiles[1]"]


@pytest.mark.parametrize("table", [POLICY, EVICTOR_ARGS, TOPOLOGY_ARGS, DISABLED, ENABLED])
def test_every_counterpart_is_a_setting_and_every_field_is_on_the_page(table: dict[str, Any]) -> None:
    settings = {".".join(path) for path, _ in walk(Settings)}
    page = PAGE.read_text()
    for field, rule in table.items():
        assert f"`{field}`" in page, f"docs/from-descheduler.md lacks {field}"
        if isinstance(rule, To):
            assert rule.path in settings
            assert f"`{rule.path}`" in page


def test_the_command_prints_a_settings_file_that_lists_the_rest(tmp_path: Path) -> None:
    source = tmp_path / "policy.yaml"
    source.write_text(yaml.safe_dump(policy({"nodeSelector": "pool=a"}, {"minReplicas": 2})))
    done = CliRunner().invoke(app, ["config", "from-descheduler", str(source)])
    assert done.exit_code == 0
    assert "#   nodeSelector: every node" in done.stdout
    target = tmp_path / "settings.yaml"
    target.write_text(done.stdout)
    settings = load_settings(target, env={})
    assert settings.policy.min_replicas == 2
    assert settings.evictions.enabled is False


def test_a_policy_inside_its_config_map(tmp_path: Path) -> None:
    source = tmp_path / "map.yaml"
    text = yaml.safe_dump(policy(evictor={"minReplicas": 2}))
    source.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.yaml": text}})
    )
    done = CliRunner().invoke(app, ["config", "from-descheduler", str(source)])
    assert "minReplicas: 2" in done.stdout


REFUSED = [
    ("another kind", {"apiVersion": "v1", "kind": "Pod"}, "is no DeschedulerPolicy"),
    (
        "the older version",
        {"apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy"},
        "shows the same in v1alpha2",
    ),
    (
        "a value that is none",
        policy(evictor={"minPodAge": "soon"}),
        "policy.minPodAge: 'soon' is no duration",
    ),
]


@pytest.mark.parametrize(("given", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_cannot_be_translated_is_an_error(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    source = tmp_path / "policy.yaml"
    source.write_text(yaml.safe_dump(given))
    done = CliRunner().invoke(app, ["config", "from-descheduler", str(source)])
    assert done.exit_code != 0
    assert says in str(done.exception)


def test_the_example_of_the_page_gives_what_the_page_shows(tmp_path: Path) -> None:
    given, shown = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
    source = tmp_path / "policy.yaml"
    source.write_text(given)
    assert CliRunner().invoke(app, ["config", "from-descheduler", str(source)]).stdout == shown
