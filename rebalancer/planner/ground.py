"""What a search of one component stands on."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from rebalancer.model.pod import Pod
from rebalancer.planner.candidates import candidates
from rebalancer.planner.component import Component
from rebalancer.planner.effort import Effort
from rebalancer.planner.potential import Potential
from rebalancer.planner.simulation import Simulation
from rebalancer.planner.trial import Trial, Verdict
from rebalancer.spread.arrays import Ints


class Ground(Struct, frozen=True, eq=False):
    """The component, the state that moves of it are tried on, its bounds, and how much may still be tried."""

    simulation: Simulation
    component: Component
    trial: Trial
    potential: Potential
    effort: Effort

    def helpful(
        self, placed: Ints, twins: Ints, gives: Ints | None = None
    ) -> Iterator[tuple[int, int, Pod, Verdict]]:
        """Moves that help and do no harm, as the simulation stands: class, node, victim and verdict.

        One for each class and set of interchangeable nodes (`twins`, int64[N]), as long as the effort lasts.
        """
        taken: set[tuple[int, int]] = set()
        for q, row, pod in candidates(self.simulation, self.component, self.trial, twins, gives):
            kind = (q, int(twins[row]))
            if kind in taken:
                continue
            if self.effort.gone:
                return
            self.effort.candidates()
            verdict = self.trial.best(self.component, placed, q, row, pod)
            if verdict is not None and verdict.helps:
                taken.add(kind)
                yield q, row, pod, verdict
