"""What an API server refuses of requests that are not well-formed, in its words.

No command of the project sends any of this to its embedded cluster: it is there to catch mistakes of clients.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping

import yaml

from rebalancer.model.pod import DELETION_COST
from rebalancer.sandbox import handlers, listing
from rebalancer.sandbox.handlers import Answer, Call, media, stored, unsupported
from rebalancer.sandbox.objects import ALIASES, FIELD_TEST, Object, to_core
from rebalancer.sandbox.resources import EVENTS, ApiError, Cause, Resource, bad_request, invalid

MEDIA = ("application/json", "application/yaml")
_SHOWN = 30  # bytes of a bad body that the message repeats


def required(field: str) -> Cause:
    return Cause("FieldValueRequired", "Required value", field)


def wrong(field: str, value: str, why: str) -> Cause:
    """`value` as Go prints it: strings quoted, numbers bare."""
    return Cause("FieldValueInvalid", f"Invalid value: {value}: {why}", field)


# Bodies in JSON or YAML.


def read_body(call: Call, kind: str = "") -> Object:
    """The body, which from here on is JSON; ApiError 400 for what is none, 415 for other media (protobuf)."""
    kind = kind or call.resource.kind
    if media(call.content_type) not in MEDIA:
        raise unsupported(MEDIA)
    try:
        if media(call.content_type) == "application/yaml":
            body = yaml.safe_load(call.body)
            call.body = json.dumps(body).encode()
        else:
            body = json.loads(call.body)
    except yaml.YAMLError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from None
    except ValueError as error:
        raise bad_request(_unrecognized(call.body, kind, error)) from None
    if not isinstance(body, dict):
        raise bad_request(_unrecognized(call.body, kind, ValueError("not an object")))
    return body


def _unrecognized(data: bytes, kind: str, error: ValueError) -> str:
    text = data.decode(errors="replace")
    at = int(getattr(error, "pos", 0))
    if at >= len(text.rstrip()):
        why = "unexpected end of JSON input"
    else:
        why = f"invalid character {text[at]!r} looking for beginning of value"
    if not data:
        seen = "<empty>"
    elif data.startswith(b"{"):
        seen = text if len(data) <= _SHOWN else text[:_SHOWN] + " ..."
    else:
        seen = data[:_SHOWN].hex() + (" ..." if len(data) > _SHOWN else "")
    return (
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {why} ({seen})"
    )


def check_kind(body: Object, resource: Resource) -> None:
    """ApiError 400 where the body says it is something else; it may say nothing."""
    version, kind = body.get("apiVersion"), body.get("kind")
    if version and version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if kind and kind != resource.kind:
        raise bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: converting '
            f"(v1.{kind}) to (core.{resource.kind}): unknown conversion"
        )


def check_place(body: Object, name: str, namespace: str) -> None:
    """ApiError 400 where the body's name or namespace is not the URL's; fills both in."""
    metadata = body.setdefault("metadata", {})
    if name and metadata.get("name") != name:
        if not metadata.get("name"):
            metadata["name"] = name
        else:
            raise bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
            )
    if namespace and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


# The verbs.

# AllowCreateOnUpdate of their strategies.
_PUT_CREATES = frozenset({"Event"})
# Not AllowUnconditionalUpdate: a PUT must say which version it replaces.
_CONDITIONAL = frozenset({"Lease"})


def create(call: Call) -> Answer:
    """POST. Raises ApiError."""
    match call.target.subresource:
        case "eviction":
            if (kind := read_body(call, "Eviction").get("kind", "Eviction")) != "Eviction":
                raise bad_request(f"not a Eviction object: {kind}")
        case "binding":
            read_body(call, "Binding")
        case _:
            obj = read_body(call)
            check_kind(obj, call.resource)
            check_place(obj, "", call.namespace or "")
            check_new(obj, call.resource)
    return handlers.VERBS["create"](call)


def update(call: Call) -> Answer:
    """PUT. Raises ApiError."""
    obj, resource = read_body(call), call.resource
    check_kind(obj, resource)
    check_place(obj, call.name, call.namespace or "")
    if resource.kind in _CONDITIONAL and not obj["metadata"].get("resourceVersion"):
        call.store.record(resource, call.name, call.namespace)
        cause = wrong("metadata.resourceVersion", "0", "must be specified for an update")
        raise invalid(resource.plural, resource.group, call.name, [cause])
    if resource.kind in _PUT_CREATES and not call.target.subresource:
        with call.store.lock:
            if call.store.find(resource, call.name, call.namespace) is None:
                obj["metadata"].pop("resourceVersion", None)
                space, dry = call.namespace, call.dry_run
                made = call.store.create(obj, namespace=space, resource=resource, dry_run=dry)
                return stored(call, 201, made)
    if not call.target.subresource:
        validate(obj, resource)
    call.body = json.dumps(obj).encode()
    return handlers.VERBS["update"](call)


def delete(call: Call) -> Answer:
    """DELETE. Raises ApiError."""
    if call.body.strip():
        read_body(call, "DeleteOptions")
    return handlers.VERBS["delete"](call)


def list_(call: Call) -> Answer:
    """GET of many. Raises ApiError."""
    check_options(call.query, call.resource)
    return handlers.VERBS["list"](call)


# Options of lists and watches.


def check_options(query: Mapping[str, str], resource: Resource) -> None:
    """ApiError 400 or 422 for options that do not parse or do not go together."""
    version = query.get("resourceVersion") or ""
    if version and not version.isdigit():
        why = f'Invalid value: "{version}": invalid resource version'
        cause = Cause("FieldValueInvalid", why, "resourceVersion")
        raise invalid("ListOptions", "meta.k8s.io", "", [cause])
    for name in ("limit", "timeoutSeconds"):
        text = query.get(name) or "0"
        try:
            int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    _check_fields(query.get("fieldSelector") or "", resource)
    options = listing.parse(query, resource)
    if problems := _problems(options):
        raise invalid("ListOptions", "meta.k8s.io", "", problems)
    if options.token:
        _check_token(options.token)


def _problems(options: listing.Options) -> list[Cause]:
    """ValidateListOptions of apimachinery."""
    found: list[tuple[str, str]] = []
    match, field = options.match, "resourceVersionMatch"
    if options.watch:
        if options.initial_events is not None:
            if match != "NotOlderThan":
                found.append(
                    (field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
                )
        elif match:
            found.append(
                (field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
            )
    else:
        if match:
            if options.version is None:
                found.append((field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
            if options.token:
                found.append((field, "resourceVersionMatch is forbidden for continue"))
            if match == "Exact" and options.version == 0:
                found.append((field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
        if options.initial_events is not None:
            found.append(("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    causes = [Cause("FieldValueForbidden", f"Forbidden: {why}", where) for where, why in found]
    if match not in ("", "Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        causes.append(Cause("FieldValueNotSupported", why, field))
    return causes


def _check_token(text: str) -> None:
    bad = "invalid continue token: continue key is not valid: "
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise bad_request(f"{bad}illegal base64 data at input byte {len(text)}") from None
    try:
        data = json.loads(raw)
        int(data["rv"]), str(data["start"])
    except (ValueError, KeyError, TypeError):
        first = f"\\x{raw[0]:02x}" if raw and raw[0] >= 0x80 else chr(raw[0]) if raw else ""
        raise bad_request(f"{bad}invalid character '{first}' looking for beginning of value") from None


_EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
    "reason", "reportingComponent", "source", "type",
)  # fmt: skip
# What each kind supports beside metadata.name and metadata.namespace (pkg/apis/*/v1/conversion.go).
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
             "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": _EVENT_FIELDS,
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicationcontrollers": ("status.replicas",),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
}  # fmt: skip


def _check_fields(text: str, resource: Resource) -> None:
    """ApiError 400 for a field that the kind does not index."""
    supported = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.storage, ()))
    for match in filter(None, (FIELD_TEST.match(part.strip()) for part in text.split(","))):
        label = ALIASES.get(match[1], match[1]) if resource.plural == "events" else match[1]
        if label not in supported:
            if resource.storage in _FIELDS:
                raise bad_request(f"field label not supported: {label}")
            only = 'only "metadata.name", "metadata.namespace"'
            raise bad_request(f'"{label}" is not a known field selector: {only}')


# Objects, as far as callers of this project could get them wrong.

DNS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation "
    "is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


def check_new(obj: Object, resource: Resource) -> None:
    """ApiError 422 or 500 for an object that the server would not create."""
    metadata = obj["metadata"]
    _check_name(resource, metadata)
    if metadata.get("resourceVersion"):
        why = "resourceVersion should not be set on objects to be created"
        details = {"causes": [{"message": why}]}
        raise ApiError(500, "InternalError", f"Internal error occurred: {why}", details)
    validate(obj, resource)
    if resource.storage == EVENTS.storage:
        space = metadata.get("namespace", "default")
        if causes := event_problems(to_core(obj), space, new_api=bool(resource.group)):
            raise invalid("Event", "", _name(metadata), causes)


def is_subdomain(name: str) -> bool:
    return len(name) <= 253 and all(
        part
        and part[0].isalnum()
        and part[-1].isalnum()
        and all(c in "-abcdefghijklmnopqrstuvwxyz0123456789" for c in part)
        for part in name.split(".")
    )


def _name(metadata: Object) -> str:
    """A generated one ends in five characters of the server's choice."""
    return str(metadata.get("name") or f"{metadata['generateName'][:58]}xxxxx")


