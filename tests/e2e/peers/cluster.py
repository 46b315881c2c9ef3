"""A cluster with the real controllers of others: their processes, kubelets that are played, and a record.

Nothing here is installed into the cluster as pods: each controller is a binary of the machine that runs the
script, with a service account of its own, so that the audit log says who evicted what.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError, Target
from rebalancer.kube.evictor import EVACUATION
from rebalancer.policy.annotations import BEING_EVICTED
from rebalancer.spread.constraint import beyond
from tests.e2e.kubectl import LABEL, ZONE, Kubectl
from tests.support.processes.daemon_process import free_port

Object = dict[str, Any]
HOST = "kubernetes.io/hostname"
FAKE = "kwok.x-k8s.io/node"
"""The annotation of nodes without a machine, which both kwok providers set."""
HOLD = "peers/ready-after"
"""Annotation of a pod: seconds until it is Ready."""
ADDRESS = os.environ.get("PEERS_ADDRESS", "127.0.0.1")
"""Where the API server finds the webhooks of the controllers that run on this machine."""
IN_BACKGROUND = "descheduler.alpha.kubernetes.io/request-evict-only"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Api:
    """Requests as the owner of the kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        self._connection = Connection(ClusterOptions(kubeconfig=kubeconfig))

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Object | None:
        """The object of the answer; None where the server says no."""
        target = Target(method.lower(), say=f"{method} {path}")
        try:
            answer = self._connection.request(method, path, target, body=body, content_type=content_type)
        except KubeError as e:
            if getattr(e, "code", 0) in (404, 409, 429):
                return None
            raise
        made: Object = json.loads(answer.body)
        return made

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        return list((self("GET", path) or {}).get("items") or ())

    def merge(self, path: str, body: Object) -> None:
        """A merge patch."""
        self("PATCH", path, body, _MERGE)


class Record:
    """What happened since `fresh`, by the samples of `Player`: pod-seconds Pending and over a constraint,
    nodes that came, how many pods were evicted by whom, which, and how many requests were refused (only
    the audit log has those); when something last changed."""

    def __init__(self) -> None:
        self.pending = self.excess = 0.0
        self.bought: set[str] = set()
        self.evicted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.pods: dict[str, str] = {}
        self.changed = time.monotonic()


