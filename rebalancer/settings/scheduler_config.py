"""The scheduler's own configuration file (KubeSchedulerConfiguration), which the engine follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rebalancer.engine.config import SchedulerConfig
from rebalancer.engine.config_file import ConfigError, parse_config
from rebalancer.settings.loading import SettingsError
from rebalancer.yaml_reading import read_yaml

_REMEDY = "planner.schedulerConfig is the KubeSchedulerConfiguration that kube-scheduler's --config names"


def scheduler_config(file: str) -> SchedulerConfig:
    """The KubeSchedulerConfiguration in a YAML or JSON file. Raises SettingsError."""
    try:
        document: Any = read_yaml(Path(file).read_text(encoding="utf-8"))
    except OSError as e:
        raise SettingsError([f"{file}: {(e.strerror or str(e)).lower()}"], _REMEDY) from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise SettingsError([f"{file}: not valid YAML: {' '.join(str(e).split())}"], _REMEDY) from e
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        kind = document.get("kind") if isinstance(document, dict) else None
        raise SettingsError([f"{file}: kind is {kind!r}, not KubeSchedulerConfiguration"], _REMEDY)
    try:
        return parse_config(document)
    except ConfigError as e:
        raise SettingsError([f"{file}: {e}"], _REMEDY) from e
