"""One history beside the real controllers of others: with ours, with a descheduler, with neither.

The README says what is needed; without it, everything here is skipped.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rebalancer.model.pod import DELETION_COST as COST
from rebalancer.policy.release import MARK as RELEASED
from tests.e2e.kubectl import LABEL, ZONE, Kubectl, budget, deployment
from tests.e2e.peers.cluster import (
    ADDRESS,
    FAKE,
    HOLD,
    HOST,
    IN_BACKGROUND,
    Api,
    Moves,
    Object,
    Player,
    Processes,
    Record,
)
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
if {"LWS", "VPA_ADMISSION"} & GIVEN.keys():
    OURS["planner"] = {"certainty": "likely"}  # as moves of a group that is opened are, and those beside VPA
OURS["evictions"] |= yaml.safe_load(os.environ.get("PEERS_EVICTIONS", "{}"))

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not GIVEN, reason="no controller of others: see tests/e2e/peers/README.md"),
]


class World:
    """The cluster, the node provider in it, and who else is at work."""

    def __init__(self, kubectl: Kubectl, home: Path, table: list[str]) -> None:
        self.kubectl, self.home, self.table = kubectl, home, table
        self.api = Api(kubectl.kubeconfig)
        folder = os.environ.get("PEERS_MANIFESTS")
        self.processes = Processes(kubectl, home, Path(folder) if folder else None)
        self.player = Player(self.api, kubectl.namespace)
        self.random = random.Random(SEED)
        self.zones = ["a", "b"]
        self.drifted, self.disrupted = 0, 2
        self.port = free_port()

    def objects(self, name: str) -> list[Object]:
        """Those of one of the others, with its workload."""
        zones = ", ".join(ZONES[z] for z in self.zones)
        text = Template((Path(__file__).parent / "objects.yaml").read_text())
        space = self.kubectl.namespace
        filled = text.substitute(zones=zones, drifted=self.drifted, disrupted=self.disrupted, space=space)
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
        if "cluster-autoscaler" not in self.processes.running:
            self.processes.install("cluster-autoscaler")
        self.processes.stop("cluster-autoscaler", how=signal.SIGKILL)
        nodes = [_node(f"{z}-template", z) for z in self.zones]
        for node, zone in zip(nodes, self.zones, strict=True):
            node["metadata"]["labels"] |= {"peers/group": f"group-{zone}"}
        settings, templates = self.objects("cluster-autoscaler")
        listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes})
        self.kubectl.apply(settings, {**templates, "data": {"templates": listed}})
        self.processes.start(
            "cluster-autoscaler", GIVEN["CLUSTER_AUTOSCALER"], "--cloud-provider=kwok",
            f"--namespace={self.kubectl.namespace}",
            f"--kubeconfig={self.processes.kubeconfig('cluster-autoscaler')}", "--leader-elect=false",
            "--v=2", "--scan-interval=5s", "--scale-down-delay-after-add=20s",
            "--scale-down-unneeded-time=20s",
            "--balance-similar-node-groups=true", "--balancing-ignore-label=peers/group",
            f"--address=127.0.0.1:{free_port()}",
            "--capacity-buffer-controller-enabled", "--capacity-buffer-pod-injection-enabled",
            KWOK_PROVIDER_MODE="local",
        )  # fmt: skip

    def _node(self, name: str, zone: str) -> None:
        self.api("POST", "/api/v1/nodes", _node(name, zone))

    # Who evicts.

    def command(self, *words: str, **more: Object) -> list[str]:
        """Ours, with its account; `more`: settings beside those of every part."""
        settings = self.home / "settings.yaml"
        settings.write_text(yaml.safe_dump(OURS | {"health": {"address": f"127.0.0.1:{self.port}"}} | more))
        tool = os.environ.get("REBALANCER", f"{sys.executable} -m rebalancer").split()
        where = ["--config", str(settings), "-n", self.kubectl.namespace]
        return [*tool, *words, *where, "--kubeconfig", self.processes.kubeconfig("rebalancer")]

    def ours(self, **more: Object) -> None:
        ledger = {"REBALANCER_LEDGER__NAMESPACE": self.kubectl.namespace}
        self.processes.start("rebalancer", *self.command("run", **more), **ledger)

    def once(self, *words: str) -> str:
        """Ours run to its end; what it prints."""
        done = subprocess.run(
            self.command(*words), env=self.kubectl.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 3), done.stderr
        return done.stdout

    def descheduler(self, *flags: str) -> None:
        policy = self.home / "descheduler.yaml"
        policy.write_text(yaml.safe_dump(self.objects("descheduler")[0]))
        self.processes.start(
            "descheduler", GIVEN["DESCHEDULER"], "--kubeconfig", self.processes.kubeconfig("descheduler"),
            "--policy-config-file", str(policy), "--descheduling-interval=15s", "--secure-port=0",
            *flags,
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
            "--feature-gates=CPUStartupBoost=true",
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
        assert self.quiet(120, 10) is not None, "the workloads do not come up"

    def quiet(self, limit: float, still: float = 40.0) -> float | None:
        """Waits until nothing is Pending or goes for so long; the seconds until then, None if it goes on."""
        began = time.monotonic()
        while time.monotonic() - began < limit + still:
            time.sleep(0.5)
            if time.monotonic() - max(began, self.player.record.changed) > still:
                return max(0.0, self.player.record.changed - began)
        return None

    def row(
        self, part: str, who: str, act: Callable[[], object] = time.monotonic, still: float = 40
    ) -> Record:
        """Plays a part until it is quiet, and adds its line, with what `act` says of it, to the table."""
        self.player.fresh()
        began = time.monotonic()
        said = act()
        part += f": {said}" if isinstance(said, str) else f" ({time.monotonic() - began:.0f} s)"
        quiet = self.quiet(float(os.environ.get("PEERS_PATIENCE", "120")), still)
        record = self.player.fresh()
        by = ", ".join(f"{k} {n}" for k, n in sorted(record.evicted.items())) or "0"
        if record.refused:
            by += "; refused: " + ", ".join(f"{k} {n}" for k, n in sorted(record.refused.items()))
        if self.player.audit is None and "rebalancer" in self.processes.running:
            by += f", {self.metrics()['rebalancer_evictions_total', 'evicted']} so far by rebalancer"
        row = [", ".join(sorted(GIVEN.keys() - {"DESCHEDULER"})).lower() or "-", part, who, by]
        row += [f"{record.pending:.0f}", f"{record.excess:.0f}", str(len(record.bought))]
        row += ["not" if quiet is None else f"{quiet:.0f} s", str(sum(self.player.over.values()))]
        self.table.append(" | ".join(row))
        print(self.table[-1], flush=True)
        return record

    def zone(self, cpu: str = "3", nodes: int = 2) -> None:
        """Zone c can be had, and there are `nodes` of which `cpu` of 4 is taken."""
        self.zones = ["a", "b", "c"]
        self.nodes()
        local = deployment("local", nodes, cpu, nodeSelector={**LABEL, ZONE: ZONES["c"]})
        del local["spec"]["template"]["spec"]["topologySpreadConstraints"]
        self.kubectl.apply(local)

    def scaling(self) -> None:
        """Deployments are scaled at random for a minute."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(self.random.expovariate(0.3))
            app, size = f"web-{self.random.randrange(6)}", self.random.randint(4, 9)
            self.scale(app, size)

    def scale(self, app: str, size: int) -> None:
        self.kubectl("scale", f"deployment/{app}", f"--replicas={size}")

    def drift(self) -> None:
        """Every node is of yesterday."""
        self.drifted += 1
        self.nodes()

    def upgrade(self) -> None:
        """Three nodes are drained and removed, one after the other."""
        of = [k for k, n in self.player.nodes.items() if LABEL.items() <= n["metadata"]["labels"].items()]
        for name in self.random.sample(sorted(of), min(3, len(of))):
            who = self.processes.kubeconfig("upgrade")
            drain = ["--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s"]
            self.kubectl("drain", name, *drain, f"--kubeconfig={who}")
            zone = self.player.nodes.get(name, {"metadata": {"labels": {ZONE: ""}}})["metadata"]["labels"][
                ZONE
            ][-1:]
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


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows = ["beside | part | with | evictions | Pending pod-s | excess-s | nodes | quiet after | excess left"]
    yield rows
    text = "\n".join(f"| {row} |" for row in rows)
    print("\n" + text)
    if place := os.environ.get("PEERS_TABLE"):
        Path(place).write_text(text + "\n")