class Player:
    """Kubelets of the nodes without a machine, and a look at the cluster every half second.

    Bound pods are Ready `start` seconds later, new nodes `boot` seconds later. Pods of a node that is gone
    are removed at once, as a cloud's node controller and the garbage collector would in a minute.
    """

    def __init__(self, api: Api, namespace: str, start: float = 2.0, boot: float = 3.0) -> None:
        self.api, self.namespace, self.start, self.boot = api, namespace, start, boot
        self.record = Record()
        self.pods: list[Object] = []
        self.nodes: dict[str, Object] = {}
        self.over: dict[str, int] = {}
        self._seen: dict[str, float] = {}
        self._done: set[str] = set()
        self.audit = Path(os.environ["PEERS_AUDIT_LOG"]) if os.environ.get("PEERS_AUDIT_LOG") else None
        self._read = self.audit.stat().st_size if self.audit else 0
        self._stop = threading.Event()
        self._workers = ThreadPoolExecutor(8)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._workers.shutdown()

    def fresh(self) -> Record:
        """The record so far; another one begins."""
        old, self.record = self.record, Record()
        return old

    def _run(self) -> None:
        last = beat = time.monotonic()
        while not self._stop.wait(0.5):
            now = time.monotonic()
            try:
                self.nodes = {n["metadata"]["name"]: n for n in self.api.items("/api/v1/nodes")}
                everywhere = self.api.items("/api/v1/pods")
            except KubeError:
                continue
            self.pods = [p for p in everywhere if p["metadata"]["namespace"] == self.namespace]
            fake = {
                k for k, n in self.nodes.items() if n["metadata"].get("annotations", {}).get(FAKE) == "fake"
            }
            for name in fake:
                self._node(self.nodes[name], now)
            for pod in everywhere:
                self._pod(pod, fake, now)
            if now - beat > 10:
                beat = now
                for name in fake:
                    self._workers.submit(self._lease, name)
            self._sample(now - last)
            last = now

    def _later(self, key: str, now: float, after: float) -> bool:
        """Whether it is time to do this, which is done once."""
        if key in self._done or now - self._seen.setdefault(key, now) < after:
            return False
        self._done.add(key)
        return True

    def _node(self, node: Object, now: float) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        if not self._later(uid, now, self.boot):
            return
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}
        status: Object = {"conditions": [{**ready, "lastHeartbeatTime": at, "lastTransitionTime": at}]}
        self._workers.submit(self._lease, name)
        if (
            node["metadata"]["labels"].get(HOST) != name
            and "karpenter.sh/nodepool" not in node["metadata"]["labels"]
        ):
            self._workers.submit(
                self.api.merge, f"/api/v1/nodes/{name}", {"metadata": {"labels": {HOST: name}}}
            )
        self._workers.submit(
            self.api, "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, _STRATEGIC
        )
        self.record.bought.add(name)
        self.record.changed = now

    def _lease(self, name: str) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": at}
        if self.api("PATCH", f"{_LEASES}/{name}", {"spec": spec}, _MERGE) is None:
            self.api(
                "POST", _LEASES, {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
            )

    def _pod(self, pod: Object, fake: set[str], now: float) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        if not node:
            return
        if "deletionTimestamp" in meta:
            self._unnamed(pod)
        if node not in self.nodes:
            if self._later(f"lost {meta['uid']}", now, 2):
                self._workers.submit(self.api, "DELETE", path, gone)
        elif node in fake and "deletionTimestamp" in meta:
            if self._later(f"end {meta['uid']}", now, min(2, meta.get("deletionGracePeriodSeconds", 0))):
                self._workers.submit(self.api, "DELETE", path, gone)
        elif node in fake and pod["status"].get("phase") == "Pending":
            after = float(meta.get("annotations", {}).get(HOLD, self.start))
            if self._later(f"run {meta['uid']}", now, after):
                self._workers.submit(
                    self.api, "PATCH", f"{path}/status", {"status": _running(pod)}, _STRATEGIC
                )

    def _unnamed(self, pod: Object) -> None:
        """Without an audit log: the pod's condition says that it was evicted, and not by whom."""
        meta, conditions = pod["metadata"], pod["status"].get("conditions") or ()
        if self.audit is not None or meta["namespace"] != self.namespace:
            return
        known = any(c.get("reason") == "EvictionByEvictionAPI" for c in conditions)
        if known and self._later(f"evicted {meta['uid']}", 0, 0):
            self._count(meta["name"], "somebody")

    def _count(self, pod: str, who: str) -> None:
        self.record.evicted[who] += 1
        self.record.pods[pod] = who
        self.record.changed = time.monotonic()

    def _audited(self) -> None:
        if self.audit is None:
            return
        with self.audit.open("rb") as f:
            f.seek(self._read)
            for line in f:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                said = json.loads(line)
                about = said.get("objectRef") or {}
                if about.get("subresource") == "eviction" and about["namespace"] == self.namespace:
                    who = said["user"]["username"].rpartition(":")[2]
                    if said["responseStatus"].get("code", 0) < 300:
                        self._count(about["name"], who)
                    else:
                        self.record.refused[who] += 1

    def _sample(self, seconds: float) -> None:
        self._audited()
        waiting = [
            p for p in self.pods
            if p["status"].get("phase") == "Pending" and "deletionTimestamp" not in p["metadata"]
            and not p["spec"].get("schedulingGates") and not p["metadata"].get("annotations", {}).get(HOLD)
        ]  # fmt: skip
        self.over = excess(self.pods, self.nodes)
        self.record.pending += seconds * len(waiting)
        self.record.excess += seconds * sum(self.over.values())
        if waiting or any("deletionTimestamp" in p["metadata"] for p in self.pods):
            self.record.changed = time.monotonic()


def excess(pods: Iterable[Object], nodes: Mapping[str, Object]) -> dict[str, int]:
    """What each app's pods are over their hard constraint on zones, where they are over it."""
    zones = {
        k: n["metadata"]["labels"][ZONE]
        for k, n in nodes.items()
        if LABEL.items() <= n["metadata"]["labels"].items()
    }
    groups: dict[str, Counter[str]] = {}
    for pod in pods:
        node, meta = pod["spec"].get("nodeName"), pod["metadata"]
        if pod["spec"].get("topologySpreadConstraints") and node in zones and "deletionTimestamp" not in meta:
            counts = groups.setdefault(meta["labels"]["app"], Counter(dict.fromkeys(zones.values(), 0)))
            counts[zones[node]] += 1
    over = {app: beyond(max(c.values()), min(c.values()), 1) for app, c in groups.items()}
    return {app: n for app, n in over.items() if n}


def _running(pod: Object) -> Object:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    containers = [
        {"name": c["name"], "image": c["image"], "imageID": "none", "ready": True, "started": True,
         "restartCount": 0, "state": {"running": {"startedAt": at}}}
        for c in pod["spec"]["containers"]
    ]  # fmt: skip
    address = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"
    return {
        "phase": "Running", "startTime": at, "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": k, "status": "True", "lastTransitionTime": at} for k in kinds],
        "containerStatuses": containers,
    }  # fmt: skip


