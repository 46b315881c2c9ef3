"""A trace as a tree in the terminal, for people without a backend."""

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

from rebalancer.telemetry import span_attributes
from rebalancer.telemetry.span_attributes import own

_HEAD = {
    span_attributes.CYCLE: (own("cycle"),),
    span_attributes.WAVE: (own("wave"),),
    span_attributes.EVICTION: (span_attributes.NAMESPACE, span_attributes.POD),
    span_attributes.REPLACEMENT: (span_attributes.NAMESPACE, span_attributes.POD),
}
"""What stands right behind a span's name."""
_TOLD = (
    "code",
    "seconds",
    "known",
    "kind",
    "message",
    "reason",
    "owner",
    "status",
    "read_back",
    "assumptions",
)
_HIDDEN = {span_attributes.POD_UID, *span_attributes.OWNERS.values(), *map(own, _TOLD)}
"""What the tree shows otherwise, or what only a machine needs: a backend has it all."""
_SHOWN_IN = {
    "blocked": own("reason"),
    "rejected": own("reason"),
    "held": own("reason"),
    "finding": own("code"),
    "violated": own("status"),
}
"""Events where a hidden attribute is what matters."""
_NS = 1_000_000_000
_WIDTH = 132
_MOST_LISTED = 20
"""Values of one list that are shown."""


class TreePrinter(SpanProcessor):
    """Collects the spans of each trace and prints them when its root ends."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console()
        self._lock = threading.Lock()
        self._spans: dict[int, list[ReadableSpan]] = defaultdict(list)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None:
            return
        with self._lock:
            spans = self._spans[span.context.trace_id]
            spans.append(span)
            if span.parent is not None:
                return
            del self._spans[span.context.trace_id]
        self._console.print(tree(spans))


def _console() -> Console:
    """Writes to standard error. A pipe has no width, so it gets a wide one."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


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
        children, empty = below[span.context.span_id], 0
        if span.name == span_attributes.SNAPSHOT:
            children = [c for c in children if _matters(c)]
            empty = len(below[span.context.span_id]) - len(children)
        for n, child in enumerate(children):
            at = child.start_time or 0
            items.append((at, n, lambda c=child: grow(c, branch.add(_head(c, zero)))))  # type: ignore[misc]
        for _, _, add in sorted(items, key=lambda i: i[:2]):
            add()
        if empty:
            branch.add(Text(f"… {empty} more kinds, of which there are no objects", "dim"))

    top = Tree(_head(root, zero), guide_style="dim")
    grow(root, top)
    return top


def _head(span: ReadableSpan, zero: int) -> Text:
    start, end = span.start_time or 0, span.end_time or 0
    failed = span.status.status_code is StatusCode.ERROR
    attributes = dict(span.attributes or {})
    head = "/".join(_clean(str(attributes.pop(key, ""))) for key in _HEAD.get(span.name, ()))
    text = Text(f"{span.name} {head}".strip(), "bold red" if failed else "bold")
    text.append(f"  +{(start - zero) / _NS:.3f} s", "dim")
    if end > start:
        text.append(f"  {_seconds((end - start) / _NS)}", "cyan")
    if failed and span.status.description:
        text.append(f"  {_clean(span.status.description)}", "red")
    text.append_text(_values(attributes))
    if span.parent is None and span.context is not None:
        text.append(f"\ntrace {span.context.trace_id:032x}", "dim")
    return text


def _matters(listed: ReadableSpan) -> bool:
    """Whether the list of a kind found something or went wrong."""
    attributes = listed.attributes or {}
    return bool(attributes.get(own("objects")) or not attributes.get(own("known")))


def _leaf(branch: Tree, event: Event) -> None:
    text = Text("· ", "dim")
    text.append(event.name, "yellow")
    attributes = dict(event.attributes or {})
    if (key := _SHOWN_IN.get(event.name)) is not None:
        text.append(f" {_clean(str(attributes.get(key, '')))}", "bold")
    text.append_text(_values(attributes))
    branch.add(text)


def _values(attributes: Mapping[str, Any]) -> Text:
    """Short values behind the name, long ones and lists on lines of their own."""
    text = Text()
    long: list[tuple[str, str]] = []
    for key, value in attributes.items():
        if key in _HIDDEN or value in ("", ()) or key == "exception.stacktrace":
            continue
        key = key.removeprefix("rebalancer.").removeprefix("k8s.").removesuffix(".name")
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
    """Names come from a cluster: nothing in them may control the terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
