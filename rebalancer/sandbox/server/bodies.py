"""Request bodies in JSON or YAML. Refusals have the API server's wording."""

from __future__ import annotations

import json
from typing import Any

import yaml

from rebalancer.sandbox.api.errors import ApiError, bad_request
from rebalancer.sandbox.api.resources import Resource

MEDIA = ("application/json", "application/yaml")
_SHOWN = 30  # bytes of a bad body that the message repeats


def media(content_type: str) -> str:
    return content_type.split(";")[0].strip() or "application/json"


def unsupported(accepted: tuple[str, ...]) -> ApiError:
    words = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {words}"
    return ApiError(415, "UnsupportedMediaType", message, {})


def decoded(data: bytes, content_type: str, kind: str) -> dict[str, Any]:
    """An object; ApiError 400 for what is none, 415 for other media (protobuf among them)."""
    kind_of_body = media(content_type)
    if kind_of_body not in MEDIA:
        raise unsupported(MEDIA)
    try:
        body = yaml.safe_load(data) if kind_of_body == "application/yaml" else json.loads(data)
    except yaml.YAMLError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from None
    except ValueError as error:
        raise bad_request(_unrecognized(data, kind, error)) from None
    if not isinstance(body, dict):
        raise bad_request(_unrecognized(data, kind, ValueError("not an object")))
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


def check_kind(body: dict[str, Any], resource: Resource) -> None:
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


def check_place(body: dict[str, Any], name: str, namespace: str) -> None:
    """ApiError 400 where the body's name or namespace is not the URL's; fills in the namespace."""
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
