"""The command line: exit codes, errors in one line, and a start that waits for nothing it does not need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rebalancer import __version__
from rebalancer.cli.app import app
from rebalancer.cli.console import program_name
from rebalancer.settings import Settings
from tests.support.build import node, objects, workload
from tests.support.clusters.scenarios import SCENARIOS
from tests.support.processes import forked
from tests.support.sandbox import ApiServer

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "scenarios"
NODES = [node(f"{z}-{i}").zone(z) for z in "abc" for i in range(2)]


def cluster(folder: Path, **counts: int) -> Path:
    """A file with three zones and one workload with so many pods in each."""
    placed = {f"{z}-0": n for z, n in (counts or {"a": 5, "b": 1, "c": 1}).items()}
    things = objects(*NODES, workload("web").spread("zone", 1).placed(placed))
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}))
    return path


def run(*arguments: str | Path, stdin: str | None = None) -> Any:
    """The command line in this process."""
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def execute(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("REBALANCER_")} | options.pop("env", {})
    return forked.run([str(a) for a in (BIN / "rebalancer", *arguments)], env=env, **options)


def started(program: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What is of the start itself: a process that has imported nothing."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("REBALANCER_")}
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)


def test_the_version() -> None:
    done = started(BIN / "rebalancer", "--version")
    assert (done.returncode, done.stdout) == (0, f"rebalancer {__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"], ["config", "--help"]], ids=" ".join)
def test_help_has_examples_and_loads_nothing_heavy(arguments: list[str]) -> None:
    heavy = [
        "numpy",
        "highspy",
        "kubernetes",
        "pydantic_settings",
        "rich",
        "yaml",
        "opentelemetry",
        "apscheduler",
    ]
    program = (
        "import sys\n"
        "from rebalancer.cli.app import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        f"print('LOADED', [m for m in {heavy!r} if m in sys.modules])\n"
    )
    done = started(sys.executable, "-c", program)
    assert done.stdout.endswith("LOADED []\n"), done.stdout + done.stderr
    assert "Usage: " in done.stdout
    assert "config" in arguments or "Examples:" in done.stdout


def test_a_report_from_a_file_loads_no_client(tmp_path: Path) -> None:
    file = cluster(tmp_path, a=1, b=1, c=1)
    program = (
        "import sys\n"
        "from rebalancer.cli.app import app\n"
        f"app(['report', '--snapshot', {str(file)!r}], standalone_mode=False)\n"
        "heavy = ('kubernetes', 'apscheduler', 'opentelemetry')\n"
        "print('LOADED', [m for m in heavy if m in sys.modules])\n"
    )
    done = started(sys.executable, "-c", program)
    assert done.stdout.endswith("LOADED []\n"), done.stdout + done.stderr


def test_as_a_kubectl_plugin_the_usage_says_so() -> None:
    assert program_name("/usr/local/bin/kubectl-rebalancer") == "kubectl rebalancer"
    assert program_name("/usr/local/bin/rebalancer") == "rebalancer"
    done = started(BIN / "kubectl-rebalancer", "report", "--help")
    assert done.stdout.startswith("Usage: kubectl rebalancer report ")


def test_completion_is_offered() -> None:
    done = execute(
        env={"_REBALANCER_COMPLETE": "complete_bash", "COMP_WORDS": "rebalancer re", "COMP_CWORD": "1"}
    )
    assert "report" in done.stdout


def test_a_report_of_a_file(tmp_path: Path) -> None:
    shown = run("report", "--snapshot", cluster(tmp_path))
    assert shown.exit_code == 0
    assert "2 evictions in" in shown.stdout
    assert "a=5 b=1 c=1 → a=3 b=2 c=2" in shown.stdout


WHY_NOT = {
    "one_slot": "no-feasible-node",
    "zonal_volumes": "pinned-by-volume",
    "swap_full": "no-feasible-node",
    "rollout_in_progress": "rollout-in-progress",
}


@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "random_cluster"])
def test_the_scenarios(name: str) -> None:
    document = json.loads(run("report", "--snapshot", FOLDER / f"{name}.json.gz", "-o", "json").stdout)
    summary, figures = document["summary"], SCENARIOS[name]
    assert (summary["evictions"], summary["residualExcess"]) == (figures.evictions, figures.residual)
    said = {r["code"] for c in document["constraints"] if c["residualExcess"] for r in c["reasons"]}
    assert {WHY_NOT[name]} <= said if name in WHY_NOT else not said


def test_a_report_of_standard_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = execute("report", "--snapshot", "-", "-o", "json", input=cluster(tmp_path).read_text())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["evictions"] == 2
    assert json.loads(done.stdout)["source"] == "stdin"
    assert done.stderr == ""


def test_a_report_of_a_live_cluster(tmp_path: Path) -> None:
    things = objects(*NODES, workload("web").spread("zone", 1).placed({"a-0": 5, "b-0": 1, "c-0": 1}))
    with ApiServer(things) as server:
        done = execute("report", "-o", "json", "--kubeconfig", server.kubeconfig(tmp_path / "config"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["evictions"] == 2
    assert document["cluster"]


def test_a_cluster_of_which_too_little_could_be_read_is_not_in_balance(tmp_path: Path) -> None:
    path = cluster(tmp_path)
    items = json.loads(path.read_text())["items"]
    for item in items:
        if item["kind"] == "Pod":
            item["spec"] = 5
    path.write_text(json.dumps({"kind": "List", "items": items}))
    done = execute("report", "--snapshot", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: 7 of 7 pods in " in done.stderr
    assert "spec: expected `object`, got `int`" in done.stderr


def test_a_cluster_whose_pods_run_on_nodes_that_were_not_read_is_not_in_balance(tmp_path: Path) -> None:
    path = cluster(tmp_path)
    items = json.loads(path.read_text())["items"]
    for item in items:
        if item["kind"] == "Node":
            item["metadata"]["name"] += "-of-another-cluster"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    done = execute("report", "--snapshot", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "run on nodes that are not in it, so nothing can be said of its balance" in done.stderr


def test_one_odd_object_is_counted_and_told(tmp_path: Path) -> None:
    path = cluster(tmp_path)
    items = json.loads(path.read_text())["items"]
    path.write_text(json.dumps({"kind": "List", "items": [*items, {"kind": "Pod", "metadata": {}}]}))
    assert "1 object could not be read" in run("report", "--snapshot", path).stdout
    document = json.loads(run("report", "--snapshot", path, "-o", "json").stdout)
    assert document["summary"]["unreadable"] == 1


def test_soft_constraints_alone_are_told_with_the_setting(tmp_path: Path) -> None:
    path = cluster(tmp_path)
    path.write_text(path.read_text().replace("DoNotSchedule", "ScheduleAnyway"))
    said = run("report", "--snapshot", path).stdout
    assert ("Only soft constraints here: 1 topology spread constraint with ScheduleAnyway") in said
    assert "planner.softConstraints: predicted" in said


def two_namespaces(folder: Path) -> Path:
    placed = {"a-0": 5, "b-0": 1, "c-0": 1}
    workloads = [workload("web", namespace=ns).spread("zone", 1).placed(placed) for ns in ("shop", "bank")]
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(*NODES, *workloads)}))
    return path


def test_a_namespace_is_what_is_shown_and_where_pods_may_go(tmp_path: Path) -> None:
    path = two_namespaces(tmp_path)
    document = json.loads(run("report", "--snapshot", path, "-n", "shop", "-o", "json").stdout)
    for part in ("constraints", "evictions", "risks", "namespaces"):
        assert {x["namespace"] for x in document[part]} == {"shop"}, part
    assert document["blocked"] == []
    summary = document["summary"]
    assert (summary["constraints"], summary["violated"], summary["evictions"]) == (1, 1, 2)
    assert "bank" not in run("report", "--snapshot", path, "-n", "shop", "-o", "wide").stdout


def test_a_namespace_that_does_not_exist_is_an_error_that_names_similar_ones(tmp_path: Path) -> None:
    path = two_namespaces(tmp_path)
    done = execute("report", "--snapshot", path, "-n", "shopp")
    assert done.returncode == 1
    assert done.stderr.endswith("cluster.json; similar: shop\n")
    assert "there are: bank, shop" in execute("report", "--snapshot", path, "-n", "x").stderr


def test_the_exit_code_tells_violations_only_if_asked(tmp_path: Path) -> None:
    broken = cluster(tmp_path)
    assert run("report", "--snapshot", broken).exit_code == 0
    assert run("report", "--snapshot", broken, "--exit-code").exit_code == 3
    balanced = cluster(tmp_path, a=2, b=2, c=1)
    shown = run("report", "--snapshot", balanced, "--exit-code")
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "Nothing to do: the only constraint holds.")


def test_with_a_fixed_clock_only_the_seconds_differ(tmp_path: Path) -> None:
    once, again = (
        json.loads(
            run(
                "report", "--snapshot", cluster(tmp_path), "--now", "2026-07-01T00:00:00Z", "-o", "json"
            ).stdout
        )
        for _ in range(2)
    )
    assert once["generatedAt"] == "2026-07-01T00:00:00Z"
    for document in (once, again):
        document["summary"].pop("seconds")
    assert json.dumps(once) == json.dumps(again)


@pytest.mark.parametrize(
    ("name", "flags", "begins"),
    [
        ("r.json", [], '{\n  "apiVersion"'),
        ("r.md", [], "## Topology spread"),
        ("r.yaml", [], "apiVersion: rebalancer/v1"),
        ("r.txt", [], "Losing zone a takes 71% of default/web"),
        ("r.txt", ["-o", "json"], '{\n  "apiVersion"'),
    ],
)
def test_a_report_in_a_file(name: str, flags: list[str], begins: str, tmp_path: Path) -> None:
    shown = run("report", "--snapshot", cluster(tmp_path), "--output-file", tmp_path / name, *flags)
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert (tmp_path / name).read_text().startswith(begins)


def test_a_namespace_limits_who_is_evicted_and_not_who_counts(tmp_path: Path) -> None:
    every = json.loads(run("report", "--snapshot", two_namespaces(tmp_path), "-o", "json").stdout)
    document = json.loads(
        run("report", "--snapshot", two_namespaces(tmp_path), "-n", "shop", "-o", "json").stdout
    )
    assert (len(every["evictions"]), len(document["evictions"])) == (4, 2)
    assert document["summary"]["pods"] == every["summary"]["pods"]


ERRORS: list[tuple[str, list[str], dict[str, str], int, str]] = [
    (
        "no such file",
        ["report", "--snapshot", "gone.json"],
        {},
        1,
        "error: gone.json: no such file or directory\n",
    ),
    (
        "no cluster in it",
        ["report", "--snapshot", "empty.json"],
        {},
        1,
        "error: empty.json: no Node in it (no ",
    ),
    (
        "bad settings",
        ["report", "--config", "bad.yaml"],
        {},
        1,
        "error: bad.yaml: policy.minPodAges is no setting",
    ),
    (
        "bad environment",
        ["report", "--snapshot", "empty.json"],
        {"REBALANCER_POLICY__X": "1"},
        1,
        "error: environment variable REBALANCER_POLICY__X is no setting",
    ),
    (
        "unwritable",
        ["report", "--snapshot", "c", "--output-file", "no/r.json"],
        {},
        1,
        "error: no/r.json: cannot be",
    ),
    (
        "no cluster at all",
        ["report"],
        {"HOME": "/nonexistent", "KUBECONFIG": ""},
        1,
        "error: no cluster to talk to",
    ),
    ("a format that is none", ["report", "-o", "xml"], {}, 2, "Invalid value for '--output'"),
    ("a time that is none", ["report", "--now", "noon"], {}, 2, "'noon' is no RFC 3339 time"),
    ("an option that is none", ["report", "--execute-all"], {}, 2, "No such option"),
    ("a command that is none", ["rebalance"], {}, 2, "No such command"),
]


@pytest.mark.parametrize(
    ("arguments", "env", "code", "says"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS]
)
def test_an_error_is_one_line_with_its_remedy(
    arguments: list[str], env: dict[str, str], code: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "bad.yaml").write_text("policy: {minPodAges: 5m}")
    (tmp_path / "c").mkdir()
    cluster(tmp_path / "c")
    done = execute(*arguments, cwd=tmp_path, env=env)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_traceback_only_if_asked_for() -> None:
    done = execute("report", "--snapshot", "gone.json", "--debug")
    assert "Traceback" in done.stderr
    assert done.returncode == 1


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    file = cluster(tmp_path)
    done = started("/bin/sh", "-c", f"{BIN}/rebalancer report --snapshot {file} -o json | head -c 1")
    assert (done.stdout, done.stderr) == ("{", "")


def test_config_show_validate_and_schema(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("evictions: {maxTotal: 10%}\n")
    (tmp_path / "bad.yaml").write_text("evictions: {maxTotal: 110%}\npolicies: {}\n")
    assert "maxTotal: 10%" in run("config", "show", "--config", tmp_path / "good.yaml").stdout
    assert run("config", "validate", tmp_path / "good.yaml").stdout == f"{tmp_path}/good.yaml: valid\n"
    refused = run("config", "validate", tmp_path / "bad.yaml")
    assert refused.exit_code == 1
    assert refused.stderr.count("error: ") == 2
    assert set(json.loads(run("config", "schema").stdout)["properties"]) == set(Settings.defaults().plain())


def test_the_readme_shows_what_is_printed(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"report (--snapshot (\S+one_slot\S+))\n(.*?)```", readme, re.S)
    assert shown is not None
    printed = execute("report", "--snapshot", shown.group(2), cwd=ROOT).stdout

    def untimed(text: str) -> str:
        return re.sub(r" · [\d.]+ m?s$", "", text, flags=re.M).strip()

    assert untimed(printed).startswith(untimed(shown.group(3)))
    (tmp_path / "my.yaml").write_text("policy:\n  minPodAge: 5 minutes\n")
    assert execute("report", "--config", "my.yaml", cwd=tmp_path).stderr in readme


def test_the_readme_s_settings_are_settings(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert example is not None
    (tmp_path / "my.yaml").write_text(example.group(1))
    assert run("config", "validate", tmp_path / "my.yaml").exit_code == 0
