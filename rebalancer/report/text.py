"""Words and figures that the formats share, and the escaping of names from a hostile snapshot."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import takewhile

from msgspec import Struct

from rebalancer.model.node import HOSTNAME, REGION, ZONE
from rebalancer.model.quantity import rfc3339
from rebalancer.model.reason import Finding, listing, plural
from rebalancer.planner.plan import ConstraintResult, Move, Refusal, what_is_shown
from rebalancer.policy.history.waits import first_to_end
from rebalancer.report.document import EvictionReport, Report, Summary

_SHORT_KEYS = {ZONE: "zone", REGION: "region", HOSTNAME: "hostname"}
_FULL_KEYS = {short: key for key, short in _SHORT_KEYS.items()}
_ABSENT = re.compile(r"no (.+) in the snapshot: ")
_MOST_DOMAINS = 8
_EXAMPLES = 3


def short_key(key: str) -> str:
    """A topology key: the last word of a well-known one, any other in full."""
    return _SHORT_KEYS.get(key, key)


def full_key(key: str) -> str:
    """The key in full: "zone" and the like stand for the well-known ones. "zone=b" keeps its value."""
    name, equals, value = key.partition("=")
    return f"{_FULL_KEYS.get(name, name)}{equals}{value}"


class Names(Struct, frozen=True):
    """Names of nodes and domains without what all of their kind share. `shared`: what they begin and end
    with, by topology key; that of nodes is under the hostname's. `said`: the same in words. `nodes`: the
    names in full."""

    shared: Mapping[str, tuple[str, str]]
    said: str = ""
    nodes: Collection[str] = ()

    def of(self, key: str, name: str) -> str:
        """The name of a domain of this key, or of a node."""
        begin, end = self.shared.get(key, ("", ""))
        return name.removeprefix(begin).removesuffix(end) if name.startswith(begin) else name

    @property
    def note(self) -> str:
        """A sentence that says so; "" if nothing is left out."""
        return f"Names are short here: {self.said}." if self.said else ""

    def within(self, sentence: str) -> str:
        """The sentence with the short names of nodes."""
        begin, end = map(re.escape, self.shared.get(HOSTNAME, ("", "")))
        if not begin and not end:
            return sentence

        def short(name: re.Match[str]) -> str:
            # Nothing but a host ends in a domain; what begins as nodes do may be a pod.
            return self.of(HOSTNAME, name[0]) if end or name[0] in self.nodes else name[0]

        return re.sub(rf"(?<![\w./-]){begin}[\w.-]+?{end}(?![\w-]|\.\w)", short, sentence)


WHOLE = Names({})
_LONG_NODE, _LONG_DOMAIN = 20, 8
"""Names of nodes, and of other domains, of up to this many characters are short enough."""


def names_in(report: Report) -> Names:
    """What can be left out of the names in a report, where its tables say so."""
    kinds: dict[str, set[str]] = {HOSTNAME: set()}
    for e in report.evictions:
        kinds[HOSTNAME].update((e.move.pod.node_name, *e.move.destinations[:_EXAMPLES]))
    for c in report.constraints:
        if c.constraint.topology_key not in kinds or (c.excess and c.in_scope):
            kinds.setdefault(c.constraint.topology_key, set()).update(c.domains)
    return short_names(kinds)


def short_names(kinds: Mapping[str, Collection[str]]) -> Names:
    """What can be left out of names, by topology key; those of nodes are under the hostname's."""
    shared: dict[str, tuple[str, str]] = {}
    said: list[str] = []
    for key, names in kinds.items():
        begin, end = _shared(names, _LONG_NODE if key == HOSTNAME else _LONG_DOMAIN)
        if begin or end:
            shared[key] = begin, end
            says = " and ".join(
                [*([f"begin with {begin}"] if begin else []), *([f"end in {end}"] if end else [])]
            )
            said.append(f"{'nodes' if key == HOSTNAME else f'{short_key(key)}s'} {says}")
    return Names(shared, ", ".join(said), frozenset(kinds.get(HOSTNAME, ())))


