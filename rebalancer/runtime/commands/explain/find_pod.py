"""Finds the pod that a person named, and suggests others if there is none."""

from __future__ import annotations

from difflib import get_close_matches

from rebalancer.errors import UserError
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import Snapshot

_SIMILAR = 5


def find_pod(snapshot: Snapshot, text: str, namespace: str = "") -> Pod:
    """The pod `namespace/name`; or that name in `namespace`; or the only pod of that name in the cluster.

    Raises UserError naming similar pods.
    """
    space, _, name = text.removeprefix("pod/").rpartition("/")
    space = space or namespace
    found = [p for p in snapshot.pods if p.name == name and space in ("", p.namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"several pods are named {name}", f"say which: {', '.join(p.key for p in found)}")
    similar = _similar(snapshot, space, name)
    wanted = f"{space}/{name}" if space else name
    raise UserError(
        f"no pod {wanted} among {len(snapshot.pods):,}",
        f"similar: {', '.join(similar)}" if similar else "pods are named as namespace/name",
    )


def _similar(snapshot: Snapshot, namespace: str, name: str) -> list[str]:
    """The same name in other namespaces, names that begin alike, then similar spellings."""
    keys = [p.key for p in snapshot.pods]
    first = [p.key for p in snapshot.pods if p.name == name]
    first += [p.key for p in snapshot.pods if name and p.name.startswith(name)]
    close = get_close_matches(f"{namespace}/{name}" if namespace else name, keys, _SIMILAR, 0.6)
    if not namespace:
        names = {p.name: p.key for p in snapshot.pods}
        close += [names[n] for n in get_close_matches(name, names, _SIMILAR, 0.6)]
    return list(dict.fromkeys((*first, *close)))[:_SIMILAR]
