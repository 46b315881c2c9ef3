"""Random histories of replace first over HTTP: processes that are killed at any write, and others beside.

python -m tests.loops.histories [--first 0] [--count 1000] [--at-once 6]

The promise: no request of ours lowers the owner's Ready pods below its replicas now; and nothing is left
released once a process has run to its end. What others take is counted apart where a request of ours cannot
have known it: what they took after the process that sends it had read the pods for the last time, and of
replicas what they were since it had read those. It must have read all that within the time that its own rule
names.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rebalancer.policy.release import MARK
from rebalancer.runtime.cycle.gates import FRESH
from rebalancer.sandbox.objects import set_condition
from rebalancer.sandbox.storage import Event
from tests.sandbox.cycle.test_release import (
    BLOCKED,
    HASH,
    PLACE,
    is_ready,
    marks,
    pods,
    process,
    rolled_out,
)
from tests.support.build import objects
from tests.support.sandbox import Cluster
from tests.support.scheduler.plain import Json


def counts(pod: Json) -> bool:
    """Whether it is one of the owner's Ready pods."""
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


def ends(old: Json, new: Json | None) -> bool:
    """Whether it is this change that deletes a pod."""
    gone = new is None or "deletionTimestamp" in new["metadata"]
    return gone and "deletionTimestamp" not in old["metadata"]


class Rests(NamedTuple):
    """What a request rests on: how many changes there were when its process last read pods and replicas, the
    seconds between the older of the two and the request, and how many pods were Ready as it read them: who
    has become so since may go instead of one that is not."""

    pods: int
    replicas: int
    age: float
    ready: int


