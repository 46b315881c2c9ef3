"""`rebalancer pause` and `resume` as a person types them, and who heeds them."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.kube.config_maps import Place
from rebalancer.kube.election import Elector
from rebalancer.kube.leases import SEEN
from rebalancer.policy.annotations import FOR_RUN, PAUSE, paused_domains, pauses_until
from rebalancer.runtime.commands import pausing
from rebalancer.settings import load_settings
from tests.support.build import deployment, nodes, objects
from tests.support.processes.command import BIN, call, environment, moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.processes.forked import Program
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer, Cluster, Delay, Garbage, Reply
from tests.support.sandbox.authority import User
from tests.support.servers.api import connected
from tests.support.waiting import until

LABELS = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/component": "brake"}
DECOY = ("tenant", "settings")
REAL = ("ops", "rebalancer-brake")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


def said(server: ApiServer, namespace: str = "default", name: str = "rebalancer-brake") -> str | None:
    """What the brake says."""
    there = server.store.get("ConfigMap", name, namespace)
    value: str | None = (there["metadata"].get("annotations") or {}).get(PAUSE)
    return value


def brake(server: ApiServer, namespace: str, name: str, labels: Mapping[str, str] = LABELS) -> None:
    """A brake, in a namespace that is made for it."""
    if not server.store.find("Namespace", namespace, None):
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    meta = {"name": name, "namespace": namespace, "labels": dict(labels)}
    server.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})


def lease(
    server: ApiServer, namespace: str, *, holder: str, age: float = 0.0, lasts: int = 15, seen: str = ""
) -> None:
    """A lease that `holder` has renewed `age` seconds ago."""
    renewed = datetime.now(UTC) - timedelta(seconds=age)
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": lasts,
        "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    meta = {"name": "rebalancer", "namespace": namespace, "annotations": {SEEN: seen} if seen else {}}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    server.store.create({**kind, "metadata": meta, "spec": spec})


def paused_now(server: ApiServer, **options: Any) -> pausing.Done:
    """`pause`, with less patience."""
    with connected(server) as connection:
        return pausing.pause_all(
            load_settings(env={}), connection, lambda _: "incident", **{"patience": 0.0, **options}
        )


def test_a_pause_holds_once_and_ends_with_resume(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--reason", "incident 4711")
    assert done.stdout == (
        "evictions are paused until `rebalancer resume`: ConfigMap default/rebalancer-brake\n"
    ), done.stderr
    assert said(server) == "incident 4711"
    with moving(server):
        held = call(server, tmp_path, "once", "--execute")
        assert held.returncode == 0
        assert "incident 4711" in held.stdout
        assert evictions(server) == 0
        over = call(server, tmp_path, "resume")
        assert (
            over.stdout == "the pause is over: ConfigMap default/rebalancer-brake (it said: incident 4711)\n"
        ), over.stderr
        assert call(server, tmp_path, "once", "--execute").returncode == 0
    assert evictions(server) == 4


def test_a_shorter_pause_ends_no_longer_one(server: ApiServer, tmp_path: Path) -> None:
    assert call(server, tmp_path, "pause", "--reason", "incident 4711").returncode == 0
    done = call(server, tmp_path, "pause", "--for", "30m", "--reason", "node maintenance")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "evictions are paused: ConfigMap default/rebalancer-brake",
        (
            "it was paused already, and for as long or longer; that stays: "
            "ConfigMap default/rebalancer-brake: incident 4711"
        ),
    ]
    assert re.fullmatch(r"incident 4711 / also: \S+Z node maintenance", str(said(server))), (
        "who ends one ends both"
    )
    for lasts, reason in (("1h", "incident 4711"), ("1h", "incident 471"), ("2h", "incident 471")):
        assert call(server, tmp_path, "pause", "--for", lasts, "--reason", reason).returncode == 0
        assert str(said(server)).startswith("incident 4711 / also: "), (
            "the reason is the same, the end is not"
        )
    assert call(server, tmp_path, "pause", "--reason", "incident 4711").returncode == 0
    reasons = [r.rpartition("Z ")[2] for r in str(said(server)).split(" / also: ")]
    assert reasons == ["incident 4711", "incident 471", "node maintenance"], "each once, the longest first"
    assert call(server, tmp_path, "resume").returncode == 0
    assert call(server, tmp_path, "pause", "--for", "1h", "--reason", "first").returncode == 0
    first = said(server)
    assert call(server, tmp_path, "pause", "--reason", "second").returncode == 0
    assert said(server) == f"second / also: {first}", "who ends it has to know"


@pytest.mark.parametrize(
    "domain", [(), ("--domain", "topology.kubernetes.io/zone=b")], ids=["all", "a domain"]
)
def test_a_pause_without_a_reason_ends_in_time_beside_another(
    domain: tuple[str, ...], server: ApiServer, tmp_path: Path
) -> None:
    for more in (("--for", "2h"), ("--for", "1h", "--reason", "x")):
        assert call(server, tmp_path, "pause", *domain, *more).returncode == 0
    there = server.store.get("ConfigMap", "rebalancer-brake", "default")["metadata"]["annotations"]
    (value,) = there.values()
    assert value.endswith(" x")
    assert paused_domains(there, 0.0).keys() == {d for d in domain if "=" in d}
    end = max((ends for _, ends in paused_domains(there, 0.0).values()), default=pauses_until(value))
    assert 7000 < end - time.time() <= 7200


def test_a_shorter_pause_of_a_domain_ends_no_longer_one(server: ApiServer, tmp_path: Path) -> None:
    domain = ("--domain", "topology.kubernetes.io/zone=b")
    for more in (("--reason", "generator"), ("--for", "1s")):
        assert call(server, tmp_path, "pause", *domain, *more).returncode == 0
    there = server.store.get("ConfigMap", "rebalancer-brake", "default")["metadata"]["annotations"]
    zone = "topology.kubernetes.io/zone=b"
    assert [*there.values()] == [f"{zone} generator"]


@pytest.mark.parametrize(
    ("written", "key", "command"),
    [
        ("labels", "rebalancer.io/pause", "label"),
        ("labels", "pause", "label"),
        ("annotations", "rebalancer.io/paused", "annotate"),
        ("annotations", "rebalancer.io/Pause", "annotate"),
        ("annotations", "rebalancer.io/pause-zone-b", "annotate"),
        ("annotations", "rebalancer.io/evict", "annotate"),
        ("annotations", "rebalancer/evict", "annotate"),
        ("annotations", "stop", "annotate"),
        ("labels", "rebalancer.io/enabled", "label"),
        ("data", "pause", "patch"),
        ("binaryData", "note", "patch"),
    ],
)
def test_a_brake_that_is_set_with_a_slip_holds_and_says_how_it_is_lifted(
    server: ApiServer, tmp_path: Path, written: str, key: str, command: str
) -> None:
    value = "true" if "pause" in key.lower() else "false"

    def where(o: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = (o if "ata" in written else o["metadata"]).setdefault(written, {})
        return found

    server.store.modify("ConfigMap", "rebalancer-brake", "default", lambda o: where(o).update({key: value}))
    remedy = f"kubectl {command} configmap rebalancer-brake -n default "
    remedy += '--type=merge -p \'{"data":null,' if command == "patch" else f"{key}-"
    with moving(server):
        held = call(server, tmp_path, "once", "--execute")
        assert f"{key}={value}, which is no annotation that pauses, and was meant as one" in held.stdout
        assert remedy in held.stdout + held.stderr
        assert evictions(server) == 0
        over = call(server, tmp_path, "resume")
        assert over.returncode == 4
        assert remedy in over.stdout + over.stderr
        server.store.modify("ConfigMap", "rebalancer-brake", "default", lambda o: where(o).pop(key))
        assert call(server, tmp_path, "once", "--execute").returncode == 0
    assert evictions(server) == 4


def test_a_pause_with_an_end_is_written_as_a_time_and_a_reason(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--for", "2h", "--reason", "we look")
    assert done.stdout.startswith("evictions are paused for 2h: "), done.stderr
    end, _, why = (said(server) or "").partition(" ")
    left = datetime.fromisoformat(end) - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)
    assert why == "we look"


def test_a_pause_lasts_by_the_servers_clock(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pausing, "time", SimpleNamespace(time=lambda: 1_000_000_000.0, monotonic=time.monotonic)
    )
    config = server.kubeconfig(tmp_path / "config")
    done = CliRunner().invoke(app, ["pause", "--for", "2h", "--kubeconfig", str(config)])
    assert done.exit_code == 0, done.output
    left = datetime.fromisoformat(said(server) or "") - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)


def test_a_pause_of_centuries_is_a_slip_of_the_hand(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--for", "9999999d")
    assert done.returncode == 2
    assert "more than 3650d" in done.stderr


def test_all_is_given_back_only_where_all_is_paused(server: ApiServer, tmp_path: Path) -> None:
    done = call(server, tmp_path, "pause", "--undo", "--domain", "topology.kubernetes.io/zone=b")
    assert done.returncode == 2, done.stdout
    assert "leave out --domain" in done.stderr
    assert said(server) is None


def test_a_pause_that_is_over_holds_nobody(server: ApiServer, tmp_path: Path) -> None:
    call(server, tmp_path, "pause", "--for", "1s")
    with moving(server):
        until(lambda: call(server, tmp_path, "once", "--execute").returncode == 0 and evictions(server) == 4)


def test_a_brake_that_was_taken_away_holds_and_resume_makes_it(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        lease(server, "default", holder="")
        held = call(server, tmp_path, "once", "--execute")
        assert held.returncode == 1
        assert "by which people pause evictions, is missing; `rebalancer resume` creates it" in held.stdout
        assert evictions(server) == 0
        assert call(server, tmp_path, "resume").returncode == 0
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4


def test_where_nothing_is_installed_the_first_run_that_evicts_makes_the_brake(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        assert call(server, tmp_path, "once").returncode == 0
        assert not server.store.list("ConfigMap"), "a dry run writes nothing"
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4
        assert [m["metadata"]["name"] for m in server.store.list("ConfigMap")] == ["rebalancer-ledger"]
        assert not server.store.list("Lease")
        assert call(server, tmp_path, "pause").stdout.endswith("ConfigMap default/rebalancer-brake\n")


def test_where_an_installation_may_not_be_looked_for_no_brake_is_made(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        server.faults.add(Reply(403), resource="configmaps", verb="list")
        assert call(server, tmp_path, "once", "--execute").returncode == 1
        assert evictions(server) == 0


def test_a_missing_brake_can_be_put_on(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        assert call(server, tmp_path, "pause").returncode == 0
        assert said(server) == "true"


def test_the_brake_of_the_installation_is_found_in_whatever_namespace_it_is(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        for kind, name, namespace in (("Namespace", "ops", None), ("ConfigMap", "rebalancer-brake", "ops")):
            meta = {"name": name, "labels": LABELS} | ({"namespace": namespace} if namespace else {})
            server.store.create({"apiVersion": "v1", "kind": kind, "metadata": meta})
        done = call(server, tmp_path, "pause", "--reason", "incident")
        assert done.stdout.endswith("ConfigMap ops/rebalancer-brake\n"), done.stderr
        assert said(server, "ops") == "incident"
        held = call(server, tmp_path, "once", "--execute")
        assert "incident" in held.stdout


def test_a_pause_meets_a_running_daemon(server: ApiServer, tmp_path: Path) -> None:
    slow = BRISK.replace("perSecond: 0", "perSecond: 0.2").replace("interval: 1s", "interval: 2s")
    with moving(server), daemon(server, tmp_path, slow, "--execute") as d:
        until(lambda: evictions(server) == 1)
        assert call(server, tmp_path, "pause").returncode == 0
        before = evictions(server)
        until(lambda: "nothing is evicted now" in d.said())
        assert evictions(server) == before < 4
        assert call(server, tmp_path, "resume").returncode == 0
        until(lambda: evictions(server) == 4)
        assert d.end() == 0


@pytest.mark.parametrize(
    ("paused", "says"),
    [
        (("ConfigMap", "rebalancer-brake", "default"), "whose end was past when it was written"),
        (("Namespace", "default", None), "(paused-by-annotation)"),
    ],
    ids=["all", "a namespace"],
)
def test_a_pause_that_is_written_with_a_past_end_meets_a_running_daemon(
    server: ApiServer, tmp_path: Path, paused: tuple[str, str, str | None], says: str
) -> None:
    """Nobody writes a pause that is over: the year is a slip."""
    past = {PAUSE: "2001-01-01T00:00:00Z incident 4711"}
    slow = BRISK.replace("perSecond: 0", "perSecond: 0.2").replace("interval: 1s", "interval: 2s")
    with moving(server), daemon(server, tmp_path, slow, "--execute") as d:
        until(lambda: evictions(server) == 1)
        server.store.modify(*paused, lambda o: o["metadata"].setdefault("annotations", {}).update(past))
        until(lambda: says in d.said() or evictions(server) == 4)
        assert evictions(server) < 4
        if paused[0] == "ConfigMap":
            assert call(server, tmp_path, "resume").returncode == 0
        else:
            server.store.modify(*paused, lambda o: o["metadata"]["annotations"].pop(PAUSE))
        until(lambda: evictions(server) == 4)
        assert d.end() == 0


@pytest.mark.parametrize("wrong", ["2", "0s", "soon"])
def test_a_pause_for_no_time_is_a_wrong_use(wrong: str, server: ApiServer, tmp_path: Path) -> None:
    assert call(server, tmp_path, "pause", "--for", wrong).returncode == 2
    assert said(server) is None


def test_a_missing_right_is_named(server: ApiServer, tmp_path: Path) -> None:
    server.faults.add(Reply(403), resource="configmaps", verb="update")
    done = call(server, tmp_path, "pause")
    assert done.returncode == 4
    assert done.stdout == ""
    assert "kubectl annotate configmap rebalancer-brake -n default rebalancer.io/pause=true" in done.stderr
    assert '{apiGroups: [""], resources: ["configmaps"], verbs: ["update"]}' in done.stderr


@pytest.mark.parametrize("labels", [LABELS, {}], ids=["labelled", "made by kubectl"])
def test_every_brake_is_set_and_named_and_a_decoy_diverts_none(
    tmp_path: Path, labels: Mapping[str, str]
) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        brake(server, *REAL, labels)
        brake(server, *DECOY)
        done = call(server, tmp_path, "pause", "--reason", "incident")
        assert done.returncode == 0, done.stderr
        assert done.stdout == (
            "evictions are paused until `rebalancer resume`: "
            "ConfigMap ops/rebalancer-brake, ConfigMap tenant/settings\n"
        )
        assert said(server, *REAL) == said(server, *DECOY) == "incident"


def test_resuming_names_what_it_lifts_and_nothing_else(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server:
        brake(server, *REAL)
        brake(server, *DECOY)
        lease(server, "ops", holder="d", lasts=1)
        assert call(server, tmp_path, "pause", "-n", "ops").stdout.endswith(
            "resume -n ops`: ConfigMap ops/rebalancer-brake\n"
        )
        assert (said(server, *REAL), said(server, *DECOY)) == ("true", None)
        elsewhere = call(server, tmp_path, "resume", "--namespace", "tenant")
        assert elsewhere.stdout == "nothing was paused: ConfigMap tenant/settings, namespace tenant\n"
        over = call(server, tmp_path, "resume")
        assert over.stdout == "the pause is over: ConfigMap ops/rebalancer-brake (it said: true)\n"
        assert said(server, *REAL) is None


def test_a_pause_on_the_lease_is_not_passed_over_when_resuming(server: ApiServer, tmp_path: Path) -> None:
    lease(server, "default", holder="")
    server.store.modify(
        "Lease", "rebalancer", "default", lambda o: o["metadata"].update(annotations={PAUSE: "we look"})
    )
    done = call(server, tmp_path, "resume")
    assert done.returncode == 4
    assert "kubectl annotate lease rebalancer -n default rebalancer.io/pause-" in done.stderr


RIGHTS = (
    {
        "apiGroups": ["", "coordination.k8s.io"],
        "resources": ["configmaps", "leases"],
        "verbs": ["list", "get"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"], "namespaces": ["tenant"]},
)


def test_a_brake_that_may_not_be_set_is_named_and_nothing_is_called_paused(tmp_path: Path) -> None:
    with ApiServer(
        objects(*SKEWED), brake=False, tokens={"t": User("on-call")}, rules={"on-call": RIGHTS}
    ) as server:
        brake(server, *REAL)
        brake(server, *DECOY)
        done = call(server, tmp_path, "pause", "--reason", "it's bad", token="t")
        assert done.returncode == 4
        assert done.stdout == (
            "evictions are paused only in part until `rebalancer resume`: ConfigMap tenant/settings\n"
        )
        assert "error: ConfigMap ops/rebalancer-brake is not set: " in done.stderr
        assert (
            "kubectl annotate configmap rebalancer-brake -n ops "
            """rebalancer.io/pause='it'"'"'s bad' --overwrite"""
        ) in done.stderr
        assert (said(server, *REAL), said(server, *DECOY)) == (None, "it's bad")
        call(server, tmp_path, "pause")
        over = call(server, tmp_path, "resume", token="t")
        assert over.returncode == 4
        assert (
            over.stdout == "the pause is over only in part: ConfigMap tenant/settings (it said: it's bad)\n"
        )
        assert "kubectl annotate configmap rebalancer-brake -n ops rebalancer.io/pause-" in over.stderr


def test_who_may_not_look_around_is_told_so_and_names_the_namespace(tmp_path: Path) -> None:
    rule = {"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"]}
    own = {**rule, "verbs": ["get", "create", "update"], "namespaces": ["ops", "default"]}
    with ApiServer(
        objects(*SKEWED), brake=False, tokens={"t": User("on-call")}, rules={"on-call": [own]}
    ) as server:
        brake(server, *REAL)
        blind = call(server, tmp_path, "pause", token="t")
        assert blind.returncode == 4
        assert blind.stdout == ""
        assert "brakes of other namespaces cannot be looked for" in blind.stderr
        assert "-n NAMESPACE" in blind.stderr
        assert [m["metadata"]["namespace"] for m in server.store.list("ConfigMap")] == ["ops"], "none is made"
        named = call(server, tmp_path, "pause", "-n", "ops", token="t")
        assert (named.returncode, "namespace ops is not set" in named.stderr) == (4, True)
        assert said(server, *REAL) == "true"


def binding(namespace: str) -> dict[str, Any]:
    """What the manifests of deploy/ let an administrator create."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "rebalancer-evict", "labels": {"app.kubernetes.io/name": "rebalancer"}},
        "roleRef": {"kind": "ClusterRole", "name": "rebalancer-evict"},
        "subjects": [{"kind": "ServiceAccount", "name": "rebalancer", "namespace": namespace}],
    }


