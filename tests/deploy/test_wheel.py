"""The wheel as `pipx run --spec .` and `uvx` build it: what it holds, and that its commands start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rebalancer import __version__
from tests.deploy.manifests import ROOT
from tests.deploy.test_image import OFFLINE

DEMO = re.compile(r"(pipx run --spec|uvx --from) '\.\[sandbox\]' (rebalancer demo)")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in a folder of its own, beside the packages that it needs."""
    made, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "wheel", "--no-deps", "-w", str(made), str(ROOT)], capture_output=True, text=True, check=False
    )
    if done.returncode and OFFLINE.search(done.stderr):
        pytest.skip("packages cannot be downloaded here")
    assert done.returncode == 0, done.stderr
    [wheel] = made.glob("kube_rebalancer-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder), str(wheel)], check=True)
    return folder


def started(installed: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    program = [sys.executable, str(installed / "bin" / command[0]), *command[1:]]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd="/"
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["rebalancer", "kubectl-rebalancer", "kubectl-rebalance"])
def test_its_commands_start(installed: Path, name: str) -> None:
    assert started(installed, name, "--version") == f"rebalancer {__version__}\n"


def test_what_the_readme_runs_shows_something_at_once(installed: Path) -> None:
    shown = DEMO.findall((ROOT / "README.md").read_text())
    assert {how for how, _ in shown} == {"pipx run --spec", "uvx --from"}
    told = started(installed, *shown[0][1].split(), "--timeout", "0.2")
    assert told.startswith("An embedded Kubernetes cluster after a zone outage\n")


def test_pages_and_their_parts_are_in_it(installed: Path) -> None:
    cluster = ROOT / "tests" / "scenarios" / "one_slot.json.gz"
    assert "<style>" in started(installed, "rebalancer", "report", str(cluster), "-o", "html")


def test_the_demo_installs_no_tools_of_developers(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "demo", f"VENV={tmp_path / 'venv'}"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ".[sandbox]" in told
    assert "dev" not in told.replace("/dev/", "")
    assert "Installing" in told
