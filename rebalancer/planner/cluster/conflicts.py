"""Whether pods can get in each other's way by more than room: ports, volumes and required (anti-)affinity."""

from __future__ import annotations

from rebalancer.engine.plugins.pod_topology_spread import HOSTNAME
from rebalancer.model.pod import PodAffinityTerm, PodTemplate
from rebalancer.model.selectors import canonical


def conflicts_at_all(template: PodTemplate) -> bool:
    """Whether a pod can conflict with any other; two that cannot never conflict with each other."""
    return bool(template.attaches or template.host_ports or _terms(template))


def can_conflict(one: PodTemplate, other: PodTemplate, *, beyond_node: bool = False) -> bool:
    """Whether where the one is placed can matter to the other; `beyond_node`: on other nodes, too."""
    if not beyond_node:
        if one.attaches and other.attaches:
            return True
        ports = {(p.port, p.protocol) for p in one.host_ports}
        if any((p.port, p.protocol) in ports for p in other.host_ports):
            return True
    return _selects(one, other, beyond_node) or _selects(other, one, beyond_node)


class Conflicts:
    """The replacements of one wave, as far as they can conflict."""

    def __init__(self) -> None:
        self._members: dict[int, PodTemplate] = {}
        self._ports: set[tuple[int, str]] = set()
        self._coupled: dict[int, PodTemplate] = {}

    def any_with(self, template: PodTemplate) -> bool:
        """Whether a newcomer could be in the way of a member, or a member in its."""
        if template.attaches and any(m.attaches for m in self._members.values()):
            return True
        if any((p.port, p.protocol) in self._ports for p in template.host_ports):
            return True
        if any(_selects(member, template) for member in self._coupled.values()):
            return True
        return bool(_terms(template)) and any(_selects(template, m) for m in self._members.values())

    def add(self, template: PodTemplate) -> None:
        """Takes a newcomer in."""
        self._members[id(template)] = template
        self._ports.update((p.port, p.protocol) for p in template.host_ports)
        if _terms(template):
            self._coupled[id(template)] = template


def _terms(template: PodTemplate) -> tuple[PodAffinityTerm, ...]:
    a = template.affinity
    if a is None:
        return ()
    return tuple(
        t for part in (a.pod_affinity, a.pod_anti_affinity) if part is not None for t in part.required
    )


def _selects(one: PodTemplate, other: PodTemplate, beyond_node: bool = False) -> bool:
    """Whether a required term of `one` may select `other`; a namespaceSelector may select any namespace."""
    for term in _terms(one):
        if beyond_node and term.topology_key == HOSTNAME:
            continue
        if term.label_selector is None:
            continue
        namespaces = term.namespaces or (one.namespace,)
        if (term.namespace_selector is not None or other.namespace in namespaces) and canonical(
            term.label_selector
        ).matches(other.labels):
            return True
    return False
