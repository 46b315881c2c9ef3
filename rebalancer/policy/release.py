"""Replace first: what to do next with a pod that was released from its ReplicaSet.

Such a move takes away the label that only the ReplicaSet selects by. The controller lets the pod go and makes
a replacement; when that one is there, the old pod is evicted. Until then the label can be given back.

`step` says what comes next, from what is seen alone: the pod with its mark, the owner, its own pods, and
whether the ledger knows the release. It has no memory. So a process that was killed between any two requests
goes on where the next one looks, and each request is only sent after everything was read anew:

    release ─► the controller lets go ─► replacement Available, settled ─► evict ─► the pod is gone
                  └──────────────────────────┴── anything else: [cost] ─► label back ─► [cost restored]

What holds in every state: a request of ours takes a Ready pod only if as many as the owner wants now are
left. The pod is evicted only while as many of the owner's own pods are Available as it wants. Where neither
can be, nothing is done until something changes.

Rule: kubernetes pkg/controller/controller_ref_manager.go (release and adoption by selector), and
replica_set.go: a set with a pod too many deletes those that are not Ready first, then by deletion cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from rebalancer.model.node import OwnerReference
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot
from rebalancer.model.workload import Workload

MARK = "rebalancer.io/released"
"""Annotation of a pod that was released, and its only mark: `Mark` as JSON."""
COST_BEFORE = "rebalancer.io/cost-before-undo"
"""Annotation of a pod that shall go when another one's label is given back: the deletion cost that it got for
that, a blank, and the one that it had, "" if none. It comes and goes with the cost, by one patch."""

LET_GO = 10.0
"""Seconds in which the controller has to let go, and to make a replacement; then the label goes back."""
FOREIGN = 3600.0
"""Seconds after which a release of an installation that is not this one is given back."""
_LOWEST = -(1 << 31)


class Mark(Struct, frozen=True, rename="camel"):
    """What the annotation says: the removed label with its value, the uids of ReplicaSet and pod, when it was
    released (epoch seconds, whole) and by which installation. In this order: the admission policy reads it as
    text. Anybody may have written it: commands for people are made of it."""

    label: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._/-]+\Z")]
    value: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._-]*\Z")]
    replica_set: str
    pod: str
    at: Annotated[int, Meta(ge=0, lt=253_370_764_800)]
    by: Annotated[str, Meta(max_length=63 + 1 + 253)] = ""

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


def mark_of(annotations: Mapping[str, str], uid: str) -> Mark | None:
    """The mark of the pod of that uid; None where there is none, it cannot be read, or is another pod's."""
    if (text := annotations.get(MARK)) is None:
        return None
    try:
        mark = msgspec.json.decode(text, type=Mark)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return mark if mark.pod == uid and mark.label and mark.replica_set else None


def released(pods: Iterable[Pod]) -> Iterator[tuple[Pod, Mark]]:
    """Those of the pods that are marked as released and do not end, with their marks."""
    for pod in pods:
        mark = mark_of(pod.annotations, pod.uid) if MARK in pod.annotations else None
        if mark is not None and not pod.terminating:
            yield pod, mark


def released_of(snapshot: Snapshot) -> Iterator[tuple[Pod, Mark, Workload]]:
    """Those whose mark can be true, with the ReplicaSets that would take them back. Anybody may have written
    the others, who may annotate some pod somewhere."""
    for pod, mark in released(snapshot.pods):
        if (owner := owner_of_released(snapshot, pod)) is not None:
            yield pod, mark, owner


def owner_of_released(snapshot: Snapshot, pod: Pod) -> Workload | None:
    """The ReplicaSet that would take the pod back; None where no mark that can be true says so."""
    if (mark := mark_of(pod.annotations, pod.uid)) is None:
        return None
    owner = snapshot.owner_of(pod.namespace, OwnerReference("ReplicaSet", "", mark.replica_set))
    return owner if owner is not None and credible(pod, mark, owner) else None


def credible(pod: Pod, mark: Mark, owner: Workload) -> bool:
    """Whether the ReplicaSet that the mark names would take the pod back."""
    named = owner.metadata.uid == mark.replica_set and owner.namespace == pod.namespace
    own = named and owner.kind == "ReplicaSet"
    return own and takes_back(pod, mark, owner) and (pod.owner is None or pod.owner.uid == mark.replica_set)


def takes_back(pod: Pod, mark: Mark, owner: Workload) -> bool:
    """Whether a ReplicaSet selects the pod once that has its label again, and not without: any other label is
    none that a release has taken."""
    left = {k: v for k, v in pod.template.labels.items() if k != mark.label}
    selects = owner.selector.matches if owner.selector is not None else lambda _: False
    return selects({**left, mark.label: mark.value}) and not selects(left)


