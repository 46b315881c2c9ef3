"""deploy/ rendered: overlays by kubectl's kustomize, the chart by Helm's own engine."""

from __future__ import annotations

import copy
import functools
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
OVERLAYS = ROOT / "deploy" / "kustomize" / "overlays"
CHART = ROOT / "deploy" / "helm" / "rebalancer"
KUBECTL = shutil.which("kubectl")
NAMESPACE = "rebalancer"
ON: Object = {"evictions": {"enabled": True}}

IMAGE: Object = {"image": {"repository": "rebalancer"}}

SAME: dict[str, Object] = {
    "report": {"mode": "report"},
    "cronjob": {"mode": "cronjob"},
    "daemon": {},
    "cronjob-evicting": {"mode": "cronjob", **ON},
    "daemon-evicting": ON,
    "monitoring": {"monitoring": {"enabled": True}},
}
"""Overlay → the chart's values that mean the same."""


@functools.cache
def _kustomized(overlay: str) -> str:
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH")
    command = [KUBECTL, "kustomize", str(OVERLAYS / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def overlay(name: str) -> list[Object]:
    """An overlay's objects."""
    return [o for o in yaml.safe_load_all(_kustomized(name)) if o]


def with_image(values: Object) -> Object:
    """The values, and an image where they name none."""
    return {**values, "image": {**IMAGE["image"], **values.get("image", {})}}


def chart(values: Object, *, name: str = "rebalancer", namespace: str = NAMESPACE) -> list[Object]:
    """The chart's objects under these values."""
    with helm_python.Chart.load(CHART) as loaded:
        texts = loaded.render(with_image(values), name=name, namespace=namespace)
    manifests = [text for file, text in sorted(texts.items()) if file.endswith(".yaml")]
    return [o for text in manifests for o in yaml.safe_load_all(text) if o]


def notes(values: Object) -> str:
    """What Helm tells after an installation."""
    with helm_python.Chart.load(CHART) as loaded:
        return str(
            loaded.render(with_image(values), name="rebalancer", namespace=NAMESPACE)[
                "rebalancer/templates/NOTES.txt"
            ]
        )


def settings_in(objects: Iterable[Object]) -> str:
    """The settings file of an installation."""
    text: str = next(o for o in objects if o["kind"] == "ConfigMap" and "data" in o)["data"][
        "rebalancer.yaml"
    ]
    return text


def pod_template(obj: Object) -> Object | None:
    """The pod template of a workload."""
    if obj["kind"] == "CronJob":
        obj = obj["spec"]["jobTemplate"]
    template: Object | None = obj.get("spec", {}).get("template")
    return template


def key(obj: Object) -> str:
    """Kind and name, without what a generator hangs on."""
    name = re.sub(r"^(rebalancer-(?:config|report))-[a-z0-9]+$", r"\1", obj["metadata"]["name"])
    return f"{obj['kind']}/{name}"


def essence(objects: list[Object]) -> dict[str, Object]:
    """What kustomize and Helm have to agree on: everything but the marks that each leaves on its objects."""
    found: dict[str, Object] = {}
    for obj in copy.deepcopy(objects):
        if obj["kind"] == "Namespace":
            continue  # Helm makes none: --create-namespace does
        name = key(obj)
        if obj["kind"] == "ConfigMap":
            obj["data"] = {k: yaml.safe_load(text) for k, text in obj.get("data", {}).items()}
        for rule in obj.get("rules", ()):
            rule.update({k: sorted(v) for k, v in rule.items()})
        template = pod_template(obj)
        if template is not None:
            template["metadata"].pop("annotations", None)
        _strip(obj)
        obj["metadata"]["name"] = name.partition("/")[2]
        found[name] = obj
    return found


def _strip(value: Any) -> None:
    """Labels of releases and charts go, names of generated ConfigMaps are what they were."""
    if isinstance(value, dict):
        for mark in ("instance", "version", "managed-by"):
            value.pop(f"app.kubernetes.io/{mark}", None)
        value.pop("helm.sh/chart", None)
        if isinstance(map_ := value.get("configMap"), dict):
            map_["name"] = re.sub(r"^(rebalancer-config)-[a-z0-9]+$", r"\1", map_["name"])
        for inner in value.values():
            _strip(inner)
    elif isinstance(value, list):
        for inner in value:
            _strip(inner)
