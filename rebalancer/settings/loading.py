"""Settings from a file, the environment and flags. Each mistake is an error that names its place.

pydantic-settings merges the sources and validates them. Its own readers ignore a missing file and environment
variables that belong to no setting, so this file reads both.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from rebalancer.engine.config import ConfigError, SchedulerConfig, parse_config
from rebalancer.errors import UserError
from rebalancer.model.selectors import LabelSelector, Selector, canonical
from rebalancer.planner.plan import PlanOptions
from rebalancer.policy.options import ApprovalRules, PolicyOptions
from rebalancer.settings.field_types import phrase
from rebalancer.settings.settings import Explained, Group, Settings
from rebalancer.yaml import PlainLoader, read_yaml

PREFIX = "REBALANCER_"
RESERVED = frozenset({"REBALANCER_CONFIG", "REBALANCER_DEBUG"})
"""Variables with the prefix that are not settings: the path of the file, and whether to show tracebacks."""
_SERVICE_LINK = re.compile(
    r"^REBALANCER_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$"
)
"""Variables that the kubelet sets in every pod of a namespace that has a Service named rebalancer…."""

REMOVED = {
    "evictions.api": "is gone: pods are evicted by the Eviction API; delete the line",
    "policyReports": "is gone: rebalancer report -o openreports prints the same for kubectl apply",
    "planner.joint": "is gone: moves are made one by one; delete the line",
}
"""Settings of earlier versions, and what to do about them."""


class SettingsError(UserError):
    """The settings cannot be used. `problems`: a sentence for each mistake, with its place."""

    def __init__(self, problems: list[str], remedy: str = "") -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(problems[0] + more, remedy)
        self.problems = problems


def load_settings(
    file: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of all sources together.

    `file`: a YAML file; None = the one that `REBALANCER_CONFIG` names, if any. `flags`: the settings of the
    command line as a nested mapping with keys in camelCase. Raises SettingsError.
    """
    path = Path(file) if file is not None else (Path(p) if (p := env.get("REBALANCER_CONFIG")) else None)
    in_file = _read(path) if path is not None else {}
    in_env, variables = _environment(env)
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("command line", flags or {}),
        ("", in_env),
        (str(path), in_file),
    ]

    class Sources(Settings):
        """The settings, read from `layers`. The first source that has a value wins."""

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: Any, **__: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            """Replaces the library's own readers."""
            return tuple(InitSettingsSource(settings_cls, init_kwargs=dict(layer)) for _, layer in layers)

    try:
        merged = Sources()
    except ValidationError as e:
        raise SettingsError([_problem(error, layers, variables) for error in e.errors()]) from e
    return Settings.model_construct(**{name: getattr(merged, name) for name in Settings.model_fields})


def enabled_in_file(path: Path | None) -> bool | None:
    """What the file itself says of `evictions.enabled`, whatever other sources say; None: nothing, or there
    is no file. Raises SettingsError.
    """
    evictions = _read(path).get("evictions") if path is not None else None
    said = evictions.get("enabled") if isinstance(evictions, dict) else None
    return said if isinstance(said, bool) else None


def _read(path: Path) -> dict[str, Any]:
    value = read_file(path, _Loader, what="configuration ")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError([f"{path}: a mapping of settings is expected"], "see `rebalancer config show`")
    return _without_empty_groups(value, Settings)


def read_file(
    path: Path, loader: type[PlainLoader] = PlainLoader, *, what: str = "", remedy: str = ""
) -> Any:
    """What a file of YAML or JSON says. Raises SettingsError, which says where."""
    try:
        return read_text(path.read_text(encoding="utf-8"), path, loader, remedy)
    except OSError as e:
        raise SettingsError([f"{what}{path}: {(e.strerror or str(e)).lower()}"], remedy) from e
    except UnicodeDecodeError as e:
        *before, last = e.object[: e.start].decode().split("\n")
        at = f"{len(before) + 1}:{len(last) + 1}"
        raise SettingsError([f"{path}:{at}: not UTF-8: {e.reason}"], "save the file as UTF-8") from e


def read_text(text: str, path: Path, loader: type[PlainLoader] = PlainLoader, remedy: str = "") -> Any:
    """The same of a text that is in a file."""
    try:
        return read_yaml(text, loader)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise SettingsError([f"{path}{at}: not valid YAML: {e.problem}"], remedy) from e


