"""Draws the pictures of docs/concepts.md and docs/operations.md into docs/pictures: `python -m
tests.docs.pictures`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1b2330}.s{font-size:12px;fill:#5a6675}.h{font-weight:600}"
    ".z{fill:#f3f6fa;stroke:#c9d3df}.p{fill:#3b7dd8}.o{fill:#d64545}.n{fill:none;stroke:#1a7f4b;"
    "stroke-width:2;stroke-dasharray:4 3}.g{fill:#1a7f4b}.x{fill:#9aa6b4}.a{fill:none;stroke:#5a6675;"
    "stroke-width:1.6;marker-end:url(#m)}.l{stroke:#c9d3df}.t{fill:#5a6675}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e8ee}.s{fill:#97a3b3}.z{fill:#1b222c;stroke:#394454}"
    ".p{fill:#6aa5f0}.o{fill:#f0736b}.n{stroke:#5fce97}.g{fill:#5fce97}.a{stroke:#97a3b3}.l{stroke:#394454}"
    ".t{fill:#97a3b3}}"
)
_RADIUS, _STEP = 9, 26


def svg(width: int, height: int, says: str, *parts: str) -> str:
    """A picture that describes itself in words, on light and on dark pages."""
    size = 'refX="7" refY="4" markerWidth="7" markerHeight="7"'
    head = f'<marker id="m" viewBox="0 0 8 8" {size} orient="auto">'
    arrow = f'<defs>{head}<path class="t" d="M0 0 8 4 0 8Z"/></marker></defs>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{says}">\n<title>{says}</title>\n<style>{_STYLE}</style>\n'
        + arrow
        + "\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(x: int, y: int, words: str, of: str = "") -> str:
    return f'<text x="{x}" y="{y}"{f" class={chr(34)}{of}{chr(34)}" if of else ""}>{words}</text>'


def zone(x: int, y: int, name: str, pods: str, width: int = 180) -> str:
    """A box with its pods: p may stay, o is one too many, n the place of a new one, x is lost."""
    box = f'<rect class="z" x="{x}" y="{y}" width="{width}" height="68" rx="8"/>'
    dots = "".join(
        f'<circle class="{kind}" cx="{x + 20 + i * _STEP}" cy="{y + 46}" r="{_RADIUS}"/>'
        for i, kind in enumerate(pods)
    )
    return box + text(x + 10, y + 22, name, "h") + dots


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path class="a" d="M{x1} {y1}Q{(x1 + x2) // 2} {max(y1, y2) + 44} {x2} {y2}"/>'


def excess() -> str:
    return svg(
        620, 170, "Four pods in zone a, one in b, one in c: skew 3, with maxSkew 1 an excess of 2",
        zone(10, 40, "zone a: 4", "ppoo"), zone(210, 40, "zone b: 1", "p"), zone(410, 40, "zone c: 1", "p"),
        text(10, 24, "skew = fullest − emptiest = 4 − 1 = 3"),
        text(10, 136, "excess = what of the skew is beyond maxSkew = 3 − 1 = 2"),
        text(10, 156, "The scheduler would not place a pod so. But it never looks again.", "s"),
    )  # fmt: skip


def loss() -> str:
    return svg(
        620, 250,
        "A zone fails: four of six pods are lost where pods crowd, two of six where they are spread",
        text(10, 24, "As it is, losing zone a takes 67 %", "h"),
        zone(10, 36, "zone a", "xxxx"), zone(210, 36, "zone b", "p"), zone(410, 36, "zone c", "p"),
        text(10, 142, "Spread, losing any zone takes 33 %", "h"),
        zone(10, 154, "zone a", "xx"), zone(210, 154, "zone b", "pp"), zone(410, 154, "zone c", "pp"),
    )  # fmt: skip


def fewest() -> str:
    return svg(
        620, 250, "maxSkew 1 needs one eviction for the counts 4, 2, 2 and not two",
        text(10, 24, "maxSkew 1: one eviction is enough, and one is planned", "h"),
        zone(10, 60, "zone a: 4 → 3", "pppo"), zone(210, 60, "zone b: 2 → 3", "ppn"),
        zone(410, 60, "zone c: 2", "pp"), arrow(108, 118, 274, 118),
        text(10, 176, "3, 3 and 2 are within maxSkew: a further move would disrupt somebody for nothing."),
        text(10, 200, "lowerBound: how many evictions the best final state needs at least, proved.", "s"),
        text(10, 220, "optimal: no plan does better, proved. Both stand in every report.", "s"),
    )  # fmt: skip


def certain() -> str:
    return svg(
        620, 296,
        "Certain: the filters leave no node in the zone that is left. Likely: the scores prefer another",
        text(10, 24, "certain: the scheduler's filters reject every other place", "h"),
        zone(10, 40, "zone a: rejected", "po"), zone(210, 40, "zone b: rejected", "pp"),
        zone(410, 40, "zone c: the only one", "n"), arrow(56, 98, 426, 98),
        text(10, 160, "likely: it may go to several places, and the scores prefer one", "h"),
        zone(10, 176, "zone a: low score", "po"), zone(210, 176, "zone b: low score", "pp"),
        zone(410, 176, "zone c: best score", "n"), arrow(56, 234, 426, 234),
        text(10, 284, "By default only certain moves are made: a pod that may come back is no gain.", "s"),
    )  # fmt: skip


def waves() -> str:
    rows: list[str] = []
    for i, (name, bars) in enumerate(
        (
            ("cart", ((0, 90), (96, 90))),
            ("frontend", ((0, 80), (86, 80), (172, 80), (258, 80))),
            ("search", ((0, 110),)),
        )
    ):
        y = 56 + i * 44
        rows.append(text(10, y + 16, name))
        for x, width in bars:
            rows.append(f'<rect class="p" x="{110 + x}" y="{y}" width="34" height="22" rx="4"/>')
            rows.append(f'<rect class="g" x="{144 + x}" y="{y}" width="{width - 34}" height="22" rx="4"/>')
    return svg(
        620, 230, "Workloads go beside each other; the next pod of one goes when its replacement is Ready",
        text(10, 24, "Waves: what may be in flight together", "h"), *rows,
        '<line class="l" x1="110" y1="186" x2="600" y2="186"/>', text(570, 204, "time", "s"),
        '<rect class="p" x="110" y="196" width="12" height="12" rx="2"/>', text(128, 207, "evicted", "s"),
        '<rect class="g" x="190" y="196" width="12" height="12" rx="2"/>',
        text(208, 207, "replacement starts, until Ready", "s"),
    )  # fmt: skip


def box(x: int, y: int, height: int, name: str, says: str = "") -> str:
    """Somebody who acts, or an object."""
    frame = f'<rect class="z" x="{x}" y="{y}" width="170" height="{height}" rx="8"/>'
    middle = y + height // 2
    return (
        frame
        + text(x + 12, middle - 2 if says else middle + 5, name, "h")
        + text(x + 12, middle + 16, says, "s")
    )


def acts(x1: int, x2: int, y: int, says: str) -> str:
    """An arrow from who acts to what it acts on."""
    left = min(x1, x2)
    return f'<path class="a" d="M{x1} {y}H{x2}"/>' + text(left + 10, y - 8, says, "s")


def parties() -> str:
    return svg(
        900, 280, "Who reads and writes brake, ledger and lease",
        box(10, 30, 56, "people", "pause, resume"), box(10, 112, 56, "report, history"),
        box(10, 194, 56, "standby, once", "one at a time acts"),
        box(330, 30, 56, "brake", "a ConfigMap"), box(330, 112, 56, "ledger", "a ConfigMap"),
        box(330, 194, 56, "lease"), box(710, 30, 220, "the instance", "that leads"),
        acts(180, 326, 58, "set and lift"), acts(180, 326, 140, "read"), acts(180, 326, 222, "wait for it"),
        acts(710, 504, 58, "reads before each eviction"), acts(710, 504, 140, "writes before each eviction"),
        acts(710, 504, 222, "renews; shows a pause it saw"),
        text(10, 272, "No brake, or none that can be read: no eviction. No lease: no eviction.", "s"),
    )  # fmt: skip


def outage() -> str:
    def span(of: str, x: int, width: int, y: int, says: str) -> str:
        line = f'<rect class="{of}" x="{x}" y="{y + 6}" width="{width - 4}" height="8" rx="4"/>'
        return line + text(x + 2, y, says)

    return svg(
        900, 250, "An outage in time: the zone fails, pods go elsewhere, the zone returns, waves follow",
        text(10, 40, "zone c", "h"), span("g", 100, 60, 30, "up"), span("o", 160, 270, 30, "down"),
        span("g", 430, 460, 30, "back, empty"),
        text(10, 92, "its pods", "h"), span("o", 160, 110, 82, "silent, 5 min"),
        span("p", 270, 310, 82, "made again in a and b, or Pending"),
        span("g", 580, 310, 82, "zone c fills, until the excess is gone"),
        text(10, 144, "the tool", "h"), span("x", 430, 70, 134, "settles"),
        span("p", 500, 110, 134, "5 pods"), span("p", 610, 95, 134, "wave 1"),
        span("p", 705, 95, 134, "wave 2"), span("g", 800, 90, 134, "complete"),
        text(432, 168, "10 s", "s"), text(502, 168, "first; more as", "s"),
        text(502, 184, "they become Ready", "s"),
        text(612, 168, "one eviction a second; the next of a", "s"),
        text(612, 184, "workload when its replacement is Ready", "s"),
        '<line class="l" x1="100" y1="212" x2="890" y2="212"/>', text(860, 232, "time", "s"),
    )  # fmt: skip


PICTURES = {f.__name__: f for f in (excess, loss, fewest, certain, waves, parties, outage)}


def main() -> None:
    """Writes them."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
