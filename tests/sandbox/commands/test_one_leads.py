"""`rebalancer once --execute` beside others: the lease decides, wherever the installation is."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.leases import LEDGER
from rebalancer.policy.annotations import FOR_RUN
from tests.support.build import objects
from tests.support.processes.command import BIN, call, environment, moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.processes.forked import Program
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer, Delay, Fault, Reply, Until
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


def stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def held(server: ApiServer, renewed: datetime, namespace: str = "default", **labels: str) -> None:
    """A lease that somebody called `other` holds."""
    spec = {
        "holderIdentity": "other",
        "leaseDurationSeconds": 1,
        "leaseTransitions": 7,
        "renewTime": stamp(renewed),
    }
    meta: dict[str, Any] = {"name": "rebalancer", "namespace": namespace, "labels": labels}
    server.store.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
    )


def holder(server: ApiServer) -> str:
    name: str = server.store.get("Lease", "rebalancer", "default")["spec"]["holderIdentity"]
    return name


def test_once_takes_the_lease_and_gives_it_back(server: ApiServer, tmp_path: Path) -> None:
    with moving(server):
        done = call(server, tmp_path, "once", "--execute")
    assert done.returncode == 0, done.stderr
    assert evictions(server) == 4
    assert holder(server) == ""
    ledger = server.store.get("ConfigMap", "rebalancer-ledger", "default")["data"]["ledger.json"]
    assert '"claims"' not in ledger


def test_once_without_evictions_needs_no_lease(server: ApiServer, tmp_path: Path) -> None:
    held(server, datetime.now(UTC))
    assert call(server, tmp_path, "once").returncode == 0
    assert holder(server) == "other"


SOON = "leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}"


def patient(folder: Path) -> str:
    """Settings with which a holder that may be dead is waited for longer than a test lasts."""
    (folder / "patient.yaml").write_text("leaderElection: {leaseDuration: 10m, renewDeadline: 5m}")
    return str(folder / "patient.yaml")


def test_once_ends_at_once_and_names_who_leads(server: ApiServer, tmp_path: Path) -> None:
    held(server, datetime.now(UTC))
    done = call(server, tmp_path, "once", "--execute", "--config", patient(tmp_path))
    assert done.returncode == 1
    assert "other leads by lease default/rebalancer" in done.stderr
    assert "--wait" in done.stderr
    assert evictions(server) == 0


def test_a_holder_that_died_long_ago_is_waited_for_and_followed(server: ApiServer, tmp_path: Path) -> None:
    held(server, datetime.now(UTC) - timedelta(hours=1))
    (tmp_path / "c.yaml").write_text(SOON)
    with moving(server):
        done = call(server, tmp_path, "once", "--execute", "--config", str(tmp_path / "c.yaml"))
    assert done.returncode == 0, done.stderr
    assert evictions(server) == 4


def test_a_lease_that_a_person_cleared_is_not_waited_for_without_end(
    server: ApiServer, tmp_path: Path
) -> None:
    held(server, datetime.now(UTC))
    server.store.modify(
        "Lease",
        "rebalancer",
        "default",
        lambda o: o["spec"].update(holderIdentity="", leaseDurationSeconds=3600),
    )
    (tmp_path / "c.yaml").write_text(
        "leaderElection: {leaseDuration: 2s, renewDeadline: 1s, retryPeriod: 100ms}"
    )
    done = call(server, tmp_path, "once", "--execute", "--config", str(tmp_path / "c.yaml"))
    assert done.returncode == 1
    assert "has no holder and was not handed back" in done.stderr
    assert "--wait" in done.stderr
    assert evictions(server) == 0


def test_once_waits_until_the_daemon_does_not_lead_any_more(server: ApiServer, tmp_path: Path) -> None:
    with moving(server), daemon(server, tmp_path / "daemon", BRISK, "--execute") as d:
        until(lambda: "this instance leads" in d.said())
        refused = call(server, tmp_path, "once", "--execute")
        assert refused.returncode == 1
        assert "leads by lease" in refused.stderr
        command = [str(BIN), "once", "--execute", "--wait"]
        command += ["--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
        with Program(command, stdout=subprocess.PIPE, env=environment()) as once:
            time.sleep(1.5)
            assert once.poll() is None
            d.popen.send_signal(signal.SIGTERM)
            said, _ = once.communicate(timeout=240)
            assert once.returncode == 0, said


def test_once_on_a_laptop_meets_the_daemon_in_another_namespace(server: ApiServer, tmp_path: Path) -> None:
    server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
    labels = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/component": "lease"}
    held(server, datetime.now(UTC), "ops", **labels)
    done = call(server, tmp_path, "once", "--execute")
    assert done.returncode == 1
    assert "other leads by lease ops/rebalancer" in done.stderr


@pytest.mark.parametrize("later", [False, True], ids=["leads", "begins when this one does"])
def test_who_leads_by_a_clock_that_is_far_behind_is_seen(later: bool, tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
        (tmp_path / "c.yaml").write_text(SOON)
        ended = threading.Event()

        def renew(o: dict[str, Any]) -> None:
            o["spec"]["renewTime"] = stamp(datetime.now(UTC) - timedelta(minutes=15))

        def lead() -> None:
            until(lambda: not later or bool(server.store.list("Lease")))
            held(server, datetime.now(UTC) - timedelta(minutes=15), "ops")
            while not ended.wait(0.2):
                server.store.modify("Lease", "rebalancer", "ops", renew)

        other = threading.Thread(target=lead)
        other.start()
        there = Until(lambda: server.store.find("Lease", "rebalancer", "ops") is not None)
        server.faults.add(there, verb="list", resource="leases", skip=2 * later)
        done = call(server, tmp_path, "once", "--execute", "--config", str(tmp_path / "c.yaml"))
        ended.set()
        other.join()
        assert done.returncode == 1
        assert "other leads by lease ops/rebalancer" in done.stderr
        assert evictions(server) == 0


def test_of_several_installations_one_has_to_be_named(server: ApiServer, tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/component": "lease"}
    for namespace in ("ops", "dev"):
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        held(server, datetime.now(UTC), namespace, **labels)
    done = call(server, tmp_path, "once", "--execute")
    assert done.returncode == 1
    assert "several rebalancers" in done.stderr
    for namespace in ("ops", "dev"):
        assert f"other leads by lease {namespace}/rebalancer" in done.stderr
    assert "--ledger-namespace" in done.stderr
    assert evictions(server) == 0
    named = call(server, tmp_path, "once", "--execute", "--ledger-namespace", "ops")
    assert named.stderr.startswith("error: other leads by lease ops/rebalancer"), named.stderr


def made(server: ApiServer, component: str, namespace: str, name: str, **more: Any) -> None:
    """A ConfigMap with the labels of one of ours, in a namespace that is made for it."""
    if not server.store.find("Namespace", namespace, None):
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    labels = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/component": component}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    server.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more})


def homes(server: ApiServer) -> set[str]:
    """The namespaces in which something was written."""
    return {
        a.namespace
        for a in server.accesses
        if a.verb in ("create", "update") and a.resource in ("configmaps", "leases")
    }


def installation(namespace: str) -> dict[str, Any]:
    """By this an administrator lets one in."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "rebalancer-evict", "labels": {"app.kubernetes.io/name": "rebalancer"}},
        "roleRef": {"kind": "ClusterRole", "name": "rebalancer-evict"},
        "subjects": [{"kind": "ServiceAccount", "name": "rebalancer", "namespace": namespace}],
    }


