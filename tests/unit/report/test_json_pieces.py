"""A document that is written in pieces is the document that is formatted as a whole."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from msgspec import Struct

from rebalancer.report.output import json_pieces, to_json
from rebalancer.spread.arrays import Layout
from rebalancer.spread.constraint import PerDomain


class Inner(Struct, frozen=True, rename="camel"):
    long_name: str = "x"
    numbers: dict[str, int] = {}
    list_of: tuple[str, ...] = ()


class Counted(Struct, frozen=True):
    domains: PerDomain
    after: PerDomain


class Document(Struct, frozen=True, rename="camel"):
    first_field: str = "a\nb"
    nothing: None = None
    many: tuple[Inner | Counted, ...] = ()
    plain: dict[str, list[int]] = {}
    one: Inner = Inner()


@pytest.mark.parametrize(
    "document",
    [
        Document(),
        Document(many=(Inner(),)),
        Document(many=(Inner("ä\u202e\x7f", {"a": 1}, ("p\n", "q")), Inner()), plain={"k": [1, 2], "e": []}),
    ],
    ids=["empty", "one element", "names from hostile hands"],
)
def test_the_pieces_are_the_whole_with_hostile_characters_escaped(document: Document) -> None:
    whole = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    assert to_json(document) == whole.replace("\u202e", "\\u202e").replace("\x7f", "\\u007f")
    assert json.loads(to_json(document)) == json.loads(msgspec.json.encode(document))


def test_no_piece_holds_more_than_one_element() -> None:
    pieces = list(json_pieces(Document(many=tuple(Inner(str(i)) for i in range(100)))))
    assert max(map(len, pieces)) < 200


def test_long_lists_of_names_and_figures_are_one_line_and_the_rest_is_indented() -> None:
    names = tuple(f"node-{i:05d}" for i in range(1000))
    document = Document(many=(Inner(list_of=names, numbers={"a": 1}), Inner(numbers=dict.fromkeys(names, 1))))
    text = to_json(document)
    assert json.loads(text) == json.loads(msgspec.json.encode(document))
    assert len(text) < 1.1 * len(msgspec.json.encode(document))
    assert '      "numbers": {\n        "a": 1\n      },\n      "listOf": ["node-00000","node-00001"' in text


def test_counts_of_many_domains_are_written_as_they_are_before_the_plan_and_after() -> None:
    names = [f"node-{i:05d}" for i in range(5000)]
    eligible = np.ones(len(names), dtype=np.bool_)
    layout = Layout(np.arange(len(names), dtype=np.int32), tuple(names), np.arange(len(names)), eligible)
    before, after = (PerDomain(layout, np.full(len(names), n)) for n in (1, 2))
    for pair in ((before, before), (before, after)):
        said = json.loads(to_json(Document(many=(Counted(*pair), Counted(*reversed(pair))))))["many"]
        assert [tuple(s.values()) for s in said] == [
            tuple(dict(p) for p in pair),
            tuple(dict(p) for p in reversed(pair)),
        ]
