"""`rebalancer fix --apply`: Deployments that get `matchLabelKeys`, and those that are left alone."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from rebalancer.kube.errors import ConflictError, ResponseError, Target
from rebalancer.kube.patches import FIX_MANAGER, Deployments
from rebalancer.kube.resources import RESOURCES
from rebalancer.prevention.rollouts import why_not
from rebalancer.runtime.commands.fix import ROLLED_OUT, apply, wanted
from tests.support.build import nodes, objects
from tests.support.processes.command import BIN, call, environment
from tests.support.processes.forked import Program
from tests.support.rollouts import CASES, HASH
from tests.support.sandbox import Cluster, Reply
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime, connected
from tests.support.waiting import until

SPREAD = next(c for c in CASES if c.keys == {0: [HASH]})


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = SPREAD.manifest
    made["metadata"]["namespace"] = "default"
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    with Cluster([*objects(nodes(a=1, b=1, c=1)), made], ready_after=0.02, grace=0.02) as running:
        running.settle()
        yield running


def there(cluster: Cluster) -> Json:
    found: Json = cluster.store.get("Deployment", "web", "default")
    return found


def test_a_deployment_is_changed_and_rolled_out(cluster: Cluster, tmp_path: Path) -> None:
    done = call(cluster.server, tmp_path, "fix", "--apply", "default/web")
    assert done.returncode == 0, done.stderr
    assert "+ topologySpreadConstraints[0].matchLabelKeys: [pod-template-hash]" in done.stdout
    assert done.stdout.endswith(f"{ROLLED_OUT}\n")
    (constraint,) = there(cluster)["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["matchLabelKeys"] == [HASH]
    pods = cluster.store.list("Pod", "default")
    assert {p["spec"]["topologySpreadConstraints"][0]["matchLabelKeys"][0] for p in pods} == {HASH}
    again = call(cluster.server, tmp_path, "fix", "--apply", "default/web")
    assert again.stdout == "default/web: nothing is missing\n"


def test_without_apply_the_patch_is_printed_and_nothing_is_changed(cluster: Cluster, tmp_path: Path) -> None:
    before = there(cluster)
    done = call(cluster.server, tmp_path, "fix", "default/web")
    assert done.returncode == 0, done.stderr
    [command] = [x.strip() for x in done.stdout.splitlines() if x.strip().startswith("kubectl patch")]
    *head, patch = shlex.split(command)
    assert head == ["kubectl", "patch", "deployment", "web", "-n", "default", "--type", "merge", "-p"]
    [constraint] = json.loads(patch)["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["matchLabelKeys"] == [HASH]
    assert there(cluster) == before


def test_a_server_side_apply_of_a_manifest_without_the_keys_changes_nothing(cluster: Cluster) -> None:
    """A team applies what its repository says; somebody else adds the keys; it applies the same again."""
    manifest = {**SPREAD.manifest, "metadata": {"name": "web", "namespace": "default"}}
    del manifest["spec"]["replicas"]

    def applied() -> Json:
        target = Target("patch", RESOURCES["Deployment"], "default", "web")
        answer = connection.request(
            "PATCH", RESOURCES["Deployment"].path("default", "web"), target,
            query={"fieldManager": "team", "force": "true"}, body=manifest,
            content_type="application/apply-patch+yaml",
        )  # fmt: skip
        return cast(Json, json.loads(answer.body))

    with connected(cluster.server) as connection:
        applied()
        cluster.settle()
        live = Deployments(connection)
        live.set_constraints(there(cluster), list(wanted(there(cluster)).constraints))
        cluster.settle()
        before = there(cluster)
        (constraint,) = before["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert constraint["matchLabelKeys"] == [HASH]
        assert applied()["spec"] == before["spec"]
        assert there(cluster)["metadata"]["generation"] == before["metadata"]["generation"]


def test_what_somebody_has_changed_meanwhile_is_not_overwritten(cluster: Cluster) -> None:
    with connected(cluster.server) as connection:
        live = Deployments(connection)
        seen = live.get("default", "web")
        cluster.store.modify("Deployment", "web", "default", lambda o: o["spec"].update(replicas=2))
        with pytest.raises(ConflictError):
            list(apply(live, wanted(seen), FakeTime()))
    assert "matchLabelKeys" not in there(cluster)["spec"]["template"]["spec"]["topologySpreadConstraints"][0]
    assert FIX_MANAGER


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"{}", b'{"kind":"Status","metadata":{}}'])
@pytest.mark.parametrize("verb", ["get", "patch"])
def test_an_answer_that_is_no_deployment_is_an_error_that_names_it(
    verb: str, body: bytes, cluster: Cluster
) -> None:
    """As a proxy gives it, with 200."""
    with connected(cluster.server) as connection:
        live = Deployments(connection)
        seen = live.get("default", "web")
        cluster.faults.add(Reply(200, body), verb=verb, resource="deployments")
        asks = {"get": partial(live.get, "default", "web"), "patch": partial(live.set_constraints, seen, ())}
        with pytest.raises(ResponseError, match="default/web"):
            asks[verb]()


def changed(seen: Json, **changes: object) -> Json:
    made = deepcopy(seen)
    for path, value in changes.items():
        at = made
        *parents, last = path.split("__")
        for step in parents:
            at = at.setdefault(step, {})
        at[last] = value
    return made


OPERATOR = {"kind": "App", "name": "a", "controller": True}
REFUSED = [
    ("paused", {"spec__paused": True}, "paused"),
    ("rolling", {"status__updatedReplicas": 1}, "rolled out"),
    ("not seen yet", {"metadata__generation": 9}, "rolled out"),
    ("kept by Argo CD, by a label", {"metadata__labels": {"argocd.argoproj.io/instance": "x"}}, "repository"),
    ("by an annotation", {"metadata__annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "repository"),
    ("kept by Flux", {"metadata__labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}, "repository"),
    ("by a field manager", {"metadata__managedFields": [{"manager": "kustomize-controller"}]}, "repository"),
    ("managed by an operator", {"metadata__ownerReferences": [OPERATOR]}, "App a"),
    ("going", {"metadata__deletionTimestamp": "2026-01-01T00:00:00Z"}, "deleted"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "changes", "why"), REFUSED, ids=[c[0] for c in REFUSED])
def test_left_alone(case: str, changes: dict[str, object], why: str) -> None:
    assert case
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 3)
    seen = {**SPREAD.manifest, "status": {**counts, "observedGeneration": 1}}
    seen["metadata"]["generation"] = 1
    assert why_not(seen) == ""
    assert why in why_not(changed(seen, **changes))


def test_one_that_is_paused_is_named_and_ends_in_an_error(cluster: Cluster, tmp_path: Path) -> None:
    cluster.store.modify("Deployment", "web", "default", lambda o: o["spec"].update(paused=True))
    cluster.settle()
    done = call(cluster.server, tmp_path, "fix", "--apply", "default/web")
    assert done.returncode == 1
    assert "left alone: it is paused" in done.stdout
    assert done.stderr == "error: not all of them are as they should be\n"


def test_an_interrupt_while_it_waits_has_its_exit_code(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubelet.ready_after = lambda _: None
    kubeconfig = str(cluster.server.kubeconfig(tmp_path / "kubeconfig"))
    command = [str(BIN), "fix", "--apply", "default/web", "--kubeconfig", kubeconfig]
    with Program(command, stdout=subprocess.PIPE, env=environment()) as process:
        said = process.stdout
        assert said is not None
        until(lambda: "waiting for its rollout" in said.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
