"""Writes reports of openreports.io: only those that say something else than what is there.

Create and update alone: no right to patch or delete is needed. A report whose namespace has nothing to report
any more is emptied.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.kube.client.connection import Connection
from rebalancer.kube.client.retry import Wait
from rebalancer.kube.errors import ConflictError, NotFoundError, Target
from rebalancer.kube.read.pager import pages
from rebalancer.kube.resources import Resource

log = logging.getLogger(__name__)

GROUP, VERSION = "openreports.io", "v1alpha1"
REPORTS = Resource("Report", GROUP, VERSION, "reports")
CLUSTER_REPORTS = Resource("ClusterReport", GROUP, VERSION, "clusterreports", namespaced=False)
FIELD_MANAGER = "rebalancer"
_MANAGED = "app.kubernetes.io/managed-by=rebalancer"
_TIMEOUT = 10.0
Json = dict[str, Any]
_Key = tuple[str, str, str]
"""Kind, namespace, name."""


class _There(Struct, frozen=True):
    """A report in the cluster: its version, and what it says."""

    version: str
    says: bytes


class Written(Struct, frozen=True):
    """What came of writing: how many were created, updated, emptied, and how many said the same already."""

    created: int = 0
    updated: int = 0
    same: int = 0


class PolicyReports:
    """The reports of one cluster. Not safe to use from several threads."""

    def __init__(self, connection: Connection, *, wait: Wait) -> None:
        self._connection = connection
        self._wait = wait
        self._there: dict[_Key, _There] | None = None

    def write(self, objects: list[Json]) -> Written:
        """Makes the cluster's reports say what these objects say. Raises KubeError; the next call looks
        again at what is there."""
        there, self._there = self._there, None
        there = self._read() if there is None else there
        wanted = {_key(o): o for o in objects}
        for key in there.keys() - wanted.keys():
            wanted[key] = _emptied(key)
        created = updated = same = 0
        for key, obj in sorted(wanted.items()):
            says, known = _essence(obj), there.get(key)
            if known is not None and known.says == says:
                same += 1
                continue
            try:
                there[key] = _There(self._put(key, obj, known), says)
            except (ConflictError, NotFoundError) as e:
                if known is None and isinstance(e, NotFoundError):
                    raise  # no such namespace, or no such kind: not a matter of who came first
                log.debug("%s", e)
                return Written(created, updated, same)  # somebody else wrote: looked at again next time
            created += known is None
            updated += known is not None
        self._there = there
        return Written(created, updated, same)

    def _read(self) -> dict[_Key, _There]:
        found: dict[_Key, _There] = {}
        for resource in (REPORTS, CLUSTER_REPORTS):
            for page in pages(self._connection, resource, wait=self._wait, labels=_MANAGED):
                for raw in page.items or ():
                    obj = msgspec.json.decode(raw)
                    obj["kind"] = resource.kind  # items of a list need not say it
                    found[_key(obj)] = _There(obj["metadata"].get("resourceVersion", ""), _essence(obj))
        return found

    def _put(self, key: _Key, obj: Json, known: _There | None) -> str:
        """The new version."""
        kind, namespace, name = key
        resource = CLUSTER_REPORTS if kind == CLUSTER_REPORTS.kind else REPORTS
        metadata = obj["metadata"]
        if known is not None:
            metadata = {**metadata, "resourceVersion": known.version}
        named = name if known is not None else ""
        answer = self._connection.request(
            "PUT" if known is not None else "POST",
            resource.path(namespace, named),
            Target("update" if known is not None else "create", resource, namespace, named),
            query={"fieldManager": FIELD_MANAGER},
            body={**obj, "metadata": metadata},
            read_timeout=_TIMEOUT,
        )
        made: str = msgspec.json.decode(answer.body).get("metadata", {}).get("resourceVersion", "")
        return made


def _key(obj: Json) -> _Key:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


def _emptied(key: _Key) -> Json:
    kind, namespace, name = key
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "labels": dict([_MANAGED.split("=")]),
        },
        "source": FIELD_MANAGER,
        "summary": dict.fromkeys(("pass", "fail", "warn", "error", "skip"), 0),
        "results": [],
    }


def _essence(obj: Json) -> bytes:
    """What a report says, without the times at which it was found."""
    results = [{k: v for k, v in r.items() if k != "timestamp"} for r in obj.get("results") or ()]
    said = {"summary": obj.get("summary") or {}, "results": results}
    return msgspec.json.encode(said, order="sorted")
