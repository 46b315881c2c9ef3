"""What is planned where the scheduler is newer than all rules that are known.

One minor release ahead, the last known rules are taken and no move counts as certain, unless policy refuses.
Further ahead nothing is evicted: too much may have changed.
"""

from __future__ import annotations

from rebalancer.engine.version import ServerVersion
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.options import NewerVersions

MOST_AHEAD = 1
"""Minor releases ahead for which moves are planned."""
_UPGRADE = "upgrade the rebalancer to a release that knows this version"


def why_held(version: ServerVersion, policy: NewerVersions) -> Reason | None:
    """Why no pod may be evicted; None if the version is known, or near enough for the policy."""
    ahead = version.newer_by
    if not ahead or (ahead <= MOST_AHEAD and policy == "likely"):
        return None
    beyond = f"server version {version.text} is newer than {version.followed}, the last whose rules are known"
    if ahead > MOST_AHEAD:
        return Reason(
            ReasonCode.NEWER_VERSION,
            f"{beyond}, by more than one minor release: where pods would land is not known",
            {"ahead": ahead},
            _UPGRADE,
        )
    return Reason(
        ReasonCode.NEWER_VERSION,
        f"{beyond}, and policy refuses to evict by those",
        {"ahead": ahead},
        f"{_UPGRADE}, or set planner.newerVersions: likely",
    )
