"""Approval in the cluster: a daemon shows its plan in a ConfigMap, and evicts only what somebody approves.

The ConfigMap is a display, on which people answer by annotations. They name a plan by its revision, which
nobody can guess, and what goes are moves that this process holds under it: the pod, the node that it leaves,
the domains that its replacement may come into. So an edited display approves
nothing, and after a restart nothing is approved. The annotations are read again before each request to evict,
wherever the move is shown: who takes the approval away, or refuses, stops what has not gone.

A refusal is about pods, not about one display: what was approved of them anywhere is void, and they are shown
nowhere until it ends. Words that are not understood approve nothing, and in a refusal mean all that is shown.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from rebalancer.errors import UserError
from rebalancer.kube.config_maps import Place, ask_config_map, edit_annotations, labels_of
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import ConflictError, ForbiddenError, KubeError, NotFoundError, Target
from rebalancer.kube.resources import Resource
from rebalancer.model.node import HOSTNAME
from rebalancer.model.quantity import epoch, rfc3339
from rebalancer.model.reason import Reason, ReasonCode, clean, plural
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome import Observer, Proposal
from rebalancer.planner.pace import pace
from rebalancer.planner.plan import Move, Plan, domains_reached
from rebalancer.policy.annotations import by_hand
from rebalancer.policy.options import ApprovalRules, Approved, Method
from rebalancer.report.text import said_move, short_names
from rebalancer.runtime.cycle.clock import Clock

PLAN = "rebalancer-plan"
"""Name of the ConfigMap."""
APPROVE = "rebalancer.io/approve"
"""The revision, and behind it the workloads and pods that are meant, if not all: "1f3a… shop/web"."""
REFUSE = "rebalancer.io/refuse"
APPROVED_BY = "rebalancer.io/approved-by"
"""Who approved, as `rebalancer approve` says of itself."""
_REVISION = re.compile("[0-9a-f]{12}")
_MOST_HELD, _MOST_SHOWN, _MOST_NAMED, _LONGEST = 40, 200, 2000, 99
"""Plans of a place that an approval may still name; moves that are shown one by one; names for --only;
characters that are repeated of what somebody wrote."""
_TRIES = 3
"""Plans, each without the moves of the one before that would go elsewhere than approved."""
_POLL = _TIMEOUT = 5.0
_REVIEWS = Resource("SelfSubjectReview", "authentication.k8s.io", "v1", "selfsubjectreviews")

log = logging.getLogger(__name__)


class Step(Struct, frozen=True):
    """A move as it is approved. `to`: the domains (key=value) of the constraints that it mends, into which
    its replacement may come."""

    uid: str
    pod: str
    owner: str
    node: str
    to: frozenset[str]
    method: Method = Method.EVICT


class ShownPlan(Struct, frozen=True, eq=False):
    """A plan that is or was shown, and when it can be approved (epoch seconds). `off`: pods refused since."""

    place: Place
    revision: str
    steps: Mapping[str, Step]
    since: float
    until: float
    off: set[str]


class Consent(Struct, frozen=True, eq=False):
    """What was `said` in one place, and what is approved by that; `unclear`: why nothing, if so."""

    said: Mapping[str, str]
    held: ShownPlan | None
    uids: Set[str]
    by: str
    unclear: str


class Approvals:
    """What one process has shown, and what was approved of it. `home`: the namespace of the whole plan's
    ConfigMap. `rules`: as they are now."""

    def __init__(
        self, connection: Connection, home: str, rules: Callable[[], ApprovalRules], clock: Clock
    ) -> None:
        self._connection = connection
        self._home = Place(home, PLAN)
        self.rules = rules
        self._clock = clock
        self._held: dict[str, ShownPlan] = {}
        self._shown: dict[Place, str] = {}
        self._consents: dict[Place, Consent] = {}
        self._refused: dict[Place, dict[str, float]] = {}
        self._shut: dict[Place, float] = {}
        """Where a process before this one was refused, and until when: of which pods is not known."""
        self._looked = 0.0

    def propose(self, snapshot: Snapshot, plan: Plan) -> list[Proposal]:
        """Takes over what was said meanwhile, and shows the moves that still need approval.

        Returns what is new. Where a namespace's own ConfigMap cannot be written, the whole one has to do.
        Raises KubeError where that cannot be written either.
        """
        rules, home = self.rules(), self._home.namespace
        there: dict[Place, dict[str, Any] | None] = {}
        for place in [self._home, *(Place(n, PLAN) for n in rules.namespaces if n != home)]:
            with self._bears(place):
                there[place] = self._read(place)
        given, no = self._given([rules]), self._refusals()
        every = {s.uid: s for s in _steps(snapshot, plan, rules) if s.uid not in no}
        for place, until in self._shut.items():
            if self._clock.latest() < until:
                every = {u: s for u, s in every.items() if u not in self._of(every, place)}
        new = []
        for place in there:
            mine = self._of(every, place)
            if mine and all(_by(given, s) is not None for s in mine.values()):
                continue  # what was shown stays
            with self._bears(place):
                new += self._show(place, there[place], mine, snapshot, plan)
        return new

    @contextmanager
    def _bears(self, place: Place) -> Iterator[None]:
        try:
            yield
        except ConflictError:
            log.info("%s was changed meanwhile, and is written by the next plan", place)
        except KubeError as e:
            if place == self._home:
                raise
            log.warning("the plan cannot be shown in namespace %s: %s", place.namespace, e)

    def uids(self, without: Iterable[str] = ()) -> frozenset[str]:
        """The pods that may go."""
        return frozenset(self._given([self.rules()])) - frozenset(without)

    def signed(self, snapshot: Snapshot, plan: Plan) -> tuple[Plan, list[str]]:
        """The plan, with who approved each move; and the moves that are not as they were approved."""
        rules = self.rules()
        given = self._given([rules])
        by = {s.uid: _by(given, s) for s in _steps(snapshot, plan, rules)}
        moves = tuple(replace(m, approved=by.get(m.pod.uid) or "") for m in plan.moves)
        return replace(plan, moves=moves), [u for u, name in by.items() if name is None]

    def waits(self, plan: Plan, say: str = "") -> Plan:
        """The plan, all of which waits for approval."""
        held, refused, remedy = self._held.get(self._shown.get(self._home, "")), self._refusals(), ""
        says = [say, *(c.unclear for c in self._consents.values())]
        if no := [refused[m.pod.uid] for m in plan.moves if m.pod.uid in refused]:
            says.append(f"{plural(len(no), 'eviction')} were refused until {rfc3339(min(no))}")
            remedy = _again("NAMESPACE")
        for place, until in self._shut.items():
            if until <= self._clock.latest():
                continue
            says.append(f"{place} was refused until {rfc3339(until)}")
            remedy = _again(place.namespace)
        if held is not None and held.steps and not say:
            says[0] = f"{plural(len(held.steps), 'eviction')} wait for approval until {rfc3339(held.until)}"
            remedy = f"`rebalancer approve`, or: {_command(held)}"
        message = "; ".join(filter(None, says)) or "evictions wait for approval"
        reason = Reason(ReasonCode.NOT_APPROVED, message, {}, remedy)
        return replace(plan, moves=tuple(replace(m, waits=reason) for m in plan.moves))

    def _show(
        self,
        place: Place,
        there: dict[str, Any] | None,
        steps: Mapping[str, Step],
        snapshot: Snapshot,
        plan: Plan,
    ) -> list[Proposal]:
        """Writes down what is not there yet."""
        if not steps and there is None:
            return []
        held = before = self._held.get(self._shown.get(place, ""))
        if held is None or held.off or held.steps != steps or self._clock.latest() >= held.until:
            held = self._hold(place, steps)
        if there is not None and (there.get("data") or {}).get("revision") == held.revision:
            return []
        text = _text(held, plan, snapshot)
        data = {"plan": text, "revision": held.revision, "expires": rfc3339(held.until)}
        if ends := max([self._shut.get(place, 0.0), *self._refused.get(place, {}).values()]):
            data["refused"] = rfc3339(ends)
        if steps:
            data["approve"] = _command(held)
            data["names"] = "\n".join(list(_names(steps))[:_MOST_NAMED])
        metadata = {"namespace": place.namespace, "name": place.name, "labels": labels_of("plan")}
        body = there or {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        how = "update" if there else "create"
        kept = {k: v for k, v in (body.get("data") or {}).items() if k not in _DATA}
        ask_config_map(self._connection, how, place, {**body, "data": kept | data})
        self._shown[place] = held.revision
        if held is before or not steps:
            return []
        return [Proposal(place.namespace, place.name, len(steps), _command(held), text)]

    def _hold(self, place: Place, steps: Mapping[str, Step]) -> ShownPlan:
        """The plan under a revision that nobody can guess."""
        now, revision = self._clock.latest(), secrets.token_hex(6)
        self._held[revision] = held = ShownPlan(place, revision, steps, now, now + self.rules().lasts, set())
        consent = self._consents.get(place)
        for old in [h for h in self._held.values() if h.place == place][:-_MOST_HELD]:
            if consent is None or old is not consent.held:
                del self._held[old.revision]
        return held

    def changed(self) -> bool:
        """Whether somebody has approved or refused since; asks every few seconds, where a plan is shown."""
        if not self._shown or self._clock.monotonic() - self._looked < _POLL:
            return False
        self._looked = self._clock.monotonic()
        for place in self._shown:
            with suppress(KubeError):
                said = _said(ask_config_map(self._connection, "get", place, timeout=_TIMEOUT))
                if place not in self._consents or said != self._consents[place].said:
                    return True
        return False

    def why_not(self, move: Move, to: frozenset[str], rules: Sequence[ApprovalRules]) -> Reason | None:
        """Why the move must not be made now, into these domains; reads what people say. Of a move that mends
        nothing that is known those count that were approved of. `rules`: those that are in force. Raises
        KubeError."""
        self._read(self._home)
        own = Place(move.pod.namespace, PLAN)
        if own != self._home and any(own.namespace in r.namespaces for r in rules):
            try:
                self._read(own)
            except ForbiddenError as e:
                if own in self._consents:  # else the whole display has to do
                    say = f"whether {own.namespace} refuses its evictions cannot be seen: {e.message}"
                    return Reason(ReasonCode.NOT_APPROVED, say, {}, e.remedy)
            consent = self._consents.get(own)
            if own not in self._shown and consent is not None and REFUSE in consent.said:
                say = f"{own} refuses, and shows nothing yet: the namespace has just come to be asked"
                return Reason(ReasonCode.NOT_APPROVED, say)
        given = self._given(rules)
        if _by(given, _step(move, to), all_keys=bool(move.fixes)) is not None:
            return None
        say = f"the eviction of {move.pod.key} is not approved, or not any more"
        if move.pod.uid in given:
            say = f"{move.pod.key}'s replacement may go elsewhere than was approved"
        return Reason(ReasonCode.NOT_APPROVED, say)

    def _read(self, place: Place) -> dict[str, Any] | None:
        """The ConfigMap, None if it is missing; takes over what it says. Raises KubeError."""
        try:
            there = ask_config_map(self._connection, "get", place, timeout=_TIMEOUT)
        except NotFoundError:
            there = None
        said, former = _said(there), self._consents.get(place)
        mine = {h.revision: h for h in self._held.values() if h.place == place}
        if former is None or said != former.said:
            self._consents[place] = consent = _consent(place, said, mine, _client(there or {}))
            if consent.unclear:
                log.warning("%s", consent.unclear)
        no, refused = said.get(REFUSE), self._refused.setdefault(place, {})
        data = (there or {}).get("data") or {}
        if no is None:
            refused.clear()
        elif former is None:
            # Another process was told. What it showed last says until when that holds.
            named = data.get("revision") in no.split() or not _REVISION.search(no)
            ends = ("refused", "expires") if named else ("refused",)
            self._shut[place] = max(epoch(data.get(key)) or 0.0 for key in ends)
        if no is None or (former is not None and no != former.said.get(REFUSE)):
            self._shut.pop(place, None)
        # Whose words name no plan means what is shown; a revision that was there before may be an old one.
        words = (no or "").split()
        odd = no is not None and not (words and all(map(_REVISION.fullmatch, words)))
        odd |= former is not None and no != former.said.get(REFUSE) and not mine.keys() >= set(words)
        void = [h for h in mine.values() if odd or h.revision in words]
        for held in void:
            refused.update(dict.fromkeys(held.steps, held.until))
        # Another process has shown its plan since, and what was refused of that is not known here.
        shown = data.get("revision")
        others = self._shown.get(place) and shown not in mine
        if void or others:
            # Off the table for good is all that this place may speak for, wherever it is shown.
            for each in self._held.values():
                each.off.update(self._of(each.steps, place))
            self._held = {r: h for r, h in self._held.items() if r not in mine}
            self._shown[place] = ""
        return there

    def _of(self, steps: Mapping[str, Step], place: Place) -> Mapping[str, Step]:
        """The steps that are shown in this place."""
        own = f"{place.namespace}/"
        return steps if place == self._home else {u: s for u, s in steps.items() if s.pod.startswith(own)}

    def _refusals(self) -> dict[str, float]:
        """The pods that were refused, and until when."""
        now = self._clock.latest()
        return {u: t for refused in self._refused.values() for u, t in refused.items() if now < t}

    def _given(self, rules: Sequence[ApprovalRules]) -> dict[str, list[tuple[Step, str]]]:
        """What is approved of each pod by all these rules, and by whom."""
        found: dict[str, list[tuple[Step, str]]] = {}
        for place, c in self._consents.items():
            # Where a team may say nothing any more, and what has expired, counts no more.
            ends = [r.lasts for r in rules if place == self._home or place.namespace in r.namespaces]
            if c.held is None or len(ends) < len(rules):
                continue
            if self._clock.latest() < min(c.held.until, c.held.since + min(ends)):
                for uid in c.uids - c.held.off:
                    found.setdefault(uid, []).append((c.held.steps[uid], c.by))
        return found


class Planning(Protocol):
    """Plans a snapshot; `approved`: these pods only."""

    def __call__(self, snapshot: Snapshot, approved: Approved | None = None) -> Plan:
        """The plan."""


class ApprovedPlanner:
    """Plans within what is approved; what is not waits. `plan` is the planner."""

    def __init__(self, approvals: Approvals, plan: Planning, observer: Observer) -> None:
        self._approvals, self._plan, self._observer = approvals, plan, observer

    def __call__(self, snapshot: Snapshot) -> Plan:
        """The plan. Raises KubeError where it cannot be shown."""
        a, rules = self._approvals, self._approvals.rules()
        whole = self._plan(snapshot)
        if not rules.required:
            return whole
        try:
            for proposal in a.propose(snapshot, whole):
                self._observer.on_proposal(proposal)
        except KubeError as e:
            log.warning("the plan cannot be shown: %s", e)
            return a.waits(whole, f"evictions need approval, and the plan cannot be shown: {e.message}")
        if not any(rules.ask(m.pod.namespace) for m in whole.moves):
            return whole
        elsewhere: list[str] = []
        for _ in range(_TRIES):
            approved = Approved(a.uids(elsewhere), "what is approved of the plan", rules)
            plan, other = a.signed(snapshot, self._plan(snapshot, approved))
            if not other:
                return plan if plan.moves else a.waits(whole)
            elsewhere += other
        return a.waits(whole)


def _steps(snapshot: Snapshot, plan: Plan, rules: ApprovalRules) -> list[Step]:
    labels = {n.name: n.labels for n in snapshot.nodes}
    moves = (m for m in plan.moves if rules.ask(m.pod.namespace))
    return [_step(m, domains_reached(plan, labels, m, m.destinations)) for m in moves]


def _step(move: Move, to: frozenset[str]) -> Step:
    return Step(move.pod.uid, move.pod.key, move.owner.key, move.pod.node_name, to, move.method)


def _by(given: Mapping[str, Iterable[tuple[Step, str]]], step: Step, *, all_keys: bool = True) -> str | None:
    """Who approved the move as it is; None: nobody. What names no domain is within nothing but the same.
    Without `all_keys` domains of other keys than those that were approved do not count."""
    for c, by in given.get(step.uid, ()):
        same = (step.pod, step.node, step.method) == (c.pod, c.node, c.method)
        keys = {d.partition("=")[0] for d in c.to}
        to = {d for d in step.to if all_keys or d.partition("=")[0] in keys}
        if same and to <= c.to and bool(to) == bool(c.to):
            return by
    return None


def _consent(place: Place, said: Mapping[str, str], mine: Mapping[str, ShownPlan], by: str) -> Consent:
    """What is approved by these words. `mine`: the plans that are, or were, shown there."""
    uids, unclear, value = set[str](), "", said.get(APPROVE, "")
    revision, *words = value.replace(",", " ").split() or [""]
    held = mine.get(revision)
    if held is not None and value == revision:
        uids = set(held.steps)
    elif held is not None:
        names = _names(held.steps)
        meant, unclear = _meant(words, names)
        uids = {u for name in meant for u in names[name]}
    elif APPROVE in said:
        unclear = f"{revision[:_LONGEST]!r} is no plan that this process has shown there"
    return Consent(said, held, uids, by, unclear and f"{APPROVE} of {place} approves nothing: {unclear}")


def _names(steps: Mapping[str, Step]) -> dict[str, set[str]]:
    """What moves can be called, by Kind/namespace/name: the workloads, then the pods."""
    found = {s.owner: set[str]() for s in steps.values()}
    for uid, s in steps.items():
        found[s.owner].add(uid)
        found[f"Pod/{s.pod}"] = {uid}
    return found


def _meant(words: Iterable[str], names: Iterable[str]) -> tuple[set[str], str]:
    """The names that are meant, with or without their kind; or what is wrong: each word has to be one."""
    found = {w: sorted(n for n in names if w in (n, n.partition("/")[2])) for w in words} or {"": []}
    for word, several in found.items():
        if len(several) != 1:
            say = f"may be {' or '.join(several)}" if several else "names nothing in the plan"
            return set(), f"{word[:_LONGEST]!r} {say}"
    return {several[0] for several in found.values()}, ""


_DATA = frozenset({"plan", "revision", "expires", "refused", "approve", "names"})
"""What a plan is shown by."""


def _said(there: Mapping[str, Any] | None) -> dict[str, str]:
    """What people say in the annotations. Another key of ours, one as a label, or data that is not ours, can
    only have been meant to stop something: it refuses."""
    whole = there or {}
    metadata = whole.get("metadata", {})
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    data = {**(whole.get("data") or {}), **(whole.get("binaryData") or {})}
    said = {k: str(annotations[k]) for k in (APPROVE, REFUSE) if k in annotations}
    slips = [k for k in labels if "refuse" in k.lower() or by_hand(k, label=True)]
    written = annotations.keys() - {APPROVE, REFUSE, APPROVED_BY}
    slips += [k for k in written if "refuse" in k.lower() or by_hand(k)]
    slips += [k for k in data if k not in _DATA or (k == "refused" and not epoch(data[k]))]
    return said | ({REFUSE: f"{' '.join(sorted(slips))} {said.get(REFUSE, '')}"} if slips else {})


def _client(there: Mapping[str, Any]) -> str:
    """Which client approved and when, by the server's own account; and who it says it is."""
    metadata = there.get("metadata", {})
    said = str((metadata.get("annotations") or {}).get(APPROVED_BY, ""))
    by = "an unknown client"
    for entry in metadata.get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:metadata", {}).get("f:annotations", {})
        if f"f:{APPROVE}" in fields:
            by = " at ".join(filter(None, (str(entry.get("manager", "")), entry.get("time"))))
    return clean(f"{by}, which says it is {said}" if said else by)


