"""The report for a terminal: as wide as the terminal, in colours only there, and names as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET
from rich.console import Console
from rich.text import Text

from rebalancer.drill.lost import NODE, Honored, WorkloadLoss
from rebalancer.model.node import HOSTNAME
from rebalancer.model.reason import clean, listing, plural
from rebalancer.planner.plan import ConstraintResult
from rebalancer.report import text, words
from rebalancer.report.document import (
    DrillReport,
    EvictionReport,
    FailureReport,
    Report,
)
from rebalancer.report.missing_room import section as room
from rebalancer.report.text import Names, short_key
from rebalancer.report.words import Showing, beyond_reach, headline, next_steps

# Tables for a terminal, whose names are plain text and whose control characters are visible.

INDENT = 2
_GAP = 2
_NUMBERS = frozenset({"MAX", "PODS", "LOST", "PLANNED", "BEST"})


class Rows:
    """A table of these columns and rows. `right`: columns of figures."""

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Sequence[Text | str]], right: Iterable[str] = ()
    ) -> None:
        self.columns = columns
        self.right = _NUMBERS.union(right)
        self.rows = [tuple(plain(c) if isinstance(c, str) else c for c in row) for row in rows]

    def table(self, console: Console, width: int) -> Text:
        """The table, at most `width` wide. Cells are wrapped between words, never within one. A column for
        which there is no room even so goes below its row: the widest first, but never the first two."""
        cells = [tuple(Text(name, "dim") for name in self.columns), *self.rows]
        least = [
            max(len(w) for row in cells for w in ["", *row[i].plain.split()])
            for i in range(len(self.columns))
        ]
        wide = [
            max(len(x) for row in cells for x in row[i].plain.split("\n")) for i in range(len(self.columns))
        ]
        beside = list(range(len(self.columns)))
        while sum(least[i] + _GAP for i in beside) - _GAP > width and len(beside) > 2:
            beside.remove(max(beside[2:], key=lambda i: (least[i], wide[i])))
        over = sum(wide[i] + _GAP for i in beside) - _GAP - width
        while over > 0 and (loose := [i for i in beside if wide[i] > least[i]]):
            widest = max(loose, key=lambda i: wide[i])
            wide[widest] -= 1
            over -= 1
        below = [i for i in range(len(self.columns)) if i not in beside]
        # What belongs to a row stands under its name, which a narrow first column moves to the right.
        under = 4 + (wide[0] + _GAP if wide[0] <= 4 else 0)
        lines: list[Text] = []
        for number, row in enumerate(cells):
            lines += _side_by_side(
                [(_wrapped(console, row[i], wide[i]), wide[i], self.columns[i] in self.right) for i in beside]
            )
            for i in below if number else ():
                label = Text(f"{self.columns[i]}: ", "dim")
                told = _wrapped(console, label + row[i], width - under)
                lines += (Text(" " * under).append_text(x) for x in told)
        return Text("\n").join(lines)

    def lines(self) -> Text:
        """One line for each row, aligned and never wrapped. rich takes half a minute for thousands of
        rows."""
        cells = [self.columns, *([c.plain.replace("\n", " ") for c in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        right = [name in self.right for name in self.columns]
        return Text(
            "\n".join(
                "  ".join(
                    c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
                ).rstrip()
                for row in cells
            )
        )


def _side_by_side(columns: list[tuple[list[Text], int, bool]]) -> Iterator[Text]:
    """The lines of one row: those of each cell, the width of its column, and whether it stands to the
    right."""
    for i in range(max(len(lines) for lines, _, _ in columns)):
        line = Text()
        for lines, width, right in columns:
            cell = lines[i] if i < len(lines) else Text()
            blank = " " * (width - len(cell))
            line.append_text(Text.assemble(blank, cell) if right else Text.assemble(cell, blank)).append(
                " " * _GAP
            )
        line.rstrip()
        yield line


def _wrapped(console: Console, cell: Text, width: int) -> list[Text]:
    if len(cell) <= width and "\n" not in cell.plain:
        return [cell]
    lines = list(cell.wrap(console, width, overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


def indented(lines: Text, by: int) -> Text:
    """Each line further to the right."""
    return Text("\n").join(Text(" " * by).append_text(line) for line in lines.split("\n", allow_blank=True))


def put(console: Console, what: str | Text | Rows, indent: int = 0, *, lined: bool = False) -> None:
    """Writes a sentence, with its own indent, or a table, as wide as the console. `lined`: it, or each row
    of the table, as one line, however long."""
    if isinstance(what, Rows):
        lined = lined or len(what.rows) > _LAID_OUT
        table = what.lines() if lined else what.table(console, console.width - indent)
        console.print(indented(table, indent), soft_wrap=True)
        return
    if isinstance(what, str) and lined:
        console.print(plain(what), soft_wrap=True)
        return
    if isinstance(what, Text):
        lines = _wrapped(console, what, console.width - indent)
        console.print(indented(Text("\n").join(lines), indent), soft_wrap=True)
        return
    indent += len(what) - len(bare := what.lstrip(" "))
    # Of what is indented the lines that follow are so by two more.
    hang = 2 if indent else 0
    lines = _wrapped(console, plain(bare), console.width - indent - hang)
    console.print(indented(Text("\n").join(lines), indent + hang)[hang:], soft_wrap=True)


def plain(words: str, style: str = "") -> Text:
    """Text without markup, with control characters made visible."""
    return Text("\n".join(clean(line) for line in words.split("\n")), style=style)


# The first part of a report on a terminal: zones, namespaces; and a large plan by workload.

_GRADE_STYLES = {"A": "green", "B": "green", "C": "yellow", "D": "yellow", "F": "red"}


def tables(report: Report, top: int) -> Iterator[tuple[str, Rows]]:
    """What goes with each zone, and the grade of each namespace; nothing of a cluster without either."""
    if len(report.domains) > 1:
        zones = ((d.domain, words.zone_says(d)) for d in report.domains[:top])
        yield "If a zone fails", Rows(("ZONE", "GOES WITH IT: NOW → PLANNED"), zones)
    if report.namespaces:
        grades = (
            (plain(words.grade_letters(n), _GRADE_STYLES[n.grade]), n.namespace, words.grade_says(n))
            for n in report.namespaces[:top]
        )
        more = f" (the worst {top:,} of {len(report.namespaces):,})" if len(report.namespaces) > top else ""
        yield f"Namespaces{more}", Rows(("GRADE", "NAMESPACE", "WHY"), grades)


def timeline(report: Report) -> str:
    """How long the plan may take. Waves overlap, so that their times do not add up to it."""
    whole = text.duration(report.summary.expected_seconds)
    longest = report.summary.takes_longest
    why = f" The limit that decides: {clean(longest)}." if longest else ""
    return (
        f"About {whole} if pods start as they did before (30 seconds where that is not known). "
        f"A move waits only for those of earlier waves that it depends on.{why}"
    )


# The drill as plain text for a terminal.

_WORKLOADS = 5
"""Workloads that are named of one failure."""

_MANNER = {
    "silent": "nodes fall silent, and stay in the API: StatefulSets do not replace their pods (HELD)",
    "removed": "nodes are deleted, and their pods with them",
}


def section(report: DrillReport) -> Iterator[str | Rows]:
    """What a section of the report says of it."""
    short = _names(report)
    yield short.within(headline(report))
    if report.worst:
        yield _worst(report, short)
        yield from filter(None, [short.note])


def _names(report: DrillReport) -> Names:
    return text.short_names({HOSTNAME: {f.value for f in report.failures if f.key == NODE}})


def _worst(report: DrillReport, short: Names) -> Rows:
    after = ["PLANNED"] if report.planned else []
    numbers = ["NODES", "LOST", "PENDING", *after, "HELD", "GONE"]
    rows = (_row(f, short, planned=report.planned) for f in report.worst)
    return Rows(("IF IT FAILS", *numbers, "BREACHED"), rows, numbers)


def lines(report: DrillReport) -> Iterator[str | Rows]:
    """The worst failures in a table, then why pods stay Pending, and which budgets stay breached."""
    short = _names(report)
    yield short.within(headline(report))
    tried = ", ".join(map(_asked, report.keys))
    yield f"{report.source} · {tried} · {_MANNER[report.manner]}"
    if report.waiting:
        yield f"{plural(report.waiting, 'pod')} found no node before, and are not counted."
    if not report.worst:
        return
    yield ""
    more = f" of {len(report.failures):,}" if len(report.failures) > len(report.worst) else ""
    yield f"The worst {len(report.worst)}{more}"
    yield _worst(report, short)
    if short.note:
        yield f"  {short.note}"
    for failure in report.worst:
        yield from map(short.within, _failure(failure))


def _row(f: FailureReport, short: Names, *, planned: bool) -> list[str]:
    after = [f.says_planned] if planned else []
    breached = f"{f.budgets:,}" + (f", {f.lasting:,} to stay" if f.lasting else "")
    cells = (f"{f.nodes:,}", f"{f.lost:,}", f.says_pending)
    return [short.within(f.name), *cells, *after, f"{f.held:,}", f"{f.gone:,}", breached]


def _failure(f: FailureReport) -> Iterator[str]:
    missing = [w for w in f.workloads if w.lost > w.replaced]
    if not missing:
        return
    yield ""
    yield f.name + (", all at once" if f.least_pending < f.most_pending else "")
    for w in missing[:_WORKLOADS]:
        yield f"  {w.workload}: {_loss(w)}"
        if w.why:
            yield f"    {w.why}"
    if len(missing) > _WORKLOADS:
        left = missing[_WORKLOADS:]
        pending = plural(sum(w.pending for w in left), "pod")
        yield f"  and {plural(len(left), 'more workload')} with {pending} Pending"
    if any(w.counts_dead for w in missing):
        yield "  What is down counts as empty, and keeps the others at maxSkew."
    if f.honored is not None:
        yield from _honored(f.honored)
    stay = [b for b in f.breached if b.after < b.needed]
    if stay:
        told = (f"{b.budget} ({b.after} of {b.needed} needed)" for b in stay)
        yield f"  budgets that stay breached: {listing(told, _WORKLOADS)}"


def _honored(h: Honored) -> Iterator[str]:
    lowered = " and minDomains as low as what is left" if h.min_domains else ""
    whose = listing(h.workloads, _WORKLOADS)
    before, after = map(text.percent, h.loss)
    instead = "as without it" if before == after else f"instead of {before}"
    yield f"  Replayed with nodeTaintsPolicy: Honor{lowered} in {whose}:"
    yield (
        f"    {h.pending[1]:,} instead of {h.pending[0]:,} Pending; a domain then has up to {after} of a "
        f"workload's pods {instead}"
    )


def _loss(w: WorkloadLoss) -> str:
    said = [f"loses {w.lost:,} of {plural(w.pods, 'pod')}"]
    if w.pending:
        said.append(f"{w.pending:,} Pending")
    if w.held:
        said.append(f"{w.held:,} not made again yet")
    if w.gone:
        said.append(f"{w.gone:,} made again by nobody")
    return ", ".join(said)


def _asked(key: str) -> str:
    """What was asked for: every node, every zone, or zone b."""
    name, _, value = key.partition("=")
    short = short_key(name)
    return f"{short} {value}" if value else f"every {short}"


_STATUS_STYLE = {"balanced": "green", "fixable": "green", "partly-fixable": "yellow", "unfixable": "red"}
_SEVERITY_STYLE = {"error": "red", "warning": "yellow", "info": "cyan"}
_LAID_OUT = 200
"""Tables of up to this many rows are fitted to the terminal. Longer ones have one line for each row."""
_MESSAGES = 3
"""Messages of one reason why pods are not evicted."""
_LONG = 60
"""Lines after which the verdict is repeated."""


def write_table(
    report: Report, console: Console, *, wide: bool = False, showing: Showing | None = None
) -> None:
    """Writes the report to the console; `wide` adds every pod, owner and uid, and balanced constraints."""
    view = _View(report, console, wide, showing or Showing())
    view.summary()
    if view.showing.plan:
        view.plan()
        return
    view.overview()
    if not view.showing.summary:
        view.constraints()
        view.plan()
        view.stays()
        view.room()
        view.risks()
        view.drill()
        view.findings()
        view.rests_on()
    view.next()
    view.again()


class _View:
    """Writes the sections of the report."""

    def __init__(self, report: Report, console: Console, wide: bool, showing: Showing) -> None:
        self.showing = showing
        self.printed = 0
        self.report = report
        self.console = console
        self.wide = wide
        self.short = text.WHOLE if wide else text.names_in(report)

    def summary(self) -> None:
        """Writes the verdict, and what was looked at."""
        style = "bold yellow" if self.report.summary.violated else "bold green"
        if lead := words.lead(self.report):
            put(self.console, plain(lead, style))
        told = "is told without --summary" if self.showing.summary else "is told below"
        put(self.console, plain(text.headline(self.report, told), style))
        put(self.console, plain(text.facts(self.report), "dim"))
        for wait in words.waits(self.report):
            put(self.console, plain(wait, "yellow"))
        if skewed := text.out_of_scope(self.report):
            put(self.console, plain(skewed, "dim"))

    def overview(self) -> None:
        """Writes what goes with each zone, and the grade of each namespace."""
        if words.at_rest(self.report):
            return
        for title, rows in tables(self.report, self.showing.top):
            self._title(title)
            self._print(rows)
        if self.report.namespaces:
            self._print(plain(words.LEGEND, "dim"))

    def again(self) -> None:
        """Writes the verdict once more under a long report, whose beginning has scrolled away."""
        if self.printed > _LONG and not self.showing.summary:
            self.console.print()
            put(self.console, plain(text.headline(self.report, "is told above"), "bold"))

    def constraints(self) -> None:
        """Writes the violated constraints, the worst first, with the counts now and after the plan."""
        rows = text.worst_first(self.report.constraints)
        if self.wide:
            rows += [c for c in self.report.constraints if not (c.excess and c.in_scope)]
        if not rows:
            return
        self._title("Constraints" if self.wide else "Violated constraints")
        head = ("WORKLOAD", "KEY", "MAX", "SKEW", "DOMAINS", "WORST LOSS", "STATUS")
        cells = (
            (
                text.name_of(c),
                c.constraint.topology_key if self.wide else text.short_key(c.constraint.topology_key),
                str(c.constraint.max_skew),
                _skew(c),
                text.change(c, self.short),
                f"{text.percent(c.worst_domain_loss)} ({text.percent(c.best_domain_loss)} at best)",
                plain(_status(c), _STATUS_STYLE.get(c.status, "") if c.in_scope else "dim"),
                *([c.selector if c.selector is not None else "(none)"] if self.wide else []),
            )
            for c in self._first(rows)
        )
        self._print(Rows((*head, "SELECTOR") if self.wide else head, cells))
        self._rest(len(rows), "constraint")
        if not self.report.evictions:
            self._dim(self.short.note)

    def plan(self) -> None:
        """Writes the evictions, wave by wave, each with the constraints that it helps."""
        if not self.report.evictions:
            return
        self._title("Plan")
        self._print(self._moves())
        self._rest(len(self.report.evictions), "eviction")
        if self.wide:
            self._print(plain(words.WORTH, "dim"))
        self._dim(self.short.note)
        if len(self.report.waves) > 1:
            self._print(plain(timeline(self.report), "dim"))

    def _moves(self) -> Rows:
        head = ("WAVE", "EVICT", "FROM", "TO", "MENDS")
        waves = [0, *(e.move.wave for e in self.report.evictions)]
        rows = (
            (
                str(e.move.wave) if e.move.wave != before else "",
                e.move.pod.key,
                text.leaving(e, self.short),
                self._target(e),
                plain(text.mends(e, self.report), "dim"),
                *([f"{e.move.worth:.2g}", f"{e.away} s", e.owner, e.move.pod.uid] if self.wide else []),
            )
            for e, before in zip(self._first(self.report.evictions), waves, strict=False)
        )
        return Rows((*head, "SAVES", "AWAY", "OWNER", "UID") if self.wide else head, rows)

    def stays(self) -> None:
        """Writes which excess stays and why, and which pods are not evicted and why."""
        left = [c for c in text.worst_first(self.report.constraints) if c.reasons]
        if left:
            self._title("What stays, and why")
            if said := beyond_reach(self.report):
                self._print(plain(said))
            self._dim(text.moment(self.report))
            for c in self._first(left):
                head = f"{text.name_of(c)}, {text.short_key(c.constraint.topology_key)}"
                excess = f": excess {c.residual_excess:,} stays" if c.residual_excess else ""
                self._print(plain(head + excess, "bold"))
                for why in c.reasons:
                    self._why(why.code, why.message, why.remedy, 2)
            self._rest(len(left), "constraint")
        groups = text.blocked_groups(self.report.blocked, _MESSAGES)
        if not groups:
            return
        self._title(f"Not evicted: {plural(len(self.report.blocked), 'pod')}")
        if not left:
            self._dim(text.moment(self.report))
        if self.wide:
            every = ((b.pod.key, b.reason.code.value, b.reason.message) for b in self.report.blocked)
            self._print(Rows(("POD", "REASON", "WHY"), every))
            return
        rows = []
        for i, g in enumerate(groups):
            example = Text.assemble(plain(listing(g.pods)), "\n", plain(g.message, "dim"))
            again = i + 1 < len(groups) and (groups[i + 1].reason, groups[i + 1].remedy) == (
                g.reason,
                g.remedy,
            )
            if g.remedy and not again:
                example.append_text(plain(f"\n→ {g.remedy}", "cyan"))
            rows.append((f"{len(g.pods):,}", plain(g.reason, "yellow"), example))
        self._print(Rows(("PODS", "REASON", "FOR EXAMPLE"), rows))

    def _dim(self, said: str) -> None:
        if said:
            self._print(plain(said, "dim"))

    def room(self) -> None:
        """Writes which nodes are missing, where any are."""
        if self.report.room is not UNSET:
            self._title("Room that is missing")
            for line in room(self.report.room):
                self.console.print(plain(f"  {line}"), soft_wrap=True)

    def drill(self) -> None:
        """Writes what failures would leave Pending, where it was asked for."""
        if self.report.drill is not UNSET:
            self._title("If a node or a domain fails")
            for part in section(self.report.drill):
                self._print(part)

    def findings(self) -> None:
        """Writes the findings, errors first: by code, or, if `wide`, by what they say, with a remedy."""
        if not self.report.findings:
            return
        self._title("Findings")
        for g in text.found_groups(self.report.findings, alike=self.wide):
            f = g.findings[0]
            severity = plain(g.severity, _SEVERITY_STYLE.get(g.severity, ""))
            self._print(Text.assemble(severity, " ", plain(f"{f.object} ({g.code}): {text.says(f)}")))
            if more := g.more(50 if self.wide else 2):
                self._print(plain(f"and {more}", "dim"), 2)
            if f.remedy and (self.wide or "\n" not in f.remedy):
                self._print(plain(f.remedy if self.wide else f"→ {f.remedy}", "cyan"), 2)
        first, every = "-o wide for the first of its kind, ", "-o html or -o json for each"
        self._print(plain(f"What to paste or run: {'' if self.wide else first}{every}", "dim"))

    def risks(self) -> None:
        """Writes what a failure would cost each workload."""
        if not self.wide or not self.report.risks:
            return
        self._title("Lost with the fullest domain")
        rows = (
            (
                f"{r.namespace}/{r.workload}",
                text.short_key(r.topology_key),
                r.domain or "(none)",
                f"{r.pods:,}",
                *map(text.percent, (r.lost, r.planned, r.best)),
            )
            for r in self.report.risks
        )
        self._print(Rows(("WORKLOAD", "KEY", "DOMAIN", "PODS", "LOST", "PLANNED", "BEST"), rows))

    def rests_on(self) -> None:
        """Writes the assumptions, and what was missing."""
        unknown = self.report.warnings if self.wide else text.not_known(self.report.warnings)
        for title, sentences in (("Assumed", self.report.assumptions), ("Not known", unknown)):
            if sentences:
                self._title(title)
                for sentence in sentences:
                    self._print(Text.assemble(("- ", "dim"), plain(sentence, "dim")))

    def next(self) -> None:
        """Writes what to do next."""
        if steps := next_steps(self.report, self.showing.command):
            self._title("Next")
            for step in steps:
                self._print(plain(step))

    def _target(self, e: EvictionReport) -> Text:
        """Where the replacement can land."""
        where = listing(e.move.destinations) if self.wide else text.landing(e, self.short)
        likely = [] if e.move.certain else [(" likely", "yellow")]
        return Text.assemble(
            plain(where), *likely, *([(" replaced first", "cyan")] if e.move.release_label else [])
        )

    def _why(self, code: str, message: str, remedy: str, indent: int) -> None:
        self._print(Text.assemble(plain(code, "yellow"), " ", plain(message)), indent)
        if remedy:
            self._print(plain(f"→ {remedy}", "cyan"), indent + 2)

    def _first(self, rows: Iterable[object]) -> list:  # type: ignore[type-arg]
        return list(rows) if self.wide else list(rows)[: self.showing.top]

    def _rest(self, count: int, noun: str) -> None:
        if not self.wide and count > self.showing.top:
            self._print(plain(f"… and {plural(count - self.showing.top, 'more ' + noun)}: -o wide", "dim"))

    def _title(self, title: str) -> None:
        self.console.print()
        self.console.print(plain(title, "bold underline"))

    def _print(self, what: str | Text | Rows, indent: int = 0) -> None:
        self.printed += 1 + (len(what.rows) if isinstance(what, Rows) else 0)
        put(self.console, what, INDENT + indent, lined=self.wide)


def _skew(c: ConstraintResult) -> str:
    after = max(c.after.values(), default=0) - min(c.after.values(), default=0)
    return f"{c.skew} → {after}" if c.after != c.domains else str(c.skew)


def _status(c: ConstraintResult) -> str:
    return c.status if c.in_scope else f"{c.status}, out of scope"
