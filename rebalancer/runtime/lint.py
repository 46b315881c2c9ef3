"""Findings of manifests, without a cluster: each with the file and the line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.manifests.kinds import is_read
from rebalancer.manifests.located import Located, Unreadable, located
from rebalancer.manifests.reading import field_error
from rebalancer.model.decode import KINDS, Decoder, Object
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import build_snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.findings import findings
from rebalancer.planner.plan import Severity
from rebalancer.planner.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions

UNREADABLE = "unreadable-manifest"
_TEMPLATES = ("", "spec.template.", "spec.jobTemplate.spec.template.")
_POSITION = re.compile(r":(\d+):\d+: ")


class Diagnostic(Struct, frozen=True, rename="camel"):
    """A finding and where it is. Lines count from 1."""

    file: str
    line: int
    severity: Severity
    code: str
    object: str
    message: str
    remedy: str = ""
    field: str = ""


class Linted(Struct, frozen=True):
    """What was found in how many workloads and files; diagnostics by file and line."""

    diagnostics: tuple[Diagnostic, ...]
    workloads: int
    files: int


def lint(paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None) -> Linted:
    """The findings of all manifests in these files, directories or `-`, taken together as one cluster without
    nodes: what is not in them (a budget, an autoscaler) does not exist.

    Raises UserError where there is no workload.
    """
    decoder = Decoder()
    objects: list[Object] = []
    found: list[Diagnostic] = []
    where: dict[str, Located] = {}
    files: set[str] = set()
    workloads = 0
    for item in located(paths, stdin):
        if isinstance(item, Unreadable):
            found.append(_unreadable(item.error.message))
            continue
        files.add(item.file)
        if item.kind != "CronJob" and not is_read(item.kind, str(item.value.get("apiVersion") or "")):
            continue
        name = _name(item)
        where[name] = item
        try:
            value = _decoded(decoder, item)
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as e:
            message = field_error(e)
            # The decoder names fields of a pod template as the pod has them.
            field = message.partition(":")[0]
            line = item.line_of(next((t + field for t in _TEMPLATES if item.has(t + field)), field))
            found.append(
                Diagnostic(
                    item.file, line, Severity.ERROR, UNREADABLE, name, f"it is not understood: {message}"
                )
            )
            workloads += 1
            continue
        objects.append(value)
        workloads += isinstance(value, Workload | Pod)
    if not workloads and not found:
        raise UserError(
            "no workload in " + (", ".join(sorted(files)) or "these files"),
            "lint reads Deployments, StatefulSets, ReplicaSets, Jobs, CronJobs and Pods, templates only when "
            "rendered: helm template … | rebalancer lint -",
        )
    snapshot = build_snapshot(objects, now=0.0, kinds=KINDS)
    options = PolicyOptions(namespaces_exclude=())
    for f in findings(Simulation(snapshot, None), Evictable(snapshot, options)):
        at = where[f.object]
        found.append(
            Diagnostic(
                at.file, at.line_of(f.field), f.severity, f.code, f.object, f.message, f.remedy, f.field
            )
        )
    found.sort(key=lambda d: (d.file, d.line, d.code, d.object))
    return Linted(tuple(found), workloads, len(files))


def _decoded(decoder: Decoder, item: Located) -> Object:
    value: dict[str, Any] = {**item.value, "metadata": _metadata(item)}
    if item.kind != "CronJob":
        return decoder.decode(item.kind, msgspec.json.encode(value))
    job = {"metadata": value["metadata"], "spec": value["spec"]["jobTemplate"]["spec"]}
    made = decoder.decode("Job", msgspec.json.encode(job))
    assert isinstance(made, Workload)
    return replace(made, kind="CronJob")


def _metadata(item: Located) -> dict[str, Any]:
    metadata: dict[str, Any] = item.value["metadata"]
    return {**metadata, "namespace": metadata.get("namespace") or "default"}


def _name(item: Located) -> str:
    metadata = _metadata(item)
    return f"{item.kind}/{metadata['namespace']}/{metadata['name']}"


def _unreadable(message: str) -> Diagnostic:
    """The error of a file as a finding on its line."""
    position = _POSITION.search(message)
    file, _, what = message.partition(position.group() if position else ": ")
    line = int(position.group(1)) if position else 1
    remedy = "# templates have to be rendered first: helm template … | rebalancer lint -"
    return Diagnostic(file, line, Severity.ERROR, UNREADABLE, "", what, remedy)
