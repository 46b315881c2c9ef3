"""The manifests of a repository: plain files, Helm charts and kustomizations rendered by their own tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import yaml
from msgspec import Struct

from rebalancer.manifests.files import Text, manifests_in, texts
from rebalancer.yaml_reading import read_yaml

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_CHART = "Chart.yaml"
_LONGEST = 120.0
"""Seconds for one rendering; charts with dependencies are not fetched."""
_LOGGED = re.compile(r'err="((?:[^"\\]|\\.)*)"$')
"""A line in the format of klog, in which kubectl ends: the error at its end, without time and place."""
_SOURCE = re.compile(rb"^# Source: (\S+)$", re.MULTILINE)


class Rendered(Struct, frozen=True, eq=False):
    """What a tool made of a chart or a kustomization. `file`: what findings point at. `made_of`: the files
    that went into it, which have the lines that people wrote."""

    file: str
    text: Text
    made_of: tuple[Text, ...] = ()


class Skipped(Struct, frozen=True):
    """A chart or kustomization that was not rendered, and why."""

    path: str
    why: str


class Failed(Struct, frozen=True):
    """One that its tool refused."""

    file: str
    why: str


Source = Text | Rendered | Skipped | Failed


def sources(paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None) -> Iterator[Source]:
    """Everything in these files, directories or `-`. Raises ManifestError if a path cannot be read."""
    for path in paths:
        if os.fspath(path) in ("", "-") or not Path(path).is_dir():
            yield from texts([path], stdin)
            continue
        charts, kustomizations = _found(Path(path))
        for chart in charts:
            yield from _helm(chart)
        inside: list[Path] = []
        for file in manifests_in(Path(path)):
            if any(file.is_relative_to(folder) for folder in kustomizations):
                inside.append(file)
            elif not any(file.is_relative_to(folder) for folder in charts):
                yield from texts([file])
        for folder in _roots(kustomizations):
            used = _used(folder)
            yield _kustomize(folder, tuple(texts(f for f in inside if f.parent.resolve() in used)))


def _found(path: Path) -> tuple[list[Path], list[Path]]:
    """Folders with a chart, and those with a kustomization outside of charts."""
    charts: list[Path] = []
    kustomizations: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if _CHART in names:
            charts.append(Path(folder))
            folders.clear()
        elif any(n in names for n in KUSTOMIZATIONS):
            kustomizations.append(Path(folder))
    return charts, kustomizations


def _roots(kustomizations: list[Path]) -> list[Path]:
    """Those that are rendered by themselves: no component, and no other one's base."""
    used: set[Path] = set()
    roots = []
    for folder in kustomizations:
        content = _kustomization(folder)
        for key in ("resources", "bases", "components"):
            used |= {(folder / str(r)).resolve() for r in content.get(key) or ()}
        if content.get("kind") != "Component":
            roots.append(folder)
    return [r for r in roots if r.resolve() not in used]


def _used(folder: Path) -> set[Path]:
    """The folders that a kustomization is made of, its own first."""
    found: set[Path] = set()
    open_ = [folder.resolve()]
    while open_:
        this = open_.pop()
        if this in found or not this.is_dir():
            continue
        found.add(this)
        content = _kustomization(this)
        for key in ("resources", "bases", "components"):
            named = ((this / str(r)).resolve() for r in content.get(key) or ())
            open_ += (path if path.is_dir() else path.parent for path in named)
    return found


def _kustomization(folder: Path) -> dict[str, Any]:
    try:
        content = read_yaml(_kustomization_file(folder).read_bytes())
    except (OSError, StopIteration, yaml.YAMLError):
        return {}  # the tool will say what is wrong with it
    return content if isinstance(content, dict) else {}


def _kustomization_file(folder: Path) -> Path:
    return next(folder / n for n in KUSTOMIZATIONS if (folder / n).exists())


def _kustomize(folder: Path, written: tuple[Text, ...]) -> Source:
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize", str(folder)]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build", str(folder)]
    else:
        return Skipped(str(folder), "a kustomization, and neither kubectl nor kustomize is installed")
    made = _run(command)
    file = str(_kustomization_file(folder))
    return Rendered(file, Text(file, made), written) if isinstance(made, bytes) else Failed(file, made)


def _helm(chart: Path) -> Iterator[Source]:
    """The chart with its own values, template by template."""
    if not shutil.which("helm"):
        yield Skipped(str(chart), "a Helm chart, and helm is not installed")
        return
    made = _run(["helm", "template", "lint", str(chart)])
    if not isinstance(made, bytes):
        yield Skipped(str(chart), f"a Helm chart that does not render with its own values: {made}")
        return
    name = made.partition(b"# Source: ")[2].partition(b"/")[0].decode(errors="replace")
    for document in re.split(rb"^---\s*$", made, flags=re.MULTILINE):
        source = _SOURCE.search(document)
        if source is not None:
            file = chart / source.group(1).decode(errors="replace").removeprefix(f"{name}/")
            yield Rendered(str(file), Text(str(file), document))


def _run(command: list[str]) -> bytes | str:
    """What a tool prints, or why it does not."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{command[0]}: {e}"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if not said:
            return f"{command[0]} ended with {done.returncode}"
        logged = _LOGGED.search(said[-1])
        return f"{command[0]} says: {logged[1] if logged else said[-1]}"
    return done.stdout
