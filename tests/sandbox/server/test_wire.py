"""All exchanges recorded from kube-apiserver 1.36.2, replayed in their order against the sandbox.

The sandbox starts with the objects that the recording's first lists show; what controllers and kubelet
did between the requests, the test does through the store, at the recorded times.

Deliberately not compared:
- `managedFields`: field ownership is not kept.
- uids and resourceVersions of what came to be during the recording (older ones must be equal), also
  inside continue tokens and in two messages that name the current version.
- the five generated characters of an object's name in a message.
- build information in /version; the server's own address in /api.
- discovery of what the sandbox does not serve (groups, exec, scale, deletecollection and the like); what
  it does serve must be announced in the same words and order, but for the values of storageVersionHash.
- the number of bookmarks in 65 s: the watch is cut to 3 s, bookmarks are the same but for their number.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from rebalancer.sandbox.objects import copied
from rebalancer.sandbox.registry import bind
from tests.support.sandbox import ApiServer

EXCHANGES: list[dict[str, Any]] = json.loads(
    gzip.decompress((Path(__file__).parent / "wire.json.gz").read_bytes())
)
BY_NAME = {exchange["name"]: exchange for exchange in EXCHANGES}
START = 287  # the resourceVersion of the first lists
EVICTIONS_AT = "2026-11-21T14:49:25Z"
REST_AT = "2026-11-21T14:50:42Z"


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def items(name: str, kind: str, version: str = "v1") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = copied(BY_NAME[name]["response"]["body"]["items"])
    for item in found:
        item["metadata"].pop("managedFields", None)
        item |= {"kind": kind, "apiVersion": version}
    return found


def initial() -> list[dict[str, Any]]:
    sets = []
    for line in BY_NAME["watch-metadata-only"]["response"]["lines"]:
        metadata = {k: v for k, v in line["object"]["metadata"].items() if k != "managedFields"}
        metadata["resourceVersion"] = min(metadata["resourceVersion"], "262")
        bare = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {}, "status": {}}
        sets.append({**bare, "metadata": metadata})
    top: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    version = str(START)
    top |= {"metadata": {"name": "top", "namespace": "kube-system", "resourceVersion": version}}
    return [
        *items("list-nodes", "Node"),
        *items("list-last-page", "Pod"),
        *items("list-metadata-only", "Namespace"),
        *items("list-pdbs", "PodDisruptionBudget", "policy/v1"),
        *items("list-priorityclasses", "PriorityClass", "scheduling.k8s.io/v1"),
        *sets,
        top,
    ]


class Replay:
    """Sends the recorded requests, with the uids and versions that this run has in their place."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.store = server, server.store
        self.http = urllib3.PoolManager()
        self.names: dict[str, str] = {}  # recorded uid or resourceVersion → ours
        self.answers: dict[str, dict[str, Any]] = {}

    def send(self, exchange: dict[str, Any]) -> None:
        name, request = exchange["name"], exchange["request"]
        headers, path = dict(request["headers"]), request["path"]
        if name not in ("unauthorized", "anonymous-forbidden"):
            headers["Authorization"] = f"Bearer {self.server.admin_token}"
        path = re.sub(r"timeoutSeconds=\d+", f"timeoutSeconds={3 if '65' in path else 1}", path)
        if name == "watch-bookmarks":
            path = path.replace("resourceVersion=316", f"resourceVersion={self.store.revision}")
        if name == "list-expired-continue":
            path = re.sub(r"continue=\S+", lambda m: "continue=" + self._token(m[0][9:]), path)
        body = request.get("body")
        if isinstance(body, dict):
            body = json.dumps(self._translated(body))
        url = self.server.url + path
        response = self.http.request(
            request["method"], url, headers=headers, body=body, timeout=10, retries=False
        )
        text = response.data.decode()
        got: dict[str, Any] = {"status": response.status, "headers": dict(response.headers)}
        recorded = exchange["response"]
        if "lines" in recorded:
            got["lines"] = [json.loads(line) for line in text.splitlines()]
        elif "text" in recorded:
            got["text"] = text
        else:
            got["body"] = json.loads(text)
            self._learn(recorded["body"], got["body"])
        self.answers[name] = got

    def _token(self, text: str) -> str:
        data = decoded_token(text)
        data["rv"] = self.store.revision - 1
        raw = json.dumps(data, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def _learn(self, recorded: dict[str, Any], ours: dict[str, Any]) -> None:
        for field in ("uid", "resourceVersion"):
            old, new = recorded.get("metadata", {}).get(field), ours.get("metadata", {}).get(field)
            if old and new and old != new:
                self.names[old] = new

    def _translated(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._translated(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._translated(item) for item in value]
        return self.names.get(value, value) if isinstance(value, str) else value

    # What the cluster's controllers did between the requests.

    def replacement(self, name: str, node: str) -> None:
        lines = BY_NAME["watch-from-rv"]["response"]["lines"]
        pod = copied(next(line["object"] for line in lines if line["object"]["metadata"]["name"] == name))
        kept = ("name", "generateName", "labels", "ownerReferences")
        metadata = {key: pod["metadata"][key] for key in kept}
        container = {key: pod["spec"]["containers"][0][key] for key in ("name", "image", "resources")}
        spec: dict[str, Any] = {"containers": [container]}
        if "topologySpreadConstraints" in pod["spec"]:
            spec["topologySpreadConstraints"] = pod["spec"]["topologySpreadConstraints"]
        self.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        bind(self.store, "default", name, node)

    def runs(self, name: str) -> None:
        lines = BY_NAME["watch-from-rv"]["response"]["lines"]
        last = [line["object"] for line in lines if line["object"]["metadata"]["name"] == name][-1]

        def change(pod: dict[str, Any]) -> None:
            pod["status"] = copied(last["status"])

        self.store.modify("Pod", name, "default", change, subresource="status")

    def after(self, name: str) -> None:
        match name:
            case "evict-no-budget":
                self.replacement("free-v5ffx", "a-0")
            case "evict-with-budget":
                self.replacement("web-l8c9l", "c-0")

                def healthy(budget: dict[str, Any]) -> None:
                    assert list(budget["status"].pop("disruptedPods")) == ["web-00000"]
                    budget["status"]["currentHealthy"] = 4

                self.store.modify("PodDisruptionBudget", "web", "default", healthy, subresource="status")
            case "evict-bad-body":
                self.store.delete("Pod", "web-00000", "default", grace=0)
                self.runs("free-v5ffx")
                self.runs("web-l8c9l")

                def scaled(owner: dict[str, Any]) -> None:
                    owner["status"]["replicas"] = 3

                for name in ("free", "web"):
                    self.store.modify("ReplicaSet", name, "default", scaled, subresource="status")
            case "delete-pod":
                self.store.compact()


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    now = [seconds(EVICTIONS_AT)]
    server = ApiServer(
        objects=initial(),
        authenticate=True,
        brake=False,
        clock=lambda: now[0],
        seed=1,
        fresh_timeout=0.05,
    )
    with server:
        run = Replay(server)
        assert server.store.revision == START
        for exchange in EXCHANGES:
            if exchange["name"] == "lease-create":
                now[0] = seconds(REST_AT)
            run.send(exchange)
            run.after(exchange["name"])
        run.http.clear()
        yield run


KNOWN_UIDS = {obj["metadata"]["uid"] for obj in initial() if "uid" in obj["metadata"]}


def decoded_token(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return data


def normal(value: Any, key: str = "") -> Any:
    """What is compared of a body; the module's docstring lists what is let go."""
    if isinstance(value, dict):
        return {k: normal(v, k) for k, v in value.items() if k != "managedFields"}
    if isinstance(value, list):
        return [normal(item) for item in value]
    if key == "uid" and value not in KNOWN_UIDS:
        return "<uid>"
    if key == "resourceVersion" and int(value) > START:
        return "<later>"
    if key == "continue":
        token = decoded_token(value)
        return {**token, "rv": "<later>" if token["rv"] > START else token["rv"]}
    if key in ("serverAddress", "storageVersionHash"):
        return f"<{key}>"
    if key == "description" and value:
        return ""
    if isinstance(value, str):
        value = re.sub(r"current: \d+", "current: <later>", value)
        value = re.sub(r"(too old resource version: \d+) \(\d+\)", r"\1 (<later>)", value)
        return re.sub(r"\bweb\.[a-z0-9]{5}\b", "web.<five>", value)
    return value


def announced(recorded: Any, ours: Any) -> Any:
    """The recorded discovery, without what the sandbox does not serve."""
    body = copied(recorded)
    if body["kind"] == "APIGroupList":
        have = {group["name"]: {v["version"] for v in group["versions"]} for group in ours["groups"]}
        body["groups"] = [group for group in body["groups"] if group["name"] in have]
        for group in body["groups"]:
            group["versions"] = [v for v in group["versions"] if v["version"] in have[group["name"]]]
    else:
        names = {resource["name"] for resource in ours["resources"]}
        body["resources"] = [resource for resource in body["resources"] if resource["name"] in names]
    for resource in body.get("resources", ()):
        resource["verbs"] = [verb for verb in resource["verbs"] if verb != "deletecollection"]
    return body


BUILD = ("gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[exchange["name"] for exchange in EXCHANGES])
def test_answers_as_recorded(exchange: dict[str, Any], replay: Replay) -> None:
    name, recorded = exchange["name"], exchange["response"]
    got = replay.answers[name]
    assert got["status"] == recorded["status"], got
    for header in ("content-type", "cache-control", "retry-after"):
        assert got["headers"].get(header) == recorded["headers"].get(header)
    if "text" in recorded:
        assert got["text"] == recorded["text"]
        return
    if "lines" in recorded:
        wanted, lines = normal(recorded["lines"]), normal(got["lines"])
        if name == "watch-bookmarks":
            wanted, lines = wanted[:1], lines[:1]
        assert lines == wanted
        return
    wanted, body = normal(recorded["body"]), normal(got["body"])
    if name == "version":
        for field in BUILD:
            assert isinstance(body.pop(field), str)
            wanted.pop(field)
    if name.startswith("discovery") and name != "discovery-api":
        wanted = announced(wanted, body)
        assert len(json.dumps(wanted)) > 100
    assert body == wanted


def test_every_recorded_request_is_replayed(replay: Replay) -> None:
    assert len(EXCHANGES) == len(BY_NAME) == len(replay.answers) == 59


def test_versions_only_grow(replay: Replay) -> None:
    """In a watch from a version, event by event."""
    lines = replay.answers["watch-from-rv"]["lines"]
    versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in lines]
    assert versions == sorted(set(versions))
    assert versions[0] > START
