"""What this tool keeps in ConfigMaps: the ledger, and the brake by which people pause evictions."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from math import inf
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, begun_anew, retry
from rebalancer.kube.errors import (
    PROXY,
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseError,
    Target,
)
from rebalancer.kube.resources import RESOURCES, Resource
from rebalancer.model.node import ObjectMeta
from rebalancer.policy.annotations import (
    ANY_PAUSE,
    FOR_RUN,
    PAUSE,
    meant_as_pause,
    pause_ends,
    pauses_until,
)
from rebalancer.policy.history.ledger import MOST_BYTES, Ledger
from rebalancer.policy.history.ledger_json import NewerLedgerError, decode, encode, within_limits
from rebalancer.policy.options import COMPONENT, MANAGED_BY, NAME, OURS

# Where brake, ledger and lease are, and the labels by which they are found whatever their names.

_LONGEST_LABEL = 63
Component = Literal["brake", "ledger", "lease", "plan", "scale-in"]


class Place(Struct, frozen=True):
    """Namespace and name of a ConfigMap or a Lease. Without the one: a namespace, which can be paused too."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As messages name a ConfigMap."""
        return f"ConfigMap {self.namespace}/{self.name}" if self.namespace else self.kubectl

    @property
    def kubectl(self) -> str:
        """As commands name a ConfigMap."""
        return f"configmap {self.name} -n {self.namespace}" if self.namespace else f"namespace {self.name}"

    @property
    def home(self) -> Place:
        """Its namespace."""
        return Place("", self.namespace)

    @property
    def label(self) -> str:
        """Both as the value of a label, which has no room for long ones."""
        text = f"{self.namespace}.{self.name}"
        if len(text) <= _LONGEST_LABEL:
            return text
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def labels_of(component: Component) -> dict[str, str]:
    """The labels of an object that the tool itself creates."""
    return {NAME: OURS, COMPONENT: component, MANAGED_BY: OURS}


log = logging.getLogger(__name__)

# The ledger in a ConfigMap: read at the start of a cycle, written before evictions and after them.
#
# Writes are optimistic: nobody else may have written since it was read. So the ledger is a fence as well:
# of two rebalancers that both believe they lead, one is told so before it evicts.

CONFIG_MAPS = Resource("ConfigMap", "", "v1", "configmaps")
KEY = "ledger.json"
QUARANTINE = "quarantine"
"""Where content that cannot be right is kept for people to look at, by the process that has found it; only
the last one."""
_READ_TIMEOUT = 15.0
_MOST_QUARANTINED = 256 * 1024


class LedgerError(KubeError):
    """The ledger cannot be used; nothing may be evicted on it."""


class LedgerConflictError(LedgerError):
    """Somebody else has written it since it was read."""


