"""One history beside the real controllers of others: with ours, with a descheduler, with neither.

The README says what is needed; without it, everything here is skipped.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rebalancer.policy.release import MARK as RELEASED
from tests.e2e.kubectl import LABEL, ZONE, Kubectl, budget, deployment
from tests.e2e.peers.cluster import ADDRESS, FAKE, HOLD, HOST, Api, Object, Player, Processes
from tests.support.processes.daemon_process import free_port, get

PEERS = ("KARPENTER", "CLUSTER_AUTOSCALER", "LWS", "VPA_ADMISSION", "VPA_UPDATER", "KUEUE", "JOBSET")
GIVEN = {name: os.environ[name] for name in (*PEERS, "DESCHEDULER") if os.environ.get(name)}
SEED = int(os.environ.get("PEERS_SEED", "7"))
PARTS = os.environ.get("PEERS_PARTS", "zone,scaling,drift,upgrade").split(",")
ZONES = {"a": "test-zone-a", "b": "test-zone-b", "c": "test-zone-c"}
"""Those of Karpenter's kwok provider."""
GROUPS = {
    "lws": "lws.x-k8s.io/v1alpha1",
    "jobset": "jobset.x-k8s.io/v1alpha1",
    "kueue": "kueue.x-k8s.io/v1beta1",
}
OURS: Object = {
    "policy": {"minPodAge": "0s"},
    "evictions": {"enabled": True, "stabilization": "15s", "coolDown": "10s"},
    "schedule": {"interval": "10s", "react": "5s"},
}
if "LWS" in GIVEN:
    OURS["scope"] = {"gangsAllow": ["group"], "ownerKindsAllow": ["LeaderWorkerSet", "Pod"]}
    OURS["planner"] = {"certainty": "likely"}  # as moves of a group that is opened are
OURS["evictions"] |= yaml.safe_load(os.environ.get("PEERS_EVICTIONS", "{}"))

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not GIVEN, reason="no controller of others: see tests/e2e/peers/README.md"),
]


