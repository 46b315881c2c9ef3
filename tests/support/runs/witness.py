"""An eyewitness of evictions: what was planned, what the API server carried out, and whether they agree."""

from __future__ import annotations

import threading
from collections import Counter

from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import CycleReport, Observer
from rebalancer.planner.plan import Plan
from tests.support.sandbox import ApiServer, Event


class Witness(Observer):
    """Watches the store from the inside and listens to the loop; faults on the wire do not blind it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.evicted: list[str] = []
        self.names: dict[str, str] = {}
        self.planned: set[str] = set()
        self.reports: list[CycleReport] = []
        self.errors: list[Exception] = []
        self._gone: set[str] = set()
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()
        server.store.subscribe(self._saw)

    def _saw(self, event: Event) -> None:
        if event.resource.kind != "Pod":
            return
        pod = event.record.obj
        uid = pod["metadata"]["uid"]
        conditions = (pod.get("status") or {}).get("conditions") or ()
        by_api = any(
            c["type"] == "DisruptionTarget" and c.get("reason") == "EvictionByEvictionAPI" for c in conditions
        )
        if by_api and uid not in self._gone:
            self._gone.add(uid)
            self.evicted.append(uid)
            self.names[uid] = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:  # noqa: ARG002
        """What may be evicted from now on."""
        with self._lock:
            self.planned |= {m.pod.uid for m in plan.moves}

    def on_report(self, report: CycleReport) -> None:
        """The end of a cycle."""
        self.reports.append(report)

    def on_error(self, error: Exception) -> None:
        """An end in an error."""
        self.errors.append(error)

    @property
    def told(self) -> int:
        """Evictions that the reports own up to."""
        return sum(r.evicted for r in self.reports)

    def check(self, *, drained: frozenset[str] = frozenset(), forget: bool = False) -> None:
        """Nothing outside the plan, nothing twice. `drained`: names that somebody else evicted. `forget`: the
        server's log is emptied, so that it does not grow for ever."""
        with self._lock:
            strange = [self.names[u] for u in self.evicted if u not in self.planned]
        strange = [n for n in strange if n not in drained]
        assert not strange, f"evicted outside of every plan: {strange}"
        log = self.server.api.log
        seen = log[:]
        taken = self._taken + Counter(
            f"{a.namespace}/{a.name}" for a in seen if a.subresource == "eviction" and a.code == 201
        )
        if forget:
            self._taken = taken
            del log[: len(seen)]
        # A StatefulSet's pods keep their names: each must have been there again.
        lives = Counter(self.names.values())
        twice = [n for n, count in taken.items() if count > max(1, lives[n])]
        assert not twice, f"asked for twice: {twice}"
