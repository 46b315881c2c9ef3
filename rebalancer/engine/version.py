"""Which rules the server's version brings.

| rule | from | before |
|---|---|---|
| NodeResourcesBalancedAllocation scores the change of balance | 1.36 | the balance with the pod |
| NodeResourcesBalancedAllocation skips pods without requests | 1.33 | scores them |
| the API server merges a spread constraint's matchLabelKeys on create | 1.34 | the scheduler joins them |
"""

from __future__ import annotations

import re

from msgspec import Struct

FIRST, LAST = (1, 29), (1, 36)
"""Versions whose rules are known."""


class ServerVersion(Struct, frozen=True):
    """The minor version that the engine follows; the newest where the server's is unknown."""

    minor: tuple[int, int] = LAST
    text: str = ""

    @staticmethod
    def parse(text: str) -> ServerVersion:
        """From "v1.34.2", "1.36+", …"""
        match = re.match(r"v?(\d+)\.(\d+)", text)
        return ServerVersion((int(match[1]), int(match[2])), text) if match else ServerVersion(text=text)

    @property
    def supported(self) -> bool:
        """Whether the version is known and inside the contract."""
        return bool(self.text) and FIRST <= self.minor <= LAST

    @property
    def balance_counts_change(self) -> bool:
        """Kubernetes pull request 135573."""
        return self.minor >= (1, 36)

    @property
    def balance_skips_best_effort(self) -> bool:
        """Kubernetes pull request 130260."""
        return self.minor >= (1, 33)
