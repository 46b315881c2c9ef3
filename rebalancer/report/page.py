"""The report as one HTML file that needs nothing else. html/ has the templates.

It can all be read without the script, which filters and pages.

Names may be hostile. So the template escapes every value, `clean` makes control and direction characters
visible, and the page's Content-Security-Policy allows only the one script whose hash it contains.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import UNSET, Struct

from rebalancer import __version__
from rebalancer.model.reason import clean, listing, plural
from rebalancer.planner.plan import ConstraintResult
from rebalancer.report import text, words
from rebalancer.report.document import DrillReport, Report
from rebalancer.report.missing_room import section as missing_room
from rebalancer.report.words import AS_CALLED, Command, beyond_reach, headline, next_steps

# The worst failures as pairs of bars: pods that would be Pending today, and after the plan. This file
# computes the geometry; the template draws it.

DRILL_WIDTH = 640
"""In units of the drawing, in which text is 13 high."""
_DRILL_LABELS = 200
_DRILL_NUMBERS = 130
_DRILL_ROW = 34
_DRILL_TOP = 8
_DRILL_LONGEST = 26


class Row(Struct, frozen=True):
    """One failure. `y`: of its label; `today`, `planned`: lengths of its bars; `says`: its figures."""

    label: str
    y: int
    today: int
    planned: int
    says: str


class Picture(Struct, frozen=True):
    """The bars. `says` describes the picture for screen readers."""

    says: str
    height: int
    rows: tuple[Row, ...]
    labels: int = _DRILL_LABELS - 10
    start: int = _DRILL_LABELS
    width: int = DRILL_WIDTH

    @property
    def today(self) -> str:
        """The bars of today, as one path."""
        return "".join(_box(_DRILL_LABELS, r.y - 14, r.today, 10) for r in self.rows if r.today)

    @property
    def planned(self) -> str:
        """Those after the plan, below them."""
        return "".join(_box(_DRILL_LABELS, r.y - 2, r.planned, 10) for r in self.rows if r.planned)


def picture(report: DrillReport) -> Picture:
    """The worst failures, in their order."""
    most = max((max(f.most_pending, f.planned_most) for f in report.worst), default=0) or 1
    scale = (DRILL_WIDTH - _DRILL_LABELS - _DRILL_NUMBERS) / most
    rows = []
    for i, f in enumerate(report.worst):
        said = f.says_pending + (f" → {f.says_planned} planned" if report.planned else "")
        label = f.name if len(f.name) <= _DRILL_LONGEST else f"{f.name[: _DRILL_LONGEST - 1]}…"
        rows.append(
            Row(
                label=label,
                y=_DRILL_TOP + 18 + i * _DRILL_ROW,
                today=round(f.most_pending * scale),
                planned=round(max(f.planned_most, 0) * scale),
                says=said,
            )
        )
    told = "; ".join(f"{r.label} {r.says}" for r in rows)
    return Picture(
        f"Pods Pending after each failure: {told}", _DRILL_TOP + len(rows) * _DRILL_ROW + 4, tuple(rows)
    )


# A constraint's domains as bars, with the allowed band. This file computes the geometry; the template draws
# it.

WIDTH = 400
"""In units of the drawing, in which text is 13 high and a row 24."""
_LABELS = 120
_NUMBERS = 64
_ROW = 24
_BAR = 14
_TOP = 20
_MOST = 10
"""How many domains are drawn; a sentence tells the number of the others."""
_LONGEST = 17


class Bar(Struct, frozen=True):
    """One domain. `inside`: the part of the bar up to the upper edge of the band; `over`: the part beyond
    it."""

    name: str
    label: str
    y: int
    count: int
    change: int
    inside: int
    over: int
    text: int


class Panel(Struct, frozen=True):
    """The domains at one time. `says` describes the picture for screen readers."""

    title: str
    says: str
    height: int
    band_from: int
    band_to: int
    low: int
    high: int
    bars: tuple[Bar, ...]
    rest: str
    labels: int = _LABELS - 8

    @property
    def band(self) -> str:
        """The band as a path."""
        return _box(self.band_from, _TOP - 2, self.band_to - self.band_from, self.height - _TOP + 2)

    @property
    def inside(self) -> str:
        """The bars up to the upper edge of the band, as one path: a page may have thousands of pictures."""
        return "".join(_box(_LABELS, b.y - 11, b.inside, _BAR) for b in self.bars if b.inside)

    @property
    def over(self) -> str:
        """The parts of the bars beyond the band, as one path."""
        return "".join(_box(_LABELS + b.inside, b.y - 11, b.over, _BAR) for b in self.bars if b.over)


def _box(x: int, y: int, width: int, height: int) -> str:
    return f"M{x} {y}h{width}v{height}h{-width}z"


def panels(c: ConstraintResult, short: text.Names = text.WHOLE) -> tuple[Panel, ...]:
    """The picture of the present, and that of the plan if it differs."""
    shown = _shown(c)
    most = max((*c.domains.values(), *c.after.values(), 1))
    low, high = band(c, c.domains)
    later = band(c, c.after)
    scale = (WIDTH - _LABELS - _NUMBERS) / max(most, high, later[1])

    def named(domain: str) -> str:
        return short.of(c.constraint.topology_key, domain)

    now = _panel("Now", c.domains, {}, shown, (low, high), scale, named)
    if c.after == c.domains:
        return (now,)
    return now, _panel("Planned", c.after, c.domains, shown, later, scale, named)


def band(c: ConstraintResult, counts: Mapping[str, int]) -> tuple[int, int]:
    """The counts that a domain may have: from the global minimum (0 with too few domains) to maxSkew above
    it."""
    low = min(counts.values(), default=0) if len(counts) >= c.constraint.min_domains else 0
    return low, low + c.constraint.max_skew


def _shown(c: ConstraintResult) -> list[str]:
    """The domains to draw, in natural order. Of many domains those that change, or that deviate most."""
    names = list(c.domains)
    if len(names) <= _MOST:
        return names
    usual = sorted(c.domains.values())[len(names) // 2]

    def weight(name: str) -> tuple[int, int]:
        before, after = c.domains[name], c.after.get(name, 0)
        return -abs(before - after), -abs(before - usual)

    chosen = set(sorted(names, key=weight)[:_MOST])
    return [n for n in names if n in chosen]


def _panel(
    title: str,
    counts: Mapping[str, int],
    before: Mapping[str, int],
    shown: list[str],
    allowed: tuple[int, int],
    scale: float,
    named: Callable[[str], str],
) -> Panel:
    low, high = allowed
    bars = []
    for i, name in enumerate(shown):
        count = counts.get(name, 0)
        inside = round(min(count, high) * scale)
        label = named(name) or "(none)"
        bars.append(
            Bar(
                name=name,
                label=label if len(label) <= _LONGEST else f"{label[:9]}…{label[10 - _LONGEST :]}",
                y=_TOP + 12 + i * _ROW,
                count=count,
                change=count - before[name] if name in before else 0,
                inside=inside,
                over=round(count * scale) - inside if count > high else 0,
                text=round(_LABELS + max(count, high) * scale) + 5,
            )
        )
    rest = [n for name, n in counts.items() if name not in set(shown)]
    left_out = f"and {len(rest):,} more domains with {_range(rest)} pods" if rest else ""
    told = ", ".join(f"{b.label} {b.count}" for b in bars)
    return Panel(
        title=title,
        says=f"{title}: {told}{' ' + left_out if left_out else ''}. Allowed: {low} to {high}.",
        height=_TOP + len(shown) * _ROW,
        band_from=round(_LABELS + low * scale),
        band_to=round(_LABELS + high * scale),
        low=low,
        high=high,
        bars=tuple(bars),
        rest=left_out,
    )


def _range(counts: list[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


_FEW = 8
"""How many constraints are shown opened."""


class Item(Struct, frozen=True):
    """A violated constraint: `anchor` is its id in the page, `slug` its name in links to any such page."""

    anchor: str
    name: str
    constraint: ConstraintResult
    slug: str
    panels: tuple[Panel, ...]
    opened: bool


def to_html(report: Report, command: Command = AS_CALLED) -> str:
    """The whole report as one HTML file."""
    violated = text.worst_first(report.constraints)
    anchors = {id(c): f"c{i}" for i, c in enumerate(report.constraints)}
    drill = report.drill if report.drill is not UNSET else None
    short = text.names_in(report)
    page = filled(
        "report",
        script=_source("script.js"),
        report=report,
        summary=report.summary,
        headline=text.headline(report),
        lead=words.lead(report),
        waits=words.waits(report),
        legend=words.LEGEND,
        overview=not words.at_rest(report),
        expected={w.wave: w.seconds for w in report.waves},
        out_of_scope=text.out_of_scope(report).replace(": -o wide", ""),
        items=[
            Item(anchors[id(c)], text.name_of(c), c, _slug(c), panels(c, short), i < _FEW)
            for i, c in enumerate(violated)
        ],
        waves=list(report.by_wave.items()),
        stays=text.blocked_groups(report.blocked),
        found=text.found_groups(report.findings),
        moment=text.moment(report),
        shortened=short.said,
        beyond=beyond_reach(report),
        steps=next_steps(report, command),
        width=WIDTH,
        room=list(missing_room(report.room)) if report.room is not UNSET else [],
        drill=drill,
        drill_says=headline(drill) if drill else "",
        drill_picture=picture(drill) if drill else None,
    )
    # ASCII with character references: browsers store that with one byte a character and open it faster.
    return _whole_words(page).encode("ascii", "xmlcharrefreplace").decode()


_NO_PROSE = re.compile(r"(?s)(<(?:svg|pre|script|style|title)\b.*?</(?:svg|pre|script|style|title)>)")
_SENTENCE = re.compile(r"(?<=>)[^<>]*\s[^<>]*(?=<)")
_HYPHENATED = re.compile(r"\S*\w-\w\S*")


def _whole_words(page: str) -> str:
    """The page with names that are not broken at their hyphens, as long as they fit a line."""

    def marked(sentence: re.Match[str]) -> str:
        return (
            _HYPHENATED.sub(r'<span class="w">\g<0></span>', sentence[0])
            if "-" in sentence[0]
            else sentence[0]
        )

    parts = _NO_PROSE.split(page)
    return "".join(part if i % 2 else _SENTENCE.sub(marked, part) for i, part in enumerate(parts))


def _slug(c: ConstraintResult) -> str:
    """A name for links that stays the same from report to report."""
    words_ = (
        c.constraint.namespace,
        *(w.rpartition("/")[2] for w in c.workloads[:1]),
        text.short_key(c.constraint.topology_key),
    )
    more = hashlib.sha256(
        f"{c.selector}\0{c.constraint.when_unsatisfiable}\0{c.constraint.max_skew}".encode()
    ).hexdigest()[:6]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join((*words_, more)))


def filled(name: str, script: str = "", **values: Any) -> str:
    """A page of its template and its style. Nothing runs in it but the script."""
    style = _source(f"{name}.css")
    scripts = f" script-src 'sha256-{_digest(script)}';" if script else ""
    styles = f" style-src 'sha256-{_digest(style)}';"
    policy = f"default-src 'none';{scripts}{styles} base-uri 'none'; form-action 'none'"
    template = _environment().get_template(f"{name}.html.j2")
    return template.render(script=script, style=style, policy=policy, version=__version__, **values)


@cache
def _environment() -> Environment:
    """The templates of all pages: what they print is escaped, and visible."""
    made = Environment(
        loader=PackageLoader("rebalancer.report", "html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    made.filters.update(
        percent=text.percent,
        short=text.short_key,
        plural=plural,
        duration=text.duration,
        number=lambda n: f"{n:,}",
        signed=lambda n: f"{n:+d}".replace("-", "−"),
    )
    made.globals.update(
        brief=text.brief,
        leaving=text.leaving,
        landing=text.landing,
        listing=listing,
        says=text.says,
        grade_says=words.grade_says,
        workload_name=words.workload_name,
    )
    return made


def _visible(value: Any) -> Any:
    """A value as the template prints it: control and direction characters are visible."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return "\n".join(clean(line) for line in value.split("\n"))
    return value


@cache
def _source(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0].strip()


def _digest(source: str) -> str:
    """Of a script or a style, as a Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
