"""Custom resources, as a CustomResourceDefinition would add them to the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from rebalancer.sandbox.api import resources
from rebalancer.sandbox.api.resources import Resource
from rebalancer.sandbox.storage import storage

OPEN_REPORTS = tuple(
    Resource(
        group="openreports.io",
        version="v1alpha1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=kind == "Report",
        storage=f"{plural}.openreports.io",
    )
    for kind, plural in (("Report", "reports"), ("ClusterReport", "clusterreports"))
)
NODE_CLAIMS = Resource(
    group="karpenter.sh",
    version="v1",
    kind="NodeClaim",
    plural="nodeclaims",
    singular="nodeclaim",
    namespaced=False,
    storage="nodeclaims.karpenter.sh",
)


@contextmanager
def served(*custom: Resource) -> Iterator[None]:
    """Every server of this process serves them while the block runs."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(storage, "RESOURCES", (*resources.RESOURCES, *custom)))
        for r in custom:
            stack.enter_context(patch.dict(resources.BY_PATH, {(r.group, r.version, r.plural): r}))
            stack.enter_context(patch.dict(resources.BY_KIND, {(r.api_version, r.kind): r}))
            words = (r.plural, r.kind, r.qualified, f"{r.api_version}/{r.kind}")
            stack.enter_context(patch.dict(resources._BY_WORD, dict.fromkeys(words, r)))
        yield
