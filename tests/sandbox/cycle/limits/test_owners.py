"""What it is about owners that keeps their pods where they are, over whole cycles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.planner import PlanOptions, plan
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.commands.remembered import remembered
from rebalancer.runtime.commands.source import Source, load_snapshot
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.settings import load_settings
from tests.support.build import (
    OwnerBuilder,
    claim,
    decoded,
    deployment,
    nodes,
    objects,
    stateful_set,
    volume,
    workload,
)
from tests.support.runs.machine import Machine
from tests.support.runs.one_cycle import Run
from tests.support.sandbox import ApiServer, Reply
from tests.support.scheduler.plain import Json
from tests.support.servers.api import FakeTime
from tests.support.servers.hands import Hands


def reasons(run: Run) -> set[ReasonCode]:
    """Why pods stay, by the last plan."""
    return {b.reason.code for b in run.story.plans[-1].blocked}


def later() -> FakeTime:
    """A clock by which pods that are made before a cycle are old."""
    return FakeTime(at=2e9)


class Watchful(Hands):
    """Takes down the lowest number of Ready pods."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.lowest = 1_000
        self._count()

    def step(self, seconds: float = 0.0) -> None:
        self._count()
        super().step(seconds)
        self._count()

    def _count(self) -> None:
        pods = (p for p in self.store.list("Pod") if "deletionTimestamp" not in p["metadata"])
        ready = sum(
            any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", ()))
            for p in pods
        )
        self.lowest = min(self.lowest, ready)


def rolling(things: Any, most: int | str) -> list[Json]:
    """Deployments that allow so many pods to be unavailable."""
    made = objects(things)
    for o in made:
        if o["kind"] == "Deployment":
            o["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": most, "maxSurge": 1}}
    return made


@pytest.mark.parametrize("most", [0, 1, "25%"])
def test_a_deployment_with_two_of_five_pods_broken_loses_no_ready_one(most: int | str) -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 3, "b-0": 1, "c-0": 1}).unready(3, 4)
    with ApiServer(rolling((nodes(a=1, b=1, c=1), web), most)) as server:
        hands = Watchful(server)
        run = Run(server, hands=hands, time=later())
    assert run.evictions() == 0
    assert hands.lowest == 3
    assert reasons(run) == {ReasonCode.OWNER_DEGRADED}


def test_once_the_broken_pod_has_been_replaced_ready_ones_go() -> None:
    web = deployment("web").spread("zone", 1).placed({"a-0": 4}).unready(0)
    with ApiServer(rolling((nodes(a=1, b=1), web), 1)) as server:
        hands = Watchful(server)
        run = Run(server, hands=hands, time=later())
        assert (run.report.end, run.report.evicted) == (End.COMPLETE, 2)
        assert run.zones() == [2, 2]
    assert [o.move.pod.ready for o in run.report.outcomes] == [False, True]
    assert hands.lowest == 3


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_what_kueue_manages_is_left_alone(kind: str) -> None:
    made = objects(nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))
    for o in made:
        if o["kind"] == kind:
            key = {"Deployment": "kueue.x-k8s.io/queue-name", "Pod": "kueue.x-k8s.io/managed"}[kind]
            o["metadata"].setdefault("labels", {})[key] = "true"
    with ApiServer(made) as server:
        run = Run(server, time=later())
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.ADMISSION_QUEUE}


def relabelled(key: str, only: bool = True) -> list[Json]:
    """web in two zones, with a label that its constraint selects by, on its pods `only` or in its template
    too."""
    web = deployment("web").spread("zone", 1, selector={key: "replica"}).placed({"a-0": 2})
    made = objects(nodes(a=1, b=1), web)
    for o in made:
        if o["kind"] == "Pod":
            o["metadata"]["labels"][key] = "replica"
        elif "template" in o["spec"] and not only:
            o["spec"]["template"]["metadata"]["labels"][key] = "replica"
    return made


