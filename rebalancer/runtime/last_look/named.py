"""Is what an owner's template names still there? Without it the API server refuses every new pod.

ServiceAccounts and RuntimeClasses are neither listed nor watched, as few of them matter. They are read by
name, for the owners that a plan has moves of, and again before each eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rebalancer.kube.errors import KubeError
from rebalancer.model.reason import Reason
from rebalancer.model.workload import Workload
from rebalancer.policy.owners import gone

Exists = Callable[[str, str, str], bool | None]
"""`rebalancer.kube.read.objects.Objects.exists`: by kind, namespace and name. Raises KubeError."""
_AT_ONCE = 8


def why_not(owner: Workload, exists: Exists) -> Reason | None:
    """Why no new pod of the owner would be admitted; None if it would be, or if that cannot be seen."""
    for kind, name in _named(owner):
        if exists(kind, owner.namespace, name) is False:
            return gone(f"{owner.kind} {owner.name}", kind, name)
    return None


def missing(owners: Iterable[Workload], exists: Exists) -> tuple[dict[str, Reason], tuple[str, ...]]:
    """Owner (Kind/namespace/name) → why no new pod of it would be admitted; and the kinds that could not be
    asked for. Each object is asked for once."""
    owners = tuple(owners)
    by_name = dict.fromkeys((kind, o.namespace, name) for o in owners for kind, name in _named(o))

    def ask(key: tuple[str, str, str]) -> bool | None:
        try:
            return exists(*key)
        except KubeError:
            return None  # before the eviction it is asked again

    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="named") as pool:
        found = dict(zip(by_name, pool.map(ask, by_name), strict=True))
    refused = {
        owner.key: reason
        for owner in owners
        if (reason := why_not(owner, lambda *key: found[key])) is not None
    }
    return refused, tuple(sorted({kind for (kind, _, _), there in found.items() if there is None}))


def _named(owner: Workload) -> Iterator[tuple[str, str]]:
    """Kinds and names. The ServiceAccount `default` is made again by itself."""
    if owner.service_account not in ("", "default"):
        yield "ServiceAccount", owner.service_account
    if owner.runtime_class:
        yield "RuntimeClass", owner.runtime_class
