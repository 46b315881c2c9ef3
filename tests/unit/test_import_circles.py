"""No two files import each other, directly or through others: none needs another to be understood first."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "rebalancer"


def imports(text: str, modules: set[str]) -> set[str]:
    """The modules of the package that a file imports anywhere: at the top, in functions, for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= named & modules or {node.module}
    return found & modules


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle, its first module repeated at the end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return list(reversed(e.args[1]))
    return []


def test_no_two_files_import_each_other() -> None:
    files = {_name(path): path for path in PACKAGE.rglob("*.py")}
    graph = {name: imports(path.read_text(), set(files)) - {name} for name, path in files.items()}
    assert circle(graph) == []


def test_a_circle_is_found_whatever_kind_of_import_closes_it() -> None:
    files = {
        "p.a": "from p import b",
        "p.b": "def f():\n    import p.c",
        "p.c": "if TYPE_CHECKING:\n    from p.a import A",
        "p.d": "from p.a import A",
    }
    graph = {name: imports(text, set(files)) for name, text in files.items()}
    assert set(circle(graph)) == {"p.a", "p.b", "p.c"}


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
