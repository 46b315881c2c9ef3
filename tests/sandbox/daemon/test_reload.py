"""Settings that change under a running daemon: which are taken over, and which are told by name."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import KEY
from rebalancer.outcome import Observer, Observers
from rebalancer.policy.history.ledger import Fate
from rebalancer.policy.history.ledger_json import decode
from rebalancer.runtime.daemon.service import Reloader, Service
from rebalancer.runtime.live.configured import LiveOptions, telemetry_options
from rebalancer.runtime.live.places import places_of
from rebalancer.runtime.observers.log import LogObserver
from rebalancer.settings import Settings, load_settings, plan_options
from rebalancer.telemetry import logs
from rebalancer.telemetry.start import telemetry_for
from tests.support.build import deployment, nodes, objects
from tests.support.processes.daemon_process import BRISK, daemon, evictions, get
from tests.support.runs.one_cycle import EXECUTE, SKEWED, cycle
from tests.support.sandbox import ApiServer, Cluster
from tests.support.servers.api import connected
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


class Taken(Observer):
    """What was told."""

    def __init__(self) -> None:
        self.settings: list[Settings] = []
        self.reloads: list[str] = []

    def on_reload(self, problem: str) -> None:
        self.reloads.append(problem)


class Change:
    """A reloader over settings that the test changes."""

    def __init__(self, **first: Any) -> None:
        self.now: dict[str, Any] = first
        self.taken = Taken()
        self.reloader = Reloader(
            self.load(),
            self.load,
            file=None,
            observer=Observers([self.taken, LogObserver()]),
            follow=self.taken.settings.append,
        )

    def load(self) -> Settings:
        return load_settings(env={}, flags=self.now)

    def to(self, **then: Any) -> Settings | None:
        """SIGHUP, and the next moment between two cycles."""
        self.now = then
        self.reloader.ask()
        self.reloader.look()
        return self.reloader.take()


LATE: list[tuple[dict[str, Any], str]] = [
    ({"leaderElection": {"name": "other"}}, "leaderElection.name"),
    ({"health": {"address": ":9999"}}, "health.address"),
    ({"ledger": {"mode": "memory"}}, "ledger.mode"),
    ({"telemetry": {"otlp": {"endpoint": "http://user:word@there:4318"}}}, "telemetry.otlp.endpoint"),
    ({"telemetry": {"clusterName": "east"}}, "telemetry.clusterName"),
]


@pytest.mark.parametrize(("then", "name"), LATE, ids=[name for _, name in LATE])
def test_what_needs_a_restart_is_told_by_name_and_is_not_in_force(
    then: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    c = Change()
    before = c.reloader.settings
    c.to(**then)
    assert c.reloader.settings == before
    assert f"{name}: what changed there is in force after the next start only" in caplog.messages
    assert "word" not in caplog.text
    caplog.clear()
    c.to(**then)
    assert not any("after the next start only" in m for m in caplog.messages)


SOON: list[tuple[dict[str, Any], Callable[[Settings], object], object]] = [
    ({"telemetry": {"logLevel": "debug"}}, lambda s: s.telemetry.log_level, "debug"),
    ({"telemetry": {"logFormat": "json"}}, lambda s: s.telemetry.log_format, "json"),
    ({"telemetry": {"traceSampling": 0.5}}, lambda s: s.telemetry.trace_sampling, 0.5),
    ({"telemetry": {"metricsFile": "/x.prom"}}, lambda s: s.telemetry.metrics_file, "/x.prom"),
    ({"telemetry": {"constraintSeries": 3}}, lambda s: s.telemetry.constraint_series, 3),
    ({"health": {"hungAfter": "2m"}}, lambda s: s.health.hung_after, 120),
    ({"evictions": {"canary": 1}}, lambda s: s.evictions.canary, 1),
]


@pytest.mark.parametrize(("then", "look", "value"), SOON, ids=[str(next(iter(s[0].values()))) for s in SOON])
def test_what_may_change_is_in_force_at_once(
    then: dict[str, Any], look: Callable[[Settings], object], value: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    c = Change()
    assert c.to(**then) is c.reloader.settings
    assert look(c.reloader.settings) == value
    (group, inner), *_ = then.items()
    assert f"settings that changed: {group}.{next(iter(inner))}" in caplog.messages
    assert c.taken.settings == [c.reloader.settings]
    assert c.taken.reloads == [""]


def test_of_a_change_of_both_kinds_one_part_is_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    c = Change()
    new = c.to(evictions={"canary": 1}, ledger={"name": "other"})
    assert new is not None
    assert (new.evictions.canary, new.ledger.name) == (1, "rebalancer-ledger")
    assert "ledger.name: what changed there" in caplog.text
    back = c.to(ledger={"name": "other"})
    assert back is not None
    assert back.evictions.canary == 5


def test_a_signal_takes_settings_over_although_none_differs_as_files_they_name_may_have_changed() -> None:
    c = Change()
    assert c.to() is c.reloader.settings
    assert c.taken.reloads == [""]
    c.reloader.look()
    assert c.reloader.take() is None


def test_what_was_refused_leaves_the_old_settings_and_the_next_good_ones_count() -> None:
    c = Change(evictions={"canary": 2})
    assert c.to(evictions={"canary": "many"}) is None
    assert c.reloader.settings.evictions.canary == 2
    assert "evictions.canary" in c.taken.reloads[0]
    new = c.to(evictions={"canary": 3})
    assert new is not None
    assert new.evictions.canary == 3


def test_a_defect_in_reading_settings_refuses_them() -> None:
    c = Change(evictions={"canary": 2})

    def fails() -> Settings:
        raise RuntimeError("a defect")

    c.reloader._load = fails
    assert c.to(evictions={"canary": 3}) is None
    assert "RuntimeError: a defect" in c.taken.reloads[0]
    assert c.reloader.settings.evictions.canary == 2


def test_settings_that_cannot_be_read_amid_evictions_cost_neither_the_daemon_nor_its_ledger(
    tmp_path: Path,
) -> None:
    """A torn copy, a directory and no file at all: nothing more goes, what went is concluded, and the next
    good file is in force."""
    sets = [deployment(f"w{i}").spread("zone", 1).placed({"a-0": 2, "b-0": 2}) for i in range(6)]
    settings = BRISK.replace("canary: 0", "enabled: true, canary: 0").replace("perSecond: 0", "perSecond: 2")
    with Cluster(objects(*nodes(a=2, b=2, c=2), *sets), ready_after=1, grace=0.1) as c:
        c.settle()

        def went() -> int:
            return sum(a.subresource == "eviction" and a.code == 201 for a in c.server.accesses)

        with daemon(c.server, tmp_path, settings) as d:
            until(went)
            d.config.write_bytes(b"evictions: {enabled: true}\n\0\0")
            until(lambda: "config.yaml:2:1: " in d.said() and "nothing is evicted now" in d.said())
            held = went()
            until(lambda: "cycle over (held)" in d.said())
            assert 0 < held < 6
            ledger = decode(c.store.get("ConfigMap", "rebalancer-ledger", "default")["data"][KEY])
            assert {e.uid for e in ledger.entries if e.fate is Fate.INTENDED} == set()
            for step in (d.config.unlink, d.config.mkdir):
                before = d.said().count("cycle over (held)")
                step()
                until(lambda n=before: d.said().count("cycle over (held)") > n)  # type: ignore[misc]
            assert "is a directory" in d.said()
            assert went() == held
            assert get(d.port, "/healthz") == (200, "ok\n")
            d.config.rmdir()
            d.configure(settings)
            until(lambda: went() == 6)
            assert d.end() == 0


def test_metrics_and_traces_follow_changed_settings(server: ApiServer, tmp_path: Path) -> None:
    settings = load_settings(env={}, flags={"telemetry": {"constraintSeries": 0}})
    with telemetry_for(telemetry_options(settings)) as telemetry:
        told = telemetry.observers
        cycle(server, EXECUTE, told)
        assert "rebalancer_constraint_skew{" not in telemetry.exposition()[0].decode()
        file = tmp_path / "rebalancer.prom"
        flags = {"telemetry": {"constraintSeries": 5, "metricsFile": str(file), "traceSampling": 0.0}}
        telemetry.change(telemetry_options(load_settings(env={}, flags=flags)))
        cycle(server, EXECUTE, told)
        assert "rebalancer_constraint_skew{" in file.read_text()
        span = telemetry.spans._tracer.start_span("cycle")
        assert not span.get_span_context().trace_flags.sampled


def test_a_log_that_somebody_else_set_up_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_now", None)
    level = logging.getLogger().level
    logs.change("debug", "json")
    assert logging.getLogger().level == level


def test_a_running_daemon_changes_its_log(server: ApiServer, tmp_path: Path) -> None:
    with daemon(server, tmp_path) as d:
        until(lambda: "cycle over (recorded)" in d.said())
        assert " DEBUG " not in d.said()
        d.configure(BRISK + "telemetry: {logLevel: debug, logFormat: json, clusterName: east}")
        until(lambda: '"level": "debug"' in d.said())
        until(lambda: "the changed settings are in force" in d.said())
        assert "telemetry.clusterName: what changed there is in force after the next start only" in d.said()
        whole = d.said().rpartition("\n")[0]
        last = json.loads(whole.splitlines()[-1])
        assert last["time"].endswith("Z")
        # Switched by the signal, it is the new level that it returns to.
        d.configure(BRISK + "telemetry: {logLevel: warning, logFormat: json}")
        until(lambda: d.said().count("settings that changed") == 2)
        os.kill(d.popen.pid, signal.SIGUSR1)
        until(lambda: "log level is debug now" in d.said())

        # The new level may come in force only after it was said, and then undoes one signal.
        def quiet() -> bool:
            os.kill(d.popen.pid, signal.SIGUSR1)
            time.sleep(0.5)
            return "log level is warning now" in d.said()

        until(quiet)
        assert d.end() == 0


def test_who_stands_for_a_lease_heeds_its_brake_also_when_settings_name_another(
    server: ApiServer, tmp_path: Path
) -> None:
    settings = BRISK.replace("canary: 0", "canary: 0, enabled: true")
    slow = settings.replace("interval: 1s", "interval: 300ms")
    server.store.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "rebalancer",
                "namespace": "default",
                "annotations": {"rebalancer.io/pause": "4711"},
            },
        }
    )
    with daemon(server, tmp_path, slow) as d:
        until(lambda: "nothing is evicted now" in d.said())
        d.configure(slow.replace("leaderElection: {", "leaderElection: {name: other, "))
        until(
            lambda: (
                "leaderElection.name: what changed there is in force after the next start only" in d.said()
            )
        )
        held = d.said().count("cycle over (held)")
        until(lambda: d.said().count("cycle over (held)") >= held + 3)
        assert not any(a.subresource == "eviction" for a in server.accesses)
        assert get(d.port, "/healthz") == (200, "ok\n")
        assert d.end() == 0


def test_a_file_that_is_gone_when_its_settings_are_taken_over_costs_the_settings_not_the_daemon(
    server: ApiServer, tmp_path: Path
) -> None:
    """Between the check and the end of the cycle at work somebody takes away the scheduler's file."""
    scheduler = tmp_path / "scheduler.yaml"
    scheduler.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    c = Change()
    flags = {"planner": {"schedulerConfig": str(scheduler)}, "evictions": {"canary": 1}}

    def load() -> Settings:
        settings = load_settings(env={}, flags=c.now)
        plan_options(settings)
        return settings

    with connected(server) as connection:
        reloader = Reloader(c.load(), load, file=None, observer=c.taken, follow=c.taken.settings.append)
        stop = threading.Event()
        places = places_of(reloader.settings, connection, wait=stop.wait)
        service = Service(connection, reloader, places=places, stop=stop, observers=[c.taken])
        c.now = flags
        reloader.ask()
        reloader.look()
        scheduler.unlink()
        service._take_over()
        assert reloader.settings.evictions.canary == 5
        assert c.taken.settings == []
        (problem,) = c.taken.reloads
        assert str(scheduler) in problem
        scheduler.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
        reloader.ask()
        reloader.look()
        service._take_over()
        assert reloader.settings.evictions.canary == 1


SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NO_SPREAD = SCHEDULER + (
    "profiles: [{schedulerName: default-scheduler, plugins: {multiPoint: "
    "{disabled: [{name: PodTopologySpread}]}}}]\n"
)


def test_the_schedulers_file_is_part_of_the_settings(server: ApiServer, tmp_path: Path) -> None:
    """The settings file stays as it is, all the time."""
    scheduler, file, c = tmp_path / "scheduler.yaml", tmp_path / "settings.yaml", Change()
    scheduler.write_text(SCHEDULER)
    file.write_text(f"planner: {{schedulerConfig: {scheduler}}}\n")

    def load() -> Settings:
        return load_settings(file, env={})

    with connected(server) as connection:
        reloader = Reloader(load(), load, file=file, observer=c.taken, follow=c.taken.settings.append)
        places = places_of(load(), connection, wait=threading.Event().wait)
        stop = threading.Event()
        service = Service(connection, reloader, places=places, stop=stop, observers=[c.taken])

        def known(options: LiveOptions) -> str:
            assert options.planning.scheduler is not None
            return options.planning.scheduler.profiles[0].digest

        def scheduler_after(text: str) -> str:
            scheduler.write_text(text)
            reloader.look()
            service._take_over()
            return known(service._live)

        first = known(service._live)
        assert known(service._newest()) == first
        assert scheduler_after(SCHEDULER) == first
        assert not c.taken.reloads
        assert scheduler_after("{") == first
        (problem,) = c.taken.reloads
        assert str(scheduler) in problem
        with pytest.raises(UserError):  # so nothing more is evicted
            service._newest()
        changed = scheduler_after(NO_SPREAD)
        assert changed != first
        assert known(service._newest()) == changed
        assert c.taken.reloads[1:] == [""]


