"""Evictions that wait for somebody's approval, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import Ledgers, Place
from rebalancer.kube.connection import Connection
from rebalancer.outcome import CycleReport, End, Proposal
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.policy.options import ApprovalRules
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live import approval
from rebalancer.runtime.live.approval import APPROVE, REFUSE, Approvals, answer, waiting
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.configured import LiveOptions
from tests.support.build import deployment, nodes, objects, workload
from tests.support.processes.command import call, moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.runs.one_cycle import EXECUTE, Run
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.api import FakeTime, connected
from tests.support.waiting import until

ALL = ApprovalRules(required=True)
TWO = (
    *nodes(a=1, b=1, c=1),
    workload("web", namespace="shop").spread("zone", 1).placed({"a-0": 6}),
    workload("etl", namespace="data").spread("zone", 1).placed({"b-0": 3}),
)


def with_rules(options: LiveOptions, rules: ApprovalRules) -> LiveOptions:
    planning = options.planning
    return replace(options, planning=replace(planning, policy=replace(planning.policy, approval=rules)))


class Team:
    """A daemon's cycles on one cluster, and the people who approve."""

    def __init__(self, server: ApiServer, connection: Connection, rules: ApprovalRules) -> None:
        self.server, self.connection = server, connection
        self.time = FakeTime()
        self.options = with_rules(replace(EXECUTE, limits=CycleLimits(per_second=1.0)), rules)
        self.meanwhile: Callable[[], object] = lambda: None
        self.newest: LiveOptions | None = None
        self.restart()
        self.told: list[Proposal] = []

    def restart(self) -> None:
        self.approvals = Approvals(
            self.connection, "default", lambda: self.options.planning.policy.approval, self.time
        )

    def cycle(self, **more: Any) -> CycleReport:
        store = Ledgers(
            self.connection, Place("default", "rebalancer-ledger"), writer="me", wait=self.time.wait
        )
        memory = Memory(self.time, HistoryRules(retry_after=0.0), store=store, writer="me")
        around = Surroundings(
            approvals=self.approvals, memory=memory, newest=lambda: self.newest or self.options
        )
        self.time.during = lambda _: self.meanwhile()
        run = Run(self.server, self.options, time=self.time, around=around, **more)
        self.told += run.story.proposals
        return run.report

    def shown(self, namespace: str = "default") -> dict[str, str]:
        found = self.server.store.find("ConfigMap", "rebalancer-plan", namespace)
        return dict(found["data"]) if found else {}

    def annotate(self, namespace: str = "default", /, **said: str | None) -> None:
        names = {"approve": APPROVE, "refuse": REFUSE}

        def change(o: dict[str, Any]) -> None:
            there = o["metadata"].setdefault("annotations", {})
            for key, value in said.items():
                there.pop(names[key], None)
                if value is not None:
                    there[names[key]] = value

        self.server.store.modify("ConfigMap", "rebalancer-plan", namespace, change)

    def look_at(self, *namespaces: str) -> None:
        planning = self.options.planning
        policy = replace(planning.policy, namespaces_include=namespaces)
        self.options = replace(self.options, planning=replace(planning, policy=policy))

    def evicted(self) -> bool:
        return any(r.subresource == "eviction" for r in self.server.accesses)

    def gone(self) -> list[str]:
        """Evicted pods."""
        return [a.name for a in self.server.accesses if a.subresource == "eviction" and a.code == 201]

    def once_evicted(self, act: Callable[[], object]) -> None:
        """Acts after the first eviction, while the others are to come."""

        def look() -> None:
            if self.evicted():
                self.meanwhile = lambda: None
                act()

        self.meanwhile = look

    def ledger(self) -> Ledger:
        place = Place("default", "rebalancer-ledger")
        return Ledgers(self.connection, place, writer="test", wait=lambda _: False).load()


@contextmanager
def team(rules: ApprovalRules = ALL, things: Iterable[Any] = (), **options: Any) -> Iterator[Team]:
    with (
        ApiServer(objects(*(things or TWO)), bookmark_every=0.1, **options) as server,
        connected(server) as connection,
    ):
        yield Team(server, connection, rules)


