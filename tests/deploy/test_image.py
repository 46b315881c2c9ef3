"""The image: what the Dockerfile promises, and its build replayed in a clean virtual environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer import __version__
from tests.deploy.dockerfile import argument, entry_point, inside, left_out, replay, stages

ROOT = Path(__file__).parents[2]
BUILD, FINAL = stages(ROOT / "Dockerfile")
LOCK = ROOT / "requirements.lock"
ASYNC = {"aiohttp", "aiohttp-retry", "aiohappyeyeballs", "aiosignal", "frozenlist", "multidict", "yarl"}
NEED_SANDBOX = [f"rebalancer.{name}" for name in ("cli.live_view", "runtime.commands.simulate")]
"""What only `demo` and `simulate` import."""
OFFLINE = re.compile(
    r"NewConnectionError|Temporary failure|ConnectTimeout|ProxyError|No matching distribution"
)


def pinned(file: Path) -> dict[str, str]:
    """Package → version."""
    lines = re.finditer(r"^([a-z0-9._-]+)==(\S+)", file.read_text(), re.MULTILINE)
    return {m[1]: m[2] for m in lines}


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    constraints = pinned(ROOT / "constraints.txt")
    assert pinned(LOCK).items() <= constraints.items(), "run `make lock`"


def test_the_lock_has_hashes_and_no_place_of_the_machine_that_made_it() -> None:
    text = LOCK.read_text()
    for name in pinned(LOCK):
        entry = text[text.index(f"{name}==") :]
        assert re.match(r"\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entry), name
    for file in (LOCK, ROOT / "constraints.txt"):
        assert not re.search(r"^\s*--(?!hash)|://|find-links /", file.read_text(), re.MULTILINE)


def test_what_is_installed_is_the_lock_by_its_hashes_from_wheels_and_nothing_else() -> None:
    installs = [s.argument for s in BUILD if s.word == "RUN" and " install" in s.argument]
    assert len(installs) == 1
    words = set(installs[0].replace("\\\n", " ").split())
    assert {"--no-deps", "--require-hashes", "-r", "/src/requirements.lock"} <= words
    assert re.search(r"--only-binary[ =]:all:", installs[0])


def test_what_only_the_asynchronous_half_of_the_client_needs_is_left_out() -> None:
    assert not ASYNC & set(pinned(LOCK))
    required = re.findall(r"^(\S+)==(?:.|\n)*?# via((?:\n    #   .*)+|.*)", LOCK.read_text(), re.MULTILINE)
    for name, via in required:
        assert set(re.findall(r"[a-z][a-z0-9-]+", via)) - ASYNC, f"{name} is there for nobody"


def test_the_final_stage_runs_without_shell_and_root() -> None:
    user, group = argument(FINAL, "USER").split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert argument(FINAL, "STOPSIGNAL") == "SIGINT"
    assert entry_point(FINAL)[0] == "/opt/rebalancer/bin/python"
    assert not [step for step in FINAL if step.word == "RUN"], "layers of the final stage are copies only"
    assert re.search(r"^FROM scratch$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"VERSION={__version__}" in [step.argument for step in FINAL if step.word == "ARG"]


def test_the_build_context_has_what_is_copied_and_nothing_else() -> None:
    copied = {s.argument.split()[0] for s in BUILD + FINAL if s.word == "COPY" and "--from" not in s.argument}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert left_out(ROOT / ".dockerignore") == {"rebalancer/sandbox"}
    assert "*" in ignored


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The build stage's files below a folder."""
    root = tmp_path_factory.mktemp("image")
    try:
        replay(BUILD, ROOT, root, sys.executable)
    except subprocess.CalledProcessError as e:
        if OFFLINE.search(e.stderr):
            pytest.skip("packages cannot be downloaded here")
        raise AssertionError(e.stderr) from e
    yield root
    shutil.rmtree(root)


def started(image: Path, *arguments: str, entry: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [inside(part, image) for part in entry or entry_point(FINAL)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=120, check=False, env={}, cwd="/"
    )


def check_every_module_can_be_imported_from_what_is_in_the_image(image: Path) -> None:
    version = started(image, "--version")
    assert (version.returncode, version.stdout) == (0, f"rebalancer {__version__}\n"), version.stderr
    program = """
import importlib, pkgutil, sys
import rebalancer
assert rebalancer.__file__.startswith(sys.prefix), rebalancer.__file__
for module in pkgutil.walk_packages(rebalancer.__path__, "rebalancer."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as e:
        print(module.name, "needs", e.name)
print(sorted({m.split(".")[0] for m in sys.modules} & {"aiohttp", "yarl", "pytest", "pip"}))
"""
    done = started(image, "-BIc", program, entry=entry_point(FINAL)[:1])
    assert done.returncode == 0, done.stderr
    *failed, foreign = done.stdout.splitlines()
    assert failed == [f"{name} needs rebalancer.sandbox" for name in NEED_SANDBOX]
    assert foreign == "[]"


def check_the_embedded_cluster_is_not_in_the_image(image: Path) -> None:
    packages = next(image.glob("opt/rebalancer/lib/python*/site-packages"))
    there = {entry.name for entry in packages.iterdir()} | {
        e.name for e in (packages / "rebalancer").iterdir()
    }
    assert there >= {"rebalancer", "runtime", "kubernetes"}
    assert not there & {"sandbox", "starlette", "uvicorn"}
    done = started(image, "demo")
    assert done.returncode == 1
    assert "pip install 'kube-rebalancer[sandbox]'" in done.stderr


def check_the_image_has_neither_shell_nor_installer_and_starts_by_itself(image: Path) -> None:
    """As its own root, with nothing of this machine below it."""
    there = {p.name for p in (image / "image").rglob("*")}
    assert not there & {"sh", "bash", "dash", "busybox", "apt", "dpkg", "pip", "ensurepip"}
    assert there >= {"passwd", "ld.so.cache", "rebalancer"}
    alone = ["unshare", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    program = "import ssl, threading, numpy, highspy; from rebalancer.cli import main; print('up')"
    command = [
        *alone,
        shutil.which("chroot") or "/usr/sbin/chroot",
        str(image / "image"),
        inside(entry_point(FINAL)[0], image),
        "-BIc",
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={})
    assert done.stdout == "up\n", done.stderr


def check_a_report_from_the_image(image: Path) -> None:
    done = started(
        image, "report", "--snapshot", str(ROOT / "tests/scenarios/one_slot.json.gz"), "--exit-code"
    )
    assert done.returncode == 3, done.stderr
    assert "1 of 1 constraints violated" in done.stdout


def check_nothing_is_written_where_the_program_lies(image: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in image.rglob("*") if not p.is_symlink()}
    started(image, "demo", "--help")
    started(image, "report", "--snapshot", str(ROOT / "tests/scenarios/one_slot.json.gz"))
    assert {p: p.stat().st_mtime_ns for p in image.rglob("*") if not p.is_symlink()} == before


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image(image: Path) -> None:
    """One test of all, so that one worker builds the image, and once."""
    check_every_module_can_be_imported_from_what_is_in_the_image(image)
    check_the_embedded_cluster_is_not_in_the_image(image)
    check_the_image_has_neither_shell_nor_installer_and_starts_by_itself(image)
    check_a_report_from_the_image(image)
    check_nothing_is_written_where_the_program_lies(image)
