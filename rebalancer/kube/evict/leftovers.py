"""EvictionRequests that a process which ended has left: out of the world before a cycle begins.

Somebody may be at work on one that is withdrawn, until the cluster has said that it is called off, and for
some seconds after. Of a pod whose request cannot be called off nobody knows whether it goes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from rebalancer.kube.client.retry import Wait, retriable
from rebalancer.kube.errors import KubeError
from rebalancer.kube.evict.eviction_requests import EvictionRequest, EvictionRequests, Key
from rebalancer.kube.read.objects import PodReader

log = logging.getLogger(__name__)

SETTLED = 3.0
"""Seconds that the pod is watched after the request was called off: who evicts may hear of it late."""
PATIENCE = 60.0
"""Seconds for the cluster to say that a withdrawn request is called off, and for the API server to answer."""
_POLL = 1.0
_SHOWN = 3
_BATCH = 64
"""Requests that are withdrawn between two looks at whether to stop."""


class Leftovers:
    """`stuck`: the requests that could not be called off. `read` gives the pod of a name now."""

    def __init__(
        self,
        requests: EvictionRequests,
        read: PodReader,
        *,
        wait: Wait,
        monotonic: Callable[[], float],
    ) -> None:
        self._requests = requests
        self._read = read
        self._wait = wait
        self._monotonic = monotonic
        self._called_off: dict[Key, float] = {}
        self._gone: set[Key] = set()
        self.stuck: frozenset[Key] = frozenset()

    def clear(self, found: Sequence[EvictionRequest]) -> None:
        """Withdraws these requests, and waits until nobody works on them any more."""
        if any(r.wanted for r in found):
            log.warning("withdrawing what was left pending: %s", named(r for r in found if r.wanted))
        left, refused = {r.key: r for r in found}, set[Key]()
        until = self._monotonic() + PATIENCE

        def enough(wait: float = 0.0) -> bool:
            return self._monotonic() >= until or self._wait(wait)

        while left:
            wanted = [r for r in left.values() if r.wanted and r.key not in refused | self._gone]
            refused |= self._withdraw(wanted, enough)
            left = self._not_over(left, enough)
            # Who refuses a withdrawal for good is not waited for.
            if left.keys() <= refused or enough(_POLL):
                break
            left = self._as_now(left)
        self.stuck = frozenset(left)
        if left:
            log.warning("not called off, so that their pods are left alone: %s", named(left.values()))

    def _withdraw(self, wanted: Sequence[EvictionRequest], enough: Callable[[], bool]) -> set[Key]:
        """Those whose withdrawal was refused for good."""
        refused = set[Key]()
        for start in range(0, len(wanted), _BATCH):
            if start and enough():
                break
            failed = self._requests.withdraw([r.key for r in wanted[start : start + _BATCH]])
            for (_, name), e in failed.items():
                log.warning("%s could not be withdrawn: %s", name, e.message)
            refused |= {key for key, e in failed.items() if not retriable(e)}
        return refused

    def _not_over(
        self, found: dict[Key, EvictionRequest], enough: Callable[[], bool]
    ) -> dict[Key, EvictionRequest]:
        left = dict(found)
        for key, request in found.items():
            if enough():
                break
            if self._is_over(request):
                del left[key]
        return left

    def _is_over(self, request: EvictionRequest) -> bool:
        """Whether its pod goes, or nobody has worked on it for some seconds; then it is deleted."""
        pod, key = request.spec.target.pod, request.key
        try:
            if goes(self._read, request.metadata.namespace, pod.name, pod.uid):
                return True
            if not request.failed and key not in self._gone:
                return False
            if self._monotonic() - self._called_off.setdefault(key, self._monotonic()) < SETTLED:
                return False
        except KubeError as e:
            log.info("%s: %s", request.metadata.name, e.message)
            return False
        try:
            self._requests.delete(*key)
        except KubeError as e:
            log.warning("%s, which is called off, could not be deleted: %s", request.metadata.name, e.message)
        return True

    def _as_now(self, left: dict[Key, EvictionRequest]) -> dict[Key, EvictionRequest]:
        """The same requests as they are now; those that are not there any more are gone."""
        try:
            found = self._requests.ours()
        except KubeError as e:
            log.info("looking for what is left of requests: %s", e.message)
            return left
        if found is None:
            # The API was served a moment ago: another API server has answered.
            return left
        now = {r.key: r for r in found}
        self._gone |= left.keys() - now.keys()
        return {key: now.get(key, r) for key, r in left.items()}


def tell(requests: EvictionRequests) -> None:
    """Says, where nothing is evicted, which requests still ask for evictions: they may be of a process that
    is alive, so that they are not withdrawn."""
    try:
        wanted = [r for r in requests.ours() or () if r.wanted]
    except KubeError as e:
        log.info("whether requests for evictions are left is not known: %s", e.message)
        return
    if wanted:
        log.warning(
            "requests for evictions are pending although nothing is evicted here: %s; unless another "
            "rebalancer follows them: kubectl delete evictionrequests -A -l %s",
            named(wanted),
            requests.selector,
        )


def goes(read: PodReader, namespace: str, name: str, uid: str) -> bool:
    """Whether a pod is on its way out, or gone. Raises KubeError."""
    found = read(namespace, name)
    return found is None or found.uid != uid or found.terminating or found.finished


def named(requests: Iterable[EvictionRequest]) -> str:
    """The pods that they are about, the first few of them."""
    pods = sorted(f"{r.metadata.namespace}/{r.spec.target.pod.name}" for r in requests)
    more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    return ", ".join(pods[:_SHOWN]) + more
