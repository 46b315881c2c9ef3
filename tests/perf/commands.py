"""What report, snapshot, once and run take beside the bare transfer, at 10,000, 50,000 and 150,000 pods.

`make bench` measures all; `python -m tests.perf.commands 10000 --json FILE` one size (`small`: 1,000 pods in
a file), and keeps the figures, of which `tests.perf.page` makes table and plot of docs/performance.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.perf import Figure
from tests.perf.clusters.realistic import Size, document
from tests.perf.processes.process import Bench, measured, serving

SIZES = (10_000, 50_000, 150_000)
_FEW = 1_000
_EVENTS = 20_000
_AT_ONCE = {"--version": 0.25, "--help": 0.25, "report FILE": 0.8, "report FILE -o json": 0.8}


class Row(Struct):
    """One thing that was measured, at one size. `ratio`: of its seconds to those of the bare transfer in the
    same run; None where nothing is transferred. Memory in MiB; `highest`: of a daemon, so far."""

    what: str
    pods: int
    seconds: float
    cpu: float
    peak: float
    ratio: float | None = None
    result: str = ""
    highest: float | None = None


def small() -> Iterator[Row]:
    """What a person waits for who looks at a small cluster; modules are compiled, as pip leaves them."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "cluster.json"
        with file.open("wb") as to:
            to.writelines(document(Size(_FEW)))
        said = {
            "--version": ["--version"],
            "--help": ["--help"],
            "report FILE": ["report", str(file)],
            "report FILE -o json": ["report", "-o", "json", str(file)],
        }
        for what, arguments in said.items():
            measured(["rebalancer", *arguments])
            used = min((measured(["rebalancer", *arguments]) for _ in range(3)), key=lambda u: u.cpu)
            yield Row(what, _FEW, used.seconds, used.cpu, used.peak, result=_result(used.output))


def rows(pods: int) -> Iterator[Row]:
    """Every measurement at one size."""
    with tempfile.TemporaryDirectory() as name, serving(pods, Path(name)) as bench:
        bare = min(
            (measured(["tests.perf.processes.bare", bench.address]) for _ in range(3)),
            key=lambda u: u.seconds,
        )
        yield Row("bare transfer of the pods, one list", pods, bare.seconds, bare.cpu, bare.peak, 1.0)
        live = ["--kubeconfig", bench.kubeconfig]
        said = {
            "report -o json": ["report", "-o", "json", *live],
            "snapshot -o FILE.json": ["snapshot", "-o", f"{name}/plain.json", *live],
            "snapshot -o FILE.json.gz": ["snapshot", "-o", f"{name}/packed.json.gz", *live],
            "report --snapshot FILE.json": ["report", "-o", "json", "--snapshot", f"{name}/plain.json"],
            "once": ["once", *live],
        }
        for what, arguments in said.items():
            used = measured(["rebalancer", *arguments])
            ratio = used.seconds / bare.seconds if "--snapshot" not in arguments else None
            yield Row(what, pods, used.seconds, used.cpu, used.peak, ratio, _result(used.output))
        with _daemon(bench) as told:
            synced = told("sync")
            yield _step("run: sync", pods, synced, ratio=synced["seconds"] / bare.seconds)
            cycle = told("cycle")
            yield _step("run: first cycle, violated", pods, cycle, result=_highest(cycle))
            yield _step("run: at rest after it, a second", pods, told("rest"))
    with tempfile.TemporaryDirectory() as name, serving(pods, Path(name), balanced=True) as bench:
        yield from _balanced(bench, pods)


def _result(output: bytes) -> str:
    """What a report as JSON says in short."""
    _, found, rest = output.partition(b'"summary":')
    if not found:
        return ""
    summary = msgspec.json.decode(rest[: rest.index(b"}") + 1])
    return (
        f"{summary['violated']} violated, {summary['evictions']} evictions"
        f"{', optimal' if summary['optimal'] else ''}"
    )


