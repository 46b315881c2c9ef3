"""Settings: three sources, every mistake with its place, and the file in config/ as the defaults say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import convert
from msgspec.structs import asdict

from rebalancer.model.selectors import Selector
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import Limit, PolicyOptions
from rebalancer.settings import Settings, SettingsError, load_settings, plan_options
from rebalancer.settings.field_types import format_duration, parse_duration, parse_limit
from rebalancer.settings.loading import (
    REMOVED,
    environment_names,
    policy_options,
    schema,
    to_yaml,
    without_names,
)

SHIPPED = Path(__file__).parents[3] / "config" / "rebalancer.yaml"


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


DURATIONS = [
    ("90s", 90),
    ("5m", 300),
    ("1h30m", 5400),
    ("2d", 172800),
    ("1.5h", 5400),
    ("250ms", 0.25),
    ("0", 0),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_a_duration_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("wrong", [90, "90", "5 minutes", "-5m", "", "1h 30m", "m5", True, [5], "3651d"])
def test_what_is_no_duration(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"no unit|no duration|more than 3650d"):
        parse_duration(wrong)


LIMITS = [
    (5, Limit(number=5)),
    ("5", Limit(number=5)),
    ("10%", Limit(percent=10)),
    ("2.5 %", Limit(percent=2.5)),
]


@pytest.mark.parametrize(("value", "limit"), LIMITS)
def test_a_number_or_a_percentage(value: object, limit: Limit) -> None:
    assert parse_limit(value) == limit


@pytest.mark.parametrize("wrong", [-1, "110%", "many", True, 0.5, "%"])
def test_what_is_no_limit(wrong: object) -> None:
    with pytest.raises(ValueError, match="neither a number of pods such as 5 nor a percentage such as 10%"):
        parse_limit(wrong)


def test_nothing_is_evicted_by_default() -> None:
    assert load_settings(env={}).evictions.enabled is False


def test_the_defaults_are_those_of_planner_and_policy_with_a_cap_on_what_is_carried_out() -> None:
    capped = PolicyOptions(max_total=Limit(number=50))
    assert plan_options(load_settings(env={})) == PlanOptions(policy=capped)
    assert Settings.defaults() == load_settings(env={})


def test_file_then_environment_then_flags(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "policy: {minReplicas: 2, minPodAge: 1m, protectPvcPods: true}\n"
        "evictions:\n  maxTotal: 10%\nscope:\n",
    )
    env = {"REBALANCER_POLICY__MIN_POD_AGE": "2m", "REBALANCER_POLICY__MINREPLICAS": "3"}
    settings = load_settings(file, env=env, flags={"policy": {"minReplicas": 4}})
    policy = settings.policy
    assert (policy.min_replicas, policy.min_pod_age, policy.protect_pvc_pods) == (4, 120, True)
    assert settings.evictions.max_total == Limit(percent=10)


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    file = written(tmp_path, "planner: {certainty: likely}")
    assert load_settings(env={"REBALANCER_CONFIG": str(file)}).planner.certainty == "likely"


ENVIRONMENT: list[tuple[str, str, Any]] = [
    ("SCOPE__NAMESPACES__INCLUDE", "a, b", ["a", "b"]),
    ("SCOPE__NAMESPACES__EXCLUDE", "[]", []),
    ("SCOPE__LABEL_SELECTOR", '{"matchLabels": {"app": "web"}}', {"matchLabels": {"app": "web"}}),
    ("EVICTIONS__ENABLED", "true", True),
    ("EVICTIONS__MAX_PER_NODE", "5", 5),
    ("EVICTIONS__MAX_TOTAL", "25%", "25%"),
    ("POLICY__PRIORITY_THRESHOLD", "1000", 1000),
    ("POLICY__PRIORITY_THRESHOLD", "none", "none"),
    ("POLICY__PRIORITY_THRESHOLD_CLASS", "123", "123"),
]


@pytest.mark.parametrize(("name", "text", "value"), ENVIRONMENT, ids=[f"{e[0]}={e[1]}" for e in ENVIRONMENT])
def test_a_setting_in_the_environment(name: str, text: str, value: Any) -> None:
    plain: Any = load_settings(env={f"REBALANCER_{name}": text}).plain()
    path = dict(environment_names())[f"REBALANCER_{name}"]
    for key in path.split("."):
        plain = plain[key]
    assert plain == value


def test_what_the_kubelet_sets_for_a_service_is_no_mistake() -> None:
    for name in (
        "SERVICE_HOST",
        "SERVICE_PORT",
        "PORT",
        "PORT_8080_TCP",
        "PORT_8080_TCP_ADDR",
        "METRICS_SERVICE_PORT_HTTP",
    ):
        load_settings(env={f"REBALANCER_{name}": "tcp://10.0.0.1:8080"})


WRONG_FILES = [
    (
        "an unknown key",
        "policy: {minPodAges: 5m}",
        "policy.minPodAges is no setting; did you mean minPodAge?",
    ),
    ("an unknown group", "polices: {}", "polices is no setting; did you mean policy?"),
    ("snake case", "policy: {min_pod_age: 5m}", "policy.min_pod_age is no setting; did you mean minPodAge?"),
    (
        "a wrong unit",
        "policy: {minPodAge: 5 minutes}",
        "policy.minPodAge: '5 minutes' is no duration such as",
    ),
    ("no unit", "schedule: {interval: 90}", "schedule.interval: 90 has no unit: write 90s for seconds"),
    (
        "a wrong word",
        "planner: {certainty: sure}",
        "planner.certainty: 'sure' is none of 'certain' or 'likely'",
    ),
    ("a wrong cap", "evictions: {maxTotal: 110%}", "evictions.maxTotal: '110%' is neither a number"),
    (
        "a word for a group",
        "planner: fast",
        "planner: a mapping with certainty, softConstraints, newerVersions, ",
    ),
    (
        "a number for a name",
        "scope: {namespaces: {include: [a, 5]}}",
        "scope.namespaces.include.1: 5 is no text; write it in quotes",
    ),
    (
        "a wrong selector",
        "scope: {labelSelector: {app: web}}",
        "scope.labelSelector: app is none of matchLabels",
    ),
    (
        "a wrong operator",
        "scope: {labelSelector: {matchExpressions: [{key: a, operator: Is}]}}",
        "matchExpressions[0].operator: a value of the wrong kind",
    ),
    (
        "a key twice",
        "policy:\n  minReplicas: 2\n  minReplicas: 3\n",
        "settings.yaml:3:3: not valid YAML: 'minReplicas' is",
    ),
    (
        "less than a second until others take the lease",
        "leaderElection: {leaseDuration: 3s, renewDeadline: 2400ms}",
        "renewDeadline at most 0.8 of leaseDuration and a second less than it",
    ),
    ("a grace period that is none", "evictions: {gracePeriod: 0}", "evictions.gracePeriod: 0 is less than 1"),
    (
        "a grace period of less than a second",
        "evictions: {gracePeriod: 500ms}",
        "evictions.gracePeriod: '500ms' is less than 1",
    ),
    (
        "a grace period in parts of a second",
        "evictions: {gracePeriod: 1500ms}",
        "evictions.gracePeriod: '1500ms' is no multiple of 1",
    ),
    ("bad YAML", "policy: {", "settings.yaml:1:10: not valid YAML: "),
    ("a list", "- policy", "a mapping of settings is expected"),
]


@pytest.mark.parametrize(("text", "says"), [w[1:] for w in WRONG_FILES], ids=[w[0] for w in WRONG_FILES])
def test_a_mistake_in_the_file_names_file_and_key(text: str, says: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, env={})
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(file))


UNREADABLE: list[tuple[str, bytes, str]] = [
    ("a NUL", b"evictions: {}\nx\0", ":2:2: not valid YAML: unacceptable character #x0000"),
    (
        "a control character",
        b"evictions:\n  # it\xc2\x92s on",
        ":2:7: not valid YAML: unacceptable character",
    ),
    ("a NUL that is written out", b'brake: {name: "a\\0b"}', ":1:15: not valid YAML: a NUL"),
    ("no UTF-8", b"evictions: {}\n# caf\xe9", ":2:6: not UTF-8: unexpected end of data"),
    (
        "a day that no month has",
        b"brake:\n  name: 2026-02-31",
        ":2:9: not valid YAML: '2026-02-31' is no timestamp",
    ),
    ("a number without digits", b"evictions: {canary: 0x_}", ":1:21: not valid YAML: 0x_ is no decimal"),
    ("a number that YAML 1.1 reads as 8", b"evictions: {maxTotal: 010}", ":1:23: not valid YAML: 010 is no"),
    ("an hour that is read as a number", b"evictions: {maxTotal: 1:30}", ":1:23: not valid YAML: 1:30 is no"),
    ("a number without end", b"evictions: {canary: " + b"9" * 5000 + b"}", ":1:21: not valid YAML: '9999"),
    ("a tag that does not fit", b"evictions: {enabled: !!bool x}", ":1:22: not valid YAML: 'x' is no bool"),
    ("a list as a key", b"? [a]\n: 1", ":1:3: not valid YAML: a key is a list or a mapping"),
]


@pytest.mark.parametrize(("content", "says"), [u[1:] for u in UNREADABLE], ids=[u[0] for u in UNREADABLE])
def test_a_file_that_cannot_be_read_is_a_mistake_with_its_place(
    content: bytes, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        load_settings(file, env={})
    assert refused.value.message.startswith(f"{file}{says}")
    assert len(refused.value.message) < 300


def test_every_mistake_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, "policy: {minReplicas: -1, minPodAge: 5}\nplaner: {}\n")
    with pytest.raises(SettingsError, match=r"\(and 2 more\)") as caught:
        load_settings(file, env={})
    assert len(caught.value.problems) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"configuration .*gone\.yaml: no such file or directory"):
        load_settings(tmp_path / "gone.yaml", env={})


WRONG_VARIABLES = [
    ("REBALANCER_POLICY__MIN_POD_AGES", "5m", "is no setting; did you mean REBALANCER_POLICY__MIN_POD_AGE?"),
    ("REBALANCER_DRY_RUN", "1", "environment variable REBALANCER_DRY_RUN is no setting"),
    ("REBALANCER_POLICY", "{}", "environment variable REBALANCER_POLICY is no setting"),
    (
        "REBALANCER_POLICY__MIN_POD_AGE",
        "5",
        "environment variable REBALANCER_POLICY__MIN_POD_AGE: policy.minPodAge: '5'",
    ),
    (
        "REBALANCER_EVICTIONS__ENABLED",
        "maybe",
        "environment variable REBALANCER_EVICTIONS__ENABLED: evictions.enabled",
    ),
]


@pytest.mark.parametrize(("name", "value", "says"), WRONG_VARIABLES, ids=[w[0] for w in WRONG_VARIABLES])
def test_a_mistake_in_the_environment_names_the_variable(name: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(env={name: value})
    assert says in str(caught.value)


def test_a_mistake_on_the_command_line_is_told_as_one() -> None:
    with pytest.raises(SettingsError, match=r"^command line: planner\.certainty: "):
        load_settings(env={}, flags={"planner": {"certainty": "sure"}})


SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 30
"""


