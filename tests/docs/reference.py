"""The reference of the report's JSON, made from its schema: `python -m tests.docs.reference` writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "report-json.md"
_SHOWN = (
    *("Report", "Summary", "ConstraintReport", "EvictionReport", "BlockedReport", "FindingReport"),
    *("FleetReport", "FleetSummary"),
)
_HEAD = """\
# The report as JSON

What `report -o json` and `-o yaml` write, and what `once --plan` reads. Names belong to `rebalancer/v1`: fields may be
added, but are never renamed ([versions](versioning.md)). [report.schema.json](report.schema.json) says the same to
programs, with the smaller parts that are not described here; this page is made from it. Fields stand after their
type; one with a `?` may be missing.

```sh
rebalancer report -o json | jq '.constraints[] | select(.excess > 0) | {namespace, workloads, domains, after}'
rebalancer report -o json | jq -r '.evictions[] | [.wave, .namespace, .pod, .node, .reason] | @tsv'
```

Only `generatedAt` and `summary.seconds` do not follow from cluster, settings and `--now`.
"""


def reference() -> str:
    """The page."""
    kinds = json.loads((ROOT / "docs" / "report.schema.json").read_text())["$defs"]
    return _HEAD + "".join(_section(name, kinds[name]) for name in _SHOWN)


def _section(name: str, kind: dict[str, Any]) -> str:
    said = " ".join(kind.get("description", "").split())
    fields: dict[str, list[str]] = {}
    for field, of in kind["properties"].items():
        missing = "" if field in kind.get("required", ()) else "?"
        fields.setdefault(_type(of), []).append(f"`{field}{missing}`")
    rows = [f"- {type_}: {', '.join(names)}" for type_, names in fields.items()]
    return "\n".join(["", f"## {name}", "", _camel(said), "", *rows, ""])


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in _SHOWN else name
    if "anyOf" in of:
        return " or ".join(_type(one) for one in of["anyOf"])
    if of.get("type") == "array":
        return f"list of {_type(of.get('items', {}))}"
    if of.get("type") == "object":
        return f"mapping to {_type(of['additionalProperties'])}"
    if "enum" in of:
        return ", ".join(f"`{value}`" for value in of["enum"])
    return str(of.get("type", "any"))


def _camel(text: str) -> str:
    """Names of fields as they stand in the JSON."""
    return re.sub(
        r"`([a-z]+(?:_[a-z]+)+)`",
        lambda m: "`" + re.sub(r"_([a-z])", lambda n: n.group(1).upper(), m.group(1)) + "`",
        text,
    )


if __name__ == "__main__":
    PAGE.write_text(reference())
