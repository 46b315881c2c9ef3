"""One kind that is watched namespace by namespace, as if it were watched as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rebalancer.kube.resources import Resource
from rebalancer.kube.watch.store import Change, Feed, KindStatus, KindStore
from rebalancer.model.kinds import Object
from rebalancer.model.snapshot import Identity


class JoinedStore:
    """Answers as a `KindStore` of the whole kind would; each part has a reflector of its own.

    It is as good as its worst part: known where all are, as old as the oldest. `parts` in the order of their
    namespaces, so that their objects are in the order of identities.
    """

    def __init__(self, resource: Resource, parts: Sequence[KindStore]) -> None:
        self.resource = resource
        self.parts = tuple(parts)
        self._of = {part.resource.within: part for part in parts}

    def follow(self) -> Feed:
        """What changes from now on, for one more reader."""
        return JoinedFeed([(part, part.follow()) for part in self.parts])

    def forget(self, feed: Feed) -> None:
        """The reader is gone."""
        assert isinstance(feed, JoinedFeed)
        for part, own in feed.own:
            part.forget(own)

    def sorted(self) -> tuple[int, Mapping[Identity, Object] | None]:
        """The objects by identity in order, with a number that differs whenever they do; None: not known."""
        found = [part.sorted() for part in self.parts]
        joined: dict[Identity, Object] = {}
        for _, objects in found:
            joined |= objects or {}
        known = all(objects is not None for _, objects in found)
        return sum(generation for generation, _ in found), joined if known else None

    @property
    def synced(self) -> bool:
        """Whether the objects are known."""
        return all(part.synced for part in self.parts)

    @property
    def generation(self) -> int:
        """A number that differs whenever the objects do: those of the parts only grow."""
        return sum(part.generation for part in self.parts)

    def find(self, key: Identity) -> Object | None:
        """One object."""
        part = self._of.get(key[0])
        return part.find(key) if part is not None else None

    def has_come_to(self, key: Identity, version: str) -> bool:
        """Whether the watch has brought this version of an object, or a later one."""
        part = self._of.get(key[0])
        return part is not None and part.has_come_to(key, version)

    def by_identity(self) -> dict[Identity, Any]:
        """All objects, a copy, in any order."""
        return dict(item for part in self.parts for item in part.by_identity().items())

    def every(self) -> list[Object]:
        """All objects in any order."""
        return [o for part in self.parts for o in part.every()]

    def warnings(self) -> tuple[str, ...]:
        """What a snapshot has to say about this kind."""
        return tuple(dict.fromkeys(text for part in self.parts for text in part.warnings()))

    def status(self) -> KindStatus:
        """How it is doing."""
        every = [part.status() for part in self.parts]
        return replace(
            every[0],
            synced=all(s.synced for s in every),
            denied=any(s.denied for s in every),
            age=_last([s.age for s in every]),
            as_of=_first([s.as_of for s in every]),
            objects=sum(s.objects for s in every),
            malformed=sum(s.malformed for s in every),
            lists=sum(s.lists for s in every),
            watches=sum(s.watches for s in every),
            failures=max(s.failures for s in every),
            error=next((s.error for s in every if s.error is not None), None),
        )


class JoinedFeed(Feed):
    """The feeds of all parts; changes of different namespaces have no order."""

    def __init__(self, own: Sequence[tuple[KindStore, Feed]]) -> None:
        self.own = tuple(own)

    def take(self) -> tuple[list[Change], bool]:
        """The changes in their order, and whether earlier ones were lost."""
        taken = [feed.take() for _, feed in self.own]
        return [c for changes, _ in taken for c in changes], any(lost for _, lost in taken)


def _known(times: list[float | None]) -> Iterator[float]:
    yield from (t for t in times if t is not None)


def _last(times: list[float | None]) -> float | None:
    return None if None in times else max(_known(times))


def _first(times: list[float | None]) -> float | None:
    return None if None in times else min(_known(times))
