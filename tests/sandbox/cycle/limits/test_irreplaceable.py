"""Since when pods cannot be replaced: the ledger remembers it from process to process, and reports say so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rebalancer.cli.app import app
from tests.support.build import node, workload
from tests.support.runs.machine import Machine

CORDONED = (
    node("a-0").zone("a").cordoned(),
    workload("web").placed({"a-0": 1}),
    workload("db").spread("zone", 1).placed({"a-0": 2}),
)
DAY = 86_400.0


def reported(machine: Machine, folder: Path, *arguments: str) -> str:
    config = folder / "rebalancer.yaml"
    config.write_text("ledger: {namespace: default}\n")
    to = ["--kubeconfig", str(machine.server.kubeconfig(folder / "kubeconfig")), "--config", str(config)]
    done = CliRunner().invoke(app, [*arguments, *to])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


def since(machine: Machine, folder: Path) -> dict[str, str | None]:
    found = json.loads(reported(machine, folder, "report", "-o", "json"))["findings"]
    return {f["object"]: f.get("since") for f in found if f["code"] == "cannot-be-replaced"}


def test_who_cannot_be_replaced_is_remembered_until_a_node_opens(tmp_path: Path) -> None:
    with Machine(CORDONED) as m:
        nobody_knows = since(m, tmp_path)
        m.cycle()
        began = m.ledger().irreplaceable["ReplicaSet/default/web"]
        m.time.at += DAY
        second = m.cycle()
        remembered = since(m, tmp_path)
        pages = [reported(m, tmp_path, "report", "-o", form) for form in ("wide", "html", "markdown")]
        explained = reported(m, tmp_path, "explain", "default/web-00000")
        m.server.store.modify("Node", "a-0", None, lambda o: o["spec"].clear())
        m.cycle()
        assert m.ledger().irreplaceable == {}
        assert since(m, tmp_path) == {}
    assert nobody_knows == {"ReplicaSet/default/db": None, "ReplicaSet/default/web": None}
    # The clock of these cycles begins at 2e9 s.
    assert began == pytest.approx(2_000_000_000, abs=600)
    day = "2033-05-18T"
    assert all(at and at.startswith(day) for at in remembered.values())
    found = [f for f in second.story.plans[-1].findings if f.code == "cannot-be-replaced"]
    assert {f.since for f in found} == {began}
    for page in (*pages, explained):
        words = re.sub(r"</?span[^>]*>", "", page).split()
        assert f"so since {day}" in " ".join(words)
