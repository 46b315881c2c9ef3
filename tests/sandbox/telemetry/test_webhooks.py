"""Messages to webhooks over real HTTP: what a dead, slow or refusing receiver costs, and what is told."""

from __future__ import annotations

import json
import logging
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from rebalancer.outcome import Proposal
from rebalancer.runtime.live.configured import Notifying, notifying
from rebalancer.settings import Settings, SettingsError, load_settings
from rebalancer.telemetry.start import TelemetryOptions, telemetry_for
from rebalancer.telemetry.webhooks import Mailbox, Mailboxes, Receiver
from tests.support.build import nodes, objects, workload
from tests.support.processes.command import call, moving
from tests.support.runs.one_cycle import DRY, EXECUTE, SKEWED, cycle
from tests.support.sandbox import ApiServer, Reply
from tests.support.servers.metrics import samples
from tests.support.servers.webhook import hook
from tests.support.waiting import until


def settings(**urls: Any) -> Settings:
    told = {name: {"urlFile": str(file)} for name, file in urls.items()}
    return load_settings(env={}, flags={"notifications": {**told, "timeout": "2s"}})


def test_a_cycle_that_evicted_is_told_once_and_a_quiet_one_not_at_all(tmp_path: Path) -> None:
    with hook() as h, ApiServer(objects(SKEWED)) as server:
        with notifying(settings(webhook=h.file(tmp_path)), context="prod") as told:
            cycle(server, EXECUTE, [told.observer])
            cycle(server, EXECUTE, [told.observer])
        (body,) = map(json.loads, h.bodies)
    assert (body["kind"], body["cluster"], body["end"]) == ("CycleNotice", "prod", "complete")
    assert (body["evicted"], body["failed"], body["excessBefore"], body["excessAfter"]) == (4, 0, 5, 0)
    assert body["stuck"] is False
    assert {p["from"] for p in body["pods"]} == {"a-0"}
    assert {p["to"] for p in body["pods"]} == {"b-0", "c-0"}
    assert body["text"].startswith("prod: 4 pods evicted in ")
    assert body["text"].endswith("excess 5 → 0")


def test_slack_gets_text_in_its_own_markup(tmp_path: Path) -> None:
    with hook() as h, ApiServer(objects(SKEWED)) as server:
        with notifying(settings(slack=h.file(tmp_path)), context="<!channel>") as told:
            cycle(server, EXECUTE, [told.observer])
        (body,) = map(json.loads, h.bodies)
    assert body.keys() == {"text"}
    head, *pods = body["text"].splitlines()
    assert head.startswith("*&lt;!channel&gt;: 4 pods evicted")
    assert len(pods) == 4
    assert all(line.startswith("• default/web-0000") and "a-0 → " in line for line in pods)


def test_a_plan_that_waits_is_told_with_the_command_that_approves_it(tmp_path: Path) -> None:
    command = (
        "kubectl annotate configmap rebalancer-plan -n ops rebalancer.io/approve=1f3a09c2d4e5 --overwrite"
    )
    with hook() as h, hook() as chat:
        files = {"webhook": h.file(tmp_path, "one"), "slack": chat.file(tmp_path, "two")}
        with notifying(settings(**files), context="prod") as told:
            told.observer.on_proposal(Proposal("ops", "rebalancer-plan", 6, command, "6 evictions: …"))
        (body,) = map(json.loads, h.bodies)
        (said,) = map(json.loads, chat.bodies)
    assert (body["end"], body["stuck"], body["evicted"]) == ("proposed", False, 0)
    assert body["text"] == f"prod: 6 evictions wait for approval: {command}"
    assert command in said["text"]


def test_templates_make_the_bodies(tmp_path: Path) -> None:
    flags = {
        "notifications": {
            "webhook": {"urlFile": "?", "template": '{"n": {{ evicted }}, "say": {{ text | tojson }}}'},
            "slack": {"urlFile": "?", "template": "{{ cluster }}: {{ evicted }}{{ nothing }}"},
        }
    }
    with hook() as h, hook() as chat, ApiServer(objects(SKEWED)) as server:
        flags["notifications"]["webhook"]["urlFile"] = str(h.file(tmp_path, "one"))
        flags["notifications"]["slack"]["urlFile"] = str(chat.file(tmp_path, "two"))
        with notifying(load_settings(env={}, flags=flags), context="prod") as told:
            cycle(server, EXECUTE, [told.observer])
        assert json.loads(h.bodies[0])["n"] == 4
        assert json.loads(chat.bodies[0]) == {"text": "prod: 4"}


def test_a_template_that_is_none_is_refused_with_its_line() -> None:
    flags = {"notifications": {"slack": {"template": "ok\n{% if %}"}}}
    with pytest.raises(SettingsError, match=r"notifications\.slack\.template: line 2 is no valid Jinja"):
        load_settings(env={}, flags=flags)


def test_a_stuck_cycle_is_told_once_and_when_it_is_over(tmp_path: Path) -> None:
    with hook() as h, ApiServer(objects(SKEWED)) as server:
        with notifying(settings(webhook=h.file(tmp_path)), context="prod") as told:
            fault = server.faults.add(Reply(403), subresource="eviction")
            cycle(server, EXECUTE, [told.observer])
            cycle(server, EXECUTE, [told.observer])
            server.faults.clear()
            cycle(server, EXECUTE, [told.observer])
        stuck, *rest = map(json.loads, h.bodies)
    assert fault is None or fault
    assert stuck["stuck"] is True
    assert "stuck: " in stuck["text"]
    assert "may not" in stuck["text"] or "forbidden" in stuck["text"]
    over = rest[-1]
    assert over["over"] is True
    assert over["evicted"] == 4


