"""Prepares the report for the template, and fills the template.

Names may be hostile. So the template escapes every value, `clean` makes control and direction characters
visible, and the page's Content-Security-Policy allows only the one script whose hash it contains.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import UNSET, Struct

from rebalancer import __version__
from rebalancer.report.document import ConstraintReport, Report
from rebalancer.report.drilled.picture import picture
from rebalancer.report.drilled.words import headline
from rebalancer.report.html.picture import WIDTH, Panel, panels
from rebalancer.report.room.words import section as missing_room
from rebalancer.report.wording import text, words
from rebalancer.report.wording.bounds import beyond_reach
from rebalancer.report.wording.next_steps import AS_CALLED, Command, next_steps

_FEW = 8
"""How many constraints are shown opened."""
_NAMED = 50
"""How many pods are named for one reason."""


class Item(Struct, frozen=True):
    """A violated constraint: `anchor` is its id in the page, `slug` its name in links to any such page."""

    anchor: str
    name: str
    constraint: ConstraintReport
    slug: str
    panels: tuple[Panel, ...]
    opened: bool


class Stays(Struct, frozen=True):
    """Pods that are not evicted for the same reason."""

    reason: str
    message: str
    remedy: str
    pods: tuple[str, ...]

    @property
    def named(self) -> str:
        """The names of the first pods, and the number of the others."""
        return text.listing(self.pods, _NAMED)


def to_html(report: Report, command: Command = AS_CALLED) -> str:
    """The whole report as one HTML file."""
    violated = text.worst_first(report.constraints)
    anchors = {id(c): f"c{i}" for i, c in enumerate(report.constraints)}
    drill = report.drill if report.drill is not UNSET else None
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
            lead=words.lead(report),
            legend=words.LEGEND,
            overview=not words.at_rest(report),
            expected={w.wave: w.expected_seconds for w in report.waves},
            out_of_scope=text.out_of_scope(report).replace(": -o wide", ""),
            items=[
                Item(anchors[id(c)], text.name_of(c), c, _slug(c), panels(c), i < _FEW)
                for i, c in enumerate(violated)
            ],
            waves=list(report.by_wave.items()),
            stays=_stays(report),
            found=text.found_groups(report.findings),
            moment=text.moment(report),
            beyond=beyond_reach(report),
            steps=next_steps(report, command),
            width=WIDTH,
            room=list(missing_room(report.room)) if report.room is not UNSET else [],
            drill=drill,
            drill_says=headline(drill) if drill else "",
            drill_picture=picture(drill) if drill else None,
        )
    )
    # ASCII with character references: browsers store that with one byte a character and open it faster.
    return page.encode("ascii", "xmlcharrefreplace").decode()


def _slug(c: ConstraintReport) -> str:
    """A name for links that stays the same from report to report."""
    words_ = (c.namespace, *(w.rpartition("/")[2] for w in c.workloads[:1]), text.short_key(c.topology_key))
    more = hashlib.sha256(f"{c.selector}\0{c.when_unsatisfiable}\0{c.max_skew}".encode()).hexdigest()[:6]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join((*words_, more)))


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
        duration=text.duration,
        number=lambda n: f"{n:,}",
        signed=lambda n: f"{n:+d}".replace("-", "−"),
    )
    environment.globals.update(
        leaving=text.leaving,
        landing=text.landing,
        grade_says=words.grade_says,
        workload_name=words.workload_name,
    )
    return environment


def _visible(value: Any) -> Any:
    """A value as the template prints it: control and direction characters are visible."""
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