@pytest.mark.parametrize("only", [True, False])
def test_a_label_that_was_put_on_the_pods_binds_no_replacement(only: bool) -> None:
    """An operator labels them as it finds them; the scheduler does not see it, and may send them back."""
    with ApiServer(relabelled("role", only)) as server:
        back = Hands(server, choose=lambda _, open_: min(open_, default=None))
        run = Run(server, hands=back, time=later())
        assert run.zones() == ([2, 0] if only else [1, 1])
    assert (run.evictions(), reasons(run)) == ((0, {ReasonCode.NOT_CERTAIN}) if only else (1, set()))


class Queueing(Hands):
    """Beside them an admission webhook gates new pods, until they are let in."""

    let_in = False

    def _schedule(self, pod: Json) -> None:
        gates = {} if self.let_in else {"schedulingGates": [{"name": "example.com/admission"}]}

        def gate(o: Json) -> None:
            o["spec"].pop("schedulingGates", None)
            o["spec"].update(gates)

        self.store.modify("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], gate)
        if self.let_in:
            super()._schedule(pod)


def test_a_namespace_in_which_a_replacement_was_held_back_is_remembered() -> None:
    shop = [deployment(name).spread("zone", 1).placed({"a-0": 3}) for name in ("one", "two")]
    canary = HistoryRules(canary=5)
    with Machine((nodes(a=1, b=1), shop)) as m:
        m.hands = hands = Queueing(m.server)
        first = m.cycle(canary)
        assert first.report.evicted == 1
        (entry,) = m.ledger().entries
        assert entry.gates == ("example.com/admission",)
        assert ReasonCode.ADMISSION_QUEUE in reasons(m.cycle(canary)), "its pod says so"
        hands.let_in = True
        for _ in range(5):
            hands.step()
        second = m.cycle(canary)
        assert second.report.evicted == 0
        assert reasons(second) == {ReasonCode.ADMISSION_QUEUE}
        m.time.at += 8 * 86_400
        assert m.cycle(canary).report.evicted == 1


def named(things: Any, account: str = "web", runtime: str = "plain") -> list[Json]:
    """Templates name a ServiceAccount, a RuntimeClass and a PriorityClass; web, plain and gold exist."""
    made = objects(things)
    for o in made:
        if "template" in o.get("spec", {}):
            o["spec"]["template"]["spec"] |= {"serviceAccountName": account, "runtimeClassName": runtime}
            o["spec"]["template"]["spec"] |= {"priorityClassName": "gold"}
    there = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "web", "namespace": "default"},
    }
    runs = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "plain"}}
    ranks = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
    return [*made, there, {**runs, "handler": "runc"}, {**ranks, "value": 0}]


SKEWED = (nodes(a=1, b=1), deployment("web").spread("zone", 1).placed({"a-0": 4}))


@pytest.mark.parametrize(
    ("account", "runtime", "evicted"),
    [("web", "plain", 2), ("default", "plain", 2), ("gone", "plain", 0), ("web", "gone", 0)],
)
def test_what_a_template_names_must_exist(account: str, runtime: str, evicted: int) -> None:
    with ApiServer(named(SKEWED, account, runtime)) as server:
        run = Run(server, time=later())
    assert run.evictions() == evicted
    assert reasons(run) == ({ReasonCode.REPLACEMENT_REFUSED} if not evicted else set())
    if not evicted:
        (reason,) = {b.reason.message for b in run.story.plans[-1].blocked}
        assert "gone, which does not exist" in reason


IN = {
    "a volume": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    "the environment": {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    "the whole environment": {"envFrom": [{"secretRef": {"name": "s"}}]},
    "an image's registry": {"imagePullSecrets": [{"name": "s"}]},
    "a projection": {
        "volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}],
    },
}
LISTS: list[Json] = [{}, {"secrets": [{"name": "s"}]}, {"imagePullSecrets": [{"name": "s"}]}]


@pytest.mark.parametrize(
    ("where", "says", "lists", "evicted"),
    [
        *((where, "true", {}, 0 if where != "a projection" else 2) for where in IN),
        *((where, "true", LISTS[1], 2 if where != "an image's registry" else 0) for where in IN),
        ("an image's registry", "true", LISTS[2], 2),
        ("a volume", "true", LISTS[2], 0),
        ("a volume", "1", {}, 0),
        ("a volume", "false", {}, 2),
        ("a volume", "nonsense", {}, 2),
    ],
)
def test_an_account_that_lets_its_pods_have_only_secrets_that_it_lists(
    where: str, says: str, lists: Json, evicted: int
) -> None:
    with ApiServer(strict("web", where)) as server:
        enforce(server, "web", says, lists)
        run = Run(server, time=later())
    assert run.evictions() == evicted
    assert reasons(run) == ({ReasonCode.REPLACEMENT_REFUSED} if not evicted else set())
    if not evicted:
        (said,) = {b.reason.message for b in run.story.plans[-1].blocked}
        assert "names Secret s, which its ServiceAccount web does not list" in said


@pytest.mark.parametrize("account", ["web", "default"])
def test_an_account_that_withholds_secrets_after_the_plan(account: str) -> None:
    with ApiServer(strict(account, "a volume")) as server:
        change = lambda n: enforce(server, account, "true", {}) if n == 1 else None  # noqa: E731
        run = Run(server, time=later(), after_plan=change)
    assert len(run.story.plans[0].moves) == 2
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.REPLACEMENT_REFUSED}


