"""What kubectl's users type, and commands that say what to type next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rebalancer import __version__
from rebalancer.report.words import Command
from rebalancer.sandbox import ApiServer
from rebalancer.settings import SettingsError, load_settings
from tests.support.build import objects, workload
from tests.unit.cli.test_cli import NODES, cluster, execute, run

SPELLINGS = {
    "an equals sign": ["report", "--snapshot", "FILE", "-o=json"],
    "attached": ["report", "--snapshot", "FILE", "-ojson"],
    "a file without an option": ["report", "FILE", "-o", "json"],
    "all namespaces": ["report", "FILE", "-A", "-o", "json"],
    "all namespaces, long": ["report", "FILE", "--all-namespaces", "-o", "json"],
    "a namespace with an equals sign": ["report", "FILE", "-n=default", "-o=json"],
    "standard output by name": ["report", "FILE", "-o", "json", "--output-file", "-"],
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_spelling(case: str, tmp_path: Path) -> None:
    path = str(cluster(tmp_path))
    shown = run(*(path if a == "FILE" else a for a in SPELLINGS[case]))
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["summary"]["evictions"] == 2


def test_all_namespaces_are_all_whatever_the_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("scope: {namespaces: {include: [other]}}")
    at = ("report", cluster(tmp_path), "--config", tmp_path / "settings.yaml", "-o", "json")
    assert json.loads(run(*at).stdout)["evictions"] == []
    assert len(json.loads(run(*at, "-A").stdout)["evictions"]) == 2


def test_the_version_as_a_command() -> None:
    assert run("version").stdout == f"rebalancer {__version__}\n"
    assert json.loads(run("version", "-o=json").stdout)["version"] == __version__


@pytest.mark.parametrize(("color", "coloured"), [("always", True), ("never", False), ("auto", False)])
def test_colour_is_as_asked_for(color: str, coloured: bool, tmp_path: Path) -> None:
    shown = run("report", cluster(tmp_path), "--color", color).stdout
    assert ("\x1b[" in shown) == coloured


def test_no_summary_of_a_command_is_cut() -> None:
    for command in ([], ["config"]):
        assert "..." not in run(*command, "--help").stdout.partition("Commands:")[2].partition("Examples:")[0]


USAGE = {
    "two scopes": ["report", "FILE", "-n", "a", "-A"],
    "a scale": ["simulate", "FILE", "--scale", "web"],
    "a scale without a name": ["simulate", "FILE", "--scale", "shop/=3"],
    "a domain": ["simulate", "FILE", "--fail-domain", "zone"],
    "a colour": ["report", "FILE", "--color", "green"],
    "a time": ["report", "FILE", "--now", "yesterday"],
    "a dry run": ["once", "--dry-run=perhaps"],
    "a level": ["lint", "FILE", "--severity", "no-pdb=loud"],
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_told_before_anything_is_read(case: str) -> None:
    """The file does not exist: nobody has looked for it."""
    shown = run(*("/nowhere.json" if a == "FILE" else a for a in USAGE[case]))
    assert shown.exit_code == 2, shown.output
    assert "/nowhere.json" not in shown.output


FOREIGN = ("input should", "valid integer", "valid boolean", "valid string", "field required", "extra inputs")
WORDS = {
    "a format": (["report", "FILE", "-o", "xml"], "'xml' is not one of"),
    "a number that is none": (["report", "FILE", "--top", "x"], "'x' is no whole number"),
    "a number out of range": (["drill", "FILE", "--max-pending", "-1"], "'-1' is less than 0"),
}


@pytest.mark.parametrize("case", WORDS)
def test_no_option_answers_in_the_words_of_a_library(case: str) -> None:
    args, words = WORDS[case]
    shown = run(*args)
    assert shown.exit_code == 2
    assert words in " ".join(shown.output.split())
    assert not [w for w in (*FOREIGN, "value error") if w in shown.output.lower()]


def test_a_namespace_without_a_name_is_told(tmp_path: Path) -> None:
    assert "'' is no name of a namespace" in execute("report", cluster(tmp_path), "-n", "").stderr


@pytest.mark.parametrize(
    "command", [("config", "validate"), ("config", "from-descheduler"), ("lint",), ("fix",)]
)
def test_settings_and_manifests_that_are_nested_without_end_are_told_of(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    done = execute(*command, tmp_path / "deep.yaml")
    assert "nested too deeply to be read" in done.stdout + done.stderr
    assert done.returncode in (1, 3)


def test_a_group_goes_to_the_server_with_the_user(tmp_path: Path) -> None:
    with ApiServer(objects(*NODES, workload("web").placed({"a-0": 1}))) as server:
        at = ("--kubeconfig", server.kubeconfig(tmp_path / "config"), "--as", "ann", "--as-group", "dev")
        assert run("report", *at, "-o", "json").exit_code == 0


def test_what_to_do_next_repeats_the_flags_and_names_the_context_of_the_report(tmp_path: Path) -> None:
    things = objects(*NODES, workload("web").spread("zone", 1).placed({"a-0": 5, "b-0": 1, "c-0": 1}))
    with ApiServer(things) as server:
        config = str(server.kubeconfig(tmp_path / "my config"))
        done = execute("report", "--kubeconfig", config, "-n", "default", "-o", "json")
        context = json.loads(done.stdout)["cluster"]
        shown = " ".join(execute("report", "--kubeconfig", config, "-n", "default").stdout.split())
    assert f"rebalancer once --kubeconfig '{config}' -n default --context {context} --execute" in shown


def test_the_plan_of_a_file_is_never_carried_out_on_whatever_context_is_current(tmp_path: Path) -> None:
    shown = " ".join(run("report", cluster(tmp_path)).stdout.split())
    assert "then rebalancer once --context CONTEXT --plan plan.json --execute" in shown
    assert "once --execute" not in shown


def test_hostile_flags_are_quoted() -> None:
    line = Command("kubectl rebalancer", ("--context", "a; rm -rf /")).line("once", context="b")
    assert line == "kubectl rebalancer once --context 'a; rm -rf /'"


WRONG_VALUES = ["5", "x", "-1", "1.5", "[1]", "{a: 1}", "null", "true", ".nan", "'9999999999999999999999'"]


@pytest.mark.parametrize("value", WRONG_VALUES)
def test_no_setting_answers_in_the_words_of_a_library(value: str, tmp_path: Path) -> None:
    from rebalancer.settings import Settings

    for group, field in Settings.model_fields.items():
        names = getattr(field.annotation, "model_fields", {})
        for name, inner in names.items():
            path = tmp_path / "settings.yaml"
            path.write_text(f"{field.alias or group}: {{{inner.alias or name}: {value}}}")
            try:
                load_settings(path)
            except SettingsError as e:
                said = str(e).lower()
                assert not [words for words in FOREIGN if words in said], said


def test_a_balanced_cluster_needs_no_next_step(tmp_path: Path) -> None:
    assert "Next" not in run("report", cluster(tmp_path, a=2, b=2, c=1)).stdout


def test_a_cycle_in_a_namespace_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with ApiServer(objects(*NODES, workload("web").placed({"a-0": 1}))) as server:
        config = server.kubeconfig(tmp_path / "config")
        done = execute("once", "--kubeconfig", config, "-n", "defalt")
    assert done.returncode == 1
    assert "error: no namespace defalt in " in done.stderr


def test_a_settings_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = execute("report", "--config", tmp_path / "nowhere.yaml")
    assert done.returncode == 2
    assert "no such file" in " ".join(done.stderr.split())