def test_a_schedulers_file_that_comes_after_the_settings_that_name_it_is_read(tmp_path: Path) -> None:
    scheduler, file, taken = tmp_path / "scheduler.yaml", tmp_path / "settings.yaml", Taken()
    file.write_text("{}")

    def load() -> Settings:
        return load_settings(file, env={})

    reloader = Reloader(load(), load, file=file, observer=taken)
    file.write_text(f"planner: {{schedulerConfig: {scheduler}}}\n")
    reloader.look()
    assert str(scheduler) in taken.reloads[0]
    scheduler.write_text(SCHEDULER)
    reloader.look()
    assert reloader.take() is not None


def test_a_daemon_that_may_evict_no_more_gives_the_lease_back_and_stands_for_it_again(tmp_path: Path) -> None:
    settings = BRISK.replace("canary: 0", "canary: 0, enabled: true")
    with ApiServer(objects(*SKEWED[:3])) as server, daemon(server, tmp_path, settings) as d:

        def led() -> bool:
            return any(x["spec"].get("holderIdentity") for x in server.store.list("Lease"))

        until(led)
        d.configure(settings.replace("enabled: true", "enabled: false"))
        until(lambda: not led())
        d.configure(settings)
        until(led)


def test_nothing_is_evicted_before_an_election_can_begin_that_new_settings_ask_for(tmp_path: Path) -> None:
    settings = BRISK.replace("canary: 0", "canary: 0, enabled: true")
    off = settings.replace("enabled: true", "enabled: false")
    with Cluster(objects(*SKEWED)) as c, daemon(c.server, tmp_path, off) as d:
        until(lambda: "evict" in d.said())
        kubeconfig = tmp_path / "kubeconfig"
        good = kubeconfig.read_text()
        kubeconfig.write_text("")
        d.configure(settings)
        until(lambda: "is empty" in d.said() or evictions(c.server) or d.popen.poll() is not None)
        assert (evictions(c.server), d.popen.poll()) == (0, None)
        kubeconfig.write_text(good)
        until(lambda: evictions(c.server))
        assert any(x["spec"].get("holderIdentity") for x in c.store.list("Lease"))