class ConfigMap(Struct, frozen=True, rename="camel"):
    """A ConfigMap, or another object that people annotate, as far as it is read."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class Ledgers:
    """Reads and writes the ledger of one cluster. `writer` tells this process from every other."""

    def __init__(
        self,
        connection: Connection,
        place: Place,
        *,
        writer: str,
        wait: Wait,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        self.place = place
        self._connection = connection
        self._writer = writer
        self._wait = wait
        self._backoff = backoff
        self._version = ""
        self._serial = 0
        self._quarantined = ""
        self.there = False
        """Whether there was a ledger when it was read last."""
        self.aside: tuple[str, ...] = ()
        """The parts of it that cannot be right and were left out: "entries[3]"; "ledger" = all of it."""

    def load(self) -> Ledger:
        """The ledger as it is, without what cannot be right (`aside`); an empty one where there is none
        (`there`), or none that can be read.

        Raises LedgerError for a ConfigMap that is not ours or is of a newer version, KubeError where it
        cannot be read.
        """
        self.there, self.aside = False, ()
        try:
            found = retry(lambda: self._ask("GET", "get"), wait=self._wait, backoff=self._backoff)
        except NotFoundError as e:
            if e.kind == "namespaces":
                raise
            self._version = ""
            return Ledger()
        self._version = found.metadata.resource_version
        self.there = True
        target = self._target("get")
        text = (found.data or {}).get(KEY)
        if text is None:
            if found.data or found.metadata.labels.get(MANAGED_BY) != OURS:
                raise LedgerError(
                    f"{self.place} is not a ledger: it has no {KEY} and was not made by the rebalancer",
                    "choose another name: ledger.name",
                    target=target,
                )
            text = ""
        wrong: dict[str, str] = {}
        try:
            ledger = decode(text, wrong.__setitem__)
        except NewerLedgerError as e:
            raise LedgerError(
                f"{self.place} was written by a newer rebalancer: {e}",
                "run that version, or choose another ledger.name",
                target=target,
            ) from e
        except ValueError as e:
            wrong, ledger = {"ledger": str(e)}, Ledger()
        self.aside = tuple(wrong)
        if wrong and text != self._quarantined:
            self._quarantined = text
            what, why = next(iter(wrong.items()))
            log.warning(
                "%s is damaged: %s%s: %s; what stood there is put aside under the key %s",
                self.place,
                what,
                f" and {len(wrong) - 1} other parts" if wrong.keys() - {what} else "",
                why,
                QUARANTINE,
            )
        return ledger

    def save(self, ledger: Ledger, cycle: str = "") -> Ledger:
        """Writes it, within the limits, and gives it back as written. `cycle`: the present one. Raises
        LedgerConflictError if somebody else wrote since `load` or the last `save`, another KubeError where it
        cannot be written."""
        self._serial += 1
        written = within_limits(replace(ledger, writer=self._writer, serial=self._serial), cycle)
        text = encode(written)
        if len(text) > 2 * MOST_BYTES:
            raise LedgerError(
                f"{self.place} would have {len(text):,} bytes, more than a ConfigMap holds",
                "the next cycle goes on; evictions.maxTotal keeps cycles smaller",
                target=self._target("update"),
            )
        data = {KEY: text.decode()}
        room = min(_MOST_QUARANTINED, 2 * MOST_BYTES - len(text))
        if self._quarantined and room > 0:
            data[QUARANTINE] = self._quarantined.encode()[:room].decode(errors="ignore")
        metadata: dict[str, Any] = {
            "name": self.place.name,
            "namespace": self.place.namespace,
            "labels": labels_of("ledger"),
        }
        if self._version:
            metadata["resourceVersion"] = self._version
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        how = ("PUT", "update", body) if self._version else ("POST", "create", body)
        try:
            # It cannot be written twice: the second try of one that arrived is a conflict.
            answer = retry(lambda: self._ask(*how), wait=self._wait, backoff=self._backoff)
        except ConflictError as e:
            if self._mine(written):
                return written  # the answer to an earlier try was lost
            raise LedgerConflictError(
                f"{self.place} has been written by somebody else meanwhile",
                "is a second rebalancer at work on this cluster?",
                target=e.target,
            ) from e
        self._version = answer.metadata.resource_version
        return written

    def _mine(self, written: Ledger) -> bool:
        """Whether what is there is the very ledger that was just written."""
        try:
            found = self._ask("GET", "get")
            there = decode((found.data or {}).get(KEY, ""))
        except (KubeError, ValueError):
            return False
        if (there.writer, there.serial) != (written.writer, written.serial):
            return False
        self._version = found.metadata.resource_version
        return True

    def _target(self, verb: str) -> Target:
        name = "" if verb == "create" else self.place.name
        return Target(verb, CONFIG_MAPS, self.place.namespace, name)

    def _ask(self, method: str, verb: str, body: Any = None) -> ConfigMap:
        target = self._target(verb)
        path = CONFIG_MAPS.path(target.namespace, target.name)
        answer = self._connection.request(method, path, target, body=body, read_timeout=_READ_TIMEOUT)
        try:
            return msgspec.json.decode(answer.body, type=ConfigMap)
        except msgspec.DecodeError as e:
            raise LedgerError(f"{target}: the answer cannot be read: {e}", target=target) from e


# The brake: an annotation of one ConfigMap by which people pause all evictions, or of a namespace.
#
# Both are read right before each eviction. What cannot be seen counts as paused: a brake that somebody took
# away, or whose rights are missing, must not let go of evictions.

_METHODS = {"get": "GET", "create": "POST", "update": "PUT", "delete": "DELETE"}
_TIMEOUT = 10.0
_REFUSALS = 3
"""An API server that has just been started refuses everything for a moment."""
_TRIES = 5
"""Of a change that somebody else's change came before."""


