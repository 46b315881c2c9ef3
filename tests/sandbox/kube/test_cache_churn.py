"""Pods change all the time, each in a new way: the cache keeps up and does not grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.sandbox import ApiServer
from tests.support.servers.api_objects import node, pod
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
PODS = 500
ROUNDS = 8
CHANGES = 1000
"""In each round; then the cache must catch up."""


class Look(NamedTuple):
    """What the watching process says of itself."""

    resident: float
    pods: int
    remembered: int
    newest: int


def changed(number: int) -> Any:
    """A change that shares nothing with any other pod: labels and annotations of its own."""

    def change(obj: dict[str, Any]) -> None:
        mark = f"{number:09d}" + "x" * 200
        obj["metadata"]["annotations"] = {"example/mark": mark}
        obj["metadata"]["labels"] = {"app": f"app-{number}"}

    return change


@pytest.mark.slow
def test_memory_is_flat_under_thousands_of_changes(tmp_path: Path) -> None:
    with ApiServer([node("n1"), *(pod(f"p{i:05d}") for i in range(PODS))], history=2 * CHANGES) as server:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.processes.churning",
                str(server.kubeconfig(tmp_path / "config")),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin
        assert process.stdout

        def look() -> Look:
            assert process.stdin
            assert process.stdout
            process.stdin.write("\n")
            process.stdin.flush()
            a, b, c, d = process.stdout.readline().split()
            return Look(float(a), int(b), int(c), int(d))

        try:
            look()
            looks = []
            for number in range(ROUNDS * CHANGES):
                server.store.modify("Pod", f"p{number % PODS:05d}", "default", changed(number))
                if number % CHANGES == CHANGES - 1:
                    until(lambda: look().newest == server.store.revision)
                    looks.append(look())
        finally:
            process.communicate(timeout=20)
    half = looks[ROUNDS // 2 :]
    # Two sweeps and more happened by the half; one object's parts are four entries at most.
    assert max(x.remembered for x in looks) < 4 * 2 * PODS + 2 * 5000
    assert max(x.resident for x in half) - half[0].resident < 8.0, half
    assert looks[-1].pods == PODS
    print(f"MiB {[round(x.resident) for x in looks]}, remembered {[x.remembered for x in looks]}")