def test_nothing_is_evicted_before_somebody_approves_and_the_plan_after() -> None:
    with team() as t:
        before = t.cycle()
        assert (before.end, before.evicted) == (End.CAPPED, 0)
        assert "6 evictions wait for approval until" in before.message
        shown = t.shown()
        assert shown["approve"].endswith(f"{APPROVE}={shown['revision']} --overwrite")
        assert "shop/web-00000 from a-0 to" in shown["plan"]
        assert "losing the fullest domain takes 100% now, 33% after" in shown["plan"]
        assert "; saves 1, one pod is away for about 30 s\n" in shown["plan"]
        assert [p.evictions for p in t.told] == [6]
        t.annotate(approve=shown["revision"])
        assert t.cycle().evicted == 6
        assert {e.approved for e in t.ledger().entries} == {"an unknown client"}


def test_an_approval_is_for_the_method_that_was_shown() -> None:
    """That its pods may be evicted says nothing of releasing them."""
    web = deployment("web", namespace="shop").spread("zone", 1, selector={"owner": "web"}).placed({"a-0": 6})
    cluster = objects(*nodes(a=1, b=1, c=1), web)
    with ApiServer(cluster, bookmark_every=0.1) as server, connected(server) as c:
        t = Team(server, c, ALL)
        t.cycle()
        first = t.shown()
        assert "comes first" not in first["plan"]
        t.annotate(approve=first["revision"])
        planning = t.options.planning
        policy = replace(planning.policy, method="replaceFirst")
        t.options = replace(t.options, planning=replace(planning, policy=policy))
        assert t.cycle().evicted == 0
        assert "its replacement comes first" in t.shown()["plan"]
        assert t.shown()["revision"] != first["revision"]


def test_a_quiet_cycle_writes_the_plan_once() -> None:
    with team() as t:
        t.cycle()
        t.cycle()
        writes = [r.verb for r in t.server.accesses if r.name == "rebalancer-plan" and r.verb != "get"]
        assert "update" not in writes
        assert len(t.told) == 1


def test_the_ledger_says_which_client_approved_and_who_it_says_it_is() -> None:
    with team() as t, connected(t.server) as person:
        t.cycle()
        answer(person, "default", waiting(person, "default")["revision"], (), yes=True)
        assert t.cycle().evicted == 6
        assert all("which says it is" in e.approved for e in t.ledger().entries)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"revision": "0123456789ab"}, id="another revision in the display"),
        pytest.param({"plan": "1 eviction:\n  data/etl-00000"}, id="another plan in the display"),
    ],
)
def test_an_edited_display_changes_nothing(forged: dict[str, str]) -> None:
    with team() as t:
        t.cycle()
        t.server.store.modify("ConfigMap", "rebalancer-plan", "default", lambda o: o["data"].update(forged))
        t.annotate(approve=t.shown()["revision"] if "revision" in forged else "0123456789ab")
        assert t.cycle().evicted == 0


def test_after_a_restart_nothing_is_approved() -> None:
    with team() as t:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])
        t.restart()
        assert t.cycle().evicted == 0


def test_an_approval_ends_with_its_plan() -> None:
    with team(replace(ALL, lasts=600.0)) as t:
        t.cycle()
        revision = t.shown()["revision"]
        t.annotate(approve=revision)
        t.time.wait(601)
        assert t.cycle().evicted == 0
        assert t.shown()["revision"] != revision


@pytest.mark.parametrize(
    "said",
    [{"refuse": "REVISION"}, {"approve": None}],
    ids=["refuses", "takes the approval away"],
)
def test_who(said: dict[str, str | None]) -> None:
    """… while evictions are under way stops what has not gone."""
    with team() as t:
        t.cycle()
        revision = t.shown()["revision"]
        t.annotate(approve=revision)
        words = {k: revision if v else v for k, v in said.items()}

        def stop() -> None:
            if t.evicted():
                t.annotate(**words)
                t.meanwhile = lambda: None

        t.meanwhile = stop
        assert t.cycle().evicted == 1
        assert t.cycle().evicted == 0