class Brake(ConfigMap, frozen=True, rename="camel"):
    """An object by which people pause."""

    @property
    def slips(self) -> dict[str, str]:
        """What on a brake was meant to pause, in words → the command that removes it."""
        meta = self.metadata
        data = {**(self.data or {}), **(self.binary_data or {})}
        return meant_as_pause(meta.annotations, meta.labels, data)


class Brakes:
    """Reads the objects whose annotations pause, fresh each time."""

    def __init__(self, connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        self._connection = connection
        self._wait = wait
        self._backoff = backoff

    def everything(self, place: Place) -> Brake:
        """The ConfigMap that pauses everything.

        Raises KubeError: NotFoundError if it is missing, ForbiddenError if it may not be read.
        """
        return self._read(CONFIG_MAPS, place.namespace, place.name)

    def namespace(self, name: str) -> ObjectMeta | None:
        """Metadata of a namespace; None if it is gone. Raises KubeError."""
        try:
            return self._read(RESOURCES["Namespace"], "", name).metadata
        except NotFoundError as e:
            e.unless_none(Target("get", RESOURCES["Namespace"], "", name))
            return None

    def _read(self, resource: Resource, namespace: str, name: str, tried: int = 1) -> Brake:
        target = Target("get", resource, namespace, name)

        def ask() -> bytes:
            path = resource.path(namespace, name)
            return self._connection.request("GET", path, target, read_timeout=_TIMEOUT).body

        try:
            body = retry(ask, wait=self._wait, backoff=self._backoff)
            found = self._connection.decoded(body, Brake, target)
        except ForbiddenError as e:
            if tried >= _REFUSALS or self._wait(self._backoff.delay(tried, e.retry_after)):
                raise
            return self._read(resource, namespace, name, tried + 1)
        about = found.metadata
        if (about.namespace, about.name) != (namespace, name):
            say = f"{target}: the answer is about {about.namespace}/{about.name}"
            raise ResponseError(say, PROXY, target=target, code=200)
        return found


class BrakeSet(Struct, frozen=True):
    """What became of a brake: the value that it had `before`, None for none, and its `version` now.
    `stays`: whether that pause is no shorter than the one that was asked for."""

    before: str | None
    version: str
    stays: bool = False


_ALSO = " / also: "
"""Between the pauses that one value of a brake names. Apart from the word before it, which may be a time."""


def _without_time(said: str) -> str:
    """The reason of a pause."""
    return " ".join(word for word in said.split() if pauses_until(word) == inf)


def set_brake(
    connection: Connection, place: Place, value: str | None, *, key: str = PAUSE, create: bool = True
) -> BrakeSet:
    """Pauses everything with this value of the annotation, or ends the pause with None. `key`: another one,
    that takes a domain out. Of it and a pause that somebody else set the longer one counts, and the reason
    names both, as who ends one ends both.

    Creates the ConfigMap if it is missing, unless `create` forbids it. Raises KubeError.
    """

    def change(annotations: dict[str, str]) -> str | None:
        before = annotations.pop(key, None)
        if value is not None:
            annotations[key] = value if before is None else _both(before, value)
        return before

    def _end(said: str) -> float:
        return pause_ends({key: said})[key]

    def _both(before: str, value: str) -> str:
        longest, *others = sorted((*before.split(_ALSO), value), key=_end, reverse=True)
        now, kept = connection.time() or time.time(), [longest]
        for other in others:
            # Who pauses again and again, for the same reason, says it once.
            reasons = (f" {_without_time(k)} " for k in kept)
            said = other == ANY_PAUSE or any(f" {_without_time(other)} " in r for r in reasons)
            if _end(other) > now and not said:
                kept.append(other)
        return _ALSO.join(kept)

    done = edit_annotations(connection, place, change, create={} if create else None)
    stays = None not in (done.before, value) and _end(str(done.before)) >= _end(str(value))
    return replace(done, stays=stays)


def claim_brake(connection: Connection, place: Place, by: str, *, leads: bool = True) -> None:
    """Makes sure that there is one. `by`: the run that needs it, and takes it away again; "" = it stays.

    One that another run made for itself is this one's from now on if this one `leads`; any other is left as
    it is. Raises KubeError.
    """

    def change(annotations: dict[str, str]) -> None:
        if leads and annotations.pop(FOR_RUN, None) is not None and by:
            annotations[FOR_RUN] = by

    edit_annotations(connection, place, change, create={FOR_RUN: by} if by else {})


def drop_brake(connection: Connection, place: Place, by: str) -> None:
    """Removes the brake that `claim_brake` made for this run, or for who wanted to stay, unless somebody has
    paused with it. Raises KubeError."""
    try:
        there = ask_config_map(connection, "get", place)
    except NotFoundError:
        return
    brake = msgspec.convert(there, Brake)
    if brake.metadata.annotations != ({FOR_RUN: by} if by else {}) or brake.slips:
        return
    conditions = {"resourceVersion": brake.metadata.resource_version}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
    ask_config_map(connection, "delete", place, body)


def by_run(annotations: Mapping[str, str]) -> str:
    """The run for which a brake with these annotations was made; "" if somebody has set it since, or made it
    an installation's."""
    return annotations[FOR_RUN] if annotations.keys() == {FOR_RUN} else ""


def slips(connection: Connection, place: Place) -> dict[str, str]:
    """What on the brake there was meant to pause, in words → the command that ends it. Raises KubeError."""
    try:
        there = msgspec.convert(ask_config_map(connection, "get", place), Brake)
    except NotFoundError:
        return {}
    return {said: command.format(place.kubectl) for said, command in there.slips.items()}


def brake_version(connection: Connection, place: Place, timeout: float) -> str:
    """The ConfigMap's resourceVersion. Raises KubeError."""
    return _version(ask_config_map(connection, "get", place, timeout=timeout))


def server_time(connection: Connection) -> float | None:
    """What the API server's clock shows, in epoch seconds; None if it does not say."""
    try:
        answer = connection.request(
            "GET", "/version", Target("get", say="get /version"), read_timeout=_TIMEOUT
        )
        return parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
    except (KubeError, ValueError) as e:
        log.info("the API server does not tell the time: %s", e)
        return None


def edit_annotations(
    connection: Connection,
    place: Place,
    change: Callable[[dict[str, str]], str | None],
    *,
    create: Mapping[str, str] | None,
) -> BrakeSet:
    """Changes annotations, and no version but the one that was read. `create`: those of a new one, before the
    change; None: a missing one is an error."""
    return begun_anew(lambda: _edit_once(connection, place, change, create), ConflictError, _TRIES)


def _edit_once(
    connection: Connection,
    place: Place,
    change: Callable[[dict[str, str]], str | None],
    create: Mapping[str, str] | None,
) -> BrakeSet:
    try:
        whole = ask_config_map(connection, "get", place)
    except NotFoundError:
        if create is None:
            raise
        annotations = dict(create)
        change(annotations)
        metadata: dict[str, Any] = {"name": place.name, "namespace": place.namespace}
        metadata |= {"labels": labels_of("brake"), "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return BrakeSet(None, _version(ask_config_map(connection, "create", place, body)))
    former = whole["metadata"].get("annotations") or {}
    annotations = dict(former)
    before = change(annotations)
    if annotations == former:
        return BrakeSet(before, _version(whole))
    body = {**whole, "metadata": {**whole["metadata"], "annotations": annotations}}
    return BrakeSet(before, _version(ask_config_map(connection, "update", place, body)))


def ask_config_map(
    connection: Connection, verb: str, place: Place, body: Any = None, timeout: float = _TIMEOUT
) -> dict[str, Any]:
    """One request about one ConfigMap, or a namespace; the answer whole. Raises KubeError."""
    resource = CONFIG_MAPS if place.namespace else RESOURCES["Namespace"]
    target = Target(verb, resource, place.namespace, place.name)
    path = resource.path(place.namespace, "" if verb == "create" else place.name)
    answer = connection.request(_METHODS[verb], path, target, body=body, read_timeout=timeout)
    if verb != "delete":
        connection.decoded(answer.body, Brake, target)
    return connection.decoded(answer.body, dict[str, Any], target)


def _version(whole: dict[str, Any]) -> str:
    return str(whole["metadata"].get("resourceVersion", ""))
