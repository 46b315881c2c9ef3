"""A Dockerfile read as far as this project writes them, and its build stage replayed without an engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """One instruction of a stage: RUN, COPY, USER …, and its argument in one line."""

    word: str
    argument: str


def stages(dockerfile: Path) -> list[list[Step]]:
    """The instructions of each stage; comments are left out and continued lines joined."""
    text = "\n".join(line for line in dockerfile.read_text().splitlines() if not line.startswith("#"))
    found: list[list[Step]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, argument = line.strip().split(maxsplit=1)
            if word == "FROM":
                found.append([])
            if found:
                found[-1].append(Step(word, " ".join(argument.split())))
    return found


def argument(stage: list[Step], word: str) -> str:
    """What the last such instruction says."""
    return next(step.argument for step in reversed(stage) if step.word == word)


def entry_point(stage: list[Step]) -> list[str]:
    """ENTRYPOINT, which must be in the form without a shell."""
    return [str(part) for part in json.loads(argument(stage, "ENTRYPOINT"))]


def left_out(dockerignore: Path) -> set[str]:
    """Folders that .dockerignore takes back out of what it lets in."""
    lines = dockerignore.read_text().splitlines()
    return {line for line in lines if line and not line.startswith(("!", "#", "*"))}


def replay(stage: list[Step], context: Path, root: Path, python: str) -> None:
    """COPY and RUN of a stage with `root` in place of / for /opt, /src, /image. Raises CalledProcessError."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REBALANCER_", "PYTHON"))}
    env["PATH"] = f"{root / 'bin'}:{env['PATH']}"
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(Path(python))
    for step in stage:
        if step.word == "COPY":
            source, target = step.argument.split()
            place = Path(inside(target, root))
            place.parent.mkdir(parents=True, exist_ok=True)
            if (context / source).is_dir():
                shutil.copytree(context / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                for folder in left_out(context / ".dockerignore"):
                    shutil.rmtree(place.parent / folder)
            else:
                shutil.copy(context / source, place)
        elif step.word == "RUN":
            command = ["/bin/sh", "-ec", inside(step.argument, root)]
            subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=800, check=True, cwd=root
            )


def inside(text: str, root: Path) -> str:
    """Paths of the image as paths below `root`."""
    return re.sub(r"(?<![\w/])/(opt|src|image)\b", rf"{root}/\1", text)
