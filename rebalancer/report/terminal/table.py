"""The report for a terminal: as wide as the terminal, in colours only there, and names as plain text."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rebalancer.report.document import ConstraintReport, EvictionReport, Report
from rebalancer.report.drilled.table import section as drilled
from rebalancer.report.room.words import section as room
from rebalancer.report.showing import Showing
from rebalancer.report.terminal import overview
from rebalancer.report.terminal.rows import INDENT, Rows, plain
from rebalancer.report.wording import text, words
from rebalancer.report.wording.bounds import beyond_reach
from rebalancer.report.wording.next_steps import next_steps

_STATUS_STYLE = {"balanced": "green", "fixable": "green", "partly-fixable": "yellow", "unfixable": "red"}
_SEVERITY_STYLE = {"error": "red", "warning": "yellow", "info": "cyan"}
_LAID_OUT = 200
"""Tables of up to this many rows are fitted to the terminal. Longer ones have one line for each row."""
_GROUPED = 20
"""Plans with more evictions are shown by workload."""
_LONG = 60
"""Lines after which the verdict is repeated."""


def write_table(
    report: Report, console: Console, *, wide: bool = False, showing: Showing | None = None
) -> None:
    """Writes the report to the console; `wide` adds every pod, owner and uid, and balanced constraints."""
    view = _View(report, console, wide, showing or Showing())
    view.summary()
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

    def summary(self) -> None:
        """Writes the verdict, and what was looked at."""
        style = "bold yellow" if self.report.summary.violated else "bold green"
        if lead := words.lead(self.report):
            self.console.print(plain(lead, style))
        self.console.print(plain(text.headline(self.report), style))
        self.console.print(plain(text.facts(self.report), "dim"))
        if skewed := text.out_of_scope(self.report):
            self.console.print(plain(skewed, "dim"))

    def overview(self) -> None:
        """Writes what goes with each zone, and the grade of each namespace."""
        if words.at_rest(self.report):
            return
        for title, rows in overview.tables(self.report, self.showing.top):
            self._title(title)
            self._print(rows)
        if self.report.namespaces:
            self._print(plain(words.LEGEND, "dim"))

    def again(self) -> None:
        """Writes the verdict once more under a long report, whose beginning has scrolled away."""
        if self.printed > _LONG and not self.showing.summary:
            self.console.print()
            self.console.print(plain(text.headline(self.report), "bold"))

    def constraints(self) -> None:
        """Writes the violated constraints, the worst first, with the counts now and after the plan."""
        rows = text.worst_first(self.report.constraints)
        if self.wide:
            rows += [c for c in self.report.constraints if not (c.excess and c.in_scope)]
        if not rows:
            return
        self._title("Constraints" if self.wide else "Violated constraints")
        table = Rows("WORKLOAD", "KEY", "MAX", "SKEW", "DOMAINS", "WORST LOSS", "STATUS")
        if self.wide:
            table.columns.append("SELECTOR")
        for c in self._first(rows):
            table.add_row(
                plain(text.name_of(c)),
                plain(c.topology_key if self.wide else text.short_key(c.topology_key)),
                plain(str(c.max_skew)),
                plain(_skew(c)),
                plain(text.change(c)),
                plain(f"{text.percent(c.worst_domain_loss)} ({text.percent(c.best_domain_loss)} at best)"),
                plain(_status(c), _STATUS_STYLE.get(c.status, "") if c.in_scope else "dim"),
                *([plain(c.selector if c.selector is not None else "(none)")] if self.wide else []),
            )
        self._print(table)
        self._rest(len(rows), "constraint")

    def plan(self) -> None:
        """Writes the evictions, wave by wave, each with the constraints that it helps."""
        if not self.report.evictions:
            return
        self._title("Plan")
        if not self.wide and len(self.report.evictions) > _GROUPED:
            rows = overview.grouped_waves(self.report)
            self._print(rows.first(self.showing.top))
            self._rest(len(rows.rows), "row")
        else:
            self._print(self._moves())
            self._rest(len(self.report.evictions), "eviction")
        if len(self.report.waves) > 1:
            self._print(plain(overview.timeline(self.report), "dim"))

    def _moves(self) -> Rows:
        table = Rows("WAVE", "EVICT", "FROM", "TO", "MENDS")
        if self.wide:
            table.columns += ("WHY", "OWNER", "UID")
        before = 0
        for e in self._first(list(self.report.evictions)):
            table.add_row(
                plain(str(e.wave) if e.wave != before else ""),
                plain(f"{e.namespace}/{e.pod}"),
                plain(text.leaving(e)),
                self._target(e),
                plain(text.mends(e, self.report), "dim"),
                *([plain(e.reason), plain(e.owner), plain(e.uid)] if self.wide else []),
            )
            before = e.wave
        return table

    def stays(self) -> None:
        """Writes which excess stays and why, and which pods are not evicted and why."""
        left = [c for c in text.worst_first(self.report.constraints) if c.reasons]
        if left:
            self._title("What stays, and why")
            if said := beyond_reach(self.report):
                self._print(plain(said))
            self._moment()
            for c in self._first(left):
                head = f"{text.name_of(c)}, {text.short_key(c.topology_key)}"
                excess = f": excess {c.residual_excess:,} stays" if c.residual_excess else ""
                self._print(plain(head + excess, "bold"))
                for why in c.reasons:
                    self._why(why.code, why.message, why.remedy, 2)
            self._rest(len(left), "constraint")
        groups = text.blocked_groups(self.report.blocked)
        if not groups:
            return
        self._title(f"Not evicted: {text.plural(len(self.report.blocked), 'pod')}")
        if not left:
            self._moment()
        if self.wide:
            self._every_blocked()
            return
        table = Rows("PODS", "REASON", "FOR EXAMPLE")
        for g in groups:
            example = Text.assemble(plain(text.listing(g.pods)), "\n", plain(g.message, "dim"))
            if g.messages > 1:
                example.append(f" (one of {g.messages:,} messages)", "dim")
            if g.remedy:
                example.append_text(plain(f"\n→ {g.remedy}", "cyan"))
            table.add_row(plain(f"{len(g.pods):,}"), plain(g.reason, "yellow"), example)
        self._print(table)

    def _moment(self) -> None:
        if said := text.moment(self.report):
            self._print(plain(said, "dim"))

    def _every_blocked(self) -> None:
        """Writes a line for each pod. It is aligned here, because rich takes seconds for many thousand
        rows."""
        pods = [text.clean(f"{b.namespace}/{b.pod}") for b in self.report.blocked]
        width = max(map(len, pods))
        code = max(len(b.reason) for b in self.report.blocked)
        lines = (
            f"{' ' * INDENT}{pod:<{width}}  {b.reason:<{code}}  {text.clean(b.message)}"
            for pod, b in zip(pods, self.report.blocked, strict=True)
        )
        self.console.print(Text("\n".join(lines)), soft_wrap=True)

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
            for line in drilled(self.report.drill):
                self.console.print(plain(line), soft_wrap=True)

    def findings(self) -> None:
        """Writes the findings: by code, or, if `wide`, each with its remedy."""
        if not self.report.findings:
            return
        self._title("Findings")
        if self.wide and len(self.report.findings) > _LAID_OUT:
            self._every_finding()
            return
        for g in text.found_groups(self.report.findings):
            severity = plain(g.severity, _SEVERITY_STYLE.get(g.severity, ""))
            for f in g.findings if self.wide else g.findings[:1]:
                self._print(Text.assemble(severity, " ", plain(f"{f.object} ({g.code}): {f.says}")))
                if f.remedy and (self.wide or "\n" not in f.remedy):
                    self._print(plain(f.remedy if self.wide else f"→ {f.remedy}", "cyan"), 2)
            if not self.wide and len(g.findings) > 1:
                more = text.listing((f.object for f in g.findings[1:]), 2)
                self._print(plain(f"and {len(g.findings) - 1:,} more: {more}", "dim"), 2)
        if not self.wide:
            self._print(plain("Each with what to paste or run: -o wide, or -o html", "dim"))

    def _every_finding(self) -> None:
        """Writes a line for each finding and its remedy below. It is aligned here, as rich takes seconds."""
        self.console.print(
            plain(
                "\n".join(
                    f"  {f.severity.value} {f.object} ({f.code}): {f.says}"
                    + "".join(f"\n    {line}" for line in f.remedy.split("\n") if line)
                    for f in self.report.findings
                )
            ),
            soft_wrap=True,
        )

    def risks(self) -> None:
        """Writes what a failure would cost each workload."""
        if not self.wide or not self.report.risks:
            return
        self._title("Lost with the fullest domain")
        table = Rows("WORKLOAD", "KEY", "DOMAIN", "PODS", "LOST", "PLANNED", "BEST")
        for r in self.report.risks:
            table.add_row(
                plain(f"{r.namespace}/{r.workload}"),
                plain(text.short_key(r.topology_key)),
                plain(r.domain or "(none)"),
                plain(f"{r.pods:,}"),
                *(plain(text.percent(share)) for share in (r.lost, r.planned, r.best)),
            )
        self._print(table)

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
        where = text.listing(e.destination.nodes, 12) if self.wide else text.landing(e)
        return Text.assemble(plain(where), *([] if e.destination.certain else [(" likely", "yellow")]))

    def _why(self, code: str, message: str, remedy: str, indent: int) -> None:
        self._print(Text.assemble(plain(code, "yellow"), " ", plain(message)), indent)
        if remedy:
            self._print(plain(f"→ {remedy}", "cyan"), indent + 2)

    def _first(self, rows: Iterable[object]) -> list:  # type: ignore[type-arg]
        return list(rows) if self.wide else list(rows)[: self.showing.top]

    def _rest(self, count: int, noun: str) -> None:
        if not self.wide and count > self.showing.top:
            self._print(
                plain(f"… and {text.plural(count - self.showing.top, 'more ' + noun)}: -o wide", "dim")
            )

    def _title(self, title: str) -> None:
        self.console.print()
        self.console.print(plain(title, "bold underline"))

    def _print(self, what: Text | Rows, indent: int = 0) -> None:
        self.printed += 1 + (len(what.rows) if isinstance(what, Rows) else 0)
        if isinstance(what, Text):
            self.console.print(Padding(what, (0, 0, 0, INDENT + indent)))
        elif len(what.rows) > _LAID_OUT:
            self.console.print(what.lines(), soft_wrap=True)
        else:
            self.console.print(Padding(what.table(), (0, 0, 0, INDENT + indent)))


def _skew(c: ConstraintReport) -> str:
    after = max(c.after.values(), default=0) - min(c.after.values(), default=0)
    return f"{c.skew} → {after}" if c.after != c.domains else str(c.skew)


def _status(c: ConstraintReport) -> str:
    return c.status if c.in_scope else f"{c.status}, out of scope"
