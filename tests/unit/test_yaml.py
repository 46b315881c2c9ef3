"""YAML says what JSON says, to every reader, and is readable."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rebalancer.yaml import to_yaml

TEXT = st.text(st.characters(codec="utf-8")) | st.text(
    "ab :#-'\"\n\t\\%@[]{},&*!|>?~0é→\u202e\x85\u2028\ufeff"
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
@example({"a": [[1, [2, "x"]], {}, [], {"b": [{"c": None}]}, 1e-07, 1e300, -0.5]})
@example(
    [
        "yes",
        "No",
        "null",
        "~",
        "1",
        "0x1",
        "1e5",
        "2001-01-01",
        "1:30",
        "=",
        "<<",
        "",
        " ",
        "- a",
        "a: b",
        "a #b",
    ]
)
@example(
    {"block": "a: 1\n\n  b:\n    - c\nd", "kept": "a\n", "tail": "a \nb", "first": " a\nb", "tab": "a\tb\nc"}
)
@example("a\nb")
def test_what_is_written_is_read_back(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@given(TEXT)
def test_nothing_acts_on_a_terminal(text: str) -> None:
    shown = to_yaml({"x": text, "y": [text]})
    assert all(c == "\n" or c.isprintable() for c in shown)


def test_it_reads_well() -> None:
    value = {
        "name": "shop/web",
        "zones": {"a": 4, "": 1},
        "none": [],
        "evictions": [{"pod": "web-1", "nodes": ["n1", "n2"], "certain": True}],
        "message": "1 node: 1 Insufficient cpu → make room",
        "remedy": "spec:\n  replicas: 3\n\nmore: x",
    }
    assert to_yaml(value) == (
        "name: shop/web\n"
        "zones:\n"
        "  a: 4\n"
        '  "": 1\n'
        "none: []\n"
        "evictions:\n"
        "- pod: web-1\n"
        "  nodes:\n"
        "  - n1\n"
        "  - n2\n"
        "  certain: true\n"
        'message: "1 node: 1 Insufficient cpu → make room"\n'
        "remedy: |-\n"
        "  spec:\n"
        "    replicas: 3\n"
        "\n"
        "  more: x\n"
    )


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null_as_in_json(odd: float) -> None:
    assert to_yaml([odd]) == "- null\n"


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        to_yaml({"a": b"x"})
