"""The two revisions of a StatefulSet's template: the one it has, and the one it goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rebalancer.sandbox.api.objects import Object, copied
from rebalancer.sandbox.api.resources import resolve
from rebalancer.sandbox.controllers import pods
from rebalancer.sandbox.registry.store import Store

REVISION = "controller-revision-hash"
REVISIONS = resolve("ControllerRevision")
Template = dict[str, Any]


@dataclass(frozen=True)
class Revisions:
    """Names of the revisions with their templates. `current` and `update` are the same but in an update."""

    current: str
    update: str
    templates: dict[str, Template]

    @staticmethod
    def of(store: Store, owner: Object) -> Revisions:
        """Read from the set's ControllerRevisions; the one for its present template is made if missing.

        A set that was loaded without them keeps the names that its status has.
        """
        template = owner["spec"].get("template") or {}
        known = {
            obj["metadata"]["name"]: obj
            for resource, obj in store.owned(owner["metadata"]["uid"])
            if resource is REVISIONS
        }
        templates = {name: _template(obj) for name, obj in known.items() if _template(obj)}
        status = owner.get("status") or {}
        current, update = status.get("currentRevision") or "", status.get("updateRevision") or ""
        same = next((name for name, t in sorted(templates.items()) if t == template), "")
        observed = int(status.get("observedGeneration", 0)) >= int(owner["metadata"].get("generation", 0))
        if same:
            update = same
        elif not update or update in known or not observed:
            update = f"{owner['metadata']['name']}-{pods.hash_of(template)}"
        if update not in known:
            _make(store, owner, update, template, len(known) + 1)
        templates[update] = template
        return Revisions(current or update, update, templates)

    def of_pod(self, pod: Object) -> str:
        """A pod without the label (a hand-written snapshot) counts as up to date."""
        return (pod["metadata"].get("labels") or {}).get(REVISION) or self.update

    def for_ordinal(self, owner: Object, number: int) -> tuple[str, Template]:
        """Revision and template of a pod that is made now."""
        strategy = owner["spec"].get("updateStrategy") or {}
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
        old = strategy.get("type", "RollingUpdate") == "RollingUpdate" and number < start + partition
        name = self.current if old else self.update
        return name, self.templates.get(name, self.templates[self.update])


def _template(revision: Object) -> Template:
    data = revision.get("data") or {}
    return (data.get("spec") or {}).get("template") or {}


def _make(store: Store, owner: Object, name: str, template: Template, number: int) -> None:
    metadata = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": {**((template.get("metadata") or {}).get("labels") or {}), REVISION: name},
        "ownerReferences": [pods.reference(owner)],
    }
    store.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "data": {"spec": {"template": copied(template)}},
            "revision": number,
        }
    )
