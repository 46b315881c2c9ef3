"""What is wrong with a value, in words for people who write settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SAYS = {
    "missing": "it is required",
    "literal_error": "{value} is none of {expected}",
    "enum": "{value} is none of {expected}",
    "greater_than_equal": "{value} is less than {ge}",
    "greater_than": "{value} is not more than {gt}",
    "less_than_equal": "{value} is more than {le}",
    "less_than": "{value} is not less than {lt}",
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
