"""A fleet's report as a page: a row for each cluster, without a script."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from rebalancer import __version__
from rebalancer.report.fleet.document import FleetReport, cells, headline
from rebalancer.report.wording import text

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1.5rem 1rem;max-width:78rem;
color:light-dark(#1b2330,#e4e8ee);background:light-dark(#fff,#12161c)}
h1{font-size:1.5rem;line-height:1.3;margin:.25rem 0 1rem;text-wrap:balance}
.kicker,.muted{color:light-dark(#5a6675,#97a3b3);margin:0}
ul{list-style:none;padding:0;margin:1rem 0;display:grid;gap:.75rem}
li{border:1px solid light-dark(#d8dee6,#2c3541);border-radius:.6rem;padding:.75rem 1rem;display:grid;
gap:.15rem 1rem;grid-template-columns:auto 1fr}
.grade{grid-row:span 3;align-self:center;font-size:1.6rem;font-weight:700;min-width:2.2rem;text-align:center}
.A,.B{color:light-dark(#1a7f4b,#5fce97)}.C,.D{color:light-dark(#9a6200,#e2b04a)}.F,.x{color:light-dark(#b3261e,#ff8f85)}
h2{font-size:1.05rem;margin:0;overflow-wrap:anywhere}p{margin:0;overflow-wrap:anywhere}
"""


def to_html(fleet: FleetReport) -> str:
    """The whole report as one HTML file. Every value is escaped; nothing runs in it."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        _template()
        .get_template("fleet.html.j2")
        .render(
            headline=headline(fleet),
            fleet=fleet,
            rows=[(c, tuple(map(text.clean, cells(c)))) for c in fleet.clusters],
            style=_STYLE,
            policy=f"default-src 'none'; style-src 'sha256-{digest}'",
            version=__version__,
        )
    )


@cache
def _template() -> Environment:
    return Environment(
        loader=PackageLoader("rebalancer.report.fleet", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
