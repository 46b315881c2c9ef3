"""VolumeZone: zone and region labels of a bound volume must be the node's."""

from __future__ import annotations

import numpy as np

from rebalancer.engine.plugins.plugin import UNRESOLVABLE, Filter, Plugin, Rejection, StaticFilter
from rebalancer.engine.state.storage import WAIT, claim_class, not_found
from rebalancer.model.pod import PodTemplate
from rebalancer.model.storage import PersistentVolume
from rebalancer.spread.arrays import Bools

GA = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
LABELS = (*GA, *GA.values())


class VolumeZone(Plugin):
    """Rule: plugins/volumezone/volume_zone.go."""

    name = "VolumeZone"

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """Rejects nodes elsewhere than the pod's volumes."""
        if not self.state.storage.known or not self.state.storage.volumes_known:
            return None
        found = self._volumes(template)
        if isinstance(found, str):
            blocked = StaticFilter(self.table.none, UNRESOLVABLE, found)
            blocked.blocked = Rejection(self.name, UNRESOLVABLE, (found,))
            return blocked
        mask = self.table.every
        for volume in found:
            mask = mask & self._reached(volume)
        if mask is self.table.every:
            return None
        unlabelled = ~np.logical_or.reduce([self.table.domains(key).present for key in LABELS])
        return StaticFilter(mask | unlabelled, UNRESOLVABLE, "node(s) had no available volume zone")

    def _volumes(self, template: PodTemplate) -> list[PersistentVolume] | str:
        """The pod's bound volumes; or why the pod cannot be placed."""
        storage = self.state.storage
        found: list[PersistentVolume] = []
        for mounted in template.volumes:
            if mounted.kind != "persistentVolumeClaim":
                continue
            if not mounted.claim:
                return "PersistentVolumeClaim had no name"
            claim = storage.claim(template.namespace, mounted.claim)
            if claim is None:
                return not_found(mounted.claim)
            if claim.spec.volume_name:
                volume = storage.volume(claim.spec.volume_name)
                if volume is None:
                    return f'persistentvolume "{claim.spec.volume_name}" not found'
                found.append(volume)
                continue
            class_name = claim_class(claim)
            if not class_name:
                return "PersistentVolumeClaim had no pv name and storageClass name"
            if class_name not in storage.classes:
                return f'storageclass.storage.k8s.io "{class_name}" not found'
            if storage.classes[class_name].volume_binding_mode != WAIT:
                return "PersistentVolume had no name"
        return found

    def _reached(self, volume: PersistentVolume) -> Bools:
        mask = self.table.every
        for key in LABELS:
            if key not in volume.metadata.labels:
                continue
            values = {v.strip() for v in volume.metadata.labels[key].split("__")}
            if "" in values:
                continue
            inside = self._in(key, values)
            if key in GA:
                inside = np.where(self.table.domains(key).present, inside, self._in(GA[key], values))
            mask = mask & inside
        return mask

    def _in(self, key: str, values: set[str]) -> Bools:
        domains = self.table.domains(key)
        return domains.spread(np.array([name in values for name in domains.names], dtype=np.bool_))