def _shared(names: Collection[str], enough: int) -> tuple[str, str]:
    """What all names begin and end with, cut where a word of the name ends."""
    if len(names) < 2 or max(map(len, names)) <= enough:
        return "", ""
    tail = _beginning(n[::-1] for n in names)[::-1]
    end = tail[tail.index(".") :] if "." in tail else ""
    head = _beginning(n.removesuffix(end) for n in names)
    head = head[: max(head.rfind("-"), head.rfind(".")) + 1]
    return head if max(len(n) - len(end) for n in names) > enough else "", end


def _beginning(names: Iterable[str]) -> str:
    """What all of them begin with: the first and the last in order have it in common."""
    ordered = sorted(names)
    pairs = zip(ordered[0], ordered[-1], strict=False)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def counts(domains: Mapping[str, int], key: str = "", short: Names = WHOLE) -> str:
    """Counts by domain: a=5 b=1 c=1; for many domains their range."""
    if len(domains) <= _MOST_DOMAINS:
        found = (f"{short.of(key, name) or '(none)'}={count}" for name, count in domains.items())
        return " ".join(found) or "no domain"
    return f"{len(domains):,} domains with {_range(domains)}"


def change(constraint: ConstraintResult, short: Names = WHOLE) -> str:
    """Counts before and after: a=5 b=1 c=1 → a=3 b=2 c=2; for many domains only those that change."""
    before, after, key = constraint.domains, constraint.after, constraint.constraint.topology_key
    if len(before) <= _MOST_DOMAINS:
        now = counts(before, key, short)
        return now if before == after else f"{now} → {counts(after, key, short)}"
    changed = [f"{short.of(key, n)}={c}→{after.get(n, 0)}" for n, c in before.items() if after.get(n, 0) != c]
    if not changed:
        return counts(before)
    return f"{counts(before)} → {_range(after)}: {' '.join(changed[:_EXAMPLES])}" + (
        f" and {len(changed) - _EXAMPLES:,} more" if len(changed) > _EXAMPLES else ""
    )


def _range(domains: Mapping[str, int]) -> str:
    low, high = min(domains.values()), max(domains.values())
    return str(low) if low == high else f"{low}–{high}"


def name_of(constraint: ConstraintResult) -> str:
    """The workloads that carry the constraint, with their namespace; else its selector."""
    whose = listing((w.rpartition("/")[2] for w in constraint.workloads), 2)
    return f"{constraint.constraint.namespace}/{whose or constraint.selector or '(no selector)'}"


def mends(eviction: EvictionReport, report: Report) -> str:
    """The constraints that an eviction helps, such as: web zone, hostname."""
    keys: dict[str, list[str]] = {}
    for fix in eviction.fixes:
        whose = name_of(report.constraints[fix.constraint]).partition("/")[2]
        keys.setdefault(whose, []).append(short_key(fix.topology_key))
    return "; ".join(f"{whose} {', '.join(dict.fromkeys(k))}" for whose, k in keys.items())


def leaving(e: EvictionReport, short: Names = WHOLE) -> str:
    """The pod's node, with its domain in the first constraint that the eviction helps: a-0 (zone a)."""
    key, domain = (e.fixes[0].topology_key, e.fixes[0].source) if e.fixes else ("", "")
    return _in_domain(e.move.pod.node_name, key, domain, short)


def landing(e: EvictionReport, short: Names = WHOLE) -> str:
    """The destination: one node with its domain, or the domains of several nodes: zone b, c (4 nodes)."""
    nodes = e.move.destinations
    if not e.fixes:
        return listing((short.of(HOSTNAME, n) for n in nodes), 2)
    key, domains = e.fixes[0].topology_key, e.fixes[0].targets
    if len(nodes) == 1:
        return _in_domain(nodes[0], key, domains[0], short)
    named = [short.of(key, d) for d in sorted(domains)]
    if len(domains) == len(nodes):
        return listing(named, 2)
    return f"{short_key(key)} {listing(named)} ({len(nodes):,} nodes)"


def said_move(move: Move) -> str:
    """A move in a line: the pod, the node that it leaves, where it is to go, and what that changes."""
    more = f" or {len(move.destinations) - 1:,} more" if len(move.destinations) > 1 else ""
    return f"{move.pod.key} from {move.pod.node_name} to {move.predicted}{more}: {brief(move.reason)}"


