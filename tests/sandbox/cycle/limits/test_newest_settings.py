"""Settings that change in the middle of a cycle: what became stricter binds the next eviction."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.outcome import End
from rebalancer.policy.history.ledger import Entry, Fate, Ledger
from rebalancer.policy.history.waits import HistoryRules
from rebalancer.runtime.cycle.memory import Memory
from rebalancer.runtime.live.assembly import Surroundings
from rebalancer.runtime.live.checks import CycleChecks
from rebalancer.runtime.live.configured import LiveOptions, Newest, live_options, memory_rules
from rebalancer.runtime.live.places import places_of
from rebalancer.settings import Settings, load_settings
from rebalancer.settings.loading import enabled_in_file
from tests.support.build import deployment, node, nodes, objects, workload
from tests.support.runs.one_cycle import EXECUTE, SKEWED, Run
from tests.support.sandbox import ApiServer, is_ready
from tests.support.servers.api import QUICK, FakeTime, connected
from tests.support.servers.hands import Hands

HASH = "pod-template-hash"
ON = "evictions: {enabled: true, perSecond: 1}\n"


def run(
    folder: Path,
    then: str | bytes,
    first: str = ON,
    *,
    things: Iterable[Any] = SKEWED,
    flags: dict[str, Any] | None = None,
    look: Callable[[ApiServer], object] = lambda _: None,
    attended: bool = True,
    earlier: tuple[Entry, ...] = (),
    after: int = 1,
) -> Run:
    """A cycle whose settings file changes as soon as so many pods were evicted. `look`: called again and
    again. `earlier`: what an earlier cycle evicted."""
    file = folder / "settings.yaml"
    file.write_text(first)
    time = FakeTime()

    def load() -> Settings:
        return load_settings(file, env={}, flags=flags)

    with ApiServer(objects(*things)) as server, connected(server) as connection:
        places = places_of(load(), connection, wait=threading.Event().wait)

        def options(settings: Settings) -> LiveOptions:
            return replace(live_options(settings, connection, places, attended=attended), backoff=QUICK)

        def change(_: float) -> None:
            look(server)
            if sum(a.subresource == "eviction" for a in server.accesses) >= after:
                file.write_bytes(then if isinstance(then, bytes) else then.encode())

        time.during = change
        newest = Newest(file, load, options, enabled_in_file(file))
        memory = Memory(time, memory_rules(load(), attended=attended), limits=options(load()).breaker)
        memory.ledger = Ledger(entries=earlier)
        around = Surroundings(newest=newest, memory=memory)
        return Run(server, options(load()), time=time, around=around)


STRICTER = [
    ("evictions off", "evictions: {enabled: false}", ReasonCode.EVICTIONS_DISABLED),
    ("a file of nothing, so evictions off", "", ReasonCode.EVICTIONS_DISABLED),
    (
        "a window",
        ON + 'schedule: {windows: [{cron: "* * * * *", duration: 1h, action: deny}]}',
        ReasonCode.WINDOW,
    ),
    ("less time", ON + "schedule: {maxCycleTime: 100ms}", ReasonCode.CYCLE_TIME),
    (
        "a namespace excluded",
        ON + "scope: {namespaces: {exclude: [default]}}",
        ReasonCode.EXCLUDED_NAMESPACE,
    ),
    ("opt-in", ON + "scope: {mode: opt-in}", ReasonCode.OUT_OF_SCOPE),
    ("pods protected", ON + "policy: {protectPodsWithoutPdb: true}", ReasonCode.NO_PDB),
    ("a cap in total", "evictions: {enabled: true, maxTotal: 1}", ReasonCode.CAP),
    ("a cap per owner", "evictions: {enabled: true, maxPerOwner: 1}", ReasonCode.CAP),
    ("a cap an hour", "evictions: {enabled: true, maxTotalPerHour: 1}", ReasonCode.CAP),
    ("a cap a day", "evictions: {enabled: true, maxPerOwnerPerDay: 1}", ReasonCode.CAP),
    ("a cap per domain", "evictions: {enabled: true, maxPerDomain: 1}", ReasonCode.CAP),
    ("a mistake", "evictions: nonsense", ReasonCode.SETTINGS_INVALID),
    ("no YAML", "evictions: {", ReasonCode.SETTINGS_INVALID),
    ("a torn copy", ON.encode() + b"\0\0\0", ReasonCode.SETTINGS_INVALID),
    ("another encoding", ON.encode("utf-16"), ReasonCode.SETTINGS_INVALID),
    ("a quote that was decoded twice", ON.encode() + b"# it\xc2\x92s on\n", ReasonCode.SETTINGS_INVALID),
    ("a day that no month has", ON.encode() + b"brake: {name: 2026-02-31}\n", ReasonCode.SETTINGS_INVALID),
]


@pytest.mark.parametrize(("what", "then", "code"), STRICTER, ids=[what for what, _, _ in STRICTER])
def test_what_became_stricter_binds_the_next_eviction(
    what: str, then: str | bytes, code: ReasonCode, tmp_path: Path
) -> None:
    r = run(tmp_path, then)
    assert r.evictions() == r.report.evicted == 1, what
    skipped = [o.reason for o in r.report.outcomes if not o.evicted and o.reason]
    reasons = skipped or [r.report.reason] if r.report.reason else skipped
    assert {x.code for x in reasons} == {code}


@pytest.mark.parametrize("cap", ["maxTotal: 2", "maxTotalPerHour: 2"])
def test_of_two_caps_that_come_together_each_counts_what_the_other_would_have_refused(
    cap: str, tmp_path: Path
) -> None:
    """Two have gone from one node when only one of them may, and two in all."""
    on = "evictions: {enabled: true, perSecond: 1, canary: 0"
    webs = [deployment(f"w{i}").spread("zone", 1).placed({"a-0": 6}) for i in range(4)]
    others = [deployment(f"x{i}").spread("zone", 1).placed({"b-0": 6}) for i in range(4)]
    things = [*nodes(a=1, b=1, c=1), *webs, *others]
    r = run(tmp_path, f"{on}, {cap}, maxPerNode: 1}}", f"{on}}}", things=things, after=2)
    assert [o.move.pod.node_name for o in r.report.outcomes if o.evicted] == ["a-0", "a-0"]


def test_a_smaller_share_of_an_owner_binds_the_next_eviction(tmp_path: Path) -> None:
    """All twelve may be away together when the first goes, one of them after that."""
    many = (*nodes(a=1, b=1, c=1), workload("web").spread("zone", 1).placed({"a-0": 12}))
    share = "evictions: {{enabled: true, perSecond: 1, inFlightPerOwner: {}}}"
    away: list[int] = []

    def look(server: ApiServer) -> None:
        pods = server.store.list("Pod")
        away.append(12 - sum(is_ready(p) and "deletionTimestamp" not in p["metadata"] for p in pods))

    r = run(tmp_path, share.format(1), share.format("100%"), things=many, look=look)
    assert r.evictions() == 8
    assert max(away) == 1


def other_scheduler() -> Iterator[Any]:
    """Pods of a scheduler whose rules are not known."""
    for o in objects(workload("web").spread("zone", 1).placed({"a-0": 6})):
        pod = o if o["kind"] == "Pod" else o["spec"]["template"]
        pod["spec"]["schedulerName"] = "other"
        yield o


LIKELY = ON + "planner: {certainty: likely}\n"
SOFT = ON + "planner: {softConstraints: predicted}\n"
PLANNED: dict[str, tuple[str, str, list[Any], ReasonCode]] = {
    "soft constraints": (
        SOFT,
        ON,
        [workload("web").spread("zone", 1, soft=True).placed({"a-0": 6})],
        ReasonCode.OUT_OF_SCOPE,
    ),
    "certain": (LIKELY, ON, [*other_scheduler()], ReasonCode.NOT_CERTAIN),
    "worth": (
        ON,
        "evictions: {enabled: true, minWorth: 1.0}",
        [workload("web").spread("zone", 1).placed({"a-0": 5, "b-0": 5})],
        ReasonCode.NOT_WORTH_IT,
    ),
}


@pytest.mark.parametrize("what", PLANNED)
def test_what_the_planner_would_no_longer_plan_binds_the_next_eviction(what: str, tmp_path: Path) -> None:
    first, then, pods, code = PLANNED[what]
    r = run(tmp_path, then, first, things=(*nodes(a=1, b=1, c=1), *pods))
    assert r.evictions() == 1
    assert {o.reason.code for o in r.report.outcomes if o.reason} == {code}


@pytest.mark.parametrize("method", ["replaceFirst", "auto"])
@pytest.mark.parametrize("spare", [True, False], ids=["the budget allows it", "another asks for the label"])
def test_what_would_be_replaced_first_by_now_is_not_evicted_before_that(
    method: str, spare: bool, tmp_path: Path
) -> None:
    """`auto` evicts what a budget allows, and what cannot be released is evicted as before."""
    web = deployment("web").spread("zone", 1).placed({"a-0": 6})
    things = [*objects(*nodes(a=1, b=1, c=1), web)]
    if not spare:
        (label,) = {o["metadata"]["labels"][HASH] for o in things if o["kind"] == "Pod"}
        spec = {"selector": {HASH: label}, "ports": [{"port": 80}]}
        meta = {"name": "x", "namespace": "default"}
        things.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    then = ON.replace("}", f", method: {method}}}")
    r = run(tmp_path, then, ON, things=things)
    waits = method == "replaceFirst" and spare
    assert r.evictions() == (1 if waits else 4)
    if waits:
        assert {o.reason.code for o in r.report.outcomes if o.reason} == {ReasonCode.NOT_REPLACED_FIRST}


def test_another_configuration_of_the_scheduler_binds_the_next_eviction(tmp_path: Path) -> None:
    made = {"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v1"}
    (tmp_path / "scheduler.json").write_text(json.dumps(made))
    r = run(tmp_path, ON + f"planner: {{schedulerConfig: {tmp_path / 'scheduler.json'}}}\n")
    assert r.evictions() == 1
    assert {o.reason.code for o in r.report.outcomes if o.reason} == {ReasonCode.NOT_CERTAIN}


def test_a_shorter_time_for_replacements_counts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them starts; with 300 s all five went before the first was late."""
    monkeypatch.setattr(Hands, "_start", lambda *_: None)
    settings = "evictions: {{enabled: true, perSecond: 0.1, readyTimeout: {}}}\n"
    some = (workload(f"w{i}").spread("zone", 1).placed({"a-0": 2, "b-0": 1}) for i in range(5))
    many = (*nodes(a=1, b=1, c=1), *some)
    r = run(tmp_path, settings.format("15s"), settings.format("300s"), things=many)
    assert r.evictions() == 3