def _without_empty_groups(values: dict[Any, Any], model: type[Explained]) -> dict[str, Any]:
    """Drops groups that are null: in YAML, `policy:` with all its settings commented out is a null."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        inner = _group_in(model, key)
        if inner is not None and value is None:
            continue
        if inner is not None and isinstance(value, dict):
            value = _without_empty_groups(value, inner)
        kept[str(key)] = value
    return kept


def _group_in(model: type[Explained], key: str) -> type[Explained] | None:
    """The group of settings that a key stands for; None if it is a setting, or nothing."""
    found = next((f.annotation for n, f in model.model_fields.items() if key == (f.alias or n)), None)
    return found if isinstance(found, type) and issubclass(found, Explained) else None


_INTEGER, _DECIMAL = "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)")


class _Loader(PlainLoader):
    """YAML in which a key must not occur twice, as PyYAML would silently use the last one, no text has a NUL,
    as no path may, and a number is decimal: YAML 1.1 reads 010 as 8, and 1.2 as 10."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if isinstance(node.value, str) and "\0" in node.value:
            raise yaml.MarkedYAMLError(problem="a NUL within a text", problem_mark=node.start_mark)
        if node.tag == _INTEGER and not _DECIMAL.fullmatch(node.value):
            say = f"{node.value[:60]} is no decimal number, or begins with 0"
            raise yaml.MarkedYAMLError(problem=say, problem_mark=node.start_mark)
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem="a key is a list or a mapping", problem_mark=key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _environment(env: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings in the environment as a nested mapping, and the variable of each by its dotted path.

    REBALANCER_POLICY__MIN_POD_AGE and REBALANCER_POLICY__MINPODAGE both mean policy.minPodAge. The values of
    lists and selectors are read as YAML; a list may also be written a,b,c.
    """
    found: dict[str, Any] = {}
    variables: dict[str, str] = {}
    problems: list[str] = []
    for variable in sorted(v for v in env if v.startswith(PREFIX)):
        if variable in RESERVED or _SERVICE_LINK.match(variable):
            continue
        path, field = _named(variable)
        if field is None:
            close = difflib.get_close_matches(variable, [v for v, _ in environment_names()], n=1, cutoff=0.7)
            hint = f"; did you mean {close[0]}?" if close else ""
            problems.append(f"environment variable {variable} is no setting{hint}")
            continue
        *groups, key = path
        target = found
        for group in groups:
            target = target.setdefault(group, {})
        target[key] = _value(env[variable], field)
        if target[key] is None:
            problems.append(
                f"environment variable {variable}: it has no value: set one, or unset the variable"
            )
        variables[".".join(path)] = variable
    if problems:
        raise SettingsError(problems)
    return found, variables


def environment_names() -> Iterator[tuple[str, str]]:
    """The environment variable and the dotted path of every setting."""
    for path, _ in walk(Settings):
        yield PREFIX + "__".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", p).upper() for p in path), ".".join(path)


def walk(model: type[Explained], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every setting in a group and its inner groups, with its path of keys as in YAML."""
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        if (group := _group_in(model, path[-1])) is not None:
            yield from walk(group, path)
        else:
            yield path, field


def _named(variable: str) -> tuple[tuple[str, ...], FieldInfo | None]:
    """The setting that a variable means; None if it means none."""
    wanted = [p.replace("_", "").lower() for p in variable.removeprefix(PREFIX).split("__")]
    return next((s for s in walk(Settings) if [p.lower() for p in s[0]] == wanted), ((), None))


def _value(text: str, field: FieldInfo) -> Any:
    """The text of a variable as a value of the setting's type; None for no value."""
    kind = str(field.annotation)
    if not (kind.startswith("tuple") or "LabelSelector" in kind):
        return text if text.strip() or type(None) not in get_args(field.annotation) else None
    try:
        value = read_yaml(text)
    except yaml.YAMLError:
        return text
    if kind.startswith("tuple") and not isinstance(value, list | None):
        return [part.strip() for part in text.split(",") if part.strip()]
    return value


def _problem(
    error: ErrorDetails, layers: list[tuple[str, Mapping[str, Any]]], variables: Mapping[str, str]
) -> str:
    """A sentence about one mistake: its source, the setting, and what is wrong."""
    path = tuple(str(p) for p in error["loc"])
    dotted = ".".join(path)
    source = next((name for name, layer in layers if _contains(layer, path)), "")
    if not source:
        variable = next((v for p, v in variables.items() if dotted == p or dotted.startswith(p + ".")), "")
        source = f"environment variable {variable}" if variable else "settings"
    if (said := REMOVED.get(dotted)) is not None:
        return f"{source}: {dotted} {said}"
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(path[-1], _siblings(path), n=1, cutoff=0.6)
        hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(_siblings(path))}"
        return f"{source}: {dotted} is no setting{hint}"
    if error["type"] in ("model_type", "dict_type"):
        return f"{source}: {dotted}: a mapping with {', '.join(_siblings((*path, '')))} is expected"
    what = phrase(error)
    return f"{source}: {dotted}: {what[:1].lower() + what[1:] if what[:1].isalpha() else what}"


