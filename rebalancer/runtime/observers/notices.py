"""Messages about a cycle that did something or is stuck, for webhooks and chats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.model.quantity import rfc3339
from rebalancer.model.reason import Reason, ReasonCode, clean, plural
from rebalancer.outcome import CycleReport, End, Fate, Observer, Outcome, Proposal
from rebalancer.report.text import duration

WEBHOOK, SLACK = "webhook", "slack"
_MOST_PODS = 100
_SHOWN_PODS = 10
_STUCK = frozenset({End.ABORTED, End.UNSTABLE, End.NO_PROGRESS})
_MEANT = frozenset(
    {
        *(ReasonCode.WINDOW, ReasonCode.PAUSED_BY_ANNOTATION, ReasonCode.EVICTIONS_DISABLED),
        *(ReasonCode.NOT_LEADING, ReasonCode.CYCLE_TIME, ReasonCode.STABILIZING, ReasonCode.STOPPING),
    }
)
"""Reasons that hold evictions back because somebody wants that, or for a moment: nobody is stuck."""


class PodNotice(Struct, frozen=True, rename="camel"):
    """A pod that was evicted, or whose eviction failed. `to`: the node of its replacement, "" if none was
    seen."""

    namespace: str
    pod: str
    source: str = field(name="from")
    to: str
    status: str
    message: str


class CycleNotice(Struct, frozen=True, rename="camel", kw_only=True):
    """The JSON document about one cycle.

    `end`: why the cycle ended, `error`, or `proposed`: a plan waits for approval. `stuck`: something has to
    be done about it by a person; `over`: the cycle before was stuck, and this one is not. `excess_after`:
    None where the cycle ended before it was counted again. `pods`: the first hundred. `text`: all of it in a
    sentence.
    """

    api_version: str = "rebalancer/v1"
    kind: str = "CycleNotice"
    cluster: str
    at: str
    end: str
    message: str
    reason: str = ""
    remedy: str = ""
    stuck: bool = False
    over: bool = False
    evicted: int = 0
    failed: int = 0
    seconds: float = 0.0
    excess_before: int | None = None
    excess_after: int | None = None
    pods: tuple[PodNotice, ...] = ()
    text: str = ""


class NoticeObserver(Observer):
    """Makes notices, and gives each to `send` with the receiver's name. `templates`: by receiver."""

    def __init__(
        self,
        send: Callable[[str, bytes], None],
        *,
        cluster: str = "",
        templates: dict[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._cluster = cluster or "cluster"
        self.templates = templates or {}
        self._now = now
        self._stuck: tuple[str, str] | None = None

    def on_report(self, report: CycleReport) -> None:
        stuck = (report.end.value, _code(report.reason)) if _is_stuck(report) else None
        moved = [o for o in report.outcomes if o.evicted or o.status is Fate.FAILED]
        before, self._stuck = self._stuck, stuck
        if not moved and stuck == before:
            return
        first, last = report.first, report.last
        counted_again = last is not None and report.end in (End.COMPLETE, End.WAITING)
        self._tell(
            CycleNotice(
                cluster=self._cluster,
                at=self._at(),
                end=report.end.value,
                message=report.message,
                reason=_code(report.reason),
                remedy=report.reason.remedy if report.reason is not None else "",
                stuck=stuck is not None,
                over=before is not None and stuck is None,
                evicted=report.evicted,
                failed=report.failed,
                seconds=round(report.seconds, 1),
                excess_before=first.excess if first is not None else None,
                excess_after=last.excess if last is not None and counted_again else None,
                pods=tuple(map(_pod, moved[:_MOST_PODS])),
            )
        )

    def on_proposal(self, proposal: Proposal) -> None:
        say = f"{plural(proposal.evictions, 'eviction')} wait for approval: {proposal.command}"
        self._tell(CycleNotice(cluster=self._cluster, at=self._at(), end="proposed", message=say))

    def on_error(self, error: Exception) -> None:
        stuck = ("error", type(error).__name__)
        before, self._stuck = self._stuck, stuck
        if stuck != before:
            known = isinstance(error, UserError)
            message = str(error) if known else f"a bug: {type(error).__name__}; see the log"
            self._tell(
                CycleNotice(cluster=self._cluster, at=self._at(), end="error", message=message, stuck=True)
            )

    def _at(self) -> str:
        return rfc3339(self._now())

    def _tell(self, notice: CycleNotice) -> None:
        notice = replace(notice, text=say(notice))
        document = to_builtins(notice)
        template = self.templates.get(WEBHOOK, "")
        body = rendered(template, document) if template else json.dumps(document, ensure_ascii=False)
        self._send(WEBHOOK, body.encode())
        template = self.templates.get(SLACK, "")
        text = rendered(template, document) if template else slack_text(notice)
        self._send(SLACK, json.dumps({"text": text}, ensure_ascii=False).encode())


def say(n: CycleNotice) -> str:
    """The verdict in a sentence."""
    parts = []
    if n.evicted:
        parts.append(f"{plural(n.evicted, 'pod')} evicted in {duration(n.seconds)}")
    if n.failed:
        parts.append(f"{n.failed} failed")
    if n.excess_before is not None and n.excess_after is not None and n.evicted:
        parts.append(f"excess {n.excess_before} → {n.excess_after}")
    if n.stuck:
        parts.append(f"stuck: {n.message}" + (f"; {n.remedy}" if n.remedy else ""))
    elif n.over:
        parts.append("no longer stuck")
    return clean(f"{n.cluster}: {', '.join(parts) or n.message}")


def slack_text(n: CycleNotice) -> str:
    """The verdict, and a line for each of the first pods, in Slack's own markup."""
    lines = [f"*{_escaped(n.text)}*"]
    for p in n.pods[:_SHOWN_PODS]:
        where = f"{p.source} → {p.to}" if p.to else f"from {p.source}"
        what = "" if p.status == "done" else f" ({p.status}: {p.message})"
        lines.append(_escaped(clean(f"• {p.namespace}/{p.pod}: {where}{what}")))
    if (more := n.evicted + n.failed - min(len(n.pods), _SHOWN_PODS)) > 0 and len(n.pods) > _SHOWN_PODS:
        lines.append(f"… and {more} more")
    return "\n".join(lines)


def rendered(template: str, document: dict[str, Any]) -> str:
    """A template over the document; what is wrong with it becomes its text."""
    from jinja2 import TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    try:
        return SandboxedEnvironment().from_string(template).render(document)
    except (TemplateError, TypeError, ArithmeticError, LookupError) as e:
        return f"{document['text']} (the template of this message fails: {e})"


def _is_stuck(report: CycleReport) -> bool:
    if report.end is End.HELD:
        return report.reason is None or report.reason.code not in _MEANT
    return report.end in _STUCK


def _code(reason: Reason | None) -> str:
    return reason.code.value if reason is not None else ""


def _pod(o: Outcome) -> PodNotice:
    pod = o.move.pod
    return PodNotice(pod.namespace, pod.name, pod.node_name, o.node, o.status.value, o.message)


def _escaped(text: str) -> str:
    """Slack's own three: nothing in a name becomes a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