class Own(Struct, frozen=True, kw_only=True):
    """A pod that the owner has, the released one apart. Those that end or have ended are left out.

    `mine`: of the ReplicaSet that the mark names; else of another one of the same Deployment. `available`:
    Ready for as long as its owner asks. `made`: since the release, as far as clocks tell; `created`: when.
    `cost`: its deletion cost now; `before`: the one that an undo replaced, None if none has.
    """

    uid: str
    mine: bool = True
    ready: bool = False
    available: bool = False
    made: bool = False
    created: float = 0.0
    cost: int = 0
    before: str | None = None


class Held(StrEnum):
    """What the last look says of the eviction of the released pod, as far as it was asked."""

    NO = ""
    LATER = "later"
    """Nothing may be evicted at present: a brake, the breaker, a window, the settings."""
    NEVER = "never"
    """The move is not right any more."""


class Seen(Struct, frozen=True, kw_only=True):
    """All that was read of one release, within a second.

    `there`, `ending`, `finished`, `ready`, `cost`: of the pod. `controller`: its controller's uid, "" for
    none; `label`: the value that it has of the label, None without it. `mark`: None without one that is its
    own. `known`: the ledger has the release, by this owner. `ours`: this installation's mark.

    `replicas`: what the Deployment wants now, or the ReplicaSet that has none; None if neither is there.
    `wanted`: what the ReplicaSet of the mark wants, None if that one is gone, or goes. `alone`: that one has
    no owner, and the pod no reference to it. `selects`: it would select the pod with its label. `moved_on`:
    the owner was scaled or rolled out. `own`: its other pods. `settled`: as many as it wants have been
    Available for a while. `failed`: why the replacement does not do, "" if it may. `late`: the time for it is
    over. `seconds`: since the release. `held`, `stopping`: whether nothing new is to begin. `refusal`: as
    the check says it; `rather`: the uid of the pod of its ReplicaSet that is to go instead, as the spread
    needs the released one more, "" if it does not.
    """

    there: bool = True
    ending: bool = False
    finished: bool = False
    ready: bool = True
    cost: int = 0
    controller: str = ""
    label: str | None = None
    mark: Mark | None = None
    known: bool = False
    ours: bool = True
    replicas: int | None = None
    wanted: int | None = None
    alone: bool = False
    selects: bool = True
    moved_on: bool = False
    own: tuple[Own, ...] = ()
    settled: bool = False
    failed: str = ""
    late: bool = False
    seconds: float = 0.0
    held: Held = Held.NO
    refusal: str = ""
    rather: str = ""
    stopping: bool = False


class Do(StrEnum):
    """The next request, or what there is to do instead."""

    WAIT = "wait"
    """Nothing now: look again."""
    HOLD = "hold"
    """The replacement is there too, and nothing may be evicted now: both stay until that is over."""
    COST = "cost"
    """The pod `of` gets the deletion cost `cost`, lower than all others', so that it goes and no other."""
    REFER = "refer"
    """The pod gets a reference to its ReplicaSet, with which garbage collection takes it: one to a Deployment
    it has from the beginning, but one to its ReplicaSet goes when that lets go."""
    GIVE_BACK = "give-back"
    """The label goes back; mark and reference of ours go, by the same patch."""
    EVICT = "evict"
    """The old pod is evicted, after a last look."""
    LEAVE = "leave"
    """It is none of ours, or no more: nothing is sent, and it is said why."""
    OVER = "over"
    """The pod is gone."""


class Step(Struct, frozen=True, kw_only=True):
    """What comes next and why. `takes_ready`: giving back costs a Ready pod, so the method is turned off."""

    do: Do
    why: str = ""
    of: str = ""
    cost: int = 0
    takes_ready: bool = False


def step(s: Seen) -> Step:
    """What to do next with a pod that was released, by what is seen."""
    if not s.there:
        return Step(do=Do.OVER, why="the pod is gone")
    if s.ending:
        return Step(do=Do.WAIT, why="it is being deleted")
    if s.mark is None or (why := _not_ours(s, s.mark)):
        return Step(do=Do.LEAVE, why=why if s.mark is not None else "it has no mark, or one of another pod")
    if s.label is not None:
        return Step(do=Do.GIVE_BACK, why="its label is there already: only the mark is left")
    if s.controller:
        return _not_let_go(s)
    if s.wanted is None:
        return _without_set(s)
    if s.alone and s.known and s.held is not Held.NEVER:
        return Step(do=Do.REFER, why="it would outlive its ReplicaSet")
    if s.finished:
        return _ended(s, "it has ended while it was released")
    if why := _undo(s):
        return _back(s, why)
    if not _enough(s):
        return Step(do=Do.WAIT, why="its replacement is not Available yet")
    if s.held:
        return Step(do=Do.HOLD, why=s.refusal or "nothing may be evicted now, and both pods are Ready")
    if not s.settled:
        return Step(do=Do.WAIT, why="its replacement has only just become Available")
    return Step(do=Do.EVICT, why="as many other pods are Available as its owner wants")


