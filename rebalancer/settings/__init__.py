"""Configuration: file < environment (`REBALANCER_…`) < flags, camelCase as in Kubernetes.

types      durations, numbers or percentages, label selectors
model      every setting with its meaning, unit, default and reason
loading    the three sources, and every mistake as an error that names its place
scheduler  the scheduler's own configuration
mapping    settings → the options of planner and policy
document   settings as commented YAML (config/rebalancer.yaml) and as JSON Schema
"""

from rebalancer.settings.loading import SettingsError, load_settings
from rebalancer.settings.mapping import plan_options
from rebalancer.settings.model import Settings

__all__ = ["Settings", "SettingsError", "load_settings", "plan_options"]
