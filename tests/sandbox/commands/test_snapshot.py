"""`rebalancer snapshot`: the file gives the plan that the cluster gave; a redacted one tells no names."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from rebalancer.kube import lists
from rebalancer.manifests.documents import CAPTURED_AT, CAPTURED_KINDS, SERVER_VERSION
from tests.support.build import claim, node, objects, pdb, pod, stateful_set, volume, workload
from tests.support.clusters.scenarios import scenario
from tests.support.sandbox import ApiServer, Cut, Gone, Reply
from tests.support.scheduler.plain import Json

NOW = "2026-06-01T00:00:00Z"


def run(*arguments: str | Path, stdin: bytes | None = None) -> Any:
    done = CliRunner().invoke(app, list(map(str, arguments)), input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def report(*arguments: str | Path) -> Json:
    found: Json = json.loads(run("report", "-o", "json", "--now", NOW, *arguments).stdout)
    for key in ("generatedAt", "cluster", "source"):
        found.pop(key)
    found["summary"].pop("seconds")
    return found


def captured(path: Path) -> Json:
    data = path.read_bytes()
    found: Json = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


@pytest.mark.parametrize("name", ["zone_outage", "zonal_volumes", "uneven_zones_two_keys"])
def test_a_report_from_the_file_is_the_report_from_the_cluster(name: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json.gz"
    with ApiServer(scenario(name), version="1.34.2") as server:
        at = ("--kubeconfig", server.kubeconfig(tmp_path / "config"))
        run("snapshot", "-o", file, *at)
        live = report(*at)
    assert report("--snapshot", file) == live
    says = captured(file)["metadata"]["annotations"]
    assert says[SERVER_VERSION] == "1.34.2"
    assert {"Node", "Pod", "PodDisruptionBudget", "ResourceQuota"} <= set(says[CAPTURED_KINDS].split(","))
    assert says[CAPTURED_AT].startswith("20")


def test_a_kind_that_may_not_be_read_stays_unknown(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    with ApiServer(scenario("one_slot")) as server:
        server.faults.add(Reply(403), resource="services")
        at = ("--kubeconfig", server.kubeconfig(tmp_path / "config"))
        done = run("snapshot", "-o", file, *at)
    assert "services cannot be listed" in done.stderr
    assert "Service" not in captured(file)["metadata"]["annotations"][CAPTURED_KINDS].split(",")
    assert "no Service in the snapshot" in run("report", "--snapshot", file).stdout


def test_quotas_that_may_not_be_seen_keep_every_pod_live_and_in_the_file(tmp_path: Path) -> None:
    """Whatever would be made in place of a pod could be refused. The report says so in both."""
    file = tmp_path / "cluster.json"
    with ApiServer(scenario("zone_outage")) as server:
        server.faults.add(Reply(403), resource="resourcequotas")
        at = ("--kubeconfig", server.kubeconfig(tmp_path / "config"))
        run("snapshot", "-o", file, *at)
        for found in (report(*at), report("--snapshot", file)):
            assert found["evictions"] == []
            assert {b["reason"] for b in found["blocked"]} == {"not-certain"}
            assert found["assumptions"][-1].startswith("ResourceQuotas were not read: ")


MANY = [pod(f"p{i:04}").on("a") for i in range(600)]


@pytest.mark.parametrize(
    ("version", "fault"),
    [("1.32.0", Gone()), ("1.36.2", Cut("body", body_bytes=100_000))],
    ids=["a page that expired", "a body that was cut"],
)
@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_a_list_that_begins_anew_is_written_once(
    name: str, version: str, fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_BLOCK", 20_000)
    with ApiServer(objects(node("a"), MANY), version=version) as server:
        at = ("--kubeconfig", server.kubeconfig(tmp_path / "config"))
        server.faults.add(fault, verb="list", resource="pods", skip=int(version == "1.32.0"), times=1)
        run("snapshot", "-o", tmp_path / name, *at)
    assert sum(o["kind"] == "Pod" for o in captured(tmp_path / name)["items"]) == 600


def test_what_went_into_a_pipe_cannot_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_BLOCK", 20_000)
    source, sink = os.pipe()
    with ApiServer(objects(node("a"), MANY)) as server, open(source, "rb"):
        server.faults.add(Cut("body", body_bytes=100_000), verb="list", resource="pods", times=1)
        with pytest.raises(UserError, match=r"pods broke off.*cannot be taken back; write to a file"):
            run("snapshot", "-o", f"/dev/fd/{sink}", "--kubeconfig", server.kubeconfig(tmp_path / "config"))
    os.close(sink)


def test_the_same_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps({"kind": "List", "items": scenario("one_slot")}))
    for name in ("a.json.gz", "b.json.gz"):
        run("snapshot", "--snapshot", source, "-o", tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_standard_input_and_output() -> None:
    text = json.dumps({"kind": "List", "items": scenario("one_slot")}).encode()
    done = run("snapshot", "--snapshot", "-", "-o", "-", stdin=text)
    assert sum(o["kind"] == "Pod" for o in json.loads(done.stdout)["items"]) == 10


def test_secrets_and_managed_fields_are_left_out_even_without_redact(tmp_path: Path) -> None:
    (web,) = pod("web").on("a").build()
    web["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    web["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "x"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    source, file = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps({"kind": "List", "items": [*objects(node("a")), web, secret]}))
    run("snapshot", "--snapshot", source, "-o", file)
    found = {o["kind"]: o for o in captured(file)["items"]}
    assert set(found) == {"Node", "Pod"}
    assert "managedFields" not in found["Pod"]["metadata"]
    assert found["Pod"]["metadata"]["annotations"] == {"kept": "x"}


def hostile() -> list[Json]:
    """A cluster in which everything that a person may have chosen begins with "acme"."""
    made = objects(
        node("acme-node-1").zone("acme-zone"),
        node("acme-node-2").zone("acme-other").taint("acme.example/team", "acme-taint"),
        workload("acmeweb", "Deployment", namespace="acme-shop").spread("zone", 1).placed({"acme-node-1": 3}),
        stateful_set("acmedb", namespace="acme-shop").placed({"acme-node-1": 2}),
        pdb("acmepdb", {"acmelabel": "acmevalue"}, namespace="acme-shop", max_unavailable=1),
        pod("acmeold", namespace="acme-shop").on("acme-node-2").mounts("acmeclaim"),
        claim("acmeclaim", "acmevolume", namespace="acme-shop"),
        volume("acmevolume", "acmeclaim", zone="acme-zone", namespace="acme-shop"),
    )
    for obj in made:
        obj["metadata"].setdefault("annotations", {})["acme.example/note"] = "acme"
        obj["metadata"].setdefault("labels", {})["acme.example/owner"] = "acme-person"
        obj["metadata"]["managedFields"] = [{"manager": "acme"}]
        if obj["kind"] == "Pod":
            (container, *_) = obj["spec"]["containers"]
            container |= {"env": [{"name": "ACME_TOKEN", "value": "acme"}], "command": ["acme"]}
            container["resources"]["requests"]["acme.example/licence"] = "1"
            container |= {"image": "registry.acme.example/app:1", "name": "acme"}
            obj["spec"]["serviceAccountName"] = obj["spec"]["hostname"] = "acme"
            obj["status"] |= {"message": "acme", "podIP": "10.0.0.1", "hostIP": "10.0.0.2"}
        if obj["kind"] == "Node":
            obj["spec"]["providerID"] = "acme:///1"
            obj["metadata"]["labels"]["node-role.kubernetes.io/acme"] = ""
            obj["status"]["allocatable"]["acme.example/licence"] = "9"
            obj["status"]["images"] = [{"names": ["registry.acme.example/app:1"], "sizeBytes": 5}]
            obj["status"]["addresses"] = [{"type": "Hostname", "address": "acme"}]
    return made


def test_a_redacted_file_says_nothing_of_whose_it_is(tmp_path: Path) -> None:
    source, file = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps({"kind": "List", "items": hostile()}))
    run("snapshot", "--snapshot", source, "-o", file, "--redact")
    text = file.read_text()
    assert "acme" not in text.lower()
    assert "10.0.0" not in text
    found = captured(file)
    assert found["metadata"]["annotations"]["rebalancer/redacted"] == "true"
    images = [o["status"].get("images") for o in found["items"] if o["kind"] == "Node"]
    used = {c["image"] for o in found["items"] if o["kind"] == "Pod" for c in o["spec"]["containers"]}
    (asked,) = {r for p in by(found, "Pod") for r in p["spec"]["containers"][0]["resources"]["requests"]} - {
        "cpu",
        "memory",
    }
    assert all(n["status"]["allocatable"][asked] == "9" for n in by(found, "Node"))
    assert images == [[{"names": sorted(used), "sizeBytes": 5}]] * 2, "image locality needs them alike"


def by(found: Json, kind: str) -> list[Json]:
    return [o for o in found["items"] if o["kind"] == kind]


def test_what_refers_to_a_thing_still_does(tmp_path: Path) -> None:
    source, file = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps({"kind": "List", "items": hostile()}))
    run("snapshot", "--snapshot", source, "-o", file, "--redact")
    found = captured(file)
    names = {n["metadata"]["name"] for n in by(found, "Node")}
    assert {p["spec"]["nodeName"] for p in by(found, "Pod")} == names
    assert {n["metadata"]["labels"]["kubernetes.io/hostname"] for n in by(found, "Node")} == names
    uids = {o["metadata"]["uid"] for kind in ("ReplicaSet", "StatefulSet") for o in by(found, kind)}
    owners = {o["uid"] for p in by(found, "Pod") for o in p["metadata"].get("ownerReferences", ())}
    assert owners == uids
    database = by(found, "StatefulSet")[0]["metadata"]["name"]
    assert {f"{database}-0", f"{database}-1"} <= {p["metadata"]["name"] for p in by(found, "Pod")}
    (bound,) = by(found, "PersistentVolumeClaim")
    assert bound["spec"]["volumeName"] == by(found, "PersistentVolume")[0]["metadata"]["name"]
    (mounted,) = (v for p in by(found, "Pod") for v in p["spec"].get("volumes", ()))
    assert mounted["persistentVolumeClaim"]["claimName"] == bound["metadata"]["name"]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps({"kind": "List", "items": scenario("one_slot")}))
    with pytest.raises(UserError, match="cannot be written"):
        run("snapshot", "--snapshot", source, "-o", tmp_path / "no" / "out.json")
