"""The ledger in a ConfigMap: read at the start of a cycle, written before evictions and after them.

Writes are optimistic: nobody else may have written since it was read. So the ledger is a fence as well: of
two rebalancers that both believe they lead, one is told so before it evicts.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rebalancer.kube.connection import DEFAULT_BACKOFF, Backoff, Connection, Wait, retry
from rebalancer.kube.errors import ConflictError, KubeError, NotFoundError, Target
from rebalancer.kube.resources import Resource
from rebalancer.policy.ledger import MOST_BYTES, Ledger, NewerLedgerError, decode, encode, within_limits

# Where brake, ledger and lease are, and the labels by which they are found whatever their names.

NAME, COMPONENT, MANAGED_BY = (f"app.kubernetes.io/{key}" for key in ("name", "component", "managed-by"))
OURS = "rebalancer"
_LONGEST_LABEL = 63
Component = Literal["brake", "ledger", "lease", "plan", "scale-in"]


class Place(Struct, frozen=True):
    """Namespace and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As messages name a ConfigMap."""
        return f"ConfigMap {self.namespace}/{self.name}"

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


def selector_of(component: Component) -> str:
    """Selects every such object of a cluster, also one that a chart created."""
    return f"{NAME}={OURS},{COMPONENT}={component}"


log = logging.getLogger(__name__)

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


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] = {}


class _ConfigMap(Struct, frozen=True, rename="camel"):
    metadata: _Meta
    data: dict[str, str] = {}


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
        text = found.data.get(KEY)
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

    def save(self, ledger: Ledger) -> Ledger:
        """Writes it, within the limits, and gives it back as written. Raises LedgerConflictError if somebody
        else wrote since `load` or the last `save`, another KubeError where it cannot be written."""
        self._serial += 1
        written = within_limits(replace(ledger, writer=self._writer, serial=self._serial))
        data = {KEY: encode(written).decode()}
        room = min(_MOST_QUARANTINED, 2 * MOST_BYTES - len(data[KEY]))
        if self._quarantined and room > 0:
            data[QUARANTINE] = self._quarantined[:room]
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
            there = decode(found.data.get(KEY, ""))
        except (KubeError, ValueError):
            return False
        if (there.writer, there.serial) != (written.writer, written.serial):
            return False
        self._version = found.metadata.resource_version
        return True

    def _target(self, verb: str) -> Target:
        name = "" if verb == "create" else self.place.name
        return Target(verb, CONFIG_MAPS, self.place.namespace, name)

    def _ask(self, method: str, verb: str, body: Any = None) -> _ConfigMap:
        target = self._target(verb)
        path = CONFIG_MAPS.path(target.namespace, target.name)
        answer = self._connection.request(method, path, target, body=body, read_timeout=_READ_TIMEOUT)
        try:
            return msgspec.json.decode(answer.body, type=_ConfigMap)
        except msgspec.DecodeError as e:
            raise LedgerError(f"{target}: the answer cannot be read: {e}", target=target) from e
