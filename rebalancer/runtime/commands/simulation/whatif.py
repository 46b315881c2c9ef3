"""Changes to a simulated cluster before it is rebalanced."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.report.wording.text import plural
from rebalancer.runtime.commands.topology_keys import full_key
from rebalancer.sandbox import ApiError, Cluster

_ROLLED = ("Deployment", "StatefulSet")
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_SCALED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")


class Changes(Struct, frozen=True, kw_only=True):
    """Made in this order; the cluster settles after each.

    `add_nodes`: (how many, like which node); `labels`: key=value that these have instead. `scale`:
    namespace/name=replicas. `restart`: namespace/name of
    Deployments and StatefulSets, whose pods are all replaced. `drain`: nodes.
    `fail_domains`: key=value, with "zone" and the like for the well-known keys.
    """

    add_nodes: tuple[int, str] | None = None
    labels: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    fail_domains: tuple[str, ...] = ()


def apply(cluster: Cluster, changes: Changes, *, patience: float) -> list[str]:
    """Makes the changes. Returns a sentence for each. Raises UserError if one names nothing.

    `patience`: seconds for the cluster to settle after each, and for a drain.
    """
    done: list[str] = []
    if changes.add_nodes is not None:
        number, like = changes.add_nodes
        _known_node(cluster, like)
        own = {full_key(key): value for key, _, value in (text.partition("=") for text in changes.labels)}
        names = cluster.add_nodes(number, like=like, **own)
        where = f" with {', '.join(changes.labels)}" if own else ""
        done.append(f"added {plural(number, 'node')} like {like}{where}: {_span(names)}")
        done += settled(cluster, patience)
    for text in changes.scale:
        namespace, name, replicas = _scaled(text)
        try:
            cluster.scale(namespace, name, replicas)
        except KeyError as e:
            raise UserError(
                f"no workload {namespace}/{name} that scales", _similar(cluster, namespace, name)
            ) from e
        done.append(f"scaled {namespace}/{name} to {replicas:,}")
        done += settled(cluster, patience)
    for text in changes.restart:
        done.append(_restart(cluster, text))
        done += settled(cluster, patience)
    for node in changes.drain:
        _known_node(cluster, node)
        done.append(f"drained {node}{_drain(cluster, node, patience)}")
        done += settled(cluster, patience)
    for text in changes.fail_domains:
        key, _, value = text.partition("=")
        key = full_key(key)
        names = cluster.fail_domain(key, value)
        if not names:
            raise UserError(f"no node with {key}={value}", _values(cluster, key))
        done.append(f"{key}={value} failed: {plural(len(names), 'node')} stopped answering")
        done += settled(cluster, patience)
    return done


def settled(cluster: Cluster, patience: float) -> list[str]:
    """Waits until the cluster is at rest. Returns a sentence if it does not come to rest."""
    try:
        cluster.settle(patience)
    except TimeoutError as e:
        return [f"went on although {e}"]
    return []


def _drain(cluster: Cluster, node: str, patience: float) -> str:
    try:
        cluster.drain(node, patience)
    except TimeoutError as e:
        return f", but {e}: budgets keep them"
    except ApiError as e:
        return f", but {e}"
    return ""


def _restart(cluster: Cluster, text: str) -> str:
    """Rolls a workload out as `kubectl rollout restart` does. A sentence about it."""
    namespace, _, name = text.rpartition("/")
    namespace = namespace or "default"
    for kind in _ROLLED:
        owner = cluster.store.find(kind, name, namespace)
        if owner is None:
            continue

        def change(found: Any) -> None:
            metadata = found["spec"]["template"].setdefault("metadata", {})
            metadata.setdefault("annotations", {})[_RESTARTED] = "simulated"

        cluster.store.modify(kind, name, namespace, change)
        if _how(owner) == "Recreate":
            return f"restarted {namespace}/{name}: by Recreate, all of its pods are gone at once"
        if _how(owner) == "OnDelete" or owner["spec"].get("paused"):
            return f"restarted {namespace}/{name}: nothing follows, it is paused or updates by OnDelete"
        return f"restarted {namespace}/{name}: all of its pods are replaced, without any budget"
    raise UserError(
        f"no Deployment or StatefulSet {namespace}/{name}", _similar(cluster, namespace, name, _ROLLED)
    )


def _how(owner: Any) -> str:
    spec = owner["spec"]
    return str((spec.get("strategy") or spec.get("updateStrategy") or {}).get("type") or "RollingUpdate")


def _scaled(text: str) -> tuple[str, str, int]:
    workload, _, number = text.rpartition("=")
    namespace, _, name = workload.rpartition("/")
    # deploy/web and the like: the kind is found by the name.
    if not name or not number.isdigit():
        raise UserError(f"--scale {text}: not of the form NAMESPACE/NAME=REPLICAS")
    return namespace or "default", name, int(number)


def _known_node(cluster: Cluster, name: str) -> None:
    if cluster.store.find("Node", name) is None:
        every = [n["metadata"]["name"] for n in cluster.store.list("Node")]
        raise UserError(f"no node {name} among {len(every):,}", _alike(name, every))


def _similar(cluster: Cluster, namespace: str, name: str, kinds: Iterable[str] = _SCALED) -> str:
    every = [
        f"{o['metadata']['namespace']}/{o['metadata']['name']}"
        for kind in kinds
        for o in cluster.store.list(kind)
        if not o["metadata"].get("ownerReferences")
    ]
    return _alike(f"{namespace}/{name}", every)


def _values(cluster: Cluster, key: str) -> str:
    labels = (n["metadata"].get("labels") or {} for n in cluster.store.list("Node"))
    values = sorted({of[key] for of in labels if key in of})
    return f"there are {', '.join(values[:8])}" if values else f"no node has the label {key}"


def _alike(name: str, every: list[str]) -> str:
    close = get_close_matches(name, every, 5, 0.5)
    return f"similar: {', '.join(close)}" if close else ""


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
