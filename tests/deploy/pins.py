"""The actions of the workflows, by commit: `python -m tests.deploy.pins` asks for their tags."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

from tests.deploy.manifests import ROOT

FILES = (*sorted((ROOT / ".github" / "workflows").glob("*.yml")), ROOT / "action.yml")


class Pin(NamedTuple):
    """An action, the commit, and the version that the comment beside it names."""

    action: str
    commit: str
    version: str


def pins() -> set[Pin]:
    """Of all files. Raises ValueError for an action that is not pinned so."""
    found = set()
    for file in FILES:
        for used in re.findall(r"uses: (.+)", file.read_text()):
            pin = re.fullmatch(r"([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", used)
            if pin is None:
                raise ValueError(f"{file.name}: {used} is not pinned by commit, with its version beside it")
            found.add(Pin(*pin.groups()))
    return found


def wrong(pin: Pin) -> bool:
    """Whether the version's tag is of another commit now."""
    command = ["git", "ls-remote", f"https://github.com/{pin.action}", f"refs/tags/{pin.version}*"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tags = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
    name = f"refs/tags/{pin.version}"
    return tags.get(f"{name}^{{}}", tags.get(name)) != pin.commit


if __name__ == "__main__":
    sys.exit("\n".join(f"{p.action}: {p.version} is not {p.commit}" for p in sorted(pins()) if wrong(p)) or 0)
