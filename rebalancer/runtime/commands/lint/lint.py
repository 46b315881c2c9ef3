"""Findings of manifests, without a cluster: each with the file and the line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.findings import findings
from rebalancer.findings.subject import subjects
from rebalancer.kube.schema import problems
from rebalancer.manifests.files import Text
from rebalancer.manifests.kinds import is_read
from rebalancer.manifests.located import Located, Unreadable, located
from rebalancer.manifests.nodes import given_nodes
from rebalancer.manifests.reading import field_error
from rebalancer.manifests.validation import validate
from rebalancer.model.decode import Decoder
from rebalancer.model.finding import Severity
from rebalancer.model.kinds import KINDS, Object
from rebalancer.model.node import Node
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import build_snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.report.lint.diagnostic import Diagnostic, Linted
from rebalancer.report.wording.text import plural
from rebalancer.runtime.commands.lint.checks import LintCode, checks
from rebalancer.runtime.commands.lint.ignores import Ignores
from rebalancer.runtime.commands.lint.on_nodes import on_nodes
from rebalancer.runtime.commands.lint.rendering import Failed, Rendered, Skipped, Source, sources

_TEMPLATES = ("", "spec.template.", "spec.jobTemplate.spec.template.")
_POSITION = re.compile(r":(\d+):\d+: ")
_UNKNOWN = "where their pods can go also depends on volumes, other pods, or labels that were not given"
_RENDER = "# templates have to be rendered first: helm template … | rebalancer lint -"


class _Place(Struct, frozen=True, eq=False):
    """An object, and what is said about findings in its text. `shown`: the file that findings point at where
    the text was made by a tool. `origins`: what the tool made it of, as far as name and kind tell."""

    item: Located
    ignores: Ignores
    shown: str = ""
    origins: tuple[_Place, ...] = ()

    def of(self, field: str) -> _Place:
        """Where a person wrote the field: in one of the origins, else here."""
        return next((o for o in self.origins if o.item.has(field)), self)


def lint(
    paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None, *, nodes: str | None = None
) -> Linted:
    """The findings of all manifests in these files, directories or `-`.

    They count as one cluster: a budget or autoscaler that is not in them does not exist. `nodes`: a file with
    its nodes, or their number by zone; without, nothing is said that depends on nodes. Helm charts and
    kustomizations in directories are rendered. Raises UserError if a path cannot be read.
    """
    linting = _Linting(nodes)
    for source in sources(paths, stdin):
        linting.add(source)
    return linting.linted()


class _Linting:
    """What was read and found so far."""

    def __init__(self, nodes: str | None) -> None:
        self._nodes = nodes
        self._decoder = Decoder()
        self._objects: list[Object] = []
        self._found: list[Diagnostic] = []
        self._where: dict[str, _Place] = {}
        self._files: set[str] = set()
        self._notes: list[str] = []
        self._workloads = self._ignored = 0

    def add(self, source: Source) -> None:
        """Reads a source; its own errors are found at once."""
        if isinstance(source, Skipped):
            self._notes.append(f"{source.path} is not looked at: {source.why}")
            return
        if isinstance(source, Failed):
            self._found.append(
                Diagnostic(source.file, 1, Severity.ERROR, LintCode.UNREADABLE, "", source.why)
            )
            return
        text, shown = (source.text, source.file) if isinstance(source, Rendered) else (source, "")
        ignores = _ignores(text)
        origins = self._origins(source.made_of) if isinstance(source, Rendered) else {}
        for item in located(text):
            if isinstance(item, Unreadable):
                self._found.append(_unreadable(item.error.message))
                continue
            self._files.add(item.file)
            if _made_of(item) is not None:
                self._object(_Place(item, ignores, shown, tuple(origins.get(_identity(item), ()))))

    def _origins(self, texts: tuple[Text, ...]) -> dict[tuple[str, str], list[_Place]]:
        """Kind and name → the objects of these files that have them: a base, and patches."""
        found: dict[tuple[str, str], list[_Place]] = {}
        for text in texts:
            ignores = _ignores(text)
            for item in located(text):
                if isinstance(item, Located):
                    found.setdefault(_identity(item), []).append(_Place(item, ignores))
        return found

    def _object(self, place: _Place) -> None:
        item, name = place.item, _name(place.item)
        self._where[name] = place
        for line, key in item.duplicates():
            self._tell(place, Severity.ERROR, LintCode.DUPLICATE_KEY, f"{key!r} is there twice", line)
        try:
            value: Object | None = _decoded(self._decoder, item)
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, KeyError) as e:
            value = None
            message = field_error(e)
            # The decoder names fields of a pod template as the pod has them.
            short = message.partition(":")[0]
            field = next((t + short for t in _TEMPLATES if item.has(t + short)), short)
            says = f"it is not understood: {message}"
            if "invalid enum value" not in message:  # said below, with the legal ones
                self._tell(place, Severity.ERROR, LintCode.UNREADABLE, says, item.line_of(field), field=field)
            self._workloads += 1
        told = {d.line for d in self._found if d.object == name and d.code == LintCode.UNREADABLE}
        for at, says in (*problems(item.kind, item.value), *validate(item.kind, item.value)):
            line = item.line_of(at)
            if line not in told:
                self._tell(place, Severity.ERROR, LintCode.INVALID, f"{at}: {says}", line, field=at)
        if value is not None:
            self._objects.append(value)
            self._workloads += isinstance(value, Workload | Pod)

    def _tell(
        self,
        place: _Place,
        severity: Severity,
        code: str,
        message: str,
        line: int,
        remedy: str = "",
        field: str = "",
    ) -> None:
        at = place.of(field)
        if at is not place:
            line = at.item.line_of(field)
        if at.ignores.covers(code, line, at.item.line):
            self._ignored += 1
            return
        file, line = (at.shown, 1) if at.shown else (at.item.file, line)
        name = _name(place.item)
        self._found.append(Diagnostic(file, line, severity, str(code), name, message, remedy, field))

    def linted(self) -> Linted:
        """All of it, with the findings of the workloads."""
        objects = [o for o in self._objects if not isinstance(o, Node)]
        snapshot = build_snapshot(objects, now=0.0, kinds=KINDS)
        simulation = Simulation(snapshot, None)
        evictable = Evictable(snapshot, PolicyOptions(namespaces_exclude=()))
        every = subjects(snapshot, evictable.owners)
        found = [*findings(simulation, evictable), *checks(every)]
        if self._nodes is not None:
            asked = {r for s in every for r in s.template.requests}
            placed = on_nodes(objects, given_nodes(self._nodes, sorted(asked)))
            found += placed.found
            if placed.not_judged:
                self._notes.append(f"{plural(placed.not_judged, 'workload')} not judged by nodes: {_UNKNOWN}")
        for f in found:
            place = self._where[f.object]
            self._tell(place, f.severity, f.code, f.message, place.item.line_of(f.field), f.remedy, f.field)
        told = sorted(self._found, key=lambda d: (d.file, d.line, d.code, d.object))
        return Linted(tuple(told), self._workloads, len(self._files), self._ignored, tuple(self._notes))


def _made_of(item: Located) -> str | None:
    """The kind that an object is decoded as; None if lint has nothing to say about it.

    Whatever else has a pod template (a Rollout, a CloneSet) is judged as a Deployment is.
    """
    if is_read(item.kind, str(item.value.get("apiVersion") or "")):
        return item.kind
    if item.kind == "CronJob":
        return "Job"
    spec = item.value.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else None
    return "Deployment" if isinstance(inner, dict) and "containers" in inner else None


def _decoded(decoder: Decoder, item: Located) -> Object:
    value: dict[str, Any] = {**item.value, "metadata": _metadata(item)}
    kind = _made_of(item) or item.kind
    if item.kind == "CronJob":
        value = {"metadata": value["metadata"], "spec": value["spec"]["jobTemplate"]["spec"]}
    made = decoder.decode(kind, msgspec.json.encode(value))
    return replace(made, kind=item.kind) if isinstance(made, Workload) else made


def _ignores(text: Text) -> Ignores:
    return Ignores(bytes(text.data).decode(errors="replace"))


def _identity(item: Located) -> tuple[str, str]:
    return item.kind, str(item.value["metadata"]["name"])


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
    return Diagnostic(file, line, Severity.ERROR, LintCode.UNREADABLE, "", what, _RENDER)
