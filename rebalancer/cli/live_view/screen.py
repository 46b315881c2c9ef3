"""Draws the demo: on a terminal a table that changes while the daemon works, else plain lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rebalancer.cli.live_view.board import Board, Line, Now, counts_of, name_of
from rebalancer.planner.plan import ConstraintResult, Plan
from rebalancer.report.wording.text import clean, plural, short_key
from rebalancer.runtime.commands.demo import DemoResult

_PLAIN_WIDTH = 120
"""Width if the output is not a terminal."""
_STORY = """\
Zone c was away for an hour. Its pods were made again in zones a and b; now its nodes are back, and empty.
No scheduler moves a running pod: losing zone a today would take half of most services.
The daemon evicts the fewest pods that restore every maxSkew, within every PodDisruptionBudget."""
_REFRESH = 8
_LEAST_LINES = 4


def console() -> Console:
    """A console for standard output. It uses colours only on a terminal, and not with NO_COLOR."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def is_live(console: Console) -> bool:
    """Whether the output can show a table that changes."""
    return console.is_terminal and not console.is_dumb_terminal


def introduce(console: Console, url: str, kubeconfig: str, figures: str) -> None:
    """Prints what the demo shows, and the address of the cluster."""
    console.print(Text("An embedded Kubernetes cluster after a zone outage", "bold"))
    console.print(Text(_STORY))
    console.print()
    console.print(Text(f"{figures} at {url}; look at it: KUBECONFIG={kubeconfig} kubectl get pods -A", "dim"))
    console.print()


