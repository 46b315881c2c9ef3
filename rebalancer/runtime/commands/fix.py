"""Manifests in which `matchLabelKeys` is missing, and the same manifests with it."""

from __future__ import annotations

import copy
import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import ForbiddenError
from rebalancer.kube.leases import SCALE_INS, find_one
from rebalancer.kube.patches import CostWriter, Deployments
from rebalancer.kube.reading import Objects
from rebalancer.manifests.documents import Text, manifests_in
from rebalancer.manifests.located import Insertion, Located, Unreadable, inserted, insertion, located
from rebalancer.model.pod import Pod
from rebalancer.model.workload import HASH
from rebalancer.outcome import CostOutcome, CostResult
from rebalancer.prevention.rollouts import Addition, additions, gave_up, rolled_out, why_not
from rebalancer.prevention.steering import CostChange, Tally
from rebalancer.runtime.commands.lint import KUSTOMIZATIONS
from rebalancer.runtime.cycle.clock import Clock
from rebalancer.runtime.live.places import places_of
from rebalancer.settings import Settings
from rebalancer.yaml import read_yaml

_LIST = "spec.template.spec.topologySpreadConstraints"
Json = dict[str, Any]


class Fixed(Struct, frozen=True):
    """A file as it should be.

    `workloads`: Kind/namespace/name of those that were mended. `problems`: what has to be done by hand, and
    why.
    """

    text: Text
    before: str
    after: str
    workloads: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def diff(self) -> str:
        """As `diff -u` writes it."""
        names = self.text.name, self.text.name
        lines = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        made = difflib.unified_diff(*lines, *names)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in made)


def manifests(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """The paths, with each directory's manifests one by one; and the templates of charts, which are none."""
    files, templates = list[str](), list[str]()
    for path in paths:
        if not Path(path).is_dir():
            files.append(path)
            continue
        found = manifests_in(Path(path))
        apart = {f for f in found if any(_of_a_chart(folder) for folder in f.absolute().parents)}
        templates += map(str, sorted(apart))
        # A directory without any is an error when it is read.
        files += [str(f) for f in found if f not in apart] if found else [path]
    return files, templates


def _of_a_chart(folder: Path) -> bool:
    return folder.name == "templates" and (folder.parent / "Chart.yaml").is_file()


def fixed_all(texts: Iterable[Text]) -> Iterator[Fixed]:
    """Each file. Patches of kustomizations are judged with the Deployments of their names in all of them."""
    read = [(text, list(located(text))) for text in texts]
    bases: dict[str, list[Json]] = defaultdict(list)
    for _, items in read:
        for item in items:
            if isinstance(item, Located) and item.kind == "Deployment" and not _is_patch(item.value):
                bases[item.value["metadata"]["name"]].append(item.value)
    for text, items in read:
        yield _fixed(text, items, bases)


def fixed(text: Text) -> Fixed:
    """One file by itself."""
    return next(fixed_all([text]))


def _fixed(text: Text, items: Iterable[Located | Unreadable], bases: Mapping[str, list[Json]]) -> Fixed:
    """The file is changed only if it then says what it said before, and the keys."""
    before = bytes(text.data).decode(errors="replace")
    lines = before.splitlines(keepends=True)
    places: list[Insertion] = []
    names: list[str] = []
    wanted: list[Any] = []
    problems = list(_patches_within(text, bases))
    for item in items:
        if isinstance(item, Unreadable):
            return Fixed(text, before, before, (), (item.error.message,))
        found = _missing(item.kind, item.value, bases)
        if found is None:
            problems.append(f"{_name(item)} in {text.name}: {_NO_BASE}")
        wanted.append(_mended(item, [(a.index, a.keys) for a in found or ()]))
        for addition in found or ():
            node = item.node_at(f"{_LIST}[{addition.index}]")
            place = (
                insertion(node, "matchLabelKeys", HASH, lines) if isinstance(node, yaml.MappingNode) else None
            )
            if place is None:
                problems.append(f"{_name(item)}: {_LIST}[{addition.index}] has to be changed by hand")
            else:
                places.append(place)
        if found:
            names.append(_name(item))
    if problems or not places:
        return Fixed(text, before, before, (), tuple(problems))
    after = inserted(lines, places)
    if [_value(i) for i in located(Text(text.name, after.encode()))] != wanted:
        why = f"{text.name}: cannot be changed without changing more; do it by hand: {', '.join(names)}"
        return Fixed(text, before, before, (), (why,))
    return Fixed(text, before, after, tuple(names))


_CONSTRAINTS = re.compile(r"/topologySpreadConstraints(/(\d+|-))?$")
"""Where an operation sets whole constraints."""
_NO_BASE = "what it patches is not among these files; name its base, too"


def _is_patch(value: Json) -> bool:
    """A Deployment has to have a selector."""
    spec = value.get("spec")
    return not (isinstance(spec, Mapping) and spec.get("selector"))


def _missing(kind: str, value: Json, bases: Mapping[str, list[Json]]) -> list[Addition] | None:
    """What a workload lacks. None for a patch with constraints where it is not known what it patches, or the
    answer differs."""
    spec = value.get("spec")
    if not isinstance(spec, Mapping):
        return []
    if kind != "Deployment" or not _is_patch(value):
        return list(additions(kind, spec))
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, Mapping) else None
    listed = inner.get("topologySpreadConstraints") if isinstance(inner, Mapping) else None
    constraints = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
    if all(HASH in (c.get("matchLabelKeys") or ()) for c in constraints):
        return []
    known = bases.get(value["metadata"]["name"], ())
    found = [list(additions(kind, _merged(base["spec"], spec))) for base in known]
    return found[0] if found and all(f == found[0] for f in found) else None


