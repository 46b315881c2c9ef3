"""How often what happens in a month. Fixed before the first month was played; the results do not choose them.

All are means of a Poisson process. None is measured in a real cluster: they are what an autoscaled cluster
with weekly releases, rolling node upgrades and a bad day a month may see.
"""

from __future__ import annotations

SCALINGS_PER_DAY = 1.0
"""Changes of a workload's replicas: out by day, in by night and every other day."""
SCALED_TO = (0.5, 1.5)
"""What a workload is scaled to, of the replicas that it has in the snapshot; never below two."""
ROLLOUTS_PER_WEEK = 2.0
"""New revisions of a workload."""
REPLACEMENTS_PER_MONTH = 2.0
"""A node is drained and replaced by an empty one of its shape and zone."""
OUTAGES_PER_MONTH = 1.0
"""A zone of the cluster falls silent; its pods are made anew elsewhere."""
OUTAGE_HOURS = 2.0
"""After so long it is back, empty."""
CYCLE_HOURS = 0.25
"""How long after a change evictions follow, where they are on."""
