"""Replays recorded clusters through the engine and writes its verdicts.

    python tests/conformance/replay.py [--version 1.34.9] CASES.jsonl[.gz|.xz] > VERDICTS.jsonl

The documents are those of tests/conformance/RECORDING.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from rebalancer.engine.config import DEFAULT_CONFIG, FILTERS, parse_config
from rebalancer.engine.framework import (
    NOT_HELPFUL,
    Diagnosis,
    Framework,
    Frameworks,
    nobody_preempted,
    preempt,
)
from rebalancer.engine.plugins.plugin import Rejection
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.version import POD_LEVEL_RESOURCES, ServerVersion
from rebalancer.model.decode.objects import Decoder
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import build_snapshot
from tests.conformance.recordings import Json, read_lines

NEWEST = "1.36.2"
NO_PROFILE: Json = {
    "filter": {},
    "filterByPlugin": {},
    "weightedScoresByPlugin": {},
    "totalScore": {},
    "error": "no profile",
}
"""The verdict on a pod whose schedulerName no profile has."""


class Replay:
    """One case: its cluster, and the pods judged against it."""

    def __init__(self, case: Json, version: str = NEWEST) -> None:
        """Reads the case's cluster. `version`: of the API server and the scheduler."""
        self.version = ServerVersion.parse(version)
        self.decoder = Decoder()
        objects = [
            self.decoder.decode(o["kind"], msgspec.json.encode(self._kept(o)))
            for group in case["objects"].values()
            for o in group
        ]
        config = parse_config(case["config"]) if case.get("config") else DEFAULT_CONFIG
        snapshot = build_snapshot(objects, now=0.0, server_version=version)
        self.state = ClusterState.of(snapshot, config)
        self.keys = {p.key: p.uid or p.key for p in snapshot.pods}
        self.frameworks = Frameworks(self.state)

    def _kept(self, document: Json) -> Json:
        """The object as the API server keeps it: those before 1.34 drop pod-level resources by default."""
        if document["kind"] != "Pod" or self.version.has(POD_LEVEL_RESOURCES):
            return document
        return {**document, "spec": {k: v for k, v in document["spec"].items() if k != "resources"}}

    def pod(self, document: Json) -> Pod:
        """A pod of the case."""
        pod = self.decoder.decode("Pod", msgspec.json.encode(self._kept(document)))
        assert isinstance(pod, Pod)
        return pod

    def judge(self, pod: Pod) -> Json:
        """The verdict on one pod."""
        if not self.state.config.places(pod.template.scheduler_name):
            return {"pod": pod.key, **NO_PROFILE}
        with self.state.unhindered(pod.uid or pod.key):
            return {"pod": pod.key, **self._verdict(self.frameworks.of(pod.template), pod)}

    def _verdict(self, framework: Framework, pod: Pod) -> Json:
        names = self.state.table.names
        found = framework.diagnose(pod.template, pod.node_name)
        feasible = framework.feasible(pod.template, pod.node_name)
        verdict: Json = {}
        if found.prefilter is not None:
            verdict["preFilter"] = _rejection(found.prefilter)
        verdict["filter"] = {
            name: None if r is None else _rejection(r) for name, r in zip(names, found.nodes, strict=False)
        }
        assert feasible.tolist() == [r is None for r in found.nodes] or (
            found.prefilter is not None and not feasible.any()
        ), "the fast path and the diagnosis disagree"
        verdict["filterByPlugin"] = {
            plugin: {names[row]: list(r.reasons) for row, r in found.by_plugin.get(plugin, {}).items()}
            for plugin in FILTERS
        }
        verdict["weightedScoresByPlugin"], verdict["totalScore"] = {}, {}
        if feasible.any():
            scores = framework.score(pod.template, feasible, pod.node_name)
            rows = feasible.nonzero()[0].tolist()
            verdict["weightedScoresByPlugin"] = {
                plugin: {names[row]: int(values[row]) for row in rows}
                for plugin, values in scores.by_plugin.items()
            }
            verdict["totalScore"] = {names[row]: int(scores.totals[row]) for row in rows}
        elif found.prefilter is None and names:
            verdict["preempt"] = self._preemption(framework, pod, found)
        return verdict

    def _preemption(self, framework: Framework, pod: Pod, found: Diagnosis) -> dict[str, str]:
        names = self.state.table.names
        preemption = preempt(framework, pod.template, found)
        if preemption.ineligible:
            tried = nobody_preempted(found, len(names)).reasons
            return {names[row]: NOT_HELPFUL if NOT_HELPFUL in r else "never" for row, r in tried.items()}
        reasons = {names[row]: "; ".join(reasons) for row, reasons in preemption.reasons.items()}
        return reasons | {names[row]: "possible" for row in preemption.possible}

    def step(self, step: Json) -> Json | None:
        """Does one step; a verdict if it asks for one."""
        match step["op"]:
            case "place":
                pod = self.pod(step["pod"])
                self.state.drop(pod.uid or pod.key)  # what it was nominated for
                self.keys[pod.key] = pod.uid or pod.key
                self.state.add(self.keys[pod.key], pod.template, self.state.table.index[pod.node_name])
            case "terminate":
                self.state.terminate(self.keys[step["ref"]])
            case "delete":
                self.state.remove(self.keys[step["ref"]])
            case "evaluate":
                return self.judge(self.pod(step["pod"]))
        return None


def replay(case: Json, version: str = NEWEST) -> Json:
    """The engine's verdicts on a case, following a version of the scheduler."""
    run = Replay(case, version)
    verdicts = [run.judge(run.pod(p)) for p in case.get("incoming", ())]
    verdicts += [v for s in case.get("steps", ()) if (v := run.step(s)) is not None]
    return {"id": case["id"], "incoming": verdicts}


def _rejection(rejection: Rejection) -> Json:
    return {"plugin": rejection.plugin, "code": rejection.code, "reasons": list(rejection.reasons)}


def main() -> None:
    """Writes the verdicts on the cases of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", default=NEWEST, help=f"of kube-scheduler (default: {NEWEST})")
    parser.add_argument("cases", type=Path)
    asked = parser.parse_args()
    for document in read_lines(asked.cases):
        sys.stdout.write(json.dumps(replay(document, asked.version), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
