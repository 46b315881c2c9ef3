"""The first part of a report on a terminal: zones, namespaces; and a large plan by workload."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from rebalancer.report.document import EvictionReport, Report
from rebalancer.report.terminal.rows import Rows, plain
from rebalancer.report.wording import text, words

_GRADE_STYLES = {"A": "green", "B": "green", "C": "yellow", "D": "yellow", "F": "red"}


def tables(report: Report, top: int) -> Iterator[tuple[str, Rows]]:
    """What goes with each zone, and the grade of each namespace; nothing of a cluster without either."""
    if len(report.domains) > 1:
        rows = Rows("ZONE", "GOES WITH IT: NOW → PLANNED")
        for d in report.domains[:top]:
            rows.add_row(plain(d.domain), plain(words.zone_says(d)))
        yield "If a zone fails", rows
    if report.namespaces:
        rows = Rows("GRADE", "NAMESPACE", "WHY")
        for n in report.namespaces[:top]:
            letters = plain(words.grade_letters(n), _GRADE_STYLES[n.grade])
            rows.add_row(letters, plain(n.namespace), plain(words.grade_says(n)))
        more = len(report.namespaces) - top
        yield "Namespaces" + (f" (the worst {top:,} of {top + more:,})" if more > 0 else ""), rows


def grouped_waves(report: Report) -> Rows:
    """The evictions of each wave by workload."""
    rows = Rows("WAVE", "WORKLOAD", "PODS", "FROM", "MENDS")
    for number, evictions in report.by_wave.items():
        groups: dict[tuple[str, str], list[EvictionReport]] = {}
        for e in evictions:
            groups.setdefault((e.namespace, e.owner), []).append(e)
        for i, ((namespace, owner), moves) in enumerate(groups.items()):
            mends = dict.fromkeys(text.mends(e, report) for e in moves)
            rows.add_row(
                plain(str(number) if not i else ""),
                plain(f"{namespace}/{owner.rpartition('/')[2]}"),
                plain(f"{len(moves):,}"),
                plain(text.listing(dict.fromkeys(text.leaving(e) for e in moves))),
                Text("; ".join(map(text.clean, mends)), "dim"),
            )
    return rows


def timeline(report: Report) -> str:
    """How long the waves may take."""
    parts = [f"wave {w.wave} {text.duration(w.expected_seconds)}" for w in report.waves[:8]]
    more = f" and {len(report.waves) - 8:,} more" if len(report.waves) > 8 else ""
    whole = text.duration(report.summary.expected_seconds)
    longest = report.summary.takes_longest
    why = f" What takes longest is {text.clean(longest)}." if longest else ""
    return (
        f"About {whole} if pods start as they did before (30 seconds where that is not known): "
        f"{', '.join(parts)}{more}. A wave begins when the pods of the one before are gone and their "
        f"replacements Ready.{why}"
    )
