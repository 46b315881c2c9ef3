"""`report --contexts` and `--fleet`: several clusters in one report."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner, Result

from rebalancer.cli.app import app
from tests.support.build import nodes, objects, workload
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer

BALANCED = (*nodes(a=1, b=1), workload("api").spread("zone", 1).placed({"a-0": 1, "b-0": 1}))
SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "report.schema.json").read_text())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two files, a folder of files, and one that is no cluster."""
    folder = tmp_path / "fleet"
    (folder / "us").mkdir(parents=True)
    (folder / "eu.yaml").write_text(yaml.safe_dump_all(objects(*SKEWED)))
    kinds = objects(*BALANCED)
    (folder / "us" / "nodes.json").write_text(
        json.dumps({"kind": "List", "items": [o for o in kinds if o["kind"] == "Node"]})
    )
    (folder / "us" / "rest.json").write_text(
        json.dumps({"kind": "List", "items": [o for o in kinds if o["kind"] != "Node"]})
    )
    return folder


def test_each_file_and_folder_of_a_directory_is_a_cluster_the_worst_first(fleet: Path) -> None:
    done = run("--fleet", fleet, "-o", "json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["kind"], document["summary"]["clusters"]) == ("FleetReport", 2)
    assert [c["name"] for c in document["clusters"]] == ["eu", "us"]
    assert document["summary"]["evictions"] == document["clusters"][0]["report"]["summary"]["evictions"] == 4
    assert document["clusters"][0]["lead"].startswith("Losing zone a takes 100% of default/web")
    jsonschema.validate(document, {"$ref": "#/$defs/FleetReport", "$defs": SCHEMA["$defs"]})


def test_a_report_stands_for_its_cluster_and_its_figures_are_the_same(fleet: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    assert run(fleet / "us", "-o", "json", "--output-file", told / "us.json").exit_code == 0
    assert run(fleet / "eu.yaml", "-o", "json", "--output-file", told / "eu.json").exit_code == 0
    (told / "eu.json.gz").write_bytes(gzip.compress((told / "eu.json").read_bytes()))
    (told / "eu.json").unlink()
    planned = json.loads(run("--fleet", fleet, "-o", "json").stdout)
    read = json.loads(run("--fleet", told, "-o", "json").stdout)
    jsonschema.validate(read, {"$ref": "#/$defs/FleetReport", "$defs": SCHEMA["$defs"]})
    assert read["summary"] == planned["summary"]
    for by_report, by_snapshot in zip(read["clusters"], planned["clusters"], strict=True):
        assert (by_report["name"], by_report["grade"]) == (by_snapshot["name"], by_snapshot["grade"])
        assert by_report["report"] is None
        assert by_report["reportedAt"]
    shown = run("--fleet", told).stdout
    assert "1 of 2 clusters has violated constraints, excess 5; 4 evictions bring it down to 0" in shown
    (told / "odd.json").write_text('{"apiVersion": "rebalancer/v1", "kind": "Report", "summary": {}}')
    done = run("--fleet", told)
    assert done.exit_code == 1
    assert "make the report again" in " ".join(done.stdout.split())


def test_side_by_side_they_are_what_they_are_one_by_one(fleet: Path) -> None:
    documents = [
        json.loads(run("--fleet", fleet, "-o", "json", "--now", "2026-11-01T00:00:00Z", "--jobs", n).stdout)
        for n in (1, 2)
    ]
    for document in documents:
        for cluster in document["clusters"]:
            cluster["summary"]["seconds"] = cluster["report"]["summary"]["seconds"] = 0
    assert documents[0] == documents[1]


@pytest.mark.parametrize("form", ["table", "markdown", "yaml", "csv", "html"])
def test_every_format_has_every_cluster(form: str, fleet: Path, tmp_path: Path) -> None:
    shown = run("--fleet", fleet, "-o", form).stdout
    assert "eu" in shown
    assert "us" in shown
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(shown)))
        assert [(r["cluster"], r["excess"]) for r in rows] == [("eu", "5"), ("us", "0")]
    else:
        assert "1 of 2 clusters has violated constraints, excess 5; 4 evictions bring it down to 0" in (
            shown
            if form != "yaml"
            else "1 of 2 clusters has violated constraints, excess 5; 4 evictions bring it down to 0"
        )
    file = tmp_path / f"out.{form}"
    assert run("--fleet", fleet, "-o", form, "--output-file", file).exit_code == 0
    assert file.read_text().count("eu") == shown.count("eu")


def test_a_cluster_that_cannot_be_read_is_an_entry_and_an_error(fleet: Path) -> None:
    (fleet / "broken.json").write_text("{")
    done = run("--fleet", fleet)
    assert done.exit_code == 1
    assert "1 could not be read" in done.stdout
    assert "not valid JSON" in " ".join(done.stdout.split())
    assert "eu" in done.stdout


def test_violations_of_one_cluster_are_those_of_the_fleet(fleet: Path) -> None:
    assert run("--fleet", fleet, "--exit-code").exit_code == 3
    (fleet / "eu.yaml").unlink()
    assert run("--fleet", fleet, "--exit-code").exit_code == 0


def test_contexts_are_read_one_after_the_other(tmp_path: Path) -> None:
    with ApiServer(objects(*SKEWED)) as eu, ApiServer(objects(*BALANCED)) as us:
        config = json.loads(eu.kubeconfig(tmp_path / "one").read_text())
        other = json.loads(us.kubeconfig(tmp_path / "two").read_text())
        for made, name in ((config, "prod-eu"), (other, "prod-us")):
            made["clusters"][0]["name"] = made["users"][0]["name"] = name
            made["contexts"][0] = {"name": name, "context": {"cluster": name, "user": name}}
        for key in ("clusters", "users", "contexts"):
            config[key] += other[key]
        (tmp_path / "both").write_text(json.dumps(config))
        done = run("--contexts", "prod-us, prod-eu,nowhere", "--kubeconfig", tmp_path / "both", "-o", "json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [(c["name"], bool(c["report"])) for c in document["clusters"]] == [
        ("nowhere", False), ("prod-eu", True), ("prod-us", True),
    ]  # fmt: skip
    assert document["clusters"][1]["report"]["cluster"] == "prod-eu"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--contexts", "a,a"], "names a twice"),
        (["--contexts", ","], "names no context"),
        (["--contexts", "a", "--context", "b"], "exclude each other"),
        (["--fleet", "nowhere"], "no such file"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: list[str], why: str) -> None:
    done = run(*arguments)
    assert done.exit_code in (1, 2)
    assert why in str(done.exception) + done.output


def test_names_in_the_page_are_not_read_as_markup(fleet: Path) -> None:
    (fleet / "eu.yaml").rename(fleet / "<script>alert(1)<script>.yaml")
    page = run("--fleet", fleet, "-o", "html").stdout
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
