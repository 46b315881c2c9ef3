"""The daemon for a long time, beside faults, autoscalers, rollouts; `python -m` this module runs it.

After every cycle: nothing was evicted outside of a plan, nothing twice, no cycle ended in a bug. At the end,
with the faults gone and the cluster at rest: what can be mended is mended, and memory has not grown.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from tests.support.build import deployment, nodes, objects, pdb, stateful_set
from tests.support.processes.forked import Program
from tests.support.runs.witness import Witness
from tests.support.sandbox import ApiError, Cluster, Cut, Delay, Garbage, Gone, Reply

_ROOT = Path(__file__).parents[4]
_AT_REST = 300.0
"""Seconds within which it must be, also on a machine with other things to do."""
THINGS = (
    *nodes(a=3, b=3, c=3),
    deployment("web").spread("zone", 1).placed({"a-0": 4, "b-0": 1, "c-0": 1}),
    deployment("api").spread("zone", 1).spread("hostname", 2).placed({"a-1": 3, "b-1": 3}),
    stateful_set("db").spread("zone", 1).placed({"a-2": 2, "b-2": 1}),
    *(deployment(f"w{i}").spread("zone", 1).placed({"a-0": 2, "c-1": 1}) for i in range(6)),
    pdb("web", {"owner": "web"}, max_unavailable=1),
    pdb("db", {"owner": "db"}, max_unavailable=1),
)
_FAULTS: tuple[Callable[[random.Random], dict[str, Any]], ...] = (
    lambda r: {"action": Reply(r.choice((429, 500, 503))), "probability": 0.2},
    lambda _: {"action": Reply(429, headers={"Retry-After": "1"}), "subresource": "eviction"},
    lambda _: {"action": Cut("after"), "subresource": "eviction"},
    lambda _: {"action": Cut("body", body_bytes=25), "probability": 0.2},
    lambda r: {"action": Cut("body", body_bytes=9, after_events=r.randrange(3)), "verb": "watch"},
    lambda _: {"action": Garbage(), "verb": "get", "probability": 0.3},
    lambda r: {
        "action": Delay(math.inf, after_events=r.randrange(3)),
        "verb": "watch",
        "resource": r.choice(("nodes", "pods", "poddisruptionbudgets")),
    },
    lambda _: {"action": Gone(), "verb": "watch"},
    lambda _: {"action": Gone(), "verb": "list"},
    lambda _: {"action": Delay(1.0), "probability": 0.1},
    lambda _: {"action": Reply(401), "probability": 0.5},
    lambda r: {"action": Reply(403), "resource": r.choice(("pods", "configmaps", "leases"))},
)


_MILD = _FAULTS[1], _FAULTS[6]
"""Evictions that are answered 429 with Retry-After, and half-open watches of nodes, pods and budgets."""
WEATHER = {"storm": (_FAULTS, 0.6), "noise": (_MILD, 0.1), "quiet": ((), 0.0)}
"""Which faults, and how likely one is at each turn. "noise" has those of a bad day, and others that keep the
cluster busy; "quiet" has neither: the same work, to compare with."""
_ROLLOUT_EVERY = 60.0
ACTORS = ("everybody", "autoscalers")
"""Who changes the cluster. "autoscalers": one of nodes that adds and consolidates, one of pods, and a rollout
every minute; "everybody": they and all others, at a pace that no cluster has."""


class Soak:
    """One run. `say` gets a line now and then. `weather`: of WEATHER; `actors`: of ACTORS."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        say: Callable[[str], None],
        *,
        weather: str = "storm",
        actors: str = "everybody",
    ) -> None:
        self.rng, self.luck = random.Random(seed), random.Random(seed)
        self.kinds, self.likely = WEATHER[weather]
        self.say = say
        self._only_autoscalers = actors == "autoscalers"
        self._rolled_out = time.monotonic()
        self.cluster = Cluster(
            objects(*THINGS), seed=seed, ready_after=0.1, grace=0.1, patience=1.0, history=500
        )
        self.folder = folder
        self.changes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.problems: list[str] = []
        self._added: list[str] = []
        self._waiting = 0
        self._version = 0
        self.quiet = 0
        self.last = ""

    def run(self, seconds: float) -> None:
        """Raises AssertionError where something was not as it should be."""
        with self.cluster as cluster:
            cluster.settle()
            self.witness = Witness(cluster.server)
            command = [sys.executable, "-m", "tests.sandbox.daemon.load.soak_daemon"]
            command.append(str(cluster.kubeconfig(self.folder / "kubeconfig")))
            self.errors = self.folder / "errors"
            with (
                self.errors.open("w") as errors,
                Program(command, stdout=subprocess.PIPE, stderr=errors, cwd=_ROOT) as self.daemon,
            ):
                listener = threading.Thread(target=self._listen)
                listener.start()
                code: int | None = None
                try:
                    sizes = self._shake(seconds)
                    self._rest(sizes)
                finally:
                    self.daemon.send_signal(signal.SIGTERM)
                    try:
                        code = self.daemon.wait(120)
                    except subprocess.TimeoutExpired:
                        self.daemon.kill()
                        self.problems.append("the daemon does not end")
                    listener.join(60)
            assert not self.problems, self.problems
            assert code == 0, f"the daemon ended with {code}: {self._said()}"

    def _alive(self) -> bool:
        """Raises AssertionError with the daemon's last words if it has ended."""
        code = self.daemon.poll()
        assert code is None, f"the daemon ended with {code}: {self._said()}"
        return True

    def _said(self) -> str:
        return self.errors.read_text()[-4000:]

    def _listen(self) -> None:
        """What the daemon says, in its order; every invariant after each cycle."""
        assert self.daemon.stdout is not None
        for line in self.daemon.stdout:
            told = json.loads(line)
            if "plan" in told:
                self.witness.planned.update(told["plan"])
            elif "error" in told:
                self.ends["error"] += 1
                self.last = told["error"]
                if told["bug"]:
                    self.problems.append(told["error"])
            else:
                self.ends[told["end"]] += 1
                self.last = f"{told['end']}: {told['message']}"
                self.quiet += told["end"] == "complete" and not told["evicted"]
                try:
                    self.witness.check(forget=True)
                except AssertionError as e:
                    self.problems.append(str(e))

    def _shake(self, seconds: float) -> list[int]:
        """Faults and changes until the time is up; memory in KiB, measured now and then."""
        began = time.monotonic()
        told, sizes = began, list[int]()
        while (now := time.monotonic()) - began < seconds and not self.problems and self._alive():
            self._fault()
            if self._only_autoscalers:
                self._autoscalers_change()
                time.sleep(self.rng.uniform(1.0, 4.0))
            else:
                self._change()
                time.sleep(self.rng.uniform(0.2, 0.8))
            if now - told > max(5.0, seconds / 30):
                told = now
                sizes.append(self._resident())
                self.say(f"{now - began:5.0f} s  {self}  {sizes[-1] // 1024} MiB")
        return sizes

    def _fault(self) -> None:
        if self.luck.random() >= self.likely:
            self.cluster.faults.clear()
            return
        rule = self.luck.choice(self.kinds)(self.luck)
        self.faults[type(rule["action"]).__name__] += 1
        self.cluster.faults.add(times=self.luck.randrange(1, 6), **rule)

    def _change(self) -> None:
        what = self.rng.choice(
            (
                self._scale,
                self._relabel,
                self._relabel,
                self._cordon,
                self._node,
                self._consolidate,
                self._autoscale,
                self._rollout,
                self._outage,
                self._delete,
                self._taint,
                self._annotate,
                self._batch,
                self._nothing,
            )
        )
        if not self.kinds and what in (self._annotate, self._batch, self._taint):
            return
        self._do(what)

    def _autoscalers_change(self) -> None:
        if time.monotonic() - self._rolled_out >= _ROLLOUT_EVERY:
            self._rolled_out = time.monotonic()
            self._do(self._rollout)
        self._do(self.rng.choice((self._autoscale, self._autoscale, self._node, self._consolidate)))

    def _do(self, what: Callable[[], None]) -> None:
        try:
            what()
            self.changes[what.__name__.strip("_")] += 1
        except (ApiError, TimeoutError, KeyError):
            pass  # what was to be changed is gone by now

    def _nothing(self) -> None:
        """A moment of peace."""

    def _scale(self) -> None:
        name = self.rng.choice(("web", "api", "db", "w0", "w1", "w2"))
        self.cluster.scale("default", name, self.rng.randrange(2, 9))

    def _autoscale(self) -> None:
        """A HorizontalPodAutoscaler goes one up or down."""
        name = self.rng.choice(("web", "api", "w0", "w3"))
        found = self.cluster.store.get("Deployment", name, "default")["spec"]["replicas"]
        self.cluster.scale("default", name, min(8, max(2, found + self.rng.choice((-1, 1)))))

    def _rollout(self) -> None:
        """A workload gets another image, and its pods are replaced."""
        self._version += 1
        image = f"registry.example/app:{self._version}"

        def change(o: dict[str, Any]) -> None:
            o["spec"]["template"]["spec"]["containers"][0]["image"] = image

        self.cluster.store.modify(
            "Deployment", self.rng.choice(("web", "api", "w1", "w4")), "default", change
        )

    def _consolidate(self) -> None:
        """An autoscaler of nodes removes that of its own which has fewest pods."""
        if not self._added:
            return
        pods = Counter(p["spec"].get("nodeName") for p in self.cluster.store.list("Pod"))
        emptiest = min(self._added, key=lambda n: (pods[n], n))
        self._added.remove(emptiest)
        self.cluster.remove_node(emptiest)

    def _relabel(self) -> None:
        """A node changes its zone, and its pods their domain: the quickest way out of balance."""
        zone = self.rng.choice("abc")

        def change(node: dict[str, Any]) -> None:
            node["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone

        self.cluster.store.modify("Node", self.rng.choice(self._nodes()), None, change)

    def _cordon(self) -> None:
        node = self.rng.choice(self._nodes())
        self.cluster.cordon(node, on=self.rng.random() < 0.4)

    def _node(self) -> None:
        if self._added and self.rng.random() < 0.6:
            self.cluster.remove_node(self._added.pop())
        elif len(self._added) < 4:
            self._added += self.cluster.add_nodes(1, like=self.rng.choice(("a-0", "b-0", "c-0")))

    def _outage(self) -> None:
        key = "kubernetes.io/hostname"
        node = self.rng.choice(self._nodes())
        self.cluster.fail_domain(key, node)
        time.sleep(0.3)
        self.cluster.restore_domain(key, node)

    def _taint(self) -> None:
        """A node that was added is given to somebody else, or back."""
        taint = [{"key": "batch", "effect": "NoSchedule"}] if self.rng.random() < 0.5 else []
        node = self.rng.choice(self._added or ["c-2"])
        self.cluster.store.modify("Node", node, None, lambda o: o["spec"].update(taints=taint))

    def _annotate(self) -> None:
        """An operator keeps its books in annotations."""
        said = {"status": str(time.time_ns())}
        for pod in self.cluster.store.list("Pod")[:10]:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            self.cluster.store.modify(
                "Pod", name, namespace, lambda o: o["metadata"].setdefault("annotations", {}).update(said)
            )

    def _batch(self) -> None:
        """A pod that waits for a node that will not come, for a while."""
        self._waiting += 1
        name = f"batch-{self._waiting}"
        self.cluster.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": {"app": "batch"}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000"}}}]},
            }
        )
        if self._waiting > 2:
            self.cluster.store.delete("Pod", f"batch-{self._waiting - 2}", "default", grace=0)

    def _delete(self) -> None:
        pod = self.rng.choice(self.cluster.store.list("Pod"))["metadata"]
        self.cluster.store.delete("Pod", pod["name"], pod["namespace"], grace=0)

    def _nodes(self) -> list[str]:
        return [n["metadata"]["name"] for n in self.cluster.store.list("Node")]

    def _rest(self, sizes: list[int]) -> None:
        """No more faults: the daemon must find its way back, and memory be what it was."""
        self.cluster.faults.clear()
        for node in self._nodes():
            self.cluster.cordon(node, on=False)
            self.cluster.restore_domain("kubernetes.io/hostname", node)
            self.cluster.store.modify("Node", node, None, lambda o: o["spec"].update(taints=[]))
        began, before, evicted = time.monotonic(), self.quiet, len(self.witness.evicted)
        while time.monotonic() - began < _AT_REST and not self.problems and self._alive():
            if self.quiet > before + 1:
                break
            time.sleep(0.2)
        else:
            took = time.monotonic() - began
            raise AssertionError(
                f"not at rest after {took:.0f} s: {self.last} {self.problems} {self._said()}"
            )
        more = len(self.witness.evicted) - evicted
        self.say(f"at rest after {time.monotonic() - began:.1f} s and {more} more evictions")
        if len(sizes) >= 12:
            # The first third warms up; then it must stay within a tenth and some.
            early = mean(sizes[len(sizes) // 3 : len(sizes) // 2])
            late = mean(sizes[-len(sizes) // 6 :])
            self.say(f"memory: {early / 1024:.0f} MiB early, {late / 1024:.0f} MiB late")
            assert late < early * 1.15 + 8 * 1024, f"memory grows: {sizes}"

    def _resident(self) -> int:
        """The daemon's memory in KiB."""
        return int(Path(f"/proc/{self.daemon.pid}/statm").read_text().split()[1]) * 4

    def __str__(self) -> str:
        """The figures so far."""
        cycles, evicted = sum(self.ends.values()), len(self.witness.evicted)
        return f"{cycles} cycles {dict(self.ends)}, {evicted} evicted, {sum(self.faults.values())} faults"


def main() -> None:
    """Arguments: --seconds, --seed, --weather, --actors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--weather", choices=WEATHER, default="storm")
    parser.add_argument("--actors", choices=ACTORS, default="everybody")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(
            given.seed,
            Path(folder),
            lambda line: print(line, flush=True),
            weather=given.weather,
            actors=given.actors,
        )
        soak.run(given.seconds)
    print(f"fine: {soak}; changes {dict(soak.changes)}")


if __name__ == "__main__":
    main()
