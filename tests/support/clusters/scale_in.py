"""Random ReplicaSets under spread constraints, as objects and as plain rules, for scale-ins."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.build import deployment, node, objects, replica_set, workload
from tests.support.judge.scale_in import Rule
from tests.support.scheduler.plain import Json

FORMS = ("one key", "two keys", "defaults", "others", "revisions")


@dataclass(frozen=True, slots=True)
class Shrinking:
    """A workload that may shrink. `pods`: its own; `rules`: its constraints over nodes."""

    form: str
    objects: list[Json]
    pods: list[Json]
    rules: list[Rule]

    @property
    def nodes(self) -> list[str]:
        """Where its pods run."""
        return [p["spec"]["nodeName"] for p in self.pods]


def shrinking(seed: int) -> Shrinking:
    """The workload of a seed: one or two keys, hard and soft, the scheduler's defaults, with others' pods
    under the same selector, or one of two revisions that matchLabelKeys keeps apart."""
    random = Random(seed)
    form = FORMS[seed % len(FORMS)]
    zones = "abcd"[: random.randint(2, 4)]
    names = [f"{z}-{i}" for z in zones for i in range(random.randint(1, 3))]
    racks = {n: random.choice("rst") for n in names}
    keys = {
        "zone": {n: n[0] for n in names},
        "hostname": {n: n for n in names},
        "rack": racks,
    }
    made: list[object] = [node(n).zone(n[0]).label("rack", racks[n]) for n in names]
    placed = [random.choice(names) for _ in range(random.randint(2, 9))]
    others = [random.choice(names) for _ in range(random.randint(1, 5))]
    rules: list[Rule] = []
    web = replica_set("web").labels(tier="t") if form != "revisions" else deployment("web")

    def constrained(key: str, beside: list[str]) -> None:
        soft, least = random.random() < 0.4, random.choice([None, None, 3])
        skew = random.randint(1, 2)
        if soft:
            least = None
        web.spread(
            key,
            skew,
            soft=soft,
            min_domains=least,
            selector={"tier": "t"} if form == "others" else {"app": "web"},
            match_label_keys=("pod-template-hash",) if form == "revisions" else (),
        )
        domain = keys[key]
        there = {d: sum(domain[n] == d for n in beside) for d in set(domain.values())}
        rules.append(Rule(domain, skew, not soft, least or 1, there))

    if form == "defaults":
        selector = {"app": "web"}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"selector": selector},
            }
        )
        rules += [Rule(keys["hostname"], 3, hard=False), Rule(keys["zone"], 5, hard=False)]
        placed += [random.choice(names[:2]) for _ in range(random.randint(0, 4))]
    else:
        chosen = random.sample(sorted(keys), 2 if form == "two keys" else 1)
        for key in chosen:
            constrained(key, others if form == "others" else [])
    if form == "others":
        made.append(workload("more").labels(tier="t").on_nodes(others))
    built = objects(*made, web.on_nodes(placed))
    pods = [
        o
        for o in built
        if o["kind"] == "Pod" and any(r["name"].startswith("web") for r in o["metadata"]["ownerReferences"])
    ]
    for i, pod in enumerate(pods):
        since = f"2026-01-01T0{random.randint(0, 9)}:00:00Z"
        pod["metadata"]["creationTimestamp"] = since
        pod["metadata"]["uid"] = f"{i}-{seed}"
        for c in pod["status"].get("conditions", ()):
            c["lastTransitionTime"] = since
    if form == "revisions":
        for pod in (stale := [dict(p) for p in pods[:3]]):
            pod["metadata"] = {
                **pod["metadata"],
                "name": pod["metadata"]["name"] + "-old",
                "uid": pod["metadata"]["uid"] + "-old",
                "labels": {**pod["metadata"]["labels"], "pod-template-hash": "old"},
                "ownerReferences": [],
            }
        built += stale
    return Shrinking(form, built, pods, rules)
