"""Where brake, ledger and lease are, and the labels by which they are found whatever their names."""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct

NAME, COMPONENT, MANAGED_BY = (f"app.kubernetes.io/{key}" for key in ("name", "component", "managed-by"))
OURS = "rebalancer"
_LONGEST_LABEL = 63
Component = Literal["brake", "ledger", "lease", "eviction-request"]


class Place(Struct, frozen=True):
    """Namespace and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As messages name a ConfigMap."""
        return f"ConfigMap {self.namespace}/{self.name}"

    @property
    def label(self) -> str:
        """Both as the value of a label, which has no room for long ones."""
        text = f"{self.namespace}.{self.name}"
        if len(text) <= _LONGEST_LABEL:
            return text
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def labels_of(component: Component) -> dict[str, str]:
    """The labels of an object that the tool itself creates."""
    return {NAME: OURS, COMPONENT: component, MANAGED_BY: OURS}


def selector_of(component: Component) -> str:
    """Selects every such object of a cluster, also one that a chart created."""
    return f"{NAME}={OURS},{COMPONENT}={component}"
