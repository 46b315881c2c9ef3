"""One state of the cluster, read over HTTP: kind after kind, decoded while the next part comes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from rebalancer.bulk_work import bulk_work
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import DEFAULT_BACKOFF, Backoff, Wait, retry
from rebalancer.kube.client.status import quoted
from rebalancer.kube.errors import ResponseError, Target
from rebalancer.kube.read.head import first_of, malformed
from rebalancer.kube.read.transfer import Begun, Items, ReadOptions, Transfer
from rebalancer.kube.resources import RESOURCES, Resource, kinds_within
from rebalancer.model.decode import MALFORMED, Decoder
from rebalancer.model.kinds import Object
from rebalancer.model.snapshot import KindRead, Snapshot, build_snapshot, unclear

log = logging.getLogger(__name__)
_STREAMS = (1, 33)


_DEFAULTS = ReadOptions()


class Keep(Protocol):
    """Takes the objects as bytes, kind after kind."""

    def begin(self, resource: Resource) -> None:
        """The list of a kind begins; what was added for it before does not count."""
        ...

    def add(self, resource: Resource, items: Sequence[Raw]) -> None:
        """Some of its objects."""
        ...


class _Kind:
    """What has come of one kind."""

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.broken: list[str] = []

    def decode(self, decoder: Decoder, kind: str, items: Iterable[Raw]) -> None:
        for raw in items:
            try:
                self.objects.append(decoder.decode(kind, raw))
            except MALFORMED as e:
                self.broken.append(malformed(kind, raw, e))


def read_snapshot(
    connection: Connection,
    *,
    now: Callable[[], float],
    wait: Wait,
    options: ReadOptions = _DEFAULTS,
    keep: Keep | None = None,
) -> Snapshot:
    """The cluster now.

    Every kind is consistent in itself; different kinds are some seconds apart, which is why each eviction is
    looked at again before it is sent. A kind that is forbidden or not served is left out of `kinds` and
    warned about, nodes and pods excepted. Of an add-on that is not served there are no objects.
    `now` gives the epoch in seconds, `wait` sleeps between tries. `keep` is given the objects as they came.

    Raises KubeError: the first one that any list ended with.
    """
    version = server_version(connection, wait=wait, backoff=options.backoff)
    # Of everything that may be old at the end, ages are the harmless part: the clock is read first.
    began = now()
    # One decoder, so that equal pod templates are one object, whatever list had them.
    decoder = Decoder()
    found: dict[str, _Kind] = {}
    reads: list[KindRead] = []
    warnings: list[str] = []
    with bulk_work():
        for part in transfer(connection, options, version, wait=wait):
            if isinstance(part, Begun):
                found[part.resource.kind] = _Kind()
                if keep is not None:
                    keep.begin(part.resource)
            elif isinstance(part, Items):
                if keep is not None:
                    keep.add(part.resource, part.items)
                found[part.resource.kind].decode(decoder, part.resource.kind, part.items)
            else:
                kind = found.setdefault(part.read.kind, _Kind())
                reads.append(replace(part.read, objects=len(kind.objects), unreadable=len(kind.broken)))
                warnings += (part.warning,) if part.warning else first_of(kind.broken)
        snapshot = build_snapshot(
            (o for kind in found.values() for o in kind.objects),
            now=began,
            source=f"cluster {connection.who}",
            server_version=version,
            kinds=(r.kind for r in reads if r.known),
            refused=unclear(reads).union(r.kind for r in reads if not r.known),
            read_namespaces=options.namespaces,
            warnings=warnings,
            reads=reads,
        )
    log.info("read %d nodes and %d pods from %s", len(snapshot.nodes), len(snapshot.pods), connection.who)
    return snapshot


def transfer(connection: Connection, options: ReadOptions, version: str, *, wait: Wait) -> Transfer:
    """The lists of all kinds that are wanted; out of the server's cache only where it streams them."""
    if options.may_be_old and not streams_lists(version):
        options = replace(options, may_be_old=False)
    kinds = options.kinds & kinds_within(options.namespaces)
    wanted = (r for kind, r in RESOURCES.items() if kind in kinds)
    return Transfer(connection, wanted, options, wait=wait)


def streams_lists(version: str) -> bool:
    """Whether a server of this version ("1.36") sends lists object by object (KEP-5116: from 1.33 on)."""
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) >= _STREAMS if major.isdigit() and minor.isdigit() else False


def server_version(connection: Connection, *, wait: Wait, backoff: Backoff = DEFAULT_BACKOFF) -> str:
    """The server's version as "1.36"; its git version where it does not say major and minor."""
    target = Target("get", say="get /version")

    def ask() -> _Version:
        answer = connection.request("GET", "/version", target)
        try:
            return msgspec.json.decode(answer.body, type=_Version)
        except msgspec.DecodeError as e:
            raise ResponseError(
                f"{target}: {e}: {quoted(answer.body)}",
                f"is {connection.who} really an API server?",
                target=target,
                code=answer.code,
            ) from e

    version = retry(ask, wait=wait, backoff=backoff)
    if version.major and version.minor:
        # Some providers write "28+".
        return f"{version.major}.{version.minor.rstrip('+')}"
    return version.git_version.removeprefix("v")


class _Version(Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""
