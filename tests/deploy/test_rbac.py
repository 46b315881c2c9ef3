"""Least rights: what a full run asks for is granted, what is granted is asked for, docs/rbac.md says why."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rebalancer.kube.resources import RESOURCES, kinds_within
from rebalancer.policy.release import MARK, Mark
from tests.deploy.access import ACCOUNT, Right, asked, granted
from tests.deploy.manifests import NAMESPACE, ROOT, SAME, Object, chart, pod_template, settings_in
from tests.support.build import deployment, node, objects, pdb, replica_set, stateful_set, workload
from tests.support.processes.forked import Program
from tests.support.sandbox import Cluster, Reply
from tests.support.sandbox.authority import Access
from tests.support.sandbox.custom import ADD_ONS, served

TOKEN = "token-of-the-service-account"


def controller(name: str, per_node: dict[str, int]) -> list[Object]:
    """A ReplicationController and its pods."""
    owner, *pods = objects(workload(name, "ReplicationController").spread("zone", 1).placed(per_node))
    for pod in pods:
        pod["metadata"]["labels"]["owner"] = name
    owner["spec"]["template"]["metadata"]["labels"]["owner"] = name
    return [owner, *pods]


def named() -> list[Object]:
    """A Deployment whose template names a ServiceAccount, a RuntimeClass, a PriorityClass; and these."""
    made = objects(deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] != "Pod":
            o["spec"]["template"]["spec"] |= {"serviceAccountName": "web", "runtimeClassName": "plain"}
            o["spec"]["template"]["spec"] |= {"priorityClassName": "gold"}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "web", "namespace": "default"},
    }
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "plain"}}
    rank = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
    return [*made, account, {**runtime, "handler": "runc"}, {**rank, "value": 0}]


SKEWED = objects(
    *(node(f"{zone}-0").zone(zone) for zone in "abc"),
    named(),
    replica_set("bare").spread("zone", 1).placed({"a-0": 4}),
    stateful_set("db").spread("zone", 1).placed({"a-0": 4}),
    *controller("old", {"a-0": 4}),
    pdb("web", {"app": "web"}, max_unavailable=1),
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
)
"""One workload of each kind whose pods may go; where none may, nothing is looked at before an eviction."""
RELAXED = {
    "REBALANCER_POLICY__MIN_POD_AGE": "0s",
    "REBALANCER_POLICY__PROTECT_PODS_WITHOUT_PDB": "false",
    "REBALANCER_EVICTIONS__MAX_PER_NODE": "100",
    "REBALANCER_EVICTIONS__MAX_PER_NAMESPACE": "100",
    "REBALANCER_EVICTIONS__MAX_TOTAL": "100",
    "REBALANCER_EVICTIONS__MAX_PER_OWNER": "100",
    "REBALANCER_EVICTIONS__STABILIZATION": "0s",
    "REBALANCER_EVICTIONS__COOL_DOWN": "0s",
    "REBALANCER_EVICTIONS__CANARY": "0",
    "REBALANCER_EVICTIONS__PER_SECOND": "0",
    # Known in a pod; with a kubeconfig it would be looked for.
    "REBALANCER_LEDGER__NAMESPACE": NAMESPACE,
}
"""The profile's patience would make the run long; it does not change which rights are needed."""


