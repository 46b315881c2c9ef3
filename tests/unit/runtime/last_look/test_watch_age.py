"""How old the watch may be, and what is read to find out that it hangs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.kube.lists import HeadMeta
from rebalancer.kube.reading import Objects
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.runtime.cycle.gates import Away
from rebalancer.runtime.last_look.cluster_now import Compared, SpotCheck, WatchAge
from rebalancer.runtime.last_look.look import LastLook, Looking
from tests.unit.runtime.cycle.made import move

NODE, POD = HeadMeta("a-0", "", "7"), HeadMeta("web", "shop", "8")


class Watch(WatchCache):
    """Knows kinds as of `known`, and has brought these objects."""

    def __init__(self, *brought: tuple[str, str, str, str], known: float = 0.0) -> None:
        self.now, self.known, self.brought = 100.0, known, set(brought)
        self.followed: set[str] = set()

    def monotonic(self) -> float:
        return self.now

    def follow_closely(self, kinds: Iterable[str], seconds: float) -> None:
        assert seconds >= 30
        self.followed |= set(kinds)

    def wait_current(
        self,
        kinds: Collection[str],
        as_of: float,
        patience: float,  # noqa: ARG002
        stopping: Callable[[], bool],  # noqa: ARG002
    ) -> str:
        assert set(kinds) <= self.followed
        return "" if self.known >= as_of else f"{', '.join(kinds)}: {self.now - self.known:.0f} s"

    def has_come_to(self, kind: str, namespace: str, name: str, version: str) -> bool:
        return (kind, namespace, name, version) in self.brought

    def version_of(self, kind: str, namespace: str, name: str) -> str:
        return next((b[3] for b in self.brought if b[:3] == (kind, namespace, name)), "")

    def wait_for(
        self,
        condition: Callable[[], bool],
        patience: float,  # noqa: ARG002
        stopping: Callable[[], bool],  # noqa: ARG002
    ) -> bool:
        return condition()


class Reads(Objects):
    def __init__(self) -> None: ...

    def newest(self, kind: str, fields: str, namespace: str = "") -> HeadMeta | None:  # noqa: ARG002
        return {"metadata.name=a-0": NODE, "spec.nodeName=a-0": POD}[fields] if kind else None

    def heads(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[HeadMeta]:
        assert (kind, namespace, labels, fields) == ("Pod", "shop", "app=web", "")
        return [POD]


# Seconds since the cycle began and since the watch was confirmed, whether that is enough.
AGES = {
    "confirmed after the cycle began": (3.0, 2.0, True),
    "confirmed before it began, however fresh": (1.0, 2.0, False),
    "five seconds old later in the cycle": (60.0, 5.0, True),
    "older than that": (60.0, 5.1, False),
}


@pytest.mark.parametrize("case", AGES)
def test_a_watch_is_current_that_was_confirmed_in_this_cycle_and_within_five_seconds(case: str) -> None:
    since, old, enough = AGES[case]
    watch = Watch()
    age = WatchAge(watch, lambda: False)
    watch.now += since
    watch.known = watch.now - old
    reason = age.why_not()
    assert (reason is None) is enough
    if reason is not None:
        assert reason.code is ReasonCode.NOT_CURRENT
        assert "Node, Pod" in reason.message


@pytest.mark.parametrize(
    ("server", "pods", "read"),
    [
        ("1.30.4", 5000, True),
        ("1.30.4", 5001, False),
        ("1.31.0", 5001, True),
        ("", 5001, False),
        ("", 9, True),
    ],
)
def test_the_pods_of_a_node_are_read_where_that_costs_little(server: str, pods: int, read: bool) -> None:
    check = SpotCheck(Reads(), Watch(), lambda: False, server=server, pods=pods)
    assert check.node("a-0") == NODE
    assert check.pod_on("a-0") == (POD if read else None)


@pytest.mark.parametrize(
    ("brought", "believed"),
    [
        ([("Node", "", "a-0", "7"), ("Pod", "shop", "web", "8")], True),
        ([("Node", "", "a-0", "7")], False),
        ([("Pod", "shop", "web", "8")], False),
    ],
)
def test_a_watch_is_believed_that_has_brought_all_that_was_read(
    brought: list[tuple[str, str, str, str]], believed: bool
) -> None:
    check = SpotCheck(Reads(), Watch(*brought), lambda: False, server="1.36.2", pods=9)
    counted = check.counted("shop", {"app=web": {"web"}})
    for pods, also in (([POD], Compared()), ([], counted)):
        assert bool(check.behind([NODE], pods, [also])) is not believed
    reason = check.why_not([NODE], [], [counted])
    assert (reason is None) is believed
    assert reason is None or reason.code is ReasonCode.NOT_CURRENT


@pytest.mark.parametrize(
    ("why_not", "left", "code"),
    [
        (None, ("b-0", "b-1"), None),
        (None, ("b-1",), ReasonCode.CHANGED_SINCE_PLAN),
        (Reason(ReasonCode.NOT_CURRENT, "behind"), ("b-0",), ReasonCode.NOT_CURRENT),
    ],
    ids=["the node takes it still", "it does not any more", "the watch stays behind"],
)
def test_what_the_watch_brings_only_now_may_have_closed_the_node_that_was_expected(
    why_not: Reason | None, left: tuple[str, ...], code: ReasonCode | None
) -> None:
    check: Any = SimpleNamespace(behind=lambda *_: True, why_not=lambda *_: why_not)
    room: Any = SimpleNamespace(
        why_not=lambda *_: None,
        destinations=lambda _: left,
        owner_of=lambda *_: None,
        check_known=lambda: None,
    )
    rest: Any = SimpleNamespace()
    at = Looking(LastLook(rest, rest, rest, check, room, lambda: 0.0), move(), Away(), tuple)
    nobody, node = SimpleNamespace(result=lambda: None), SimpleNamespace(result=lambda: NODE)
    at.__dict__["_expected"] = "b-0"
    rest = dict.fromkeys(("pod", "left", "pod_there", "counted", "namespace", "owner", "parent"), nobody)
    at.__dict__["read"] = SimpleNamespace(node=node, whole=(), **rest)
    reason = at.spot_check()
    assert (reason.code if reason is not None else None) is code


def test_a_watch_is_not_believed_that_has_a_pod_which_is_gone() -> None:
    watch = Watch(("Pod", "shop", "web", "8"), ("Pod", "shop", "old", "7"))
    check = SpotCheck(Reads(), watch, lambda: False, server="1.36.2", pods=9)
    for names, gone in (({"web"}, False), ({"web", "old"}, True), ({"web", "gone here too"}, False)):
        assert bool(check.behind([], [], [check.counted("shop", {"app=web": names})])) is gone
