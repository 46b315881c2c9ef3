"""Watch lines as a real API server sent them, and lines that none would send."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import ExpiredError, KubeError, ResponseError, ServerError
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.reflector import Changes
from rebalancer.kube.watch.store import Watch, WatchEvent, initial_end
from rebalancer.model.node import ObjectMeta
from rebalancer.model.pod import Pod

_WIRE = Path(__file__).parents[2] / "sandbox" / "server" / "wire.json.gz"
WIRE = {e["name"]: e for e in json.loads(gzip.decompress(_WIRE.read_bytes()))}


class Recorded:
    """A connection whose only stream has these lines."""

    who = "a recording"

    def __init__(self, *lines: bytes) -> None:
        self.lines = list(lines)
        self.query: dict[str, Any] = {}

    def stream(self, _path: str, _target: object, *, query: dict[str, Any], **_: object) -> Recorded:
        self.query = query
        return self

    def batches(self) -> Iterator[list[bytes]]:
        yield self.lines

    def close(self) -> None:
        pass


def recorded(name: str) -> list[bytes]:
    return [json.dumps(line).encode() for line in WIRE[name]["response"]["lines"]]


def watch(*lines: bytes, kind: str = "Pod", version: str = "287") -> tuple[Watch, Recorded]:
    source = Recorded(*lines)
    return Watch(cast(Connection, source), RESOURCES[kind], version, timeout=300, silence=9.0), source


def events(*lines: bytes, kind: str = "Pod") -> list[WatchEvent]:
    return [e for batch in watch(*lines, kind=kind)[0].batches() for e in batch]


def test_what_a_real_server_replays_becomes_changes() -> None:
    changes, open_ = Changes("Pod"), watch()[0]
    found = [changes.event(open_, e) for e in events(*recorded("watch-from-rv"))]
    assert found
    for (key, value, broken), version in found:
        assert not broken
        assert version.isdigit()
        assert value is None or (isinstance(value, Pod) and key == (value.namespace, value.name))


def test_bookmarks_tell_a_version_and_do_not_end_a_list() -> None:
    changes, open_ = Changes("Pod"), watch()[0]
    marks = events(*recorded("watch-bookmarks"))
    assert [changes.bookmark(open_, e) for e in marks] == ["343", "343"]
    assert not any(initial_end(e) for e in marks)


def test_a_streaming_list_ends_with_its_bookmark() -> None:
    lines = events(*recorded("watch-initial-events"))
    ends = [i for i, e in enumerate(lines) if initial_end(e)]
    assert len(ends) == 1
    assert all(e.type == "ADDED" for e in lines[: ends[0]])


def test_metadata_alone_is_enough_for_kinds_of_which_no_more_is_read() -> None:
    changes = Changes("ControllerRevision")
    for e in events(*recorded("watch-metadata-only")):
        (_, value, broken), _ = changes.event(watch()[0], e)
        assert not broken
        assert isinstance(value, ObjectMeta)


def test_too_old_is_told_as_expired() -> None:
    with pytest.raises(ExpiredError, match="too old resource version: 287"):
        events(*recorded("watch-too-old"))


def test_what_came_before_an_error_is_not_lost() -> None:
    good = recorded("watch-from-rv")[0]
    batches = watch(good, *recorded("watch-too-old"))[0].batches()
    assert len(next(batches)) == 1
    with pytest.raises(ExpiredError):
        next(batches)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"<html>", ResponseError),
        (b"{}", ResponseError),
        (b"[]", ResponseError),
        (b'{"type":"SHRUG","object":{}}', ResponseError),
        (b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"x"}}', ServerError),
        (b'{"type":"ERROR","object":{"kind":"Status","message":"x"}}', ServerError),
        (b'{"type":"ERROR","object":{"code":"soon"}}', ResponseError),
        (b'{"type":"ERROR","object":7}', ResponseError),
    ],
)
def test_a_line_that_is_no_event_is_an_error(line: bytes, error: type[KubeError]) -> None:
    with pytest.raises(error):
        events(line)


def test_a_streaming_list_is_asked_for_without_a_version() -> None:
    _, plain = watch()
    assert plain.query["resourceVersion"] == "287"
    assert "sendInitialEvents" not in plain.query
    _, streaming = watch(version="")
    assert "resourceVersion" not in streaming.query
    assert streaming.query["resourceVersionMatch"] == "NotOlderThan"
    assert streaming.query["allowWatchBookmarks"] == "true"
