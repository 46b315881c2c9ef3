"""`once --execute` on a terminal shows its plan and asks; workloads and labels choose what a report shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from rebalancer.cli.app import app
from rebalancer.cli.commands import evict
from tests.support.build import objects, pdb, workload
from tests.support.clusters.long_names import written
from tests.support.processes.command import moving
from tests.support.processes.daemon_process import evictions
from tests.support.runs.one_cycle import SKEWED
from tests.support.sandbox import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(objects(*SKEWED)) as s:
        yield s


def once(
    server: ApiServer,
    folder: Path,
    *more: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    there: bool = True,
) -> Result:
    monkeypatch.setattr(evict, "_somebody_there", lambda: there)
    command = ["once", "--execute", *more, "--kubeconfig", str(server.kubeconfig(folder / "kubeconfig"))]
    with moving(server):
        return CliRunner().invoke(app, command, input=says)


def test_the_plan_is_shown_and_a_yes_carries_it_out(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = once(server, tmp_path, says="y\n", monkeypatch=monkeypatch)
    assert done.exit_code == 0, done.output
    assert "WAVE  EVICT" in done.stderr
    assert done.stderr.count("evict these 4 pods? [y/N]") == 1
    assert "is not in" not in done.output, "what stays has reasons of its own"
    assert "evicted 4 pods, 0 failed" in done.stdout
    assert evictions(server) == 4


def test_what_stays_after_a_yes_is_told_as_the_plan_shown_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = workload("invoices").spread("zone", 1).placed({"a-0": 3})
    budget = pdb("invoices", {"app": "invoices"}, min_available=3)
    with ApiServer(objects(*SKEWED, held, budget)) as server:
        done = once(server, tmp_path, says="y\n", monkeypatch=monkeypatch)
    assert "evicted 4 pods, 0 failed" in done.stdout
    assert "excess 2: 3 pods: PodDisruptionBudget default/invoices allows no disruption" in done.stdout


@pytest.mark.parametrize("says", ["n\n", "\n"])
def test_without_a_yes_nothing_is_evicted(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    done = once(server, tmp_path, says=says, monkeypatch=monkeypatch)
    assert done.exit_code == 0
    assert done.stdout.endswith("nothing was evicted\n")
    assert evictions(server) == 0


def test_an_interrupt_instead_of_an_answer_evicts_nothing(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = once(server, tmp_path, says="", monkeypatch=monkeypatch)  # as click has it at the input's end too
    assert done.exit_code == 130
    assert done.stdout.endswith("nothing was evicted\n")
    assert evictions(server) == 0


def test_a_plan_that_differs_after_the_answer_is_asked_again(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[str] = []

    def meanwhile(question: str, **_: object) -> bool:
        answered.append(question)
        if len(answered) == 1:
            server.store.modify(
                "Node", "b-0", None, lambda o: o.setdefault("spec", {}).update(unschedulable=True)
            )
        return True

    monkeypatch.setattr(typer, "confirm", meanwhile)
    done = once(server, tmp_path, says="", monkeypatch=monkeypatch)
    assert len(answered) >= 2
    assert "the plan has changed meanwhile" in done.stderr
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("more", "there"), [(("--yes",), True), ((), False)])
def test_nobody_is_asked_with_yes_or_where_nobody_is(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], there: bool
) -> None:
    done = once(server, tmp_path, *more, says="", monkeypatch=monkeypatch, there=there)
    assert done.exit_code == 0, done.output
    assert "?" not in done.stderr
    assert evictions(server) == 4


def test_a_dry_run_asks_nothing(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = once(server, tmp_path, "--dry-run", says="", monkeypatch=monkeypatch)
    assert "nothing was evicted; --execute does it" in done.stdout
    assert evictions(server) == 0


# What a report shows of a workload, or of pods with labels.


def reported(folder: Path, *chosen: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["report", str(written("eks", folder)), *chosen, "-o", "json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


CHOSEN = [
    (("deploy/cart",), {"Deployment/cart"}),
    (("deployment/cart", "-n", "shop"), {"Deployment/cart"}),
    (("sts/orders-db",), {"StatefulSet/orders-db"}),
    (("deployments.apps/cart",), {"Deployment/cart"}),
    (("-l", "app=cart"), {"Deployment/cart"}),
    (("-l", "app in (cart, search)"), {"Deployment/cart", "Deployment/search"}),
    (("-l", "app,app notin (cart),app!=search", "-n", "ml"), {"Deployment/model-server"}),
]


@pytest.mark.parametrize(("chosen", "workloads"), CHOSEN, ids=[" ".join(c[0]) for c in CHOSEN])
def test_a_report_of_some_workloads_has_theirs_alone(
    tmp_path: Path, chosen: tuple[str, ...], workloads: set[str]
) -> None:
    found = reported(tmp_path, *chosen)
    assert {w for c in found["constraints"] for w in c["workloads"]} == workloads
    assert {e["owner"] for e in found["evictions"]} <= workloads
    names = {w.partition("/")[2] for w in workloads}
    assert {f["object"].rpartition("/")[2] for f in found["findings"]} <= names
    summary = found["summary"]
    assert summary["evictions"] == len(found["evictions"])
    assert summary["waves"] == len(found["waves"]) == len({e["wave"] for e in found["evictions"]})
    assert summary["expectedSeconds"] == sum(w["expectedSeconds"] for w in found["waves"])
    assert not summary["takesLongest"] or summary["takesLongest"].split(" ")[0].split("'")[0] in names
    assert summary["leastExcess"] <= summary["residualExcess"]
    assert not found["domains"]
    assert summary["constraints"] == len(found["constraints"])
    assert all(found["constraints"][f["constraint"]] for e in found["evictions"] for f in e["fixes"])


WRONG = [
    (("deploy/nowhere",), "among 59; names are those of `kubectl get deployment -A`"),
    (("-l", "a,,b"), "'a,,b' is no label selector"),
    (("deploy/cart", "-l", "app=cart"), "one workload, or --selector"),
]


@pytest.mark.parametrize(("chosen", "says"), WRONG)
def test_what_is_not_there_is_said(tmp_path: Path, chosen: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["report", str(written("eks", tmp_path)), *chosen])
    assert done.exit_code
    assert says in done.output + str(done.exception)


def test_explain_takes_the_worst_pod_of_a_workload(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["explain", "deploy/frontend", "--snapshot", str(written("eks", tmp_path))]
    )
    assert done.exit_code == 0, done.output
    first = done.stdout.splitlines()[0]
    assert first.startswith("shop/frontend-")
    assert "-17" in first.partition(" is on ")[2], "in zone a, which has the most of them"