WAITS = "evictions: {{enabled: true, perSecond: 1, stabilization: {}, coolDown: {}, canary: {}}}"
NOTHING = WAITS.format("0s", "0s", 0)


@pytest.mark.parametrize(
    ("then", "code"),
    [
        (WAITS.format("1h", "0s", 0), ReasonCode.STABILIZING),
        (WAITS.format("0s", "1h", 0), ReasonCode.COOL_DOWN),
    ],
    ids=["stabilization", "coolDown"],
)
def test_what_memory_waits_for_longer_binds_the_next_eviction(
    then: str, code: ReasonCode, tmp_path: Path
) -> None:
    before = Entry(
        at=FakeTime().now() - 60, cycle="before", namespace="default", pod="web-0", uid="gone",
        owner="ReplicaSet/default/web", node="a-0", predicted="b-0", fate=Fate.DONE,
    )  # fmt: skip
    r = run(tmp_path, then, NOTHING, attended=False, earlier=(before,))
    assert r.evictions() == 1
    assert {o.reason.code for o in r.report.outcomes if o.reason} == {code}


def test_of_two_rules_the_one_that_waits_longer_counts() -> None:
    one = HistoryRules(
        cool_down=1,
        retry_after=9,
        max_returns=0,
        stabilization=1,
        settle=9,
        canary=0,
        after_undone=(),
        out_wait=9,
    )
    two = HistoryRules(
        cool_down=9,
        retry_after=1,
        max_returns=3,
        stabilization=9,
        settle=1,
        canary=5,
        after_undone=(1,),
        out_wait=1,
    )
    both = HistoryRules(
        cool_down=9,
        retry_after=9,
        max_returns=3,
        stabilization=9,
        settle=9,
        canary=5,
        after_undone=(1,),
        out_wait=9,
    )
    assert one.stricter(two) == two.stricter(one) == both
    assert both.stricter(replace(both, max_returns=2)).max_returns == 2


