"""A protection that is written wrongly is refused with its place and the remedy, never taken as none.

The lists of settings are made from the settings themselves: a new one without a check fails here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from rebalancer.settings import SettingsError, load_settings
from rebalancer.settings.loading import environment_names, policy_options, walk
from rebalancer.settings.settings import Settings
from tests.unit.findings.found import found, zones

EVERY = list(walk(Settings))
LISTS = [path for path, field in EVERY if str(field.annotation).startswith("tuple")]
OPTIONAL = [path for path, field in EVERY if type(None) in get_args(field.annotation)]
VARIABLES = {dotted: variable for variable, dotted in environment_names()}
NAMES = [p for p in LISTS if p[-1] in ("include", "exclude", "readNamespaces")]
KINDS = [p for p in LISTS if p[-1] in ("ownerKindsExclude", "ownerKindsAllow")]
NAMESPACE = [p for p, _ in EVERY if p[-1] in ("ownNamespace", "namespace")]


def dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def refusal(path: tuple[str, ...], value: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        load_settings(env={}, flags=nested(path, value))
    assert dotted(path) in str(refused.value)
    return str(refused.value)


def test_the_lists_are_found() -> None:
    assert (len(NAMES), len(KINDS), len(NAMESPACE)) == (3, 2, 4)
    assert {("scope", "gangsAllow"), ("policy", "honorAnnotationsOf"), *NAMES, *KINDS} <= set(LISTS)
    assert {("evictions", "maxTotal"), ("scope", "labelSelector")} <= set(OPTIONAL)


@pytest.mark.parametrize("path", LISTS, ids=dotted)
@pytest.mark.parametrize(
    "value", ["", " ", "a b", "pay*", "a,b", "x\n", 5, None, ["a"], {"a": "b"}], ids=repr
)
def test_no_list_takes_what_can_be_no_name(path: tuple[str, ...], value: Any) -> None:
    refusal(path, [value])


WRONG_NAMESPACES = [
    ("pay*", "scope.namespaceSelector"),
    ("Payments", "did you mean payments?"),
    ("pay_ments", "did you mean pay-ments?"),
    (" payments", "did you mean payments?"),
    ("-payments", "no name of a namespace"),
    ("team.payments", "no name of a namespace"),
    ("p" * 64, "63"),
    ("!payments", "no name of a namespace"),
]


@pytest.mark.parametrize("path", NAMES, ids=dotted)
@pytest.mark.parametrize(("name", "says"), WRONG_NAMESPACES)
def test_a_name_that_no_namespace_can_have(path: tuple[str, ...], name: str, says: str) -> None:
    assert says in refusal(path, [name])


@pytest.mark.parametrize("path", NAMESPACE, ids=dotted)
def test_one_namespace_by_name(path: tuple[str, ...]) -> None:
    refusal(path, "Payments")
    load_settings(env={}, flags=nested(path, ""))


WRONG_KINDS = [
    ("statefulset", "did you mean StatefulSet?"),
    ("StatefulSets", "did you mean StatefulSet?"),
    ("STATEFULSET", "did you mean StatefulSet?"),
    ("statefulsets.apps", "did you mean StatefulSet?"),
    ("sts", "no kind such as StatefulSet"),
    ("Stateful Set", "did you mean StatefulSet?"),
    ("apps/v1", "no kind such as StatefulSet"),
    ("cloneset", "did you mean CloneSet?"),
    ("Rollouts", "did you mean Rollout?"),
]


@pytest.mark.parametrize("path", KINDS, ids=dotted)
@pytest.mark.parametrize(("kind", "says"), WRONG_KINDS)
def test_a_kind_that_there_cannot_be(path: tuple[str, ...], kind: str, says: str) -> None:
    assert says in refusal(path, [kind])


@pytest.mark.parametrize("path", KINDS, ids=dotted)
def test_kinds_of_others_are_names_too(path: tuple[str, ...]) -> None:
    load_settings(env={}, flags=nested(path, ["StatefulSet", "CloneSet", "VMReplicaSet", "Seldon"]))


@pytest.mark.parametrize("path", [path for path, _ in EVERY], ids=dotted)
def test_a_key_without_a_value_is_neither_none_nor_the_default(path: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    *groups, key = path
    for null in ("", " null", " ~"):
        file.write_text(
            "".join(f"{'  ' * i}{g}:\n" for i, g in enumerate(groups)) + f"{'  ' * len(groups)}{key}:{null}\n"
        )
        with pytest.raises(SettingsError, match="no value") as refused:
            load_settings(file, env={})
        assert f"{file}: {dotted(path)}: " in str(refused.value)
        assert ("none" in str(refused.value)) is (path in OPTIONAL)
    if path in OPTIONAL or path in LISTS:
        for empty in ("", " "):
            variable = VARIABLES[dotted(path)]
            with pytest.raises(SettingsError, match=f"{variable}: .*no value"):
                load_settings(env={variable: empty})


@pytest.mark.parametrize("path", OPTIONAL, ids=dotted)
def test_none_is_a_word(path: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(str(nested(path, "none")).replace("'", '"'))
    for settings in (load_settings(file, env={}), load_settings(env={VARIABLES[dotted(path)]: "none"})):
        value: Any = settings.plain()
        for key in path:
            value = value[key]
        assert value == "none"


NOT_SOUGHT = {
    "scope.readNamespaces": "only what is read there is known at all",
    "scope.gangsAllow": "opens",
    "scope.ownerKindsAllow": "opens",
    "policy.honorAnnotationsOf": "its words are a closed list",
    "schedule.windows": "names nothing of the cluster",
}


@pytest.mark.parametrize("path", LISTS, ids=dotted)
def test_a_name_that_nothing_has_is_a_finding_unless_it_only_opens(path: tuple[str, ...]) -> None:
    if dotted(path) in NOT_SOUGHT:
        return
    name = "Rocket" if path in KINDS else "rocket"
    policy = policy_options(load_settings(env={}, flags=nested(path, [name])))
    told = [f.object for f in found(zones(), policy=policy) if f.code == "matches-nothing"]
    assert told == [f"Setting/{dotted(path)}"]


WRONG_SELECTORS = [
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": []}]},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn"}]},
    {"matchExpressions": [{"key": "", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist", "values": ["db"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "value": ["db"], "values": ["x"]}]},
    {"matchExpressions": [{"key": "tier!", "operator": "DoesNotExist"}]},
    {"matchLabels": {"tier": "d*"}},
    {"matchLabels": {"ti er": "db"}},
]


@pytest.mark.parametrize("selector", WRONG_SELECTORS, ids=str)
@pytest.mark.parametrize("key", ["labelSelector", "namespaceSelector"])
def test_a_selector_that_the_api_server_would_refuse(key: str, selector: dict[str, Any]) -> None:
    refusal(("scope", key), selector)
