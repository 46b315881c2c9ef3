"""Comments that leave findings out: `# rebalancer: ignore CODE, CODE`, without codes all of them."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"#\s*rebalancer:\s*(ignore-file|ignore)\b[ \t]*([a-z0-9, -]*)")
_EVERY = frozenset({"*"})


class Ignores:
    """The comments of one text.

    A comment at the end of a line is about that line; on lines of its own, about the line below, and in front
    of an object about the whole object. `ignore-file` is about the text.
    """

    def __init__(self, text: str) -> None:
        self._whole: frozenset[str] = frozenset()
        self._lines: dict[int, frozenset[str]] = {}
        self._alone: set[int] = set()
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("#"):
                self._alone.add(number)
            if "rebalancer:" not in line or (found := _COMMENT.search(line)) is None:
                continue
            codes = frozenset(re.split(r"[, ]+", found.group(2).strip())) - {""} or _EVERY
            if found.group(1) == "ignore-file":
                self._whole |= codes
            else:
                self._lines[number] = codes

    def covers(self, code: str, *lines: int) -> bool:
        """Whether a finding on one of these lines is left out."""
        found = self._whole.union(*(self._above(line) for line in lines))
        return code in found or "*" in found

    def _above(self, line: int) -> frozenset[str]:
        codes = self._lines.get(line, frozenset())
        while (line := line - 1) in self._alone:
            codes |= self._lines.get(line, frozenset())
        return codes