@pytest.mark.parametrize(("rate", "least", "most"), [("1.0", 0, 28), ("0.1", 30, 60)])
def test_a_slower_pace_binds_the_next_eviction(rate: str, least: int, most: int, tmp_path: Path) -> None:
    r = run(tmp_path, f"evictions: {{enabled: true, perSecond: {rate}}}\n")
    assert r.evictions() == 4
    assert least < r.time.now() - FakeTime().now() < most


def test_a_longer_grace_period_binds_the_next_eviction(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def look(server: ApiServer) -> None:
        for pod in server.store.list("Pod"):
            if "deletionTimestamp" in pod["metadata"]:
                seen.setdefault(pod["metadata"]["name"], pod["metadata"]["deletionGracePeriodSeconds"])

    long, short = (f"evictions: {{enabled: true, perSecond: 1, gracePeriod: {s}}}\n" for s in ("60s", "1s"))
    run(tmp_path, long, short, look=look)
    assert sorted(seen.values()) == [1, 60, 60, 60]


def test_a_canary_that_comes_in_mid_cycle_counts_at_once() -> None:
    memory = Memory(FakeTime(), HistoryRules())
    assert (memory.most_in_flight, memory.most_released, memory.canary_left) == (None, None, 0)
    memory.newest = lambda: [HistoryRules(canary=5)]
    assert (memory.most_in_flight, memory.most_released, memory.canary_left) == (1, 1, 5)


def test_a_breaker_that_is_set_lower_binds_the_next_eviction(tmp_path: Path) -> None:
    """One of four nodes is NotReady all the time."""
    sick = (*SKEWED, node("c-1").zone("c").not_ready())
    first = ON + "breaker: {maxNotReadyNodes: 2}\n"
    r = run(tmp_path, ON + "breaker: {maxNotReadyNodes: 0}\n", first, things=sick)
    assert r.evictions() == 1
    assert r.report.reason is not None
    assert r.report.reason.code is ReasonCode.CLUSTER_UNWELL


@pytest.mark.parametrize(
    ("first", "then", "evictions"),
    [
        ("evictions: {perSecond: 1}", "evictions: {enabled: false, perSecond: 1}", 1),
        ("evictions: {enabled: true, perSecond: 1}", "evictions: {enabled: false, perSecond: 1}", 1),
        ("evictions: {enabled: true, perSecond: 1}", "evictions: {perSecond: 1}", 1),
        ("evictions: {enabled: false, perSecond: 1}", "evictions: {enabled: false, perSecond: 1.0}", 4),
        ("evictions: {perSecond: 1}", "evictions: {enabled: true, perSecond: 1}", 4),
    ],
)
def test_execute_has_precedence_over_the_file_as_it_was_and_not_over_what_is_changed_later(
    first: str, then: str, evictions: int, tmp_path: Path
) -> None:
    r = run(tmp_path, then, first, flags={"evictions": {"enabled": True}})
    assert r.evictions() == evictions
    if evictions == 1:
        assert r.report.reason is not None
        assert r.report.reason.code is ReasonCode.EVICTIONS_DISABLED


def test_what_is_written_before_the_first_question_is_a_change_too(tmp_path: Path) -> None:
    """A standby asks for the first time when it leads, a run that waits or is confirmed after that."""
    file = tmp_path / "settings.yaml"
    file.write_text("evictions: {enabled: true}")

    def load() -> Settings:
        return load_settings(file, env={}, flags={"evictions": {"enabled": True}})

    newest = Newest(file, load, lambda _: EXECUTE, enabled_in_file(file))
    file.write_text("evictions: {enabled: false}")
    assert not newest().execute


def test_a_file_that_is_gone_stops_evictions(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "settings.yaml"
    newest = Newest(file, lambda: load_settings(file, env={}), lambda _: EXECUTE)
    reason = CycleChecks(EXECUTE, FakeTime(), newest=newest).closed()
    assert reason is not None
    assert reason.code is ReasonCode.SETTINGS_INVALID
    assert "settings.yaml: no such file or directory" in reason.message


def test_whatever_reading_settings_raises_stops_evictions_and_not_the_process() -> None:
    def load() -> Settings:
        raise RuntimeError("a defect")

    newest = Newest(None, load, lambda _: EXECUTE)
    reason = CycleChecks(EXECUTE, FakeTime(), newest=newest).closed()
    assert reason is not None
    assert reason.code is ReasonCode.SETTINGS_INVALID
    assert "RuntimeError: a defect" in reason.message


def test_what_became_looser_waits_for_the_next_cycle(tmp_path: Path) -> None:
    r = run(tmp_path, then=ON, first="evictions: {enabled: true, maxTotal: 1}")
    assert r.evictions() == 1
    assert r.report.end is End.CAPPED


def test_settings_that_say_the_same_in_other_words_change_nothing(tmp_path: Path) -> None:
    r = run(tmp_path, then="# the same\n" + ON)
    assert r.evictions() == 4
    assert r.report.end is End.COMPLETE
