"""A real cluster for the histories: $KUBECONFIG's, with nodes that are made for them and nobody else uses.

Something has to play the kubelets of nodes that are made by an API call, as KWOK does. All that is made has a
label of its own, and is removed. What only the embedded cluster can do is skipped (`EMBEDDED_ONLY`).
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.e2e.kubectl import Kubectl
from tests.support.scheduler.plain import Json, node_of, terminating

EMBEDDED_ONLY = {
    "half a zone is silent": "nobody here can make kubelets fall silent",
    "a zone is silent": "nobody here can make kubelets fall silent",
    "silent nodes are replaced": "nobody here can make kubelets fall silent",
    "control plane down in mid-repair": "a real control plane is not taken away",
    "no images in the zone that is back": "nobody here can take a registry away",
}
"""History → why it is not played."""
MARK = "rebalancer.io/outages"
_SYSTEM = ("uid", "resourceVersion", "creationTimestamp", "generation")


class RealTime:
    """The machine's clock. `during` is called, as a test's own clock does, while somebody waits."""

    def __init__(self) -> None:
        self.during: Callable[[float], object] = lambda _: None

    @property
    def at(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def now(self) -> float:
        return time.time()

    latest = now

    def monotonic(self) -> float:
        return time.monotonic()

    def doubt(self) -> str:
        return ""

    def stopping(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        return self.linger(seconds)

    def linger(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.during(min(left, 1.0))
            time.sleep(max(0.0, min(end - time.monotonic(), 1.0)))
        return False


class Store:
    """The objects, as the embedded cluster's store gives them. Nodes are those of the histories alone."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def list(self, kind: str) -> list[Json]:
        chosen = ["-l", f"{MARK}={self._kubectl.namespace}"] if kind == "Node" else []
        found: list[Json] = json.loads(self._kubectl("get", kind, *chosen, "-o", "json"))["items"]
        return found

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(self._kubectl("get", kind, name, "-o", "json"))
        return found

    def create(self, made: Json) -> None:
        """A node as the histories have it becomes one of this cluster; others go into the namespace."""
        space, meta = self._kubectl.namespace, {k: v for k, v in made["metadata"].items() if k not in _SYSTEM}
        made = {"apiVersion": "v1", "kind": "Node", **made, "metadata": meta}
        made.pop("status", None)
        if made["kind"] == "Node":
            meta["labels"] = {**meta["labels"], MARK: space}
            meta["annotations"] = {"kwok.x-k8s.io/node": "fake"}
            made["spec"] = {"taints": [{"key": MARK, "value": space, "effect": "NoSchedule"}]}
        else:
            meta["namespace"] = space
        if made["kind"] == "Deployment":
            template = made["spec"]["template"]["spec"]
            template["nodeSelector"] = {MARK: space}
            template["tolerations"] = [{"key": MARK, "operator": "Exists"}]
        self._kubectl("create", "-f", "-", stdin=json.dumps(made))


class RealCluster:
    """What the histories ask of a cluster. `server`: itself, as there is nothing to be reached beside it."""

    def __init__(self, kubeconfig: str, objects: list[Json], binary: str = "kubectl") -> None:
        self._folder = TemporaryDirectory()
        self.kubectl = Kubectl(binary, kubeconfig, Path(self._folder.name), real=True)
        self.kubectl.namespace = self.space = f"outage-{secrets.token_hex(3)}"
        self.store = Store(self.kubectl)
        self._objects = objects

    def __enter__(self) -> RealCluster:
        self.kubectl("create", "namespace", self.space)
        made = [o for o in self._objects if o["kind"] in ("Node", "Deployment", "PodDisruptionBudget")]
        for o in sorted(made, key=lambda o: o["kind"] != "Node"):
            self.store.create(o)
            if o["kind"] == "Node" and o is made[0]:
                self._played(o["metadata"]["name"])
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(AssertionError, subprocess.SubprocessError):
            self.kubectl("delete", "namespace", self.space, "--wait=false")
            self.kubectl("delete", "nodes", "-l", f"{MARK}={self.space}", "--wait=false")
            self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        self._folder.cleanup()

    def _played(self, name: str) -> None:
        def ready() -> bool:
            conditions = self.store.get("Node", name)["status"].get("conditions") or ()
            return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)

        self.kubectl.patience = 30.0
        self.kubectl.until(ready, "somebody plays the kubelet of a node that was made, such as KWOK")

    def settle(self, seconds: float) -> None:
        """Until every Deployment has its pods and all that find a node have it, or seconds are over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            wanted = sum(d["spec"]["replicas"] for d in self.store.list("Deployment"))
            pods = self.store.list("Pod")
            there = sum(not terminating(p) for p in pods)
            if there == wanted and all(_looked_at(p) for p in pods):
                return
            time.sleep(0.2)

    def cordon(self, name: str, *, on: bool = True) -> None:
        self.kubectl("cordon" if on else "uncordon", name)

    def drain(self, name: str, timeout: float = 10.0) -> None:
        """Raises TimeoutError where budgets do not let all go in that time."""
        try:
            self.kubectl("drain", name, "--ignore-daemonsets", "--force", f"--timeout={max(timeout, 5):.0f}s")
        except AssertionError as e:
            raise TimeoutError(name) from e

    def remove_node(self, name: str) -> None:
        """The node and its pods are gone, as after an outage nobody waits for."""
        self.kubectl("delete", "node", name)
        here = [p["metadata"]["name"] for p in self.store.list("Pod") if node_of(p) == name]
        if here:
            self.kubectl("delete", "pod", *here, "--force", "--grace-period=0", "--ignore-not-found")


def _looked_at(pod: Json) -> bool:
    """Whether it is on its way out, has a node, or the scheduler has said that it finds none."""
    conditions: list[Any] = pod["status"].get("conditions") or []
    return bool(terminating(pod) or node_of(pod)) or any(c["type"] == "PodScheduled" for c in conditions)
