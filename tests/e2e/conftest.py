"""Which cluster: the embedded one always; $KUBECONFIG's when this folder is named on the command line.

`pytest` alone never touches a real cluster, whatever the environment says. Everything that is created lies in
a namespace of its own, is labelled, and is removed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import LABEL, ZONE, Kubectl
from tests.support.clusters.cluster_objects import node
from tests.support.sandbox import Cluster

KUBECTL = shutil.which("kubectl")
HERE = Path(__file__).parent


def _named(config: pytest.Config) -> bool:
    """Whether tests/e2e itself was asked for."""
    places = [Path(a.partition("::")[0]).resolve() for a in config.args]
    return any(p == HERE or HERE in p.parents for p in places)


@pytest.fixture(params=["sandbox", "KUBECONFIG"])
def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl on the cluster, in a namespace for this test alone."""
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH")
    if request.param == "sandbox":
        zones = [node(f"{zone}-{i}", zone) for zone in "abc" for i in range(2)]
        with Cluster(zones, ready_after=0.05, grace=0.05) as cluster:
            yield from _space(Kubectl(KUBECTL, str(cluster.kubeconfig(tmp_path / "config")), tmp_path))
        return
    made = _real(request, tmp_path)
    nodes = json.loads(made("get", "nodes", "-o", "json"))["items"]
    usable = [n for n in nodes if not n["spec"].get("taints") and not n["spec"].get("unschedulable")]
    if len({n["metadata"]["labels"].get(ZONE) for n in usable} - {None}) < 3:
        pytest.skip(f"three zones ({ZONE}) with nodes for everybody are needed")
    yield from _space(made)


@pytest.fixture
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl on $KUBECONFIG's cluster, whatever nodes it has, in a namespace for this test alone."""
    yield from _space(_real(request, tmp_path))


def _real(request: pytest.FixtureRequest, tmp_path: Path) -> Kubectl:
    """Skips the test where there is none, or it was not asked for."""
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH")
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not kubeconfig:
        pytest.skip("no $KUBECONFIG: nothing to run against")
    if not _named(request.config):
        pytest.skip("a real cluster is used by `pytest tests/e2e` only")
    return Kubectl(KUBECTL, kubeconfig, tmp_path, real=True)


def _space(kubectl: Kubectl) -> Iterator[Kubectl]:
    name = f"rebalancer-e2e-{secrets.token_hex(4)}"
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": LABEL}})
    kubectl.namespace = name
    try:
        yield kubectl
    except subprocess.SubprocessError as e:
        print(getattr(e, "stderr", ""))
        raise
    finally:
        kubectl("delete", "namespace", name, "--wait=false")
