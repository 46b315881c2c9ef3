"""`demo` and `simulate` where the embedded cluster is not installed; everything else works there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ONE_SLOT = str(Path(__file__).parents[2] / "scenarios" / "one_slot.json.gz")
MISSING = ("rebalancer.sandbox", "starlette", "uvicorn")


def execute(missing: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, where modules are not installed."""
    program = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({missing!r}))\n"
        f"sys.argv = ['rebalancer', *{arguments!r}]\n"
        "from rebalancer.cli import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("command", [["demo"], ["simulate", "--snapshot", ONE_SLOT]], ids=lambda c: c[0])
def test_a_command_that_needs_it_says_how_to_get_it(command: list[str], missing: str) -> None:
    done = execute((missing,), *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: `rebalancer {command[0]}` runs an embedded cluster, and {missing} is not installed here; "
        "on your machine: pip install 'kube-rebalancer[sandbox]'; the image has no embedded cluster\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["report", "--snapshot", ONE_SLOT],
        ["explain", "default/web-00000", "--snapshot", ONE_SLOT],
        ["demo", "--help"],
    ],
    ids=" ".join,
)
def test_other_commands_do_without_it(command: list[str]) -> None:
    done = execute(MISSING, *command)
    assert done.returncode == 0, done.stderr


def test_a_pod_that_does_not_exist_yet_is_explained_without_it(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: c}]}\n"
    )
    done = execute(MISSING, "explain", "--pod-file", str(manifest), "--snapshot", ONE_SLOT)
    assert done.returncode == 0, done.stderr
