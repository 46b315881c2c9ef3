"""Upgrades and the way back over a ledger that is there: nothing is forgotten, nothing refused.

`earlier/` has ledgers as earlier versions wrote them, named by their commit. Both versions side by
side: test_two_versions.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rebalancer.kube.config_maps import KEY, Ledgers, Place
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import KubeError
from rebalancer.policy.history.ledger import Fate
from rebalancer.policy.history.ledger_json import decode, encode
from tests.support.build import nodes, objects, workload
from tests.support.processes.command import call, moving
from tests.support.processes.daemon_process import BRISK, daemon, evictions
from tests.support.processes.earlier_ledger import as_a2894a3_writes
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer
from tests.support.servers.api import connected
from tests.support.waiting import until

EARLIER = sorted((Path(__file__).parent / "earlier").glob("ledger-*.json"))
PLACE = Place("default", "rebalancer-ledger")
each_earlier = pytest.mark.parametrize("file", EARLIER, ids=lambda f: f.stem)
MANAGED = {"app.kubernetes.io/name": "rebalancer", "app.kubernetes.io/managed-by": "rebalancer"}


def aged(file: Path, seconds: float) -> str:
    """The ledger as if its evictions had been so long ago."""
    found = json.loads(file.read_text())
    for entry in found["entries"]:
        entry["at"] = time.time() - seconds
    return json.dumps(found)


def with_ledger(text: str) -> dict[str, Any]:
    metadata = {"name": PLACE.name, "namespace": PLACE.namespace, "labels": MANAGED}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}


def stored(server: ApiServer) -> str:
    text: str = server.store.get("ConfigMap", PLACE.name, PLACE.namespace)["data"][KEY]
    return text


def store(server: ApiServer, text: str) -> None:
    server.store.modify("ConfigMap", PLACE.name, PLACE.namespace, lambda o: o["data"].update({KEY: text}))


@pytest.fixture
def connection() -> Iterator[tuple[ApiServer, Connection]]:
    with ApiServer(objects(*SKEWED)) as server, connected(server) as c:
        yield server, c


@each_earlier
def test_an_upgrade_takes_over_every_eviction(file: Path) -> None:
    earlier, now = json.loads(file.read_text()), decode(file.read_text())
    assert len(now.entries) == len(earlier["entries"]) == 4
    assert [e.uid for e in now.entries] == [e["uid"] for e in earlier["entries"]]
    assert {e.fate for e in now.entries} == {Fate.DONE}
    assert now.totals.evictions == earlier["totals"]["evictions"]


@each_earlier
def test_what_is_written_now_an_earlier_version_can_read_and_go_on_with(file: Path) -> None:
    now = decode(file.read_text())
    back = as_a2894a3_writes(encode(now).decode())
    assert [e.uid for e in decode(back).entries] == [e.uid for e in now.entries]
    assert decode(back).totals == now.totals


@each_earlier
def test_history_and_a_cycle_go_on_over_an_earlier_ledger(file: Path, tmp_path: Path) -> None:
    balanced = (*nodes(a=1, b=1), workload("web").spread("zone", 1).placed({"a-0": 1, "b-0": 1}))
    with ApiServer([*objects(*balanced), with_ledger(file.read_text())]) as server, moving(server):
        told = call(server, tmp_path, "history", "-o", "json").stdout.splitlines()
        assert len(told) == 4
        done = call(server, tmp_path, "once", "--execute")
        assert done.returncode == 0, done.stderr
        after = decode(stored(server))
    assert len(after.entries) == 4


def test_two_versions_that_take_turns_lose_no_eviction(connection: tuple[ApiServer, Connection]) -> None:
    server, c = connection
    server.store.create(with_ledger(EARLIER[0].read_text()))
    before = {e.uid for e in decode(stored(server)).entries}
    for turn in range(3):
        new = Ledgers(c, PLACE, writer="the newer one", wait=lambda _: False)
        ledger = new.load()
        assert not new.aside
        entry = msgspec.structs.replace(ledger.entries[-1], uid=f"new-{turn}", into=("zone=b",))
        new.save(msgspec.structs.replace(ledger, entries=(*ledger.entries, entry)))
        before.add(f"new-{turn}")
        # The earlier version becomes the leader, reads, and writes an eviction of its own.
        text = json.loads(as_a2894a3_writes(stored(server)))
        text["entries"].append(text["entries"][-1] | {"uid": f"old-{turn}"})
        store(server, json.dumps(text))
        before.add(f"old-{turn}")
        # The newer one, which does not know of that yet, must not write over it.
        with pytest.raises(KubeError, match="somebody else"):
            new.save(ledger)
    assert {e.uid for e in decode(stored(server)).entries} == before


@each_earlier
def test_owners_rest_after_the_evictions_of_an_earlier_version(file: Path, tmp_path: Path) -> None:
    with ApiServer([*objects(*SKEWED), with_ledger(aged(file, 60))]) as server, moving(server):
        settings = BRISK.replace("coolDown: 0s", "coolDown: 1h")
        with daemon(server, tmp_path, settings, "--execute") as d:
            until(lambda: "cycle over (" in d.said())
            assert d.end() == 0
        assert evictions(server) == 0


def test_a_daemon_goes_on_after_an_earlier_version_that_ran_meanwhile(tmp_path: Path) -> None:
    old = with_ledger(aged(EARLIER[0], 2 * 86_400))
    with ApiServer([*objects(*SKEWED), old]) as server, moving(server):
        with daemon(server, tmp_path, BRISK, "--execute") as d:
            until(lambda: evictions(server) == 4)
            until(lambda: "cycle over (complete)" in d.said())
            assert d.end() == 0
        entries = decode(stored(server)).entries
        assert len(entries) == 8
        store(server, as_a2894a3_writes(stored(server)))
        told = call(server, tmp_path, "history", "-o", "json").stdout.splitlines()
    assert len(told) == 8


def test_a_ledger_of_a_later_format_stops_evictions_and_stays_as_it_is(tmp_path: Path) -> None:
    later = json.dumps({"version": 99, "entries": [], "unheardOf": True})
    with ApiServer([*objects(*SKEWED), with_ledger(later)]) as server:
        done = call(server, tmp_path, "once", "--execute")
        assert done.returncode == 1
        assert "was written by a newer rebalancer" in done.stderr + done.stdout
        assert evictions(server) == 0
        assert stored(server) == later
