"""One constraint with its pods per domain, changed pod by pod."""

from __future__ import annotations

from collections.abc import Hashable

from rebalancer.model.pod import PodTemplate
from rebalancer.spread import skew
from rebalancer.spread.constraint import Constraint
from rebalancer.spread.index.rules import Territories


class Counted:
    """A constraint over one set of eligible nodes.

    They go by `eligibility`, and by `template`, that of a pod which carries it.

    `carriers`: how many pods carry it. `excess`: what of its skew exceeds maxSkew.
    """

    __slots__ = ("_alike", "_counts", "carriers", "constraint", "eligibility", "excess", "layout", "template")

    def __init__(
        self, constraint: Constraint, eligibility: Hashable, template: PodTemplate, where: Territories
    ) -> None:
        """Without any pod."""
        self.constraint = constraint
        self.eligibility = eligibility
        self.template = template
        self.carriers = 0
        self.excess = 0
        # By name, as the numbers of domains change with the nodes. Domains without a pod are not in it.
        self._counts: dict[str, int] = {}
        # How many domains hold so many pods: few numbers, also where there are thousands of domains.
        self._alike: dict[int, int] = {}
        self.move(where)

    def move(self, where: Territories) -> None:
        """There are other nodes; the pods that are counted are where they were."""
        self.layout = where.of(self.template, self.constraint, self.eligibility)
        self.judge()

    def add(self, row: int, by: int) -> None:
        """So many pods more, or fewer, on a node; `judge` has to follow."""
        domain = self.layout.rows[row]
        if domain < 0:
            return
        name, alike = self.layout.names[domain], self._alike
        before = self._counts.get(name, 0)
        after = before + by
        if before:
            if alike[before] == 1:
                del alike[before]
            else:
                alike[before] -= 1
        if after:
            self._counts[name] = after
            alike[after] = alike.get(after, 0) + 1
        else:
            del self._counts[name]

    def judge(self) -> bool:
        """Works out the excess; whether it has changed."""
        before, domains, c = self.excess, self.layout.size, self.constraint
        most = max(self._alike, default=0)
        least = min(self._alike, default=0) if len(self._counts) == domains else 0
        lowest = skew.lowest(least, domains, c.min_domains)
        self.excess = skew.beyond(most, lowest, c.max_skew) if domains else 0
        return self.excess != before
