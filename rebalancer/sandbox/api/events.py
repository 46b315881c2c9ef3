"""The two shapes of an Event: core v1, in which it is stored, and events.k8s.io/v1."""

from __future__ import annotations

from rebalancer.sandbox.api.errors import Cause
from rebalancer.sandbox.api.objects import DNS_SUBDOMAIN, Object, is_subdomain, required, wrong

_CORE_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE = {new: core for core, new in _CORE_TO_NEW.items()}
_ZERO: Object = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}


def to_core(event: Object) -> Object:
    """From either shape to the stored one, with the fields that Go always writes."""
    renamed = {_NEW_TO_CORE.get(key, key): value for key, value in event.items()}
    involved = renamed.setdefault("involvedObject", {})
    if involved and "apiVersion" not in involved and involved.get("kind") == "Pod":
        involved["apiVersion"] = "v1"
    return {**_ZERO, **renamed, "apiVersion": "v1", "kind": "Event"}


def to_new(event: Object) -> Object:
    """From the stored shape to events.k8s.io/v1."""
    renamed = {_CORE_TO_NEW.get(key, key): value for key, value in event.items()}
    for empty in ("reportingController", "reportingInstance"):
        if not renamed.get(empty):
            renamed.pop(empty, None)
    return {**renamed, "apiVersion": "events.k8s.io/v1", "kind": "Event"}


def problems(event: Object, namespace: str, *, new_api: bool) -> list[Cause]:
    """What is wrong with a new event in core shape (pkg/apis/core/validation/events.go).

    Through events.k8s.io the rules are stricter than through the core group.
    """
    causes: list[Cause] = []
    metadata = event["metadata"]
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    mismatch = wrong("involvedObject.namespace", f'"{involved}"', "does not match event.namespace")
    if not event.get("eventTime"):
        if involved != namespace and (involved or namespace != "default"):
            causes.append(mismatch)
    else:
        foreign = involved != namespace if involved else namespace not in ("default", "kube-system")
        if foreign:
            causes.append(mismatch)
        controller = "reportingController" if new_api else "reportingComponent"
        fields = ((controller, "reportingComponent"), ("reportingInstance", "reportingInstance"),
                  ("action", "action"), ("reason", "reason"))  # fmt: skip
        causes += [required(shown) for shown, stored in fields if not event.get(stored)]
        for shown, stored, most in (("action", "action", 128), ("reason", "reason", 128),
                                    ("message", "message", 1024)):  # fmt: skip
            if len(event.get(stored) or "") > most:
                causes.append(wrong(shown, '""', f"can have at most {most} characters"))
    if not new_api:
        return causes
    generate = metadata.get("generateName", "")
    if generate and not is_subdomain(generate.removesuffix("-")):
        causes.append(wrong("metadata.generateName", f'"{generate}"', DNS_SUBDOMAIN))
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    if (kind := event.get("type") or "") not in ("Normal", "Warning"):
        causes.append(wrong("type", '""', f"has invalid value: {kind}"))
    for shown, stored in (("firstTimestamp", "firstTimestamp"), ("lastTimestamp", "lastTimestamp"),
                          ("count", "count"), ("source", "source")):  # fmt: skip
        if event.get(stored):
            causes.append(wrong(shown, '""', "needs to be unset"))
    return causes
