"""What the API refuses, as the `Status` object that a client reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rebalancer.sandbox.api.resources import Resource


class Cause(NamedTuple):
    """One line of `details.causes`; `field` is empty where the server gives none."""

    reason: str
    message: str
    field: str = ""


class ApiError(Exception):
    """A refusal: HTTP `code`, machine `reason`, `message`, `details`, and perhaps seconds to wait.

    `metadata` is that of the Status (an expired list carries its next token there).
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        retry_after: int = 0,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.metadata = metadata or {}

    def status(self) -> dict[str, Any]:
        """The body; key order as Go writes it, so that logs of both compare."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = dict(self.details) if self.details is not None else None
        if self.retry_after:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after}
        if details is not None:
            body["details"] = details
        body["code"] = self.code
        return body


def success(code: int | None = None, details: dict[str, Any] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    if code is not None:
        body["code"] = code
    return body


def _details(resource: Resource, name: str, kind: str | None = None) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details


def _with_group(word: str, group: str) -> str:
    return f"{word}.{group}" if group else word


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def unknown_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def modified(resource: Resource, name: str) -> ApiError:
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def conflict(resource: Resource, name: str, why: str, *, by_kind: bool = False, sub: str = "") -> ApiError:
    """409. Preconditions of a deletion name the kind where all else names the resource."""
    word = resource.kind if by_kind else resource.plural + (f"/{sub}" if sub else "")
    message = f'Operation cannot be fulfilled on {_with_group(word, resource.group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name, word))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def method_not_allowed(resource: Resource, what: str) -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {"kind": what or resource.plural})


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(resource, name))


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with one cause per broken field; like the server, the message says each thing once."""
    lines = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    said = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    message = f'{_with_group(kind, group)} "{name}" is invalid: {said}'
    return ApiError(422, "Invalid", message, details)


def too_many_requests(message: str, cause: Cause, retry_after: int = 0) -> ApiError:
    causes = [{"reason": cause.reason, "message": cause.message}]
    return ApiError(429, "TooManyRequests", message, {"causes": causes}, retry_after=retry_after)


def too_large_version(wanted: int, current: int) -> ApiError:
    """What a list gets that asks for a version which has not happened yet."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after=1,
    )


def expired(message: str, token: str = "") -> ApiError:
    return ApiError(410, "Expired", message, metadata={"continue": token} if token else None)


def watch_too_old(wanted: int, oldest: int) -> ApiError:
    return expired(f"too old resource version: {wanted} ({oldest})")
