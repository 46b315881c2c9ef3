"""Spellings that kubectl's users have in their fingers."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

_SHORT_WITH_EQUALS = re.compile(r"-[A-Za-z]=.*", re.DOTALL)


class KubectlCommand(TyperCommand):
    """A command that takes `-o=json` as `-o json`, and says in plain words what is wrong with a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes the equals sign out; what stands behind `--` is left alone."""
        end = args.index("--") if "--" in args else len(args)
        spelled = [f"{a[:2]}{a[3:]}" if _SHORT_WITH_EQUALS.fullmatch(a) else a for a in args[:end]]
        try:
            return super().parse_args(ctx, [*spelled, *args[end:]])
        except typer.BadParameter as e:
            if wrong := getattr(e.__cause__, "errors", None):  # of pydantic, with which typer converts values
                from rebalancer.settings.phrases import phrase

                e.message = phrase(wrong()[0])
            raise
