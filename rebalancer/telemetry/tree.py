"""A trace as a tree in the terminal, for those who have no backend."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.trace import StatusCode
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from rebalancer.telemetry import names
from rebalancer.telemetry.names import own

_HIDDEN = frozenset({own("seconds"), own("known"), own("kind"), own("cycle"), own("wave"), names.POD_UID})
"""What the line's head says already, or what only a machine needs."""
_NS = 1_000_000_000
_MOST_LISTED = 20
"""Values of one list that are shown."""


class TreePrinter(SpanProcessor):
    """Collects the spans of each trace, and prints them when its root has ended."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        self._lock = threading.Lock()
        self._spans: dict[int, list[ReadableSpan]] = defaultdict(list)

    def on_end(self, span: ReadableSpan) -> None:
        """Prints at the root."""
        if span.context is None:
            return
        with self._lock:
            spans = self._spans[span.context.trace_id]
            spans.append(span)
            if span.parent is not None:
                return
            del self._spans[span.context.trace_id]
        self._console.print(tree(spans))


def tree(spans: Sequence[ReadableSpan]) -> Tree:
    """The spans of one trace below its root, each with its duration, attributes and events."""
    below: dict[int, list[ReadableSpan]] = defaultdict(list)
    roots = []
    for span in spans:
        if span.parent is None:
            roots.append(span)
        else:
            below[span.parent.span_id].append(span)
    (root,) = roots
    zero = root.start_time or 0

    def grow(span: ReadableSpan, branch: Tree) -> None:
        assert span.context is not None
        items: list[tuple[int, int, Callable[[], None]]] = []
        for n, event in enumerate(span.events):
            items.append((event.timestamp, n, lambda e=event: _leaf(branch, e)))  # type: ignore[misc]
        for n, child in enumerate(below[span.context.span_id]):
            at = child.start_time or 0
            items.append((at, n, lambda c=child: grow(c, branch.add(_head(c, zero)))))  # type: ignore[misc]
        for _, _, add in sorted(items, key=lambda i: i[:2]):
            add()

    top = Tree(_head(root, zero), guide_style="dim")
    grow(root, top)
    return top


def _head(span: ReadableSpan, zero: int) -> Text:
    start, end = span.start_time or 0, span.end_time or 0
    failed = span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    name = span.name
    if own("wave") in attributes and name == names.WAVE:
        name += f" {attributes[own('wave')]}"
    if span.parent is None:
        name += f" {attributes.get(own('cycle'), '')}"
    text = Text(name, "bold red" if failed else "bold")
    text.append(f"  +{(start - zero) / _NS:.3f} s", "dim")
    if end > start:
        text.append(f"  {_seconds((end - start) / _NS)}", "cyan")
    if failed and span.status.description:
        text.append(f"  {_clean(span.status.description)}", "red")
    text.append_text(_values(attributes))
    if span.parent is None and span.context is not None:
        text.append(f"\ntrace {span.context.trace_id:032x}", "dim")
    return text


def _leaf(branch: Tree, event: Event) -> None:
    text = Text("· ", "dim")
    text.append(event.name, "yellow")
    text.append_text(_values(dict(event.attributes or {})))
    branch.add(text)


def _values(attributes: Mapping[str, Any]) -> Text:
    """Short ones behind the name, long ones and lists on lines of their own."""
    text = Text()
    long: list[tuple[str, str]] = []
    for key, value in attributes.items():
        if key in _HIDDEN or value in ("", ()) or key.startswith("exception.stacktrace"):
            continue
        key = key.removeprefix("rebalancer.")
        if isinstance(value, tuple):
            shown = [_clean(str(v)) for v in value[:_MOST_LISTED]]
            if len(shown) == 1 and len(shown[0]) < 40:
                text.append(f"  {key}=", "dim").append(shown[0])
            else:
                long += [(key, v) for v in shown]
        elif len(shown_ := _clean(_scalar(value))) > 40:
            long.append((key, shown_))
        else:
            text.append(f"  {key}=", "dim").append(shown_)
    for key, line in long:
        text.append(f"\n  {key}: ", "dim").append(line)
    return text


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _clean(text: str) -> str:
    """Names come from a cluster: nothing of them may steer the terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
