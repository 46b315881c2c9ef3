"""After any watch events, the plan that the daemon keeps is the one that is made of the cluster anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random

import msgspec
import pytest

from rebalancer.findings import plan_with_findings
from rebalancer.kube.resources import RESOURCES
from rebalancer.kube.watch.cache import Snapshots
from rebalancer.kube.watch.store import KindStore
from rebalancer.model.decode import Decoder
from rebalancer.model.snapshot import Identity, Object, Snapshot, identity
from rebalancer.planner import PlanOptions
from rebalancer.planner.plan import Plan
from rebalancer.report.building import build_report
from rebalancer.report.output import to_builtins
from rebalancer.runtime.live.assembly import LastPlan
from tests.support.build import NOW
from tests.support.clusters.random_clusters import random_cluster
from tests.support.scheduler.plain import Json

EVENTS = 1000
VERSION = "v1.36.2"
OPTIONS = PlanOptions()
QUIET = 0.8
"""The share of looks before which nothing happened that a plan reads."""


class Watched:
    """Objects of an API server in the stores of a watch cache, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.decoder = Decoder()
        self.version = 1
        self.objects = {(o["kind"], *self._key(o)): o for o in random_cluster(self.rng, "tiny", pending=True)}
        self.stores = {kind: KindStore(resource, lambda: 0.0) for kind, resource in RESOURCES.items()}
        for kind in self.stores:
            self.list(kind)
        self._snapshots = Snapshots(self.stores, lambda: "test", ())

    def snapshot(self, *, anew: bool = False) -> Snapshot:
        source = Snapshots(self.stores, lambda: "test", ()) if anew else self._snapshots
        return source.of(NOW, VERSION)

    def list(self, kind: str) -> None:
        """The kind is listed again: every object is a new one."""
        found = [self._decoded(o) for (k, *_), o in self.objects.items() if k == kind]
        self.stores[kind].swap(dict(found), {}, str(self.version), 0.0)

    def happens(self, *, quiet: bool) -> None:
        """One event; `quiet`: nothing of it is read for a plan."""
        key = self.rng.choice(sorted(self.objects))
        if quiet:
            self._write(self.objects[key])
        elif self.rng.random() < 0.02:
            self.list(key[0])
        else:
            pods = [key for key in sorted(self.objects) if key[0] == "Pod"]
            self.rng.choice((self._moved, self._ready, self._gone, self._cordoned, self._labelled))(
                self.rng.choice(pods)
            )

    def _moved(self, key: Identity) -> None:
        """A pod of another name is on another node instead."""
        pod = deepcopy(self.objects[key])
        self._gone(key)
        nodes = [k for k in sorted(self.objects) if k[0] == "Node"]
        pod["metadata"] |= {"name": f"new-{self.version}", "uid": f"new-{self.version}"}
        pod["spec"]["nodeName"] = self.rng.choice(nodes)[-1]
        self._write(pod)

    def _ready(self, key: Identity) -> None:
        conditions = self.objects[key].setdefault("status", {}).setdefault("conditions", [])
        there = next((c for c in conditions if c["type"] == "Ready"), None) or {"type": "Ready"}
        there["status"] = "False" if there.get("status") == "True" else "True"
        self.objects[key]["status"]["conditions"] = [*(c for c in conditions if c["type"] != "Ready"), there]
        self._write(self.objects[key])

    def _gone(self, key: Identity) -> None:
        if sum(k[0] == "Pod" for k in self.objects) > 3:
            self._write(self.objects.pop(key), gone=True)

    def _cordoned(self, _: Identity) -> None:
        node = self.objects[self.rng.choice([k for k in sorted(self.objects) if k[0] == "Node"])]
        spec = node.setdefault("spec", {})
        spec["unschedulable"] = not spec.get("unschedulable", False)
        self._write(node)

    def _labelled(self, key: Identity) -> None:
        self.objects[key]["metadata"].setdefault("labels", {})["more"] = str(self.version)
        self._write(self.objects[key])

    def _write(self, o: Json, *, gone: bool = False) -> None:
        self.version += 1
        o["metadata"]["resourceVersion"] = str(self.version)
        key, value = self._decoded(o)
        if not gone:
            self.objects[o["kind"], *self._key(o)] = o
        self.stores[o["kind"]].apply([(key, None if gone else value, "")], str(self.version))

    def _decoded(self, o: Json) -> tuple[Identity, Object]:
        value = self.decoder.decode(o["kind"], json.dumps(o).encode())
        return identity(value), value

    @staticmethod
    def _key(o: Json) -> Identity:
        return o["metadata"].get("namespace", ""), o["metadata"]["name"]


def as_bytes(plan: Plan, snapshot: Snapshot) -> bytes:
    """The report of a plan, with the versions of the pods that it moves."""
    report = build_report(plan, snapshot, generated_at=NOW, seconds=0.0)
    versions = [(m.pod.resource_version, m.owner.metadata.resource_version) for m in plan.moves]
    return msgspec.json.encode((to_builtins(report), versions, plan.steps))


def counted(make: Callable[[Snapshot, PlanOptions], Plan], made: list[int]) -> Callable[..., Plan]:
    def counting(snapshot: Snapshot, options: PlanOptions) -> Plan:
        made[0] += 1
        return make(snapshot, options)

    return counting


@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (4, 8))])
def test_the_kept_plan_is_the_one_of_the_cluster_as_it_is(seed: int) -> None:
    watched, made, looks, happened = Watched(seed), [0], 0, 0
    last = LastPlan(counted(plan_with_findings, made))
    while happened < EVENTS:
        quiet = watched.rng.random() < QUIET
        events = watched.rng.randint(1, 5 if quiet else 60)
        for _ in range(events):
            watched.happens(quiet=quiet)
        happened, looks = happened + events, looks + 1
        kept = last(watched.snapshot(), OPTIONS)
        fresh = watched.snapshot(anew=True)
        assert as_bytes(kept, fresh) == as_bytes(plan_with_findings(fresh, OPTIONS), fresh)
    assert made[0] < looks, "some plans were kept"
