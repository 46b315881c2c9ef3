"""Draws the demo: on a terminal a table that changes while the daemon works, else plain lines."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rebalancer.model.reason import clean, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, Eviction, Fate, Observer, Outcome
from rebalancer.planner.plan import ConstraintResult, Move, Plan
from rebalancer.report.terminal import Rows, put
from rebalancer.report.text import brief, name_of, short_key
from rebalancer.runtime.commands.simulate import DemoResult
from rebalancer.sandbox import Cluster, is_ready

# What the demo shows: the pods per domain at this moment, and what has happened so far.

_KEPT = 200


class Now(Struct, frozen=True):
    """A constraint at this moment. `arriving`: pods that have no node or are not Ready yet."""

    name: str
    key: str
    max_skew: int
    before: Mapping[str, int]
    counts: dict[str, int]
    arriving: int

    @property
    def skew(self) -> int:
        """The highest count minus the lowest."""
        return max(self.counts.values(), default=0) - min(self.counts.values(), default=0)

    @property
    def excess(self) -> int:
        """The part of the skew that is above maxSkew."""
        return max(self.skew - self.max_skew, 0)


class Line(Struct, frozen=True):
    """Something that happened `at` seconds after the start; `style` is a style of rich."""

    at: float
    text: str
    style: str = ""


class Board(Observer):
    """Collects what happens, to be drawn on a terminal, or to be printed line by line through `tell`."""

    def __init__(self, cluster: Cluster, tell: Callable[[Line], None] | None = None) -> None:
        self.lines: deque[Line] = deque(maxlen=_KEPT)
        self.first: Plan | None = None
        self.last: Plan | None = None
        self.cycle = self.wave = self.waves = self.evicted = 0
        self._cluster = cluster
        self._tell = tell
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def say(self, text: str, style: str = "") -> None:
        """Adds a line."""
        line = Line(self.seconds, clean(text), style)
        with self._lock:
            self.lines.append(line)
        if self._tell is not None:
            self._tell(line)

    def recent(self, count: int) -> list[Line]:
        """The newest lines, oldest first."""
        with self._lock:
            return list(self.lines)[-count:]

    def now(self) -> list[Now]:
        """The hard constraints, counted in the cluster itself. Those that were worst at the start come
        first."""
        if self.first is None:
            return []
        zones = {
            n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in self._cluster.store.list("Node")
        }
        pods = self._cluster.store.list("Pod", where=lambda p: "deletionTimestamp" not in p["metadata"])
        found = []
        chosen = (c for c in self.first.constraints if c.in_scope)
        for result in sorted(chosen, key=lambda c: (-c.excess, name_of(c), c.constraint.topology_key)):
            c = result.constraint
            counts = Counter(dict.fromkeys(result.domains, 0))
            arriving = 0
            for pod in pods:
                metadata = pod["metadata"]
                if metadata["namespace"] != c.namespace or c.selector is None:
                    continue
                if not c.selector.matches(metadata.get("labels") or {}):
                    continue
                arriving += not is_ready(pod)
                domain = str(zones.get(pod["spec"].get("nodeName", ""), {}).get(c.topology_key, ""))
                if domain in counts:
                    counts[domain] += 1
            found.append(
                Now(name_of(result), c.topology_key, c.max_skew, result.domains, dict(counts), arriving)
            )
        return found

    # -- the loop tells

    def on_cycle(self, number: int) -> None:
        """A cycle begins."""
        self.cycle = number

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """A plan was made."""
        self.first = self.first or plan
        self.last = plan
        self.wave, self.waves = 0, len(plan.waves)
        if plan.moves:
            moves = f"{plural(len(plan.moves), 'eviction')} in {plural(len(plan.waves), 'wave')}"
            fewest = ", and fewer cannot do it" if plan.optimal else ""
            left = f"excess {plan.excess} → {plan.residual_excess}"
            self.say(f"plan for {len(snapshot.pods)} pods: {moves}, {left}{fewest}", "bold")
        else:
            self.say(f"plan: {_left(plan)}", "bold")

    def on_wave(self, wave: int, moves: tuple[Move, ...]) -> None:
        """A wave begins."""
        self.wave = wave
        self.say(f"wave {wave} of {self.waves}: {plural(len(moves), 'eviction')}", "cyan")

    def on_eviction(self, move: Move, eviction: Eviction) -> None:
        """An eviction was tried."""
        if eviction.released:
            self.say(f"released {move.pod.key} on {move.pod.node_name}: another comes first", "yellow")
        elif eviction.evicted:
            self.evicted += 1
            self.say(f"evicted  {move.pod.key} from {move.pod.node_name}: {brief(move.reason)}", "yellow")
        else:
            self.say(f"refused  {eviction.message}", "red")

    def on_outcome(self, outcome: Outcome) -> None:
        """What became of a move."""
        if outcome.status is Fate.DONE:
            where = f"{outcome.replacement} is Ready on {outcome.node}"
            self.say(f"restored {where}, after {outcome.seconds:.1f} s", "green")
        else:
            self.say(f"{outcome.status.value}: {outcome.message}", "red")

    def on_report(self, report: CycleReport) -> None:
        """The cycle is over."""
        self.say(f"cycle {self.cycle} over: {report.message}", "bold")

    def on_error(self, error: Exception) -> None:
        """The cycle ended in an error."""
        self.say(f"error: {error}", "bold red")


def _left(plan: Plan) -> str:
    return "no eviction that is allowed helps any more" if plan.excess else "every constraint holds"


def counts_of(domains: Mapping[str, int], key: str) -> str:
    """The counts, such as a=5 b=1 c=1; for hostnames those of the nodes, the fullest first, without names."""
    if short_key(key) != "hostname":
        return " ".join(f"{name}={count}" for name, count in domains.items())
    return " ".join(map(str, sorted(domains.values(), reverse=True)))


_PLAIN_WIDTH = 120
"""Width if the output is not a terminal."""
_STORY = """\
Zone c was away for an hour. Its pods were made again in zones a and b; now its nodes are back, and empty.
No scheduler moves a running pod: losing zone a today would take half of most services."""
_DAEMON = (
    "The daemon evicts the fewest pods that bring back what evictions can, within every PodDisruptionBudget."
)
_REFRESH = 8
_LEAST_LINES = 4


def console() -> Console:
    """A console for standard output. It uses colours only on a terminal, and not with NO_COLOR."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def is_live(console: Console) -> bool:
    """Whether the output can show a table that changes."""
    return console.is_terminal and not console.is_dumb_terminal


