"""`rebalancer history`: why was my pod evicted?"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rebalancer.cli import acting, options
from rebalancer.cli.reach import USUAL, Reach, reaches_a_cluster

if TYPE_CHECKING:
    from rebalancer.runtime.commands.history import HistoryLine

EXAMPLES = """\b
Examples:
  # Everything that is remembered
  rebalancer history
  # Why was this pod evicted? What became of this workload?
  rebalancer history shop/web-7d9f-x2x
  rebalancer history deploy/web -n shop
"""


@reaches_a_cluster
def history(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[NAMESPACE/POD|OWNER]", help="A pod or an owner, with or without its namespace or kind."
        ),
    ] = "",
    output: Annotated[
        Literal["text", "json"],
        typer.Option("-o", "--output", help="text for people, json for one JSON object a line."),
    ] = "text",
    namespace: options.Namespaces = None,
    config: options.ConfigFile = None,
    reach: Reach = USUAL,
) -> None:
    """Show which pods were evicted, why, and how it went, from the ledger and from events."""
    import msgspec

    from rebalancer.kube.client.connection import Connection
    from rebalancer.kube.coordination.ledger import Ledgers
    from rebalancer.kube.errors import KubeError
    from rebalancer.kube.events import EventNote, read_events
    from rebalancer.policy.history.ledger import Ledger
    from rebalancer.report.wording.text import clean
    from rebalancer.runtime.commands.history import history_of
    from rebalancer.runtime.live.places import places_of
    from rebalancer.settings import load_settings

    settings = load_settings(config)
    acting.set_up_logging(settings, least="error")
    connection = Connection(acting.cluster_options(reach))
    wait = threading.Event().wait
    place = places_of(settings, connection, wait=wait).ledger
    problems: list[KubeError] = []
    ledger = Ledger()
    events: tuple[EventNote, ...] = ()
    try:
        ledger = Ledgers(connection, place, writer="", wait=wait).load()
    except KubeError as e:
        problems.append(e)
    try:
        events = tuple(
            e for n in (namespace or [""]) for e in read_events(connection, wait=wait, namespace=n)
        )
    except KubeError as e:
        problems.append(e)
    connection.close()
    if len(problems) == 2:
        raise problems[0]
    for problem in problems:
        print(clean(f"warning: {problem}"), file=sys.stderr)
    found = [p for p in history_of(ledger, events, what) if not namespace or p.namespace in namespace]
    if output == "json":
        for p in found:
            print(msgspec.json.encode(p).decode())
        return
    for p in found:
        print(_line(p))
    if not found:
        about = f" about {what}" if what else ""
        print(clean(f"nothing is remembered{about}: not in {place}, and no event, which last about an hour"))


def _line(p: HistoryLine) -> str:
    """The lines about one eviction. Control characters in names are made visible."""
    from datetime import UTC, datetime

    from rebalancer.report.wording.text import clean

    when = datetime.fromtimestamp(p.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    parts = [f"{when}  {p.fate:<10}  {p.namespace}/{p.pod} of {p.owner or 'nobody'}"]
    if p.node:
        went = f"{p.replacement} on {p.landed}" if p.landed else "its replacement was not seen"
        parts.append(f"from {p.node}, {p.predicted} was predicted: {went}")
    parts += [text for text in (p.reason, p.message) if text]
    return "\n    ".join(map(clean, parts))