def test_what_was_refused_does_not_come_back_when_the_next_plan_is_refused() -> None:
    with team() as t, connected(t.server) as person:
        t.look_at("shop")
        t.cycle()
        first = t.shown()["revision"]
        answer(person, "default", first, (), yes=True)

        def refuse() -> None:
            if t.evicted():
                answer(person, "default", first, (), yes=False)

        t.meanwhile = refuse
        assert t.cycle().evicted == 1
        t.meanwhile = lambda: None
        t.look_at("shop", "data")
        t.cycle()
        assert t.told[-1].evictions == 2
        second = t.shown()["revision"]
        assert second != first
        answer(person, "default", second, (), yes=False)
        assert t.cycle().evicted == 0
        t.annotate(approve=first)
        assert t.cycle().evicted == 0


def test_a_refused_plan_is_not_shown_again_as_it_was() -> None:
    with team() as t, connected(t.server) as person:
        t.cycle()
        answer(person, "default", t.shown()["revision"], (), yes=False)
        report = t.cycle()
        assert "6 evictions were refused" in report.message
        assert len(t.told) == 1
        refused = t.shown()["revision"]
        with pytest.raises(UserError, match=r"was refused.*rebalancer.io/refuse- has the daemon"):
            answer(person, "default", refused, (), yes=True)
        t.annotate(refuse=None)
        t.cycle()
        assert len(t.told) == 2
        answer(person, "default", t.shown()["revision"], (), yes=True)
        assert t.cycle().evicted == 6


@pytest.mark.parametrize("said", ["REVISION data/etl", "no"], ids=["only a part", "a word"])
def test_what_the_annotation_names_now_is_all_that_is_approved(said: str) -> None:
    with team() as t:
        t.cycle()
        revision = t.shown()["revision"]
        t.annotate(approve=f"{revision} shop/web")

        def narrow() -> None:
            if t.evicted():
                t.annotate(approve=said.replace("REVISION", revision))
                t.meanwhile = lambda: None

        t.meanwhile = narrow
        t.cycle()
        assert [e.namespace for e in t.ledger().entries].count("shop") == 1


@pytest.mark.parametrize(
    "stricter",
    [ApprovalRules(required=True, namespaces=("shop", "data"), lasts=1.0), ALL],
    ids=["it expires sooner", "its team may not any more"],
)
def test_what_became_stricter_binds_what_was_approved_before(stricter: ApprovalRules) -> None:
    with team(ApprovalRules(required=True, namespaces=("shop", "data"))) as t:
        t.cycle()
        t.annotate("shop", approve=t.shown("shop")["revision"])
        newest = [t.options]

        def change() -> None:
            if t.evicted():
                newest[0] = with_rules(t.options, stricter)

        t.time.during = lambda _: change()
        around = Surroundings(approvals=t.approvals, newest=lambda: newest[0])
        assert Run(t.server, t.options, time=t.time, around=around).report.evicted == 1


@pytest.mark.parametrize("only", ["", "shop/web,data/etl"])
def test_a_name_that_is_none_approves_nothing(only: str) -> None:
    with team() as t, connected(t.server) as person:
        t.cycle()
        with pytest.raises(UserError, match="--only wants namespace/name"):
            answer(person, "default", t.shown()["revision"], [only], yes=True)
        assert t.cycle().evicted == 0


def test_only_the_workloads_that_were_named_go() -> None:
    with team() as t:
        t.cycle()
        t.annotate(approve=f"{t.shown()['revision']} data/etl")
        assert t.cycle().evicted == 2
        assert {e.namespace for e in t.ledger().entries} == {"data"}


def test_a_team_approves_in_its_own_namespace_and_others_need_no_approval() -> None:
    with team(ApprovalRules(required=True, namespaces=("shop",))) as t:
        assert t.cycle().evicted == 2
        shown = t.shown("shop")
        assert "data/etl" not in shown["plan"]
        t.annotate("shop", approve=shown["revision"])
        assert t.cycle().evicted == 4


def test_a_namespace_that_comes_to_be_asked_in_mid_cycle_can_refuse() -> None:
    no = {"name": "rebalancer-plan", "namespace": "shop", "annotations": {REFUSE: "not now"}}
    with team() as t:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])

        def change() -> None:
            t.server.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": no})
            t.newest = with_rules(t.options, ApprovalRules(required=True, namespaces=("shop",)))

        t.once_evicted(change)
        t.cycle()
        assert 0 < len(t.gone()) < 6
        assert not any(name.startswith("web") for name in t.gone()[1:])


