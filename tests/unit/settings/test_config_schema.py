"""`rebalancer config schema`: what editors are told is what is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rebalancer.settings import Settings, SettingsError, load_settings
from rebalancer.settings.loading import schema, walk

CONFIG = Path(__file__).parents[3] / "config"
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def node_of(path: tuple[str, ...]) -> dict[str, Any]:
    """The schema of one setting."""
    found: dict[str, Any] = SCHEMA
    for part in path:
        if "$ref" in found:
            found = SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]
        found = found["properties"][part]
    return found


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", sorted(CONFIG.glob("*.yaml")), ids=lambda f: f.name)
def test_what_is_shipped_is_valid(file: Path) -> None:
    VALIDATOR.validate(yaml.safe_load(file.read_text()))
    load_settings(file, env={})


@pytest.mark.parametrize("path", [path for path, _ in walk(Settings)], ids=".".join)
def test_editors_show_what_each_setting_means(path: tuple[str, ...]) -> None:
    assert len(node_of(path).get("description", "")) > 10


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("an unknown group", {"evicitons": {}}),
    ("an unknown setting", {"evictions": {"maxTotl": 1}}),
    ("a duration without unit", {"policy": {"minPodAge": 5}}),
    ("a duration in words", {"policy": {"minPodAge": "5 minutes"}}),
    ("a cap that is none", {"evictions": {"maxTotal": "many"}}),
    ("a word that is none of the choices", {"planner": {"certainty": "sure"}}),
    ("a list where a word is", {"scope": {"mode": ["opt-in"]}}),
    ("a window without an end", {"schedule": {"windows": [{"cron": "0 22 * * *"}]}}),
    *(
        (f"a window {name}", {"schedule": {"windows": [{"cron": cron, "duration": "8h", "action": "deny"}]}})
        for name, cron in (("without a start", ""), ("whose start is a space", " "))
    ),
    ("a selector with another key", {"scope": {"labelSelector": {"labels": {"a": "b"}}}}),
]


@pytest.mark.parametrize("settings", [w[1] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_refused_is_underlined(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(SettingsError):
        load_settings(tmp_path / "s.yaml", env={})
    assert not VALIDATOR.is_valid(settings)


RIGHT: list[dict[str, Any]] = [
    {"policy": {"minPodAge": "1h30m"}},
    {"evictions": {"maxTotal": 5, "maxPerNode": "10%", "maxPerOwner": "none"}},
    {"scope": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}},
    {"policy": {"minPodAge": 0}},
    {"schedule": {"windows": [{"cron": "0 22 * * MON-THU", "duration": "8h", "timeZone": "Europe/Berlin"}]}},
]


@pytest.mark.parametrize("settings", RIGHT, ids=str)
def test_what_is_taken_is_not_underlined(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(settings))
    load_settings(tmp_path / "s.yaml", env={})
    VALIDATOR.validate(settings)
