"""What happened to a pod or an owner, from the ledger and from Events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from msgspec import Struct

from rebalancer.kube.events import EventNote
from rebalancer.policy.history.ledger import Entry, Fate, Ledger
from rebalancer.runtime.observers.events import EVICTED

_SAME = 300.0
"""Seconds by which an event and the ledger's entry of one eviction may differ: the wave was written first."""
_SHORT = {
    "deploy": "deployment",
    "rs": "replicaset",
    "sts": "statefulset",
    "rc": "replicationcontroller",
    "po": "pod",
}


class HistoryLine(Struct, frozen=True, kw_only=True):
    """One line of `rebalancer history`, and its JSON: an eviction, or a warning about one.

    `at`: epoch seconds. `node` → `landed`, as far as known.
    """

    at: float
    namespace: str
    pod: str
    owner: str
    fate: str
    node: str = ""
    predicted: str = ""
    replacement: str = ""
    landed: str = ""
    reason: str = ""
    message: str = ""


def history_of(ledger: Ledger, events: Iterable[EventNote], what: str = "") -> list[HistoryLine]:
    """The lines, oldest first. `what`: namespace/pod, pod, Kind/name, namespace/owner or owner; "" = all.

    The ledger comes first. Events add evictions that it does not have.
    """
    found = [_of_entry(e) for e in ledger.entries]
    known = [(p.pod, p.namespace, p.at) for p in found]
    for event in events:
        seen = _of_event(event)
        if seen is None:
            continue
        twice = any(
            (seen.pod, seen.namespace) == (pod, space) and abs(seen.at - at) < _SAME
            for pod, space, at in known
        )
        if not (twice and event.reason == EVICTED):
            found.append(seen)
    return sorted((p for p in found if _matches(p, what)), key=lambda p: p.at)


def _of_entry(e: Entry) -> HistoryLine:
    return HistoryLine(
        at=e.at,
        namespace=e.namespace,
        pod=e.pod,
        owner=e.owner,
        fate="being evicted" if e.fate is Fate.INTENDED else e.fate.value,
        node=e.node,
        predicted=e.predicted,
        replacement=e.replacement,
        landed=e.landed,
        reason=e.reason,
        message=e.message,
    )


def _of_event(event: EventNote) -> HistoryLine | None:
    """From the pod's own Event, and from warnings on owners. Other Events on owners repeat the pod's."""
    about = event.regarding
    if event.event_time is None or (about.kind != "Pod" and event.type != "Warning"):
        return None
    pod, other = (about, event.related) if about.kind == "Pod" else (event.related, about)
    when = event.event_time if event.event_time.tzinfo else event.event_time.replace(tzinfo=UTC)
    return HistoryLine(
        at=when.timestamp(),
        namespace=about.namespace,
        pod=pod.name if pod is not None else "",
        owner=f"{other.kind}/{other.namespace}/{other.name}" if other is not None else "",
        fate="warning" if event.type == "Warning" else "evicted",
        reason=event.reason,
        message=event.note,
    )


def _matches(p: HistoryLine, what: str) -> bool:
    if not what:
        return True
    kind, namespace, name = [*p.owner.lower().split("/", 2), "", ""][:3]
    head, _, tail = what.lower().partition("/")
    names = {
        p.pod,
        f"{p.namespace}/{p.pod}",
        f"pod/{p.pod}",
        p.replacement,
        p.replacement.partition("/")[2],
        name,
        f"{namespace}/{name}",
        f"{kind}/{name}",
        p.owner.lower(),
    } - {""}
    return what.lower() in names or f"{_SHORT.get(head, head)}/{tail}" in names
