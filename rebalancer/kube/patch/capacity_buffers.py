"""PodTemplates and CapacityBuffers, applied on the server's side under a field manager of their own."""

from __future__ import annotations

from typing import Any

from rebalancer.errors import UserError
from rebalancer.kube.client.connection import Connection
from rebalancer.kube.errors import NotFoundError, Target
from rebalancer.kube.resources import Resource

MANAGER = "rebalancer-room"
_GROUP = "autoscaling.x-k8s.io"
_RESOURCES = {
    "PodTemplate": Resource("PodTemplate", "", "v1", "podtemplates"),
    "CapacityBuffer": Resource("CapacityBuffer", _GROUP, "v1beta1", "capacitybuffers"),
}
_TIMEOUT = 15.0


def apply(connection: Connection, obj: dict[str, Any]) -> None:
    """Makes the cluster have it. Raises KubeError; UserError where the cluster does not know the kind."""
    resource = _RESOURCES[obj["kind"]]
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    try:
        connection.request(
            "PATCH",
            resource.path(namespace, name),
            Target("patch", resource, namespace, name),
            query={"fieldManager": MANAGER},
            body=obj,
            read_timeout=_TIMEOUT,
            content_type="application/apply-patch+yaml",
        )
    except NotFoundError as e:
        if obj["kind"] != "CapacityBuffer":
            raise
        raise UserError(
            f"the cluster has no {_RESOURCES['CapacityBuffer'].plural}.{_GROUP} of version v1beta1",
            "its autoscaler has to offer them; -o capacitybuffer prints what would be created",
        ) from e