def brief(reason: str) -> str:
    """A reason with well-known topology keys as their last word, and without nodes that are named before."""
    reason = re.sub(rf"{re.escape(HOSTNAME)}: from [^;]*", "hostname", reason)
    for key, word in _SHORT_KEYS.items():
        reason = reason.replace(key, word)
    return reason


def _in_domain(node: str, key: str, domain: str, short: Names) -> str:
    name = short.of(HOSTNAME, node)
    return name if domain in (node, "") else f"{name} ({short_key(key)} {short.of(key, domain)})"


def worst_first(constraints: Iterable[ConstraintResult]) -> list[ConstraintResult]:
    """The violated constraints in scope, sorted by residual excess, then by excess, then by name."""
    violated = (c for c in constraints if c.excess and c.in_scope)
    return sorted(
        violated,
        key=lambda c: (
            -c.residual_excess,
            -c.excess,
            c.constraint.namespace,
            name_of(c),
            c.constraint.topology_key,
        ),
    )


class BlockedGroup(Struct, frozen=True):
    """Pods that are not evicted for one reason; the message is true of each."""

    reason: str
    message: str
    remedy: str
    pods: tuple[str, ...]


def blocked_groups(blocked: Iterable[Refusal], most: int = 0) -> list[BlockedGroup]:
    """Blocked pods by what is said of them, the most frequent reason first. `most`: so many messages of a
    reason, the others as one group; 0: all."""
    by: dict[str, dict[tuple[str, str], list[str]]] = {}
    for b in blocked:
        why = b.reason.message, b.reason.remedy
        by.setdefault(b.reason.code.value, {}).setdefault(why, []).append(b.pod.key)
    found = []
    for reason, groups in sorted(by.items(), key=lambda item: (-sum(map(len, item[1].values())), item[0])):
        ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        if most and len(ordered) > most:
            others = [pod for _, pods in ordered[most:] for pod in pods]
            more = f"{plural(len(ordered) - most, 'other message')}: -o wide"
            ordered = [*ordered[:most], ((more, ""), others)]
        found += [BlockedGroup(reason, *why, tuple(pods)) for why, pods in ordered]
    return found


class FoundGroup(Struct, frozen=True):
    """Findings of one code."""

    code: str
    severity: str
    findings: tuple[Finding, ...]

    def more(self, most: int) -> str:
        """Whom it is about beside the first, so many of them by name; "" if nobody."""
        first, *rest = self.findings
        others = dict.fromkeys(f.object for f in rest if f.object != first.object)
        like = "" if all(says(f) == says(first) for f in rest) else " like it"
        if others:
            return f"{len(others):,} more{like}: {listing(others, most)}"
        return f"{len(rest):,} more of it" if rest else ""


def found_groups(findings: Iterable[Finding], *, alike: bool = False) -> list[FoundGroup]:
    """The findings grouped by code, and where they have to be `alike` by what they say; errors first, as in
    the report."""
    by: dict[tuple[str, str, str], list[Finding]] = {}
    for f in findings:
        by.setdefault((f.severity.value, f.code, says(f) if alike else ""), []).append(f)
    return [FoundGroup(code, severity, tuple(group)) for (severity, code, _), group in by.items()]


def says(f: Finding) -> str:
    """The message, and since when it is so."""
    return f.message if f.since is None else f"{f.message} (so since {rfc3339(f.since)})"


def not_known(warnings: Iterable[str]) -> list[str]:
    """The warnings in a few lines: one line for all missing kinds, and the first of the others."""
    missing: list[str] = []
    other: list[str] = []
    for warning in warnings:
        absent = _ABSENT.match(warning)
        missing += [absent.group(1)] if absent else []
        other += [] if absent else [warning]
    lines = other[:_EXAMPLES]
    if len(other) > _EXAMPLES:
        lines.append(f"{len(other) - _EXAMPLES:,} more: -o wide")
    if len(missing) == 1 and len(lines) < _EXAMPLES:
        return [*lines, *(w for w in warnings if _ABSENT.match(w))]
    if missing:
        kinds = ", ".join(missing).replace(" or ", ", ").split(", ")
        lines.append(f"the snapshot lacks {len(kinds)} kinds ({listing(kinds)}): -o wide says what follows")
    return lines