def test_where_the_namespace_refuses_the_display_the_whole_one_has_to_do() -> None:
    with team(ApprovalRules(required=True, namespaces=("shop",))) as t:
        t.server.faults.add(Reply(403), resource="configmaps", namespace="shop")
        t.cycle()
        assert t.shown("shop") == {}
        t.annotate(approve=t.shown()["revision"])
        assert t.cycle().evicted == 4


def test_where_no_display_can_be_written_nothing_goes_and_the_report_says_why() -> None:
    with team() as t:
        t.server.faults.add(Reply(403), resource="configmaps", name="rebalancer-plan")
        report = t.cycle()
        assert report.evicted == 0
        assert "need approval, and the plan cannot be shown" in report.message


def test_a_setting_that_demands_approval_binds_the_cycle_that_is_under_way() -> None:
    with team(ApprovalRules()) as t:
        t.approvals = None  # type: ignore[assignment]
        newest = with_rules(t.options, ALL)
        run = Run(t.server, t.options, time=t.time, around=Surroundings(newest=lambda: newest))
        assert run.report.evicted == 0


def test_a_daemon_starts_a_cycle_once_somebody_approves_on_the_command_line(tmp_path: Path) -> None:
    settings = BRISK.replace("interval: 1s", "interval: 1h").replace("canary: 0", "enabled: true, canary: 0")
    with (
        ApiServer(objects(*TWO)) as server,
        moving(server),
        daemon(server, tmp_path / "d", settings + "approval: {mode: required}\n") as d,
    ):
        until(lambda: "6 evictions wait for approval: kubectl annotate" in d.said())
        asked = call(server, tmp_path, "approve", "-n", "default")
        assert asked.returncode == 1
        assert "nobody can be asked here" in asked.stderr
        revision = server.store.get("ConfigMap", "rebalancer-plan", "default")["data"]["revision"]
        approved = call(server, tmp_path, "approve", "-n", "default", "--revision", revision)
        assert approved.stdout.endswith(f"approved: {revision}\n")
        until(lambda: evictions(server) == 6)
        events = [e["message"] for e in server.store.list("Event") if e["reason"] == "EvictionsProposed"]
        assert len(events) == 1
        assert f" -n default rebalancer.io/approve={revision} --overwrite" in events[0]
        once = call(server, tmp_path, "once", "--config", str(d.config))
        assert (once.returncode, once.stdout) == (1, "")
        assert "approval.mode is required" in once.stderr


def test_a_plan_that_has_changed_is_not_approved_by_its_old_revision(tmp_path: Path) -> None:
    with team() as t:
        t.cycle()
        late = call(t.server, tmp_path, "approve", "-n", "default", "--revision", "0123456789ab")
        assert late.returncode == 1
        assert "the plan has changed: its revision is" in late.stderr
        assert "no plan waits" in call(t.server, tmp_path, "refuse", "-n", "shop", "--revision", "x").stderr


SHOP = ApprovalRules(required=True, namespaces=("shop",))
WEB = (*nodes(a=1, b=1, c=1), workload("web", namespace="shop").spread("zone", 1).placed({"a-0": 6}))


