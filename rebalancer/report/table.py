"""The report for a terminal: as wide as the terminal, coloured only there, every name as plain text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rebalancer.report import text
from rebalancer.report.document import ConstraintReport, EvictionReport, Report

_STATUS_STYLE = {"balanced": "green", "fixable": "green", "partly-fixable": "yellow", "unfixable": "red"}
_SEVERITY_STYLE = {"error": "red", "warning": "yellow", "info": "cyan"}
_INDENT = 2
_LAID_OUT = 200
"""Tables of so many rows are fitted to the terminal; longer ones have a line for each row."""
_NUMBERS = frozenset({"MAX", "PODS", "LOST", "PLANNED", "BEST"})
_NAMES = frozenset({"WORKLOAD", "EVICT"})
_WHOLE = 36
"""Names of so many characters are not folded, however narrow the terminal: people copy them."""
_MOST_ROWS = 50
"""So many violated constraints and moves are listed in the narrow form; `wide` lists all."""


def write_table(report: Report, console: Console, *, wide: bool = False) -> None:
    """Writes the report to the console; `wide` with every pod, owner, uid, and balanced constraints."""
    view = _View(report, console, wide)
    view.summary()
    view.constraints()
    view.plan()
    view.stays()
    view.risks()
    view.findings()
    view.rests_on()
    view.next()


class _View:
    """Sections of the report in the order in which they are read."""

    def __init__(self, report: Report, console: Console, wide: bool) -> None:
        self.report = report
        self.console = console
        self.wide = wide

    def summary(self) -> None:
        """The verdict, and what was looked at."""
        style = "bold yellow" if self.report.summary.violated else "bold green"
        self.console.print(_plain(text.headline(self.report), style))
        self.console.print(_plain(text.facts(self.report), "dim"))
        if skewed := text.out_of_scope(self.report):
            self.console.print(_plain(skewed, "dim"))

    def constraints(self) -> None:
        """Violated constraints, worst first: counts now and after."""
        rows = text.worst_first(self.report.constraints)
        if self.wide:
            rows += [c for c in self.report.constraints if not (c.excess and c.in_scope)]
        if not rows:
            return
        self._title("Constraints" if self.wide else "Violated constraints")
        table = _Rows("WORKLOAD", "KEY", "MAX", "SKEW", "DOMAINS", "WORST LOSS", "STATUS")
        if self.wide:
            table.columns.append("SELECTOR")
        for c in self._first(rows):
            table.add_row(
                _plain(text.name_of(c)),
                _plain(c.topology_key if self.wide else text.short_key(c.topology_key)),
                _plain(str(c.max_skew)),
                _plain(_skew(c)),
                _plain(text.change(c)),
                _plain(f"{text.percent(c.worst_domain_loss)} ({text.percent(c.best_domain_loss)} at best)"),
                _plain(_status(c), _STATUS_STYLE.get(c.status, "") if c.in_scope else "dim"),
                *([_plain(c.selector if c.selector is not None else "(none)")] if self.wide else []),
            )
        self._print(table)
        self._rest(len(rows), "constraint")

    def plan(self) -> None:
        """The evictions, wave by wave, each with what it mends."""
        if not self.report.evictions:
            return
        self._title("Plan")
        table = _Rows("WAVE", "EVICT", "FROM", "TO", "MENDS")
        if self.wide:
            table.columns += ("WHY", "OWNER", "UID")
        before = 0
        for e in self._first(list(self.report.evictions)):
            table.add_row(
                _plain(str(e.wave) if e.wave != before else ""),
                _plain(f"{e.namespace}/{e.pod}"),
                _plain(text.leaving(e)),
                self._target(e),
                _plain(text.mends(e, self.report), "dim"),
                *([_plain(e.reason), _plain(e.owner), _plain(e.uid)] if self.wide else []),
            )
            before = e.wave
        self._print(table)
        self._rest(len(self.report.evictions), "eviction")
        if len(self.report.waves) > 1:
            note = "A wave begins when the pods of the one before are gone and their replacements Ready."
            self._print(_plain(note, "dim"))

    def stays(self) -> None:
        """What remains broken and why, and which pods are not evicted and why."""
        left = [c for c in text.worst_first(self.report.constraints) if c.reasons]
        if left:
            self._title("What stays, and why")
            for c in self._first(left):
                head = f"{text.name_of(c)}, {text.short_key(c.topology_key)}"
                excess = f": excess {c.residual_excess:,} stays" if c.residual_excess else ""
                self._print(_plain(head + excess, "bold"))
                for why in c.reasons:
                    self._why(why.code, why.message, why.remedy, 2)
            self._rest(len(left), "constraint")
        groups = text.blocked_groups(self.report.blocked)
        if not groups:
            return
        self._title(f"Not evicted: {text.plural(len(self.report.blocked), 'pod')}")
        if self.wide:
            self._every_blocked()
            return
        table = _Rows("PODS", "REASON", "FOR EXAMPLE")
        for g in groups:
            example = Text.assemble(_plain(text.listing(g.pods)), "\n", _plain(g.message, "dim"))
            if g.messages > 1:
                example.append(f" (one of {g.messages:,} messages)", "dim")
            if g.remedy:
                example.append_text(_plain(f"\n→ {g.remedy}", "cyan"))
            table.add_row(_plain(f"{len(g.pods):,}"), _plain(g.reason, "yellow"), example)
        self._print(table)

    def _every_blocked(self) -> None:
        """A line for each pod, aligned by hand: laying out a table of many thousand rows takes seconds."""
        pods = [text.clean(f"{b.namespace}/{b.pod}") for b in self.report.blocked]
        width = max(map(len, pods))
        code = max(len(b.reason) for b in self.report.blocked)
        lines = (
            f"{' ' * _INDENT}{pod:<{width}}  {b.reason:<{code}}  {text.clean(b.message)}"
            for pod, b in zip(pods, self.report.blocked, strict=True)
        )
        self.console.print(Text("\n".join(lines)), soft_wrap=True)

    def findings(self) -> None:
        """What no eviction cures: by code, or each with its remedy."""
        if not self.report.findings:
            return
        self._title("Findings")
        if self.wide and len(self.report.findings) > _LAID_OUT:
            self._every_finding()
            return
        for g in text.found_groups(self.report.findings):
            severity = _plain(g.severity, _SEVERITY_STYLE.get(g.severity, ""))
            for f in g.findings if self.wide else g.findings[:1]:
                self._print(Text.assemble(severity, " ", _plain(f"{f.object} ({g.code}): {f.message}")))
                if f.remedy and (self.wide or "\n" not in f.remedy):
                    self._print(_plain(f.remedy if self.wide else f"→ {f.remedy}", "cyan"), 2)
            if not self.wide and len(g.findings) > 1:
                more = text.listing((f.object for f in g.findings[1:]), 2)
                self._print(_plain(f"and {len(g.findings) - 1:,} more: {more}", "dim"), 2)
        if not self.wide:
            self._print(_plain("Each with what to paste or run: -o wide, or -o html", "dim"))

    def _every_finding(self) -> None:
        """Each in a line, with its remedy below: laying out thousands takes seconds."""
        self.console.print(
            _plain(
                "\n".join(
                    f"  {f.severity.value} {f.object} ({f.code}): {f.message}"
                    + "".join(f"\n    {line}" for line in f.remedy.split("\n") if line)
                    for f in self.report.findings
                )
            ),
            soft_wrap=True,
        )

    def risks(self) -> None:
        """What a failure would cost each workload."""
        if not self.wide or not self.report.risks:
            return
        self._title("Lost with the fullest domain")
        table = _Rows("WORKLOAD", "KEY", "DOMAIN", "PODS", "LOST", "PLANNED", "BEST")
        for r in self.report.risks:
            table.add_row(
                _plain(f"{r.namespace}/{r.workload}"),
                _plain(text.short_key(r.topology_key)),
                _plain(r.domain or "(none)"),
                _plain(f"{r.pods:,}"),
                *(_plain(text.percent(share)) for share in (r.lost, r.planned, r.best)),
            )
        self._print(table)

    def rests_on(self) -> None:
        """Assumptions, and what was missing."""
        unknown = self.report.warnings if self.wide else text.not_known(self.report.warnings)
        for title, sentences in (("Assumed", self.report.assumptions), ("Not known", unknown)):
            if sentences:
                self._title(title)
                for sentence in sentences:
                    self._print(Text.assemble(("- ", "dim"), _plain(sentence, "dim")))

    def next(self) -> None:
        """What to do with the report."""
        if steps := text.next_steps(self.report):
            self._title("Next")
            for step in steps:
                self._print(_plain(step))

    def _target(self, e: EvictionReport) -> Text:
        """Where the replacement lands."""
        where = text.listing(e.destination.nodes, 12) if self.wide else text.landing(e)
        return Text.assemble(_plain(where), *([] if e.destination.certain else [(" likely", "yellow")]))

    def _why(self, code: str, message: str, remedy: str, indent: int) -> None:
        self._print(Text.assemble(_plain(code, "yellow"), " ", _plain(message)), indent)
        if remedy:
            self._print(_plain(f"→ {remedy}", "cyan"), indent + 2)

    def _first(self, rows: Iterable[object]) -> list:  # type: ignore[type-arg]
        return list(rows) if self.wide else list(rows)[:_MOST_ROWS]

    def _rest(self, count: int, noun: str) -> None:
        if not self.wide and count > _MOST_ROWS:
            self._print(_plain(f"… and {text.plural(count - _MOST_ROWS, 'more ' + noun)}: -o wide", "dim"))

    def _title(self, title: str) -> None:
        self.console.print()
        self.console.print(_plain(title, "bold underline"))

    def _print(self, what: Text | _Rows, indent: int = 0) -> None:
        if isinstance(what, Text):
            self.console.print(Padding(what, (0, 0, 0, _INDENT + indent)))
        elif len(what.rows) > _LAID_OUT:
            self.console.print(what.lines(), soft_wrap=True)
        else:
            self.console.print(Padding(what.table(), (0, 0, 0, _INDENT + indent)))


class _Rows:
    """A table in the making."""

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)
        self.rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: Text) -> None:
        """One more row, as many cells as columns."""
        self.rows.append(cells)

    def table(self) -> Table:
        """Laid out: cells that are too wide are folded."""
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for i, name in enumerate(self.columns):
            longest = max((len(row[i]) for row in self.rows), default=0) if name in _NAMES else 0
            made.add_column(
                name,
                overflow="fold",
                justify="right" if name in _NUMBERS else "left",
                min_width=min(longest, _WHOLE) or None,
            )
        for row in self.rows:
            made.add_row(*row)
        return made

    def lines(self) -> Text:
        """One line a row, aligned and never folded: laying out thousands of rows takes half a minute."""
        plain = [self.columns, *([c.plain.replace("\n", " ") for c in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in plain) for i in range(len(self.columns))]
        return Text(
            "\n".join(
                " " * _INDENT + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
                for row in plain
            )
        )


def _plain(words: str, style: str = "") -> Text:
    """Text as it is: no markup is read in it, and control characters are made visible."""
    return Text("\n".join(text.clean(line) for line in words.split("\n")), style=style)


def _skew(c: ConstraintReport) -> str:
    after = max(c.after.values(), default=0) - min(c.after.values(), default=0)
    return f"{c.skew} → {after}" if c.after != c.domains else str(c.skew)


def _status(c: ConstraintReport) -> str:
    return c.status if c.in_scope else f"{c.status}, out of scope"
