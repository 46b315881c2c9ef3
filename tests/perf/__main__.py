"""Runs the benchmarks: `python -m tests.perf [MODULE …]`, or `make bench`.

Each module of this package is a benchmark, but for those that are named here. Its `run` yields `Figure`s,
printed as they come.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from tests.perf import Figure

_NONE = frozenset({"__main__", "baseline", "page", "test_baseline"})
"""What CI holds, and what makes a page of figures."""


def main(wanted: list[str]) -> int:
    """Prints every figure; 1 if one misses its target."""
    missed = 0
    here = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = sorted(m.name for m in here if not m.ispkg and m.name not in _NONE)
    for name in wanted or names:
        module = importlib.import_module(f"tests.perf.{name}")
        print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        for figure in module.run():
            assert isinstance(figure, Figure)
            missed += not figure.met
            print(f"  {figure}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