class Judge:
    """Sees every change in its order, and by whom: server (us), controllers, or the history itself."""

    def __init__(
        self,
        cluster: Cluster,
        who: Callable[[], str] = lambda: threading.current_thread().name,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster, self.who, self.now = cluster, who, now
        self.broken: list[str] = []
        self.count = 0
        self.takes: list[int] = []
        self.did: Counter[str] = Counter()
        self.sent: dict[str, Rests] = {}
        """By pod, what the last request about it rests on."""
        self.given_back: Rests | None = None
        self.owed = Counter[str]()
        """By ReplicaSet: how many pods others made it delete that it has not yet deleted."""
        self.wanted: list[tuple[int, int]] = [(0, 6)]
        cluster.store.subscribe(self.changed)

    def process(self) -> Callable[[str, str], None]:
        """Takes down what one process asks, method and path, before each request."""
        read: dict[str, tuple[int, float, int]] = {}

        def asks(method: str, path: str) -> None:
            if method == "GET":
                what = "deployments" if "/deployments/" in path else path.rsplit("/", 1)[-1]
                if what in ("pods", "deployments"):
                    read[what] = self.count, self.now(), self.ready()
            elif "/pods/" in path:
                pods, replicas = (read.get(k, (self.count, -inf, 99)) for k in ("pods", "deployments"))
                rests = Rests(pods[0], replicas[0], self.now() - min(pods[1], replicas[1]), pods[2])
                self.sent[path.split("/pods/")[1].split("/")[0]] = rests

        return asks

    def changed(self, event: Event) -> None:
        """Under the store's lock."""
        new, old = event.record.obj, event.old.obj if event.old is not None else None
        kind = event.resource.kind
        self.count += 1
        if kind == "Deployment":
            self.wanted.append((self.count, new["spec"]["replicas"]))
        elif kind == "ReplicaSet" and old is not None:
            name, fewer = new["metadata"]["name"], old["spec"]["replicas"] - new["spec"]["replicas"]
            self.owed[name] = max(self.owed[name] + fewer, 0)
        elif kind == "Pod" and old is not None:
            self.pod(old, new if event.type != "DELETED" else None)

    def pod(self, old: Json, new: Json | None) -> None:
        """A pod was changed."""
        who, name = self.who(), old["metadata"]["name"]
        rests: Rests | None = None
        if new is not None:
            was, is_ = (MARK in (p["metadata"].get("annotations") or {}) for p in (old, new))
            if is_ and not was:
                self.did["released"] += 1
            elif was and not is_ and HASH in new["metadata"]["labels"]:
                self.given_back = self.sent[name]
                self.did["given back"] += 1
        lost = counts(old) and not (new is not None and counts(new))
        if who == "sandbox-controllers":
            rests = self.for_us(old, new)
        elif who != "others":
            rests = self.sent.get(name)
        if rests is None:
            # One that is not Ready, too: a request of ours may have counted on its going instead.
            if lost or ends(old, new):
                self.takes.append(self.count)
            return
        if not lost:
            return
        if rests.age > FRESH:
            self.broken.append(f"{who} took {name} by a look of {rests.age:.2f} s before")
        before = [n for at, n in self.wanted if at <= rests.replicas][-1:]
        floor = min([rests.ready, *before, *(n for at, n in self.wanted if at > rests.replicas)])
        left = self.ready() + sum(at > rests.pods for at in self.takes)
        if left < floor:
            self.broken.append(f"{who} took {name}: {left} left of {floor}")
        self.did["taken for us" if who == "sandbox-controllers" else "evicted"] += 1

    def for_us(self, old: Json, new: Json | None) -> Rests | None:
        """By what a controller deletes the pod for a label that we gave back, if it does."""
        if not ends(old, new):
            return None
        owners = old["metadata"].get("ownerReferences") or ()
        name = next((o["name"] for o in owners if o.get("controller")), "")
        if self.owed[name]:
            self.owed[name] -= 1
            return None
        mine, self.given_back = self.given_back, None
        return mine

    def ready(self) -> int:
        """The owner's Ready pods."""
        return sum(map(counts, pods(self.cluster)))


class History:
    """One cluster, and what happens to it, by a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.told: list[str] = []
        self.did: Counter[str] = Counter()

    def starts(self, _: Json) -> float | None:
        """Seconds until a pod is Ready; some never are."""
        return None if self.random.random() < 0.1 else self.random.choice((0.02, 0.1, 0.4))

    def play(self) -> list[str]:
        """What was wrong with it."""
        r = self.random
        with TemporaryDirectory() as folder, Cluster(objects(*BLOCKED), ready_after=self.starts) as cluster:
            cluster.settle()
            judge = Judge(cluster)
            end = threading.Event()
            beside = threading.Thread(target=self.others, args=(cluster, end), name="others", daemon=True)
            beside.start()
            for term in range(1, r.randint(2, 4)):
                at, sent = r.randint(1, 14), r.random() < 0.5
                self.told.append(f"process {term} dies at {at}{' sent' if sent else ''}")
                second = threading.Thread(target=self.second, args=(cluster, term, judge), daemon=True)
                if r.random() < 0.2:
                    second.start()
                process(cluster, Path(folder), term, dies_at=at, sent=sent, asks=judge.process())
                if second.ident is not None:
                    second.join()
            end.set()
            beside.join()
            self.heal(cluster)
            self.did = judge.did
            for term in (8, 9):
                process(cluster, Path(folder), term, fresh=True, asks=judge.process())
            left = marks(cluster)
            if left and not self.by_hand(cluster):
                judge.broken.append(f"left: {left}")
            return judge.broken

    def second(self, cluster: Cluster, term: int, judge: Judge) -> None:
        """Another process of the same installation, which also dies."""
        self.told.append("a second process")
        with TemporaryDirectory() as folder:
            process(cluster, Path(folder), term, dies_at=term + 5, asks=judge.process())

    def others(self, cluster: Cluster, end: threading.Event) -> None:
        """What everybody else does, now and then."""
        r = self.random
        acts: list[Callable[[Cluster], None]] = [self.scale, self.kill, self.sick, self.lose, self.well]
        acts += [rolled_out] if r.random() < 0.4 else []
        for _ in range(r.randint(0, 4)):
            if end.wait(r.uniform(0.05, 0.8)):
                return
            act = r.choice(acts)
            self.told.append(act.__name__)
            act(cluster)

    def scale(self, cluster: Cluster) -> None:
        cluster.scale("default", "web", self.random.randint(3, 7))

    def one(self, cluster: Cluster) -> str:
        return str(self.random.choice(pods(cluster))["metadata"]["name"])

    def kill(self, cluster: Cluster) -> None:
        cluster.store.delete("Pod", self.one(cluster), "default", grace=0)

    def lose(self, cluster: Cluster) -> None:
        """The ledger."""
        if cluster.store.find("ConfigMap", PLACE.name, PLACE.namespace) is not None:
            cluster.store.delete("ConfigMap", PLACE.name, PLACE.namespace)

    def sick(self, cluster: Cluster, status: str = "False", name: str = "") -> None:
        def change(pod: Json) -> None:
            if pod["spec"].get("nodeName"):
                pod["status"]["phase"] = "Running"
                set_condition(pod, {"type": "Ready", "status": status}, cluster.store.now())

        cluster.store.modify("Pod", name or self.one(cluster), "default", change, subresource="status")

    def well(self, cluster: Cluster) -> None:
        self.sick(cluster, "True")

    def heal(self, cluster: Cluster) -> None:
        """All pods become Ready."""
        cluster.kubelet.ready_after = 0.02
        for _ in range(40):
            time.sleep(0.05)
            ill = [
                p["metadata"]["name"] for p in pods(cluster) if not is_ready(p) and p["spec"].get("nodeName")
            ]
            for name in ill:
                self.sick(cluster, "True", name)
            if not ill:
                return

    def by_hand(self, cluster: Cluster) -> bool:
        """Whether a person has to see to it: the ledger was lost, and its ReplicaSet is gone."""
        sets = {s["metadata"]["uid"] for s in cluster.store.list("ReplicaSet")}
        left = [
            p["metadata"]["annotations"][MARK]
            for p in pods(cluster)
            if MARK in (p["metadata"].get("annotations") or {})
        ]
        return bool(left) and "lose" in self.told and all(not any(s in mark for s in sets) for mark in left)


def main() -> None:
    """Plays histories; those that break the promise are printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=6)
    options = parser.parse_args()
    broken, did = 0, Counter[str]()

    def one(seed: int) -> tuple[History, list[str]]:
        history = History(seed)
        return history, history.play()

    with ThreadPoolExecutor(options.at_once) as pool:
        for history, wrong in pool.map(one, range(options.first, options.first + options.count)):
            broken += bool(wrong)
            did += history.did
            if wrong:
                print(history.seed, history.told, wrong, flush=True)
    print(f"{options.count} histories, {broken} broken; {dict(did)}", flush=True)


if __name__ == "__main__":
    main()
