"""Custom resources, as a CustomResourceDefinition would add them to the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from rebalancer.sandbox import resources, server, storage
from rebalancer.sandbox.resources import Resource

ADD_ONS = tuple(
    Resource(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        namespaced=namespaced,
        storage=f"{kind.lower()}s.{group}",
    )
    for group, kind, namespaced in (
        ("karpenter.sh", "NodeClaim", False),
        ("karpenter.sh", "NodePool", False),
        ("autoscaling.k8s.io", "VerticalPodAutoscaler", True),
    )
)


@contextmanager
def served(*custom: Resource) -> Iterator[None]:
    """Every server of this process serves them while the block runs."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(storage, "RESOURCES", (*resources.RESOURCES, *custom)))
        stack.enter_context(patch.object(server, "RESOURCES", (*resources.RESOURCES, *custom)))
        groups = dict.fromkeys((*resources.GROUPS, *(r.group for r in custom)))
        stack.enter_context(patch.object(server, "GROUPS", tuple(groups)))
        for r in custom:
            stack.enter_context(patch.dict(resources.BY_PATH, {(r.group, r.version, r.plural): r}))
            stack.enter_context(patch.dict(resources.BY_KIND, {(r.api_version, r.kind): r}))
            words = (r.plural, r.kind, r.qualified, f"{r.api_version}/{r.kind}")
            stack.enter_context(patch.dict(resources._BY_WORD, dict.fromkeys(words, r)))
        yield