def _not_ours(s: Seen, mark: Mark) -> str:
    """Why nothing may be done with it; "" if something may."""
    if s.controller not in ("", mark.replica_set):
        return "another controller has adopted it: it is that one's now"
    if s.label not in (None, mark.value):
        return f"it has another value of {mark.label} by now"
    if not s.ours and not s.known and s.seconds < FOREIGN:
        return f"{mark.by or 'another installation'} has released it"
    if s.wanted is not None and not s.selects:
        return "its ReplicaSet would not select it with its label: see to it by hand"
    return ""


def _ended(s: Seen, why: str) -> Step:
    """No controller adopts it any more: it is removed, once that may be."""
    if not s.known or s.held is Held.NEVER:
        return Step(do=Do.GIVE_BACK, why=why)
    return Step(do=Do.HOLD if s.held else Do.EVICT, why=s.refusal or why if s.held else why)


def _not_let_go(s: Seen) -> Step:
    """Its controller still has it. To give the label back changes nothing, unless there is a replacement:
    where admission refuses the controller's own patch as invalid, it counts without the pod all the same."""
    if s.known and s.seconds < LET_GO and not (s.held or s.stopping or s.failed or s.moved_on):
        return Step(do=Do.WAIT, why="its controller has not let it go yet")
    why = f"its controller has not let it go within {LET_GO:.0f} s"
    replaced = s.wanted is not None and sum(o.mine for o in s.own) >= s.wanted
    return _back(s, why) if replaced else Step(do=Do.GIVE_BACK, why=why)


def _without_set(s: Seen) -> Step:
    """Its ReplicaSet is gone: nobody would adopt it."""
    if s.replicas is None:
        return Step(do=Do.LEAVE, why="its owner is gone: garbage collection takes it, or it is nobody's")
    if not s.known:
        return Step(
            do=Do.LEAVE, why="its ReplicaSet is gone, and the ledger does not know it: see to it by hand"
        )
    if not (s.settled and _enough(s)):
        return Step(do=Do.WAIT, why="its ReplicaSet is gone, and the new pods are not all Available yet")
    if s.held:
        return Step(do=Do.HOLD, why=s.refusal or "nothing may be evicted now")
    return Step(do=Do.EVICT, why="its ReplicaSet is gone, and the new pods are there")


def _enough(s: Seen) -> bool:
    """Whether as many of the owner's other pods are Available as it wants."""
    return s.replicas is not None and sum(o.available for o in s.own) >= s.replicas


def _undo(s: Seen) -> str:
    """Why the label is given back; "" while the move may still succeed."""
    if s.wanted == 0:
        return "its ReplicaSet wants no pod any more"
    if s.held is Held.LATER and _enough(s):
        return ""
    if not s.known:
        return "the ledger knows no release of this owner's"
    if s.held is Held.NEVER:
        return s.refusal or "the move is not right any more"
    if s.failed:
        return s.failed
    if _enough(s):
        return ""
    if s.held or s.stopping:
        return "nothing more may be evicted, and its replacement is not Available"
    if s.moved_on:
        return "its owner was scaled or rolled out"
    missing = s.wanted is not None and sum(o.mine for o in s.own) < s.wanted
    if missing and s.seconds >= LET_GO:
        return f"no replacement was made within {LET_GO:.0f} s"
    return "its replacement was not Available in time" if s.late else ""


def _back(s: Seen, why: str) -> Step:
    """The label goes back, if that leaves enough Ready pods. The ReplicaSet then deletes as many as are too
    many: those that are not Ready, then the one that costs least."""
    mine = [o for o in s.own if o.mine]
    surplus = len(mine) + 1 - (s.wanted or 0)
    unready = sum(not o.ready for o in mine) + (not s.ready)
    taken = surplus - unready
    if surplus <= 0 or not taken:
        return Step(do=Do.GIVE_BACK, why=why)
    replicas = s.replicas or 0
    if taken > 0 and sum(o.ready for o in s.own) + s.ready - taken < replicas:
        return Step(do=Do.WAIT, why=f"{why}; its label goes back once that leaves {replicas} Ready pods")
    cheapest = min([s.cost, *(o.cost for o in mine)])
    # Of those made since, the one that is cheapest already, as the second look finds the one of the first;
    # else the youngest. Of more that are not Ready than go it is one, too, else the set may take any of them.
    may_go = (o for o in mine if s.known and (taken > 0 or not o.ready))
    made = (o for o in may_go if o.made or o.uid == s.rather)
    new = min(made, key=lambda o: (o.uid != s.rather, o.cost, -o.created, o.uid), default=None)
    if new is not None and new.before is None and cheapest > _LOWEST:
        return Step(do=Do.COST, why=why, of=new.uid, cost=cheapest - 1)
    # A mark that anybody may have written turns nothing off; nor does what the owner asked to go, nor that
    # it is another one that goes of those that are too many.
    off = taken > 0 and s.known and s.wanted != 0 and not s.rather
    return Step(do=Do.GIVE_BACK, why=why, takes_ready=off)
