"""Two whole daemons (`rebalancer run`) on one embedded cluster, each with a user name of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.history.ledger_json import decode
from tests.support.build import deployment, nodes, objects, pdb
from tests.support.processes.forked import Program
from tests.support.runs.witness import Witness
from tests.support.sandbox import Cluster, Event
from tests.support.sandbox.authority import Access, User
from tests.support.servers.relay import Relay
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
NOW = (str(Path(sys.executable).parent / "rebalancer"),)
EARLIER = (sys.executable, "-m", "tests.support.processes.earlier_version")
"""Programs: the command line as it is, and with the ledger of an earlier version."""
THINGS = (
    *nodes(a=2, b=2, c=2),
    deployment("web").spread("zone", 1).placed({"a-0": 3, "a-1": 3}),
    deployment("api").spread("zone", 1).placed({"b-0": 6}),
    pdb("web", {"owner": "web"}, max_unavailable=2),
)
EVICTIONS = 8
"""That it takes to balance them."""
SETTINGS = """
evictions: {canary: 0, stabilization: 0s, coolDown: 0s, perSecond: 4}
schedule: {interval: 1s}
breaker: {pause: 500ms}
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


class Process:
    """`rebalancer run --execute` as a user of that name, perhaps through a relay."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        name: str,
        *,
        relay: Relay | None = None,
        settings: str = SETTINGS,
        program: Sequence[str] = NOW,
    ) -> None:
        self.name = name
        self._said = folder / f"{name}.log"
        config, kubeconfig = folder / f"{name}.yaml", folder / f"{name}.kubeconfig"
        config.write_text(settings)
        cluster.kubeconfig(kubeconfig, token=name)
        if relay is not None:
            kubeconfig.write_text(kubeconfig.read_text().replace(cluster.url, relay.url))
        command = [*program, "run", "--execute", "--config", str(config), "--kubeconfig", str(kubeconfig)]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("REBALANCER_", "KUBECONFIG"))}
        with self._said.open("w") as said:
            self.popen = Program(command, stderr=said, env=env, cwd=ROOT)

    def said(self) -> str:
        """What it logged so far."""
        return self._said.read_text()

    def signal(self, number: int) -> None:
        """Sends one."""
        self.popen.send_signal(number)

    def end(self) -> int:
        """As a kubelet ends it."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.popen.wait(120)

    def kill(self) -> None:
        """At once."""
        self.popen.kill()
        self.popen.wait()


class Pair:
    """`first` leads, `second` stands by, evictions are paused; `go` lets them begin. `programs`: of both."""

    def __init__(
        self,
        folder: Path,
        things: Iterable[Any] = THINGS,
        programs: tuple[Sequence[str], Sequence[str]] = (NOW, NOW),
    ) -> None:
        tokens = {name: User(name, ("system:masters",)) for name in ("first", "second")}
        self.cluster = Cluster(objects(*things), ready_after=0.1, grace=0.1, tokens=tokens)
        self._folder, self._programs = folder, programs
        self._processes: list[Process] = []

    def __enter__(self) -> Pair:
        self.cluster.start()
        self.cluster.settle()
        self.relay = Relay(self.cluster.url).__enter__()
        self.witness = witnessed(self.cluster)
        self._pause({PAUSE: "until both are there"})
        try:
            self.first = self._start("first", relay=self.relay, program=self._programs[0])
            until(lambda: "this instance leads" in self.first.said())
            self.second = self._start("second", program=self._programs[1])
            until(lambda: any(a.resource == "leases" for a in self.asked("second")))
            until(lambda: "cycle over" in self.first.said())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        self.relay.__exit__(None, None, None)
        self.cluster.stop()

    def go(self) -> None:
        """Evictions are allowed."""
        self._pause({})

    def asked(self, name: str) -> list[Access]:
        """A daemon's requests so far."""
        return [a for a in self.cluster.server.accesses if a.user == name]

    def evictions(self, name: str) -> int:
        """A daemon's requests for evictions so far, answered or not."""
        return sum(a.subresource == "eviction" for a in self.asked(name))

    def carried_out(self) -> Counter[str]:
        """Evictions that the server carried out, by who asked."""
        every = self.cluster.server.accesses
        return Counter(a.user for a in every if a.subresource == "eviction" and a.code == 201)

    def zones(self, app: str) -> list[int]:
        """Pods of a workload per zone."""
        count = Counter(dict.fromkeys("abc", 0))
        for p in self.cluster.store.list("Pod"):
            if p["metadata"]["labels"].get("app") == app and "deletionTimestamp" not in p["metadata"]:
                count[p["spec"].get("nodeName", "?")[0]] += 1
        return sorted(count.values())

    def balanced(self) -> bool:
        """Both workloads."""
        return self.zones("web") == self.zones("api") == [2, 2, 2]

    def check(self, late: int = 0) -> None:
        """No pod twice, none that was not in the ledger before, no more than it takes, no crash. `late`:
        evictions that were on their way when the other took over."""
        self.witness.check()
        assert len(self.witness.evicted) == len(set(self.witness.evicted))
        assert EVICTIONS <= sum(self.carried_out().values()) <= EVICTIONS + late
        assert not any("Traceback" in p.said() or "this is a bug" in p.said() for p in self._processes)

    def _start(self, name: str, **more: Any) -> Process:
        self._processes.append(Process(self.cluster, self._folder, name, **more))
        return self._processes[-1]

    def _pause(self, annotations: dict[str, str]) -> None:
        self.cluster.store.modify(
            "Namespace", "default", None, lambda o: o["metadata"].update(annotations=annotations)
        )


def witnessed(cluster: Cluster) -> Witness:
    """A witness to whom everything is planned that the ledger said before, and nothing else."""
    witness = Witness(cluster.server)

    def intended(event: Event) -> None:
        data = event.record.obj.get("data") if event.resource.kind == "ConfigMap" else None
        if data and "ledger.json" in data:
            witness.planned |= {e.uid for e in decode(data["ledger.json"]).entries}

    cluster.store.subscribe(intended)
    return witness
