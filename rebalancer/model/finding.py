"""What no eviction cures: one typed value from the checks to every output."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(Struct, frozen=True, eq=False):
    """Something wrong with a constraint, a node or a budget itself.

    `object`: Kind/namespace/name (Kind/name without a namespace). `remedy`: YAML to paste, or a command.
    `field`: where in the object, as spec.template.spec.topologySpreadConstraints[0]. `numbers`: figures of
    the message, for scripts and metrics. `since`: when it was seen first (epoch seconds), None if nobody
    remembers.
    """

    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""
    field: str = ""
    numbers: Mapping[str, int] = {}
    since: float | None = None