@pytest.fixture
def world(real: Kubectl, tmp_path: Path, table: list[str]) -> Iterator[World]:
    made = World(real, tmp_path, table)
    try:
        yield made
    finally:
        made.processes.stop("rebalancer", "descheduler")
        real("delete", "deployments,replicasets", "--all", "--wait=false")
        if "karpenter" in made.processes.running:
            real("delete", "nodepools,nodeclaims", "--all", "--timeout=120s")
        made.processes.unhook()
        real("delete", "nodes", "-l", "=".join(*LABEL.items()), "--wait=false")
        made.processes.stop(*made.processes.running)
        made.player.end()
        real("delete", "clusterrolebindings", "-l", "=".join(*LABEL.items()))


@pytest.mark.parametrize("who", os.environ.get("PEERS_WITH", "nobody,descheduler,ours").split(","))
def test_history(who: str, world: World) -> None:
    if who in ("descheduler", "both") and "DESCHEDULER" not in GIVEN:
        pytest.skip("no $DESCHEDULER")
    world.nodes()
    world.workloads()
    if who in ("ours", "both"):
        world.ours()
    if who in ("descheduler", "both"):
        world.descheduler()
    time.sleep(5)
    parts: dict[str, Callable[[], None]] = {
        "zone": world.zone, "scaling": world.scaling, "drift": world.drift, "upgrade": world.upgrade
    }  # fmt: skip
    evicted = sum(
        world.row(name, who, parts[name]).evicted["rebalancer"]
        for name in PARTS
        if name != "drift" or world.provider == "KARPENTER"
    )
    if "rebalancer" in world.processes.running:
        own = world.metrics()
        seen = {k: n for k, n in own.items() if k[0] == "rebalancer_engine_comparisons_total" and n}
        count = own["rebalancer_evictions_total", "evicted"]
        print(count, "evictions by its own count, compared:", seen, flush=True)
        assert count == evicted or world.player.audit is None, "it knows which evictions were its own"
        disagrees = own["rebalancer_engine_comparisons_total", "disagrees"]
        assert not disagrees, "others' evictions are not taken for more"


