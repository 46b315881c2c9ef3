"""`explain` for a terminal: nodes grouped by verdict, or (`wide`) every node with all that plugins say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rebalancer.report.explain.placement import (
    NodeVerdict,
    Placement,
    PluginRefusal,
    Spread,
    histogram,
    ranked,
    rejected,
    scoring,
)
from rebalancer.report.terminal.columns import columns
from rebalancer.report.wording.text import clean, listing, plural, short_key

_MOST = 10
"""How many of the nodes that fit are listed if not `wide`."""
_MOST_DOMAINS = 12


def to_table(placement: Placement, *, wide: bool = False) -> str:
    """The placement as plain text without colours, so that it looks the same in a pipe and in a ticket."""
    lines = [*_head(placement), *_spread(placement), *_fitting(placement, wide), *_rejecting(placement, wide)]
    lines += _rest("Uncertain, because", placement.uncertain)
    lines += _rest("Assumed", placement.assumptions)
    if wide:
        lines += _rest("Not known", placement.warnings)
    elif placement.warnings:
        lines.append(f"  {plural(len(placement.warnings), 'warning')} of what the snapshot lacks: -o wide")
    return "\n".join(clean(line).rstrip() for line in lines) + "\n"


def _head(p: Placement) -> list[str]:
    lines = [f"{p.namespace}/{p.pod} {p.situation}."]
    if p.fitting:
        verb = "takes" if p.fitting == 1 else "take"
        lines.append(f"{p.fitting:,} of {plural(p.nodes, 'node')} {verb} it. {_winner(p)}")
    else:
        lines.append(f"No node takes it: {p.message}")
        if p.since:
            lines.append(f"Its workload has pods that no node would take again: so since {p.since}.")
        if p.preemption:
            where = f"{plural(len(p.preemption), 'node')}: {listing(p.preemption)}"
            lines.append(f"Preempting pods of lower priority would make room on {where}.")
    if p.plan is not None:
        lines.append("This is said of the cluster as it is now, before any eviction. " + p.plan.says)
        lines += [f"→ {p.plan.remedy}"] if p.plan.remedy else []
    if p.recorded and p.recorded != p.message:
        lines.append(f"The scheduler itself last said: {p.recorded}")
    return lines


def _winner(p: Placement) -> str:
    if p.fitting == 1:
        return f"It goes to {p.winners[0]}."
    best = next(v.score for v in p.verdicts if v.node == p.winners[0])
    if len(p.winners) == 1:
        return f"Best is {p.winners[0]}, with a score of {best:,}."
    return f"{len(p.winners):,} tie at a score of {best:,}, one of them at random: {listing(p.winners, 6)}."


def _spread(p: Placement) -> list[str]:
    if not p.constraints:
        return []
    rows = [("KEY", "MAX SKEW", "IF NOT", "PODS COUNTED NOW", "SELECTOR")]
    rows += (
        (short_key(c.topology_key), str(c.max_skew), c.when_unsatisfiable, *_counted(c))
        for c in p.constraints
    )
    return ["", "Its spread constraints", *columns(rows, figures_right=True)]


def _counted(c: Spread) -> tuple[str, str]:
    if not c.domains:
        counts = "no eligible domain"
    elif len(c.domains) > _MOST_DOMAINS:
        counts = f"{len(c.domains):,} domains: {histogram(c.domains)}"
    else:
        counts = " ".join(f"{name or '(none)'}={n}" for name, n in c.domains.items())
    itself = "" if c.counts_itself else " (not the pod itself)"
    return counts, ("(none)" if c.selector is None else c.selector or "(empty)") + itself


def _fitting(p: Placement, wide: bool) -> list[str]:
    nodes = ranked(p)
    if not nodes:
        return []
    shown = nodes if wide else nodes[:_MOST]
    plugins, keys = scoring(p), _keys(shown)
    head = ("NODE", *(short_key(k).upper() for k in keys), *(("SCORE", *plugins) if plugins else ()))
    rows = [head]
    rows += (
        (v.node, *(v.domains.get(k, "") for k in keys), *_numbers(v, plugins)) if plugins else _place(v, keys)
        for v in shown
    )
    more = f"  and {len(nodes) - len(shown):,} more (-o wide)"
    return ["", "Takes it", *columns(rows, figures_right=True), *([more] if len(shown) < len(nodes) else [])]


def _numbers(v: NodeVerdict, plugins: Sequence[str]) -> tuple[str, ...]:
    return str(v.score), *(str(v.scores.get(name, "")) for name in plugins)


def _place(v: NodeVerdict, keys: Sequence[str]) -> tuple[str, ...]:
    return v.node, *(v.domains.get(k, "") for k in keys)


def _keys(nodes: Sequence[NodeVerdict]) -> list[str]:
    """The topology keys that get a column; that of the host does not, because it is the node's name."""
    return [k for k in dict.fromkeys(k for v in nodes for k in v.domains) if short_key(k) != "hostname"]


def _rejecting(p: Placement, wide: bool) -> list[str]:
    if wide:
        nodes = [v for v in p.verdicts if not v.fits]
        keys = _keys(nodes)
        rows = [("NODE", *(short_key(k).upper() for k in keys), "REJECTED BY", "ALSO BY")]
        rows += ((*_place(v, keys), _said(v.rejections[:1]), _said(v.rejections[1:])) for v in nodes)
        return ["", "Rejects it", *columns(rows, figures_right=True)] if nodes else []
    groups = rejected(p)
    rows = [("NODES", "PLUGIN", "REASON", "FOR EXAMPLE")]
    rows += ((f"{len(g.nodes):,}", g.plugin, ", ".join(g.reasons), listing(g.nodes)) for g in groups)
    return ["", "Rejects it", *columns(rows, figures_right=True)] if groups else []


def _said(refusals: Sequence[PluginRefusal]) -> str:
    return "; ".join(f"{r.plugin}: {', '.join(r.reasons)}" for r in refusals)


def _rest(title: str, sentences: Iterable[str]) -> list[str]:
    found = [f"  {s}" for s in sentences]
    return ["", title, *found] if found else []