def test_an_installation_that_lost_its_brake_gets_one_beside_the_decoy(tmp_path: Path) -> None:
    with ApiServer([*objects(*SKEWED), binding("ops")], brake=False) as server:
        brake(server, *DECOY)
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}})
        assert call(server, tmp_path, "pause").returncode == 0
        assert said(server, *REAL) == said(server, *DECOY) == "true"


def test_an_installation_that_is_gone_holds_up_no_pause(tmp_path: Path) -> None:
    with ApiServer([*objects(*SKEWED), binding("gone")]) as server:
        done = call(server, tmp_path, "pause")
        assert done.returncode == 0, done.stderr
        assert said(server) == "true"


def test_a_pause_ends_when_the_daemon_has_shown_that_it_saw_it(server: ApiServer, tmp_path: Path) -> None:
    """Nothing goes after it. The brake has a name and no label by which it would be found."""
    brake(server, "ops", "odd", {})
    settings = (
        BRISK.replace("perSecond: 0", "perSecond: 0.2").replace("interval: 1s", "interval: 2s")
        + "ledger: {namespace: ops}\nbrake: {name: odd}\n"
    )
    with moving(server), daemon(server, tmp_path / "daemon", settings, "--execute") as d:
        until(lambda: evictions(server) == 1)
        done = call(server, tmp_path, "pause")
        after = evictions(server)
        assert done.returncode == 0, done.stderr
        assert "ConfigMap ops/odd" in done.stdout
        holder = server.store.get("Lease", "rebalancer", "ops")["spec"]["holderIdentity"]
        assert f"seen by {holder} (lease ops/rebalancer)\n" in done.stdout
        until(lambda: "nothing is evicted now" in d.said())
        assert evictions(server) == after < 4
        assert call(server, tmp_path, "resume").returncode == 0
        until(lambda: evictions(server) == 4)


