"""`lint --nodes`: whether the pods of manifests find nodes, and would again, on nodes that are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from tests.support.build import deployment, node, objects, pdb, stateful_set, workload


def lint(folder: Path, nodes: str, *things: Any, arguments: tuple[str, ...] = ()) -> Any:
    file = folder / "manifests.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(*things)}))
    return CliRunner().invoke(app, ["lint", str(file), "--nodes", nodes, "-o", "json", *arguments])


def found(folder: Path, nodes: str, *things: Any) -> dict[str, str]:
    done = lint(folder, nodes, *things)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    every = json.loads(done.stdout)["findings"]
    return {f["object"]: f["message"] for f in every if f["code"] == "cannot-be-replaced"}


CASES: dict[str, tuple[str, list[Any], str]] = {
    "two zones are fewer than minDomains, and then each takes maxSkew pods": (
        "a=3,b=3",
        [deployment("web").spread("zone", 1, min_domains=3).replicas(5)],
        "3 of its 5 pods find no node: 6 nodes: maxSkew 1 over topology.kubernetes.io/zone",
    ),
    "three zones are enough": (
        "a=1,b=1,c=1",
        [deployment("web").spread("zone", 1, min_domains=3).replicas(5)],
        "",
    ),
    "one pod a node by anti-affinity, and a node too few": (
        "a=1,b=1",
        [deployment("web").away_from("hostname", owner="web").replicas(3)],
        "1 of its 3 pods finds no node",
    ),
    "one pod a node by host port": (
        "a=1,b=1",
        [deployment("web").host_port(80).replicas(3)],
        "1 of its 3 pods finds no node",
    ),
    "what counted nodes have besides zones is not known": (
        "a=1",
        [deployment("web").selects(disk="ssd").spread("rack", 1).replicas(3)],
        "",
    ),
    "a mounted claim is not known": (
        "a=1",
        [stateful_set("web").away_from("hostname", owner="web").zonal_volumes({}).replicas(3)],
        "2 of its 3 pods find no node",
    ),
    "nobody is wanted": ("a=1", [deployment("web").away_from("hostname", owner="web").replicas(0)], ""),
    "so many are not played": (
        "a=1",
        [deployment("web").away_from("hostname", owner="web").replicas(2_000_000_000)],
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_on_counted_nodes(case: str, tmp_path: Path) -> None:
    nodes, things, says = CASES[case]
    [told] = [*found(tmp_path, nodes, *things).values()] or [""]
    assert told.startswith(says) if says else not told


@pytest.mark.parametrize("by", ["requests", "limits"])
def test_on_the_nodes_of_a_file(by: str, tmp_path: Path) -> None:
    machines = tmp_path / "nodes.json"
    there = objects(node("a-0").zone("a").room(cpu="1"), node("b-0").zone("b").room(cpu="1").cordoned())
    machines.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": there}))
    big, gpu = (
        objects(workload("big").requests(cpu="700m").replicas(2)),
        workload("gpu").selects(gpu="yes").replicas(1),
    )
    resources = big[0]["spec"]["template"]["spec"]["containers"][0]["resources"]
    if by == "limits":
        resources["limits"] = resources.pop("requests")
    told = found(tmp_path, str(machines), big, gpu, workload("fits").requests(cpu="50m").replicas(2))
    assert set(told) == {"ReplicaSet/default/big", "ReplicaSet/default/gpu"}
    assert "1 of its 2 pods finds no node" in told["ReplicaSet/default/big"]
    assert "Insufficient cpu" in told["ReplicaSet/default/big"]
    assert told["ReplicaSet/default/gpu"].startswith("its pod finds no node")


def test_the_remedy_opens_a_node(tmp_path: Path) -> None:
    web = deployment("web").spread("zone", 1, min_domains=3).replicas(3)
    done = lint(tmp_path, "a=1,b=1", web)
    assert done.exit_code == 3
    [finding] = [f for f in json.loads(done.stdout)["findings"] if f["code"] == "cannot-be-replaced"]
    assert "minDomains: 2" in finding["remedy"]
    assert not found(tmp_path, "a=1,b=1", deployment("web").spread("zone", 1, min_domains=2).replicas(3))


def test_nodes_among_the_manifests_are_no_workloads_and_break_nothing(tmp_path: Path) -> None:
    odd = [node("a-0").zone("a"), node("b-0").zone("A"), deployment("web").spread("zone", 1).replicas(2)]
    assert found(tmp_path, "a=1", *odd, pdb("web", {"app": "web"}, max_unavailable=1)) == {}


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ("a=0", "a=0 stands for 0 nodes"),
        ("a=99999999999", "1 to 15,000"),
        ("a=x", "a=x: no such file"),
        ("nothing.yaml", "nothing.yaml: no such file"),
    ],
)
def test_what_are_no_nodes_is_an_error(nodes: str, says: str, tmp_path: Path) -> None:
    assert says in str(lint(tmp_path, nodes, deployment("web").replicas(1)).exception)


def test_a_file_without_nodes_is_an_error_and_what_is_not_judged_a_note(tmp_path: Path) -> None:
    file = tmp_path / "empty.json"
    file.write_text(json.dumps(objects(deployment("web").replicas(1))[0]))
    assert "no node in" in str(lint(tmp_path, str(file), deployment("web").replicas(1)).exception)
    done = lint(tmp_path, "a=1", deployment("web").selects(disk="ssd").replicas(1))
    assert "note: 1 workload not judged by nodes: " in done.stderr


def test_many_zones_are_no_file_name(tmp_path: Path) -> None:
    zones = ",".join(f"availability-zone-{i}=1" for i in range(40))
    assert lint(tmp_path, zones, deployment("web").spread("zone", 1).replicas(3)).exit_code == 0


def test_an_empty_value_is_no_nodes_and_says_so(tmp_path: Path) -> None:
    done = lint(tmp_path, "", deployment("web").replicas(3))
    assert done.exit_code not in (0, 3)
    assert "no nodes are named" in f"{done.output}{done.exception}"