class World:
    """The cluster, the node provider in it, and who else is at work."""

    def __init__(self, kubectl: Kubectl, home: Path) -> None:
        self.kubectl, self.home = kubectl, home
        self.api = Api(kubectl.kubeconfig)
        folder = os.environ.get("PEERS_MANIFESTS")
        self.processes = Processes(kubectl, home, Path(folder) if folder else None)
        self.player = Player(self.api, kubectl.namespace)
        self.random = random.Random(SEED)
        self.zones = ["a", "b"]
        self.drifted = 0
        self.port = free_port()

    def objects(self, name: str) -> list[Object]:
        """Those of one of the others, with its workload."""
        zones = ", ".join(ZONES[z] for z in self.zones)
        text = Template((Path(__file__).parent / "objects.yaml").read_text())
        filled = text.substitute(zones=zones, drifted=self.drifted, space=self.kubectl.namespace)
        made: list[Object] = yaml.safe_load(filled)[name]
        if name == "lws":
            made[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"] = _spread("group")
        elif name == "jobset":
            made[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = job = _spread("jobs")
            job["spec"]["restartPolicy"] = "Never"
        elif name == "kueue":
            made.append(deployment("queued", 6, "500m", nodeSelector=LABEL))
            made[-1]["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": "peers"}
        return made

    # Nodes: of Karpenter, of cluster-autoscaler, or made here.

    @property
    def provider(self) -> str:
        return next((p for p in ("KARPENTER", "CLUSTER_AUTOSCALER") if p in GIVEN), "")

    def nodes(self) -> None:
        """Begins, or follows a change of `zones` and `drifted`."""
        if self.provider == "KARPENTER":
            self._pool()
        elif self.provider:
            self._groups()
        else:
            for zone in self.zones:
                for i in range(6):
                    self._node(f"{zone}-{i}", zone)

    def _pool(self) -> None:
        first = "karpenter" not in self.processes.running
        if first:
            self.processes.install("karpenter")
        self.kubectl.apply(*self.objects("karpenter"))
        if first:
            ports = {k: str(free_port()) for k in ("METRICS_PORT", "HEALTH_PROBE_PORT")}
            self.processes.start("karpenter", GIVEN["KARPENTER"], DISABLE_LEADER_ELECTION="true", **ports)

    def _groups(self) -> None:
        """The provider reads its groups once, so that cluster-autoscaler is started anew. At the end of a
        process that may end in peace it removes all nodes."""
        self.processes.stop("cluster-autoscaler", how=signal.SIGKILL)
        nodes = [_node(f"{z}-template", z) for z in self.zones]
        for node, zone in zip(nodes, self.zones, strict=True):
            node["metadata"]["labels"] |= {"peers/group": f"group-{zone}"}
        templates: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kwok-provider-templates"},
        }
        templates["data"] = {
            "templates": yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes})
        }
        self.kubectl.apply(*self.objects("cluster-autoscaler"), templates)
        self.processes.start(
            "cluster-autoscaler", GIVEN["CLUSTER_AUTOSCALER"], "--cloud-provider=kwok",
            f"--namespace={self.kubectl.namespace}",
            f"--kubeconfig={self.processes.kubeconfig('cluster-autoscaler')}", "--leader-elect=false",
            "--v=2", "--scan-interval=5s", "--scale-down-delay-after-add=20s",
            "--scale-down-unneeded-time=20s",
            "--balance-similar-node-groups=true", "--balancing-ignore-label=peers/group",
            f"--address=127.0.0.1:{free_port()}",
            KWOK_PROVIDER_MODE="local",
        )  # fmt: skip

    def _node(self, name: str, zone: str) -> None:
        self.api("POST", "/api/v1/nodes", _node(name, zone))

    # Who evicts.

    def ours(self) -> None:
        settings = self.home / "settings.yaml"
        settings.write_text(yaml.safe_dump({**OURS, "health": {"address": f"127.0.0.1:{self.port}"}}))
        space = self.kubectl.namespace
        command = os.environ.get("REBALANCER", f"{sys.executable} -m rebalancer").split()
        self.processes.start(
            "rebalancer", *command, "run", "--config", str(settings), "-n", space,
            "--kubeconfig", self.processes.kubeconfig("rebalancer"), REBALANCER_LEDGER__NAMESPACE=space,
        )  # fmt: skip

    def descheduler(self) -> None:
        policy = self.home / "descheduler.yaml"
        policy.write_text(yaml.safe_dump(self.objects("descheduler")[0]))
        self.processes.start(
            "descheduler", GIVEN["DESCHEDULER"], "--kubeconfig", self.processes.kubeconfig("descheduler"),
            "--policy-config-file", str(policy), "--descheduling-interval=15s", "--secure-port=0",
        )  # fmt: skip

    # Controllers of pods, each with one workload.

    def guests(self) -> None:
        """Starts those that are given, and then makes their workloads."""
        made: list[Object] = []
        for name in GROUPS:
            if name.upper() in GIVEN:
                self._manager(name)
                made += self.objects(name)
        self.processes.hook()
        if "VPA_ADMISSION" in GIVEN:
            self.vpa()
            made += [
                *self.objects("vpa"),
                deployment("sized", 6, "500m", nodeSelector=LABEL),
                budget("sized"),
            ]
        for one in made:
            self.kubectl.apply(one)
        if "VPA_ADMISSION" in GIVEN:
            self.recommend("600m")

    def _manager(self, name: str) -> None:
        settings: Object = {
            "apiVersion": f"config.{GROUPS[name]}",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": self.processes.install(name), "certDir": str(self.home / name)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }
        if name == "kueue":
            here = {"matchLabels": {"kubernetes.io/metadata.name": self.kubectl.namespace}}
            settings["integrations"] = {"frameworks": ["pod", "deployment"]}
            settings["managedJobsNamespaceSelector"] = here
        path = self.home / f"{name}.yaml"
        path.write_text(yaml.safe_dump(settings))
        more = ["--feature-gates=VisibilityOnDemand=false"] if name == "kueue" else []
        self.processes.start(name, GIVEN[name.upper()], "--config", str(path), *more)

    def vpa(self) -> None:
        """VPA without its recommender."""
        self.processes.install("vpa")
        self.processes.certificate("vpa")
        config, port, place = self.processes.kubeconfig, free_port(), self.home / "vpa"
        self.processes.start(
            "vpa-admission", GIVEN["VPA_ADMISSION"], f"--kubeconfig={config('vpa-admission')}",
            "--register-by-url", f"--webhook-address=https://{ADDRESS}", f"--webhook-port={port}",
            f"--port={port}", f"--client-ca-file={place}/tls.crt", f"--tls-cert-file={place}/tls.crt",
            f"--tls-private-key={place}/tls.key", f"--address=127.0.0.1:{free_port()}",
        )  # fmt: skip
        if "VPA_UPDATER" in GIVEN:
            self.processes.start(
                "vpa-updater", GIVEN["VPA_UPDATER"], f"--kubeconfig={config('vpa-updater')}",
                "--updater-interval=10s", f"--address=127.0.0.1:{free_port()}",
            )  # fmt: skip

    def recommend(self, cpu: str) -> None:
        """What a recommender would say: the updater evicts who is below."""
        bounds = {k: {"cpu": cpu, "memory": "16Mi"} for k in ("target", "lowerBound", "uncappedTarget")}
        bounds["upperBound"] = {"cpu": "2", "memory": "1Gi"}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {
            "recommendation": {"containerRecommendations": [{"containerName": "pause", **bounds}]},
            "conditions": [{"type": "RecommendationProvided", "status": "True", "lastTransitionTime": at}],
        }
        path = f"/apis/autoscaling.k8s.io/v1/namespaces/{self.kubectl.namespace}/verticalpodautoscalers/sized"
        self.api.merge(f"{path}/status", {"status": status})

    def metrics(self) -> Counter[tuple[str, str]]:
        """What ours counted, by name and result."""
        found: Counter[tuple[str, str]] = Counter()
        for family in text_string_to_metric_families(get(self.port, "/metrics")[1]):
            for sample in family.samples:
                found[sample.name, sample.labels.get("result", "")] += int(sample.value)
        return found

    # The history.

    def workloads(self) -> None:
        for i in range(6):
            app = f"web-{i}"
            size = self.random.randint(4, 9)
            self.kubectl.apply(deployment(app, size, "500m", nodeSelector=LABEL), budget(app))
        self.guests()

    def quiet(self, limit: float, still: float = 40.0) -> float | None:
        """Waits until nothing is Pending or goes for so long; the seconds until then, None if it goes on."""
        began = time.monotonic()
        while time.monotonic() - began < limit + still:
            time.sleep(0.5)
            if time.monotonic() - max(began, self.player.record.changed) > still:
                return max(0.0, self.player.record.changed - began)
        return None

    def zone(self, cpu: str = "3") -> None:
        """Zone c can be had, and there are two nodes that are full but for `cpu` of 4."""
        self.zones = ["a", "b", "c"]
        self.nodes()
        local = deployment("local", 2, cpu, nodeSelector={**LABEL, ZONE: ZONES["c"]})
        del local["spec"]["template"]["spec"]["topologySpreadConstraints"]
        self.kubectl.apply(local)

    def scaling(self) -> None:
        """Deployments are scaled at random for a minute."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(self.random.expovariate(0.3))
            app, size = f"web-{self.random.randrange(6)}", self.random.randint(4, 9)
            self.kubectl("scale", f"deployment/{app}", f"--replicas={size}")

    def drift(self) -> None:
        """Every node is of yesterday."""
        if self.provider != "KARPENTER":
            pytest.skip("only Karpenter knows drift")
        self.drifted += 1
        self.nodes()

    def upgrade(self) -> None:
        """Three nodes are drained and removed, one after the other."""
        of = [k for k, n in self.player.nodes.items() if LABEL.items() <= n["metadata"]["labels"].items()]
        for name in self.random.sample(sorted(of), min(3, len(of))):
            who = self.processes.kubeconfig("upgrade")
            drain = [
                "drain",
                name,
                "--ignore-daemonsets",
                "--force",
                "--delete-emptydir-data",
                "--timeout=60s",
            ]
            self.kubectl(*drain, f"--kubeconfig={who}")
            zone = (
                self.player.nodes[name]["metadata"]["labels"][ZONE][-1] if name in self.player.nodes else ""
            )
            self.kubectl("delete", "node", name, "--ignore-not-found", "--wait=false")
            if not self.provider and zone:
                self._node(f"{name}-new", zone)


def _spread(app: str, cpu: str = "500m") -> Object:
    """The template of pods that have to be spread over zones."""
    made: Object = deployment(app, 1, cpu, nodeSelector=LABEL)["spec"]["template"]
    return made


def _node(name: str, zone: str) -> Object:
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    labels = {HOST: name, ZONE: ZONES[zone], **LABEL}
    meta = {"name": name, "labels": labels, "annotations": {FAKE: "fake"}}
    status = {"capacity": size, "allocatable": size}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


@pytest.fixture
def world(real: Kubectl, tmp_path: Path) -> Iterator[World]:
    made = World(real, tmp_path)
    try:
        yield made
    finally:
        made.processes.stop("rebalancer", "descheduler")
        real("delete", "deployments", "--all", "--wait=false")
        if "karpenter" in made.processes.running:
            real("delete", "nodepools,nodeclaims", "--all", "--timeout=120s")
        made.processes.unhook()
        real("delete", "nodes", "-l", "=".join(*LABEL.items()), "--wait=false")
        made.processes.stop(*made.processes.running)
        made.player.end()
        real("delete", "clusterrolebindings", "-l", "=".join(*LABEL.items()))


@pytest.fixture(scope="module")
def table() -> Iterator[list[list[str]]]:
    rows = [
        [
            "beside",
            "part",
            "with",
            "evictions",
            "Pending pod-s",
            "excess-s",
            "nodes",
            "quiet after",
            "excess left",
        ]
    ]
    yield rows
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    print("\n" + text)
    if place := os.environ.get("PEERS_TABLE"):
        Path(place).write_text(text + "\n")


@pytest.mark.parametrize("who", os.environ.get("PEERS_WITH", "nobody,descheduler,ours").split(","))
def test_history(who: str, world: World, table: list[list[str]]) -> None:
    if who in ("descheduler", "both") and "DESCHEDULER" not in GIVEN:
        pytest.skip("no $DESCHEDULER")
    world.nodes()
    world.workloads()
    assert world.quiet(120, 10) is not None, "the workloads do not come up"
    if who in ("ours", "both"):
        world.ours()
    if who in ("descheduler", "both"):
        world.descheduler()
    time.sleep(5)
    parts: dict[str, Callable[[], None]] = {
        "zone": world.zone, "scaling": world.scaling, "drift": world.drift, "upgrade": world.upgrade
    }  # fmt: skip
    evicted = 0
    for name in PARTS:
        if name == "drift" and world.provider != "KARPENTER":
            continue
        world.player.fresh()
        began = time.monotonic()
        parts[name]()
        acted = time.monotonic() - began
        quiet = world.quiet(float(os.environ.get("PEERS_PATIENCE", "120")))
        record = world.player.fresh()
        by = ", ".join(f"{k} {n}" for k, n in sorted(record.evicted.items())) or "0"
        if record.refused:
            by += "; refused: " + ", ".join(f"{k} {n}" for k, n in sorted(record.refused.items()))
        evicted += record.evicted["rebalancer"]
        if world.player.audit is None and "rebalancer" in world.processes.running:
            by += f", {world.metrics()['rebalancer_evictions_total', 'evicted']} so far by rebalancer"
        left = sum(world.player.over.values())
        row = [
            ", ".join(sorted(GIVEN.keys() - {"DESCHEDULER"})).lower() or "-",
            f"{name} ({acted:.0f} s)",
            who,
            by,
        ]
        row += [f"{record.pending:.0f}", f"{record.excess:.0f}", str(len(record.bought))]
        row += [f"{quiet:.0f} s" if quiet is not None else "not", str(left)]
        table.append(row)
        print(" | ".join(row), flush=True)
    if "rebalancer" in world.processes.running:
        own = world.metrics()
        seen = {k: n for k, n in own.items() if k[0] == "rebalancer_engine_comparisons_total" and n}
        print(
            own["rebalancer_evictions_total", "evicted"],
            "evictions by its own count, compared:",
            seen,
            flush=True,
        )
        same = own["rebalancer_evictions_total", "evicted"] == evicted
        assert same or world.player.audit is None, "it knows which evictions were its own"
        assert not own["rebalancer_engine_comparisons_total", "disagrees"], (
            "others' evictions are not taken for more"
        )


@pytest.mark.parametrize("peer", ["DESCHEDULER", "VPA_UPDATER", "KARPENTER", "CLUSTER_AUTOSCALER", ""])
def test_what_becomes_of_a_released_pod(peer: str, world: World, table: list[list[str]]) -> None:
    """A pod that ours replaces first runs for 40 s without its ReplicaSet: what does the other do with it?"""
    if (peer and peer not in GIVEN) or (peer in PEERS[:2] and world.provider != peer):
        pytest.skip(f"no ${peer}, or another provider of nodes")
    world.nodes()
    app = deployment("sized", 4, "250m", nodeSelector=LABEL)
    app["metadata"]["annotations"] = {"rebalancer.io/method": "replaceFirst"}
    app["spec"]["template"]["metadata"]["annotations"] = {HOLD: "40"}
    world.kubectl.apply(app, budget("sized"))
    if peer == "VPA_UPDATER":
        world.vpa()
        world.kubectl.apply(*world.objects("vpa"))
    world.kubectl.until(lambda: world.kubectl.ready("sized") == 4, "four pods are Ready")
    world.ours()
    world.zone(cpu="1")
    marked: list[Object] = []

    def released() -> bool:
        marked[:] = [p for p in world.player.pods if RELEASED in p["metadata"].get("annotations", {})]
        return bool(marked)

    world.kubectl.until(released, "a pod is released")
    name, began = marked[0]["metadata"]["name"], time.monotonic()
    world.player.fresh()
    if peer == "DESCHEDULER":
        world.descheduler()
    elif peer == "VPA_UPDATER":
        world.recommend("400m")
    elif peer == "KARPENTER":
        world.drift()
    said = "still there after 120 s"
    while time.monotonic() - began < 120:
        time.sleep(0.5)
        if who := world.player.record.pods.get(name):
            ready = world.kubectl.ready("sized")
            said = f"evicted by {who} after {time.monotonic() - began:.0f} s, {ready} Ready"
            break
        here = [p for p in world.player.pods if p["metadata"]["name"] == name]
        if here and RELEASED not in here[0]["metadata"].get("annotations", {}):
            said = f"given back after {time.monotonic() - began:.0f} s"
            break
    world.quiet(60, 20)
    by = ", ".join(f"{k} {n}" for k, n in sorted(world.player.record.evicted.items())) or "0"
    table.append(
        [
            peer.lower(),
            f"released pod {said}",
            "ours",
            by,
            "",
            "",
            "",
            "",
            str(sum(world.player.over.values())),
        ]
    )
    print(" | ".join(table[-1]), flush=True)
    world.kubectl.until(lambda: world.kubectl.ready("sized") == 4, "four pods are Ready again")
