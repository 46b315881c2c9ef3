"""The page of what can stop an eviction, made from the checks: `python -m tests.docs.stops` writes it."""

from __future__ import annotations

from rebalancer.model.reason import Moment
from rebalancer.runtime.live.checks import CHECKS
from tests.docs.reference import ROOT

PAGE = ROOT / "docs" / "what-stops-an-eviction.md"
_HEAD = """\
# What stops an eviction

Every check that can say no; the first no counts. *Plan*: asked of every pod. *Start*: when a
plan is begun. *Request*: before each request that can evict, the first and every further one, within a second.

What became stricter in the settings binds the next request. What a plan asks of a pod is asked again, of what is
there at that moment. Checks marked * read from the API server.

"""
_TAIL = """
What only delays a move: evictions.perSecond, the canary, budgets and owners that have not settled.
"""


def page() -> str:
    """The page."""
    found: dict[str, list[str]] = {}
    for c in dict.fromkeys(CHECKS):
        kind = f"{' and '.join(_when(c.moments))}; a no {_ENDS[c.scope]}"
        found.setdefault(kind, []).append(c.name + ("*" if c.cost == "read" else ""))
    return _HEAD + "".join(f"- {kind}: {'; '.join(names)}\n" for kind, names in found.items()) + _TAIL


_ENDS = {"cycle": "ends the cycle's evictions", "move": "keeps one pod"}


def _when(moments: frozenset[Moment]) -> list[str]:
    """`request` is the last look and every further one: no check is asked at one of them only."""
    assert (Moment.LAST_LOOK in moments) is (Moment.RESEND in moments)
    names = {Moment.PLAN: "plan", Moment.START: "start", Moment.LAST_LOOK: "request"}
    return [name for moment, name in names.items() if moment in moments]


if __name__ == "__main__":
    PAGE.write_text(page())
