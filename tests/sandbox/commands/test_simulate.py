"""`rebalancer simulate`: what would come of the plan, and of changes made before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from rebalancer.sandbox.creation import tracked
from tests.support.build import node, objects, pdb, pod, stateful_set, workload
from tests.support.clusters.scenarios import SCENARIOS
from tests.support.scheduler.plain import Json

FOLDER = Path(__file__).parents[2] / "scenarios"


def run(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def simulated(*arguments: str | Path) -> Json:
    found: Json = json.loads(run(*arguments, "-o", "json").stdout)
    return found


def written(folder: Path, *things: Any) -> Path:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(*things)}))
    return path


def balanced(folder: Path) -> Path:
    """Six pods evenly over three zones of two nodes."""
    machines = [node(f"{z}-{i}").zone(z) for z in "abc" for i in range(2)]
    placed = {f"{z}-{i}": 1 for z in "abc" for i in range(2)}
    web = workload("web", "Deployment").spread("zone", 1).placed(placed)
    return written(folder, machines, web, pdb("web", {"app": "web"}, max_unavailable=1))


def domains(found: Json, moment: str) -> dict[str, int]:
    (constraint,) = found["constraints"]
    counted: dict[str, int] = constraint[moment]
    return counted


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", ["one_slot", "uneven_zones_two_keys", "zonal_volumes", "protected_pods"])
def test_it_ends_as_the_plan_says(name: str, seed: int) -> None:
    found = simulated("--snapshot", FOLDER / f"{name}.json.gz", "--seed", str(seed))
    expected = SCENARIOS[name]
    assert sum(c["evicted"] for c in found["cycles"]) == expected.evictions
    assert found["after"]["excess"] == expected.residual
    assert found["before"] == found["changed"]
    assert found["before"]["pods"] == found["after"]["pods"]
    assert all(m["expected"] and m["landed"] for m in found["moves"])
    assert found["cycles"][-1]["end"] == "complete"
    assert all(c["reasons"] for c in found["constraints"] if c["excess"]["after"])


def skewed(folder: Path, *, keys: tuple[str, ...] = ("pod-template-hash",)) -> Path:
    """A Deployment that no eviction may touch, as its budget is exhausted."""
    machines = [node(f"{z}-0").zone(z) for z in "abc"]
    web = workload("web", "Deployment").spread("zone", 1, match_label_keys=keys)
    placed = web.placed({"a-0": 4, "b-0": 1, "c-0": 1})
    return written(folder, machines, placed, pdb("web", {"app": "web"}, max_unavailable=0))


def test_a_restart_repairs_what_evictions_may_not(tmp_path: Path) -> None:
    found = simulated("--snapshot", skewed(tmp_path), "--restart", "default/web")
    assert found["notes"] == [
        "restarted default/web: all of its pods are replaced, without any budget",
        "restarted, an excess of 0 is left: less than the 2 that 0 evictions would leave",
    ]
    assert [found[m]["excess"] for m in ("before", "changed", "after")] == [2, 0, 0]
    assert not any(c["evicted"] for c in found["cycles"])


def test_a_restart_by_recreate_is_told_as_what_it_is(tmp_path: Path) -> None:
    path = skewed(tmp_path)
    cluster = json.loads(path.read_text())
    for o in cluster["items"]:
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"type": "Recreate"}
    path.write_text(json.dumps(cluster))
    found = simulated("--snapshot", path, "--restart", "default/web")
    assert found["notes"][0] == "restarted default/web: by Recreate, all of its pods are gone at once"
    assert found["after"]["excess"] == 0


def test_a_restart_of_nothing_names_what_is_alike(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no Deployment or StatefulSet default/wep") as e:
        run("--snapshot", skewed(tmp_path), "--restart", "default/wep")
    assert "default/web" in e.value.remedy


def test_nodes_are_added_and_a_workload_scaled_first() -> None:
    found = simulated(
        "--snapshot",
        FOLDER / "one_slot.json.gz",
        *("--add-nodes", "2", "--like", "b-0", "--scale", "default/web=6"),
    )
    assert found["notes"] == ["added 2 nodes like b-0: b-0-x1 to b-0-x2", "scaled default/web to 6"]
    assert [found[m]["nodes"] for m in ("before", "changed", "after")] == [2, 4, 4]
    assert [found[m]["pods"] for m in ("before", "changed", "after")] == [10, 12, 12]
    assert domains(found, "before") == {"a": 4, "b": 0}
    assert domains(found, "after") == {"a": 3, "b": 3}


def test_a_drained_node_empties_within_its_budget(tmp_path: Path) -> None:
    found = simulated("--snapshot", balanced(tmp_path), "--drain", "a-0")
    assert found["notes"] == ["drained a-0"]
    assert sum(domains(found, "after").values()) == 6
    assert (found["after"]["excess"], found["after"]["unplaced"]) == (0, 0)


def test_a_failed_zone_shows_what_stays_without_a_node(tmp_path: Path) -> None:
    found = simulated("--snapshot", balanced(tmp_path), "--fail-domain", "zone=c")
    [note] = found["notes"]
    assert note.endswith("c failed: 2 nodes stopped answering, all at once (2 pods find no other node)")
    # The failed zone still sets the minimum: its pods have nowhere to go under maxSkew 1.
    assert found["changed"]["unplaced"] > 0
    text = run("--snapshot", balanced(tmp_path), "--fail-domain", "zone=c").stdout
    assert "AS IT IS  CHANGED  REBALANCED" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--drain", "a-9"], "no node a-9 among 6; similar: a-1, a-0"),
        (["--fail-domain", "zone=z"], "no node with topology.kubernetes.io/zone=z; there are a, b, c"),
        (["--fail-domain", "rack=z"], "no node with rack=z; no node has the label rack"),
        (["--scale", "default/wbe=3"], "no workload default/wbe that scales; similar: default/web"),
        (["--add-nodes", "1", "--like", "x"], "no node x among 6"),
    ],
)
def test_a_change_of_nothing_is_an_error(tmp_path: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(UserError) as error:
        run("--snapshot", balanced(tmp_path), *arguments)
    assert says in str(error.value)


def test_added_nodes_need_a_model(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["simulate", "--snapshot", str(balanced(tmp_path)), "--add-nodes", "1"])
    assert done.exit_code == 2


def test_a_redacted_cluster_plays_as_the_real_one(tmp_path: Path) -> None:
    """Controllers know their pods by owner and by ordinal: none may be made anew for its pseudonym."""
    machines = [node(f"worker-{z}-{i}").zone(f"eu-{z}") for z in "abc" for i in range(2)]
    web = workload("web", "Deployment").spread("zone", 1).placed({"worker-a-0": 3, "worker-b-0": 1})
    database = stateful_set("db").parallel().spread("zone", 1).placed({"worker-a-1": 3})
    source, redacted = written(tmp_path, machines, web, database), tmp_path / "redacted.json"
    done = CliRunner().invoke(app, ["snapshot", "--redact", "--snapshot", str(source), "-o", str(redacted)])
    assert done.exit_code == 0, done.output
    real, found = (simulated("--snapshot", f) for f in (source, redacted))
    assert found["changed"] == found["before"] == real["before"]
    assert found["after"]["excess"] == real["after"]["excess"] == 0
    assert len(found["moves"]) == len(real["moves"]) == 3


def test_progress_goes_to_standard_error_and_names_cannot_act(tmp_path: Path) -> None:
    odd = workload("web").spread("zone", 1, selector={"app": "x"}).labels(app="x").placed({"a": 2})
    path = written(tmp_path, node("a").zone("a"), node("b").zone("b\x1b[31m"), odd, pod("p").on("a"))
    done = run("--snapshot", path)
    assert "cycle 1: 1 eviction planned" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "b\\x1b[31m=1" in done.stdout


# What a real API server sends beside what people write: managed fields of every part of an object, and
# ControllerRevisions as the StatefulSet controller writes them, or their metadata alone.


def _managed(kind: str) -> list[Json]:
    """As a kube-apiserver 1.36 was recorded to send them: several entries of one manager, by subresource."""
    annotations: Json = {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}}
    labels: Json = {"f:labels": {".": {}, f"f:{kind}": {}}}
    spec: Json = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"app"}': {".": {}}}}}}}
    found = [
        ("kubectl-client-side-apply", "Update", "", {"f:metadata": annotations, **spec}),
        ("kubelet", "Update", "status", {"f:status": {"f:phase": {}}}),
        ("kube-controller-manager", "Update", "", {"f:metadata": labels}),
        ("kube-controller-manager", "Apply", "", {"f:metadata": annotations}),
    ]
    common = {"apiVersion": "v1", "time": "2026-11-21T14:49:19Z", "fieldsType": "FieldsV1"}
    return [
        {
            **common,
            "manager": manager,
            "operation": operation,
            "fieldsV1": fields,
            **({"subresource": part} if part else {}),
        }
        for manager, operation, part, fields in found
    ]


def _as_served(folder: Path, *, revisions: str) -> Path:
    """A StatefulSet and a Deployment that nobody touched, skewed. `revisions`: what is there of them."""
    machines = [node(f"{z}-{i}").zone(z) for z in "abc" for i in range(2)]
    db = stateful_set("db").parallel().spread("zone", 1).placed({"a-0": 3, "b-0": 1})
    web = workload("web", "Deployment").spread("zone", 1).placed({"a-0": 2, "a-1": 2})
    items = objects(machines, db, web)
    [owner] = [o for o in items if o["kind"] == "StatefulSet"]
    pods = [o for o in items if o["kind"] == "Pod" and o["metadata"]["name"].startswith("db")]
    owner["metadata"]["generation"] = 1
    owner["status"] |= {"observedGeneration": 1, "currentRevision": "db-6d4", "updateRevision": "db-6d4"}
    for p in pods:
        p["metadata"]["labels"]["controller-revision-hash"] = "db-6d4"
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "db-6d4",
            "namespace": "default",
            "labels": {"controller-revision-hash": "db-6d4", **pods[0]["metadata"]["labels"]},
            "ownerReferences": pods[0]["metadata"]["ownerReferences"],
        },
        "revision": 1,
    }
    if revisions == "whole":
        # The controller's patch: with its directive, and what the API adds to templates in this version.
        template = json.loads(json.dumps(owner["spec"]["template"]))
        template["spec"]["terminationGracePeriodSeconds"] = 30
        template["metadata"]["creationTimestamp"] = None
        revision["data"] = {"spec": {"template": {"$patch": "replace", **template}}}
    if revisions != "none":
        items.append(revision)
    for o in items:
        o["metadata"]["managedFields"] = _managed(o["kind"])
    path = folder / "served.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


@pytest.mark.parametrize("revisions", ["whole", "metadata", "none"])
def test_what_a_real_api_server_sends_is_played_as_the_report_plans(tmp_path: Path, revisions: str) -> None:
    served = _as_served(tmp_path, revisions=revisions)
    done = CliRunner().invoke(app, ["report", "--snapshot", str(served), "-o", "json"])
    planned = json.loads(done.stdout)["summary"]["evictions"]
    found = simulated("--snapshot", served, "--scale", "default/web=4")
    assert sum(c["evicted"] for c in found["cycles"]) == planned == 3
    assert found["after"]["excess"] == 0


NOW = "2026-01-01T00:00:00Z"


def test_managed_fields_of_every_part_of_an_object_are_read() -> None:
    before = {"annotations": {"a": "1"}, "managedFields": _managed("Pod")}
    after = {"annotations": {"a": "2"}}
    [entry] = [e for e in tracked(before, after, "rebalancer", NOW) if e["manager"] == "rebalancer"]
    assert entry["fieldsV1"] == {"f:metadata": {"f:annotations": {"f:a": {}}}}
    assert entry["time"] == NOW
    assert not [e for e in tracked(before, after, "", NOW) if '"f:a"' in json.dumps(e)]
