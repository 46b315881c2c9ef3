"""A constraint's domains as bars, with the allowed band. This file computes the geometry; the template draws
it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rebalancer.report.document import ConstraintReport

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


def panels(c: ConstraintReport) -> tuple[Panel, ...]:
    """The picture of the present, and that of the plan if it differs."""
    shown = _shown(c)
    most = max((*c.domains.values(), *c.after.values(), 1))
    low, high = band(c, c.domains)
    later = band(c, c.after)
    scale = (WIDTH - _LABELS - _NUMBERS) / max(most, high, later[1])
    now = _panel("Now", c.domains, {}, shown, (low, high), scale)
    if c.after == c.domains:
        return (now,)
    return now, _panel("Planned", c.after, c.domains, shown, later, scale)


def band(c: ConstraintReport, counts: Mapping[str, int]) -> tuple[int, int]:
    """The counts that a domain may have: from the global minimum (0 with too few domains) to maxSkew above
    it."""
    low = min(counts.values(), default=0) if len(counts) >= c.min_domains else 0
    return low, low + c.max_skew


def _shown(c: ConstraintReport) -> list[str]:
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
) -> Panel:
    low, high = allowed
    bars = []
    for i, name in enumerate(shown):
        count = counts.get(name, 0)
        inside = round(min(count, high) * scale)
        label = name or "(none)"
        bars.append(
            Bar(
                name=name,
                label=label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…",
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
