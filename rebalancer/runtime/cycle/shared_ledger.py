"""The ledger as this process has it, and as it stands in the cluster: read, written and claimed.

Where somebody else has written it in between, the two accounts become one. So what this process remembers
is never replaced by less: whoever deletes, cuts or edits the ledger, or restores an older one, lifts no
cap and closes no breaker for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from rebalancer.kube.config_maps import LedgerConflictError, Ledgers
from rebalancer.kube.errors import KubeError
from rebalancer.model.reason import Reason
from rebalancer.policy.history.ledger import HOUR, Claim, Ledger, Totals, claimed, rival
from rebalancer.policy.history.ledger_json import within_limits
from rebalancer.policy.history.ledgers_merged import as_of, merged
from rebalancer.runtime.cycle.clock import Clock

log = logging.getLogger(__name__)

_BEARABLE = ("entries[", "irreplaceable", "refused", "shown[")
"""Parts of a damaged ledger without which the other entries still say which caps are used up."""


def _bearable(store: Ledgers) -> bool:
    """Whether what was read of the ledger last is as good as the whole."""
    return all(part.startswith(_BEARABLE) for part in store.aside)


class SharedLedger:
    """`ledger` is what this process knows; without a `store` it lasts as long as the process.

    `writer` tells this process from all others. `read_only`: a dry run, which writes nothing to the store.
    `term`: the lease's transitions (`ledger.Claim`). `silent`: for how many seconds this process may write
    nothing although it is there. `elsewhere`: why evictions that it would have to know are counted elsewhere.
    `where`: what a person calls the ledger.
    """

    def __init__(
        self,
        clock: Clock,
        store: Ledgers | None,
        *,
        writer: str,
        read_only: bool,
        term: Callable[[], int],
        silent: float,
        elsewhere: Callable[[], Reason | None],
    ) -> None:
        self.ledger = Ledger()
        self.cycle = ""
        """The name of the cycle at work, or of the last one."""
        self.writer = writer
        self.read_only = read_only
        self.silent = silent
        self._rival: Reason | None = None
        self.where = str(store.place) if store is not None else "the ledger"
        self._clock = clock
        self._store = store
        self._term = term
        self._elsewhere = elsewhere
        self._saved = self.ledger
        self._asked = False
        self._read_in: int | None = None
        """The term in which this process last read the ledger whole. In others, others may have evicted."""

    @property
    def installation(self) -> str:
        """What marks its releases as its own: the name of the ledger; without one, of this process."""
        return str(self._store.place) if self._store is not None else self.writer

    def rival(self) -> Reason | None:
        """Why nothing may be evicted: another rebalancer acts on this ledger, as far as known, or others
        have acted on another one."""
        return self._rival or self._elsewhere()

    def load(self) -> None:
        """Reads what others have written. Raises KubeError if it cannot be read and pods may go; a dry run
        reads once."""
        again, self._asked = self._asked, True
        if self._store is None:
            self.ledger = self._as_of_now(within_limits(self.ledger, self.cycle))
            return
        if self.read_only and again:
            return
        try:
            self._read(self._store)
        except KubeError as e:
            if not self.read_only:
                raise
            log.warning("going on without the ledger, as nothing is evicted: %s", e)
            return
        if self.read_only:
            return
        self._look_for_rival(self.ledger)
        if self._rival is not None:
            # The other one finds this claim when it next writes down what it intends.
            self._try_to_save()

    def _read(self, store: Ledgers) -> bool:
        """Takes over what is in the store, beside what this process remembers; whether that is more. Raises
        KubeError."""
        found = store.load()
        # What was put aside is to be written anew.
        self._saved = found if not store.aside else Ledger()
        bearable = _bearable(store)
        led = any(n != self.writer and c.term > self._term() for n, c in found.claims.items())
        unknown = not bearable and (led or self._read_in != self._term())
        unread = self._clock.latest() + HOUR if unknown and store.there else 0.0
        if bearable and not self.read_only:
            self._read_in = None if led else self._term()
        theirs, mine = self._as_of_now(found), self._as_of_now(self.ledger)
        if not store.there:
            # Whoever deletes one that could not be read wants to begin anew.
            mine = replace(mine, unread=0.0)
        if mine != Ledger():
            self.ledger = merged(replace(theirs, unread=max(theirs.unread, unread)), mine, self.cycle)
            more = len(self.ledger.entries) - len(theirs.entries)
            if more <= 0 and theirs.circuit.until >= self.ledger.circuit.until:
                return False
            tripped = ", and an open circuit breaker" if self.ledger.circuit.trips else ""
            say = "%s has less than this process remembers, which holds: %d more evictions%s"
            log.warning(say, self.where, more, tripped)
            return True
        if bearable:
            # Some of it less: that is no reason to trust the rest more than in a first run.
            row = 0 if store.aside else theirs.totals.in_a_row
            self.ledger = replace(theirs, totals=replace(theirs.totals, in_a_row=row))
        else:
            self.ledger = replace(theirs, totals=Totals(), unread=self._clock.latest() + HOUR)
        return False

    def write(self, ledger: Ledger) -> None:
        """From now on this is the ledger, in the store too. Raises KubeError."""
        if self._store is not None and not self.read_only:
            # Where this fails nothing of it is evicted, so nothing of it may be written later.
            try:
                ledger = self._saved = self._store.save(self._with_claim(ledger), self.cycle)
            except LedgerConflictError as e:
                self._meet()
                if self._rival is None:
                    raise
                raise LedgerConflictError(self._rival.message, self._rival.remedy, target=e.target) from e
        self.ledger = ledger

    def save(self) -> None:
        """Writes what has not been written yet. Never raises."""
        if self.ledger != self._saved:
            self._try_to_save()

    def leave(self) -> None:
        """The process ends: its claim is withdrawn, so that nobody waits for it. What somebody has deleted or
        damaged is written once more. Never raises."""
        if self._store is None or self.read_only or self.writer not in self._saved.claims:
            return
        try:
            if self._read(self._store) or self.writer in self.ledger.claims:
                others = {name: c for name, c in self.ledger.claims.items() if name != self.writer}
                left = replace(self.ledger, claims=others)
                if not _bearable(self._store):
                    # Others may have led since, and nobody is there any more who would find that out.
                    left = replace(left, unread=self._clock.latest() + HOUR)
                self._store.save(left, self.cycle)
        except KubeError as e:
            log.info("the claim on the ledger runs out by itself: %s", e.message)

    def note(self, ledger: Ledger) -> None:
        """From now on this is the ledger; that alone is no reason to write it."""
        if self.ledger == self._saved:
            self._saved = ledger
        self.ledger = ledger

    def _try_to_save(self) -> None:
        if self._store is None or self.read_only:
            return
        try:
            self.ledger = self._saved = self._store.save(self._with_claim(self.ledger), self.cycle)
        except LedgerConflictError as e:
            log.warning("%s; both accounts are kept", e)
            self._meet()
        except KubeError as e:
            log.warning("the ledger could not be written; it is tried again later: %s", e)

    def _meet(self) -> None:
        """Somebody else has written: takes over what they know, and says that this process is here."""
        assert self._store is not None
        try:
            self._read(self._store)
            self._look_for_rival(self.ledger)
            self.ledger = self._saved = self._store.save(self._with_claim(self.ledger), self.cycle)
        except KubeError as e:
            log.warning("the ledger could not be written: %s", e)

    def _with_claim(self, ledger: Ledger) -> Ledger:
        made = self._clock.latest()
        mine = Claim(until=made + self.silent, term=self._term(), made=made)
        return replace(ledger, claims=claimed(ledger.claims, self.writer, mine, self._clock.now()))

    def _look_for_rival(self, ledger: Ledger) -> None:
        before = self._rival
        self._rival = rival(ledger.claims, self.writer, self._term(), self._clock.now())
        if self._rival is not None and before is None:
            log.warning("%s", self._rival.message)

    def _as_of_now(self, ledger: Ledger) -> Ledger:
        return as_of(ledger, self._clock.latest(), self.silent, earliest=self._clock.now())
