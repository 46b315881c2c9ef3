"""Compares plans with their files, or writes them: `python -m tests.golden [--write] [--quick] [CASE …]`.

CASE is a case's name or the start of one. --quick leaves out the slow cases.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.golden.cases import cases
from tests.golden.frozen import difference, freeze, planned


def main() -> int:
    """Prints what differs; 1 if anything does and nothing is to be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--times", action="store_true", help="print the seconds of each case")
    options = parser.parse_args()
    differing = 0
    for case in cases():
        if (options.names and not case.name.startswith(tuple(options.names))) or (
            options.quick and case.slow
        ):
            continue
        began = time.perf_counter()
        text = planned(case)
        if options.times:
            print(f"{case.name}: {time.perf_counter() - began:.1f} s", flush=True)
        if found := difference(case, text):
            differing += 1
            print(f"== {case.name}\n{found}", flush=True)
            if options.write:
                freeze(case, text)
    print(f"{differing} plans differ{' and were written' if options.write and differing else ''}")
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