def test_the_scheduler_s_own_configuration_is_read(tmp_path: Path) -> None:
    flags = {"planner": {"schedulerConfig": str(written(tmp_path, SCHEDULER))}}
    scheduler = plan_options(load_settings(env={}, flags=flags)).scheduler
    assert scheduler is not None
    assert scheduler.profiles[0].percentage_of_nodes_to_score == 30


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: ConfigMap", "kind is 'ConfigMap', not KubeSchedulerConfiguration"),
        (SCHEDULER.replace("v1", "v2"), "apiVersion 'kubescheduler.config.k8s.io/v2' is none of"),
        (SCHEDULER.replace("30", "some"), "percentageOfNodesToScore"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_scheduler_configuration_that_is_none_is_an_error(text: str, says: str, tmp_path: Path) -> None:
    flags = {"planner": {"schedulerConfig": str(written(tmp_path, text))}}
    with pytest.raises(SettingsError) as caught:
        plan_options(load_settings(env={}, flags=flags))
    assert says in str(caught.value)
    assert "--config names" in str(caught.value)


@pytest.mark.parametrize("removed", sorted(REMOVED))
def test_a_setting_of_an_earlier_version_says_what_became_of_it(removed: str, tmp_path: Path) -> None:
    text = "".join(f"{key}: {{" for key in removed.split(".")) + "x: 1" + "}" * len(removed.split("."))
    with pytest.raises(SettingsError) as caught:
        load_settings(written(tmp_path, text), env={})
    assert f"{removed} {REMOVED[removed]}" in str(caught.value)


def test_every_setting_reaches_the_planner(tmp_path: Path) -> None:
    flags = {
        "scope": {
            "mode": "opt-in",
            "namespaces": {"include": ["a"], "exclude": ["b"], "evictFromKubeSystem": True},
            "namespaceSelector": {"matchLabels": {"team": "x"}},
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "ownerKindsExclude": ["StatefulSet"],
            "gangsAllow": ["ring"],
            "ownerKindsAllow": ["CloneSet"],
            "ownNamespace": "ops",
        },
        "policy": {
            "evictLocalStoragePods": True,
            "evictSystemCriticalPods": True,
            "protectPvcPods": True,
            "protectResourceClaimPods": False,
            "protectPodsWithoutPdb": True,
            "protectPaused": False,
            "priorityThreshold": 7,
            "priorityThresholdClass": "high",
            "minReplicas": 2,
            "minPodAge": "5m",
            "honorAnnotationsOf": ["karpenter"],
        },
        "evictions": {
            "maxTotal": 9,
            "maxPerNode": 1,
            "maxPerNamespace": "5%",
            "maxPerOwner": 2,
            "maxPerDomain": 3,
            "maxTotalPerHour": 50,
            "maxPerOwnerPerDay": "40%",
            "inFlightPerOwner": "25%",
            "method": "auto",
            "maxReleased": 3,
            "intoNewNodes": True,
            "minWorth": 0.5,
            "retryAfter": "1h",
        },
        "planner": {
            "certainty": "likely",
            "softConstraints": "predicted",
            "newerVersions": "refuse",
            "effort": 10,
            "schedulerConfig": str(written(tmp_path, SCHEDULER)),
        },
        "approval": {"mode": "required", "namespaces": ["shop"], "expires": "1h"},
    }
    options = plan_options(load_settings(env={}, flags=flags))
    untouched = {"scheduler", "on_progress", "witness", "proves"}
    assert {
        f for f in options.__struct_fields__ if getattr(options, f) == getattr(PlanOptions(), f)
    } <= untouched
    default = PlanOptions().policy
    same = {f for f in default.__struct_fields__ if getattr(options.policy, f) == getattr(default, f)}
    of_the_moment = {"approved", "earlier", "held", "refused", "waiting_owners"}
    of_the_moment |= {"no_release", "label_users", "runtime_classes", "auto_first"}
    assert same == {*of_the_moment, "own_labels"}
    # Settings are handed on by name, so that no type checker compares their types with those of the options.
    assert convert(asdict(options.policy), PolicyOptions) == options.policy
    assert options.policy.namespace_selector == Selector.equals({"team": "x"})
    assert str(options.policy.label_selector) == "app"
    assert options.policy.max_per_namespace == Limit(percent=5)


def test_the_shipped_file_has_every_setting_with_its_default_and_meaning() -> None:
    assert SHIPPED.read_text() == to_yaml(Settings.defaults(), comments=True)
    assert load_settings(SHIPPED, env={}) == Settings.defaults()
    assert yaml.safe_load(SHIPPED.read_text()) == Settings.defaults().plain()


def test_every_setting_says_what_it_means() -> None:
    described = schema()
    short = [
        f"{group}.{key}"
        for group, found in described["$defs"].items()
        for key, setting in found["properties"].items()
        if "$ref" not in setting and len(setting.get("description", "")) < 25
    ]
    assert short == []


def test_the_settings_in_force_can_be_read_back(tmp_path: Path) -> None:
    flags = {
        "evictions": {"maxTotal": "10%"},
        "policy": {"minPodAge": "90m"},
        "scope": {"labelSelector": {"matchLabels": {"a": "b"}}},
    }
    settings = load_settings(env={}, flags=flags)
    read_back = load_settings(written(tmp_path, to_yaml(settings)), env={})
    assert read_back.plain() == settings.plain()


def test_the_schema_knows_every_key_and_no_other() -> None:
    described = schema()
    json.dumps(described)
    groups = described["$defs"]
    assert described["additionalProperties"] is False
    assert set(described["properties"]) == set(Settings.defaults().plain())
    assert set(groups["Policy"]["properties"]) == set(Settings.defaults().plain()["policy"])
    assert groups["Policy"]["additionalProperties"] is False
    assert groups["Policy"]["properties"]["minPodAge"]["pattern"]
    assert all(
        p.get("description") for g in groups.values() for p in g["properties"].values() if "$ref" not in p
    )


EXCLUDED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("kube-system",)),
    ({"exclude": ["monitoring"]}, ("kube-system", "monitoring")),
    ({"exclude": ["kube-system", "monitoring"]}, ("kube-system", "monitoring")),
    ({"exclude": []}, ("kube-system",)),
    ({"include": ["kube-system"]}, ("kube-system",)),
    ({"evictFromKubeSystem": True}, ()),
    ({"evictFromKubeSystem": True, "exclude": ["monitoring"]}, ("monitoring",)),
]