def _contains(layer: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    value: Any = layer
    for part in path:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return not isinstance(value, Mapping) and value is not layer
    return True


def _siblings(path: tuple[str, ...]) -> list[str]:
    """The keys of the last group on the path."""
    model: type[Explained] = Settings
    for part in path[:-1]:
        if (inner := _group_in(model, part)) is None:
            break
        model = inner
    return [f.alias or n for n, f in model.model_fields.items()]


# The reference of all settings: as commented YAML, and as JSON Schema for editors.

_WIDTH = 96
_HEAD = """\
Every setting of rebalancer with its default. A setting that is left out keeps its default; a key that
is not listed here is an error. Each setting can also be given in the environment: policy.minPodAge is
REBALANCER_POLICY__MIN_POD_AGE. The environment has precedence over this file, and flags over both."""


def to_yaml(settings: Settings, *, comments: bool = False) -> str:
    """The settings as YAML, in the order of their classes; `comments` adds what each one means."""
    lines: list[str] = []
    if comments:
        lines += [f"# {line}" for line in _HEAD.splitlines()]
    _group(Settings, settings.plain(), 0, comments, lines)
    return "\n".join(lines) + "\n"


def without_names(settings: Settings) -> dict[str, Any]:
    """The settings that differ from their defaults, without text that somebody wrote: names, addresses."""
    lists = re.findall(r'"enum": (\[[^]]*\])', json.dumps(Settings.model_json_schema()))
    choices = {word for found in lists for word in json.loads(found)}

    def told(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in values.items():
            if isinstance(value, dict):
                usual = defaults.get(name)  # of a selector the word none
                if inner := told(value, usual if isinstance(usual, dict) else {}):
                    found[name] = inner
            elif value != defaults.get(name) and (
                isinstance(value, bool | int | float)
                or (isinstance(value, str) and (value in choices or _PLAIN.fullmatch(value)))
            ):
                found[name] = value
        return found

    return told(settings.plain(), Settings.defaults().plain())


_PLAIN = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d|%)?")
"""A duration, a share, a number."""


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the configuration file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rebalancer configuration",
        **{k: v for k, v in Settings.model_json_schema(by_alias=True).items() if k != "title"},
    }


def _group(
    model: type[Explained], values: dict[str, Any], depth: int, comments: bool, lines: list[str]
) -> None:
    indent = "  " * depth
    meanings = model.meanings() if comments else {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        if (inner := _group_in(model, key)) is not None:
            if comments:
                lines.append("")
                lines += _comment(inner.__doc__ or "", indent)
            lines.append(f"{indent}{key}:")
            _group(inner, values[key], depth + 1, comments, lines)
        else:
            if comments:
                lines += _comment(meanings[name], indent)
            lines.append(f"{indent}{key}: {_scalar(values[key])}")


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), _WIDTH - len(indent))]


def _scalar(value: Any) -> str:
    """A value in one line: lists and mappings as JSON, all others in YAML's plain style."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if value == "":
        return '""'
    return yaml.safe_dump(value, width=10_000).removesuffix("...\n").strip()


# The scheduler's own configuration file (KubeSchedulerConfiguration), which the engine follows.

_REMEDY = "planner.schedulerConfig is the KubeSchedulerConfiguration that kube-scheduler's --config names"


def scheduler_config(file: str) -> SchedulerConfig:
    """The KubeSchedulerConfiguration in a YAML or JSON file. Raises SettingsError."""
    document = read_file(Path(file), remedy=_REMEDY)
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        kind = document.get("kind") if isinstance(document, dict) else None
        raise SettingsError([f"{file}: kind is {kind!r}, not KubeSchedulerConfiguration"], _REMEDY)
    try:
        return parse_config(document)
    except ConfigError as e:
        raise SettingsError([f"{file}: {e}"], _REMEDY) from e


# Settings → the options of planner and policy.


def plan_options(settings: Settings) -> PlanOptions:
    """The planner's options under these settings. Raises SettingsError if the scheduler's file cannot be
    read."""
    planner = settings.planner
    return PlanOptions(
        policy=policy_options(settings),
        certainty=planner.certainty,
        soft=planner.soft_constraints,
        newer_versions=planner.newer_versions,
        scheduler=scheduler_config(planner.scheduler_config) if planner.scheduler_config else None,
        effort=planner.effort,
    )


def policy_options(settings: Settings) -> PolicyOptions:
    """Which pods may be evicted, and how many, under these settings.

    What has the same name in both is handed on as it is.
    """
    scope, approval = settings.scope, settings.approval
    system = () if scope.namespaces.evict_from_kube_system else ("kube-system",)
    return PolicyOptions(
        **{
            **_same_names(scope),
            **_same_names(settings.policy),
            **_same_names(settings.evictions),
            "approval": ApprovalRules(approval.mode == "required", approval.namespaces, approval.expires),
            "namespaces_include": scope.namespaces.include,
            "namespaces_exclude": tuple(dict.fromkeys((*system, *scope.namespaces.exclude))),
            "namespace_selector": _selector(scope.namespace_selector),
            "label_selector": _selector(scope.label_selector),
            "foreign_annotations": settings.policy.honor_annotations_of,
        }
    )


def _same_names(group: Group) -> dict[str, Any]:
    """The settings of a group that are options of policy by the same name."""
    return {name: getattr(group, name) for name in PolicyOptions.__struct_fields__ if hasattr(group, name)}


def _selector(written: LabelSelector | None) -> Selector | None:
    return canonical(written) if written is not None else None
