"""`rebalancer room`: the advice, and its effect in the embedded cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from rebalancer.cli.app import app

ROOT = Path(__file__).parents[3]
FILE = str(ROOT / "tests" / "scenarios" / "one_slot.json.gz")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--snapshot", FILE])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_node_that_it_names_mends_it_in_the_embedded_cluster() -> None:
    room = json.loads(run("room", "-o", "json"))
    assert (room["nodes"], room["least"], room["left"]) == (1, 0, 0)
    command = run("room").splitlines()[-1].partition("rebalancer ")[2].split()
    simulated = json.loads(run(*command, "-o", "json"))
    assert simulated["after"]["excess"] == 0


def test_every_format_of_the_report_has_it() -> None:
    sentence = run("room").splitlines()[0]
    assert sentence in " ".join(run("report").split())
    assert json.loads(run("report", "-o", "json"))["room"]["nodes"] == 1
    assert "Room that is missing" in run("report", "-o", "markdown")
    assert sentence in re.sub(r"</?span[^>]*>", "", run("report", "-o", "html"))
