"""Structured logs: one line a record, for people or as JSON, with the ids of the trace.

Fields come from `extra={"fields": {...}}`. Logs go to standard error. Level and format may change while the
process runs; SIGUSR1 switches between debug and the configured level.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from msgspec import Struct
from opentelemetry import trace

from rebalancer.telemetry.span_attributes import TRACEPARENT

# The current span of this thread, for logs and annotations. Loads only opentelemetry's API.


class Ids(Struct, frozen=True):
    """Hexadecimal, as backends show them."""

    trace: str
    span: str
    sampled: bool


def current() -> Ids | None:
    """The ids of the current span; None outside any."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return Ids(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)


def trace_annotations() -> dict[str, str]:
    """Annotations of Evictions and Events that lead to the trace: W3C Trace Context's traceparent."""
    ids = current()
    return {} if ids is None else {TRACEPARENT: f"00-{ids.trace}-{ids.span}-{'01' if ids.sampled else '00'}"}


log = logging.getLogger(__name__)

Format = Literal["console", "json"]

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), r"\1 …"),
    (re.compile(r"(?<=://)[^/\s@]+@"), "…@"),
    (re.compile(r"(?i)\b(token|password|secret|api[_-]?key)(\"?\s*[=:]\s*\"?)[^\s\"&,]+"), r"\1\2…"),
)
"""Credentials in a header, in a URL, and as key and value: errors of libraries quote what they were given."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What could forge a line or hide part of one."""


class _SetUp(Struct, frozen=True):
    """What `set_up` was told."""

    level: str
    form: Format
    stream: TextIO | None


_now: _SetUp | None = None
"""None: somebody else looks after the process's logs."""


def set_up(level: str, form: Format, *, stream: TextIO | None = None) -> None:
    """Sets up the logs of the whole process, in place of what was set up before."""
    global _now
    _now = _SetUp(level, form, stream)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    # Pools and schedulers tell of every connection and every job.
    for chatty in ("urllib3", "apscheduler", "kubernetes"):
        logging.getLogger(chatty).setLevel(logging.ERROR)


def change(level: str, form: Format) -> None:
    """Changes level or format of logs that `set_up` made.

    Does nothing if neither differs: a level that the signal has switched stays.
    """
    if _now is not None and (_now.level, _now.form) != (level, form):
        set_up(level, form, stream=_now.stream)


def set_level(level: str) -> None:
    """Takes effect at once, for all threads."""
    logging.getLogger().setLevel(level.upper())


def switch_level(configured: str) -> None:
    """Switches between debug and the level last set up, or `configured` if none was."""
    quiet = _now.level if _now is not None else configured
    level = "debug" if logging.getLogger().level != logging.DEBUG else quiet
    set_level(level)
    log.warning("log level is %s now", level)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, fields, trace and span id."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        line |= {k: redacted(v) if isinstance(v, str) else v for k, v in fields(record).items()}
        if (ids := current()) is not None:
            line |= {"trace_id": ids.trace, "span_id": ids.span}
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class ConsoleFormatter(logging.Formatter):
    """Time, level, message, trace ids. Fields are left to JSON: the sentence has what they say."""

    def format(self, record: logging.LogRecord) -> str:
        time = _time(record).astimezone().isoformat(timespec="milliseconds")
        parts = [time, f"{record.levelname:<7}", _plain(redacted(record.getMessage()))]
        if (ids := current()) is not None:
            parts.append(f"trace_id={ids.trace} span_id={ids.span}")
        text = " ".join(parts)
        if record.exc_info:
            text += "\n" + redacted(self.formatException(record.exc_info))
        return text


def fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """The structured part of a record."""
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}


def redacted(text: str) -> str:
    """The text without what looks like a credential."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _plain(text: str) -> str:
    return _CONTROL.sub("�", text).replace("\n", " ")


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
