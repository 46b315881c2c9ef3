"""Types of settings: how a value is parsed, checked and written."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    WrapSerializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from rebalancer.model.selectors import LABEL_VALUE, LabelSelector
from rebalancer.policy.caps import parse_cron
from rebalancer.policy.options import Limit
from rebalancer.policy.owners import KNOWN_KINDS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_LONGEST_DURATION = 3650 * 86400.0
"""Seconds: what is longer is a slip of the hand."""
_DURATION_FORM = r"^(0|(\d+(\.\d+)?(ms|s|m|h|d))+)$"
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_GROUP = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def parse_duration(value: object) -> float:
    """The seconds of a duration such as 90s, 5m, 1h30m or 2d. A number without a unit is an error, except
    0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value == 0:
            return 0.0
        raise ValueError(f"{value} has no unit: write {value}s for seconds, or {value}m for minutes")
    text = str(value).strip()
    if not re.match(_DURATION_FORM, text):
        raise ValueError(f"{text!r} is no duration such as 90s, 5m or 1h30m (units: ms, s, m, h, d)")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))
    if seconds > _LONGEST_DURATION:
        raise ValueError(f"{text!r} is more than 3650d: no date could hold its end")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest spelling: 5400 → 1h30m."""
    if seconds == 0:
        return "0s"
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)


def parse_limit(value: object) -> Limit:
    """A cap from a number of pods (5) or a percentage (10%). Raises ValueError."""
    if isinstance(value, Limit):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(number=value)
    text = str(value).strip()
    if text.isascii() and text.isdecimal():
        return Limit(number=int(text))
    match = _PERCENT.fullmatch(text)
    if match and float(match.group(1)) <= 100:
        return Limit(percent=float(match.group(1)))
    raise ValueError(f"{value!r} is neither a number of pods such as 5 nor a percentage such as 10%")


def _parse_selector(value: object) -> LabelSelector:
    if isinstance(value, LabelSelector):
        return value
    try:
        selector = msgspec.convert(value, LabelSelector)
    except msgspec.ValidationError as e:
        place = re.search(r"`\$\.?([^`]*)`", str(e))
        where = f"{place.group(1)}: " if place and place.group(1) else ""
        raise ValueError(
            f"{where}a value of the wrong kind: a label selector has matchLabels, a mapping of texts, and "
            "matchExpressions, a list of {key, operator, values}; operators are In, NotIn, Exists and "
            "DoesNotExist"
        ) from e
    written: Any = value
    _known_keys(written, ("matchLabels", "matchExpressions"))
    for expression in written.get("matchExpressions", ()):
        _known_keys(expression, ("key", "operator", "values"))
    expressions = selector.match_expressions
    for asked in expressions:
        if bool(asked.values) != (asked.operator in ("In", "NotIn")):
            needs = "no values" if asked.values else "values"
            raise ValueError(f"matchExpressions: {asked.operator} of {asked.key!r} needs {needs}")
    for key in (*selector.match_labels, *(a.key for a in expressions)):
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key of a label")
    for text in (*selector.match_labels.values(), *(v for a in expressions for v in a.values)):
        if not LABEL_VALUE.fullmatch(text):
            raise ValueError(f"{text!r} is no value of a label: letters, digits, '-', '_' and '.' only")
    return selector


def _known_keys(written: dict[str, Any], known: tuple[str, ...]) -> None:
    if unknown := set(written) - set(known):
        raise ValueError(f"{min(unknown)} is none of {', '.join(known)}")


def _limit_out(limit: Limit) -> int | str:
    return limit.number if limit.number is not None else str(limit)


def _selector_out(selector: LabelSelector) -> Any:
    plain = msgspec.to_builtins(selector)
    return {key: value for key, value in plain.items() if value}


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration),
    WithJsonSchema(
        {
            # 0 is the only number that needs no unit.
            "type": ["string", "integer"],
            "pattern": _DURATION_FORM,
            "minimum": 0,
            "maximum": 0,
            "examples": ["90s", "5m", "1h30m"],
        }
    ),
]
"""Seconds; written as 90s, 5m, 1h30m."""

DurationOrOff = Annotated[
    float,
    # YAML 1.1 reads a bare off as false.
    BeforeValidator(lambda value: 0.0 if value in ("off", False) else parse_duration(value)),
    PlainSerializer(lambda seconds: format_duration(seconds) if seconds else "off"),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["off", False]},
                {"type": ["string", "integer"], "pattern": _DURATION_FORM, "minimum": 0, "maximum": 0},
            ],
            "examples": ["10s", "off"],
        }
    ),
]
"""Seconds; 0 = off."""

NumberOrPercent = Annotated[
    Limit,
    BeforeValidator(parse_limit),
    PlainSerializer(_limit_out),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\d+(\.\d+)?%?$"},
            ],
            "examples": [5, "10%"],
        }
    ),
]
"""A number of pods, or a percentage of them."""

PodSelector = Annotated[
    LabelSelector,
    BeforeValidator(_parse_selector),
    PlainSerializer(_selector_out),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {"type": "array", "items": {"type": "object"}},
            },
            "additionalProperties": False,
        }
    ),
]
"""A LabelSelector, written as in Kubernetes."""

ForeignTool = Literal["descheduler", "karpenter", "cluster-autoscaler"]


def _parse_cron(value: object) -> str:
    text = str(value).strip()
    parse_cron(text)
    return text


def _parse_zone(value: object) -> str:
    try:
        ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise ValueError(f"{value!r} is no time zone such as UTC or Europe/Berlin") from e
    return str(value)


CronText = Annotated[str, BeforeValidator(_parse_cron), WithJsonSchema({"type": "string", "pattern": r"\S"})]
"""A cron expression, checked."""

CronOrEmpty = Annotated[str, BeforeValidator(lambda value: _parse_cron(value) if str(value).strip() else "")]
"""A cron expression, or empty."""

TimeZone = Annotated[str, BeforeValidator(_parse_zone)]
"""A name of the time zone database."""


def _parse_namespace(text: str) -> str:
    if _NAMESPACE.fullmatch(text):
        return text
    if any(c in text for c in "*?[]"):
        raise ValueError(
            f"{text!r}: patterns are not read; name each namespace, or choose by labels "
            "(scope.namespaceSelector)"
        )
    near = re.sub(r"[\s_]+", "-", text.strip().lower())
    hint = (
        f"did you mean {near}?"
        if _NAMESPACE.fullmatch(near)
        else "lower case letters, digits and '-', 63 at most"
    )
    raise ValueError(f"{text!r} is no name of a namespace: {hint}")


def _parse_kind(text: str) -> str:
    plain = re.sub(r"[\s_-]", "", text).partition(".")[0].lower()
    meant = {k.lower(): k for k in KNOWN_KINDS}
    near = meant.get(plain) or meant.get(plain.removesuffix("s"))
    if near == text or (near is None and _KIND.fullmatch(text)):
        return text
    close = difflib.get_close_matches(plain, meant, n=1, cutoff=0.8)
    near = near or (meant[close[0]] if close else None)
    hint = (
        f": did you mean {near}?"
        if near
        else " such as StatefulSet: one word in the singular, as under kind:"
    )
    raise ValueError(f"{text!r} is no kind{hint}")


def _parse_group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a group of pods: write each name in full")
    return text


def _schema(form: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{form.pattern}$"})


NamespaceName = Annotated[str, AfterValidator(_parse_namespace), _schema(_NAMESPACE)]
"""The name of a namespace."""

NamespaceOrEmpty = Annotated[
    str,
    AfterValidator(lambda text: _parse_namespace(text) if text else text),
    WithJsonSchema({"type": "string", "pattern": f"^({_NAMESPACE.pattern})?$"}),
]
"""A namespace, or empty."""

OwnerKind = Annotated[str, AfterValidator(_parse_kind), _schema(_KIND)]
"""The kind of an owner, as it stands under `kind:`."""

PodGroupName = Annotated[str, AfterValidator(_parse_group), _schema(_GROUP)]
"""The name of a group of pods."""


class _NoneIsAWord:
    """In the JSON Schema: the word for no value, not null."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        said = handler(core_schema)
        others = [s for s in said["anyOf"] if s != {"type": "null"}]
        return {**said, "anyOf": [*others, {"const": "none"}]}