def strict(account: str, where: str) -> list[Json]:
    """Pods whose template names this account, and Secret `s` there; the account `default`, too."""
    made = named(SKEWED, account)
    for o in made:
        spec = o.get("spec", {}).get("template", {}).get("spec")
        if spec:
            inside = spec["containers"][0] if where.endswith("environment") else spec
            inside |= IN[where]
    meta = {"name": "default", "namespace": "default"}
    return [*made, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}]


def enforce(server: ApiServer, account: str, says: str, lists: Json) -> None:
    def change(o: Json) -> None:
        o["metadata"]["annotations"] = {"kubernetes.io/enforce-mountable-secrets": says}
        o |= lists

    server.store.modify("ServiceAccount", account, "default", change)


def test_a_dry_run_and_a_plan_of_a_file_say_that_nobody_was_asked() -> None:
    things = named(SKEWED, "gone")
    with ApiServer(things) as server:
        dry = Run(server, LiveOptions(), time=later()).story.plans[-1]
        evicting = Run(server, time=later()).story.plans[-1]
    for made, said in ((dry, True), (plan(decoded(things)), True), (evicting, False)):
        assert any("was not looked at" in a for a in made.assumptions) is said
    assert not any("was not looked at" in a for a in plan(decoded(objects(SKEWED))).assumptions)


@pytest.mark.parametrize(
    "gone",
    [("ServiceAccount", "web", "default"), ("RuntimeClass", "plain", None), ("PriorityClass", "gold", None)],
)
def test_what_is_deleted_after_the_plan_is_missed_by_the_last_look(gone: tuple[str, str, str | None]) -> None:
    with ApiServer(named(SKEWED)) as server:
        run = Run(server, time=later(), after_plan=lambda n: server.store.delete(*gone) if n == 1 else None)
    assert run.evictions() == 0
    assert set(run.story.rejected.values()) <= {ReasonCode.REPLACEMENT_REFUSED}
    assert reasons(run) == {ReasonCode.REPLACEMENT_REFUSED}


ELSEWHERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["nowhere"]}]}
NOWHERE = {"required": {"nodeSelectorTerms": [ELSEWHERE]}}


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "PersistentVolume"])
def test_a_claim_or_volume_that_changes_after_the_plan_ends_the_moves_that_mount_it(kind: str) -> None:
    made = objects(SKEWED, claim("shared", "disk"), volume("disk", "shared"))
    for o in made:
        modes = {"accessModes": ["ReadWriteMany"]}
        mounts = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]}
        storage = o["kind"].startswith("PersistentVolume")
        for spec in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            spec |= (modes if storage else mounts) if o["kind"] != "Node" else {}
        if o["kind"] == kind:
            o["metadata"]["finalizers"] = ["kubernetes.io/protection"]

    def change(server: ApiServer) -> None:
        if kind == "PersistentVolumeClaim":
            server.store.delete(kind, "shared", "default")
        else:
            server.store.modify(kind, "disk", None, lambda o: o["spec"].update(nodeAffinity=NOWHERE))

    with ApiServer(made) as server:
        run = Run(server, time=later(), after_plan=lambda n: change(server) if n == 1 else None)
    assert len(run.story.plans[0].moves) == 2
    assert run.evictions() == 0
    assert set(run.story.rejected.values()) <= {ReasonCode.CHANGED_SINCE_PLAN}
    assert not run.story.plans[-1].moves