@pytest.mark.parametrize(("yes", "no"), [("shop", "default"), ("default", "shop")])
def test_a_refusal_in_one_place_stops_what_was_approved_in_another(yes: str, no: str) -> None:
    with team(SHOP, WEB) as t, connected(t.server) as person:
        t.cycle()
        answer(person, yes, t.shown(yes)["revision"], (), yes=True)
        t.once_evicted(lambda: answer(person, no, t.shown(no)["revision"], (), yes=False))
        assert t.cycle().evicted == 1
        assert t.cycle().evicted == 0


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after a further cycle"])
@pytest.mark.parametrize(("yes", "no"), [("shop", "default"), ("default", "shop")])
def test_a_refusal_outlasts_the_process_that_was_told(yes: str, no: str, later: bool) -> None:
    with team(SHOP, WEB) as t, connected(t.server) as person:
        t.cycle()
        answer(person, no, t.shown(no)["revision"], (), yes=False)
        for _ in range(1 + later):
            if later:
                t.cycle()
            t.restart()
        assert "was refused until" in t.cycle().message
        with pytest.raises(UserError, match="nothing waits for approval"):
            waiting(person, yes)
        t.annotate(no, refuse=None)
        t.cycle()
        t.annotate(yes, approve=t.shown(yes)["revision"])
        assert t.cycle().evicted == 4


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("labels", "rebalancer.io/refuse"),
        ("annotations", "rebalancer.io/refused"),
        ("annotations", "rebalancer.io/Refuse"),
        ("annotations", "rebalancer.io/pause"),
        ("annotations", "refuse"),
        ("labels", "refuse"),
        ("annotations", "stop"),
        ("annotations", "rebalancer/approve-not"),
        ("data", "refuse"),
        ("data", "refused"),
    ],
)
def test_a_refusal_with_a_slip_stops_what_was_approved(written: str, key: str) -> None:
    with team(ApprovalRules(required=True), WEB) as t:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])

        def slip() -> None:
            t.server.store.modify(
                "ConfigMap",
                "rebalancer-plan",
                "default",
                lambda o: (
                    (o if written == "data" else o["metadata"]).setdefault(written, {}).update({key: "yes"})
                ),
            )

        t.once_evicted(slip)
        assert t.cycle().evicted == 1
        assert t.cycle().evicted == 0


@pytest.mark.parametrize(("yes", "no"), [("shop", "default"), ("default", "shop")])
def test_a_refusal_wins_over_a_later_approval_elsewhere_and_the_plan_is_shown_nowhere(
    yes: str, no: str
) -> None:
    with team(SHOP, WEB) as t, connected(t.server) as person:
        t.cycle()
        answer(person, no, t.shown(no)["revision"], (), yes=False)
        answer(person, yes, t.shown(yes)["revision"], (), yes=True)
        report = t.cycle()
        assert report.evicted == 0
        assert "4 evictions were refused" in report.message
        for place in (yes, no):
            with pytest.raises(UserError, match="nothing waits for approval") as told:
                waiting(person, place)
            assert (f"{REFUSE}- has the daemon" in told.value.remedy) == (place == no)
        t.annotate(no, refuse=None)
        # What was approved before the refusal is void for good.
        assert t.cycle().evicted == 0
        t.annotate(yes, approve=t.shown(yes)["revision"])
        assert t.cycle().evicted == 4


def test_a_team_refuses_for_its_namespace_only() -> None:
    with team(ApprovalRules(required=True, namespaces=("shop", "data"))) as t, connected(t.server) as person:
        t.cycle()
        answer(person, "default", t.shown()["revision"], (), yes=True)
        answer(person, "shop", t.shown("shop")["revision"], (), yes=False)
        assert t.cycle().evicted == 2
        assert {e.namespace for e in t.ledger().entries} == {"data"}


def test_where_a_namespace_cannot_be_asked_any_more_its_pods_stay_and_others_go() -> None:
    with team(ApprovalRules(required=True, namespaces=("shop", "data"))) as t:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])
        t.server.faults.add(Reply(403), resource="configmaps", namespace="shop")
        report = t.cycle()
        assert {e.namespace for e in t.ledger().entries} == {"data"}
        assert report.evicted == 2


@pytest.mark.parametrize("word", ["true", "", "REVISION shop/web", "0123456789ab"])
def test_who_refuses_without_a_revision_refuses_all_that_is_shown(word: str) -> None:
    with team() as t:
        t.cycle()
        revision = t.shown()["revision"]
        t.annotate(approve=revision)
        t.once_evicted(lambda: t.annotate(refuse=word.replace("REVISION", revision)))
        assert t.cycle().evicted == 1
        t.annotate(approve=t.shown()["revision"])
        assert t.cycle().evicted == 0


def test_who_refuses_while_nothing_waits_stops_what_was_approved_before() -> None:
    with team() as t, connected(t.server) as person:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])
        t.server.store.modify(
            "ConfigMap", "rebalancer-plan", "default", lambda o: o["data"].pop("approve", None)
        )
        answer(person, "default", t.shown()["revision"], (), yes=False)
        assert t.cycle().evicted == 0


