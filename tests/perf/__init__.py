"""Benchmarks; `python -m tests.perf` runs them all."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """One measured number. `target`: at least this (at most, where less is better); None = no target."""

    name: str
    value: float
    unit: str
    target: float | None = None
    less_is_better: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        if self.target is None:
            return True
        return self.value <= self.target if self.less_is_better else self.value >= self.target

    def __str__(self) -> str:
        """One line for a terminal."""
        text = f"{self.name:<58}{self.value:>12,.1f} {self.unit}"
        if self.target is None:
            return text
        sign = "≤" if self.less_is_better else "≥"
        return f"{text}  ({'met' if self.met else 'MISSED'}: {sign} {self.target:,g})"
