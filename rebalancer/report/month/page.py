"""A simulated month as a page: the figures, and the worst loss of a domain day by day, without a script."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct

from rebalancer import __version__
from rebalancer.report.month.document import MonthReport
from rebalancer.report.wording import text

WIDTH, HEIGHT, LEFT, BASE = 720, 220, 44, 190
_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1.5rem 1rem;max-width:60rem;
color:light-dark(#1b2330,#e4e8ee);background:light-dark(#fff,#12161c)}
h1{font-size:1.4rem;line-height:1.3}table{border-collapse:collapse}
th,td{padding:.3rem .9rem .3rem 0;text-align:right}
th:first-child{text-align:left}.dim{color:light-dark(#5a6675,#97a3b3)}
svg{width:100%;height:auto}path{fill:none;stroke-width:2}text{font-size:12px;fill:currentColor}
.grid{stroke:light-dark(#d8dee6,#2c3541);stroke-width:1}
.nothing{stroke:light-dark(#b3261e,#ff8f85)}.evictions{stroke:light-dark(#9a6200,#e2b04a)}
.prevention{stroke:light-dark(#0b6bcb,#7cb8ff)}.both{stroke:light-dark(#1a7f4b,#5fce97)}
.evictions,.both{stroke-dasharray:6 4}
"""


class Line(Struct, frozen=True):
    """The losses of one variant, drawn."""

    name: str
    path: str


def to_html(month: MonthReport) -> str:
    """The whole document as one HTML file. Every value is escaped; nothing runs in it."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    highest = max((max(v.worst_loss) for v in month.variants), default=0.0) or 1.0
    return (
        _template()
        .get_template("month.html.j2")
        .render(
            month=month,
            source=text.clean(month.source),
            lines=lines(month, highest),
            highest=highest,
            width=WIDTH,
            height=HEIGHT,
            left=LEFT,
            base=BASE,
            style=_STYLE,
            version=__version__,
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        )
    )


def lines(month: MonthReport, highest: float) -> list[Line]:
    """Day by day from left to right; the highest loss of all is at the top."""
    found = []
    for v in month.variants:
        step = (WIDTH - LEFT - 10) / max(1, len(v.worst_loss))
        points = []
        for day, loss in enumerate(v.worst_loss):
            y = round(BASE - loss / highest * (BASE - 20), 1)
            points.append(f"{round(LEFT + day * step, 1)},{y} {round(LEFT + (day + 1) * step, 1)},{y}")
        found.append(Line(v.variant, "M" + " L".join(points)))
    return found


@cache
def _template() -> Environment:
    environment = Environment(
        loader=PackageLoader("rebalancer.report.month", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(percent=text.percent, number=lambda n: f"{n:,}")
    return environment