def _none(value: object) -> object:
    """`none` alone means no value. A null is what remains of a value that was deleted, or that a template
    did not find: whoever wrote the key wanted one."""
    if value is None:
        raise PydanticCustomError("none_or_value", "no value")
    return None if value == "none" else value


T = TypeVar("T")
OrNone = Annotated[
    T | None,
    BeforeValidator(_none),
    WrapSerializer(lambda value, write: "none" if value is None else write(value)),
    _NoneIsAWord(),
]
"""A value or the word none."""


# What is wrong with a value, in words for people who write settings.

_SAYS = {
    "missing": "it is required",
    "literal_error": "{value} is none of {expected}",
    "enum": "{value} is none of {expected}",
    "greater_than_equal": "{value} is less than {ge}",
    "greater_than": "{value} is not more than {gt}",
    "less_than_equal": "{value} is more than {le}",
    "less_than": "{value} is not less than {lt}",
    "multiple_of": "{value} is no multiple of {multiple_of}",
    "string_too_short": "{value} is too short",
    "finite_number": "{value} is no number",
}
_KINDS = {
    "int": "{value} is no whole number",
    "float": "{value} is no number",
    "bool": "{value} is neither true nor false",
    "string": "{value} is no text; write it in quotes",
    "tuple": "{value} is no list such as [a, b]",
    "list": "{value} is no list such as [a, b]",
    "dict": "{value} is no mapping",
}
"""By the beginning of the library's name for the error: int_type, int_parsing, int_from_float."""
_OURS = "Value error, "
_LONGEST = 60


def phrase(error: ErrorDetails) -> str:
    """A sentence without a subject, for one mistake. Those of the validators of this package stay."""
    if error["type"] == "none_or_value":
        return "it has no value: write one, or none, or leave the setting out"
    if error["input"] is None and error["type"] != "missing":
        return "it has no value: write one, or leave the setting out"
    if error["type"] == "value_error":
        return error["msg"].removeprefix(_OURS)
    template = _SAYS.get(error["type"]) or _KINDS.get(error["type"].partition("_")[0])
    value = repr(error["input"])
    if len(value) > _LONGEST:
        value = f"{value[:_LONGEST]}…"
    if template is None:
        return f"{value} is not allowed here"
    context = error.get("ctx", {})
    return template.format(value=value, **{k: v for k, v in context.items() if k != "value"})
