"""How much of a report is shown, and to whom."""

from __future__ import annotations

from msgspec import Struct

from rebalancer.report.formats import Color
from rebalancer.report.wording.next_steps import AS_CALLED, Command


class Showing(Struct, frozen=True, kw_only=True):
    """`summary`: the verdict, zones and grades alone. `top`: so many rows of each list, where not all are
    asked for (wide). `command`: how the report was asked for."""

    color: Color = Color.AUTO
    command: Command = AS_CALLED
    summary: bool = False
    top: int = 50
