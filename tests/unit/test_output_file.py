"""Writing to a path that somebody names: whole or not at all, and nothing destroyed that stands there."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rebalancer.errors import UserError
from rebalancer.output_file import output_file

CONTENT = b"new content\n"


def write(path: Path | str, **how: Any) -> None:
    with output_file(str(path), **how) as file:
        file.write(CONTENT)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert got == [CONTENT]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device takes root")
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    null = tmp_path / "null"
    os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    write(null)
    assert stat.S_ISCHR(null.stat().st_mode)


@pytest.mark.parametrize("command", [["snapshot", "-o"], ["report", "--output-file"]], ids=" ".join)
def test_no_command_replaces_what_is_no_file(command: list[str], tmp_path: Path) -> None:
    """As root, `-o /dev/null` took the device away from the whole machine."""
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    link.symlink_to("target.json")
    target.write_text("old")
    scenario = Path(__file__).parents[1] / "scenarios" / "one_slot.json.gz"
    arguments = [sys.executable, "-m", "rebalancer", *command, str(link), "--snapshot", str(scenario)]
    subprocess.run(arguments, check=True, capture_output=True)
    assert link.is_symlink()
    assert target.read_text().startswith("{")


@pytest.mark.parametrize("old", [b"old", None], ids=["to a file", "to nothing yet"])
def test_a_symbolic_link_is_followed(old: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "target"
    if old is not None:
        target.write_bytes(old)
    (tmp_path / "link").symlink_to(target)
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == CONTENT


def test_what_a_shell_has_open_is_written_into() -> None:
    reader, writer = os.pipe()
    write(f"/dev/fd/{writer}")
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == CONTENT


def test_a_file_that_is_replaced_keeps_its_mode_and_a_new_one_is_like_any_other(tmp_path: Path) -> None:
    old, new, own = (tmp_path / n for n in ("old", "new", "own"))
    old.write_text("old")
    old.chmod(0o640)
    (tmp_path / "usual").write_text("")
    write(old)
    write(new)
    write(own, private=True)
    assert (mode(old), mode(new), mode(own)) == (0o640, mode(tmp_path / "usual"), 0o600)


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def half() -> None:
        with output_file(str(path)) as file:
            file.write(CONTENT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "old"


def test_it_is_compressed_if_its_name_says_so(tmp_path: Path) -> None:
    write(tmp_path / "a.json.gz")
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == CONTENT


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "the name of the output file is empty; name a file"),
        (".", "is a directory; name a file in it"),
        ("no/where", "no such file or directory; create its directory first"),
        ("circle", "too many levels of symbolic links; its symbolic links lead in a circle"),
        ("/dev/full", "no space left on device; free some space there, or write elsewhere"),
    ],
)
def test_what_cannot_be_written_says_why_and_what_to_do(
    path: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("circle").symlink_to("circle")
    with pytest.raises(UserError) as caught:
        write(path)
    assert says in str(caught.value)
