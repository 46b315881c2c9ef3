"""Leader election on a Lease: at most one process acts, without trusting anybody's clock but one's own.

- A leader leads until `renew_deadline` after it *sent* the last update that the server confirmed. Others take
  the lease no sooner than its duration after they saw it change, which is later than that sending. As the
  deadline is shorter than the duration, the two never overlap, however long an answer, a process or a network
  is held up; only the rates of the two clocks must agree within that margin.
- Every error counts as not renewed. An update replaces exactly the version that was read.
- Times in the record are written for people and never read.

Rule: client-go tools/leaderelection, whose records it shares; unlike that, losing the lease does not end the
process, which stands for election again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from rebalancer.kube.config_maps import Component, Place, brake_version
from rebalancer.kube.connection import Backoff, Connection, begun_anew, retry, steady
from rebalancer.kube.errors import ConflictError, KubeError, NotFoundError
from rebalancer.kube.leases import LEDGER, SEEN, BrakeSeen, Lease, LeaseClient, LeaseSpec
from rebalancer.model.quantity import micro_time
from rebalancer.model.reason import Reason, ReasonCode

log = logging.getLogger(__name__)

_LOOK = 1.0
"""Seconds that a look at the brake may take, and at most a fifth of renewDeadline: a renewal waits for it."""
_BINDS = 1.0
"""Seconds after which what was read of the brake binds each eviction: as long as a last look may be old."""
_HANDING_BACK = Backoff(tries=3, longest_wait=2.0)
"""Who ends is not waited for long."""


class ElectionOptions(Struct, frozen=True, kw_only=True):
    """All times in seconds; those of client-go. `duration`: what others wait after they saw the lease change.
    `renew_deadline`: how long a leader acts on one renewal. `retry`: between two attempts, up to a fifth more
    at random. Raises ValueError unless retry < renew_deadline < duration with room between them."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry * 1.2 < self.renew_deadline <= 0.8 * self.duration:
            raise ValueError(
                f"retry {self.retry:g} s, renewDeadline {self.renew_deadline:g} s and leaseDuration "
                f"{self.duration:g} s: each must be clearly longer than the one before"
            )


class LeaseStatus(Struct, frozen=True, kw_only=True):
    """`holder`: who was last seen to hold the lease, "" for nobody. `transitions`: how often it changed
    hands. `renewed`: when the holder says that it last renewed it (RFC 3339). `since`: seconds that this
    process has led, None if it does not. `seen`: seconds since the server last answered. `error`: what the
    last attempt ended with."""

    leading: bool
    identity: str
    holder: str
    transitions: int
    renewed: str
    since: float | None
    seen: float | None
    error: KubeError | None


_DEFAULTS = ElectionOptions()


