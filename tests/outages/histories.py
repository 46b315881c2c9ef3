"""The histories: what happens to a cluster, and when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.outages.world import World
from tests.support.scheduler.plain import Json

MINUTE = 60.0
History = Callable[[World], None]


def gone_and_back(w: World, at: float = MINUTE, zone: int = -1, away: float = 10 * MINUTE) -> None:
    """A zone's nodes are deleted, and the same ones come back empty."""
    gone: list[Json] = []
    w.happens += [
        (at, lambda: gone.extend(w.remove(*w.nodes_of(w.zones[zone])))),
        (at + away, lambda: w.buy(gone)),
    ]


def thrice(w: World) -> None:
    """The same zone, three times within an hour."""
    for i in range(3):
        gone_and_back(w, at=MINUTE + i * 20 * MINUTE, away=5 * MINUTE)


def half_a_zone(w: World) -> None:
    """Half of a zone's nodes fall silent and answer again."""
    names = w.nodes_of(w.zones[0])
    half = names[: max(1, len(names) // 2)]
    w.happens += [(MINUTE, lambda: w.silent(*half)), (11 * MINUTE, lambda: w.answer(*half))]


def silent_zone(w: World) -> None:
    """A zone falls silent; its pods are deleted; it answers again."""
    names = w.nodes_of(w.zones[-1])
    w.happens += [(MINUTE, lambda: w.silent(*names)), (16 * MINUTE, lambda: w.answer(*names))]


def shifted(w: World) -> None:
    """A zone is cordoned on purpose, its pods run on, and it is opened after half an hour."""
    names = w.nodes_of(w.zones[1])
    w.happens += [
        (MINUTE, lambda: w.cordon(*names)),
        (31 * MINUTE, lambda: w.cordon(*names, on=False)),
    ]


def shifted_and_drained(w: World) -> None:
    """The same, and its pods go."""
    names = w.nodes_of(w.zones[1])
    w.happens += [
        (MINUTE, lambda: w.cordon(*names)),
        (2 * MINUTE, lambda: w.drain(*names)),
        (31 * MINUTE, lambda: w.cordon(*names, on=False)),
    ]


def _replaced(w: World, name: str, *, surge: bool) -> None:
    old = [w.store.get("Node", name)]
    if surge:
        w.buy(old, "-new")
    w.drain(name)
    w.remove(name)
    if not surge:
        w.buy(old)


def rolled(w: World, *, surge: bool) -> None:
    """All nodes are replaced, one every two minutes."""
    names = [n for z in w.zones for n in w.nodes_of(z)]
    for i, name in enumerate(names):
        w.happens.append((MINUTE + i * 2 * MINUTE, partial(_replaced, w, name, surge=surge)))


def spot_reclaim(w: World) -> None:
    """A third of all nodes goes at once; others are bought after three minutes."""
    every = [n for z in w.zones for n in w.nodes_of(z)]
    names, gone = w.rng.sample(every, max(1, len(every) // 3)), list[Json]()
    w.happens += [(MINUTE, lambda: gone.extend(w.remove(*names))), (4 * MINUTE, lambda: w.buy(gone, "-spot"))]


def spot_with_notice(w: World) -> None:
    """As spot nodes go where somebody heeds the notice: cordoned and drained, and gone two minutes later."""
    every = [n for z in w.zones for n in w.nodes_of(z)]
    names, gone = w.rng.sample(every, max(1, len(every) // 3)), list[Json]()
    w.happens += [
        (MINUTE, lambda: w.cordon(*names)),
        (MINUTE, lambda: w.drain(*names)),
        (3 * MINUTE, lambda: gone.extend(w.remove(*names))),
        (4 * MINUTE, lambda: w.buy(gone, "-spot")),
    ]


def repaired(w: World) -> None:
    """As a provider repairs nodes: one in each of two zones is silent, and replaced after ten minutes."""
    names, was = [w.nodes_of(z)[0] for z in w.zones[:2]], list[Json]()
    w.happens += [
        (MINUTE, lambda: was.extend(w.store.get("Node", n) for n in names)),
        (MINUTE, lambda: w.silent(*names)),
        (11 * MINUTE, lambda: w.remove(*names)),
        (12 * MINUTE, lambda: w.buy(was, "-new")),
    ]


def control_plane_down(w: World) -> None:
    """A zone is back, and in mid-repair the API server refuses everything for five minutes."""
    gone_and_back(w)
    w.refuses_after = 2


def registry_down(w: World) -> None:
    """A zone is back, and for a quarter of an hour no image can be had there."""
    zone = w.zones[-1]
    gone_and_back(w)
    w.happens += [
        (10 * MINUTE, lambda: w.registry(zone, up=False)),
        (26 * MINUTE, lambda: w.registry(zone, up=True)),
    ]
    w.happens.sort(key=lambda h: h[0])


def bought_late(w: World) -> None:
    """A zone is gone, and an autoscaler buys it other nodes after a quarter of an hour."""
    gone: list[Json] = []
    w.happens += [
        (MINUTE, lambda: gone.extend(w.remove(*w.nodes_of(w.zones[0])))),
        (16 * MINUTE, lambda: w.buy(gone, "-late")),
    ]


def one_after_the_other(w: World) -> None:
    """A zone is gone and back, then another."""
    gone_and_back(w)
    gone_and_back(w, at=25 * MINUTE, zone=0)


HISTORIES: dict[str, History] = {
    "a zone is gone, and back": gone_and_back,
    "the same thrice within an hour": thrice,
    "half a zone is silent": half_a_zone,
    "a zone is silent": silent_zone,
    "a zone is shifted away": shifted,
    "shifted away and drained": shifted_and_drained,
    "all nodes replaced, by surge": partial(rolled, surge=True),
    "all nodes replaced, in place": partial(rolled, surge=False),
    "a third of the nodes is reclaimed": spot_reclaim,
    "a third is reclaimed, with notice": spot_with_notice,
    "silent nodes are replaced": repaired,
    "control plane down in mid-repair": control_plane_down,
    "no images in the zone that is back": registry_down,
    "an autoscaler buys late": bought_late,
    "two zones, one after the other": one_after_the_other,
}
