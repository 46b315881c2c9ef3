"""Findings of manifests, without a cluster: each with the file and the line.

Nothing is run and nothing is fetched: charts and kustomizations are named, and who trusts them renders them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Hashable, Iterable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.findings import cannot_be_replaced as replacing
from rebalancer.findings import findings, order
from rebalancer.findings.domain_checks import FORMER
from rebalancer.findings.remedies import Replays
from rebalancer.findings.survey import REPLICATED, Subject, Survey, subjects, yaml_of
from rebalancer.kube.resources import problems
from rebalancer.manifests.documents import Text, is_read, manifests_in, texts
from rebalancer.manifests.located import Located, Unreadable, located, validate
from rebalancer.manifests.reading import GivenNodes, field_error, given_nodes
from rebalancer.model.decode import Decoder
from rebalancer.model.node import HOSTNAME, REGION, ZONE, Node, OwnerReference
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Finding, Severity, plural
from rebalancer.model.snapshot import KINDS, Object, Snapshot, build_snapshot
from rebalancer.model.workload import Workload
from rebalancer.planner.cluster.placing import Placing, by_template
from rebalancer.planner.cluster.simulation import Simulation
from rebalancer.planner.objective import for_advice
from rebalancer.policy.evictable import Evictable
from rebalancer.policy.options import PolicyOptions
from rebalancer.report.linted import Diagnostic, Linted
from rebalancer.report.text import full_key
from rebalancer.yaml import read_yaml

# What only `lint` looks for: it has no nodes to compare with, and reads what people write.

_KEYS = (
    ZONE,
    REGION,
    HOSTNAME,
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
_FORMER = {former: key for key, former in FORMER.items()}
_CLOSE = 0.85


class LintCode(StrEnum):
    """Findings of `lint` alone."""

    UNREADABLE = "unreadable-manifest"
    INVALID = "invalid-manifest"
    DUPLICATE_KEY = "duplicate-key"
    KEY_TYPO = "topology-key-typo"
    NO_SPREAD = "no-spread"


def checks(subjects: Iterable[Subject]) -> Iterator[Finding]:
    """Findings of all workloads."""
    for s in subjects:
        if s.replicated and not s.template.spread:
            yield _no_spread(s)
        for i, c in enumerate(s.template.spread):
            if meant := _meant(c.topology_key):
                field = f"{s.pod_spec}.topologySpreadConstraints[{i}].topologyKey"
                yield Finding(
                    Severity.WARNING,
                    LintCode.KEY_TYPO.value,
                    s.object,
                    f"{c.topology_key!r} is no label that nodes usually have; {meant} is meant?",
                    f"topologyKey: {meant}",
                    field,
                )


def _meant(key: str) -> str:
    """The well-known key that a key resembles, "" if it is one or resembles none."""
    if key in _KEYS:
        return ""
    if (known := _FORMER.get(key) or full_key(key)) != key:
        return known
    found = get_close_matches(key, _KEYS, 1, _CLOSE)
    return found[0] if found else ""


def _no_spread(s: Subject) -> Finding:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": s.own_labels},
    }
    return Finding(
        Severity.WARNING,
        LintCode.NO_SPREAD.value,
        s.object,
        f"{s.most} pods without a spread constraint: the scheduler's defaults decide, which are soft",
        f"# {s.pod_spec}\n" + yaml_of({"topologySpreadConstraints": [constraint]}),
        s.pod_spec,
    )


# Comments that leave findings out: `# rebalancer: ignore CODE, CODE`, without codes all of them.

_COMMENT = re.compile(r"#\s*rebalancer:\s*(ignore-file|ignore)\b[ \t]*([a-z0-9, -]*)")
_EVERY = frozenset({"*"})


class Ignores:
    """The comments of one text.

    A comment at the end of a line is about that line; on lines of its own, about the line below, and in front
    of an object about the whole object. `ignore-file` is about the text.
    """

    def __init__(self, text: str) -> None:
        self._whole: frozenset[str] = frozenset()
        self._lines: dict[int, frozenset[str]] = {}
        self._alone: set[int] = set()
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("#"):
                self._alone.add(number)
            if "rebalancer:" not in line or (found := _COMMENT.search(line)) is None:
                continue
            codes = frozenset(re.split(r"[, ]+", found.group(2).strip())) - {""} or _EVERY
            if found.group(1) == "ignore-file":
                self._whole |= codes
            else:
                self._lines[number] = codes

    def covers(self, code: str, *lines: int) -> bool:
        """Whether a finding on one of these lines is left out."""
        found = self._whole.union(*(self._above(line) for line in lines))
        return code in found or "*" in found

    def _above(self, line: int) -> frozenset[str]:
        codes = self._lines.get(line, frozenset())
        while (line := line - 1) in self._alone:
            codes |= self._lines.get(line, frozenset())
        return codes


# What manifests come to on nodes that are given: their pods are placed, empty nodes first, as the scheduler
# would, and those that find no node, or would find none again, are findings.

_EVERYWHERE = PolicyOptions(namespaces_exclude=())
_MOST = 5_000
_KNOWN = frozenset({ZONE, HOSTNAME})


class OnNodes(NamedTuple):
    """`found`: the workloads of which a pod finds no node among those, or would not find one again.
    `not_judged`: how many workloads were left out."""

    found: list[Finding]
    not_judged: int


def on_nodes(objects: Iterable[Object], given: GivenNodes) -> OnNodes:
    """Places the pods of the manifests on the nodes, which are empty at first."""
    kept = [o for o in objects if not isinstance(o, Node | Pod)]
    empty = build_snapshot([*kept, *given.nodes], now=0.0, kinds=KINDS)
    simulation = Simulation(empty, None)
    every = subjects(empty, Evictable(empty, _EVERYWHERE).owners)
    every = [s for s in every if s.workload is not None and s.kind in REPLICATED and s.replicas]
    judged = [s for s in every if _suffice(s, simulation, counted=given.counted)]
    placing, table = Placing(simulation.state), simulation.state.table
    whose: dict[Hashable, tuple[Subject, int]] = {
        (s.object, i): (s, i) for s in judged for i in range(s.replicas)
    }
    left = placing.place(by_template((key, s.template) for key, (s, _) in whose.items()))
    pods = tuple(_pod(*whose[key], table.names[row]) for key, row in placing.placed.items())
    unplaced = {s.object: (s, len(w.keys)) for w in left for s, _ in [whose[w.keys[0]]]}
    waiting = tuple(_pod(*whose[key], "") for w in left for key in w.keys)
    found = _found(replace(empty, pods=(*pods, *waiting)), unplaced)
    return OnNodes(sorted(found, key=order), len(every) - len(judged))


def _found(placed: Snapshot, unplaced: dict[str, tuple[Subject, int]]) -> Iterator[Finding]:
    evictable = Evictable(placed, _EVERYWHERE)
    survey = Survey(Simulation(placed, None), evictable)
    kept = replacing.kept_by_workload(survey, evictable)
    first = [replacing.not_placed(survey.simulation, s, number) for s, number in unplaced.values()]
    more = (p for p in replacing.check(survey, kept) if p.subject.object not in unplaced)
    yield from Replays(survey, evictable.owners, kept, for_advice(0)).all([*first, *more])


def _suffice(subject: Subject, simulation: Simulation, *, counted: bool) -> bool:
    """Whether manifests and nodes say where its pods can go: volumes that are nowhere, and pods that they
    want to be near, are not known, and of counted nodes no label but zone and name."""
    template, table = subject.template, simulation.state.table
    if subject.replicas > _MOST:
        return False
    if any(v.claim or v.kind == "ephemeral" for v in template.volumes) or template.scheduling_gates:
        return False
    if simulation.state.terms.of(template).required:
        return False
    if not counted:
        return True
    keys = {c.topology_key for c in simulation.state.constraints(template, hard=True)}
    return keys <= _KNOWN and bool(table.admitted(template).all())


def _pod(subject: Subject, number: int, node: str) -> Pod:
    """One as it runs on the node, or as it waits for one ("")."""
    owner = subject.workload
    assert owner is not None
    return Pod(
        name=f"{owner.name}-{number}",
        namespace=owner.namespace,
        uid=f"{owner.key}/{number}",
        template=subject.template,
        node_name=node,
        phase="Running" if node else "Pending",
        ready=bool(node),
        owner=OwnerReference(owner.kind, owner.name, owner.metadata.uid, controller=True),
    )


_TEMPLATES = ("", "spec.template.", "spec.jobTemplate.spec.template.")
_POSITION = re.compile(r":(\d+):\d+: ")
_UNKNOWN = "where their pods can go also depends on volumes, other pods, or labels that were not given"
_RENDER = "# templates have to be rendered first: helm template … | rebalancer lint -"
_CHART = "Chart.yaml"
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_SOURCE = re.compile(rb"^# Source: (\S+)\s*$", re.MULTILINE)
"""What helm writes above each document: the template that it is made of."""
_DOCUMENT = re.compile(rb"^---\s*$", re.MULTILINE)


class _Place(Struct, frozen=True, eq=False):
    """An object, and what is said about findings in its text. `template`: the file that findings point at
    where helm made the text."""

    item: Located
    ignores: Ignores
    template: str = ""


def lint(
    paths: Iterable[str | os.PathLike[str]], stdin: BinaryIO | None = None, *, nodes: str | None = None
) -> Linted:
    """The findings of all manifests in these files, directories or `-`.

    They count as one cluster: a budget or autoscaler that is not in them does not exist. `nodes`: a file with
    its nodes, or their number by zone; without, nothing is said that depends on nodes. Raises UserError if a
    path cannot be read.
    """
    linting = _Linting(nodes)
    for path in paths:
        if os.fspath(path) == "-":
            for text in texts([path], stdin):
                for document, template in _documents(text):
                    linting.add(document, template)
        elif os.fspath(path) and Path(path).is_dir():
            files, unrendered = _in_directory(Path(path))
            linting.notes += unrendered
            for text in (t for file in files for t in texts([file])):
                linting.add(text)
        else:
            for text in texts([path]):
                linting.add(text)
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
        self.notes: list[str] = []
        self._workloads = self._ignored = 0

    def add(self, text: Text, template: str = "") -> None:
        """Reads a text; its own errors are found at once."""
        ignores = Ignores(bytes(text.data).decode(errors="replace"))
        for item in located(text):
            if isinstance(item, Unreadable):
                self._found.append(_unreadable(item.error.message))
                continue
            self._files.add(template or item.file)
            if _made_of(item) is not None:
                self._object(_Place(item, ignores, template))

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
        if place.ignores.covers(code, line, place.item.line):
            self._ignored += 1
            return
        file, line = (place.template, 1) if place.template else (place.item.file, line)
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
                self.notes.append(f"{plural(placed.not_judged, 'workload')} not judged by nodes: {_UNKNOWN}")
        for f in found:
            place = self._where[f.object]
            self._tell(place, f.severity, f.code, f.message, place.item.line_of(f.field), f.remedy, f.field)
        told = sorted(self._found, key=lambda d: (d.file, d.line, d.code, d.object))
        return Linted(tuple(told), self._workloads, len(self._files), self._ignored, tuple(self.notes))


def _documents(text: Text) -> Iterator[tuple[Text, str]]:
    """What helm printed, document by document, each with its template; "" where it names none."""
    data = bytes(text.data)
    begins = [0, *(m.start() for m in _DOCUMENT.finditer(data)), len(data)] if _SOURCE.search(data) else []
    if not begins:
        yield text, ""
    for start, end in pairwise(begins):
        source = _SOURCE.search(data, start, end)
        if source is not None:
            yield Text(text.name, data[start:end]), source.group(1).decode(errors="replace")
        else:  # its lines are those of the whole text
            yield Text(text.name, b"\n" * data.count(b"\n", 0, start) + data[start:end]), ""


def _in_directory(path: Path) -> tuple[list[Path], list[str]]:
    """The files to read, and what is said of charts and kustomizations: their files are no manifests."""
    charts: list[Path] = []
    kustomizations: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if _CHART in names:
            charts.append(Path(folder))
            folders.clear()
        elif any(n in names for n in KUSTOMIZATIONS):
            kustomizations.append(Path(folder))
    apart = (*charts, *kustomizations)
    files = [f for f in manifests_in(path) if not any(f.is_relative_to(folder) for folder in apart)]
    notes = [_not_rendered("chart", "helm template", folder) for folder in charts]
    return files, notes + [
        _not_rendered("kustomization", "kustomize build", folder) for folder in _roots(kustomizations)
    ]


def _not_rendered(what: str, command: str, folder: Path) -> str:
    return f"not rendered: {what} {folder}; run: {command} {shlex.quote(str(folder))} | rebalancer lint -"


def _roots(kustomizations: list[Path]) -> Iterator[Path]:
    """The kustomizations that are rendered by themselves: no component, and no other one's base."""
    content = {folder: _kustomization(folder) for folder in kustomizations}
    used: set[str] = set()
    for folder, said in content.items():
        for key in ("resources", "bases", "components"):
            named = said.get(key)
            used |= {
                os.path.abspath(folder / r)
                for r in (named if isinstance(named, list) else ())
                if isinstance(r, str)
            }
    for folder, said in content.items():
        if said.get("kind") != "Component" and os.path.abspath(folder) not in used:
            yield folder


def _kustomization(folder: Path) -> dict[str, Any]:
    try:
        content = read_yaml(next(folder / n for n in KUSTOMIZATIONS if (folder / n).exists()).read_bytes())
    except (OSError, ValueError, yaml.YAMLError):
        return {}  # its tool will say what is wrong with it
    return content if isinstance(content, dict) else {}


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