def test_a_daemon_that_hangs_is_no_rival_once_its_lease_has_run_out(
    server: ApiServer, tmp_path: Path
) -> None:
    with daemon(server, tmp_path / "daemon", BRISK, "--execute") as d:
        until(lambda: "this instance leads" in d.said())
        d.popen.send_signal(signal.SIGSTOP)
        done = call(server, tmp_path, "pause")
        assert done.returncode == 0, done.stderr
        assert "seen by" not in done.stdout


def test_an_instance_that_does_not_show_it_is_named(server: ApiServer, tmp_path: Path) -> None:
    lease(server, "default", holder="old-daemon", lasts=3600)
    done = call(server, tmp_path, "pause")
    assert done.returncode == 4
    assert done.stdout.startswith("the brake is set until `rebalancer resume`: ConfigMap default/")
    assert "old-daemon (lease default/rebalancer) has not shown within 16 s" in done.stderr
    assert said(server) == "true"


NOT_SEEN = {
    "another brake": ("elsewhere/b 7 d", "it looks at ConfigMap elsewhere/b, which is not set"),
    "an older version": (
        "default/rebalancer-brake 0 d",
        "it has not read ConfigMap default/rebalancer-brake",
    ),
    "another's word": ("default/rebalancer-brake - other", "a version that does not show it"),
    "nonsense": ("x", "a version that does not show it"),
}


