"""Everything that can go wrong with the API server, as one tree.

    KubeError                     message, remedy: a UserError, fit for the terminal
    ├── ConfigurationError        kubeconfig, context, credentials plugin, token file; nothing was sent
    ├── CacheNotReadyError        the watch cache is incomplete or stale; `kinds` says of what
    ├── TransportError            no answer; `sent` tells whether the server may have acted on the request
    ├── ResponseError             an answer that is not the API's (garbage, a proxy's page); it may have acted
    └── StatusError               an answer that refuses: code, reason, causes, retry_after
        ├── UnauthorizedError     401; credentials have been refreshed once
        ├── ForbiddenError        403: RBAC, or an admission webhook
        ├── NotFoundError         404
        ├── ConflictError         409
        ├── ExpiredError          410: a continue token or resource version is too old
        ├── TooManyRequestsError  429: flow control, or a disruption budget
        └── ServerError           5xx

What was caught is chained as `__cause__`. Every error knows its `target`, what was asked of which object.
"""

from __future__ import annotations

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.kube.resources import Resource


class Target(Struct, frozen=True):
    """What was asked: RBAC's verb on a resource, perhaps one object of it; `say` for requests without one."""

    verb: str
    resource: Resource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    say: str = ""

    @property
    def plural(self) -> str:
        """The resource as RBAC rules write it: pods/eviction."""
        plural = self.resource.plural if self.resource else ""
        return f"{plural}/{self.subresource}" if self.subresource else plural

    def __str__(self) -> str:
        """create pods/eviction shop/web-1."""
        if self.say:
            return self.say
        place = "/".join(p for p in (self.namespace, self.name) if p)
        return f"{self.verb} {self.plural}" + (f" {place}" if place else "")

    @property
    def rule(self) -> str:
        """The RBAC rule that allows it, as one line of YAML."""
        group = self.resource.group if self.resource else ""
        return f'{{apiGroups: ["{group}"], resources: ["{self.plural}"], verbs: ["{self.verb}"]}}'


class Cause(Struct, frozen=True):
    """One of `details.causes` of a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


PROXY = "is there a proxy that answers for the API server?"
"""What may be behind an answer that cannot be the API server's."""


class KubeError(UserError):
    """Root of the tree."""

    def __init__(self, message: str, remedy: str = "", *, target: Target | None = None) -> None:
        super().__init__(message, remedy)
        self.target = target


class ConfigurationError(KubeError):
    """No usable way to reach a cluster; nothing was sent."""


class CacheNotReadyError(KubeError):
    """The watch cache does not know the cluster well enough for a decision: `kinds` are missing or stale."""

    def __init__(self, message: str, remedy: str = "", *, kinds: tuple[str, ...]) -> None:
        super().__init__(message, remedy)
        self.kinds = kinds


class TransportError(KubeError):
    """No answer. `sent`: the request may have reached the server, which may have acted on it. `ended`: the
    other side ended the connection; otherwise it was silent, and may be at work still. `lasting`: it does not
    pass by itself, such as a name that does not resolve or a certificate that is not trusted."""

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        target: Target | None = None,
        sent: bool,
        ended: bool = False,
        lasting: bool = False,
    ) -> None:
        super().__init__(message, remedy, target=target)
        self.sent = sent
        self.ended = ended
        self.lasting = lasting


class ResponseError(KubeError):
    """An answer that cannot be read, or does not come from an API server. `code` is its HTTP status."""

    def __init__(self, message: str, remedy: str = "", *, target: Target | None = None, code: int) -> None:
        super().__init__(message, remedy, target=target)
        self.code = code


class StatusError(KubeError):
    """The API server refused.

    `code` HTTP status, `reason` and `text` of the Status, `causes` its details, `kind` of `details` (the
    plural of what was missing or in conflict), `retry_after` seconds to wait or None where the server names
    none, `resume` the continue token that an expired list offers.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        target: Target | None = None,
        code: int,
        reason: str = "",
        text: str = "",
        causes: tuple[Cause, ...] = (),
        kind: str = "",
        retry_after: float | None = None,
        resume: str = "",
    ) -> None:
        super().__init__(message, remedy, target=target)
        self.code = code
        self.reason = reason
        self.text = text
        self.causes = causes
        self.kind = kind
        self.retry_after = retry_after
        self.resume = resume

    @property
    def from_budget(self) -> bool:
        """Whether a PodDisruptionBudget is what refused."""
        return any(c.reason == "DisruptionBudget" for c in self.causes)


class UnauthorizedError(StatusError):
    """401."""


class ForbiddenError(StatusError):
    """403."""

    @property
    def by_webhook(self) -> bool:
        """Whether an admission webhook or policy refused, which no RBAC rule changes."""
        return "admission webhook" in self.text or "ValidatingAdmissionPolicy" in self.text


class NotFoundError(StatusError):
    """404: no such object, or no such API (`kind` is empty then)."""


class ConflictError(StatusError):
    """409."""


class ExpiredError(StatusError):
    """410."""


class TooManyRequestsError(StatusError):
    """429."""


class ServerError(StatusError):
    """5xx."""


def status_class(code: int) -> type[StatusError]:
    """The class of the tree for an HTTP status."""
    if code >= 500:
        return ServerError
    return _CLASSES.get(code, StatusError)


_CLASSES: dict[int, type[StatusError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    429: TooManyRequestsError,
}
