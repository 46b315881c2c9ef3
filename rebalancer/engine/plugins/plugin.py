"""What a scheduler plugin is here: for one pod template, a filter and a score over all nodes.

`Filter` and `Score` live as long as the template is asked about. They compute what is static once; `update`
tells them which nodes changed since the last call. Rules stand in the plugins' files, under upstream's names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from copy import copy
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from msgspec import Struct

from rebalancer.engine.config import Profile
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.model.pod import PodTemplate
from rebalancer.spread.arrays import Bools, Ints, Rows

UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"

MAX_SCORE = 100

_KEPT = 64
"""Different questions of templates of which a plugin remembers the answers."""


class Rejection(Struct, frozen=True):
    """Why a plugin refuses a node, or (from PreFilter) the pod: upstream's status code and reasons."""

    plugin: str
    code: str
    reasons: tuple[str, ...]


class Filter:
    """A plugin's filter for one template.

    `skipped`: PreFilter said Skip, every node passes. `blocked`: PreFilter rejected the pod. `only`: nodes
    that PreFilter narrowed the search to. `rowwise`: a node's verdict depends on that node alone, so that
    `update` leaves all other verdicts as they are.
    """

    rowwise: ClassVar[bool] = True
    skipped: bool = False
    blocked: Rejection | None = None
    only: Bools | None = None

    def update(self, rows: Rows) -> None:
        """The nodes `rows` changed."""

    def mask(self) -> Bools:
        """bool[N]: nodes that pass. Callers only read it."""
        raise NotImplementedError

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:
        """Status code and reasons for a node that does not pass."""
        raise NotImplementedError

    def questions(self) -> tuple[tuple[str, Bools], ...]:
        """What it asks, in words, each with the nodes that pass; without words where its reasons say it."""
        return (("", self.mask()),)

    def close(self, row: int) -> bool:  # noqa: ARG002
        """Whether a node only just passes, or only just does not, where that is a matter of a number."""
        return True


class NodeFilter(Filter):
    """A filter that keeps its verdict on every node, and asks again about nodes that changed."""

    def __init__(self, nodes: int) -> None:
        """To be called when all that `fits` needs is there."""
        self._mask = self.fits(np.arange(nodes))

    def fits(self, rows: Rows) -> Bools:
        """bool[len(rows)]: which of these nodes pass."""
        raise NotImplementedError

    def update(self, rows: Rows) -> None:
        """Asks again."""
        self._mask[rows] = self.fits(rows)

    def copied(self) -> Self:
        """One that is brought up to date by itself."""
        other = copy(self)
        other._mask = self._mask.copy()
        return other

    def mask(self) -> Bools:
        """Nodes that pass."""
        return self._mask


class StaticFilter(Filter):
    """A filter whose verdict no pod changes, with one reason."""

    def __init__(self, mask: Bools, code: str, reason: str) -> None:
        """`mask`: nodes that pass."""
        self._mask = mask
        self._status = code, (reason,)

    def mask(self) -> Bools:
        """Nodes that pass."""
        return self._mask

    def reject(self, row: int) -> tuple[str, tuple[str, ...]]:  # noqa: ARG002
        """The same for every node."""
        return self._status


class Score:
    """A plugin's score for one template."""

    def update(self, rows: Rows) -> None:
        """The nodes `rows` changed."""

    def values(self, feasible: Bools) -> Ints | None:
        """int64[N]: normalised, 0–100, valid where `feasible`; None = PreScore said Skip."""
        raise NotImplementedError


class Updated(Protocol):
    """What `AskingAlike` keeps: see `Filter` and `Score`."""

    def update(self, rows: Rows) -> None:
        """The nodes `rows` changed."""

    def copied(self) -> Self:
        """One that is brought up to date by itself."""


U = TypeVar("U", bound=Updated)


class AskingAlike(Generic[U]):
    """What was worked out over all nodes for one template, for the next one that asks for the same.

    Thousands of templates ask for few different amounts of resources.
    """

    def __init__(self, state: ClusterState) -> None:
        """Nothing is known yet."""
        self._state = state
        self._known: OrderedDict[Hashable, tuple[U, int]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], U]) -> U:
        """The caller's own, as `make` makes it now; it depends on the key and the state alone."""
        state, found = self._state, self._known.pop(key, None)
        if found is None:
            made = make()
        else:
            made, clock = found
            made.update((state.stamp > clock).nonzero()[0])
        self._known[key] = made, state.clock
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return made.copied()


class Plugin:
    """A plugin of a profile, over one cluster state."""

    name: ClassVar[str]

    def __init__(self, state: ClusterState, profile: Profile) -> None:
        """Binds the plugin."""
        self.state = state
        self.table = state.table
        self.profile = profile

    def filter(self, template: PodTemplate, node_name: str) -> Filter | None:  # noqa: ARG002
        """The filter for a template (and spec.nodeName); None = nothing to judge, ever."""
        return None

    def score(self, template: PodTemplate) -> Score | None:  # noqa: ARG002
        """The score for a template; None = Skip, whatever the nodes."""
        return None


# The normalisation that several plugins share.
#
# Rule: plugins/helper/normalize_score.go, ``DefaultNormalizeScore``: 0–100 by the highest raw score.


class DefaultNormalized(Score):
    """A static raw score, scaled by its highest value over the feasible nodes."""

    def __init__(self, raw: Ints, *, reverse: bool) -> None:
        """`raw` int64[N], not negative; `reverse`: the lowest is the best."""
        self._raw = raw if raw.any() else None
        self._reverse = reverse
        constant = np.int64(MAX_SCORE if reverse else 0)
        self._constant: Ints = np.broadcast_to(constant, raw.shape)

    def values(self, feasible: Bools) -> Ints:
        """Scaled; all equal where no feasible node scores at all."""
        if self._raw is None:
            return self._constant
        highest = int(self._raw.max(where=feasible, initial=0))
        if highest == 0:
            return self._constant
        scaled = MAX_SCORE * self._raw // highest
        return MAX_SCORE - scaled if self._reverse else scaled