def _check_name(resource: Resource, metadata: Object) -> None:
    generate = metadata.get("generateName", "")
    if not metadata.get("name") and not generate:
        what = required("metadata.name")
        raise invalid(
            resource.kind,
            resource.group,
            "",
            [Cause(what.reason, "Required value: name or generateName is required", what.field)],
        )
    name = _name(metadata)
    if is_subdomain(name) or resource.group == "rbac.authorization.k8s.io":
        return
    causes = [wrong("metadata.name", f'"{name}"', DNS_SUBDOMAIN)]
    if generate and not is_subdomain(generate + "x"):
        causes.insert(0, wrong("metadata.generateName", f'"{generate}"', DNS_SUBDOMAIN))
    raise invalid(resource.kind, resource.group, name, causes)


def validate(obj: Object, resource: Resource) -> None:
    """What clients of the rebalancer can get wrong; ApiError 422 with the server's causes."""
    if resource.storage == EVENTS.storage:
        return
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
                causes.append(wrong("metadata.labels", f'"{value}"', LABEL_VALUE))
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


def event_problems(event: Object, namespace: str, *, new_api: bool) -> list[Cause]:
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
        for shown, stored_as, most in (("action", "action", 128), ("reason", "reason", 128),
                                       ("message", "message", 1024)):  # fmt: skip
            if len(event.get(stored_as) or "") > most:
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
    for shown, stored_as in (("firstTimestamp", "firstTimestamp"), ("lastTimestamp", "lastTimestamp"),
                             ("count", "count"), ("source", "source")):  # fmt: skip
        if event.get(stored_as):
            causes.append(wrong(shown, '""', "needs to be unset"))
    return causes


VERBS: Mapping[str, handlers.Handler] = {
    **handlers.VERBS,
    "list": list_,
    "create": create,
    "update": update,
    "delete": delete,
}