class Run:
    """A cluster on which an installation runs with the rights of its manifests."""

    def __init__(self, installed: list[Object], folder: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        self._folder = folder
        template = next(filter(None, map(pod_template, installed)))
        config = settings_in(installed)
        (folder / "rebalancer.yaml").write_text(config)
        arguments = template["spec"]["containers"][0]["args"]
        self._arguments = [a.replace("/etc/rebalancer", str(folder)) for a in arguments]
        self._evicts = yaml.safe_load(config)["evictions"]["enabled"]
        within = yaml.safe_load(config).get("scope", {}).get("readNamespaces", ())
        self._watches = {RESOURCES[kind].plural for kind in kinds_within(within)}
        self._steers = "prevention" in yaml.safe_load(config)

    @property
    def accesses(self) -> list[Access]:
        return asked(self.cluster.server.accesses)

    def run(self, arguments: list[str]) -> None:
        """What another container does, with the same rights."""
        self._arguments = [a.replace("/etc/rebalancer", str(self._folder)) for a in arguments]
        self.command()

    def command(self) -> None:
        """What the container does, until it has done all that it does."""
        kubeconfig = self.cluster.kubeconfig(self._folder / "kubeconfig", token=TOKEN)
        # As in a pod: the namespace of the service account.
        kubeconfig.write_text(
            kubeconfig.read_text().replace('"namespace": "default"', f'"namespace": "{NAMESPACE}"')
        )
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("REBALANCER_", "KUBECONFIG"))}
        with Program(
            [sys.executable, "-m", "rebalancer", *self._arguments, "--kubeconfig", str(kubeconfig)],
            env=clean | RELAXED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            if self._arguments[0] == "run":
                self._until(lambda: self._worked() or process.poll() is not None)
                process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said

    def _worked(self) -> bool:
        if self._evicts:
            pods = self.cluster.store.list("Pod", "default")
            places = [p["spec"].get("nodeName") for p in pods if p["metadata"]["labels"].get("app") == "db"]
            return len(set(places)) == 3
        watched = {a.resource for a in self.accesses if a.verb == "watch" and a.code == 200}
        read = {a.name for a in self.accesses if a.verb == "get" and a.resource == "configmaps"}
        return (
            watched >= self._watches
            and read >= {"rebalancer-brake", "rebalancer-ledger"}
            and (not self._steers or any(a.verb == "patch" for a in self.accesses))
        )

    @staticmethod
    def _until(done: Callable[[], bool], seconds: float = 240) -> None:
        end = time.monotonic() + seconds
        while not done() and time.monotonic() < end:
            time.sleep(0.1)


@contextmanager
def installed(values: Object, folder: Path) -> Iterator[tuple[Run, list[Right]]]:
    made = chart(values)
    there = [o for o in made if "rbac.authorization.k8s.io" in o["apiVersion"] or o["kind"] == "ConfigMap"]
    with (
        served(*ADD_ONS),
        Cluster(
            [*SKEWED, *there],
            ready_after=0.02,
            grace=0.02,
            tokens={TOKEN: ACCOUNT},
            authenticate=True,
        ) as cluster,
    ):
        cluster.settle()
        yield Run(made, folder, cluster), granted(made)


RUNS = {name: values for name, values in SAME.items() if name != "monitoring"} | {
    "cronjob-evicting in one namespace": {
        "mode": "cronjob",
        "evictions": {"enabled": True, "namespaces": ["default"]},
    },
    "daemon that steers scale-ins": {"prevention": {"scaleIn": "all"}},
    "cronjob that steers scale-ins": {"mode": "cronjob", "prevention": {"scaleIn": "all"}},
}


WITHIN = {"rbac": {"namespaces": ["default", "pay"]}, "config": {"planner": {"certainty": "likely"}}}
ONLY_THERE = {
    "report of some namespaces": {"mode": "report", **WITHIN},
    "daemon in some namespaces": WITHIN,
    "daemon-evicting in some namespaces": {"evictions": {"enabled": True}, **WITHIN},
}


FIRST: Object = {"evictions": {"enabled": True}, "replaceFirst": {"enabled": True}}
GRANTED = [*RUNS.values(), FIRST]
"""With kinds that this server does not serve, so that nobody asks for them."""


@pytest.mark.parametrize("name", ONLY_THERE)
def test_an_installation_of_some_namespaces_asks_for_nothing_elsewhere(name: str, tmp_path: Path) -> None:
    with installed(ONLY_THERE[name], tmp_path) as (run, rights):
        run.command()
        accesses = run.accesses
    refused = {(a.verb, a.resource, a.name) for a in accesses if a.code == 403}
    named = {("get", "runtimeclasses", "plain"), ("get", "priorityclasses", "gold")}
    leases = {("get", "leases", name) for name in ("kube-scheduler", "kube-controller-manager")}
    assert refused <= leases | named
    wide = {a.resource for a in accesses if not a.namespace and a.resource != "namespaces"}
    assert wide <= {"runtimeclasses", *(r.plural for r in RESOURCES.values() if not r.namespaced)}
    assert {a.namespace for a in accesses} <= {"", "default", "pay", NAMESPACE, "kube-system"}
    everywhere = {r.resource for r in rights if not r.namespace}
    assert everywhere == {r.plural for r in RESOURCES.values() if not r.namespaced}


def test_of_the_namespaces_that_are_read_only_those_in_scope_may_be_evicted_from() -> None:
    narrow = {
        **FIRST,
        "evictions": {"enabled": True, "namespaces": ["pay"]},
        "prevention": {"scaleIn": "all"},
    }
    rights = granted(chart({**narrow, **WITHIN}))
    harm = {("create", "pods/eviction"), ("patch", "pods")}
    assert {r.namespace for r in rights if (r.verb, r.resource) in harm} == {"pay"}
    assert {r.namespace for r in rights if (r.verb, r.resource) == ("list", "pods")} == {"default", "pay"}


@pytest.mark.parametrize("name", RUNS)
def test_every_right_is_used_and_none_is_missing(name: str, tmp_path: Path) -> None:
    with installed(RUNS[name], tmp_path) as (run, rights):
        # A server without streaming lists: the daemon pages its lists, and watches from there.
        for resource in RESOURCES.values():
            run.cluster.faults.add(Reply(422), verb="watch", resource=resource.plural, times=1)
        run.command()
        accesses = run.accesses
    refused = sorted(
        {(a.verb, a.group, a.resource, a.subresource, a.namespace) for a in accesses if a.code == 403}
    )
    assert not refused, "asked for and not granted"
    unused = [r for r in rights if not any(r.covers(a) for a in accesses)]
    assert not unused, "granted and never asked for"


def test_pods_are_replaced_first_with_these_rights(tmp_path: Path) -> None:
    values = {"mode": "cronjob", **FIRST, "config": {"evictions": {"method": "replaceFirst"}}}
    with installed(values, tmp_path) as (run, _):
        run.command()
        assert not [a for a in run.accesses if a.code == 403]
        assert any(a.verb == "patch" and a.resource == "pods" and a.code == 200 for a in run.accesses)
        assert all("released" not in str(p["metadata"]) for p in run.cluster.store.list("Pod"))


def test_before_an_uninstall_released_pods_are_given_back_with_these_rights(tmp_path: Path) -> None:
    values = {"mode": "cronjob", **FIRST}
    with installed(values, tmp_path) as (run, _):
        release(run.cluster)
        [hook] = [o for o in chart(values) if o["kind"] == "Job"]
        run.run(hook["spec"]["template"]["spec"]["containers"][0]["args"])
        refused = {(a.verb, a.resource, a.namespace) for a in run.accesses if a.code == 403}
        # Other installations, and who runs, are looked for as well.
        assert refused == {("list", "leases", NAMESPACE), ("list", "configmaps", NAMESPACE)}
        assert MARK not in str(run.cluster.store.list("Pod"))
        assert len({p["metadata"]["labels"].get("pod-template-hash") for p in web_pods(run.cluster)}) == 1
        brake = run.cluster.store.get("ConfigMap", "rebalancer-brake", NAMESPACE)
        assert brake["metadata"]["annotations"]["rebalancer.io/pause"].endswith("helm uninstall")


def web_pods(cluster: Cluster) -> list[Object]:
    return [p for p in cluster.store.list("Pod") if p["metadata"]["labels"].get("app") == "web"]


def release(cluster: Cluster) -> None:
    """As replace first does."""

    def change(pod: Object) -> None:
        metadata = pod["metadata"]
        mark = Mark(
            label="pod-template-hash",
            value=metadata["labels"].pop("pod-template-hash"),
            replica_set=metadata["ownerReferences"][0]["uid"],
            pod=metadata["uid"],
            at=1,
            by=f"ConfigMap {NAMESPACE}/rebalancer-ledger",
        )
        metadata.setdefault("annotations", {})[MARK] = str(mark)

    cluster.store.modify("Pod", web_pods(cluster)[0]["metadata"]["name"], "default", change)
    cluster.settle()
    assert len(web_pods(cluster)) == 5


def test_a_missing_right_is_noticed(tmp_path: Path) -> None:
    with installed(SAME["report"], tmp_path) as (run, _):
        role = run.cluster.store.get("ClusterRole", "rebalancer-read", None)
        kept = [r for r in role["rules"] if "jobs" not in r["resources"]]
        run.cluster.store.modify("ClusterRole", "rebalancer-read", None, lambda o: o.update(rules=kept))
        run.command()
        assert [a.resource for a in run.accesses if a.code == 403] == ["jobs"]


def test_no_role_has_a_wildcard_or_reads_secrets() -> None:
    for values in GRANTED:
        for right in granted(chart(values)):
            assert "*" not in right
            assert right.resource not in ("secrets", "pods/exec", "serviceaccounts/token")
            assert right.verb not in ("delete", "deletecollection", "impersonate", "bind", "escalate")
            patches = right.resource == "pods" and not values.keys().isdisjoint(
                {"prevention", "replaceFirst"}
            )
            assert right.verb != "patch" or patches


def test_what_is_written_is_an_eviction_an_event_or_lies_in_the_own_namespace() -> None:
    for values in RUNS.values():
        for right in granted(chart(values)):
            if right.verb in ("create", "update"):
                free = right.resource in ("pods/eviction", "events")
                assert free or right.namespace == NAMESPACE


def test_the_page_has_every_rule() -> None:
    page = (ROOT / "docs" / "rbac.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    told = {
        (role, verb, resource)
        for role, _, resources, verbs in rows
        for resource in re.findall(r"`([^`]+)`", resources)
        for verb in re.findall(r"`([^`]+)`", verbs)
    }
    there = {
        (r.role, r.verb, f"{r.resource}.{r.group}" if r.group else r.resource)
        for values in GRANTED
        for r in granted(chart(values))
    }
    assert told == there
