"""The JSON Schema of the report: docs/report.schema.json is this, and a test keeps it so."""

from __future__ import annotations

import json

import msgspec

from rebalancer.report.document import Report
from rebalancer.report.fleet.document import FleetReport


def to_schema() -> str:
    """As indented JSON. Fields may be added in later versions, which is why none is forbidden."""
    (found, _), components = msgspec.json.schema_components(
        [Report, FleetReport], ref_template="#/$defs/{name}"
    )
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of rebalancer/v1",
        **found,
        "$defs": components,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