_TARGETS: dict[str, tuple[str, Callable[[Row], float], float]] = {
    "report -o json": ("MiB", lambda r: r.peak, 500),
    "snapshot -o FILE.json": ("MiB", lambda r: r.peak, 500),
    "run: at rest, a second": ("MiB", lambda r: r.peak, 350),
    "run: first cycle, violated": ("MiB at the highest", lambda r: r.highest or 0.0, 500),
    "run: idle cycle": ("CPU s", lambda r: r.cpu, 0.05),
    "run: cycle after 1 % of the pods changed": ("CPU s", lambda r: r.cpu, 0.3),
    "run: cycle after 1 % of the pods moved": ("CPU s", lambda r: r.cpu, 1.5),
    f"run: {_EVENTS:,} watch events": ("CPU s for 2,000", lambda r: r.cpu / _EVENTS * 2000, 1),
}
"""At the largest size."""
Told = Callable[[str], dict[str, Any]]


@contextmanager
def _daemon(bench: Bench) -> Iterator[Told]:
    """What `tests.perf.processes.daemon` answers to a line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.perf.processes.daemon", bench.kubeconfig],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def told(command: str) -> dict[str, Any]:
        asked.write(f"{command}\n")
        asked.flush()
        answer: dict[str, Any] = msgspec.json.decode(answers.readline())
        return answer

    try:
        yield told
    finally:
        process.kill()
        process.wait()
        asked.close()
        answers.close()


def _balanced(bench: Bench, pods: int) -> Iterator[Row]:
    """The daemon on a cluster where nothing is to be done."""
    with _daemon(bench) as told:
        told("sync")
        yield _step("run: at rest, a second", pods, told("rest"))
        yield _step("run: first cycle, balanced", pods, told("cycle"))
        yield _step("run: idle cycle", pods, told("cycle"))
        told(f"seen {bench.change(pods // 100)}")
        yield _step("run: cycle after 1 % of the pods changed", pods, told("cycle"))
        told(f"seen {bench.change(pods // 100, moved=True)}")
        yield _step("run: cycle after 1 % of the pods moved", pods, told("cycle"))
        events = told(f"seen {bench.change(_EVENTS)}")
        rate = f"{_EVENTS / events['cpu']:,.0f} a CPU second"
        yield _step(f"run: {_EVENTS:,} watch events", pods, events, result=rate)
        at_rest = told("rest")
        yield _step("run: at rest again, a second", pods, at_rest, result=_highest(at_rest))


def _step(what: str, pods: int, took: dict[str, Any], *, ratio: float | None = None, result: str = "") -> Row:
    return Row(what, pods, took["seconds"], took["cpu"], took["memory"], ratio, result, took["peak"])


def _highest(took: dict[str, Any]) -> str:
    return f"highest {took['peak']:,.0f} MiB"


def line(row: Row) -> str:
    """A row for a terminal."""
    ratio = f"{row.ratio:>7.1f} x" if row.ratio is not None else " " * 9
    return (
        f"{row.pods:>8,} {row.what:<44}{row.seconds:>9.2f} s {row.cpu:>9.2f} CPU s "
        f"{row.peak:>7,.0f} MiB {ratio}  {row.result}"
    )


def run() -> Iterator[Figure]:
    """All sizes, for `make bench`."""
    for r in small():
        print(f"  {line(r)}", flush=True)
        yield Figure(f"{r.what}, {_FEW:,} pods", r.cpu, "CPU s", _AT_ONCE.get(r.what), less_is_better=True)
    for pods in SIZES:
        for r in rows(pods):
            print(f"  {line(r)}", flush=True)
            if pods == SIZES[-1] and r.what in _TARGETS:
                unit, value, target = _TARGETS[r.what]
                yield Figure(f"{r.what}, {pods:,} pods", value(r), unit, target, less_is_better=True)


def main() -> None:
    """What is named, else all: sizes, and `small`."""
    arguments = sys.argv[1:]
    file = None
    if "--json" in arguments:
        at = arguments.index("--json")
        file = Path(arguments.pop(at + 1))
        arguments.pop(at)
    found: list[Row] = []
    for what in arguments or ("small", *SIZES):
        for r in small() if what == "small" else rows(int(what)):
            print(line(r), flush=True)
            found.append(r)
            if file is not None:
                file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))


if __name__ == "__main__":
    main()