@contextmanager
def shown(console: Console, board: Board) -> Iterator[None]:
    """Draws the board in place until the block ends."""
    with Live(
        get_renderable=lambda: _draw(console, board),
        console=console,
        refresh_per_second=_REFRESH,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def print_line(console: Console, line: Line) -> None:
    """Prints one line about what happened."""
    console.print(_line(line), soft_wrap=True)


def _line(line: Line) -> Text:
    return Text.assemble((f"{line.at:5.1f} s  ", "dim"), (line.text, line.style))


def _draw(console: Console, board: Board) -> RenderableType:
    rows = board.now()
    room = max(console.height - len(rows) - 7, _LEAST_LINES)
    lines = [_line(line) for line in board.recent(room)]
    for text in lines:
        text.no_wrap, text.overflow = True, "ellipsis"
    return Group(_status(board, rows), Text(), _table(rows), Text(), *lines)


def _status(board: Board, rows: list[Now]) -> Text:
    excess = sum(r.excess for r in rows)
    was = sum(max(max(r.before.values()) - min(r.before.values()) - r.max_skew, 0) for r in rows)
    wave = f" · wave {board.wave} of {board.waves}" if board.wave else ""
    return Text.assemble(
        ("rebalancer run --execute", "bold"),
        f" · {board.seconds:.0f} s · cycle {board.cycle}{wave} · {plural(board.evicted, 'eviction')} · ",
        (f"excess {was} → {excess}", "bold red" if excess else "bold green"),
    )


def _table(rows: list[Now]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("WORKLOAD", "KEY", "MAX", "SKEW", "PODS", ""):
        table.add_column(name, justify="right" if name in ("MAX", "SKEW") else "left", no_wrap=True)
    for row in rows:
        style = "red" if row.excess else "green"
        table.add_row(
            Text(clean(row.name)),
            Text(short_key(row.key)),
            Text(str(row.max_skew)),
            Text(str(row.skew), f"bold {style}"),
            _bars(row),
            Text(f"{row.arriving} on the way" if row.arriving else "", "yellow"),
        )
    return table


def _bars(row: Now) -> Text:
    if short_key(row.key) == "hostname":
        return Text(counts_of(row.counts, row.key))
    text = Text()
    for name, count in row.counts.items():
        text.append(f"{clean(name)} ", "dim")
        text.append(
            f"{'▇' * count:<8}"[: max(count, 8)],
            "red" if count == max(row.counts.values()) and row.excess else "cyan",
        )
        text.append(" ")
    return text


def conclude(console: Console, board: Board, result: DemoResult) -> None:
    """Prints the table before and after, and what stays."""
    console.print()
    if board.first is None or board.last is None:
        console.print(Text("The daemon made no plan.", "bold red"))
        return
    console.print(Text("Before and after", "bold underline"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("WORKLOAD", "KEY", "MAX", "BEFORE", "AFTER", "SKEW", "WORST LOSS"):
        free = name in ("BEFORE", "AFTER")
        table.add_column(name, justify="right" if name == "MAX" else "left", no_wrap=not free)
    after = _by_identity(board.last)
    for identity, old in sorted(_by_identity(board.first).items(), key=lambda i: (-i[1].excess, i[0])):
        new = after.get(identity, old)
        key = old.constraint.topology_key
        style = "red" if new.excess else "green"
        table.add_row(
            Text(clean(name_of(old))),
            Text(short_key(key)),
            Text(str(old.constraint.max_skew)),
            Text(clean(counts_of(old.domains, key))),
            Text(clean(counts_of(new.domains, key))),
            Text(f"{old.skew} → {new.skew}", style),
            Text(f"{old.worst_domain_loss:.0%} → {new.worst_domain_loss:.0%}"),
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    _stays(console, board.last)
    _history(console, result)
    console.print()
    console.print(_verdict(board, result))


def _by_identity(plan: Plan) -> dict[tuple[str, str, str], ConstraintResult]:
    return {
        (c.constraint.namespace, str(c.constraint.selector), c.constraint.topology_key): c
        for c in plan.constraints
        if c.in_scope
    }


def _stays(console: Console, plan: Plan) -> None:
    left = [c for c in plan.constraints if c.in_scope and c.excess]
    if not left:
        return
    console.print()
    console.print(Text("What stays, and why", "bold underline"))
    for result in left:
        head = f"{name_of(result)}, {short_key(result.constraint.topology_key)}: "
        console.print(Padding(Text(clean(f"{head}excess {result.excess}"), "bold"), (0, 0, 0, 2)))
        for reason in result.reasons:
            why = Text.assemble((reason.code.value, "yellow"), " ", clean(reason.message))
            console.print(Padding(why, (0, 0, 0, 4)))
            if reason.remedy:
                console.print(Padding(Text(f"→ {clean(reason.remedy)}", "cyan"), (0, 0, 0, 6)))


def _history(console: Console, result: DemoResult) -> None:
    """What is asked for most on the day after."""
    if not result.history:
        return
    console.print()
    console.print(Text("Why was my pod evicted? The ledger knows", "bold underline"))
    p = result.history[-1]
    asked = Text(clean(f"$ rebalancer history {p.namespace}/{p.pod}"), "dim")
    console.print(Padding(asked, (0, 0, 0, 2)))
    went = f"{p.replacement} on {p.landed}" if p.landed else "its replacement was not seen"
    console.print(Padding(Text(clean(f"from {p.node}, {p.predicted} was predicted: {went}")), (0, 0, 0, 4)))


def _verdict(board: Board, result: DemoResult) -> Text:
    if result.interrupted and not result.converged:
        return Text(
            f"Stopped after {plural(result.evicted, 'eviction')}; the pods in flight went their way.", "bold"
        )
    if not result.converged:
        waiting = f"; Pending: {', '.join(result.pending)}" if result.pending else ""
        return Text(f"Not done after {board.seconds:.0f} s{clean(waiting)}", "bold red")
    assert board.first is not None
    assert board.last is not None
    figures = f"{plural(result.evicted, 'eviction')} (at least {board.first.lower_bound} were needed)"
    return Text(
        f"Done: excess {board.first.excess} → {board.last.excess} with {figures} in {board.seconds:.0f} s; "
        "no pod is Pending, and nothing is left that an eviction would help.",
        "bold green",
    )