def test_what_was_refused_of_another_leaders_plan_is_not_approved_by_an_old_one_of_mine() -> None:
    with team(SHOP, WEB) as t, connected(t.server) as person:
        t.cycle()
        first = t.approvals
        answer(person, "shop", t.shown("shop")["revision"], (), yes=True)
        t.restart()
        t.cycle()
        answer(person, "default", t.shown()["revision"], (), yes=False)
        t.approvals = first
        assert t.cycle().evicted == 0


@pytest.mark.parametrize(
    "words",
    ["R ", "R,", "R ,", "R , ,", " R", "R shop/none", "R shop/web shop/none", "R web", " shop/web"],
)
def test_words_that_name_nothing_approve_nothing_and_that_is_said(words: str) -> None:
    with team() as t:
        t.cycle()
        t.annotate(approve=words.replace("R", t.shown()["revision"]))
        report = t.cycle()
        assert report.evicted == 0
        assert f"{APPROVE} of ConfigMap default/rebalancer-plan approves nothing: " in report.message


NAMESAKES = (
    *nodes(a=1, b=1, c=1),
    deployment("web", namespace="shop").spread("zone", 1).placed({"a-0": 4}),
    workload("web", namespace="shop", kind="StatefulSet")
    .spread("zone", 1)
    .label_map({"x": "y"})
    .placed({"a-0": 4}),
)


def test_a_name_of_several_owners_approves_none_of_them_and_the_kind_tells_them_apart() -> None:
    with team(things=NAMESAKES) as t, connected(t.server) as person:
        t.cycle()
        revision = t.shown()["revision"]
        with pytest.raises(UserError, match="may be Deployment/shop/web or StatefulSet/shop/web"):
            answer(person, "default", revision, ["shop/web"], yes=True)
        with pytest.raises(UserError, match="'shop/none' names nothing in the plan"):
            answer(person, "default", revision, ["Deployment/shop/web", "shop/none"], yes=True)
        t.annotate(approve=f"{revision} shop/web")
        report = t.cycle()
        assert report.evicted == 0
        assert "may be Deployment/shop/web or StatefulSet/shop/web" in report.message
        answer(person, "default", revision, ["StatefulSet/shop/web"], yes=True)
        t.cycle()
        assert sorted(t.gone()) == ["web-0", "web-1"]


def test_where_a_node_was_labelled_anew_nothing_goes_into_what_nobody_approved() -> None:
    two = (*nodes(a=1, b=1), workload("web", namespace="shop").spread("zone", 1).placed({"a-0": 8}))

    def other(node: dict[str, Any]) -> None:
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "c"

    with team(things=two) as t:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])
        t.once_evicted(lambda: t.server.store.modify("Node", "b-0", None, other))
        assert t.cycle().evicted == 1


def test_plans_of_many_namespaces_leave_room_for_each_other() -> None:
    names = tuple(f"t{i}" for i in range(45))
    things = [workload("web", namespace=n).spread("zone", 1).placed({"a-0": 2}) for n in names]
    with team(ApprovalRules(required=True, namespaces=names), (*nodes(a=1, b=1, c=1), *things)) as t:
        t.cycle()
        t.annotate(approve=t.shown()["revision"])
        assert t.cycle().evicted == 45


def test_an_approval_of_a_part_outlasts_many_plans_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "_MOST_HELD", 2)
    names = [f"t{i}" for i in range(5)]
    things = [workload("web", namespace=n).spread("zone", 1).placed({"a-0": 2}) for n in names]
    with team(things=(*nodes(a=1, b=1, c=1), *things)) as t:
        t.look_at(*names[:2])
        t.cycle()
        t.annotate(approve=f"{t.shown()['revision']} t0/web")
        usual = t.options
        for number in range(3, 6):
            t.options = replace(usual, max_time=0.0)
            t.look_at(*names[:number])
            t.cycle()
        assert [p.evictions for p in t.told] == [2, 3, 4, 5]
        t.options = usual
        assert t.cycle().evicted == 1
