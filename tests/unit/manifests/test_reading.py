"""Clusters read from files: every packing kubectl and people produce, and what is said of what is wrong."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.manifests import (
    CAPTURED_AT,
    CAPTURED_KINDS,
    KUBECTL,
    ManifestError,
    read_objects,
    read_snapshot,
)
from rebalancer.manifests.documents import absences
from rebalancer.model.node import NODEPOOL
from rebalancer.model.snapshot import ADD_ONS, KINDS

Object = dict[str, Any]


def node(name: str, **more: Any) -> Object:
    metadata = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"zone": "a"}}
    status = {"allocatable": {"cpu": "4", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status, **more}


def pod(name: str, on: str = "n1", namespace: str | None = "shop", **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **metadata},
        "spec": {"nodeName": on, "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }


def listed(*items: Object, kind: str = "List", **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "items": list(items)}


def without_kind(o: Object) -> Object:
    return {k: v for k, v in o.items() if k not in ("kind", "apiVersion")}


OF_KARPENTER = node("n1", metadata={"name": "n1", "labels": {NODEPOOL: "default"}})
CLUSTER = [node("n1"), node("n2"), pod("web-1"), pod("web-2", on="n2")]


def write_json(folder: Path) -> Path:
    (folder / "cluster.json").write_text(json.dumps(listed(*CLUSTER)))
    return folder / "cluster.json"


def write_yaml(folder: Path) -> Path:
    (folder / "cluster.yaml").write_text(yaml.safe_dump(listed(*CLUSTER)))
    return folder / "cluster.yaml"


def write_yaml_documents(folder: Path) -> Path:
    (folder / "cluster.yml").write_text("---\n" + yaml.safe_dump_all(CLUSTER) + "---\n# nothing\n")
    return folder / "cluster.yml"


def write_json_in_a_row(folder: Path) -> Path:
    text = "\n".join(json.dumps(o, indent=4) for o in (listed(*CLUSTER[:3]), CLUSTER[3]))
    (folder / "cluster.json").write_text(text + "\n")
    return folder / "cluster.json"


def write_json_array(folder: Path) -> Path:
    (folder / "items.json").write_text(json.dumps(CLUSTER))
    return folder / "items.json"


def write_typed_lists(folder: Path) -> Path:
    nodes, pods = map(without_kind, CLUSTER[:2]), map(without_kind, CLUSTER[2:])
    (folder / "raw.json").write_text(
        json.dumps(listed(*nodes, kind="NodeList")) + json.dumps(listed(*pods, kind="PodList"))
    )
    return folder / "raw.json"


def write_directory(folder: Path) -> Path:
    (folder / "shop" / "deep").mkdir(parents=True)
    (folder / "..data").mkdir()
    (folder / "..data" / "old.json").write_text("not looked at")
    (folder / "notes.txt").write_text("not looked at")
    (folder / "nodes.yaml").write_text(yaml.safe_dump_all(CLUSTER[:2]))
    (folder / "shop" / "pods.json").write_text(json.dumps(listed(CLUSTER[2])))
    (folder / "shop" / "deep" / "more.json.gz").write_bytes(gzip.compress(json.dumps(CLUSTER[3]).encode()))
    return folder


def write_gzip(folder: Path) -> Path:
    (folder / "cluster.json.gz").write_bytes(gzip.compress(json.dumps(listed(*CLUSTER)).encode()))
    return folder / "cluster.json.gz"


def write_utf16(folder: Path) -> Path:
    (folder / "cluster.json").write_text(json.dumps(listed(*CLUSTER)), encoding="utf-16")
    return folder / "cluster.json"


def write_flow_yaml(folder: Path) -> Path:
    (folder / "cluster.yaml").write_text("{kind: List, items: " + json.dumps(CLUSTER) + "} # comment\n")
    return folder / "cluster.yaml"


@pytest.mark.parametrize(
    "write",
    [
        write_json,
        write_yaml,
        write_yaml_documents,
        write_json_in_a_row,
        write_json_array,
        write_typed_lists,
        write_directory,
        write_gzip,
        write_utf16,
        write_flow_yaml,
    ],
    ids=lambda f: f.__name__.removeprefix("write_").replace("_", " "),
)
def test_every_packing_gives_the_same_cluster(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    snapshot = read_snapshot([path])
    assert [n.name for n in snapshot.nodes] == ["n1", "n2"]
    assert [(p.key, p.node_name) for p in snapshot.pods] == [("shop/web-1", "n1"), ("shop/web-2", "n2")]
    assert sorted(o["metadata"]["name"] for o in read_objects([path])) == ["n1", "n2", "web-1", "web-2"]
    assert {o["kind"] for o in read_objects([path])} == {"Node", "Pod"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_dash_is_standard_input(pack: Callable[[bytes], bytes]) -> None:
    stdin = io.BytesIO(pack(json.dumps(listed(*CLUSTER)).encode()))
    snapshot = read_snapshot(["-"], stdin=stdin)
    assert len(snapshot.pods) == 2
    assert snapshot.source == "stdin"


def snapshot_of(*objects: Object, **options: Any) -> Any:
    stdin = io.BytesIO(json.dumps(listed(*objects, **options.pop("metadata", {}))).encode())
    return read_snapshot(["-"], stdin=stdin, **options)


def told(snapshot: Any) -> list[str]:
    """The warnings that are not about missing kinds."""
    return [w for w in snapshot.warnings if not w.startswith("no ")]


BROKEN = [
    (
        "a wrong type names the field",
        pod("bad") | {"spec": {"nodeName": 7}},
        "Pod shop/bad: spec.nodeName: expected `str`, got `int`",
    ),
    (
        "a wrong quantity of a pod names the field",
        pod("bad") | {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]}},
        (
            "Pod shop/bad: spec.containers[].resources.requests.cpu: 'lots' is not a quantity "
            "such as 500m, 1Gi or 2"
        ),
    ),
    (
        "a wrong quantity of a node names the field",
        node("bad") | {"status": {"allocatable": {"memory": "32 GB"}}},
        "Node bad: status.allocatable.memory: '32 GB' is not a quantity such as 500m, 1Gi or 2",
    ),
    (
        "a quantity with a million digits",
        pod("bad")
        | {"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1e999999"}}}]}},
        (
            "Pod shop/bad: spec.containers[].resources.limits.memory: '1e999999' is more than there can be "
            "of anything"
        ),
    ),
    (
        "a node with a million digits of cpu",
        node("bad") | {"status": {"allocatable": {"cpu": "-1e999999"}}},
        "Node bad: status.allocatable.cpu: '-1e999999' is more than there can be of anything",
    ),
    (
        "a wrong quantity of a storage capacity",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": "bad", "namespace": "shop"},
            "storageClassName": "s",
            "capacity": "1 GB",
        },
        "CSIStorageCapacity shop/bad: capacity: '1 GB' is not a quantity such as 500m, 1Gi or 2",
    ),
    (
        "a wrong value of an enumeration",
        node("bad") | {"spec": {"taints": [{"key": "k", "effect": "Never"}]}},
        "Node bad: spec.taints[0].effect: invalid enum value 'Never'",
    ),
    (
        "a time that is none",
        pod("bad", creationTimestamp="yesterday"),
        "Pod shop/bad: metadata.creationTimestamp: invalid RFC3339 encoded datetime",
    ),
    ("a name that is no string", pod(5), "Pod shop/5: metadata.name: expected `str`, got `int`"),  # type: ignore[arg-type]
    ("no name", {"kind": "Pod", "metadata": {}}, "Pod in stdin: metadata.name is missing"),
]


@pytest.mark.parametrize(("broken", "says"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_malformed_object_is_named_and_skipped(broken: Object, says: str) -> None:
    snapshot = snapshot_of(*CLUSTER, broken)
    assert told(snapshot) == [f"skipped a malformed object: {says}"]
    assert (len(snapshot.nodes), len(snapshot.pods)) == (2, 2)


@pytest.mark.parametrize("seconds", [10**18, -(10**12)])
def test_a_grace_period_beyond_all_times_does_not_keep_the_file_from_being_read(seconds: int) -> None:
    times: dict[str, Any] = {
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "deletionGracePeriodSeconds": seconds,
    }
    snapshot = snapshot_of(*CLUSTER, pod("going", **times))
    assert snapshot.now == datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()
    assert [p.name for p in snapshot.pods if p.terminating] == ["going"]


def test_what_is_nested_too_deeply_is_told_of_the_file() -> None:
    deep = json.dumps(listed(*CLUSTER, pod("bad"))).replace('"bad"', "[" * 9999 + "]" * 9999)
    with pytest.raises(ManifestError, match="stdin: lists or objects in it are nested too deeply"):
        read_snapshot(["-"], stdin=io.BytesIO(deep.encode()))


@pytest.mark.parametrize("deep", ["[", "{a: ", "- ", "? "])
def test_yaml_that_is_nested_without_end_is_refused_before_it_is_loaded(deep: str, tmp_path: Path) -> None:
    """The loader in C recurses, and would end the process."""
    path = tmp_path / "deep.yaml"
    path.write_text(deep * 100_000)
    with pytest.raises(
        ManifestError, match=r"deep.yaml:1:\d+: not valid YAML: .*nested too deeply to be read"
    ):
        read_snapshot([path])


def test_many_malformed_objects_are_counted() -> None:
    snapshot = snapshot_of(*CLUSTER, *(pod(f"bad-{i}") | {"spec": 1} for i in range(9)))
    assert told(snapshot)[5:] == ["skipped 4 more malformed objects"]


def test_an_explicit_null_is_an_absent_field() -> None:
    snapshot = snapshot_of(*CLUSTER, node("n3", spec=None), pod("web-3", resourceVersion=None, labels=None))
    assert told(snapshot) == []
    assert (len(snapshot.nodes), len(snapshot.pods)) == (3, 3)


@pytest.mark.parametrize(
    "stranger",
    [
        {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "x"}, "spec": 5},
        {"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "x", "namespace": "l"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "data": {}},
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "x"}, "status": "odd"},
    ],
    ids=lambda o: f"{o['apiVersion']} {o['kind']}",
)
def test_kinds_that_are_not_read_are_passed_over_silently(stranger: Object) -> None:
    snapshot = snapshot_of(*CLUSTER, stranger)
    assert told(snapshot) == []
    assert snapshot.kinds == {"Node", "Pod"}


def test_a_document_that_is_no_object_is_told() -> None:
    assert told(snapshot_of(*CLUSTER, {"replicaCount": 3}, {"image": {}})) == [
        "stdin: skipped 2 documents that are no Kubernetes object (no kind or metadata)"
    ]


def test_of_an_object_seen_twice_the_newest_version_counts() -> None:
    first, second = pod("web-1", on="n1", resourceVersion="100"), pod("web-1", on="n2", resourceVersion="99")
    for order in ((first, second), (second, first)):
        snapshot = snapshot_of(node("n1"), node("n2"), *order)
        assert [p.node_name for p in snapshot.pods] == ["n1"]
        assert told(snapshot) == ["1 object seen more than once: the newest resourceVersion counts"]


def test_of_versions_that_do_not_compare_the_later_counts() -> None:
    snapshot = snapshot_of(node("n1"), node("n2"), pod("web-1", on="n1"), pod("web-1", on="n2"))
    assert [p.node_name for p in snapshot.pods] == ["n2"]


def test_pods_on_nodes_that_are_missing_are_told() -> None:
    assert told(snapshot_of(*CLUSTER, pod("far", on="n9"))) == [
        "pods run on nodes that are not in the snapshot: n9; was it taken in pieces, or filtered?"
    ]


def test_an_object_without_namespace_is_in_default() -> None:
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {}}
    snapshot = snapshot_of(node("n1"), pod("web-1", namespace=None), replica_set)
    assert snapshot.pods[0].namespace == "default"
    assert snapshot.workloads[0].namespace == "default"


@pytest.mark.parametrize(
    ("what", "newest"),
    [
        (pod("p", creationTimestamp="2026-02-01T00:00:00Z"), "2026-02-01T00:00:00Z"),
        (pod("p") | {"status": {"startTime": "2026-03-01T00:00:00Z"}}, "2026-03-01T00:00:00Z"),
        (
            node(
                "n3", status={"conditions": [{"type": "Ready", "lastTransitionTime": "2026-04-01T00:00:00Z"}]}
            ),
            "2026-04-01T00:00:00Z",
        ),
        (
            pod("p", deletionTimestamp="2026-05-01T02:00:00Z", deletionGracePeriodSeconds=7200),
            "2026-05-01T00:00:00Z",
        ),
    ],
    ids=["creation", "start", "condition", "deletion, less the grace period that lies ahead"],
)
def test_the_newest_timestamp_is_the_clock(what: Object, newest: str) -> None:
    assert snapshot_of(*CLUSTER, what).now == datetime.fromisoformat(newest).timestamp()


def test_the_time_of_capture_is_the_clock_and_now_goes_before_it() -> None:
    metadata = {"annotations": {CAPTURED_AT: "1970-01-01T00:01:00Z"}}
    assert snapshot_of(*CLUSTER, metadata=metadata).now == 60
    assert snapshot_of(*CLUSTER, metadata=metadata, now=5.0).now == 5


def test_without_any_timestamp_ages_are_unknown() -> None:
    bare = {"kind": "Node", "metadata": {"name": "n1"}}
    snapshot = snapshot_of(bare, pod("p"))
    assert snapshot.now == 0
    assert "no timestamp in the snapshot: every age is unknown; --now sets the clock" in snapshot.warnings


def test_every_kind_but_nodes_and_pods_has_a_consequence() -> None:
    karpenter = snapshot_of(OF_KARPENTER, pod("p")).nodes
    said = " ".join(absences({"Node", "Pod"}, karpenter))
    # Nothing in a file shows whether its cluster has vertical autoscalers, or device classes.
    silent = {kind for kind, label in ADD_ONS.items() if not label}
    assert all(kind in said for kind in KINDS - {"Node", "Pod"} - silent)
    assert list(absences(KINDS)) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"spec": {"updatePolicy": {"updateMode": 3}}},
        {"spec": {"targetRef": {"name": "web"}}},
        {"metadata": {"name": 3}},
    ],
    ids=["mode", "target", "head"],
)
def test_vertical_autoscalers_of_which_one_is_malformed_count_as_refused(broken: Object) -> None:
    good = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "v"}}
    assert snapshot_of(*CLUSTER, good).refused == frozenset()
    assert snapshot_of(*CLUSTER, good, good | broken).refused == {"VerticalPodAutoscaler"}


def test_a_runtime_class_whose_overhead_is_no_quantity_is_left_out() -> None:
    good = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "a"}, "handler": "h"}
    broken = good | {"metadata": {"name": "b"}, "overhead": {"podFixed": {"cpu": "much"}}}
    snapshot = snapshot_of(*CLUSTER, good, broken)
    assert {name: c.handler for name, c in snapshot.runtime_classes.items()} == {"a": "h"}
    assert any("overhead.podFixed" in w for w in snapshot.warnings)


def test_node_claims_are_missed_only_where_karpenter_is() -> None:
    drifted = {"type": "Drifted", "status": "True"}
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
             "status": {"nodeName": "n1", "conditions": [drifted]}}  # fmt: skip
    elsewhere = claim | {"apiVersion": "else.where/v1"}

    def missed(*objects: Object) -> bool:
        return any("NodeClaim" in w for w in snapshot_of(*objects).warnings)

    assert not missed(*CLUSTER)
    assert missed(OF_KARPENTER, pod("p"))
    assert missed(OF_KARPENTER, pod("p"), elsewhere)
    assert not missed(OF_KARPENTER, pod("p"), claim)
    assert [c.drifted for c in snapshot_of(*CLUSTER, claim).node_claims] == [0.0]


def test_an_absent_kind_is_a_warning_with_its_consequence() -> None:
    said = [w for w in snapshot_of(*CLUSTER).warnings if "PodDisruptionBudget" in w]
    assert len(said) == 1
    assert "the API server may refuse evictions that are planned" in said[0]


def test_an_empty_typed_list_and_the_capture_s_own_list_are_evidence() -> None:
    budgets = json.dumps({"apiVersion": "policy/v1", "kind": "PodDisruptionBudgetList", "items": []})
    asked = {CAPTURED_KINDS: "Service,Node"}
    text = json.dumps(listed(*CLUSTER, annotations=asked)) + budgets
    snapshot = read_snapshot(["-"], stdin=io.BytesIO(text.encode()))
    assert snapshot.kinds == {"Node", "Pod", "PodDisruptionBudget", "Service"}
    assert snapshot.refused == KINDS - snapshot.kinds, "a capture asks for all"
    assert snapshot_of(*CLUSTER).refused == frozenset(), "a plain file does not say what was asked for"


NO_CLUSTER = [
    ("pods only", json.dumps(listed(pod("p"))), f"no Node in it (Pod); run: {KUBECTL}"),
    ("nodes only", json.dumps(listed(node("n"))), f"no Pod in it (Node); run: {KUBECTL}"),
    ("an empty List", json.dumps(listed()), "no Node in it (no Kubernetes object that is read); run: "),
    ("nothing", "", "no Node in it"),
    (
        "only malformed nodes",
        json.dumps(listed(node("n", spec=5), pod("p"))),
        "no readable Node in it: Node n: spec: ",
    ),
    ("kubectl's table", "NAME   READY   STATUS\nweb-1  1/1     Running\n", "was `-o json` left out?"),
    ("cut off", '{"kind": "List",\n "items": [', "cluster.json:2:12: not valid JSON: it ends in the middle"),
    ("bad JSON", '{"kind": "List",\n "items": [}', "cluster.json:2:12: not valid JSON: "),
    ("bad second JSON", '{"kind": "List"}\n{"a": 1,}', "cluster.json:2:9: not valid JSON: "),
    ("bad YAML", "kind: List\n  items: x: y\n", "cluster.json:2:8: not valid YAML: "),
    (
        "the API server's refusal",
        json.dumps({"kind": "Status", "metadata": {}, "status": "Failure", "message": "pods is forbidden"}),
        "the API server's answer 'pods is forbidden'",
    ),
]


@pytest.mark.parametrize(("text", "says"), [c[1:] for c in NO_CLUSTER], ids=[c[0] for c in NO_CLUSTER])
def test_what_holds_no_cluster_is_one_line_that_says_what_to_do(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    with pytest.raises(ManifestError) as caught:
        read_snapshot([path])
    message = str(caught.value)
    assert says in message
    assert message.startswith(str(path))
    assert "\n" not in message


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"gone\.json: no such file or directory"):
        read_snapshot([tmp_path / "gone.json"])
    with pytest.raises(ManifestError, match=r"no manifest in this directory; it is searched for \.json"):
        read_snapshot([tmp_path])
    packed = gzip.compress(json.dumps(listed(*CLUSTER)).encode())
    for name, data in (("cut.json.gz", packed[:-20]), ("wrong.json.gz", packed[:30] + b"xx" + packed[32:])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ManifestError, match=rf"{name}: bad gzip after \d+ bytes"):
            read_snapshot([tmp_path / name])


UID = "00000000-0000-4000-8000-00000000000"


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([pod("a", uid=UID), pod("b", uid=UID)], "Pod shop/a and Pod shop/b have the same uid"),
        (
            [
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": "kube-system", "uid": f"{UID}{i}"},
                }
                for i in range(2)
            ],
            f"Namespace kube-system has the uids {UID}0 and {UID}1: they are of several clusters",
        ),
    ],
    ids=["one uid twice", "two clusters"],
)
def test_what_cannot_be_one_cluster_is_refused(objects: list[Object], says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        snapshot_of(*CLUSTER, *objects)
    assert says in str(caught.value)
    assert "look at each cluster by itself" in str(caught.value)


def test_the_same_object_in_a_newer_version_is_the_same_object() -> None:
    snapshot = snapshot_of(*CLUSTER, *(pod("again", uid=UID, resourceVersion=str(v)) for v in (2, 1)))
    assert [p.resource_version for p in snapshot.pods if p.name == "again"] == ["2"]


def test_aliases_that_stand_for_millions_of_values_are_refused_at_once(tmp_path: Path) -> None:
    levels = "abcdefghi"
    bomb = 'a: &a ["x"]\n' + "".join(
        f"{name}: &{name} [{','.join([f'*{inner}'] * 9)}]\n" for inner, name in pairwise(levels)
    )
    (tmp_path / "bomb.yaml").write_text(bomb)
    with pytest.raises(ManifestError, match=r"bomb.yaml: its aliases \(\*name\) stand for 5[0-9,]+ values"):
        read_snapshot([tmp_path / "bomb.yaml"])
    (tmp_path / "bomb.yaml").write_text("a: &a [*a]")
    with pytest.raises(ManifestError, match="YAML that JSON cannot express"):
        read_snapshot([tmp_path / "bomb.yaml"])


def test_an_empty_name_is_not_this_directory() -> None:
    with pytest.raises(ManifestError, match="the name of a file is empty; is a variable unset"):
        read_snapshot([""])


def test_what_could_not_be_read_is_counted_by_kind() -> None:
    snapshot = snapshot_of(*CLUSTER, pod("bad") | {"spec": 1}, {"kind": "Pod", "metadata": {}})
    assert {r.kind: (r.objects, r.unreadable) for r in snapshot.reads} == {"Node": (2, 0), "Pod": (2, 2)}
