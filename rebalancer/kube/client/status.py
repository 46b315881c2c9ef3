"""An HTTP answer other than 2xx → the error of the tree, with what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from rebalancer.kube.errors import Cause, KubeError, ResponseError, Target, status_class

_LONGEST_QUOTE = 200


class _Details(Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: float = 0


class _Meta(Struct, frozen=True):
    resume: str = msgspec.field(name="continue", default="")


class _Status(Struct, frozen=True, rename="camel"):
    """metav1.Status."""

    kind: str
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    metadata: _Meta = _Meta()


_DECODER = msgspec.json.Decoder(_Status)


def error_of(code: int, headers: Mapping[str, str], body: bytes, target: Target, *, who: str) -> KubeError:
    """The error that an answer means. `who` names server and context for the remedy."""
    try:
        status = _DECODER.decode(body)
    except msgspec.DecodeError:
        status = None
    retry_after = _seconds(headers.get("Retry-After"))
    if status is None or status.kind != "Status":
        if code == 404:
            # A path under a group or version that is not served is answered in plain text.
            return status_class(code)(
                f"{target}: not found: {quoted(body)}",
                _remedy(code, "", target, who),
                target=target,
                code=code,
            )
        if code in (401, 403, 429) or 300 <= code < 400:
            # Proxies and load balancers speak for themselves here; the request went no further.
            return status_class(code)(
                f"{target}: HTTP {code} and no Status in the answer: {quoted(body)}",
                f"something in front of the API server answered ({who}): look at proxies and load balancers",
                target=target,
                code=code,
                retry_after=retry_after,
            )
        return ResponseError(
            f"{target}: HTTP {code} with a body that no API server sends: {quoted(body)}",
            f"is {who} really an API server, with no proxy in between that answers for it?",
            target=target,
            code=code,
        )
    details = status.details or _Details()
    if retry_after is None and details.retry_after_seconds > 0:
        retry_after = details.retry_after_seconds
    text = status.message or status.reason or f"HTTP {code}"
    causes = "; ".join(c.message for c in details.causes if c.message and c.message not in text)
    return status_class(code)(
        f"{target}: {text}" + (f" ({causes})" if causes else ""),
        _remedy(
            code, text, target, who, by_budget=any(c.reason == "DisruptionBudget" for c in details.causes)
        ),
        target=target,
        code=code,
        reason=status.reason,
        text=text,
        causes=details.causes,
        kind=details.kind,
        retry_after=retry_after,
        resume=status.metadata.resume,
    )


def quoted(body: bytes) -> str:
    """The beginning of a body in one printable line."""
    text = " ".join(body[: _LONGEST_QUOTE * 2].decode("utf-8", "replace").split())
    return repr(text[:_LONGEST_QUOTE] + ("…" if len(text) > _LONGEST_QUOTE else "")) if text else "(empty)"


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; the API server never sends the form with a date."""
    return float(header) if header is not None and header.strip().isdigit() else None


def _remedy(code: int, text: str, target: Target, who: str, *, by_budget: bool = False) -> str:
    if code == 401:
        return f"the credentials for {who} are missing, wrong or expired, also after refreshing them once"
    if code == 403 and ("admission webhook" in text or "ValidatingAdmissionPolicy" in text):
        return "an admission policy of the cluster refuses it; RBAC does not change that"
    if code == 403 and target.resource is not None:
        # A Role is enough where the request was about one namespace.
        role = "a Role or ClusterRole" if target.namespace else "a ClusterRole"
        check = f"kubectl auth can-i {target.verb} {target.resource.qualified}"
        if target.subresource:
            check += f" --subresource={target.subresource}"
        check += f" -n {target.namespace}" if target.namespace else " --all-namespaces"
        return f"bind {role} with the rule {target.rule}; check with `{check}`"
    if code == 404 and target.resource is not None and not target.name:
        return f"the API {target.resource.group or 'core'}/{target.resource.version} is not served by {who}"
    if by_budget:
        return "the budget has to regain an allowance: more healthy pods, or a looser budget"
    if code == 429:
        return "the API server asks for patience; if it lasts, see its flow-control metrics"
    if code >= 500:
        return f"see the logs of the API server ({who})"
    return ""
