"""The document made ready for the template, and the template filled.

Names are hostile: the template escapes every value, `clean` makes control and direction characters visible,
and the page's own policy lets nothing run but the one script whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct

from rebalancer import __version__
from rebalancer.report import text
from rebalancer.report.document import ConstraintReport, Report
from rebalancer.report.html.picture import WIDTH, Panel, panels

_FEW = 8
"""So many constraints are shown opened."""
_NAMED = 50
"""So many pods are named for one reason."""


class Item(Struct, frozen=True):
    """A violated constraint: `anchor` is its id in the page."""

    anchor: str
    name: str
    constraint: ConstraintReport
    panels: tuple[Panel, ...]
    opened: bool


class Stays(Struct, frozen=True):
    """Pods that are not evicted for one and the same reason."""

    reason: str
    message: str
    remedy: str
    pods: tuple[str, ...]

    @property
    def named(self) -> str:
        """The pods, by name as far as that is bearable."""
        return text.listing(self.pods, _NAMED)


def to_html(report: Report) -> str:
    """The whole report as one HTML file."""
    violated = text.worst_first(report.constraints)
    anchors = {id(c): f"c{i}" for i, c in enumerate(report.constraints)}
    script, style = _source("script.js"), _source("style.css")
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            summary=report.summary,
            version=__version__,
            script=script,
            style=style,
            policy=(
                f"default-src 'none'; script-src 'sha256-{_hash(script)}'; "
                f"style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'"
            ),
            headline=text.headline(report),
            out_of_scope=text.out_of_scope(report).replace(": -o wide", ""),
            items=[
                Item(anchors[id(c)], text.name_of(c), c, panels(c), i < _FEW) for i, c in enumerate(violated)
            ],
            waves=list(report.waves.items()),
            stays=_stays(report),
            found=text.found_groups(report.findings),
            steps=text.next_steps(report),
            width=WIDTH,
        )
    )
    # ASCII with references: browsers keep that at one byte a character, and open it faster.
    return page.encode("ascii", "xmlcharrefreplace").decode()


def _stays(report: Report) -> list[Stays]:
    by: dict[tuple[str, str, str], list[str]] = {}
    for b in report.blocked:
        by.setdefault((b.reason, b.message, b.remedy), []).append(f"{b.namespace}/{b.pod}")
    return [
        Stays(*why, tuple(pods))
        for why, pods in sorted(by.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rebalancer.report.html", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    environment.filters.update(
        percent=text.percent,
        short=text.short_key,
        plural=text.plural,
        number=lambda n: f"{n:,}",
        signed=lambda n: f"{n:+d}".replace("-", "−"),
    )
    environment.globals.update(leaving=text.leaving, landing=text.landing)
    return environment


def _visible(value: Any) -> Any:
    """What the template prints: text without a character that would act on its reader."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return "\n".join(text.clean(line) for line in value.split("\n"))
    return value


@cache
def _source(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0].strip()


def _hash(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
