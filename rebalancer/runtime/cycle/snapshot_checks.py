"""Whether a snapshot says enough to act on, and has what somebody named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from operator import attrgetter

from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.model.snapshot import Snapshot

_MOST = 0.05
"""Share of the nodes or pods that may be unreadable. Everybody counts, so what is missed shifts every skew:
one odd object is told and left out, but a format that is not understood is no cluster in balance."""
_LISTED = 8


def warned(snapshot: Snapshot, doubt: str) -> Snapshot:
    """The snapshot, with one more sentence about what is not known, if there is one."""
    return replace(snapshot, warnings=(*snapshot.warnings, doubt)) if doubt else snapshot


def check_readable(snapshot: Snapshot) -> None:
    """Raises UserError where too many of the nodes or pods could not be read."""
    for read in snapshot.reads:
        lost, every = read.unreadable, read.objects + read.unreadable
        if read.kind in ("Node", "Pod") and lost and (not read.objects or lost > max(1, _MOST * every)):
            where = snapshot.source or "the cluster"
            raise UserError(
                f"{lost:,} of {every:,} {read.kind.lower()}s in {where} could not be read, so nothing can be "
                f"said of its balance: {_first(snapshot, read.kind)}",
                "take the snapshot again, or mend these objects",
            )
    _check_nodes(snapshot)


def _check_nodes(snapshot: Snapshot) -> None:
    """Raises UserError where most pods run on nodes that were not read.

    A few are told of and left out: a node that is gone keeps its pods for a while.
    """
    on_node = Counter(map(attrgetter("node_name"), snapshot.pods))
    del on_node[""]
    placed = on_node.total()
    lost = placed - sum(on_node[n.name] for n in snapshot.nodes)
    if 2 * lost > placed:
        where = snapshot.source or "the cluster"
        raise UserError(
            f"{lost:,} of {placed:,} pods in {where} run on nodes that are not in it, so nothing can be "
            "said of its balance",
            "take nodes and pods of the whole cluster together, for example with `rebalancer snapshot`",
        )


def check_namespaces(snapshot: Snapshot, names: Iterable[str]) -> None:
    """Raises UserError for a name that no namespace has."""
    known = set(snapshot.namespaces)
    if "Namespace" not in snapshot.kinds:
        known = {p.namespace for p in snapshot.pods} | {w.namespace for w in snapshot.workloads}
    only = snapshot.read_namespaces
    for name in names:
        if only and name not in only:
            raise UserError(
                f"namespace {name} is not read: scope.readNamespaces has {', '.join(sorted(only))} only",
                "name one of these, or add it there",
            )
        if name not in known and name not in only:
            similar = get_close_matches(name, sorted(known), 3)
            some = ", ".join(similar or sorted(known)[:_LISTED])
            more = "" if similar or len(known) <= _LISTED else f" and {len(known) - _LISTED:,} more"
            what = "similar" if similar else "there are"
            raise UserError(
                f"no namespace {name} in {snapshot.source or 'the cluster'}",
                f"{what}: {some}{more}",
            )


def _first(snapshot: Snapshot, kind: str) -> str:
    """The warning about the first of them."""
    return next((w for w in snapshot.warnings if kind in w and "malformed" in w), "see the warnings")
