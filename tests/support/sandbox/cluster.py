"""The embedded cluster behind the server that tests use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rebalancer import sandbox
from rebalancer.sandbox.objects import Object
from rebalancer.sandbox.resources import NODES
from tests.support.sandbox.api_server import ApiServer
from tests.support.sandbox.faults import Faults


class Cluster(sandbox.Cluster):
    """As the sandbox's; `options` are also those of the tests' `ApiServer`: tokens, rules, authenticate.
    `without`: kinds that nobody looks after, for instance a Deployment whose rollout is stuck."""

    server: ApiServer

    def __init__(self, objects: Iterable[Object] = (), **options: Any) -> None:
        without = set(options.pop("without", ()))
        super().__init__(objects, server=ApiServer, **options)
        if unknown := without - set(self.controllers):
            raise ValueError(f"nobody looks after {', '.join(sorted(unknown))} anyway")
        for kind in without:
            self.loop.controllers.remove(self.controllers[kind])

    @property
    def faults(self) -> Faults:
        """What its server is told to do wrong."""
        return self.server.faults

    def kubeconfig(self, path: str | Path, *, token: str | None = None) -> Path:
        """As `ApiServer.kubeconfig`."""
        return self.server.kubeconfig(path, token=token)

    def restore_domain(self, key: str, value: str) -> list[str]:
        """The nodes with that label, which failed (`fail_domain`), answer again. Their names."""
        return self._answer(key, value, "True", "KubeletReady", "kubelet is posting ready status")

    def remove_node(self, name: str) -> None:
        """The node and its pods are gone; ApiError 404 where there is no such node."""
        self.store.delete(NODES, name)