def test_a_tenants_ledger_and_lease_divert_nobody(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        made(server, "brake", "ops", "rebalancer-brake")
        made(server, "ledger", "tenant", "mine", data={"ledger.json": '{"version":1}'})
        labels = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/component": "lease"}
        held(server, datetime.now(UTC) - timedelta(hours=1), "tenant", **labels)
        done = call(server, tmp_path, "once", "--execute")
        assert done.returncode == 0, done.stderr
        assert evictions(server) == 4
        assert homes(server) == {"ops"}
        brakes = server.store.list("ConfigMap")
        assert [b["metadata"]["namespace"] for b in brakes if "data" not in b] == ["ops"]


def test_whom_an_administrator_let_in_counts_before_everything_that_looks_like_it(tmp_path: Path) -> None:
    with ApiServer([*objects(*SKEWED), installation("ops")], brake=False) as server, moving(server):
        made(server, "brake", "ops", "ops-brake")
        made(server, "brake", "tenant", "rebalancer-brake")
        held(server, datetime.now(UTC), "tenant")
        done = call(server, tmp_path, "once", "--execute")
        assert done.returncode == 0, done.stderr
        assert evictions(server) == 4
        assert homes(server) == {"ops"}


def test_whom_an_administrator_let_in_counts_also_where_its_brake_is_gone(tmp_path: Path) -> None:
    """Nothing else of it can be seen, and a tenant has what looks like one."""
    with ApiServer([*objects(*SKEWED), installation("ops")], brake=False) as server, moving(server):
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
        made(server, "brake", "tenant", "rebalancer-brake")
        done = call(server, tmp_path, "once", "--execute")
        assert "ConfigMap ops/rebalancer-brake, by which people pause evictions, is missing" in " ".join(
            f"{done.stdout} {done.stderr}".split()
        )
        assert evictions(server) == 0
        assert homes(server) <= {"ops"}


@pytest.mark.parametrize("seen", [True, False], ids=["it is seen", "it may not be seen"])
def test_an_installation_that_lost_its_brake_evicts_nothing_where_its_namespace_is_named(
    seen: bool, tmp_path: Path
) -> None:
    with ApiServer([*objects(*SKEWED), installation("ops")], brake=False) as server, moving(server):
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
        if not seen:
            server.faults.add(Reply(403), verb="list", resource="clusterrolebindings")
        done = call(server, tmp_path, "once", "--execute", "--ledger-namespace", "ops")
        assert "ConfigMap ops/rebalancer-brake, by which people pause evictions, is missing" in " ".join(
            f"{done.stdout} {done.stderr}".split()
        )
        assert evictions(server) == 0


@pytest.mark.parametrize("command", ["once", "run"])
@pytest.mark.parametrize(
    ("refused", "granted", "home"),
    [
        (["clusterrolebindings"], True, ""),
        (["clusterrolebindings", "configmaps"], True, "default"),
        (["clusterrolebindings", "configmaps", "leases"], True, "rebalancer"),
        (["configmaps"], False, "default"),
    ],
    ids=["its brake is gone", "a brake is here", "a brake is at the usual place", "only Roles let it in"],
)
def test_where_an_installation_elsewhere_cannot_be_seen_its_namespace_has_to_be_named(
    refused: list[str], granted: bool, home: str, command: str, tmp_path: Path
) -> None:
    things = [*objects(*SKEWED), *([installation("ops")] if granted else [])]
    with ApiServer(things, brake=False) as server, moving(server):
        made(server, "brake" if home else "other", "ops", "rebalancer-brake" if home else "unrelated")
        server.store.modify(
            "ConfigMap",
            "rebalancer-brake" if home else "unrelated",
            "ops",
            lambda o: o["metadata"].update(annotations={"rebalancer.io/pause": "incident"}),
        )
        if home:
            made(server, "brake", home, "rebalancer-brake")
        for resource in refused:
            server.faults.add(Reply(403), verb="list", resource=resource)
        done = call(server, tmp_path, command, "--execute")
        assert done.returncode == 1
        assert "where this cluster's rebalancers are cannot be seen" in done.stderr
        assert "--ledger-namespace" in done.stderr
        assert evictions(server) == 0
        assert not homes(server)


def test_where_it_cannot_be_told_whose_brake_it_is_nobody_is_evicted(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        made(server, "brake", "tenant", "mine")
        for _ in range(2):
            done = call(server, tmp_path, "once", "--execute")
            assert done.returncode == 1
            assert "ConfigMap tenant/mine" in done.stderr
            assert "--ledger-namespace" in done.stderr
            assert evictions(server) == 0
            assert not homes(server)
            if not server.store.find("Namespace", "ops", None):
                made(server, "brake", "ops", "rebalancer-brake")
        assert call(server, tmp_path, "once").returncode == 1, "nor is it told what would be"
        named = call(server, tmp_path, "once", "--execute", "--ledger-namespace", "ops")
        assert named.returncode == 0, named.stderr
        assert evictions(server) == 4


def test_two_runs_where_nothing_is_installed_know_of_each_other(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        server.faults.add(Delay(0.5), subresource="eviction")
        command = [str(BIN), "once", "--execute", "--wait"]
        command += ["--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
        both = [Program(command, stdout=subprocess.PIPE, env=environment()) for _ in range(2)]
        said = [process.communicate(timeout=240)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        assert evictions(server) == 4
        assert [m["metadata"]["name"] for m in server.store.list("ConfigMap")] == ["rebalancer-ledger"]
        assert not server.store.list("Lease")


def test_a_run_that_looks_while_the_first_one_begins_does_not_take_it_for_one_that_lost_its_brake(
    tmp_path: Path,
) -> None:
    """It saw no brake, and then the lease that came right after that."""
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        begun = Until(lambda: bool(server.store.list("Lease")))
        looks = server.faults.add(begun, verb="list", resource="leases", times=1)
        command = [str(BIN), "once", "--execute", "--wait"]
        command += ["--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
        with Program(command, stderr=subprocess.PIPE, env=environment()) as second:
            until(lambda: looks.hits > 0)
            assert call(server, tmp_path, "once", "--execute").returncode == 0
            said = second.communicate(timeout=240)[1]
        assert second.returncode == 0, said
        assert "brake" not in said
        assert [m["metadata"]["name"] for m in server.store.list("ConfigMap")] == ["rebalancer-ledger"]
        assert not server.store.list("Lease")


def both_look_at_once(server: ApiServer, resource: str) -> None:
    """Each has looked around before the other's brake is there, and looks again when both have created theirs
    of `resource`."""
    rules: list[Fault] = []
    for namespace in ("default", "ops"):
        met = Until(lambda: all(rule.hits for rule in rules))
        about = {"verb": "create", "resource": "configmaps", "namespace": namespace, "times": 1}
        rules.append(server.faults.add(met, **about))

    def both() -> bool:
        made = {a.namespace for a in server.accesses if (a.verb, a.resource) == ("create", resource)}
        return len(made) != 1

    server.faults.add(Until(both), verb="list", resource=resource)


def in_each_namespace(server: ApiServer, tmp_path: Path, command: str) -> Iterator[Program]:
    """The command begun from a context of each namespace, with the settings c.yaml."""
    for namespace in ("default", "ops"):
        kubeconfig = server.kubeconfig(tmp_path / namespace)
        kubeconfig.write_text(kubeconfig.read_text().replace('"default"', f'"{namespace}"'))
        options = ["--execute", "--config", str(tmp_path / "c.yaml"), "--kubeconfig", str(kubeconfig)]
        yield Program([str(BIN), command, *options], stderr=subprocess.PIPE, env=environment())


@pytest.mark.parametrize("one_sees", [False, True], ids=["each sees the other", "one sees the other"])
def test_of_two_first_runs_of_two_namespaces_one_evicts(one_sees: bool, tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        made(server, "other", "ops", "unrelated")
        if one_sees:
            create = {"verb": "create", "resource": "configmaps", "times": 1}
            acts = Until(lambda: evictions(server) > 0)
            looked = server.faults.add(acts, namespace="default", **create)
            server.faults.add(Until(lambda: looked.hits > 0), namespace="ops", **create)
            ended = Until(lambda: both[0].poll() is not None)
            server.faults.add(ended, subresource="eviction", skip=1)
        else:
            both_look_at_once(server, "leases")
        both: list[Program] = []
        (tmp_path / "c.yaml").write_text("evictions: {perSecond: 0}\n" + (SOON if one_sees else ""))
        both += in_each_namespace(server, tmp_path, "once")
        said = [process.communicate(timeout=240)[1] for process in both]
        goes_on, ends = ("ops", 0) if one_sees else ("default", 1)
        assert both[1 - ends].returncode == 0, said
        assert both[ends].returncode == 1, said
        assert f"leads by lease {goes_on}/rebalancer; nothing is done" in said[ends]
        assert evictions(server) == 4
        ledgers = [m["metadata"] for m in server.store.list("ConfigMap") if "data" in m]
        assert [m["namespace"] for m in ledgers] == [goes_on]
        assert not server.store.list("Lease")


def test_of_two_first_daemons_of_two_namespaces_one_stays(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        made(server, "other", "ops", "unrelated")
        (tmp_path / "c.yaml").write_text(BRISK)
        both_look_at_once(server, "configmaps")
        both = list(in_each_namespace(server, tmp_path, "run"))
        stays, ends = both
        try:
            said = ends.communicate(timeout=60)[1]
            assert ends.returncode == 1, said
            assert "ConfigMap default/rebalancer-brake; nothing is done" in said
            until(lambda: evictions(server) == 4)
            assert stays.poll() is None
        finally:
            for process in both:
                process.kill()
            stays.communicate()
            ends.wait()
        ours = [m["metadata"] for m in server.store.list("ConfigMap") if m["metadata"]["name"] != "unrelated"]
        assert {m["namespace"] for m in ours} == {"default"}


def test_a_run_where_nothing_is_installed_makes_its_brake_before_its_lease(tmp_path: Path) -> None:
    """In between, another run would take the lease for one of an installation that has lost its brake."""
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        made = [a.resource for a in server.accesses if a.verb == "create"]
        assert made.index("configmaps") < made.index("leases")


@pytest.mark.parametrize("refused", [["leases"], ["leases", "configmaps"]], ids=" and ".join)
def test_a_run_that_may_not_take_its_lease_away_leaves_its_brake_for_the_next(
    refused: list[str], tmp_path: Path
) -> None:
    """A lease alone would look like an installation that lost its brake. Who may take away both does so."""
    (tmp_path / "c.yaml").write_text("evictions: {maxTotal: 1}")
    run = ("once", "--execute", "--config", str(tmp_path / "c.yaml"))
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        for resource in refused:
            server.faults.add(Reply(403), verb="delete", resource=resource)
        for times in (1, 2):
            done = call(server, tmp_path, *run)
            assert done.returncode == 0, done.stderr
            assert evictions(server) == times
            assert "lease default/rebalancer stays" in done.stderr
            brake = server.store.get("ConfigMap", "rebalancer-brake", "default")
            assert list(brake["metadata"]["annotations"]) == [FOR_RUN]
        server.faults.clear()
        assert call(server, tmp_path, *run).returncode == 0
        assert evictions(server) == 3
        assert [m["metadata"]["name"] for m in server.store.list("ConfigMap")] == ["rebalancer-ledger"]
        assert not server.store.list("Lease")


def test_what_a_run_left_holds_the_next_where_somebody_took_its_brake_away(tmp_path: Path) -> None:
    """So does a daemon that was stopped: it hands its lease back, too."""
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        held(server, datetime.now(UTC))
        server.store.modify("Lease", "rebalancer", "default", lambda o: o["spec"].update(holderIdentity=""))
        done = call(server, tmp_path, "once", "--execute")
        assert "by which people pause evictions, is missing" in done.stdout + done.stderr
        assert evictions(server) == 0
        assert call(server, tmp_path, "resume").returncode == 0
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4


def two_an_hour(folder: Path, ledger: str, mode: str = "configMap") -> tuple[str, ...]:
    """A run with a ledger of this name."""
    config = folder / f"{ledger}.yaml"
    config.write_text(f"ledger: {{name: {ledger}, mode: {mode}}}\nevictions: {{maxTotalPerHour: 2}}\n")
    return "once", "--execute", "--config", str(config)


def named(server: ApiServer) -> str | None:
    """The ledger by which the holders of the lease act, as it says."""
    noted: dict[str, str] = server.store.get("Lease", "rebalancer", "default")["metadata"]["annotations"]
    return noted.get(LEDGER)


def test_by_one_lease_caps_are_counted_in_one_ledger(server: ApiServer, tmp_path: Path) -> None:
    with moving(server):
        call(server, tmp_path, *two_an_hour(tmp_path, "one"))
        assert (evictions(server), named(server)) == (2, "default/one")
        for _ in range(2):
            other = call(server, tmp_path, *two_an_hour(tmp_path, "other"))
            said = " ".join(f"{other.stdout} {other.stderr}".split())
            assert evictions(server) == 2, said
            assert (
                "by lease default/rebalancer evictions are counted in ConfigMap default/one, and here" in said
            )
            assert "in ConfigMap default/other" in said
            assert "ledger.name" in said
            assert "kubectl -n default annotate lease rebalancer rebalancer.io/ledger-" in said
        assert named(server) == "default/one"
        server.store.modify(
            "Lease", "rebalancer", "default", lambda o: o["metadata"]["annotations"].pop(LEDGER)
        )
        call(server, tmp_path, *two_an_hour(tmp_path, "other"))
        assert (evictions(server), named(server)) == (4, "default/other")


def test_a_run_without_a_ledger_does_not_go_on_where_one_was_kept(server: ApiServer, tmp_path: Path) -> None:
    in_memory = two_an_hour(tmp_path, "none", "memory")
    with moving(server):
        call(server, tmp_path, *two_an_hour(tmp_path, "one"))
        other = call(server, tmp_path, *in_memory)
        said = " ".join(f"{other.stdout} {other.stderr}".split())
        assert evictions(server) == 2, said
        assert "evictions are counted in ConfigMap default/one, and here in memory" in said
        assert "ledger.mode: configMap" in said
        assert named(server) == "default/one"
        server.store.modify(
            "Lease", "rebalancer", "default", lambda o: o["metadata"]["annotations"].pop(LEDGER)
        )
        call(server, tmp_path, *in_memory)
        assert (evictions(server), named(server)) == (4, None)


def test_a_daemon_beside_a_lease_of_another_ledger_says_so_and_evicts_nothing(
    server: ApiServer, tmp_path: Path
) -> None:
    held(server, datetime.now(UTC) - timedelta(hours=1))
    server.store.modify(
        "Lease", "rebalancer", "default", lambda o: o["metadata"].update(annotations={LEDGER: "default/one"})
    )
    with moving(server), daemon(server, tmp_path / "daemon", BRISK, "--execute") as d:
        until(lambda: d.said().count("cycle over (held)") >= 2)
        assert "counted in ConfigMap default/one, and here in ConfigMap default/rebalancer-ledger" in d.said()
    assert evictions(server) == 0
    assert named(server) == "default/one"
