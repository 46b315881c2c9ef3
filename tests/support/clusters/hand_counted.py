"""Small clusters whose best plan a person can count: for the planner, and for the search that judges it."""

from __future__ import annotations

from typing import Any

from tests.support.build import nodes, workload

HAND_COUNTED: list[tuple[str, list[Any], tuple[int, int]]] = [
    (
        "two zones [3,1]: one move gives [2,2]",
        [nodes(a=1, b=1), workload("web").spread("zone").placed({"a-0": 3, "b-0": 1})],
        (0, 1),
    ),
    (
        "[4,4,0,0]: excess falls only with the second move, four are needed",
        [nodes(a=1, b=1, c=1, d=1), workload("web").spread("zone").placed({"a-0": 4, "b-0": 4})],
        (0, 4),
    ),
    (
        "web [3,1,1] beside web+api [3,4,4]: every move of web would raise the other",
        [
            nodes(a=1, b=1, c=1),
            workload("web").labels(tier="x").spread("zone").placed({"a-0": 3, "b-0": 1, "c-0": 1}),
            workload("api")
            .labels(tier="x")
            .spread("zone", selector={"tier": "x"})
            .placed({"b-0": 3, "c-0": 3}),
        ],
        (1, 0),
    ),
    (
        "one selector under maxSkew 1 and 3: the loose pod goes while it is kept out, the strict ones finish",
        [
            nodes(a=1, b=1),
            workload("strict").labels(app="web").spread("zone", 1).placed({"a-0": 4}),
            workload("loose").labels(app="web").spread("zone", 3).placed({"a-0": 2}),
        ],
        (0, 3),
    ),
]
"""Name, objects, (excess that stays, evictions)."""