def _merged(base: Any, patch: Any) -> Any:
    """A strategic merge, as far as it matters here: the constraints are judged as the patch lists them."""
    if not (isinstance(base, Mapping) and isinstance(patch, Mapping)):
        return patch
    return {**base, **{k: _merged(base.get(k), v) for k, v in patch.items()}}


def _patches_within(text: Text, bases: Mapping[str, list[Json]]) -> Iterator[str]:
    """What patches lack that are texts in a kustomization, or lists of operations: these are not edited."""
    file = Path(text.name)
    if file.name not in KUSTOMIZATIONS:
        return
    said = _plain(bytes(text.data))
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        for entry in (said.get(key) if isinstance(said, dict) else None) or ():
            by_name = entry if isinstance(entry, dict) else {"patch": entry}
            path = file.parent / str(by_name.get("path") or "")
            patch = _plain(path.read_bytes() if path.is_file() else str(by_name.get("patch")).encode())
            if isinstance(patch, dict) and not path.is_file():
                value = patch
            elif isinstance(patch, list):
                added = [
                    c
                    for op in patch
                    if isinstance(op, dict)
                    and op.get("op") in ("add", "replace")
                    and _CONSTRAINTS.search(str(op.get("path")))
                    for c in (op["value"] if isinstance(op.get("value"), list) else [op.get("value")])
                ]
                template = {"spec": {"topologySpreadConstraints": added}}
                value = {"kind": "Deployment", "spec": {"template": template}}
            else:
                continue
            target = {"name": (value.get("metadata") or {}).get("name"), **(by_name.get("target") or {})}
            kind = target.get("kind") or value.get("kind")
            found = _missing(str(kind), {**value, "metadata": target}, bases)
            if found is None:
                yield f"a patch of {kind} {target['name']} in {file}: {_NO_BASE}"
            elif found:
                yield f"a patch of {kind} {target['name']} in {file} lacks {HASH}: change it by hand"


def _plain(data: bytes) -> Any:
    try:
        return read_yaml(data)
    except (ValueError, yaml.YAMLError):
        return None  # its tool will say what is wrong with it


def _value(item: Located | Unreadable) -> object:
    return item.value if isinstance(item, Located) else item


def _mended(item: Located, keys: Iterable[tuple[int, tuple[str, ...]]]) -> Any:
    """The object as it should be."""
    value = copy.deepcopy(item.value)
    for index, names in keys:
        value["spec"]["template"]["spec"]["topologySpreadConstraints"][index]["matchLabelKeys"] = list(names)
    return value


def _name(item: Located) -> str:
    metadata = item.value["metadata"]
    return f"{item.kind}/{metadata.get('namespace') or 'default'}/{metadata['name']}"


# `matchLabelKeys` for Deployments of a cluster: one at a time, each rolled out before the next.

ROLLED_OUT = "rolled out"
_POLL = 2.0
_PATIENCE = 3600.0
"""Seconds that a rollout may take; its controller gives up earlier, after progressDeadlineSeconds."""


