"""Each plan as reports of openreports.io in the cluster, for the viewers of policy engines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from rebalancer.errors import UserError
from rebalancer.kube.errors import ForbiddenError, NotFoundError
from rebalancer.kube.policy_reports import PolicyReports
from rebalancer.model.snapshot import Snapshot
from rebalancer.outcome.cycle import CycleReport
from rebalancer.outcome.observer import Observer
from rebalancer.planner.plan import Plan
from rebalancer.report import build_report
from rebalancer.report.exports.openreports import to_openreports

log = logging.getLogger(__name__)


class PolicyReportObserver(Observer):
    """Writes the last plan of a cycle when the cycle is over, in a thread of its own: no cycle waits for it.

    A plan that is the same object as the last one is not looked at again, one that says the same is not
    written. While one is being written, only the newest of those that follow is kept.
    """

    def __init__(self, reports: PolicyReports, now: Callable[[], float]) -> None:
        self._reports = reports
        self._now = now
        self._planned: tuple[Snapshot, Plan] | None = None
        self._written: Plan | None = None
        self._next: tuple[Snapshot, Plan] | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._said = ""

    def on_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        self._planned = snapshot, plan

    def on_report(self, report: CycleReport) -> None:  # noqa: ARG002
        planned, self._planned = self._planned, None
        if planned is None or planned[1] is self._written:
            return
        with self._lock:
            self._next = planned
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="policy-reports", daemon=True)
                self._thread.start()

    def settle(self, seconds: float) -> None:
        """Waits for what is being written."""
        if (thread := self._thread) is not None:
            thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._next is None:
                    self._thread = None
                    return
                (snapshot, plan), self._next = self._next, None
            self._write(snapshot, plan)

    def _write(self, snapshot: Snapshot, plan: Plan) -> None:
        try:
            done = self._reports.write(self._objects(snapshot, plan))
        except (ForbiddenError, NotFoundError) as e:
            self._say(f"no policy reports are written: {e}; see policyReports.enabled")
        except UserError as e:
            self._say(f"policy reports were not written: {e.message}")
        except Exception:
            # Nobody else would see it: this thread has no caller.
            log.exception("policy reports were not written: this is a bug")
        else:
            self._written, self._said = plan, ""
            if done.created or done.updated:
                log.debug("policy reports: %d created, %d updated", done.created, done.updated)

    def _objects(self, snapshot: Snapshot, plan: Plan) -> list[dict[str, Any]]:
        document = build_report(plan, snapshot, generated_at=self._now(), seconds=0.0)
        objects: list[dict[str, Any]] = to_openreports(document)["items"]
        return objects

    def _say(self, problem: str) -> None:
        """Once, until it is another."""
        if problem != self._said:
            log.warning("%s", problem)
        self._said = problem
