"""`matchLabelKeys` for Deployments of a cluster: one at a time, each rolled out before the next."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct

from rebalancer.prevention.rollouts.live import gave_up, rolled_out, why_not
from rebalancer.prevention.rollouts.rule import additions
from rebalancer.runtime.cycle.clock import Clock

Json = dict[str, Any]
ROLLED_OUT = "rolled out"
_POLL = 2.0
_PATIENCE = 3600.0
"""Seconds that a rollout may take; its controller gives up earlier, after progressDeadlineSeconds."""


class Live(Protocol):
    """Reads and changes Deployments (`kube.patch.deployments.Deployments`)."""

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
