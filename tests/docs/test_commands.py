"""Every command that the documentation shows is run, and what it shows of the output is true."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rebalancer.cli.app import app
from rebalancer.errors import UserError
from rebalancer.runtime.commands import simulate as demo
from tests.docs.console import Shown, commands, missing
from tests.support.build import deployment, node, objects
from tests.support.sandbox import Cluster

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deploy/helm/rebalancer/README.md"]
ELSEWHERE = {
    # A scheduler that differs has to be made first.
    "rebalancer explain --compare --watch 8s": "tests/sandbox/commands/test_explain_compare.py",
    # It stays until it is interrupted.
    "rebalancer demo --by-hand": "tests/sandbox/commands/test_demo.py",
}
BEFORE = {"rebalancer history deploy/web": "rebalancer once --execute"}
"""What has to have happened."""


@contextmanager
def one_to_mend(kubeconfig: Path) -> Iterator[None]:
    """A Deployment with one pod in the wrong zone."""
    made = objects(
        *(node(f"{zone}-0").zone(zone) for zone in "abc"),
        deployment("web", namespace="shop").spread("zone", 1).placed({"a-0": 3, "b-0": 2, "c-0": 0}),
    )
    with Cluster(made, ready_after=0.02, grace=0.02) as cluster:
        cluster.settle()
        cluster.kubeconfig(kubeconfig)
        yield


@contextmanager
def after_the_outage(kubeconfig: Path) -> Iterator[None]:
    """The demo's cluster, in which pods start at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "GRACE", 0.05)
        patch.setattr(demo, "READY_AFTER", (0.02, 0.1))
        with demo.demo_cluster(1) as (cluster, _):
            cluster.kubeconfig(kubeconfig)
            yield


SURROUNDINGS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "operations.md": one_to_mend,
    "tutorial.md": after_the_outage,
}


def invoke(command: str) -> str:
    """All that a command writes."""
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        if not isinstance(done.exception, UserError):
            raise done.exception
        return f"{done.output}error: {done.exception}\n"
    return done.output


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p, "console")], ids=lambda p: p.name)
def test_what_a_page_shows_is_what_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "tests").symlink_to(ROOT / "tests")
    (work / "deploy").symlink_to(ROOT / "tests" / "docs" / "repository" / "deploy")
    (work / "my.yaml").write_text("policy:\n  minPodAge: 5 minutes\n")
    monkeypatch.chdir(work)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("COLUMNS", raising=False)
    around = SURROUNDINGS.get(page.name)
    with around(tmp_path / "kubeconfig") if around is not None else nullcontext():
        for shown in commands(page, "console"):
            if shown.command in ELSEWHERE:
                continue
            if shown.command in BEFORE:
                invoke(BEFORE[shown.command])
            output = invoke(shown.command)
            line = missing(shown, output)
            assert not line, f"{page.name}: {shown.command}: not in its output: {line}\n\n{output}"


def all_commands() -> list[Shown]:
    return [s for page in PAGES for kind in ("sh", "console") for s in commands(page, kind)]


@pytest.mark.parametrize("shown", all_commands(), ids=lambda s: f"{s.page}: {s.command}")
def test_every_command_and_option_exists(shown: Shown) -> None:
    command: Any = typer.main.get_command(app)
    words = shlex.split(shown.command.split(" | ")[0].split(" > ")[0])[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, words[0]
        command, words = command.commands[words[0]], words[1:]
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    options = {w.partition("=")[0] for w in words if re.match(r"-[-a-zA-Z]", w)}
    assert options <= known, options - known


def test_commands_that_are_not_run_here_are_tested_where_it_is_said() -> None:
    there = {s.command for s in all_commands()}
    for command, place in ELSEWHERE.items():
        assert command in there
        assert (ROOT / place).exists()


def test_a_line_that_is_not_true_is_noticed() -> None:
    shown = Shown("p", "rebalancer x", ("one", "⋮", "three in 0.1 s"))
    assert missing(shown, "one\ntwo\nthree in 5.2 s\n") == ""
    assert missing(shown, "three in 1 s\none\n") == "three in 0.1 s"
