"""The mistakes: every place of a file where one can be made, found in its syntax tree."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_IN_ANY_ORDER = frozenset({"min", "max"})
_SMALL = 10
"""Numbers up to this become one more, or one less. Larger ones, mostly seconds and bytes, are doubled: nobody
needs a test that tells 3600 s from 3601."""


@dataclass(frozen=True)
class Mutant:
    """A file's text with one mistake. `key` says where and which, by text and not by line number, so that it
    stays the same when the code around it changes."""

    path: str
    line: int
    key: str
    text: bytes


def mutants(path: str, text: bytes) -> list[Mutant]:
    """Every mistake that the operators know of, in the order of the text."""
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for where, node, new in _places(ast.parse(text)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        changed = text[:begin] + new.encode() + text[end:]
        old, now = (t[starts[node.lineno - 1] :].split(b"\n")[0].strip().decode() for t in (text, changed))
        key = f"{where}: {old}  →  {now}"
        seen[key] += 1
        found.append(Mutant(path, node.lineno, key if seen[key] == 1 else f"{key}  ({seen[key]}.)", changed))
    return found


def _places(tree: ast.AST, where: str = "") -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """(class and function, what is replaced, by which text)."""
    for child in _code_below(tree):
        inside = where
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inside = f"{where}.{child.name}" if where else child.name
        if isinstance(child, ast.expr):
            yield from ((inside, child, f"({ast.unparse(new)})") for new in _expressions(child))
        elif isinstance(child, ast.stmt):
            yield from ((inside, node, text) for node, text in _statements(child))
            if isinstance(child, ast.FunctionDef) and _may_be_none(child):
                yield from ((inside, r, "return None") for r in _returns(child))
        yield from _places(child, inside)


def _code_below(node: ast.AST) -> Iterator[ast.AST]:
    """The children that are run: no annotations, decorators, patterns, nor sentences (f-strings)."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and not _is_type(child):
                yield child


def _is_type(node: ast.AST) -> bool:
    """Whether it is a type with parameters: Mapping[str, int]."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return False
    return node.value.id[0].isupper() or node.value.id in ("tuple", "dict", "list", "set", "frozenset")


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    """What may be written in its place by mistake."""
    match node:
        case ast.Compare(left, [op], comparators):
            yield ast.Compare(left, [_COMPARISONS[type(op)]()], comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse) if not isinstance(test, ast.UnaryOp):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            if abs(value) <= _SMALL:
                yield ast.Constant(value - 1 if value > 1 else value + 1)
            else:
                yield ast.Constant(value * 2)
        case ast.Tuple(items, ast.Load()):
            yield from (ast.Tuple(swapped, ast.Load()) for swapped in _swapped(items))
        case ast.Call(called, args, keywords) if not _commutes(called):
            yield from (ast.Call(called, swapped, keywords) for swapped in _swapped(args))


def _swapped(items: list[ast.expr]) -> Iterator[list[ast.expr]]:
    """The items with two neighbours the other way round."""
    for i, (one, other) in enumerate(pairwise(items)):
        starred = isinstance(one, ast.Starred) or isinstance(other, ast.Starred)
        if not starred and ast.dump(one) != ast.dump(other):
            yield [*items[:i], other, one, *items[i + 2 :]]


def _commutes(called: ast.expr) -> bool:
    return isinstance(called, ast.Name) and called.id in _IN_ANY_ORDER


def _statements(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("log")))):
            return
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Raise():
            yield node, "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.If(ast.Name() | ast.Attribute() | ast.Call() as test):
            yield test, f"not {ast.unparse(test)}"


def _may_be_none(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns).endswith("| None")


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """What the function itself returns, where it is not None already."""
    inner = {id(n) for f in ast.walk(function) if f is not function and _scope(f) for n in ast.walk(f)}
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and id(node) not in inner and _says(node.value):
            yield node


def _says(value: ast.expr | None) -> bool:
    return value is not None and not isinstance(value, ast.Constant)


def _scope(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.Lambda)