class Wanted(Struct, frozen=True):
    """What is to be done to a Deployment.

    `constraints`: as they should be; empty if nothing is missing. `added`: the same for people. `refused`:
    why it is left alone, "" if it may be changed.
    """

    seen: Json
    constraints: tuple[Json, ...] = ()
    added: tuple[str, ...] = ()
    refused: str = ""


def wanted(seen: Json) -> Wanted:
    """What a Deployment lacks, and whether it may be changed."""
    found = list(additions("Deployment", seen["spec"]))
    if not found:
        return Wanted(seen)
    constraints = copy.deepcopy(seen["spec"]["template"]["spec"]["topologySpreadConstraints"])
    added = []
    for addition in found:
        constraints[addition.index]["matchLabelKeys"] = list(addition.keys)
        where = f"topologySpreadConstraints[{addition.index}]"
        added.append(f"+ {where}.matchLabelKeys: [{', '.join(addition.keys)}]")
    return Wanted(seen, tuple(constraints), tuple(added), why_not(seen))


def apply(live: Deployments, found: Wanted, clock: Clock) -> Iterator[str]:
    """Changes a Deployment and waits until it is rolled out; says what happens, and `ROLLED_OUT` at the end.

    Raises KubeError.
    """
    metadata = live.set_constraints(found.seen, list(found.constraints))["metadata"]
    yield "changed; waiting for its rollout"
    until = clock.monotonic() + _PATIENCE
    while True:
        now = live.get(metadata["namespace"], metadata["name"])
        if rolled_out(now):
            yield ROLLED_OUT
            return
        if trouble := gave_up(now):
            yield f"its rollout makes no progress: {trouble}; `kubectl rollout undo` takes the change back"
            return
        if clock.monotonic() >= until or clock.wait(_POLL):
            yield "its rollout is not over yet"
            return


# What `rebalancer prevent` does: says what scale-ins have left, or takes all deletion costs back.


def recorded(settings: Settings, connection: Connection, clock: Clock) -> Tally | None:
    """What a daemon has seen of scale-ins, by its lease: the one for evictions, or for deletion costs alone.

    The one that is held, or was last. None where there is none. Raises KubeError, UserError.
    """
    places = places_of(settings, connection, wait=clock.wait)
    leases = [
        find_one(connection, "lease", p, wait=clock.wait) for p in (places.lease, places.steering_lease)
    ]
    told = [
        (x.holder != "" and not x.old, x.renewed, tally)
        for x in leases
        if x is not None and (tally := Tally.read(x.annotations.get(SCALE_INS, ""))) is not None
    ]
    return max(told, key=lambda t: t[:2])[2] if told else None


_PER_SECOND = 25.0
"""Somebody waits for it."""
_ROUNDS = 5
"""A pod that has changed meanwhile is looked at again."""
_REFUSALS = 3
"""Pods in a row, after which the others of their namespace are not tried any more."""


def take_back(
    connection: Connection, namespace: str, clock: Clock, tell: Callable[[CostOutcome], None]
) -> tuple[int, int]:
    """Removes every deletion cost that this tool has written: (how many, how many are left).

    `namespace`: "" for all. Raises KubeError.
    """
    objects, writer = Objects(connection, wait=clock.wait), CostWriter(connection)
    removed, refused, in_a_row = 0, set[str](), Counter[str]()
    left: list[Pod] = []

    def wait() -> bool:
        return clock.wait(1.0 / _PER_SECOND)

    for _ in range(_ROUNDS):
        left = [p for p in objects.pods(namespace) if p.own_cost is not None]
        tried = 0
        for pod in left:
            if pod.uid in refused or in_a_row[pod.namespace] >= _REFUSALS:
                continue
            change, tried = CostChange(pod, 0, pod.own_cost), tried + 1
            try:
                outcome = writer.write(change, wait)
                in_a_row[pod.namespace] = 0
            except ForbiddenError as e:
                outcome = CostOutcome(change, CostResult.FAILED, str(e))
                refused.add(pod.uid)
                in_a_row[pod.namespace] += 1
            removed += outcome.result is CostResult.WRITTEN
            tell(outcome)
            if wait():
                return removed, len(left)
        if not tried:
            break
    return removed, len(left)
