"""The server itself: start, stop, restart, TLS, leases, size."""

from __future__ import annotations

import gc
import json
import math
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from tests.support.sandbox import ApiServer, Delay, Store
from tests.support.servers.api_objects import connect, node, pod


@pytest.mark.timing
def test_it_stops_soon_although_watches_and_hung_requests_are_open() -> None:
    server = ApiServer(objects=[node("n1")]).start()
    server.faults.add(Delay(math.inf), resource="pods")
    with urllib3.PoolManager(retries=False, timeout=5) as http:
        response = http.request("GET", f"{server.url}/api/v1/nodes?watch=1", preload_content=False)
        stream = response.stream(65536)
        assert b"ADDED" in next(stream)
        failed: list[Exception] = []

        def hang() -> None:
            try:
                http.request("GET", f"{server.url}/api/v1/pods")
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=hang)
        thread.start()
        time.sleep(0.1)
        start = time.monotonic()
        server.stop()
        assert time.monotonic() - start < 60
        assert list(stream) == []
        thread.join(5)
        assert failed


def test_it_closes_connections_whose_answers_nobody_reads() -> None:
    server = ApiServer(objects=[node(f"n{i}") for i in range(3_000)]).start()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as reader:
        reader.sendall(b"GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n" * 9)
        time.sleep(0.5)
        server.stop()
        gc.collect()  # a transport that was left open warns here


def test_a_restart_keeps_objects_and_address() -> None:
    server = ApiServer(objects=[node("n1")])
    with server:
        url = server.url
    with server, urllib.request.urlopen(f"{url}/api/v1/nodes/n1", timeout=5) as response:
        assert json.loads(response.read())["metadata"]["name"] == "n1"


def test_two_servers_can_share_a_store() -> None:
    store = Store([node("n1")])
    with ApiServer(store=store) as one, ApiServer(store=store) as two, connect(one) as a, connect(two) as b:
        client.CoreV1Api(a).delete_node("n1")
        assert client.CoreV1Api(b).list_node().items == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on PATH")
def test_over_tls_kubectl_and_clients_show_their_token(tmp_path: Path) -> None:
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert]
    make += ["-subj", "/CN=sandbox", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, check=True, capture_output=True, timeout=30)
    with ApiServer(objects=[node("n1")], tls=(cert, key), authenticate=True) as server:
        kubeconfig = server.kubeconfig(tmp_path / "config")
        with config.new_client_from_config(str(kubeconfig)) as api:
            assert len(client.CoreV1Api(api).list_node().items) == 1
        context = ssl.create_default_context(cafile=cert)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.url}/api/v1/nodes", context=context, timeout=5)
        caught.value.close()
        assert caught.value.code == 403
        kubectl = shutil.which("kubectl")
        if kubectl:
            done = subprocess.run([kubectl, "--kubeconfig", str(kubeconfig), "get", "nodes", "-o", "name"],
                                  capture_output=True, text=True, timeout=20, check=True)  # fmt: skip
            assert done.stdout.split() == ["node/n1"]


def test_a_lease_is_updated_only_from_a_known_version() -> None:
    with ApiServer() as server, connect(server) as api:
        leases = client.CoordinationV1Api(api)
        body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
        made = leases.create_namespaced_lease("default", body)
        with pytest.raises(ApiException) as caught:
            leases.replace_namespaced_lease("l", "default", body)
        assert caught.value.status == 422
        made.spec.holder_identity = "b"
        leases.replace_namespaced_lease("l", "default", made)
        with pytest.raises(ApiException) as conflict:
            leases.replace_namespaced_lease("l", "default", made)
        assert conflict.value.status == 409


@pytest.mark.timing
def test_a_thousand_nodes_and_thirty_thousand_pods() -> None:
    objects = [node(f"n{i}") for i in range(1000)]
    objects += [pod(f"p{i:05d}", on=f"n{i % 1000}", app="web") for i in range(30_000)]
    start = time.monotonic()
    with ApiServer(objects=objects) as server, urllib3.PoolManager() as http:
        assert time.monotonic() - start < 120
        token, seen = "", 0
        while True:
            url = f"{server.url}/api/v1/pods?limit=500&continue={token}"
            body = json.loads(http.request("GET", url).data)
            seen += len(body["items"])
            token = body["metadata"].get("continue", "")
            if not token:
                break
        assert seen == 30_000
