"""What differs between the versions of kube-scheduler: every change of a rule, once, with its source.

`CHANGES` is the list, `ServerVersion.has` says whether a version has a change, and the plugins ask it.
A version is the API server's: the scheduler may be a minor behind it, and vendors backport. So a verdict that
hangs on a change may be another one than predicted (`ServerVersion.doubt`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

Minor = tuple[int, int]

FIRST, LAST = (1, 29), (1, 37)
"""Versions whose rules are known."""
MAJOR_AHEAD = 1000
"""Stands for the distance to another major release."""
LAST_PATCH = 0
"""The patch release of `LAST` for which a server of unknown version is taken."""


class Change(Struct, frozen=True, eq=False):
    """A rule that came with a release.

    `what`: the rule, as a clause; `source`: the pull requests of kubernetes/kubernetes, or the KEP. `since`:
    the first minor release that has it; `backports`: the first patch release of an older minor that has it.
    `until`: the first minor release that has it no more; `reverted`: patch releases from which on it may be
    gone again, because a fix was on its way when this was written.
    """

    what: str
    source: str
    since: Minor
    backports: Mapping[Minor, int] = {}
    until: Minor | None = None
    reverted: Mapping[Minor, int] = {}


CHANGE_OF_BALANCE = Change(
    "NodeResourcesBalancedAllocation scores what the pod changes of the balance, before: the balance with it",
    "#135573",
    (1, 36),
)
BEST_EFFORT_UNBALANCED = Change(
    "NodeResourcesBalancedAllocation skips pods that request nothing", "#130260", (1, 33)
)
INIT_IMAGES = Change("ImageLocality counts the images of init containers", "#123366", (1, 30))
IMAGE_VOLUMES = Change(
    "ImageLocality counts the images of image volumes",
    "#130231",
    (1, 36),
)
IMAGE_VOLUMES_SHARE = Change("ImageLocality divides by the number of image volumes too", "#138951", (1, 37))
STORAGE_SCORES = Change(
    "VolumeBinding scores how full the storage of a node gets (feature gate StorageCapacityScoring, on by "
    "default)",
    "KEP-4049",
    (1, 37),
)
SIDECARS_IN_SCORES = Change(
    "the resource scores add an existing pod's sidecars to its containers, before: the larger of the two",
    "#127878",
    (1, 32),
)
SIDECAR_PORTS = Change("host ports of sidecars count", "#132040, #133390", (1, 34), {(1, 33): 6})
NODE_WITHOUT_LIMITS = Change(
    "attachable-volumes-csi-… in a node's allocatable limits no volumes, only CSINode does",
    "#124003, #126924",
    (1, 32),
)
ATTACHMENTS = Change(
    "attached volumes count, with a pod or without",
    "#127757",
    (1, 32),
)
NEGATED_NAMESPACES = Change(
    "an incoming pod's affinity term whose namespaceSelector only excludes (NotIn, DoesNotExist) selects "
    "every namespace",
    # The regression of #132457. Its fix is #141563, with #142049 for 1.34 and #142050 for 1.35, opened on
    # 2026-09-12, the day after the deadline of 1.35.9, 1.36.5 and their sister: the first that can have it
    # are these. 1.37 has #138198.
    "#141526, #138198",
    (1, 34),
    until=(1, 37),
    reverted={(1, 34): 13, (1, 35): 10, (1, 36): 6},
)
POD_LEVEL_RESOURCES = Change(
    "requests in a pod's spec.resources count (feature gate PodLevelResources, on by default)",
    "#132999",
    (1, 34),
)
RESIZES = Change(
    "each container of a pod on a node takes the largest of what it asks for, was allocated and has enacted "
    "(feature gate InPlacePodVerticalScaling, on by default)",
    "KEP-1287",
    (1, 33),
)
RESIZES_OF_PODS = Change(
    "so do pod-level resources, and overhead, which their status has in, is added once more (feature gate "
    "InPlacePodLevelResourcesVerticalScaling, on by default)",
    "KEP-5419",
    (1, 36),
)
SUMS_OF_RESIZES = Change(
    "of a pod on a node the largest of the sums of what its containers ask for, were allocated and have "
    "enacted counts; pod-level status replaces the last two, and overhead is added to it once more",
    "#140047, #139627",
    (1, 37),
)
MISSING_DRIVERS = Change(
    "a node without a CSI driver takes no pod with a volume of it, where the CSIDriver sets "
    "preventPodSchedulingIfMissing (feature gate VolumeLimitScaling, on by default)",
    "KEP-5030",
    (1, 37),
)
GATED_NOMINATIONS = Change(
    "a nominated pod that waits behind scheduling gates takes its room", "#139057", (1, 37)
)
EMPTY_SELECTORS = Change(
    "a spread constraint with an empty labelSelector counts all pods of the namespace, before: none",
    "#141340",
    (1, 38),
)
TAINTS_UNNAMED = Change(
    "the reason for an untolerated taint does not name it", "#134740, #135023", (1, 35), {(1, 34): 2}
)
TOO_SMALL_UNRESOLVABLE = Change(
    "a node that is too small even when empty is UnschedulableAndUnresolvable", "#131345", (1, 34)
)
VOLUME_AFFINITY_REASON = Change(
    'wording: "node(s) didn\'t match PersistentVolume\'s node affinity", before: "node(s) had volume node '
    'affinity conflict"',
    "#129887",
    (1, 33),
)
CLAIM_IN_USE_REASON = Change(
    'wording: "… ReadWriteOncePod access mode already in-use by another pod", before: "node has pod using …"',
    "#129145",
    (1, 34),
)

OF_RESIZES = (RESIZES, RESIZES_OF_PODS, SUMS_OF_RESIZES)
"""Changes of what a pod takes while its status says something else than its spec."""
DECISIVE = (
    NEGATED_NAMESPACES,
    SIDECAR_PORTS,
    POD_LEVEL_RESOURCES,
    NODE_WITHOUT_LIMITS,
    ATTACHMENTS,
    *OF_RESIZES,
    MISSING_DRIVERS,
    GATED_NOMINATIONS,
    EMPTY_SELECTORS,
)
"""Changes that decide which nodes take a pod."""

CHANGES = (
    *DECISIVE,
    CHANGE_OF_BALANCE,
    BEST_EFFORT_UNBALANCED,
    SIDECARS_IN_SCORES,
    IMAGE_VOLUMES,
    IMAGE_VOLUMES_SHARE,
    STORAGE_SCORES,
    INIT_IMAGES,
    TOO_SMALL_UNRESOLVABLE,
    TAINTS_UNNAMED,
    CLAIM_IN_USE_REASON,
    VOLUME_AFFINITY_REASON,
)
"""All of them: the decisive ones, those of scores, those of codes and wording."""


class ServerVersion(Struct, frozen=True):
    """The release that the engine follows; the last one that was recorded where the server's is unknown.

    `patch` None: the version names no patch release. `suffix`: what a vendor puts behind the numbers.
    """

    minor: Minor = LAST
    patch: int | None = LAST_PATCH
    suffix: str = ""
    text: str = ""

    @staticmethod
    def parse(text: str) -> ServerVersion:
        """From "v1.34.2", "v1.34.2-eks-b3f3e1b", "1.36+", …"""
        match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(.*)", text)
        if match is None:
            return ServerVersion(text=text)
        major, minor, patch, suffix = match.groups()
        return ServerVersion((int(major), int(minor)), int(patch) if patch else None, suffix, text)

    @property
    def supported(self) -> bool:
        """Whether the version is known and inside the contract."""
        return bool(self.text) and FIRST <= self.minor <= LAST

    @property
    def newer_by(self) -> int:
        """How many minor releases it is ahead of the last one whose rules are known; 0 if it is not."""
        if not self.text or self.minor <= LAST:
            return 0
        # A new major release has no known distance; it is further ahead than any minor.
        return self.minor[1] - LAST[1] if self.minor[0] == LAST[0] else MAJOR_AHEAD

    @property
    def followed(self) -> str:
        """The release whose rules the engine goes by, for people: "1.36"."""
        return _release(LAST if self.newer_by else self.minor)

    def has(self, change: Change) -> bool:
        """Whether the release has the change; a minor without a patch is taken for its last patch release."""
        if change.until is not None and self.minor >= change.until:
            return False
        if self.minor >= change.since:
            return self.minor not in change.reverted or not self._from(change.reverted[self.minor])
        return self.minor in change.backports and self._from(change.backports[self.minor])

    def doubt(self, change: Change) -> str:
        """Why the scheduler may not follow `has`, as a clause; "" if there is no reason to think so."""
        known = self.has(change)
        first = change.reverted.get(self.minor)
        if first is not None and self._from(first):
            return f"it is not known which patch releases from {_named(self.minor, first)} on have the fix"
        if self.patch is None and self.minor in change.backports:
            return "the server's version names no patch release"
        before = (self.minor[0], self.minor[1] - 1)
        oldest = ServerVersion(before, 0)
        if known != oldest.has(change):
            return "the scheduler may be a minor version behind the server"
        if known != ServerVersion(before, None).has(change):
            return "the scheduler may be a minor version behind the server, and have the fix"
        ended = change.until is not None and self.minor >= change.until
        current = ended or (known and change.until is None and not change.reverted)
        if self.suffix and not current:
            return f"{self.text} is a vendor's, who may have backported what came later"
        return ""

    def _from(self, patch: int) -> bool:
        return self.patch is None or self.patch >= patch


def releases(change: Change) -> str:
    """The releases that have a change, for people: "1.34, 1.33.6"."""
    first, last = change.since
    named = [f"{first}.{last}", *(_named(minor, patch) for minor, patch in change.backports.items())]
    until = " and ".join(_named(minor, patch) for minor, patch in change.reverted.items())
    ended = f"; not from {_release(change.until)} on" if change.until is not None else ""
    return ", ".join(named) + (f"; perhaps not from {until} on" if until else "") + ended


def _release(minor: Minor) -> str:
    return f"{minor[0]}.{minor[1]}"


def _named(minor: Minor, patch: int) -> str:
    return f"{minor[0]}.{minor[1]}.{patch}"