def _command(held: ShownPlan) -> str:
    where = f"configmap {held.place.name} -n {held.place.namespace}"
    return f"kubectl annotate {where} {APPROVE}={held.revision} --overwrite"


def _again(namespace: str) -> str:
    return f"kubectl annotate configmap {PLAN} -n {namespace} {REFUSE}- has the daemon show it anew"


def _text(held: ShownPlan, plan: Plan, snapshot: Snapshot) -> str:
    """The plan for people."""
    if not held.steps:
        return "nothing waits for approval"
    short, away = short_names({HOSTNAME: {n.name for n in snapshot.nodes}}), pace(plan, snapshot).away
    moves = [m for m in plan.moves if m.pod.uid in held.steps]
    lines = [f"{plural(len(moves), 'eviction')} (saves: pods fewer that go with the fullest domain):"]
    for m in moves[:_MOST_SHOWN]:
        lasts = away[m.pod.uid]
        cost = f"one pod is away for about {lasts} s" if lasts else "its replacement comes first"
        lines.append(f"  {said_move(m)}; saves {m.worth:.2g}, {cost}")
    if len(moves) > _MOST_SHOWN:
        lines.append(f"  … and {len(moves) - _MOST_SHOWN} more")
    lines.append("what they change:")
    for i in sorted({i for m in moves for i in m.fixes})[:_MOST_SHOWN]:
        c = plan.constraints[i]
        worst = max(c.after.values(), default=0) / max(1, sum(c.after.values()))
        name = f"{c.constraint.namespace}/{', '.join(c.workloads)} over {c.constraint.topology_key}"
        lines.append(
            f"  {name}: excess {c.excess} → {c.residual_excess}; losing the fullest domain takes "
            f"{c.worst_domain_loss:.0%} now, {worst:.0%} after the whole plan"
        )
    lines += [short.note] if short.note else []
    return "\n".join(clean(short.within(line)) for line in lines) + "\n"


