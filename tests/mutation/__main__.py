"""Makes mistakes on purpose and runs the closest tests: `python -m tests.mutation [--list] [--all] [FILE …]`.

FILE is part of a file's path or of a mistake's key. --list prints the mistakes and runs nothing. --all takes
every mistake and not the sample. Takes about a quarter of an hour. Exits with 1 if a mistake was not seen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.operators import Mutant
from tests.mutation.sample import CLOSEST, EQUIVALENT, ROOT, all_mutants, sample

_AT_ONCE = 2
_TIMEOUT = 240.0
"""Seconds; tests that take longer have seen the mistake."""
_QUICK = ("-m", "not slow", "-k", "not random_cluster")
"""What takes long is left out, and the largest of the scenarios."""
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info")


def main() -> int:
    """Prints what became of each, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    chosen = [m for found in all_mutants().values() for m in found] if options.all else sample()
    if options.names:
        chosen = [m for m in chosen if any(name in f"{m.path} {m.key}" for name in options.names)]
    if options.list:
        print(*(f"{m.path}:{m.line} {m.key}" for m in chosen), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        ended = _tried(chosen, Path(folder))
    print(", ".join(f"{many} {how}" for how, many in sorted(ended.items())), f"of {len(chosen)}")
    return 1 if ended["SURVIVED"] else 0


def _tried(chosen: list[Mutant], folder: Path) -> Counter[str]:
    """How many ended how. Raises RuntimeError if tests fail without any mistake."""
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(_AT_ONCE):
        tree = folder / str(number)
        shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
        # By hash: two versions of a file may have one size and be written in one second.
        compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."]
        subprocess.run(compiled, cwd=tree, check=True)
        trees.put(tree)

    def outcome(mutant: Mutant) -> str:
        if mutant.key in EQUIVALENT:
            return "equivalent"
        tree = trees.get()
        right = (tree / mutant.path).read_bytes()
        (tree / mutant.path).write_bytes(mutant.text)
        failed = _failed(tree, CLOSEST[mutant.path])
        (tree / mutant.path).write_bytes(right)
        trees.put(tree)
        how = "SURVIVED" if failed is None else "killed"
        print(f"{how} {mutant.path}:{mutant.line} {mutant.key}  {failed or ''}", flush=True)
        return how

    def unchanged(tests: tuple[str, ...]) -> None:
        tree = trees.get()
        failed = _failed(tree, tests)
        trees.put(tree)
        if failed is not None:
            raise RuntimeError(f"fails without any mistake: {failed}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        checked, ended = [], []
        for tests in dict.fromkeys(CLOSEST[m.path] for m in chosen):
            checked.append(pool.submit(unchanged, tests))
            ended += [pool.submit(outcome, m) for m in chosen if CLOSEST[m.path] == tests]
        for check in checked:
            check.result()
        return Counter(end.result() for end in ended)


def _failed(tree: Path, tests: tuple[str, ...]) -> str | None:
    """The first test that failed there; None if none did."""
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", *_QUICK, *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = run.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"took longer than {_TIMEOUT:.0f} s"
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    if run.returncode == 0:
        return None
    lines = [line for line in told.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else f"pytest ended with {run.returncode}: {told[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
