"""What the controllers of all owners do alike: they work when an owner, or what it owns, has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rebalancer.sandbox.api.objects import Object
from rebalancer.sandbox.api.resources import PODS, Resource
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.controllers.loop import Controller
from rebalancer.sandbox.storage.history import Event


class OwnerController(Controller):
    """`resource`: the owners; `owned`: what they make."""

    resource: Resource
    owned: ClassVar[Resource] = PODS

    def notice(self, event: Event) -> None:
        if event.resource is self.resource:
            if event.type != "DELETED":
                self.loop.add(self, event.record.key)
        elif event.resource is self.owned:
            for key in pods.owner_keys(event, self.resource.kind):
                self.loop.add(self, key)

    def owner(self, key: str) -> Object | None:
        """The owner of that key, if it is still there."""
        namespace, name = pods.split(key)
        return self.store.find(self.resource, name, namespace)

    def modify_status(self, key: str, change: Callable[[Object], None]) -> None:
        """Changes the owner's status."""
        namespace, name = pods.split(key)
        self.store.modify(self.resource, name, namespace, change, subresource="status")