class Processes:
    """The controllers that were started, each as a service account with every right; and their logs."""

    def __init__(self, kubectl: Kubectl, home: Path, manifests: Path | None) -> None:
        self.kubectl, self.home, self.manifests = kubectl, home, manifests
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.hooks: list[Object] = []

    def kubeconfig(self, name: str) -> str:
        """A kubeconfig of the service account `name`, which is made where it is missing."""
        space = self.kubectl.namespace
        path = self.home / f"{name}.kubeconfig"
        if path.exists():
            return str(path)
        rights = ["--clusterrole=cluster-admin", f"--serviceaccount={space}:{name}"]
        self.kubectl("create", "serviceaccount", name)
        self.kubectl("create", "clusterrolebinding", f"{space}-{name}", *rights)
        self.kubectl("label", "clusterrolebinding", f"{space}-{name}", "=".join(*LABEL.items()))
        made = json.loads(self.kubectl("config", "view", "--minify", "--raw", "--flatten", "-o", "json"))
        made["users"][0]["user"] = {"token": self.kubectl("create", "token", name, "--duration=6h").strip()}
        made["contexts"][0]["context"] |= {"user": made["users"][0]["name"], "namespace": space}
        path.write_text(yaml.safe_dump(made))
        return str(path)

    def start(self, name: str, *command: str, **environment: str) -> None:
        """Starts a controller; one that ends within a second raises AssertionError with what it said."""
        log = self.home / f"{name}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("REBALANCER_")}
        kept |= {"KUBECONFIG": self.kubeconfig(name), "POD_NAMESPACE": self.kubectl.namespace, **environment}
        with log.open("ab") as out:
            self.running[name] = subprocess.Popen(
                command, stdout=out, stderr=out, env=kept, start_new_session=True
            )
        time.sleep(1)
        assert self.running[name].poll() is None, f"{name} has ended: {log.read_text()[-2000:]}"

    def stop(self, *names: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends controllers, those of them that run."""
        for name in names:
            if (process := self.running.pop(name, None)) is not None:
                process.send_signal(how)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()

    def install(self, name: str) -> int:
        """Applies what $PEERS_MANIFESTS/`name` has of CRDs and webhooks, the latter with this machine's
        address and a certificate made now. The webhooks' port; 0 without any."""
        assert self.manifests is not None, "PEERS_MANIFESTS names no folder"
        files = sorted((self.manifests / name).glob("*.yaml"))
        assert files, f"{self.manifests / name} has no YAML with {name}'s CRDs"
        objects = [o for f in files for o in yaml.safe_load_all(f.read_text()) if o]
        hooks = [o for o in objects if o["kind"].endswith("WebhookConfiguration")]
        crds = [o for o in objects if o["kind"] == "CustomResourceDefinition"]
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(crds))
        port = free_port() if hooks else 0
        if hooks:
            bundle = self.certificate(name)
        for hook in hooks:
            hook["metadata"] = {"name": f"peers-{name}-{hook['kind'][:3].lower()}"}
            for one in hook["webhooks"]:
                where = one["clientConfig"].pop("service")["path"]
                one["namespaceSelector"] = {
                    "matchLabels": {"kubernetes.io/metadata.name": self.kubectl.namespace}
                }
                one["clientConfig"] |= {"url": f"https://{ADDRESS}:{port}{where}", "caBundle": bundle}
        self.hooks += hooks
        return port

    def hook(self) -> None:
        """Registers the webhooks, once their controllers listen."""
        if self.hooks:
            self.kubectl.apply(*self.hooks)

    def unhook(self) -> None:
        for hook in self.hooks:
            self.kubectl("delete", hook["kind"], hook["metadata"]["name"], "--ignore-not-found")

    def certificate(self, name: str) -> str:
        """A certificate of its own for `name`; its base64."""
        folder = self.home / name
        folder.mkdir()
        asked = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        asked += ["-subj", "/CN=peers", "-addext", f"subjectAltName=IP:{ADDRESS}"]
        asked += ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
        subprocess.run(asked, check=True, capture_output=True)
        return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


class Moves:
    """A webhook that answers evictions as KubeVirt's does: the pod is marked and goes `seconds` later.
    `asked`: who asked for one, and how many others were on their way."""

    def __init__(self, api: Api, processes: Processes, seconds: float) -> None:
        self.api, self.seconds, self.asked = api, seconds, list[tuple[str, int]]()
        self.path = f"/api/v1/namespaces/{processes.kubectl.namespace}/pods/"
        self.moving: set[str] = set()
        bundle, moves = processes.certificate("moves"), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps({**review, "response": moves.answer(review.pop("request"))}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer((ADDRESS, 0), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(processes.home / "moves" / "tls.crt", processes.home / "moves" / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        rule = {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods/eviction"],
        }
        here = {"matchLabels": {"kubernetes.io/metadata.name": processes.kubectl.namespace}}
        hook = {
            "name": "moves.peers.test", "rules": [rule], "namespaceSelector": here,
            "clientConfig": {"url": f"https://{ADDRESS}:{server.server_port}/", "caBundle": bundle},
            "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"],
        }  # fmt: skip
        made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        processes.hooks.append({**made, "metadata": {"name": "peers-moves"}, "webhooks": [hook]})

    def answer(self, asked: Object) -> Object:
        name = asked["name"]
        if not asked.get("dryRun"):
            self.asked.append((asked["userInfo"]["username"].rpartition(":")[2], len(self.moving - {name})))
            if name not in self.moving:
                self.moving.add(name)
                self.api.merge(self.path + name, {"metadata": {"annotations": {BEING_EVICTED: "played"}}})
                threading.Timer(self.seconds, self.end, [name]).start()
        return {"uid": asked["uid"], "allowed": False, "status": {"code": 429, "message": EVACUATION}}

    def end(self, name: str) -> None:
        self.api("DELETE", self.path + name, {"gracePeriodSeconds": 0})
        self.moving.discard(name)