@pytest.mark.parametrize(("said", "excluded"), EXCLUDED, ids=[str(said) for said, _ in EXCLUDED])
def test_names_in_exclude_add_to_kube_system_which_only_its_own_word_opens(
    said: dict[str, Any], excluded: tuple[str, ...]
) -> None:
    settings = load_settings(env={}, flags={"scope": {"namespaces": said}})
    assert policy_options(settings).namespaces_exclude == excluded


def test_a_cycle_has_a_cap_unless_somebody_lifts_it() -> None:
    assert policy_options(load_settings(env={})).max_total == Limit(number=50)
    lifted = load_settings(env={}, flags={"evictions": {"maxTotal": "none"}})
    assert policy_options(lifted).max_total is None


@pytest.mark.parametrize(
    ("selector", "place"),
    [
        ({"matchLabels": ["a"]}, "matchLabels: "),
        ({"matchExpressions": [{"key": 1}]}, "matchExpressions"),
        ("a", ""),
    ],
)
def test_what_is_wrong_with_a_selector_is_said_in_our_words(selector: object, place: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(env={}, flags={"scope": {"labelSelector": selector}})
    said = str(caught.value)
    assert place in said
    assert "a value of the wrong kind: a label selector has matchLabels" in said
    assert "Expected" not in said
    assert "$" not in said


def test_settings_with_selectors_are_told_without_names(tmp_path: Path) -> None:
    text = "scope: {labelSelector: {matchLabels: {app: web}}, mode: opt-in}"
    assert without_names(load_settings(written(tmp_path, text), env={})) == {"scope": {"mode": "opt-in"}}