@pytest.mark.parametrize(("seen", "why"), NOT_SEEN.values(), ids=NOT_SEEN)
def test_what_is_no_sign_of_having_seen_it(server: ApiServer, seen: str, why: str) -> None:
    lease(server, "default", holder="d", seen=seen)
    done = paused_now(server)
    assert not done.seen_by
    assert why in done.not_seen[0]


def test_a_version_that_others_wrote_since_counts_while_it_pauses(server: ApiServer) -> None:
    paused_now(server)
    server.store.modify(
        "ConfigMap", "rebalancer-brake", "default", lambda o: o["metadata"].update(labels={"touched": "x"})
    )
    version = server.store.get("ConfigMap", "rebalancer-brake", "default")["metadata"]["resourceVersion"]
    lease(server, "default", holder="d", seen=f"default/rebalancer-brake {version} d")
    assert paused_now(server).seen_by == ["d (lease default/rebalancer)"]


@pytest.mark.parametrize(("holder", "age"), [("", 0.0), ("laptop", 3600.0)], ids=["handed back", "long ago"])
def test_a_lease_that_nobody_holds_is_waited_for_by_nobody(
    server: ApiServer, holder: str, age: float
) -> None:
    lease(server, "default", holder=holder, age=age, lasts=1)
    done = paused_now(server, patience=5.0)
    assert not done.seen_by
    assert not done.not_seen


