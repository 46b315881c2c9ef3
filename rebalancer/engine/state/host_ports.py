"""Host ports in the scheduler's books.

The books know that a port is taken on a node, not how often. Two pods can only share one if somebody else
gave them their node; the first of them to go frees it. Rule: framework/types.go, ``HostPortInfo.Remove``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rebalancer.engine.template_rules import host_ports
from rebalancer.engine.version import ServerVersion
from rebalancer.model.pod import HostPort, PodTemplate
from rebalancer.spread.arrays import Columns, Ints


class HostPorts:
    """By port: int64[N], 1 where it is taken."""

    def __init__(self, size: int, version: ServerVersion) -> None:
        """No ports taken on `size` nodes. `version` decides whose ports count."""
        self._version = version
        self._taken: Columns[HostPort] = Columns(size)

    def __iter__(self) -> Iterator[HostPort]:
        """The ports that are taken somewhere, or were."""
        return iter(self._taken)

    def __getitem__(self, port: HostPort) -> Ints:
        """int64[N]; callers only read it, and not beyond the next change."""
        return self._taken[port]

    def hold(self, template: PodTemplate, row: int, *, held: bool) -> None:
        """A pod takes its ports on a node, or frees them."""
        for port in host_ports(template, self._version):
            change = int(held) - int(self._taken[port][row])
            if change:
                self._taken.add(port, row, change)

    def copy(self) -> HostPorts:
        """An independent copy."""
        other = HostPorts.__new__(HostPorts)
        other._version = self._version
        other._taken = self._taken.copy()
        return other

    def to_change(self, templates: Iterable[PodTemplate]) -> HostPorts:
        """What pods of these templates may come to and leave, this one staying as it is; itself if they have
        no ports."""
        return self.copy() if any(t.host_ports for t in templates) else self
