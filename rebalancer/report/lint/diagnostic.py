"""A finding in a manifest, and where it is."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.model.finding import Severity


class Diagnostic(Struct, frozen=True, rename="camel"):
    """A finding and where it is. Lines count from 1."""

    file: str
    line: int
    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""
    field: str = ""

    @property
    def sentence(self) -> str:
        """The object and the message in one line."""
        words = " ".join(self.message.split())
        return f"{self.object}: {words}" if self.object else words

    @property
    def told(self) -> str:
        """The same and, on lines of its own, the remedy, where there is one."""
        return f"{self.sentence}\n{self.remedy}" if self.remedy else self.sentence


class Linted(Struct, frozen=True):
    """What was found in how many workloads and files; diagnostics by file and line.

    `ignored`: how many a comment or an option left out. `notes`: what was not looked at, and why.
    """

    diagnostics: tuple[Diagnostic, ...]
    workloads: int
    files: int
    ignored: int = 0
    notes: tuple[str, ...] = ()
