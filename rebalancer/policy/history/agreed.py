"""How often a scheduler newer than all known rules did as predicted, which ends the canary there."""

from __future__ import annotations

from msgspec import Struct

ENOUGH = 100
"""Decisions in a row after which the last known rules are taken to be this scheduler's as well."""


class Agreed(Struct, frozen=True, omit_defaults=True):
    """`release`: the minor release that it is about, as "1.37"; `decisions`: those in a row that were as
    predicted."""

    release: str = ""
    decisions: int = 0

    @property
    def enough(self) -> bool:
        """Whether the canary may end."""
        return self.decisions >= ENOUGH

    def of(self, release: str) -> Agreed:
        """What is known of this release: nothing, where it was about another."""
        return self if self.release == release else Agreed(release)

    def after(self, *, agrees: bool) -> Agreed:
        """With one more decision. One that was not as predicted begins the count anew."""
        return Agreed(self.release, min(self.decisions + 1, ENOUGH) if agrees else 0)

    def stricter(self, other: Agreed) -> Agreed:
        """Of two accounts of one release the lower; this one, where they are about different ones."""
        return other if self.release == other.release and other.decisions < self.decisions else self
