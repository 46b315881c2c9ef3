"""kubectl and rebalancer as a person runs them, on whatever cluster a kubeconfig names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes.forked import run

Object = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
LABEL = {"e2e": "rebalancer"}
QUICK: dict[str, Any] = {
    "policy": {"minPodAge": "0s"},
    "evictions": {"enabled": True, "stabilization": "0s", "coolDown": "0s", "canary": 0},
    "schedule": {"interval": "10s"},
}
"""Settings without the patience that operators want, so that the tests need not have it."""
_COST = "controller.kubernetes.io/pod-deletion-cost"


class Kubectl:
    """Calls fail with what the command said. `real`: a cluster that is not the embedded one."""

    def __init__(self, binary: str, kubeconfig: str, home: Path, *, real: bool = False) -> None:
        self._binary = binary
        self.kubeconfig = kubeconfig
        self.home = home
        self.real = real
        self.namespace = "default"
        # On a real cluster images have to be pulled; elsewhere the machine may have other things to do.
        self.patience = 180.0

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the settings of whoever runs the tests; ledger and lease go with the namespace."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("REBALANCER_")}
        return kept | {"KUBECONFIG": self.kubeconfig, "REBALANCER_LEDGER__NAMESPACE": self.namespace}

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Standard output; AssertionError with standard error otherwise."""
        space = [] if {"-n", "-k"} & set(arguments) else ["-n", self.namespace]
        command = [self._binary, *space, "--cache-dir", str(self.home / "cache"), *arguments]
        done = subprocess.run(
            command,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: Object) -> None:
        """Objects with the label that all tests leave on theirs."""
        for obj in objects:
            obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), **LABEL}
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def pods(self, app: str) -> list[Object]:
        """The pods of a workload that are not about to go."""
        found = json.loads(self("get", "pods", "-l", f"app={app}", "-o", "json"))["items"]
        return [p for p in found if "deletionTimestamp" not in p["metadata"]]

    def zones(self) -> dict[str, str]:
        """Node → zone."""
        nodes = json.loads(self("get", "nodes", "-o", "json"))["items"]
        return {n["metadata"]["name"]: n["metadata"]["labels"].get(ZONE, "") for n in nodes}

    def spread(self, app: str) -> list[int]:
        """Running pods per zone, most first, zones without any included."""
        zones = self.zones()
        counts = Counter({zone: 0 for zone in zones.values() if zone})
        counts.update(zones[p["spec"]["nodeName"]] for p in self.pods(app) if p["spec"].get("nodeName"))
        return sorted(counts.values(), reverse=True)[:3]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for something to become true."""
        end = time.monotonic() + self.patience
        while not holds():
            assert time.monotonic() < end, f"not in {self.patience:g} s: {what}"
            time.sleep(0.2)

    def skewed(self, app: str) -> None:
        """A Deployment with three pods in one zone and none elsewhere, as a scale-down leaves it."""
        self.apply(deployment(app, 9), budget(app))
        self("rollout", "status", f"deployment/{app}", f"--timeout={self.patience:g}s")
        assert self.spread(app) == [3, 3, 3], "the scheduler spreads what is new"
        zones = self.zones()
        kept = min(zones[p["spec"]["nodeName"]] for p in self.pods(app))
        for pod in self.pods(app):
            cost = "100" if zones[pod["spec"]["nodeName"]] == kept else "-100"
            self("annotate", "pod", pod["metadata"]["name"], f"{_COST}={cost}")
        self("patch", f"deployment/{app}", "-p", '{"spec": {"replicas": 3}}')
        self.until(lambda: len(self.pods(app)) == 3, "three pods are left")
        self.until(lambda: self.ready(app) == 3, "they are Ready")
        assert self.spread(app) == [3, 0, 0]

    def ready(self, app: str) -> int:
        """Ready replicas, as the Deployment counts them."""
        status = json.loads(self("get", "deployment", app, "-o", "json")).get("status", {})
        return int(status.get("readyReplicas", 0))

    def command(self, *arguments: str) -> list[str]:
        """The tool on this cluster, evicting in this namespace only."""
        tool = [sys.executable, "-m", "rebalancer", *arguments]
        return [*tool, "--kubeconfig", self.kubeconfig, "-n", self.namespace]

    def rebalancer(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The tool run to its end."""
        return run(self.command(*arguments), env=self.environment)


def deployment(app: str, replicas: int, cpu: str = "10m", **spec: Any) -> Object:
    """A Deployment that has to be spread over zones, also where `restricted` is enforced; `spec`: more of its
    pods' spec."""
    labels = {"app": app, **LABEL}
    constraint = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "topologySpreadConstraints": [constraint],
                    "containers": [container],
                    **spec,
                },
            },
        },
    }


def budget(app: str) -> Object:
    """One pod of the app at a time."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
