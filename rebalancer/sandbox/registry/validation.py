"""Validation of objects, as far as callers of this project could get them wrong."""

from __future__ import annotations

import re
from typing import Any

from rebalancer.model.deletion_cost import DELETION_COST
from rebalancer.sandbox.api.errors import ApiError, Cause, invalid
from rebalancer.sandbox.api.objects import DNS_SUBDOMAIN, Object, is_subdomain, required, wrong
from rebalancer.sandbox.api.resources import Resource

LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


def check_name(resource: Resource, name: str, generate: str) -> None:
    """ApiError 422 for a name that the server would not take."""
    if not name:
        what = required("metadata.name")
        raise invalid(
            resource.kind,
            resource.group,
            name,
            [Cause(what.reason, "Required value: name or generateName is required", what.field)],
        )
    rbac = resource.group == "rbac.authorization.k8s.io"
    if is_subdomain(name) or rbac:
        return
    causes = [wrong("metadata.name", f'"{name}"', DNS_SUBDOMAIN)]
    if generate and not is_subdomain(generate + "x"):
        causes.insert(0, wrong("metadata.generateName", f'"{generate}"', DNS_SUBDOMAIN))
    raise invalid(resource.kind, resource.group, name, causes)


def validate(obj: Object, resource: Resource) -> None:
    """What clients of the rebalancer can get wrong; ApiError 422 with the server's causes."""
    causes: list[Cause] = []
    metadata = obj["metadata"]
    if resource.kind == "Pod":
        cost = (metadata.get("annotations") or {}).get(DELETION_COST)
        if cost is not None and not _is_int32(cost):
            field = f"metadata.annotations[{DELETION_COST}]"
            # The server validates it twice and says so.
            causes += [wrong(field, f'"{cost}"', "must be a 32bit integer")] * 2
        if not (obj.get("spec") or {}).get("containers"):
            causes.append(required("spec.containers"))
    for where in ("labels", "annotations"):
        for value in (metadata.get(where) or {}).values():
            if not isinstance(value, str):
                raise ApiError(
                    400,
                    "BadRequest",
                    f'{resource.kind} in version "{resource.version}" cannot be '
                    f"handled as a {resource.kind}: json: cannot unmarshal {type(value).__name__} into "
                    f"Go struct field ObjectMeta.metadata.{where} of type string",
                )
            if where == "labels" and value and not (_NAME.match(value) and len(value) <= 63):
                why = LABEL_VALUE
                causes.append(wrong("metadata.labels", f'"{value}"', why))
    if resource.kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        causes += _selector_matches(obj)
    if causes:
        raise invalid(resource.kind, resource.group, metadata.get("name", ""), causes)


def _selector_matches(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    have = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not spec.get("selector"):
        return [required("spec.selector")]
    if any(have.get(key) != value for key, value in wanted.items()):
        text = ",".join(f'"{key}":"{value}"' for key, value in sorted(have.items()))
        why = "`selector` does not match template `labels`"
        return [wrong("spec.template.metadata.labels", f"{{{text}}}", why)]
    return []


def _is_int32(text: object) -> bool:
    # Leading "+" and zeros are refused, as strconv would not print them so.
    return (
        isinstance(text, str)
        and re.fullmatch(r"0|-?[1-9][0-9]*", text) is not None
        and -(2**31) <= int(text) < 2**31
    )


_MUTABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates",
            "nodeSelector", "affinity")  # fmt: skip


def check_pod_update(old: Object, new: Object, resource: Resource) -> None:
    """ApiError 422 where an update would change a field that a pod keeps for life."""

    def fixed(pod: Object) -> dict[str, Any]:
        spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in _MUTABLE}
        for name in ("containers", "initContainers"):
            kept = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(name) or ()]
            spec[name] = kept
        return spec

    if old.get("spec") != new.get("spec") and fixed(old) != fixed(new):
        why = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions "
            "to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
            "was previously negative)"
        )
        cause = Cause("FieldValueForbidden", f"Forbidden: {why}", "spec")
        raise invalid(resource.kind, resource.group, new["metadata"]["name"], [cause])
