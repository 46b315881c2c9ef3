"""What is planned where the scheduler is newer than all rules that are known.

The last known rules are taken, however many releases ahead it is, and no move counts as certain, unless
policy refuses.
"""

from __future__ import annotations

from rebalancer.engine.version import ServerVersion
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.options import NewerVersions


def why_held(version: ServerVersion, policy: NewerVersions) -> Reason | None:
    """Why no pod may be evicted; None if the version is known, or policy lets it be planned for."""
    if not version.newer_by or policy == "likely":
        return None
    return Reason(
        ReasonCode.NEWER_VERSION,
        f"server version {version.text} is newer than {version.followed}, the last whose rules are known, "
        "and policy refuses to evict by those",
        {"ahead": version.newer_by},
        "upgrade the rebalancer to a release that knows this version, or set planner.newerVersions: likely",
    )
