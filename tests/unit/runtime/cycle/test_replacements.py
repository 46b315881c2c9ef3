"""Which new pod came for which victim."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.node import Node, ObjectMeta
from rebalancer.model.pod import Phase, Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload
from rebalancer.outcome import Eviction, Fate, Outcome, Result
from rebalancer.planner.plan import Move
from rebalancer.runtime.cycle.replacements import MIGRATION, ReplacementWatch, assign, went
from tests.support.build import nodes, pod, snapshot, stateful_set, workload
from tests.support.servers.api import FakeTime


def moves_of(s: Snapshot, **predicted: str) -> list[Move]:
    """A move of each named pod (web_00000=node) to that node, with all nodes of its zone as destinations."""
    moves = []
    for name, node in predicted.items():
        pod = next(p for p in s.pods if p.name == name.replace("_", "-"))
        owner = s.owner_of(pod.namespace, pod.owner)
        assert owner is not None
        moves.append(
            Move(
                pod=pod,
                owner=owner,
                replacement=pod.template,
                destinations=tuple(n.name for n in s.nodes if n.name[0] == node[0]),
                predicted=node,
                certain=True,
                wave=1,
                fixes=(),
                reason="",
            )
        )
    return moves


def new(s: Snapshot, name: str, node: str, *, ready: bool = True) -> Pod:
    return Pod(
        name=name,
        namespace="default",
        uid=f"new {name}",
        template=s.pods[0].template,
        node_name=node,
        ready=ready,
    )


WEB = snapshot(*nodes(a=1, b=2, c=1), workload("web").placed({"a-0": 4}))


def landed(moves: list[Move], *pods: Pod) -> dict[str, str]:
    return {m.pod.name: pod.node_name for m in moves if (pod := assign(moves, pods).get(m.pod.uid))}


def test_each_goes_to_the_move_that_predicted_its_node() -> None:
    moves = moves_of(WEB, web_00000="b-0", web_00001="c-0")
    assert landed(moves, new(WEB, "x", "c-0"), new(WEB, "y", "b-0")) == {
        "web-00000": "b-0",
        "web-00001": "c-0",
    }


def test_another_destination_is_better_than_none() -> None:
    moves = moves_of(WEB, web_00000="c-0", web_00001="b-0")
    assert landed(moves, new(WEB, "x", "b-1"), new(WEB, "y", "a-0")) == {
        "web-00000": "a-0",
        "web-00001": "b-1",
    }


def test_a_ready_one_is_taken_before_one_that_is_not() -> None:
    moves = moves_of(WEB, web_00000="b-0")
    pods = (new(WEB, "x", "b-0", ready=False), new(WEB, "y", "b-0"))
    assert assign(moves, pods)[moves[0].pod.uid].name == "y"


def test_a_missing_one_is_missing() -> None:
    moves = moves_of(WEB, web_00000="b-0", web_00001="c-0")
    assert landed(moves, new(WEB, "x", "c-0")) == {"web-00001": "c-0"}


def test_pods_of_a_stateful_set_come_back_under_their_names() -> None:
    s = snapshot(*nodes(a=1, b=1, c=1), stateful_set("db").placed({"a-0": 3}))
    first, second = s.pods[0].name, s.pods[1].name
    moves = moves_of(s, **{first.replace("-", "_"): "b-0", second.replace("-", "_"): "c-0"})
    assert landed(moves, new(s, first, "c-0"), new(s, second, "b-0")) == {first: "c-0", second: "b-0"}


class Cluster(WatchCache):
    """Pods as they are watched."""

    def __init__(self, *pods: Pod) -> None:
        self.there: dict[tuple[str, ...], Pod] = {(p.namespace, p.name): p for p in pods}
        self.owners = dict(WEB.workloads_by_name)

    def monotonic(self) -> float:
        return 0.0

    def pods(self) -> dict[tuple[str, ...], Pod]:
        return dict(self.there)

    def nodes(self) -> tuple[Node, ...]:
        return ()

    def workload(self, kind: str, namespace: str, name: str) -> Workload | None:
        return self.owners.get((kind, namespace, name))

    def wait_current(self, *_: object) -> str:
        return ""


@pytest.mark.parametrize(
    ("after", "phase", "status"),
    [
        (400.0, "Running", None),
        (400.0, "Succeeded", Fate.DONE),
        (MIGRATION, "Running", Fate.FAILED),
    ],
    ids=["it is still moving", "it has moved, and its old pod stays", "it takes too long"],
)
def test_a_virtual_machine_is_in_flight_until_it_has_moved(
    after: float, phase: Phase, status: Fate | None
) -> None:
    vm = pod("vm").on("a-0").owned_by("VirtualMachineInstance", "vm", "kubevirt.io/v1")
    world = snapshot(*nodes(a=1, b=1), vm)
    source, time = world.pods[0], FakeTime()
    owner = Workload(kind="VirtualMachineInstance", metadata=ObjectMeta(name="vm", namespace="default"))
    move = Move(pod=source, owner=owner, replacement=source.template, destinations=("b-0",), predicted="b-0",
                certain=False, wave=1, fixes=(), reason="")  # fmt: skip
    cluster = Cluster(source)
    replacements = ReplacementWatch(cluster, world, time)
    replacements.before(move, ())
    evicted = Outcome(
        move=move,
        status=Fate.INTENDED,
        message="",
        eviction=Eviction(result=Result.MIGRATING, message=""),
        at=time.monotonic(),
    )
    target = replace(new(world, "vm-2", "b-0", ready=phase == "Succeeded"), owner=source.owner)
    cluster.there = {("default", "vm"): replace(source, phase=phase), ("default", "vm-2"): target}
    time.wait(after)
    replacements.landed([evicted])  # a first look brings the watch up to date
    found = replacements.landed([evicted])
    assert [o.status for o in found] == ([status] if status else [])


def test_a_replacement_that_two_moves_have_in_common_was_never_placed_before_its_eviction() -> None:
    """Replacements of one owner are interchangeable: one that ran before the second eviction may be counted
    for it. Then nothing was waited for, and no time is negative."""
    first, second = moves_of(WEB, web_00000="b-0", web_00001="c-0")
    cluster, time = Cluster(*WEB.pods), FakeTime()
    replacements = ReplacementWatch(cluster, WEB, time)
    replacements.before(first, ())

    def evict(move: Move) -> Outcome:
        del cluster.there[("default", move.pod.name)]
        sent = Eviction(result=Result.EVICTED, message="")
        return Outcome(move=move, status=Fate.INTENDED, message="", eviction=sent, at=time.monotonic())

    def arrive(name: str, node: str, *, ready: bool = True) -> None:
        cluster.there["default", name] = replace(new(WEB, name, node, ready=ready), owner=first.pod.owner)

    flying = [evict(first)]
    arrive("x", "c-0", ready=False)
    assert replacements.landed(flying) == []
    time.wait(5)
    replacements.before(second, flying)
    flying.append(evict(second))
    arrive("x", "c-0")
    time.wait(1)
    (landed,) = replacements.landed(flying)
    assert (landed.move.pod.name, landed.node) == ("web-00001", "c-0")
    assert landed.scheduled == 0.0


@pytest.mark.parametrize("beside", [False, True], ids=["none is on its way", "another is on its way"])
def test_a_pod_that_was_there_before_the_eviction_replaces_nobody(beside: bool) -> None:
    """While a move waits to be tried again, somebody else deletes a sibling, whose next pod comes."""
    first, second = moves_of(WEB, web_00000="b-0", web_00001="c-0")
    cluster, time = Cluster(*WEB.pods), FakeTime()
    replacements = ReplacementWatch(cluster, WEB, time)
    flying: list[Outcome] = []

    def arrive(name: str, node: str) -> None:
        cluster.there["default", name] = replace(new(WEB, name, node), owner=first.pod.owner)

    def evict(move: Move) -> None:
        replacements.before(move, flying)
        del cluster.there["default", move.pod.name]
        sent, now = Eviction(result=Result.EVICTED, message=""), time.monotonic()
        flying.append(Outcome(move=move, status=Fate.INTENDED, message="", eviction=sent, at=now))

    replacements.before(second, flying)  # it is refused then
    if beside:
        evict(first)
        arrive("for-the-first", "b-0")
    del cluster.there["default", "web-00002"]
    arrive("for-the-sibling", "c-0")
    evict(second)
    assert [o.replacement for o in replacements.landed(flying)] == ["default/for-the-first"] * beside
    arrive("for-the-second", "c-0")
    flying = [o for o in flying if o.move is second]
    assert [o.replacement for o in replacements.landed(flying)] == ["default/for-the-second"]


def ended(web: Workload) -> Workload:
    return replace(web, metadata=replace(web.metadata, deletion_timestamp=1.0))


UNMADE: dict[str, tuple[Callable[[Workload], Workload | None], str]] = {
    "it is there": (lambda web: web, ""),
    "it is gone": (lambda _: None, "deleted"),
    "another of its name is there": (lambda w: replace(w, metadata=replace(w.metadata, uid="x")), "deleted"),
    "it is being deleted": (ended, "deleted"),
    "it wants fewer pods": (lambda web: replace(web, replicas=3), "scaled down"),
}


@pytest.mark.parametrize("case", UNMADE)
def test_a_replacement_that_its_owner_does_not_make_is_not_waited_for(case: str) -> None:
    made, says = UNMADE[case]
    (move,) = moves_of(WEB, web_00000="b-0")
    cluster, time = Cluster(*WEB.pods), FakeTime()
    replacements = ReplacementWatch(cluster, WEB, time)
    replacements.before(move, ())
    del cluster.there["default", move.pod.name]
    sent = Eviction(result=Result.EVICTED, message="")
    flying = [Outcome(move=move, status=Fate.INTENDED, message="", eviction=sent, at=time.monotonic())]
    assert replacements.landed(flying) == []
    ((key, web),) = WEB.workloads_by_name.items()
    now = made(web)
    cluster.owners = {key: now} if now is not None else {}
    found = replacements.landed(flying)
    assert [o.message for o in found] == [
        f"default/web-00000 evicted; ReplicaSet web was {says} meanwhile"
    ] * bool(says)
    assert all(o.status is Fate.DONE and o.expected is None for o in found)


WENT = [
    ("the only node", "c-0", "c-0", "as predicted"),
    ("another than the only node", "c-0", "b-0", "c-0 was predicted"),
    ("a tie, and the first", "b-0", "b-0", "one of the 2 nodes predicted"),
    ("a tie, and the other", "b-0", "b-1", "one of the 2 nodes predicted"),
    ("neither of a tie", "b-0", "c-0", "none of the 2 nodes predicted"),
]


@pytest.mark.parametrize(("predicted", "node", "says"), [w[1:] for w in WENT], ids=[w[0] for w in WENT])
def test_a_tie_between_nodes_is_no_wrong_prediction(predicted: str, node: str, says: str) -> None:
    assert went(moves_of(WEB, web_00000=predicted)[0], node) == says
