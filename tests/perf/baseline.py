"""What reading and planning 1,000 pods cost, in numbers that no other process disturbs; CI holds them.

The cluster that is read is roomy, others that are planned for are tight.

`python -m tests.perf.baseline --write` takes the present numbers for the baseline, in `baseline.json`.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from rebalancer.engine.framework import Framework
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.kube import lists
from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.lists import ReadOptions
from rebalancer.kube.reading import read_snapshot
from rebalancer.model.decode.objects import Decoder
from rebalancer.model.snapshot import Snapshot
from rebalancer.planner import PlanOptions, plan
from rebalancer.planner.bounds import program
from rebalancer.planner.moves import HardJudge
from tests.perf.clusters.realistic import Size, objects
from tests.perf.clusters.tight import Tight
from tests.perf.clusters.tight import snapshot as tight
from tests.perf.processes.process import serving

FILE = Path(__file__).with_name("baseline.json")
PODS = 1_000
TIGHT = {
    "50 nodes": Tight(50, 1_000, 10, 12),
    "with pods that wait": Tight(50, 1_000, 10, 8, 80),
    "each its own size": Tight(20, 400, 10, 8, own_sizes=True),
}
_MORE = 4_000


def measure() -> dict[str, float]:
    """Every number; lower is better."""
    with tempfile.TemporaryDirectory() as folder, serving(PODS, Path(folder)) as bench:
        connection = Connection(ClusterOptions(kubeconfig=bench.kubeconfig))
        found: dict[str, float] = {}
        before: Counter[str] = Counter()
        for name, options in (
            ("one body a kind", ReadOptions(may_be_old=True)),
            ("pages", ReadOptions()),
        ):
            with _counted(lists.Transfer, "_put") as parts:
                snapshot = read_snapshot(
                    connection, now=lambda: 1.8e9, wait=threading.Event().wait, options=options
                )
            requests = Counter(bench.requests()["requests"])
            found[f"requests: {name}"] = sum((requests - before).values())
            found[f"parts passed on: {name}"] = parts[0]
            before = requests
        found["kB sent for the pods"] = round(bench.requests()["sent"]["list pods"] / 2 / 1000)
        connection.close()
    found.update(_planning("planning", snapshot))
    for name, cluster in TIGHT.items():
        found.update(_planning(f"tight, {name}", tight(cluster)))
    found["bytes in memory for a pod"] = _per_pod()
    return found


def _planning(name: str, snapshot: Snapshot) -> dict[str, float]:
    """Candidates that are tried, pods placed in the simulation, nodes filtered for them, programs solved and
    their steps; then, as that takes time, the same plan with its allocations followed."""
    steps = [0]
    solve = program.run

    def solving(*arguments: Any) -> program.Solved:
        found = solve(*arguments)
        steps[0] += found.steps
        return found

    with (
        _counted(HardJudge, "judge") as tried,
        _counted(ClusterState, "add") as placed,
        _counted(Framework, "feasible") as filtered,
        patch.object(program, "run", solving),
    ):
        made = plan(snapshot, PlanOptions())
    gc.collect()
    tracemalloc.start()
    plan(snapshot, PlanOptions())
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        f"{name}: candidates tried": tried[0],
        f"{name}: kB allocated at the highest": round(highest / 1000),
        f"{name}: pods placed in the simulation": placed[0],
        f"{name}: templates filtered": filtered[0],
        f"{name}: steps of the solver": steps[0],
        f"{name}: evictions": len(made.moves),
        f"{name}: waves": len(made.waves),
        f"{name}: excess left": made.residual_excess,
    }


def _per_pod() -> float:
    """Bytes that stay for each pod beyond the first thousand, rounded up to ten."""

    def held(pods: int) -> int:
        bodies = [body for kind, body in objects(Size(pods)) if kind == "Pod"]
        decoder = Decoder()
        gc.collect()
        tracemalloc.start()
        kept = [decoder.decode("Pod", body) for body in bodies]
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(kept) == pods
        return size

    return -(-(held(PODS + _MORE) - held(PODS)) // _MORE // 10) * 10


@contextmanager
def _counted(owner: type, name: str) -> Iterator[list[int]]:
    """How often a method is called within the block."""
    count = [0]
    method: Callable[..., Any] = getattr(owner, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        count[0] += 1
        return method(*arguments, **named)

    with patch.object(owner, name, counting):
        yield count


def main() -> None:
    """Prints the numbers beside the baseline; with --write they become it."""
    known: dict[str, float] = msgspec.json.decode(FILE.read_bytes()) if FILE.exists() else {}
    found = measure()
    for name, value in found.items():
        print(f"{name:<44}{value:>12,.0f}  (baseline {known.get(name, float('nan')):,.0f})")
    if "--write" in sys.argv:
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


if __name__ == "__main__":
    main()
