"""Annotations by which people forbid, allow or prefer evictions, on a pod, its owner or its namespace."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from math import inf

from msgspec import Struct

from rebalancer.model.node import DO_NOT_DISRUPT
from rebalancer.model.pod import ROOM
from rebalancer.model.quantity import epoch, rfc3339
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.policy import release

EVICT = "rebalancer.io/evict"
"""On a pod, its owner or its namespace: "true" (or "prefer") allows evictions, "false" (or "never") forbids
them, whatever else says yes, and so does what is none of its words. As a label, and on a node for its pods,
it can only forbid."""
PREFER = "prefer"
"""Value of EVICT that makes a pod the first choice among equals."""
REFUSE = "avoid"
"""Value of EVICT that makes a pod the last choice among equals, without forbidding it."""
PAUSE = "rebalancer.io/pause"
"""On a namespace: no evictions there. On the brake, a ConfigMap: no evictions anywhere. The value is the end
of the pause (RFC 3339), any text that says why, or both: "2026-12-01T08:00:00Z we look". "" and "false" mean
no pause."""
PAUSE_DOMAIN = "rebalancer.io/pause-domain"
"""What the annotations of the brake begin with that take single domains out: a domain as key=value, then as
in PAUSE."""
FOR_RUN = "rebalancer.io/for-run"
"""On a brake that one run made for itself where nothing was installed: which. It removes it at its end."""
SCALE_IN = "rebalancer.io/scale-in"
"""On a Deployment, a ReplicaSet or a namespace: "spread" has its scale-ins steered, "off" has them not."""
METHOD = "rebalancer.io/method"
"""On a Deployment or a ReplicaSet: how its pods are moved, in the words of `evictions.method`. "replaceFirst"
also says that the workload bears a pod too many; what is none of them forbids evictions."""
ROLLOUTS = "rebalancer.io/rollouts"
"""A label of namespaces, by which the policies of `deploy/prevention` choose them."""

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""On a pod: names of its volumes, with commas between them, whose data may be lost."""
DO_NOT_EVICT = "karpenter.sh/do-not-evict"
"""Karpenter's older key."""
DESCHEDULER_EVICT = "descheduler.alpha.kubernetes.io/evict"
BEING_EVICTED = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""On a pod that a controller moves because its eviction was asked for, which it answered with a refusal: pods
of its kind have `request-evict-only` too. It is taken away where that has failed; its value says nothing."""
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"


class Words(Struct, frozen=True):
    """What the values of one annotation mean, upper and lower case alike. `tool`: whose it is; "" = ours.
    A value that is none of them forbids: whoever wrote it wanted something, and it may have been a no.
    `read`: the kinds on which the words say something; empty: on all."""

    key: str
    tool: str = ""
    allow: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    nothing: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    def says(self, value: str) -> bool | None:
        """Whether the value allows or forbids; None if it says nothing."""
        word = value.strip().lower()
        return True if word in self.allow else None if word in self.nothing else False

    def clear(self, value: str) -> bool:
        """Whether the value is one of the words."""
        return value.strip().lower() in (*self.allow, *self.forbid, *self.nothing)

    @property
    def known(self) -> str:
        """The words, for people."""
        return ", ".join(w or repr(w) for w in (*self.allow, *self.forbid, *self.nothing))


EVICT_WORDS = Words(
    EVICT, "", allow=("true", PREFER, "allow"), forbid=("false", "never", "deny"), nothing=(REFUSE,)
)
METHOD_WORDS = Words(METHOD, nothing=("replacefirst", "auto", "evict"), read=("Deployment", "ReplicaSet"))
EVICTION_WORDS = (
    # Another way of moving says neither yes nor no, but one that nobody knows was meant to protect.
    METHOD_WORDS,
    EVICT_WORDS,
    Words(SAFE_TO_EVICT, "cluster-autoscaler", forbid=("false",), nothing=("true",)),
    Words(DO_NOT_DISRUPT, "karpenter", forbid=("true",), nothing=("false",)),
    Words(DO_NOT_EVICT, "karpenter", forbid=("true",), nothing=("false",)),
    # The descheduler asks only whether its two keys are there. What a "false" is meant to say is plain.
    Words(PREFER_NO_EVICTION, "descheduler", forbid=("true", ""), nothing=("false",)),
    Words(DESCHEDULER_EVICT, "descheduler", allow=("true", ""), forbid=("false",)),
)
"""What is said of evictions, in order of precedence."""
_PREFIX = "rebalancer.io/"
_LABELS = frozenset({ROOM, ROLLOUTS})
_OURS = frozenset({EVICT, PAUSE, SCALE_IN, METHOD, release.MARK, release.COST_BEFORE})
SCALE_IN_WORDS = Words(
    SCALE_IN,
    allow=("spread", "true"),
    forbid=("off", "false"),
    read=("Deployment", "ReplicaSet", "Namespace"),
)
_EVERY_WORDS = (*EVICTION_WORDS, SCALE_IN_WORDS)
_READ = frozenset(words.key for words in _EVERY_WORDS)

_WITHOUT_DATA = 'kubectl patch {} --type=merge -p \'{{"data":null,"binaryData":null}}\''

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def own_verdict(
    annotations: Mapping[str, str], labels: Mapping[str, str], *, pausable: bool = False
) -> tuple[bool, str] | None:
    """As `verdict`, by our own keys. What is written as a label, or a pause where none is read, was meant: it
    forbids. `pausable`: a namespace, whose annotation PAUSE is read elsewhere."""
    for where, written in (("the label ", labels), ("", annotations)):
        said = written.get(PAUSE, "").strip().lower() if where or not pausable else ""
        if said not in ("", "false"):
            return False, f"{where}{PAUSE}={said[:200]}, which counts as a no"
    if EVICT in labels and not EVICT_WORDS.says(labels[EVICT]):
        return False, f"the label {EVICT}={labels[EVICT][:200]}, which counts as a no"
    return verdict(annotations, ())


def misplaced(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[str]:
    """What is written under a key of ours that is none, or as a label, in words."""
    for key in labels:
        if key.startswith(_PREFIX) and key not in _LABELS:
            yield f"{key} is a label; what it is to say has to be an annotation"
    for key in annotations:
        if key.startswith(_PREFIX) and key not in _OURS:
            yield f"{key} is no annotation of this tool, and says nothing"


def verdict(annotations: Mapping[str, str], foreign: tuple[str, ...]) -> tuple[bool, str] | None:
    """(whether evicting is allowed, the annotation that says so), or None if no annotation is about it.

    `foreign`: the other tools whose annotations are obeyed. `EVICT` has precedence over all of theirs.
    """
    for words, value in _written(annotations, foreign, EVICTION_WORDS):
        said = words.says(value)
        if said is not None:
            doubt = "" if words.clear(value) else f", which is none of {words.known} and counts as a no"
            return said, f"{words.key}={value[:200]}{doubt}"
    return None


def unclear(
    annotations: Mapping[str, str], foreign: tuple[str, ...], kind: str
) -> Iterator[tuple[Words, str]]:
    """Annotations whose value is no word that is known, or that say nothing on this kind, with the value."""
    for words, value in _written(annotations, foreign, _EVERY_WORDS):
        if not words.clear(value) or (words.read and kind not in words.read):
            yield words, value


def _written(
    annotations: Mapping[str, str], foreign: tuple[str, ...], which: tuple[Words, ...]
) -> Iterator[tuple[Words, str]]:
    for words in which if not _READ.isdisjoint(annotations) else ():
        if (not words.tool or words.tool in foreign) and (value := annotations.get(words.key)) is not None:
            yield words, value


def preference(annotations: Mapping[str, str]) -> int:
    """-1 if the pod is preferred as a victim, 1 if it should rather not be one, else 0."""
    value = annotations.get(EVICT, "").strip().lower()
    return -1 if value == PREFER else 1 if value == REFUSE else 0


ANY_PAUSE = "true"
"""The value of a pause for which nobody gave a reason or an end."""


def pause_value(until: float | None, reason: str) -> str:
    """The value of `PAUSE` for a pause that ends at `until` (epoch seconds), or that somebody has to end."""
    if until is None:
        # A reason that would read as a time, or as the word for no pause, must not end the pause.
        reads = _time(reason) is not None or reason.lower() == "false"
        return f"paused: {reason}" if reads else reason or ANY_PAUSE
    return f"{rfc3339(until)} {reason}".strip()


def pauses_until(said: str) -> float:
    """When the pause of such a value ends, in epoch seconds; infinity: somebody has to end it; 0: it is none.

    A value that does not begin with a valid time pauses as well: somebody wanted a pause.
    """
    if said.strip().lower() in ("", "false"):
        return 0.0
    until = _time(said)
    return inf if until is None else until


def paused(what: str, annotations: Mapping[str, str], now: float, remedy: str = "") -> Reason | None:
    """Why nothing may be evicted under the object `what` with these annotations; None without a pause."""
    said = annotations.get(PAUSE, "").strip()
    until = pauses_until(said)
    if until <= now:
        return None
    numbers = {"until": int(until)} if until < inf else {}
    return Reason(
        ReasonCode.PAUSED_BY_ANNOTATION,
        f"{what} is paused: {PAUSE}={said[:200]}",
        numbers,
        remedy or f"remove the annotation: kubectl annotate {what} {PAUSE}-",
    )


def by_hand(key: str, *, label: bool = False) -> bool:
    """Whether a key that is not read, on an object of ours, was meant for us: it names this tool or a pause,
    or is an annotation without a prefix. Programs have to write one (Kubernetes, "Labels and Selectors");
    labels without one are put on whole installations."""
    said = key.lower()
    return "rebalanc" in said or "pause" in said or not (label or "/" in said)


def meant_as_pause(
    annotations: Mapping[str, str], labels: Mapping[str, str], data: Mapping[str, str]
) -> dict[str, str]:
    """What on a brake was meant to pause, and is no annotation that does → the command that removes it.

    The object is there for nothing else, and who writes to it in an incident may write a label, a key that
    is nearly right, or `data`, which is what a ConfigMap mostly has.
    """
    found = {
        f"data {key}={value[:200]}": _WITHOUT_DATA
        for key, value in data.items()
        if not ("pause" in key.lower() and value.strip().lower() in ("", "false"))
    }
    for verb, kind, written in (("annotate", "", annotations), ("label", "the label ", labels)):
        for key, value in written.items():
            read = not kind and (key in (PAUSE, FOR_RUN) or key.startswith(PAUSE_DOMAIN))
            pause = "pause" in key.lower()
            no_pause = pause and value.strip().lower() in ("", "false")
            if by_hand(key, label=bool(kind)) and not (read or no_pause):
                found[f"{kind}{key}={value[:200]}"] = f"kubectl {verb} {{}} {key}-"
    return found


def pause_of(domain: str) -> str:
    """The annotation by which a domain (key=value) is taken out."""
    return f"{PAUSE_DOMAIN}-{sha256(domain.encode()).hexdigest()[:8]}"


PAST = "whose end was past when it was written"
"""Of a pause that is a slip of the hand, and holds."""


def pause_ends(annotations: Mapping[str, str]) -> dict[str, float]:
    """Annotation that pauses all or takes a domain out → when that ends, as in `pauses_until`."""
    found = {PAUSE: pauses_until(annotations.get(PAUSE, ""))}
    for key, said in annotations.items():
        if key.startswith(PAUSE_DOMAIN):
            until = _time(said.strip().partition(" ")[2])
            found[key] = inf if until is None else until
    return found


def paused_domains(
    annotations: Mapping[str, str], now: float, slips: Collection[str] = ()
) -> dict[str, tuple[str, float]]:
    """Domain (key=value) → what the brake says of it, and until when; infinity if somebody has to end it.
    What names no domain counts for all of them, as "". `slips`: annotations with an end that nobody meant."""
    found: dict[str, tuple[str, float]] = {}
    for key, until in pause_ends(annotations).items():
        said, slip = annotations.get(key, ""), key in slips
        domain = said.strip().partition(" ")[0]
        if key != PAUSE and (slip or until > now):
            says = f"{key}={said[:200]}"
            found[domain if "=" in domain else ""] = (f"{says}, {PAST}", inf) if slip else (says, until)
    return found


def _time(said: str) -> float | None:
    """The time that a pause's value begins with, in epoch seconds; None if it begins with other text.

    Only a time with its zone (RFC 3339) is one: a date alone, a ticket's number or a week is a reason.
    """
    first = said.split(maxsplit=1)[0] if said.split() else ""
    return epoch(first) if _RFC3339.fullmatch(first) else None