# `rebalancer approve` and `rebalancer refuse`.


def waiting(connection: Connection, namespace: str, *, yes: bool = True) -> Mapping[str, str]:
    """What is shown in this namespace. Raises KubeError; UserError where nothing is, or where nothing waits
    although it is to be approved (`yes`)."""
    try:
        there = ask_config_map(connection, "get", Place(namespace, PLAN))
    except NotFoundError as e:
        say = f"no plan waits for approval in namespace {namespace}: ConfigMap {PLAN} is missing"
        usual = "-n names another namespace; plans are shown by a daemon with approval.mode: required"
        raise UserError(say, usual) from e
    data: dict[str, str] = there.get("data") or {}
    if "revision" not in data or (yes and "approve" not in data):
        no = REFUSE in _said(there)
        say = f"nothing waits for approval in namespace {namespace}"
        raise UserError(f"{say}: what was shown was refused" if no else say, _again(namespace) if no else "")
    return data


def answer(connection: Connection, namespace: str, revision: str, only: Iterable[str], *, yes: bool) -> None:
    """Approves or refuses the plan of this revision. Raises UserError if it is not shown."""
    only, place = tuple(only), Place(namespace, PLAN)
    shown = waiting(connection, namespace, yes=yes)
    if (now := shown["revision"]) != revision:
        say = f"the plan has changed: its revision is {now} now, not {revision}"
        raise UserError(say, "look at it again")
    if only and (unclear := _meant(only, shown.get("names", "").split())[1]):
        wants = "--only wants namespace/name or Kind/namespace/name of a workload or pod of the plan"
        raise UserError(f"{wants}: {unclear}", f"ConfigMap {PLAN} lists them under names")
    said = {REFUSE: revision}
    if yes:
        said = {APPROVE: " ".join([revision, *only]), APPROVED_BY: _own_name(connection)}

    def change(annotations: dict[str, str]) -> None:
        if yes and revision in annotations.get(REFUSE, "").split():
            raise UserError(f"plan {revision} in namespace {namespace} was refused", _again(namespace))
        for key in (APPROVE, APPROVED_BY):
            annotations.pop(key, None)
        annotations.update(said)

    edit_annotations(connection, place, change, create=None)


def _own_name(connection: Connection) -> str:
    """Who asks, as the API server knows them; "" if it does not say."""
    target = Target("create", _REVIEWS)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": _REVIEWS.kind}
    try:
        answered = connection.request("POST", _REVIEWS.path(), target, body=body, read_timeout=_TIMEOUT)
        name: str = json.loads(answered.body)["status"]["userInfo"]["username"]
    except (KubeError, ValueError, LookupError, TypeError) as e:
        log.info("who approves is not known: %s", e)
        return ""
    return name
