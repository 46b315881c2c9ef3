"""What comes next for a pod that was released, state by state."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer.model.reason import ReasonCode
from rebalancer.policy.release import (
    FOREIGN,
    LET_GO,
    MARK,
    Do,
    Held,
    Mark,
    Own,
    Seen,
    mark_of,
    step,
)
from tests.support.build import nodes, pod, replica_set, snapshot
from tests.support.build.base import uid_of
from tests.unit.policy.judged import code

OURS = Mark(label="pod-template-hash", value="abc", replica_set="rs", pod="old", at=1000, by="here")


def own(ready: int, starting: int = 0, **more: Any) -> tuple[Own, ...]:
    there = [Own(uid=f"r{i}", ready=True, available=True, **more) for i in range(ready)]
    return (*there, *(Own(uid=f"s{i}", made=True, **more) for i in range(starting)))


BASE = Seen(mark=OURS, known=True, replicas=3, wanted=3, seconds=30.0)
BOTH = replace(BASE, own=own(3), settled=True)
STARTING = replace(BASE, own=own(2, 1))
ALONE = replace(BASE, own=own(2))
NEW = (*own(2), Own(uid="new", ready=True, available=True, made=True))
CHEAP = (*own(2), Own(uid="new", ready=True, available=True, made=True, cost=-1, before=""))

CASES: list[tuple[str, Seen, Do]] = [
    ("it is gone", replace(BOTH, there=False), Do.OVER),
    ("it ends", replace(BOTH, ending=True), Do.WAIT),
    ("it has no mark", replace(BOTH, mark=None), Do.LEAVE),
    ("somebody else's ReplicaSet has adopted it", replace(BOTH, controller="other"), Do.LEAVE),
    ("somebody gave it another value", replace(BOTH, label="xyz"), Do.LEAVE),
    ("its label is there, with the mark", replace(BOTH, label="abc"), Do.GIVE_BACK),
    ("not let go for a moment", replace(ALONE, controller="rs", seconds=2), Do.WAIT),
    ("not let go in time", replace(ALONE, controller="rs", seconds=LET_GO), Do.GIVE_BACK),
    (
        "not let go, and a brake",
        replace(ALONE, controller="rs", seconds=2, held=Held.LATER),
        Do.GIVE_BACK,
    ),
    (
        "not let go in time, and replaced all the same: admission has refused its controller",
        replace(BASE, own=NEW, controller="rs"),
        Do.COST,
    ),
    ("let go, no replacement for a moment", replace(ALONE, seconds=2), Do.WAIT),
    ("no replacement in time", ALONE, Do.GIVE_BACK),
    ("the replacement starts", STARTING, Do.WAIT),
    ("it takes too long", replace(STARTING, late=True), Do.GIVE_BACK),
    ("it cannot be scheduled", replace(STARTING, failed="it is Pending"), Do.GIVE_BACK),
    ("a brake while it starts", replace(STARTING, held=Held.LATER), Do.GIVE_BACK),
    ("a stop while it starts", replace(STARTING, stopping=True), Do.GIVE_BACK),
    ("both are there, just now", replace(BOTH, settled=False), Do.WAIT),
    ("both are there", BOTH, Do.EVICT),
    ("nobody owns its ReplicaSet, with which it is to go", replace(STARTING, alone=True), Do.REFER),
    ("the same, and a brake", replace(STARTING, alone=True, held=Held.LATER), Do.REFER),
    ("the reference was refused", replace(STARTING, alone=True, held=Held.NEVER), Do.GIVE_BACK),
    ("the ledger does not know it", replace(STARTING, alone=True, known=False), Do.GIVE_BACK),
    ("both are there, and a stop", replace(BOTH, stopping=True), Do.EVICT),
    ("both are there, and a brake", replace(BOTH, held=Held.LATER), Do.HOLD),
    ("the same, unknown to the ledger", replace(BOTH, held=Held.LATER, known=False), Do.HOLD),
    ("Ready, and not Available", replace(BASE, own=(*own(2), Own(uid="n", ready=True))), Do.WAIT),
    ("scaled to fewer, enough are there", replace(BOTH, replicas=2, wanted=2, moved_on=True), Do.EVICT),
    ("scaled to more, not all there", replace(STARTING, replicas=5, wanted=5, moved_on=True), Do.GIVE_BACK),
    (
        "rolled out: its set wants none, others are not there yet",
        replace(BASE, wanted=0, own=(Own(uid="n", mine=False, ready=True, available=True),), moved_on=True),
        Do.WAIT,
    ),
    (
        "rolled out, and the new ones are there",
        replace(BASE, wanted=0, own=own(3, mine=False), moved_on=True, settled=True),
        Do.GIVE_BACK,
    ),
    ("scaled to none", replace(BASE, wanted=0, replicas=0, moved_on=True, held=Held.LATER), Do.GIVE_BACK),
    ("the check says no, and the new one is not marked", replace(BASE, own=NEW, held=Held.NEVER), Do.COST),
    ("it is marked", replace(BASE, own=CHEAP, held=Held.NEVER), Do.GIVE_BACK),
    (
        "the spread needs it more than another one, which is not marked",
        replace(BASE, own=CHEAP, held=Held.NEVER, rather="r0"),
        Do.COST,
    ),
    ("it landed elsewhere", replace(BASE, own=NEW, failed="astray"), Do.COST),
    (
        "a Ready pod would go, and too few are Ready",
        replace(BASE, own=own(2), wanted=2, failed="astray"),
        Do.WAIT,
    ),
    (
        "the old one is not Ready: it is the one that goes",
        replace(BASE, own=NEW, failed="x", ready=False),
        Do.GIVE_BACK,
    ),
    (
        "the replacement is not Ready, nor is another pod: the set may take any of them",
        replace(BASE, own=(*own(1, 1), Own(uid="u")), failed="x"),
        Do.COST,
    ),
    (
        "the same, and the replacement is the cheapest",
        replace(BASE, own=(*own(1), Own(uid="s", made=True, cost=-1, before=""), Own(uid="u")), failed="x"),
        Do.GIVE_BACK,
    ),
    (
        "another pod is not Ready, and the replacement is: it is not made to go",
        replace(BASE, own=(*NEW[1:], Own(uid="u"), Own(uid="v")), failed="x"),
        Do.GIVE_BACK,
    ),
    ("a mark alone, both there", replace(BOTH, own=NEW, known=False), Do.GIVE_BACK),
    ("another installation's mark", replace(BOTH, known=False, ours=False), Do.LEAVE),
    (
        "another installation's mark, of long ago",
        replace(BOTH, own=CHEAP, known=False, ours=False, seconds=FOREIGN),
        Do.GIVE_BACK,
    ),
    ("a mark that names a set which does not select it", replace(BOTH, known=False, selects=False), Do.LEAVE),
    ("its ReplicaSet is gone, new ones start", replace(STARTING, wanted=None), Do.WAIT),
    ("its ReplicaSet is gone, new ones are there", replace(BOTH, wanted=None), Do.EVICT),
    ("the same by a mark alone", replace(BOTH, wanted=None, known=False), Do.LEAVE),
    ("its owner is gone", replace(BOTH, wanted=None, replicas=None), Do.LEAVE),
    ("it has ended", replace(STARTING, finished=True), Do.EVICT),
    (
        "it has ended, and nothing may be evicted now",
        replace(STARTING, finished=True, held=Held.LATER),
        Do.HOLD,
    ),
    ("it has ended, and may not go", replace(STARTING, finished=True, held=Held.NEVER), Do.GIVE_BACK),
    ("it has ended, by a mark alone", replace(STARTING, finished=True, known=False), Do.GIVE_BACK),
]


@pytest.mark.parametrize(("case", "seen", "do"), CASES, ids=[c[0] for c in CASES])
def test_what_comes_next(case: str, seen: Seen, do: Do) -> None:
    found = step(seen)
    assert (found.do, bool(found.why)) == (do, True), (case, found)


def test_the_replacement_gets_the_lowest_cost_and_the_undo_says_that_it_takes_a_ready_pod() -> None:
    users = (Own(uid="u", ready=True, available=True, cost=-7), *NEW[1:])
    found = step(replace(BASE, own=users, held=Held.NEVER))
    assert (found.do, found.of, found.cost) == (Do.COST, "new", -8)
    assert step(replace(BASE, own=users, held=Held.NEVER, cost=-9)).cost == -10, "the old pod stays as well"
    older = Own(uid="a", ready=True, available=True, made=True)
    two = (*own(1), older, replace(NEW[-1], created=1.0))
    assert step(replace(BASE, own=two, held=Held.NEVER)).of == "new", "of those that may be it the younger"
    assert step(replace(BASE, own=CHEAP, held=Held.NEVER)).takes_ready
    assert not step(replace(STARTING, late=True)).takes_ready
    assert not step(replace(BASE, own=NEW, known=False)).takes_ready, "anybody may have written that mark"


def test_of_pods_that_are_not_ready_the_replacement_goes_by_its_cost_and_nothing_is_turned_off() -> None:
    many = replace(BASE, own=(*own(1, 1), Own(uid="u", cost=-5)), failed="x")
    found = step(many)
    assert (found.do, found.of, found.cost) == (Do.COST, "s0", -6)
    marked = replace(many, own=(*own(1), Own(uid="s0", made=True, cost=-6, before=""), Own(uid="u", cost=-5)))
    assert not step(marked).takes_ready


def test_what_the_spread_needs_less_gets_the_lowest_cost_and_turns_nothing_off() -> None:
    needed = replace(BASE, own=CHEAP, held=Held.NEVER, rather="r1")
    found = step(needed)
    assert (found.do, found.of, found.cost) == (Do.COST, "r1", -2)
    marked = (CHEAP[0], replace(CHEAP[1], cost=-2, before=""), CHEAP[2])
    found = step(replace(needed, own=marked))
    assert (found.do, found.takes_ready) == (Do.GIVE_BACK, False)
    gone = step(replace(needed, own=(NEW[0], NEW[2], Own(uid="r2", ready=True, available=True))))
    assert (gone.do, gone.of) == (Do.COST, "new")
    assert step(replace(needed, known=False)).do is Do.GIVE_BACK
    few = step(replace(needed, own=own(2), wanted=2))
    assert few.do is Do.WAIT, "that would take a Ready pod too many"


def test_a_mark_is_read_back_and_believed_of_its_own_pod_only() -> None:
    assert mark_of({MARK: str(OURS)}, "old") == OURS
    assert mark_of({MARK: str(OURS)}, "copy") is None
    longest = replace(OURS, by="n" * 63 + "/" + "l" * 253)
    assert mark_of({MARK: str(longest)}, "old") == longest, "any name that a ledger can have"
    forged = (replace(OURS, label=""), replace(OURS, value="x; reboot"), replace(OURS, at=10**18))
    for text in ("", "{}", "[]", '{"label": 3}', *map(str, forged)):
        assert mark_of({MARK: text}, "old") is None
    assert str(OURS).startswith('{"label":"pod-template-hash","value":"abc","replicaSet":"rs","pod":"old"')


def test_a_released_pod_is_called_so_and_one_that_is_only_marked_has_no_owner() -> None:
    """Its ReplicaSet is its owner no more, and makes its replacement; anybody may write a mark."""
    owner, uid = uid_of("ReplicaSet", "default", "set"), uid_of("Pod", "default", "x")
    for label, found in (("owner", ReasonCode.RELEASED), ("other", ReasonCode.BARE_POD)):
        mark = Mark(label=label, value="set", replica_set=owner, pod=uid, at=1, by="a ledger")
        made = pod("x").on("a-0").annotated({MARK: str(mark)})
        assert code(replica_set("set").placed({"a-0": 1}), made, pod="x") is found


def test_the_longest_mark_of_a_pod_is_read() -> None:
    """Other annotations are cut when a pod is read: 150,000 of them fill memory."""
    bare = pod("web").on("a-0")
    (there,) = snapshot(*nodes(a=1), bare).pods
    long = replace(
        OURS, label=f"{'a' * 253}/{'b' * 63}", value="c" * 63, pod=there.uid, by=f"{'d' * 63}/{'e' * 253}"
    )
    (marked,) = snapshot(*nodes(a=1), bare.annotated({MARK: str(long)})).pods
    assert mark_of(marked.annotations, marked.uid) == long
