"""Manifests in which `matchLabelKeys` is missing, and the same manifests with it."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import yaml
from msgspec import Struct

from rebalancer.kube.connection import Connection
from rebalancer.kube.patches import CostWriter
from rebalancer.kube.reading import Objects
from rebalancer.manifests.documents import Text
from rebalancer.manifests.located import Insertion, Located, Unreadable, inserted, insertion, located
from rebalancer.model.pod import Pod
from rebalancer.outcome import CostOutcome, CostResult
from rebalancer.prevention.rollouts import HASH, additions, gave_up, rolled_out, why_not
from rebalancer.prevention.steering import CostChange
from rebalancer.runtime.cycle.clock import Clock

_LIST = "spec.template.spec.topologySpreadConstraints"


class Fixed(Struct, frozen=True):
    """A file as it should be.

    `workloads`: Kind/namespace/name of those that were mended. `problems`: what has to be done by hand, and
    why.
    """

    file: str
    before: str
    after: str
    workloads: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def diff(self) -> str:
        """As `diff -u` writes it."""
        names = self.file, self.file
        lines = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        made = difflib.unified_diff(*lines, *names)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in made)


def fixed(text: Text) -> Fixed:
    """One file. It is changed only if it then says what it said before, and the keys."""
    before = bytes(text.data).decode(errors="replace")
    lines = before.splitlines(keepends=True)
    places: list[Insertion] = []
    names: list[str] = []
    wanted: list[Any] = []
    problems: list[str] = []
    for item in located(text):
        if isinstance(item, Unreadable):
            return Fixed(text.name, before, before, (), (item.error.message,))
        spec = item.value.get("spec")
        found = list(additions(item.kind, spec)) if isinstance(spec, Mapping) else []
        wanted.append(_mended(item, [(a.index, a.keys) for a in found]))
        for addition in found:
            node = item.node_at(f"{_LIST}[{addition.index}]")
            place = (
                insertion(node, "matchLabelKeys", HASH, lines) if isinstance(node, yaml.MappingNode) else None
            )
            if place is None:
                problems.append(f"{_name(item)}: {_LIST}[{addition.index}] has to be changed by hand")
            else:
                places.append(place)
        if found:
            names.append(_name(item))
    if problems or not places:
        return Fixed(text.name, before, before, (), tuple(problems))
    after = inserted(lines, places)
    if [_value(i) for i in located(Text(text.name, after.encode()))] != wanted:
        why = f"{text.name}: cannot be changed without changing more; do it by hand: {', '.join(names)}"
        return Fixed(text.name, before, before, (), (why,))
    return Fixed(text.name, before, after, tuple(names))


def _value(item: Located | Unreadable) -> object:
    return item.value if isinstance(item, Located) else item


def _mended(item: Located, keys: Iterable[tuple[int, tuple[str, ...]]]) -> Any:
    """The object as it should be."""
    value = copy.deepcopy(item.value)
    for index, names in keys:
        value["spec"]["template"]["spec"]["topologySpreadConstraints"][index]["matchLabelKeys"] = list(names)
    return value


def _name(item: Located) -> str:
    metadata = item.value["metadata"]
    return f"{item.kind}/{metadata.get('namespace') or 'default'}/{metadata['name']}"


# `matchLabelKeys` for Deployments of a cluster: one at a time, each rolled out before the next.

Json = dict[str, Any]
ROLLED_OUT = "rolled out"
_POLL = 2.0
_PATIENCE = 3600.0
"""Seconds that a rollout may take; its controller gives up earlier, after progressDeadlineSeconds."""


class Live(Protocol):
    """Reads and changes Deployments (`kube.patches.Deployments`)."""

    def get(self, namespace: str, name: str) -> Json:
        """The Deployment now. Raises KubeError."""
        ...

    def set_constraints(self, seen: Json, constraints: list[Json]) -> Json:
        """With these constraints. Raises KubeError, ConflictError if it has changed."""
        ...


class Wanted(Struct, frozen=True):
    """What is to be done to a Deployment.

    `constraints`: as they should be; empty if nothing is missing. `added`: the same for people. `refused`:
    why it is left alone, "" if it may be changed.
    """

    seen: Json
    constraints: tuple[Json, ...] = ()
    added: tuple[str, ...] = ()
    refused: str = ""


def wanted(seen: Json) -> Wanted:
    """What a Deployment lacks, and whether it may be changed."""
    found = list(additions("Deployment", seen["spec"]))
    if not found:
        return Wanted(seen)
    constraints = copy.deepcopy(seen["spec"]["template"]["spec"]["topologySpreadConstraints"])
    added = []
    for addition in found:
        constraints[addition.index]["matchLabelKeys"] = list(addition.keys)
        where = f"topologySpreadConstraints[{addition.index}]"
        added.append(f"+ {where}.matchLabelKeys: [{', '.join(addition.keys)}]")
    return Wanted(seen, tuple(constraints), tuple(added), why_not(seen))


def apply(live: Live, found: Wanted, clock: Clock) -> Iterator[str]:
    """Changes a Deployment and waits until it is rolled out; says what happens, and `ROLLED_OUT` at the end.

    Raises KubeError.
    """
    metadata = live.set_constraints(found.seen, list(found.constraints))["metadata"]
    yield "changed; waiting for its rollout"
    until = clock.monotonic() + _PATIENCE
    while True:
        now = live.get(metadata["namespace"], metadata["name"])
        if rolled_out(now):
            yield ROLLED_OUT
            return
        if trouble := gave_up(now):
            yield f"its rollout makes no progress: {trouble}; `kubectl rollout undo` takes the change back"
            return
        if clock.monotonic() >= until or clock.wait(_POLL):
            yield "its rollout is not over yet"
            return


# What `rebalancer prevent` does: shows the deletion costs that would be written, or takes all back.

_PER_SECOND = 25.0
"""Somebody waits for it."""
_ROUNDS = 5
"""A pod that has changed meanwhile is looked at again."""


def take_back(
    connection: Connection, namespace: str, clock: Clock, tell: Callable[[CostOutcome], None]
) -> tuple[int, int]:
    """Removes every deletion cost that this tool has written: (how many, how many are left).

    `namespace`: "" for all. Raises KubeError.
    """
    objects, writer = Objects(connection, wait=clock.wait), CostWriter(connection)
    removed = 0
    left: list[Pod] = []
    for _ in range(_ROUNDS):
        left = [p for p in objects.pods(namespace) if p.own_cost is not None]
        if not left:
            break
        for pod in left:
            outcome = writer.write(CostChange(pod, 0, pod.own_cost))
            removed += outcome.result is CostResult.WRITTEN
            tell(outcome)
            if clock.wait(1.0 / _PER_SECOND):
                return removed, len(left)
    return removed, len(left)
