"""deploy/fleet: what one cluster makes of many, and what installs the chart in each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.cli.app import app
from tests.deploy.manifests import CHART, ROOT, chart
from tests.support.build import objects
from tests.support.runs.one_cycle import SKEWED

FOLDER = ROOT / "deploy" / "fleet"
Json = dict[str, Any]


def read(file: str) -> list[Json]:
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def container(job: Json) -> Json:
    found: Json = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("version", ["1.29", "1.36"])
def test_every_object_fits_the_schema_of_the_api(version: str) -> None:
    for made in read("central.yaml"):
        kubernetes_validate.validate(made, version, strict=True)


def test_the_jobs_make_a_report_of_each_cluster_and_one_of_all(tmp_path: Path) -> None:
    _, _, each, merge = read("central.yaml")
    for index, cluster in enumerate((SKEWED, SKEWED)):
        (tmp_path / f"snapshot-{index}.yaml").write_text(yaml.safe_dump_all(objects(*cluster)))
    (tmp_path / "reports").mkdir()

    def said(arguments: list[str], index: int) -> list[str]:
        places = {
            "--kubeconfig=/kubeconfigs/": f"--snapshot={tmp_path}/snapshot-",
            "/reports": f"{tmp_path}/reports",
            "$(JOB_COMPLETION_INDEX)": str(index),
        }
        for old, new in places.items():
            arguments = [a.replace(old, new) for a in arguments]
        return [a if "snapshot-" not in a else f"{a}.yaml" for a in arguments]

    for index in range(each["spec"]["jobTemplate"]["spec"]["completions"]):
        done = CliRunner().invoke(app, said(container(each)["args"], index))
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, said(container(merge)["args"], 0))
    assert done.exit_code == 0, done.output
    assert "2 of 2 clusters have violated constraints" in (tmp_path / "reports" / "fleet.html").read_text()


@pytest.mark.parametrize("file", ["applicationset.yaml", "open-cluster-management.yaml"])
def test_what_is_installed_everywhere_is_the_chart_and_it_evicts_nothing(file: str) -> None:
    source = read(file)[-1]["spec"]["template"]["spec"]["source"]
    assert ROOT / source["path"] == CHART
    made = chart(source["helm"]["valuesObject"])
    assert not any("pods/eviction" in rule["resources"] for o in made for rule in o.get("rules", ()))