def test_who_acts_without_a_lease_is_named_while_its_eviction_may_be_on_its_way(tmp_path: Path) -> None:
    alone = BRISK.replace("leaderElection: {", "leaderElection: {enabled: false, ")
    with ApiServer(objects(*SKEWED)) as server, moving(server):
        server.faults.add(Delay(5.0), subresource="eviction")
        with daemon(server, tmp_path, alone, "--execute") as process:
            until(lambda: evictions(server))
            done = call(server, tmp_path, "pause")
            process.end()
        assert done.returncode == 4
        assert "the brake is set until `rebalancer resume`: ConfigMap default/rebalancer-brake" in done.stdout
        assert "acts on ConfigMap default/rebalancer-ledger without a lease" in done.stderr
        after = call(server, tmp_path, "pause")
    assert (after.returncode, after.stderr) == (0, "")


def test_a_brake_that_is_set_during_the_first_run_stays(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        server.faults.add(Delay(1.0), subresource="eviction")
        command = [str(BIN), "once", "--execute"]
        command += ["--kubeconfig", str(server.kubeconfig(tmp_path / "first"))]
        with Program(command, stdout=subprocess.PIPE, env=environment()) as once:
            until(lambda: evictions(server) >= 1)
            done = paused_now(server)
            assert not done.not_set
            once.communicate(timeout=240)
        assert said(server) == "incident"
        assert "incident" in call(server, tmp_path, "once", "--execute").stdout
        assert call(server, tmp_path, "resume").returncode == 0
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert not server.store.find("ConfigMap", "rebalancer-brake", "default")


def test_what_a_killed_run_left_is_taken_over_and_removed(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        brake(server, "default", "rebalancer-brake")
        server.store.modify(
            "ConfigMap",
            "rebalancer-brake",
            "default",
            lambda o: o["metadata"].update(annotations={FOR_RUN: "a run that was killed"}),
        )
        lease(server, "default", holder="", age=3600)
        assert call(server, tmp_path, "once", "--execute").returncode == 0
        assert evictions(server) == 4
        assert not server.store.find("ConfigMap", "rebalancer-brake", "default")
        assert not server.store.list("Lease")


def test_caps_hold_on_after_a_run_that_took_its_brake_away(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        (tmp_path / "c.yaml").write_text("evictions: {maxTotalPerHour: 1}")
        for _ in range(2):
            call(server, tmp_path, "once", "--execute", "--config", str(tmp_path / "c.yaml"))
        assert evictions(server) == 1


@pytest.mark.parametrize("fault", [Reply(503), Garbage(b"<html>proxy</html>")], ids=["503", "garbage"])
@pytest.mark.parametrize("kind", ["configmaps", "leases", "clusterrolebindings"])
def test_a_list_that_fails_keeps_no_known_brake_from_being_set(
    server: ApiServer, tmp_path: Path, kind: str, fault: Any
) -> None:
    server.faults.add(fault, resource=kind, verb="list")
    done = call(server, tmp_path, "pause")
    assert said(server) == "true"
    assert done.returncode == (0 if kind == "clusterrolebindings" else 4)
    assert "default/rebalancer-brake\n" in done.stdout
    if done.returncode:
        assert "cannot be" in done.stderr


def test_the_brake_of_the_settings_is_set_before_anything_is_listed(
    server: ApiServer, tmp_path: Path
) -> None:
    brake(server, *REAL, {})
    (tmp_path / "c.yaml").write_text("ledger: {namespace: ops}")
    server.faults.add(Delay(math.inf), verb="list")
    command = [str(BIN), "pause", "--config", str(tmp_path / "c.yaml")]
    command += ["--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
    with Program(command, env=environment()) as pause:
        until(lambda: said(server, *REAL) == "true")
        pause.kill()


def test_a_brake_that_cannot_be_looked_for_is_not_made_a_second_time(
    server: ApiServer, tmp_path: Path
) -> None:
    brake(server, "ops", "odd")
    server.faults.add(Reply(503), resource="configmaps", verb="list")
    done = call(server, tmp_path, "pause", "-n", "ops")
    assert done.returncode == 4
    assert "cannot be looked for" in done.stderr
    assert not server.store.find("ConfigMap", "rebalancer-brake", "ops")


def test_a_crowd_of_decoys_does_not_come_before_the_installation(tmp_path: Path) -> None:
    with ApiServer([*objects(*SKEWED), binding("ops")], brake=False) as server:
        brake(server, "ops", "settings")
        for n in range(60):
            brake(server, "aaa", f"decoy-{n}")
        done = call(server, tmp_path, "pause")
        assert done.returncode == 0, done.stderr
        asked = [a for a in server.accesses if a.resource == "configmaps"]
        changed = [a.namespace for a in asked if a.verb == "update"]
        assert len(changed) == 61
        assert "ops" in changed[:16]
        assert all(a.limit for a in asked if a.verb == "list"), "a page at a time"


def test_a_leader_with_a_slow_clock_is_waited_for_and_the_brake_that_it_names_is_set(
    server: ApiServer, tmp_path: Path
) -> None:
    brake(server, "default", "odd", {})
    with connected(server) as connection:
        elector = Elector(
            connection,
            "default",
            "rebalancer",
            identity="slow",
            now=lambda: time.time() - 900,
            brake=Place("default", "odd"),
        ).start()
        try:
            until(elector.still_leading)
            done = call(server, tmp_path, "pause")
        finally:
            elector.stop()
    assert done.returncode == 0, done.stderr
    assert said(server, name="odd") == "true"
    assert "seen by slow (lease default/rebalancer)" in done.stdout


def first_run(server: ApiServer, folder: Path) -> list[str]:
    """`once --execute` where nothing is installed, by somebody whose context has the namespace ops."""
    if not server.store.find("Namespace", "ops", None):
        meta = {"name": "ops"}
        server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    config = server.kubeconfig(folder / "ops")
    config.write_text(config.read_text().replace('"namespace": "default"', '"namespace": "ops"'))
    (folder / "slow.yaml").write_text("evictions: {perSecond: 0.5}")
    return [
        *(str(BIN), "once", "--execute", "--config", str(folder / "slow.yaml")),
        *("--kubeconfig", str(config)),
    ]


def test_a_pause_between_the_first_look_of_a_first_run_and_its_lease_holds(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        slow = server.faults.add(Delay(6.0), verb="create", resource="leases", times=1)
        with Program(first_run(server, tmp_path), stdout=subprocess.PIPE, env=environment()) as once:
            until(lambda: slow.hits > 0)
            done = paused_now(server)
            assert done.brakes == [Place("ops", "rebalancer-brake")]
            assert not done.not_set
            held, _ = once.communicate(timeout=240)
        assert evictions(server) == 0
        assert once.returncode == 0
        assert "configmap rebalancer-brake -n ops is paused: rebalancer.io/pause=incident" in held
        assert not server.store.list("Lease"), "it leaves nothing behind"
        assert {m["metadata"]["namespace"] for m in server.store.list("ConfigMap")} == {"ops"}


def test_a_run_leaves_its_brake_where_somebody_has_paused_with_a_slip(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        slow = server.faults.add(Delay(6.0), verb="create", resource="leases", times=1)
        with Program(first_run(server, tmp_path), env=environment()) as once:
            until(lambda: slow.hits > 0)
            server.store.modify(
                "ConfigMap",
                "rebalancer-brake",
                "ops",
                lambda o: o["metadata"]["labels"].update(pause="now"),
            )
            once.communicate(timeout=240)
        done = call(server, tmp_path, "once", "--execute")
        assert done.returncode == 1
        assert "has the label pause=now, which was meant as a pause" in done.stderr
        assert evictions(server) == 0


def test_a_first_run_that_begins_while_somebody_pauses_is_found(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        slow = server.faults.add(Delay(6.0), verb="create", resource="configmaps", times=1)
        run = first_run(server, tmp_path)
        command = [str(BIN), "pause", "--kubeconfig", str(server.kubeconfig(tmp_path / "pauser"))]
        with Program(command, stdout=subprocess.PIPE, env=environment()) as pause:
            until(lambda: slow.hits > 0)
            with Program(run, env=environment()) as once:
                out, _ = pause.communicate(timeout=240)
                before = evictions(server)
                assert pause.returncode == 0, out
                assert "ConfigMap ops/rebalancer-brake" in out
                once.communicate(timeout=240)
        assert evictions(server) == before < 4


def test_nobody_is_said_to_have_seen_it_while_an_eviction_is_on_its_way(
    server: ApiServer, tmp_path: Path
) -> None:
    def landed() -> int:
        return sum(a.subresource == "eviction" and a.code == 201 for a in server.accesses)

    with moving(server), daemon(server, tmp_path / "daemon", BRISK, "--execute"):
        slow = server.faults.add(Delay(8.0), subresource="eviction")
        until(lambda: slow.hits > 0)
        done = paused_now(server, patience=60.0)
        before = landed()
        assert done.seen_by
        assert not done.not_seen
        time.sleep(9)
        assert landed() == before


def test_nor_while_a_pod_is_being_released(tmp_path: Path) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 2, "a-1": 1, "b-0": 2, "b-1": 1})
    settings = BRISK.replace("canary: 0", "canary: 0, method: replaceFirst")
    with Cluster(objects(*nodes(a=2, b=2, c=2), web), ready_after=0.01) as cluster:
        cluster.settle()
        slow = cluster.faults.add(Delay(6.0), verb="patch", resource="pods", skip=1, times=1)
        with daemon(cluster.server, tmp_path / "daemon", settings, "--execute"):
            until(lambda: slow.hits > 0)
            done = paused_now(cluster.server, patience=60.0)
            assert (len(done.seen_by), done.not_seen) == (1, [])
            patched = [a.code for a in cluster.server.accesses if a.verb == "patch" and a.resource == "pods"]
            assert patched[:2] == [200, 200], "the trial, and what the pause waited for"


def test_an_installation_that_takes_over_the_brake_of_a_run_keeps_it(tmp_path: Path) -> None:
    """kubectl apply leaves the annotations of others, and adds its own."""
    with ApiServer(objects(*SKEWED), brake=False) as server, moving(server):
        slow = server.faults.add(Delay(1.0), subresource="eviction")

        def applied(brake: dict[str, Any]) -> None:
            brake["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"

        command = [str(BIN), "once", "--execute"]
        command += ["--kubeconfig", str(server.kubeconfig(tmp_path / "first"))]
        with Program(command, env=environment()) as once:
            until(lambda: slow.hits > 0)
            server.store.modify("ConfigMap", "rebalancer-brake", "default", applied)
            once.communicate(timeout=240)
        assert server.store.find("ConfigMap", "rebalancer-brake", "default")
        server.faults.remove(slow)
        call(server, tmp_path, "once", "--execute")
        assert server.store.find("ConfigMap", "rebalancer-brake", "default"), "nor does a later run remove it"
