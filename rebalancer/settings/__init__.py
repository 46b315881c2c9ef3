"""Configuration: file < environment (`REBALANCER_…`) < flags, camelCase as in Kubernetes.

settings           every setting with its meaning, unit, default and reason; groups/: those of running it
field_types        durations, numbers or percentages, label selectors
loading            the three sources, and every mistake as an error that names its place
descheduler_policy a descheduler's policy → settings
"""

from rebalancer.settings.loading import SettingsError, load_settings, plan_options
from rebalancer.settings.settings import Settings

__all__ = ["Settings", "SettingsError", "load_settings", "plan_options"]
