"""Structured logs: JSON and console, nothing secret, the level changed while running."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

from rebalancer.telemetry.logs import ConsoleFormatter, Format, redacted, set_up, switch_level

log = logging.getLogger("rebalancer.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(form: Format, level: str = "info") -> tuple[StringIO, logging.Logger]:
    stream = StringIO()
    set_up(level, form, stream=stream)
    return stream, log


def one(stream: StringIO) -> Any:
    (line,) = stream.getvalue().splitlines()
    return json.loads(line)


def test_a_line_of_json() -> None:
    stream, log = lines("json")
    log.info("evicted %s", "shop/web-1", extra={"fields": {"pod": "web-1", "wave": 2}})
    line = one(stream)
    assert line["message"] == "evicted shop/web-1"
    assert (line["pod"], line["wave"], line["level"], line["logger"]) == (
        "web-1",
        2,
        "info",
        "rebalancer.test",
    )
    assert line["time"].endswith("Z")
    assert "trace_id" not in line


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_knows_its_span(form: Format) -> None:
    stream, log = lines(form)
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("s") as span:
        log.info("here")
    ids = span.get_span_context()
    assert f"{ids.trace_id:032x}" in stream.getvalue()
    assert f"{ids.span_id:016x}" in stream.getvalue()
    assert trace.get_current_span(context.get_current()) is trace.INVALID_SPAN


def test_a_traceback_is_one_line_of_json() -> None:
    stream, log = lines("json")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("a bug")
    assert "ValueError: broken" in one(stream)["exception"]


def test_a_message_cannot_forge_a_line() -> None:
    stream, log = lines("console")
    log.warning("pod %s", "x\n2026-01-01 ERROR root: all is lost\x1b[2J\u202e")
    (line,) = stream.getvalue().splitlines()
    assert "\x1b" not in line
    assert "\u202e" not in line
    stream, log = lines("json")
    log.warning("pod %s", "x\nforged")
    assert one(stream)["message"] == "pod x\nforged"


SECRETS = [
    ("Authorization: Bearer eyJhbGciOi.abc-def_g", "eyJ"),
    ("proxy http://user:pa55@proxy:3128 refused", "pa55"),
    ("token=abcdef123 was refused", "abcdef"),
    ('{"password": "hunter22"}', "hunter"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_credentials_are_not_logged(text: str, secret: str) -> None:
    assert secret not in redacted(text)
    stream, log = lines("json")
    log.error("%s", text, extra={"fields": {"detail": text}})
    assert secret not in stream.getvalue()


def test_ordinary_text_is_left_alone() -> None:
    for text in ("evicted shop/token-service-1 from n1", "https://10.0.0.1:6443, context kind", "basic auth"):
        assert redacted(text) == text


def test_the_level_is_switched_to_debug_and_back() -> None:
    stream, log = lines("console", "warning")
    log.debug("one")
    switch_level("warning")
    log.debug("two")
    switch_level("warning")
    log.debug("three")
    said = stream.getvalue()
    assert "two" in said
    assert "one" not in said
    assert "three" not in said
    assert "log level is debug now" in said
    assert "log level is warning now" in said


def test_the_console_says_when_how_grave_and_what() -> None:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "hello", (), None)
    time_, level, message = ConsoleFormatter().format(record).split()
    assert (level, message) == ("WARNING", "hello")
    assert "T" in time_