def test_a_dry_run_and_a_balanced_cluster_tell_nothing(tmp_path: Path) -> None:
    balanced = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 1, "b-0": 1}))
    with hook() as h:
        with notifying(settings(webhook=h.file(tmp_path))) as told:
            with ApiServer(objects(SKEWED)) as server:
                cycle(server, DRY, [told.observer])
            with ApiServer(objects(balanced)) as server:
                cycle(server, EXECUTE, [told.observer])
        assert h.requests == 0


def test_no_cycle_waits_for_a_receiver_that_never_answers(tmp_path: Path) -> None:
    with hook() as h, ApiServer(objects(SKEWED)) as server:
        h.held.clear()
        told = Notifying(settings(webhook=h.file(tmp_path), slack=h.file(tmp_path)))
        # All of it is in the queues when the cycle is over: nothing has been answered so far.
        assert cycle(server, EXECUTE, [told.observer]).evicted == 4
        assert h.bodies == []
        told.mailboxes.close(0.01)
        assert told.mailboxes.results()["webhook", "exit"] == 1
        assert told.mailboxes.results()["slack", "exit"] == 1


def test_beyond_its_bound_a_queue_loses_the_oldest(tmp_path: Path) -> None:
    with hook() as h:
        h.held.clear()
        box = Mailbox(Receiver("webhook", str(h.file(tmp_path)), 30.0), capacity=3)
        box.put(b"0")
        until(lambda: h.requests == 1)
        for n in range(1, 8):
            box.put(str(n).encode())
        h.held.set()
        box.close(30)
        assert h.bodies == [b"0", b"5", b"6", b"7"]
        assert box.results() == {"delivered": 4, "failed": 0, "queue-full": 4, "exit": 0}


def test_a_busy_receiver_is_asked_again_and_one_that_refuses_is_not(tmp_path: Path) -> None:
    with hook() as h:
        box = Mailbox(Receiver("webhook", str(h.file(tmp_path))), pause=0.01)
        h.answers = [503, 429, 200, 404]
        box.put(b"first")
        box.put(b"second")
        box.close(30)
        assert h.bodies == [b"first"]
        assert h.requests == 4
        assert box.results()["failed"] == 1


def test_the_secret_is_in_no_log_and_failures_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        dead = tmp_path / "dead"
        dead.write_text(f"http://127.0.0.1:{s.getsockname()[1]}/T0/s3cr3t")
        box = Mailbox(Receiver("slack", str(dead), 0.3), pause=0.01)
        for _ in range(2):
            box.put(b"{}")
        until(lambda: box.results()["failed"] == 2)
        with hook() as h:
            h.file(tmp_path, "dead")  # the secret was renewed
            box.put(b"{}")
            h.wait(1)
            box.close(30)
            assert h.paths == ["/T0/B0/s3cr3t"]
    said = [r.getMessage() for r in caplog.records if "rebalancer" in r.name]
    assert re.fullmatch(r"messages do not reach slack: 127\.0\.0\.1: no (connection|answer in time)", said[0])
    assert said[1:] == ["messages reach slack again"]
    assert "s3cr3t" not in "\n".join(r.getMessage() for r in caplog.records if r.levelno > logging.DEBUG)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot be read: No such file or directory"), ("ftp://x/", "holds no URL"), ("", "holds no URL")],
)
def test_a_file_without_a_url_is_named(
    content: str | None, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_text(content)
    box = Mailbox(Receiver("slack", str(file)))
    box.put(b"{}")
    box.close(30)
    assert f"{file} {why}" in caplog.text


def test_receivers_change_while_it_runs(tmp_path: Path) -> None:
    with hook() as old, hook() as new:
        boxes = Mailboxes((Receiver("webhook", str(old.file(tmp_path, "old"))),))
        boxes.put("webhook", b"1")
        old.wait(1)
        until(lambda: boxes.results()["webhook", "delivered"] == 1)
        boxes.change((Receiver("webhook", str(new.file(tmp_path, "new"))),))
        boxes.put("webhook", b"2")
        boxes.put("slack", b"nobody")
        boxes.close(30)
        assert (old.bodies, new.bodies) == ([b"1"], [b"2"])
        assert boxes.results()["webhook", "delivered"] == 2


def test_messages_are_counted_by_receiver(tmp_path: Path) -> None:
    with hook() as h, telemetry_for(TelemetryOptions()) as telemetry:
        boxes = Mailboxes((Receiver("slack", str(h.file(tmp_path))),))
        telemetry.metrics.state.notices = boxes.results
        boxes.put("slack", b"{}")
        boxes.close(30)
        found = samples(telemetry)
    assert found["rebalancer_notices_total", (("receiver", "slack"), ("result", "delivered"))] == 1
    assert found["rebalancer_notices_total", (("receiver", "slack"), ("result", "failed"))] == 0


def test_the_command_tells_before_it_ends(tmp_path: Path) -> None:
    with hook() as h, ApiServer(objects(SKEWED)) as server, moving(server):
        config = tmp_path / "c.yaml"
        config.write_text(json.dumps({"notifications": {"webhook": {"urlFile": str(h.file(tmp_path))}}}))
        done = call(server, tmp_path, "once", "--execute", "--config", str(config))
        assert done.returncode == 0, done.stderr
        (body,) = map(json.loads, h.bodies)
    assert body["evicted"] == 4