def headline(report: Report, told: str = "is told below") -> str:
    """The verdict in one or two sentences. `told`: where the reasons are."""
    s = report.summary
    in_scope = sum(1 for c in report.constraints if c.in_scope)
    if not report.constraints:
        return _without_constraints(s)
    if not s.violated:
        return f"Nothing to do: {_hold(in_scope)}"
    broken = f"{s.violated:,} of {in_scope:,} constraints violated, excess {s.excess:,}."
    if not s.evictions and s.undecided:
        hidden = ", ".join(s.undecided)
        not_known = f"Whether an eviction would help is not known: {hidden} cannot be read"
        return f"{broken} {not_known}; what follows {told}."
    if not s.evictions:
        waits = first_to_end(b.reason for b in report.blocked)
        say = waits.message if waits is not None else f"{what_is_shown(report.constraints)}; why {told}"
        return f"{broken} {say[0].upper()}{say[1:]}."
    one = s.evictions == 1
    moves = f"{plural(s.evictions, 'eviction')} in {plural(len(report.waves), 'wave')}"
    if s.residual_excess:
        result = f"{'brings' if one else 'bring'} it down to {s.residual_excess:,}"
    else:
        result = f"{'restores' if one else 'restore'} balance"
    return f"{broken} {moves} {result}{_bound(report)}."


def _without_constraints(s: Summary) -> str:
    if s.soft_ignored:
        found = plural(s.soft_ignored, "topology spread constraint")
        return (
            f"Only soft constraints here: {found} with ScheduleAnyway, left out of this report; "
            "planner.softConstraints: predicted takes them in."
        )
    return "No topology spread constraint in this cluster: there is nothing to restore."


def _hold(in_scope: int) -> str:
    if not in_scope:
        return "no constraint is in scope."
    return "the only constraint holds." if in_scope == 1 else f"all {in_scope:,} constraints hold."


def _bound(report: Report) -> str:
    s = report.summary
    if s.optimal:
        return "; fewer cannot do it"
    if s.evictions > s.lower_bound and not report.selection:
        return (
            f"; at least {s.lower_bound:,} are needed, it is not proved that {s.evictions:,} are the fewest"
        )
    return ""


def out_of_scope(report: Report) -> str:
    """What was asked for, is Pending now, is skewed and not acted on, or not looked at; "" if nothing."""
    only = f"Of {report.selection} alone; nodes and pods are the whole cluster's."
    waits = f"Pending now: {listing(report.pending)}; rebalancer explain POD says why."
    said = (only if report.selection else "", waits if report.pending else "", _unseen(report))
    return " ".join(filter(None, said))


def _unseen(report: Report) -> str:
    if report.constraints and (soft := report.summary.soft_ignored):
        what = "1 soft constraint was" if soft == 1 else f"{soft:,} soft constraints were"
        return f"{what} not looked at (planner.softConstraints: ignore)."
    skewed = sum(1 for c in report.constraints if c.excess and not c.in_scope)
    if not skewed:
        return ""
    verb = "is" if skewed == 1 else "are"
    return f"{plural(skewed, 'constraint')} out of scope (soft, or by settings) {verb} skewed too: -o wide."


def moment(report: Report) -> str:
    """Which moment the reasons for what stays speak of."""
    if not report.evictions:
        return ""
    return "Judged as the cluster is after the planned evictions; explain judges it as it is now."


def facts(report: Report) -> str:
    """What was looked at, as one line."""
    s = report.summary
    parts = [
        report.cluster or report.source or "cluster",
        plural(s.nodes, "node"),
        plural(s.pods, "pod"),
        *([f"{plural(s.unreadable, 'object')} could not be read"] if s.unreadable else []),
        plural(s.constraints, "constraint"),
        f"{s.seconds:.1f} s" if s.seconds >= 0.05 else f"{s.seconds * 1000:.0f} ms",
    ]
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """About how long: 40 seconds, 6 minutes, 3 hours, 2 days."""
    for size, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= 1.5 * size:
            return plural(round(seconds / size), unit)
    return plural(round(seconds), "second")


def ago(seconds: float) -> str:
    """A time by its distance: 3 hours ago, or 3 hours from now."""
    return f"{duration(-seconds)} from now" if seconds < 0 else f"{duration(seconds)} ago"


def percent(share: float) -> str:
    """A share in whole percent."""
    return f"{share:.0%}"
