"""Replays recorded clusters through the engine and writes its verdicts.

    python tests/conformance/replay.py CASES.jsonl[.gz] > VERDICTS.jsonl

The schema of both is that of tests/conformance/README.md.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rebalancer.engine.cluster import ClusterState
from rebalancer.engine.config import DEFAULT_CONFIG, FILTERS
from rebalancer.engine.config_file import parse_config
from rebalancer.engine.framework import Frameworks
from rebalancer.model.decode import Decoder
from rebalancer.model.pod import Pod
from rebalancer.model.snapshot import build_snapshot

Json = dict[str, Any]


def read_lines(path: Path) -> Iterator[Json]:
    """The documents of a JSON Lines file, compressed or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            yield json.loads(line)


class Replay:
    """One case: its cluster, and the pods judged against it."""

    def __init__(self, case: Json) -> None:
        """Reads the case's cluster."""
        self.decoder = Decoder()
        objects = [
            self.decoder.decode(o["kind"], json.dumps(o).encode())
            for group in case["objects"].values()
            for o in group
        ]
        config = parse_config(case["config"]) if case.get("config") else DEFAULT_CONFIG
        snapshot = build_snapshot(objects, now=0.0)
        self.state = ClusterState.of(snapshot, config)
        self.keys = {p.key: p.uid or p.key for p in snapshot.pods}
        self.frameworks = Frameworks(self.state)

    def pod(self, document: Json) -> Pod:
        """A pod of the case."""
        pod = self.decoder.decode("Pod", json.dumps(document).encode())
        assert isinstance(pod, Pod)
        return pod

    def judge(self, pod: Pod) -> Json:
        """The verdict on one pod."""
        framework = self.frameworks.of(pod.template)
        names = self.state.table.names
        found = framework.diagnose(pod.template, pod.node_name)
        feasible = framework.feasible(pod.template, pod.node_name)
        verdict: Json = {"pod": pod.key}
        if found.prefilter is not None:
            r = found.prefilter
            verdict["preFilter"] = {"plugin": r.plugin, "code": r.code, "reasons": list(r.reasons)}
        verdict["filter"] = {
            name: None if r is None else {"plugin": r.plugin, "code": r.code, "reasons": list(r.reasons)}
            for name, r in zip(names, found.nodes, strict=False)
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
        return verdict

    def step(self, step: Json) -> Json | None:
        """Does one step; a verdict if it asks for one."""
        match step["op"]:
            case "place":
                pod = self.pod(step["pod"])
                self.keys[pod.key] = pod.uid or pod.key
                self.state.add(self.keys[pod.key], pod.template, self.state.table.index[pod.node_name])
            case "terminate":
                self.state.terminate(self.keys[step["ref"]])
            case "delete":
                self.state.remove(self.keys[step["ref"]])
            case "evaluate":
                return self.judge(self.pod(step["pod"]))
        return None


def replay(case: Json) -> Json:
    """The engine's verdicts on a case."""
    run = Replay(case)
    verdicts = [run.judge(run.pod(p)) for p in case.get("incoming", ())]
    verdicts += [v for s in case.get("steps", ()) if (v := run.step(s)) is not None]
    return {"id": case["id"], "incoming": verdicts}


if __name__ == "__main__":
    for document in read_lines(Path(sys.argv[1])):
        sys.stdout.write(json.dumps(replay(document), separators=(",", ":")) + "\n")
