"""A list that is taken apart while it comes: the same objects, wherever the pieces end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rebalancer.kube import lists
from rebalancer.kube.errors import ResponseError, Target
from rebalancer.kube.lists import ListBody, Page, UndividedError

Json = dict[str, Any]
META = {"resourceVersion": "77"}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_BLOCK", 200)


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def pod(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def read(text: bytes, size: int) -> tuple[list[Json], list[Page]]:
    body = ListBody(Target("list", say="list pods"), "the server", ("PodList",))
    pages = [p for i in range(0, len(text), size) if (p := body.feed(text[i : i + size])) is not None]
    pages.append(body.end())
    return [msgspec.json.decode(raw) for p in pages for raw in p.items or ()], pages


MANY = [pod(f"p-{i}", nodeName=f"n-{i}") for i in range(40)]
NESTED = [
    pod(f"p-{i}", templates=[{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, {"metadata": {}}])
    for i in range(20)
]
QUOTED = [pod(f"p-{i}", text='}},{"metadata":{"name":"x"}},{"metadata":{"') for i in range(20)]


@pytest.mark.parametrize("size", [1, 7, 64, 199, 1000, 100_000])
@pytest.mark.parametrize(
    "items", [[], MANY[:1], MANY, NESTED, QUOTED], ids=["none", "one", "many", "nested seams", "quoted seams"]
)
def test_a_list_gives_its_objects_in_order_wherever_its_pieces_end(items: list[Json], size: int) -> None:
    text = compact({"kind": "PodList", "apiVersion": "v1", "metadata": META, "items": items}) + b"\n"
    found, pages = read(text, size)
    assert found == items
    assert pages[-1].metadata.resource_version == "77"
    assert {p.kind for p in pages} == {"PodList"}
    assert sum(p.size for p in pages) <= len(text)


def test_a_long_list_comes_in_several_pages_before_its_end() -> None:
    text = compact({"kind": "PodList", "apiVersion": "v1", "metadata": META, "items": MANY})
    assert len(read(text, 64)[1]) > 5


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"kind": "PodList", "metadata": META, "items": MANY}, indent=1).encode(),
        compact({"items": MANY, "metadata": META, "kind": "PodList"}),
        compact({"kind": "PodList", "items": MANY, "metadata": META}),
    ],
    ids=["with spaces", "the list's own fields last", "its metadata last"],
)
def test_a_list_that_is_written_otherwise_is_read_as_a_whole(text: bytes) -> None:
    found, pages = read(text, 64)
    assert found == MANY
    assert pages[-1].metadata.resource_version == "77"


def test_a_list_without_items_may_say_null() -> None:
    assert read(compact({"kind": "PodList", "metadata": META, "items": None}), 64)[0] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"<html>hotel wifi</html>", "hotel wifi"),
        (b"", "truncated"),
        (compact({"kind": "PodList", "metadata": META, "items": MANY})[:-20], "truncated"),
        (compact({"kind": "Pod", "metadata": {}}), "it is a Pod"),
        (compact({"kind": "Pod", "metadata": {}, "items": MANY}), "it is a Pod"),
        (compact({"kind": "ServiceList", "metadata": META, "items": []}), "it is a ServiceList"),
        (compact({"kind": "ServiceList", "metadata": META, "items": MANY}), "it is a ServiceList"),
    ],
    ids=[
        "a page for people",
        "nothing",
        "cut",
        "an object",
        "an object with items",
        "others",
        "others, long",
    ],
)
def test_what_is_no_list_is_named(text: bytes, why: str) -> None:
    with pytest.raises(ResponseError, match=f"list pods: the answer is no list: .*{why}"):
        read(text, 64)


def test_a_large_body_that_cannot_be_cut_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_MOST", 1000)
    text = json.dumps({"kind": "PodList", "metadata": META, "items": MANY}).encode()
    with pytest.raises(UndividedError):
        read(text, 64)
