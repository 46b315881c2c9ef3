"""NodePorts: the pod's host ports must be free."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugins.plugin import UNSCHEDULABLE, Filter, NodeFilter, Plugin
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.template_rules import host_ports
from rebalancer.model.pod import HostPort, PodTemplate
from rebalancer.spread.arrays import Bools, Rows

ANY_ADDRESS = "0.0.0.0"


class NodePorts(Plugin):
    """Rule: plugins/nodeports/node_ports.go; framework.HostPortInfo.CheckConflict."""

    name = "NodePorts"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes where another pod holds one of the ports."""
        ports = host_ports(template, self.state.version)
        return _Filter(self.state, ports) if ports else None


def conflict(a: HostPort, b: HostPort) -> bool:
    """Same protocol and port, and one of them takes every address, or both the same one."""
    return (
        a.port == b.port
        and a.protocol == b.protocol
        and (a.host_ip == b.host_ip or ANY_ADDRESS in (a.host_ip, b.host_ip))
    )


class _Filter(NodeFilter):
    def __init__(self, state: ClusterState, ports: tuple[HostPort, ...]) -> None:
        self._state = state
        self._ports = ports
        super().__init__(state.table.size)

    def fits(self, rows: Rows) -> Bools:
        free = np.ones(len(rows), dtype=np.bool_)
        for held in self._state.ports:
            if any(conflict(held, wanted) for wanted in self._ports):
                free &= self._state.ports[held][rows] == 0
        return free

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:  # noqa: ARG002
        return UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",)
