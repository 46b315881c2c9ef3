"""The report for other programs: its JSON Schema, CSV, and objects of openreports.io."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from rebalancer.policy.options import Method
from rebalancer.report.building import build_report
from rebalancer.report.document import Report
from rebalancer.report.exports import render
from rebalancer.report.fleet import to_schema
from rebalancer.report.formats import Format
from tests.support.clusters.hand_made import mended, stuck

SCHEMA = Path(__file__).parents[3] / "docs" / "report.schema.json"


def reported(made: Any) -> Report:
    return build_report(*made, generated_at=1.8e9, seconds=0.1)


def test_the_schema_that_is_shipped_is_the_schema() -> None:
    """Else: python -c 'from rebalancer.report.fleet import to_schema as s; print(s(), end="")'."""
    assert SCHEMA.read_text() == to_schema()


@pytest.mark.parametrize("made", [mended, stuck])
def test_a_report_follows_the_schema(made: Any) -> None:
    document = json.loads(render(reported(made()), Format.JSON))
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    validator.check_schema(validator.schema)
    validator.validate(document)
    del document["summary"]["excess"]
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)


def test_a_row_for_each_constraint() -> None:
    report = reported(mended())
    [row] = csv.DictReader(io.StringIO(render(report, Format.CSV)))
    assert row["workloads"].endswith("/web")
    assert (row["excess"], row["evictions"]) == ("3", "2")
    assert (row["domains"], row["after"]) == ("a=5 b=1 c=1", "a=3 b=2 c=2")


@pytest.mark.parametrize("name", ['=HYPERLINK("x")', "+1", "-1", "@x", "\tx", "a\x1b[31m"])
def test_no_cell_is_a_formula_or_acts_on_a_terminal(name: str) -> None:
    report = reported(mended())
    [one] = report.constraints
    named = replace(one, constraint=replace(one.constraint, namespace=name))
    hostile = replace(report, constraints=(named,))
    [row] = csv.DictReader(io.StringIO(render(hostile, Format.CSV)))
    assert row["namespace"][0] not in "=+-@\t"
    assert "\x1b" not in row["namespace"]


def test_objects_of_openreports() -> None:
    """Names and words are those of the API's types: https://github.com/openreports/reports-api."""
    objects = yaml.safe_load(render(reported(stuck()), Format.OPENREPORTS))["items"]
    assert {o["apiVersion"] for o in objects} == {"openreports.io/v1alpha1"}
    for o in objects:
        assert (o["kind"] == "Report") == ("namespace" in o["metadata"])
        assert sum(o["summary"].values()) == len(o["results"])
        for r in o["results"]:
            assert r["result"] in ("pass", "fail", "warn", "error", "skip")
            assert r["severity"] in ("critical", "high", "medium", "low", "info")
            assert set(r["timestamp"]) == {"seconds", "nanos"}
            assert all(isinstance(v, str) for v in r.get("properties", {}).values())
    [constraint] = [r for o in objects for r in o["results"] if r["policy"] == "topology-spread-constraint"]
    assert (constraint["result"], constraint["severity"]) == ("fail", "high")
    assert constraint["resources"] == [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "namespace": "default"}
    ]


def test_a_move_that_is_replaced_first_says_so_and_no_other_does() -> None:
    plan, cluster = mended()
    first = replace(plan.moves[0], method=Method.REPLACE_FIRST, release_label="pod-template-hash")
    made = (replace(plan, moves=(first, *plan.moves[1:])), cluster)
    document = json.loads(render(reported(made), Format.JSON))
    assert [e.get("method") for e in document["evictions"]] == ["replaceFirst", None]
    assert render(reported(made), Format.HTML).count("replaced first</span>") == 1
    assert render(reported(made), Format.WIDE).count(" replaced first") == 1