class Elector:
    """Stands for election from `start` to `stop`, in a thread of its own, over a connection of its own.

    `identity` must be this process's alone. `on_change(leading)` is called in that thread whenever this
    process begins or ceases to lead; who is about to act asks `still_leading` all the same. `now`: seconds of
    the epoch, for the record's times. `claimed`: the highest number of transitions under which somebody has
    acted, as far as is known elsewhere; a lease that was deleted would begin again below it. `brake`: a
    leader looks at it with each renewal, and says on the lease from which version on it is bound by it, so
    that people who pause see that they were heard. `ledger`: where its holders count evictions, which the
    lease says from its first holder on. `component`: what the lease is labelled as.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        name: str,
        *,
        identity: str,
        options: ElectionOptions = _DEFAULTS,
        on_change: Callable[[bool], None] = lambda _: None,
        monotonic: Callable[[], float] = steady,
        now: Callable[[], float] = time.time,
        claimed: Callable[[], int] = lambda: -1,
        brake: Place | None = None,
        ledger: Place | None = None,
        component: Component = "lease",
    ) -> None:
        self.identity = identity
        self.namespace, self.name = namespace, name
        self._source = connection
        self._connection: Connection | None = None
        self._options = options
        self._on_change = on_change
        self._monotonic = monotonic
        self._now = now
        self._claimed = claimed
        self._brake = brake
        self._ledger = ledger
        self._component = component
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # Written by the elector's thread alone (and by `stop`, once that has ended).
        self._until = float("-inf")
        self._since: float | None = None
        self._lease: Lease | None = None
        self._changed = 0.0
        self._seen: float | None = None
        self._error: KubeError | None = None
        self._told = self._stays = False
        self.term = 0
        """The lease's transitions when this process last led: those of others since then are not its own."""
        self.notes: dict[str, str] = {}
        """Annotations that the lease gets with the next renewal."""
        self._brake_read = "-", 0.0
        self._brake_binds = "-"

    # -- for those who act

    def still_leading(self) -> bool:
        """Whether this process leads now. Costs a look at the clock."""
        return self._monotonic() < self._until

    def status(self) -> LeaseStatus:
        """For people and metrics."""
        now, lease = self._monotonic(), self._lease
        leading = now < self._until
        return LeaseStatus(
            leading=leading,
            identity=self.identity,
            holder=lease.spec.holder_identity if lease is not None else "",
            transitions=lease.spec.lease_transitions if lease is not None else 0,
            renewed=lease.spec.renew_time if lease is not None else "",
            since=now - self._since if leading and self._since is not None else None,
            seen=now - self._seen if self._seen is not None else None,
            error=self._error,
        )

    @property
    def annotations(self) -> dict[str, str]:
        """The lease's annotations as of the last answer; a leader gets one every `retry` seconds."""
        return dict(self._lease.annotations) if self._lease is not None else {}

    def other_ledger(self) -> Reason | None:
        """Why who leads by this lease evicts nothing: evictions have been counted in another ledger, or it
        has none."""
        there, own = self.annotations.get(LEDGER, ""), self._ledger
        if there in ("", f"{own.namespace}/{own.name}" if own is not None else ""):
            return None
        say = (
            f"by lease {self.namespace}/{self.name} evictions are counted in ConfigMap {there}, and here in "
            f"{own or 'memory'}: every cap would count once more"
        )
        remedy = (
            "give both ledger.mode: configMap and the same ledger.name and ledger.namespace; where nobody "
            f"uses the other any more: kubectl -n {self.namespace} annotate lease {self.name} {LEDGER}-"
        )
        # Not as where somebody else acts: what is released is given back (the other ledger's after an hour).
        return Reason(ReasonCode.SETTINGS_INVALID, f"{say}; {remedy}", {}, remedy)

    # -- life

    def start(self) -> Elector:
        """Returns at once. Raises ConfigurationError."""
        self._connection = self._source.twin()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()
        return self

    def stop(self, timeout: float = 2.0, *, remove: bool = False) -> bool:
        """Ceases to lead, then hands the lease back, so that the next need not wait for it to run out.

        To be called when nothing is being evicted any more; more than once is no harm. `timeout`: seconds for
        each request. `remove`: the lease, too, unless somebody else takes it first. Returns whether none is
        left that this process has led by, or may have.
        """
        self._stop.set()
        if self._thread is None or self._connection is None:
            return not self._stays
        self._until = float("-inf")
        self._thread.join(min(timeout, 0.5))
        if self._thread.is_alive():
            self._connection.abort()
            self._thread.join(timeout)
        self._until = float("-inf")
        self._tell()
        if self._stays:
            self._release(timeout, remove)
        self._connection.close()
        self._thread = None
        return not self._stays

    def _release(self, timeout: float, remove: bool) -> None:
        connection = self._source.twin()
        client = LeaseClient(connection, self.namespace, self.name, self._component)

        def hand_back() -> bool:
            """Whether it is there still. What a request did whose answer was lost shows the next time."""
            lease = client.get(timeout)
            if lease is not None and lease.spec.holder_identity == self.identity:
                # One second, as client-go has it: the field must be positive.
                lease = client.update(lease, self._spec(lease, holder="", duration=1), timeout)
                log.info("lease %s/%s is handed back", self.namespace, self.name)
            if lease is None or not remove or lease.spec.holder_identity:
                return lease is not None
            client.delete(lease, timeout)
            return False

        try:
            anew = partial(begun_anew, hand_back, ConflictError, _HANDING_BACK.tries)
            self._stays = retry(anew, wait=threading.Event().wait, backoff=_HANDING_BACK)
        except KubeError as e:
            level = logging.WARNING if remove else logging.INFO
            log.log(level, "lease %s/%s stays: %s", self.namespace, self.name, e.message)
        finally:
            connection.close()

    # -- the thread

    def _run(self) -> None:
        assert self._connection is not None
        client = LeaseClient(self._connection, self.namespace, self.name, self._component)
        while not self._stop.is_set():
            try:
                self._attempt(client)
                self._error = None
            except KubeError as e:
                again = self._error is not None and self._error.message == e.message
                level = logging.DEBUG if again or self._stop.is_set() else logging.WARNING
                log.log(level, "lease %s/%s: %s", self.namespace, self.name, e)
                self._error = e
            except Exception:
                log.exception("lease %s/%s", self.namespace, self.name)
            self._tell()
            pause = self._options.retry * (1.0 + 0.2 * random.random())
            left = self._until - self._monotonic()
            # The end of leading is told when it comes, not when the next attempt is over.
            if 0 < left < pause:
                self._stop.wait(left)
                self._tell()
                pause -= left
            self._stop.wait(pause)

    def _attempt(self, client: LeaseClient) -> None:
        """One renewal, or one try to get the lease. Raises KubeError."""
        held = self._lease
        if held is not None and held.spec.holder_identity == self.identity:
            try:
                self._update(client, held)
                return
            except (ConflictError, NotFoundError):
                # Written to by somebody else (an annotation, a new holder), deleted, or changed by an update
                # of ours whose answer was lost.
                pass
        lease = client.get(self._timeout())
        if lease is None:
            if not self._stop.is_set() and not self._held_by_another(held) and not self._claimed_by_another():
                spec = self._spec(None)
                self._take(lambda timeout: client.create(spec, timeout, self._annotations()))
            return
        self._observe(lease)
        if lease.spec.holder_identity != self.identity:
            self._until = float("-inf")
        if not self._held_by_another(lease):
            self._update(client, lease)

    def _held_by_another(self, lease: Lease | None) -> bool:
        """Whether somebody else may still act under what was last seen of the lease."""
        if lease is None or lease.spec.holder_identity == self.identity:
            return False
        spec = lease.spec
        # Who hands a lease back leaves one second in it; a person who cleared the holder does not.
        if not spec.holder_identity and spec.lease_duration_seconds <= 1:
            return False
        patience = max(self._options.duration, float(spec.lease_duration_seconds))
        return self._monotonic() - self._changed < patience

    def _claimed_by_another(self) -> bool:
        """Whether somebody whose lease was deleted before this process saw it may still act, by the ledger: a
        process that ends withdraws its claim."""
        if self._lease is not None or self._claimed() < 0:
            return False
        self._changed = self._changed or self._monotonic()
        return self._monotonic() - self._changed < self._options.duration

    def _update(self, client: LeaseClient, lease: Lease) -> None:
        if not self._stop.is_set():
            spec = self._spec(lease)
            notes = self._annotations(lease.annotations.get(LEDGER, ""))
            self._take(lambda timeout: client.update(lease, spec, timeout, notes))

    def _take(self, write: Callable[[float], Lease]) -> None:
        sent = self._monotonic()
        self._stays = True
        lease = write(self._timeout())
        if self._stop.is_set():
            return
        if self._since is None or sent >= self._until:
            self._since = sent
        self._observe(lease)
        self.term = lease.spec.lease_transitions
        self._until = sent + self._options.renew_deadline
        self._look_at_brake()

    def _look_at_brake(self) -> None:
        """After a renewal, as that comes first."""
        if self._brake is None or self._connection is None:
            return
        try:
            timeout = min(_LOOK, self._options.renew_deadline / 5)
            version = brake_version(self._connection, self._brake, timeout)
        except KubeError as e:
            log.debug("the lease does not say that the brake was seen: %s", e.message)
            return
        if version != self._brake_read[0]:
            self._brake_read = version, self._monotonic()

    def _annotations(self, ledger: str = "") -> dict[str, str]:
        """`ledger`: which the lease names already."""
        if self._ledger is not None and not ledger:
            ledger = f"{self._ledger.namespace}/{self._ledger.name}"
        return {**self.notes, **({LEDGER: ledger} if ledger else {}), **self._seen_brake()}

    def _seen_brake(self) -> dict[str, str]:
        """What the lease says of it. A look that began before it was read may be in force for a moment, and
        an eviction that was sent after such a look for longer."""
        if self._brake is None:
            return {}
        version, at = self._brake_read
        if self._monotonic() - at >= _BINDS and steady() >= self._source.evicting_until:
            self._brake_binds = version
        return {SEEN: str(BrakeSeen(self._brake, self._brake_binds, self.identity))}

    def _observe(self, lease: Lease) -> None:
        self._seen = self._monotonic()
        known = self._lease
        if known is None or (known.version, known.spec) != (lease.version, lease.spec):
            self._changed = self._seen
        self._lease = lease

    def _timeout(self) -> float:
        """Seconds for one request: a leader must have time for another."""
        return max(0.5, self._options.renew_deadline / 3)

    def _spec(self, lease: Lease | None, holder: str | None = None, duration: int | None = None) -> LeaseSpec:
        """The record: as it is now, held by us, or by `holder`."""
        before = lease.spec if lease is not None else LeaseSpec()
        now = micro_time(self._now())
        renewed = before.holder_identity == self.identity
        transitions = before.lease_transitions
        if not renewed and holder is None:
            # Also where the record is new, or was set back.
            transitions = max(transitions + (lease is not None), self._claimed() + 1)
        return LeaseSpec(
            holder_identity=self.identity if holder is None else holder,
            # Rounded up: others must not wait less than we count on.
            lease_duration_seconds=duration or -int(-self._options.duration // 1),
            acquire_time=before.acquire_time if renewed and before.acquire_time else now,
            renew_time=now,
            lease_transitions=transitions,
        )

    def _tell(self) -> None:
        leading = self._monotonic() < self._until
        if leading == self._told:
            return
        self._told = leading
        log.info("%s lease %s/%s as %s", "leading by" if leading else "no longer leading by",
                 self.namespace, self.name, self.identity)  # fmt: skip
        try:
            self._on_change(leading)
        except Exception:
            log.exception("what follows from the lease %s/%s", self.namespace, self.name)
