"""The page of what can stop an eviction, made from the checks: `python -m tests.docs.stops` writes it."""

from __future__ import annotations

from rebalancer.model.reason import Moment
from rebalancer.runtime.live.checks import CHECKS
from tests.docs.reference import ROOT

PAGE = ROOT / "docs" / "what-stops-an-eviction.md"
_HEAD = """\
# What stops an eviction

Every check that can say no, in the order in which they are asked; the first no counts. This page is made from the
table that the program goes by.

- **plan**: asked of every pod when a plan is made.
- **start**: asked when a cycle begins to carry out a plan.
- **request**: asked before each request that can evict a pod, the first and every further one. All of it takes a second
  at most, or it is asked again.

A no of the *cycle* ends its evictions; a no to a *move* leaves the others alone. Checks go by the settings of this
moment: what became stricter binds the next request, what became looser waits for the next cycle. So what a plan asked
is asked again where the settings have changed since. A check that *reads* asks the API server.

| check | when | says no to | reads | rule |
|---|---|---|---|---|
"""
_TAIL = """
What only makes a move wait: evictions.perSecond, the canary, budgets and owners that have not settled, moves that could
meet. Caps leave moves to later cycles. Which moves a plan has at all is another question ([planning](planning.md)).
"""


def page() -> str:
    """The page."""
    rows = [
        f"| {c.name} | {', '.join(_when(c.moments))} | {c.scope} | {'yes' if c.cost == 'read' else ''} | {c.says} |"
        for c in dict.fromkeys(CHECKS)
    ]
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


def _when(moments: frozenset[Moment]) -> list[str]:
    """`request` is the last look and every further one: no check is asked at one of them only."""
    assert (Moment.LAST_LOOK in moments) is (Moment.RESEND in moments)
    names = {Moment.PLAN: "plan", Moment.START: "start", Moment.LAST_LOOK: "request"}
    return [name for moment, name in names.items() if moment in moments]


if __name__ == "__main__":
    PAGE.write_text(page())