def announce(console: Console, *, by_hand: bool) -> None:
    """Prints what the demo shows, before there is anything to see."""
    console.print(Text("An embedded Kubernetes cluster after a zone outage", "bold"))
    console.print(Text(_STORY if by_hand else f"{_STORY}\n{_DAEMON}"))
    console.print()


def introduce(console: Console, url: str, kubeconfig: str, figures: str) -> None:
    """Prints the address of the cluster."""
    console.print(Text(f"{figures} at {url}; look at it:", "dim"))
    console.print(Text(f"  KUBECONFIG={kubeconfig} kubectl get pods -A", "dim"), soft_wrap=True)
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
    rows = []
    after = _by_identity(board.last)
    for identity, old in sorted(_by_identity(board.first).items(), key=lambda i: (-i[1].excess, i[0])):
        new = after.get(identity, old)
        key = old.constraint.topology_key
        style = "red" if new.excess else "green"
        rows.append(
            (
                name_of(old),
                short_key(key),
                str(old.constraint.max_skew),
                counts_of(old.domains, key),
                counts_of(new.domains, key),
                Text(f"{old.skew} → {new.skew}", style),
                f"{old.worst_domain_loss:.0%} → {new.worst_domain_loss:.0%}",
            )
        )
    put(console, Rows(("WORKLOAD", "KEY", "MAX", "BEFORE", "AFTER", "SKEW", "WORST LOSS"), rows), 2)
    _stays(console, board.last)
    _history(console, result)
    console.print()
    put(console, _verdict(board, result))


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
        put(console, Text(clean(f"{head}excess {result.excess}"), "bold"), 2)
        for reason in result.reasons:
            why = Text.assemble((reason.code.value, "yellow"), " ", clean(reason.message))
            put(console, why, 4)
            if reason.remedy:
                put(console, Text(f"→ {clean(reason.remedy)}", "cyan"), 6)


def _history(console: Console, result: DemoResult) -> None:
    """What is asked for most on the day after."""
    if not result.history:
        return
    console.print()
    console.print(Text("Why was my pod evicted? The ledger knows", "bold underline"))
    p = result.history[-1]
    asked = Text(clean(f"$ rebalancer history {p.namespace}/{p.pod}"), "dim")
    put(console, asked, 2)
    put(console, Text(clean(p.path)), 4)


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
        f"no pod is Pending; {_left(board.last)}.",
        "bold green",
    )
