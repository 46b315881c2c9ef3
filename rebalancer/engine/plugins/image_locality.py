"""ImageLocality: nodes that have the pod's images score higher."""

from __future__ import annotations

import numpy as np

from rebalancer.bulk_work import remembered
from rebalancer.engine.plugins.plugin import MAX_SCORE, Plugin, Score
from rebalancer.engine.template_rules import container_images
from rebalancer.engine.version import IMAGE_VOLUMES, IMAGE_VOLUMES_SHARE
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints

MB = 1024 * 1024
MIN_BYTES = 23 * MB
MAX_BYTES_PER_CONTAINER = 1000 * MB


class ImageLocality(Plugin):
    """Rule: plugins/imagelocality/image_locality.go."""

    name = "ImageLocality"

    def score(self, template: PodTemplate) -> Score | None:
        """Bytes of the pod's images on the node, each scaled by the share of nodes that have it."""
        version = self.state.version
        own = container_images(template, version)
        mounted = [v.image for v in template.volumes if v.image and version.has(IMAGE_VOLUMES)]
        share = len(own) + (len(mounted) if version.has(IMAGE_VOLUMES_SHARE) else 0)
        return self._score(tuple(map(normalized, (*own, *mounted))), share)

    @remembered(by=lambda *of: of)
    def _score(self, names: tuple[str, ...], containers: int) -> Score:
        total: Ints = np.zeros(self.table.size, dtype=np.int64)
        for name in names:
            size, rows = self.table.image(name)
            if len(rows):
                total[rows] += int(float(size) * (len(rows) / self.table.size))
        most = MAX_BYTES_PER_CONTAINER * max(1, containers)
        return _Score(MAX_SCORE * (total.clip(MIN_BYTES, most) - MIN_BYTES) // (most - MIN_BYTES))


class _Score(Score):
    def __init__(self, raw: Ints) -> None:
        self._raw = raw

    def values(self, feasible: Bools) -> Ints:  # noqa: ARG002
        return self._raw


def normalized(image: str) -> str:
    """The name with a tag; "latest" where it has none."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