LARGE = (nodes(a=1, b=1), deployment("web").spread("zone", 1).requests(cpu="1").placed({"a-0": 4}))
SMALL = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "small", "namespace": "default"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "500m"}}]},
}


@pytest.mark.parametrize("when", ["before the plan", "after it"])
def test_a_limit_range_that_would_refuse_the_replacement(when: str) -> None:
    before = [SMALL] if when == "before the plan" else []
    with ApiServer([*objects(LARGE), *before]) as server:
        run = Run(
            server,
            time=later(),
            after_plan=lambda n: server.store.create(SMALL) if n == 1 and not before else None,
        )
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.REPLACEMENT_REFUSED}
    (said,) = {b.reason.message for b in run.story.plans[-1].blocked}
    assert "LimitRange default/small would refuse its replacement: cpu is at most 500m" in said


def test_a_report_of_a_cluster_asks_what_an_eviction_asks(tmp_path: Path) -> None:
    with ApiServer([*objects(LARGE), SMALL]) as server:
        source = Source(kubeconfig=str(server.kubeconfig(tmp_path / "config")))
        snapshot = load_snapshot(source).snapshot
        found, _ = remembered(load_settings(env={}), source).plan(snapshot, PlanOptions())
    assert not found.moves
    assert {b.reason.code for b in found.blocked} == {ReasonCode.REPLACEMENT_REFUSED}
    assert not any("was not looked at" in a for a in found.assumptions)


def test_a_report_names_no_brake_that_nobody_has_installed(tmp_path: Path) -> None:
    with ApiServer(objects(LARGE)) as server:
        source = Source(kubeconfig=str(server.kubeconfig(tmp_path / "config")))
        settings = load_settings(env={}, flags={"ledger": {"namespace": "nobody-has-been-here"}})
        assert remembered(settings, source).held == ()


def test_where_they_may_not_be_read_the_plan_says_so_and_goes_on() -> None:
    with ApiServer(named(SKEWED)) as server:
        for resource in ("serviceaccounts", "runtimeclasses", "priorityclasses"):
            server.faults.add(Reply(403), verb="get", resource=resource)
        server.faults.add(Reply(403), verb="list", resource="limitranges")
        run = Run(server, time=later())
    assert run.evictions() == 2
    said = " ".join(run.story.plans[0].assumptions)
    assert "RuntimeClass and ServiceAccount" in said
    assert "LimitRanges, which may refuse replacements, could not be seen" in said


@pytest.mark.parametrize("resource", ["serviceaccounts", "runtimeclasses"])
def test_an_answer_about_no_object_is_none(resource: str) -> None:
    with ApiServer(named(SKEWED)) as server:
        server.faults.add(Reply(404, b"404 page not found\n"), verb="get", resource=resource)
        run = Run(server, time=later())
    assert run.evictions() == 0
    assert "is about no object" in run.report.message


def test_a_namespace_that_has_come_to_enforce_what_the_template_does_not_keep() -> None:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    with ApiServer(objects(SKEWED)) as server:
        server.store.modify("Namespace", "default", None, lambda o: o["metadata"].update(labels=restricted))
        run = Run(server, time=later())
    assert run.evictions() == 0
    assert reasons(run) == {ReasonCode.REPLACEMENT_REFUSED}