def missing_room(world: World, form: str) -> None:
    """What `room` prints is applied as it is, deleted when the nodes are Ready, and a cycle mends the rest:
    as many nodes are bought as it said. Karpenter consolidates nothing meanwhile."""
    world.disrupted = 0
    world.kubectl(
        "label", "namespace", world.kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    world.workloads()
    world.row("zone", "nobody", world.zone)
    needed = json.loads(world.once("room", "-o", "json"))
    printed = world.once("room", "-o", form)

    def act() -> str:
        world.kubectl("apply", "-f", "-", stdin=printed)
        bought = world.player.record.bought
        world.kubectl.until(lambda: len(bought) >= needed["nodes"], f"{needed['nodes']} nodes are bought")
        world.quiet(60, 10)
        world.kubectl("delete", "-f", "-", stdin=printed)
        world.once("once", "--execute")
        came[:] = [len(bought), sum(world.player.over.values())]
        return f"{needed['nodes']} nodes needed and {came[0]} bought, an excess of {came[1]} left"

    came: list[int] = []
    world.row(form, "ours", act)
    assert came == [needed["nodes"], needed["left"]]


def startup_boost(world: World) -> None:
    """VPA's mode is Off, and new pods get four times the CPU: none goes where only the pod as it is fits."""
    world.kubectl.apply(deployment("sized", 6, "250m", nodeSelector=LABEL), budget("sized"))
    world.kubectl.until(lambda: world.kubectl.ready("sized") == 6, "six pods are Ready")
    world.zone("3500m", 6)
    world.vpa()
    (vpa,) = world.objects("vpa")
    vpa["spec"] |= {
        "updatePolicy": {"updateMode": "Off"},
        "startupBoost": {"cpu": {"type": "Factor", "factor": 4}},
    }
    world.kubectl.apply(vpa)
    world.recommend("250m")
    world.ours()
    tight = world.row("startupBoost, and room for pods without it", "ours")
    freed = world.row("and room", "ours", lambda: world.scale("local", 4))
    asked = Counter(
        p["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for p in world.player.pods if p["metadata"]["labels"]["app"] == "sized"
    )  # fmt: skip
    assert (tight.evicted["rebalancer"], freed.evicted["rebalancer"], asked) == (0, 2, {"250m": 4, "1": 2})


def consolidation(world: World) -> None:
    """In which order Karpenter takes nodes away, told by the pods that each had: with our deletion costs as
    without them."""
    assert _removed(world, False) == _removed(world, True)


def _removed(world: World, steered: bool) -> list[int]:
    world.disrupted = 0
    world.nodes()
    world.kubectl.apply(deployment("seat", 6, "2100m", nodeSelector=LABEL))
    world.kubectl.until(lambda: world.kubectl.ready("seat") == 6, "six nodes are bought")
    world.kubectl("delete", "deployment", "seat")
    web = deployment("web", 42, "100m", nodeSelector=LABEL)
    web |= {"kind": "ReplicaSet"}
    pods: dict[str, int] = {}
    for zone, sizes in {"a": (14, 5, 2), "b": (12, 6, 3)}.items():
        there = (k for k, n in world.player.nodes.items() if n["metadata"]["labels"].get(ZONE) == ZONES[zone])
        pods |= dict(zip(sorted(there), sizes, strict=True))
    template = web["spec"]["template"]
    for name, size in pods.items():
        for i in range(size):
            pod = {"metadata": {"name": f"{name}-{i}", **template["metadata"]}}
            pod |= {"spec": {**template["spec"], "nodeName": name}}
            world.api("POST", f"/api/v1/namespaces/{world.kubectl.namespace}/pods", pod)
    world.kubectl.apply(web)
    if steered:
        world.ours(evictions={"enabled": False}, prevention={"scaleIn": "all"})
    found: list[int] = []

    def act() -> str:
        world.quiet(60, 10)
        costs = [p["metadata"].get("annotations", {}).get(COST) for p in world.player.pods]
        assert any(costs) == steered
        world.disrupted = 1
        world.nodes()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.5)
            going = {k for k in pods if k not in world.player.nodes or _leaves(world.player.nodes[k])}
            if new := [n for k, n in pods.items() if k in going and n not in found]:
                found.extend(new)
                end = time.monotonic() + 60
        return f"{found}, {len(set(costs) - {None})} costs"

    world.row("consolidation", "prevention" if steered else "nobody", act, still=1)
    world.processes.stop("rebalancer")
    world.kubectl("delete", "replicaset", "web")
    return found


def _leaves(node: Object) -> bool:
    taints = node["spec"].get("taints") or ()
    return "deletionTimestamp" in node["metadata"] or any("disrupted" in t["key"] for t in taints)


def background(world: World) -> None:
    """A descheduler evicts machines in the background: while one is on its way, ours asks for none."""
    machine = deployment("machine", 6, "500m", nodeSelector=LABEL)
    machine["spec"]["template"]["metadata"]["annotations"] = {IN_BACKGROUND: "true"}
    world.kubectl.apply(machine)
    world.kubectl.until(lambda: world.kubectl.ready("machine") == 6, "six pods are Ready")
    moves = Moves(world.api, world.processes, seconds=40)
    world.processes.hook()
    world.zone("1")
    world.ours()
    world.descheduler("--feature-gates=EvictionsInBackground=true")
    world.row("evictions in the background", "both", still=60)
    by = Counter(who for who, _ in moves.asked)
    print("asked for", dict(by), "while others were on their way:", moves.asked, flush=True)
    assert by["descheduler"]
    assert not any(others for who, others in moves.asked if who == "rebalancer")


FINDINGS: dict[str, tuple[str, Callable[[World], None]]] = {
    "capacitybuffer": ("CLUSTER_AUTOSCALER", lambda world: missing_room(world, "capacitybuffer")),
    "placeholder": ("KARPENTER", lambda world: missing_room(world, "placeholder")),
    "startupBoost": ("VPA_ADMISSION", startup_boost),
    "consolidation": ("KARPENTER", consolidation),
    "background": ("DESCHEDULER", background),
}


def _needs(world: World, peer: str) -> None:
    if (peer and peer not in GIVEN) or (peer in PEERS[:2] and world.provider != peer):
        pytest.skip(f"no ${peer}, or another provider of nodes")
    world.nodes()


@pytest.mark.parametrize("finding", FINDINGS)
def test_finding(finding: str, world: World) -> None:
    """What once went wrong beside one of the others."""
    peer, play = FINDINGS[finding]
    _needs(world, peer)
    play(world)


@pytest.mark.parametrize("budgeted", [True, False], ids=["budget", "no budget"])
@pytest.mark.parametrize("peer", ["DESCHEDULER", "VPA_UPDATER", "KARPENTER", "CLUSTER_AUTOSCALER", ""])
def test_what_becomes_of_a_released_pod(peer: str, budgeted: bool, world: World) -> None:
    """A pod that ours replaces first runs for 40 s without its ReplicaSet: what does the other do with it?"""
    _needs(world, peer)
    app = deployment("sized", 4, "250m", nodeSelector=LABEL)
    app["metadata"]["annotations"] = {"rebalancer.io/method": "replaceFirst"}
    app["spec"]["template"]["metadata"]["annotations"] = {HOLD: "40"}
    world.kubectl.apply(app, *([budget("sized")] if budgeted else ()))
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

    def act() -> str:
        if peer == "DESCHEDULER":
            world.descheduler()
        elif peer == "VPA_UPDATER":
            world.recommend("400m")
        elif peer == "KARPENTER":
            world.drift()
        while time.monotonic() - began < 120:
            time.sleep(0.5)
            after = f"after {time.monotonic() - began:.0f} s"
            if who := world.player.record.pods.get(name):
                return f"evicted by {who} {after}, {world.kubectl.ready('sized')} Ready"
            here = [p for p in world.player.pods if p["metadata"]["name"] == name]
            if not here:
                return f"gone {after}, {world.kubectl.ready('sized')} Ready"
            if RELEASED not in here[0]["metadata"].get("annotations", {}):
                return f"given back {after}"
        return "still there after 120 s"

    world.row("released pod" + ("" if budgeted else " without a budget"), "ours", act, still=20)
    world.kubectl.until(lambda: world.kubectl.ready("sized") == 4, "four pods are Ready again")
