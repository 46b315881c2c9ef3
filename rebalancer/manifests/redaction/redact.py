"""Redacts objects: leaves out what no plan depends on, and replaces the names in the rest by pseudonyms.

`redacted_fields` lists the fields that are kept. Every other field is left out: environment variables,
commands, other annotations, managed fields. The plan for the redacted cluster is the plan for the real one
with the pseudonyms in place of the names.

Kept as they are: well-known label keys, taint keys, names and resources (`known_keys`), names of CSI drivers,
provisioners and schedulers, the kinds of owners (not the groups of unknown ones), quantities, times and host
ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rebalancer.engine.plugins.image_locality import normalized
from rebalancer.manifests.kinds import is_read
from rebalancer.manifests.redaction.known_keys import (
    KNOWN_KEYS,
    KNOWN_NAMES,
    PLAIN_VALUES,
    known_beginning,
    known_resource,
)
from rebalancer.manifests.redaction.pseudonyms import Pseudonyms
from rebalancer.manifests.redaction.redacted_fields import KINDS
from rebalancer.manifests.redaction.rules import Naming
from rebalancer.model.deletion_cost import without_own_cost

Json = dict[str, Any]

_ZONES = "__"
"""Separator between the zones of a volume that has several."""


def redact(objects: Callable[[], Iterable[Json]]) -> Iterator[Json]:
    """The redacted objects of a cluster, only of kinds that are read. `objects` is called twice."""
    names = learn(objects())
    for obj in objects():
        redacted = of_object(obj, names)
        if redacted is not None:
            yield redacted


def learn(objects: Iterable[Json]) -> Pseudonymous:
    """The pseudonyms for all these objects."""
    seen = _Collecting()
    for obj in objects:
        if of_object(obj, seen) is not None:
            seen.put_together(obj)
    return seen.naming()


def of_object(obj: Json, naming: Naming) -> Json | None:
    """One object with its names replaced; None if its kind is not read."""
    kind, api_version = str(obj.get("kind") or ""), str(obj.get("apiVersion") or "")
    if not is_read(kind, api_version):
        return None
    if "managedFields" in obj["metadata"]:
        obj = {**obj, "metadata": without_own_cost(obj["metadata"])}
    found: Json = {"apiVersion": api_version, "kind": kind, **(KINDS[kind](obj, naming) or {})}
    return found


def _mapping(value: Any) -> Json:
    """The value, or nothing where an object is malformed."""
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Collecting:
    """Returns every name unchanged, and collects it."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._uids: set[str] = set()
        self._wanted: set[str] = set()
        self._keys: set[str] = set()
        self._joined: dict[str, tuple[str, str]] = {}
        self._sets: list[tuple[str, str]] = []

    def name(self, text: str) -> str:
        self._names.add(text)
        return text

    def uid(self, text: str) -> str:
        self._uids.add(text)
        return text

    def key(self, text: str) -> str:
        if text in KNOWN_KEYS:
            self._keys.add(text)
        else:
            self._names.add(known_beginning(text)[1])
        return text

    def value(self, key: str, text: str) -> str:
        if key not in PLAIN_VALUES:
            self._names.update(text.split(_ZONES))
        return text

    def resource(self, text: str) -> str:
        (self._keys if known_resource(text) else self._names).add(text)
        return text

    def image(self, text: str) -> str:
        self._wanted.add(normalized(text))
        return text

    def present_image(self, text: str) -> str | None:
        return text

    def put_together(self, obj: Json) -> None:
        """Collects names that controllers compose of two others: those of claims and of pods with an
        ordinal."""
        name, spec = str(obj["metadata"]["name"]), _mapping(obj.get("spec"))
        if obj["kind"] == "Pod":
            for volume in map(_mapping, _listed(spec.get("volumes"))):
                if volume.get("ephemeral") is not None:
                    self._joined[f"{name}-{volume.get('name')}"] = name, str(volume.get("name"))
        elif obj["kind"] == "StatefulSet":
            first, replicas = _mapping(spec.get("ordinals")).get("start"), spec.get("replicas")
            last = (first if isinstance(first, int) else 0) + (replicas if isinstance(replicas, int) else 1)
            self._names.update(f"{name}-{i}" for i in range(last))
            for claim in map(_mapping, _listed(spec.get("volumeClaimTemplates"))):
                self._sets.append((str(_mapping(claim.get("metadata")).get("name")), name))

    def naming(self) -> Pseudonymous:
        numbered: dict[str, list[str]] = defaultdict(list)
        for name in self._names:
            stem, _, number = name.rpartition("-")
            if stem and number.isdigit():
                numbered[stem].append(number)
        for claim, owner in self._sets:
            for number in numbered.get(f"{claim}-{owner}", ()):
                self._joined[f"{claim}-{owner}-{number}"] = claim, f"{owner}-{number}"
        pseudonyms = Pseudonyms(
            self._names | set(KNOWN_NAMES) | set(self._joined), (*self._keys, *KNOWN_NAMES), self._joined
        )
        return Pseudonymous(pseudonyms, self._uids, self._wanted)


class Pseudonymous:
    """Replaces every name by its pseudonym."""

    def __init__(self, pseudonyms: Pseudonyms, uids: Iterable[str], images: Iterable[str]) -> None:
        self.name = pseudonyms
        self._uids = {uid: f"00000000-0000-4000-8000-{i:012x}" for i, uid in enumerate(sorted(uids), 1)}
        self._images = {image: f"image-{i}:v" for i, image in enumerate(sorted(images), 1)}

    def uid(self, text: str) -> str:
        """A pseudonym for a uid; the order of uids is kept."""
        return self._uids[text]

    def key(self, text: str) -> str:
        """The key of a label or taint; a well-known one stays, and so does a well-known beginning."""
        if text in KNOWN_KEYS:
            return text
        beginning, rest = known_beginning(text)
        return beginning + self.name(rest)

    def value(self, key: str, text: str) -> str:
        """The value of a label; each of several zones in one value gets its pseudonym."""
        return text if key in PLAIN_VALUES else _ZONES.join(map(self.name, text.split(_ZONES)))

    def resource(self, text: str) -> str:
        """The name of a resource; a well-known one stays."""
        return text if known_resource(text) else self.name(text)

    def image(self, text: str) -> str:
        """The image of a container."""
        return self._images[normalized(text)]

    def present_image(self, text: str) -> str | None:
        """An image on a node; None if no pod uses it."""
        return self._images.get(normalized(text))