@pytest.mark.parametrize(
    ("kind", "message", "says"),
    [
        ("ReplicaSet", "pods is forbidden", ReasonCode.REPLACEMENT_REFUSED),
        ("Deployment", "Internal error occurred: failed calling webhook", ReasonCode.CLUSTER_UNWELL),
    ],
    ids=["its own", "another's, for want of a webhook"],
)
def test_an_owner_that_says_after_the_plan_that_it_cannot_make_pods(
    kind: str, message: str, says: ReasonCode
) -> None:
    fails = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    other = deployment("api", namespace="other").placed({"a-0": 1})
    with ApiServer(objects(*SKEWED, other)) as server:
        time = later()

        def say(plans: int) -> None:
            since = datetime.fromtimestamp(time.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if plans == 1:
                owner = server.store.list(kind)[0]["metadata"]
                server.store.modify(
                    kind,
                    owner["name"],
                    owner["namespace"],
                    lambda o: o["status"].update(conditions=[fails | {"lastTransitionTime": since}]),
                    subresource="status",
                )
                time.wait(0.1)  # until the watch has it: no other wait is between the plan and the request

        run = Run(server, time=time, after_plan=say)
    assert run.evictions() == 0
    assert (run.report.reason.code if run.report.reason else reasons(run)) in (says, {says})


def imaged(pod: Json) -> None:
    pod["spec"]["containers"][0]["image"] = "registry.local/web:v1"


def of_another_revision(pod: Json) -> None:
    pod["metadata"]["labels"]["controller-revision-hash"] = "web-2"


def injected(pod: Json) -> None:
    """Admission has added a container, a volume and variables."""
    first = pod["spec"]["containers"][0]
    first |= {"env": [{"name": "POD_IP", "value": "10.0.0.1"}], "ports": [{"containerPort": 15090}]}
    pod["spec"]["containers"].append({"name": "proxy", "image": "proxy", "args": ["--all"]})
    pod["spec"]["volumes"] = [{"name": "kube-api-access-x7k2p", "projected": {"sources": []}}]


def with_arguments(pod: Json) -> None:
    pod["spec"]["containers"][0]["args"] = ["--read-only"]


EDITS: dict[str, Json] = {
    "other arguments": {"args": ["--delete-everything"]},
    "another command": {"command": ["sleep"]},
    "a variable": {"env": [{"name": "DATABASE", "value": "prod"}]},
    "variables of a ConfigMap": {"envFrom": [{"configMapRef": {"name": "prod"}}]},
    "a port": {"ports": [{"containerPort": 8081}]},
    "a hook": {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "1000"]}}}},
    "a probe": {"livenessProbe": {"exec": {"command": ["false"]}}},
    "a mount": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
}
"""What somebody has written into the first container of a template."""


def edited(change: Json) -> list[Json]:
    """web, a ReplicaSet of nobody's, with a template that only has this in its first container."""
    things = objects(nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 4}))
    for o in things:
        if o["kind"] == "ReplicaSet":
            o["spec"]["template"]["spec"]["containers"][0] |= change
    return things


@pytest.mark.parametrize(
    ("made", "differs", "says"),
    [
        (workload("web"), imaged, ReasonCode.ROLLOUT_IN_PROGRESS),
        (deployment("web"), imaged, None),  # by a webhook, maybe
        (workload("web"), with_arguments, ReasonCode.ROLLOUT_IN_PROGRESS),  # the template has none any more
        (workload("web"), injected, None),
        (stateful_set("web").on_delete(), of_another_revision, ReasonCode.ON_DELETE),
    ],
)
def test_evictions_do_not_roll_out_what_nobody_rolls_out(
    made: OwnerBuilder, differs: Callable[[Json], None], says: ReasonCode | None
) -> None:
    things = objects(*nodes(a=1, b=1), made.parallel().spread("zone", 1).placed({"a-0": 4}))
    for o in [o for o in things if o["kind"] == "Pod"][:4]:
        differs(o)
    with ApiServer(things) as server:
        run = Run(server, time=later())
    assert (run.evictions(), reasons(run)) == ((2, set()) if says is None else (0, {says}))


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_in_a_template_that_nobody_rolls_out(edit: str) -> None:
    made = plan(decoded(edited(EDITS[edit])))
    assert not made.moves
    assert {b.reason.code for b in made.blocked} == {ReasonCode.ROLLOUT_IN_PROGRESS}


def test_pods_of_a_deployment_that_is_gone_do_not_come_back_edited() -> None:
    """`kubectl delete --cascade=orphan`, and then an edit: only the last look sees what its pods run."""
    things = edited(EDITS["a variable"])
    for o in things:
        if o["kind"] == "Pod":
            o["metadata"]["labels"]["pod-template-hash"] = "1"
    with ApiServer(things) as server:
        run = Run(server, time=later())
    assert (run.evictions(), run.report.end) == (0, End.NO_PROGRESS)
    assert "template was changed after the pod was made" in run.report.message
