"""Claims, in whichever way is best for all: alone, in turns with others, or in one transaction with what is to be settled."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from dibs.errors import OutcomeUnknown
from dibs.jobs import Claim, Lane, Settled, Verdict, Wanted
from dibs.store import RowLocked, Store
from dibs.worker.runs import Holdings
from dibs.worker.settling import ABOUT_ALL, AT_LEISURE, HASTE, Settling

logger = logging.getLogger("dibs")

#: After a claim of so many, the next one in that lane waits for its turn, so long (seconds) at most. If it has not come by
#: then, since somebody stands still in the midst of a claim, there are no turns for a while (seconds).
MANY = 100
TURN = 1.0
WITHOUT_TURNS = 30.0

#: There are turns for so long (seconds) after something could not be settled at once since its row was locked: what others'
#: claims do. Without others, to ask for a turn makes a claim half as dear again.
CROWDED = 30.0


class Claimer:
    """Of one fetcher, for its thread alone."""

    def __init__(self, store: Store, settling: Settling, holdings: Holdings) -> None:
        self._store = store
        self._dialect = store.dialect
        self._settling = settling
        self._holdings = holdings
        settling.met_lock = self._met_lock
        #: When (monotonic) a claim was sent whose answer was lost, until that is cleared up.
        self.unclear: float | None = None
        #: How many outcomes a claim may carry to the database.
        self.carries = 0
        self._apart_until = 0.0  # monotonic
        self._full: set[Lane] = set()  # the lanes whose last claim got many
        self._turns_from = 0.0  # monotonic: no turns before
        self._turns_until = 0.0  # nor after

    @property
    def settles_apart(self) -> bool:
        """Is everything settled by itself for now, since it was met with something that has to be looked into?"""
        return time.monotonic() < self._apart_until

    def _met_lock(self) -> None:
        """A row of ours was found locked, so others may be claiming here. From any thread."""
        self._turns_until = time.monotonic() + CROWDED

    def claim(self, wanted: Wanted) -> list[Claim]:
        """Claim, and settle what goes with it.

        Raises what the store's `run` does for what is done `once`; after OutcomeUnknown has to be looked for what is ours.
        """
        sent = time.monotonic()
        try:
            claims = self._settle_and_claim(wanted)
            if claims is None:
                claims = self._claim(wanted)
        except OutcomeUnknown:
            self.unclear = sent
            raise
        (self._full.add if len(claims) >= MANY else self._full.discard)(wanted.lane)
        return claims

    def adopt(self, worker: str) -> list[Claim]:
        """Return what the database says is ours and we do not know of."""
        # Before it is asked, since what is settled meanwhile is forgotten.
        known = {(run.claim.id, run.claim.claims) for run in self._holdings.all()}
        held = self._store.run(lambda: self._dialect.adopt(worker))
        self.unclear = None
        claims = [claim for claim in held if (claim.id, claim.claims) not in known]
        logger.info("the answer to a claim was lost; %d jobs were found to be ours", len(claims))
        return claims

    def _claim(self, wanted: Wanted) -> list[Claim]:
        if wanted.lane in self._full and self._turns_from <= time.monotonic() < self._turns_until:
            try:
                return self._store.run(lambda: self._dialect.claim(wanted, turn=TURN), once=True, haste=True)
            except RowLocked:
                self._turns_from = time.monotonic() + WITHOUT_TURNS
        return self._store.run(lambda: self._dialect.claim(wanted), once=True)

    def _settle_and_claim(self, wanted: Wanted) -> list[Claim] | None:
        """Do both in one transaction. None where nothing is to be settled so, or where that can't be: then nothing has
        changed, and it is settled by itself."""
        if self.carries <= 0 or self.settles_apart:
            return None

        def ask(verdicts: Sequence[Verdict]) -> tuple[dict[int, Settled], list[Claim]]:
            answers, claims = self._store.run(
                lambda: self._dialect.settle_and_claim(verdicts, wanted, haste=HASTE), once=True, haste=True
            )
            if len(answers) < len(verdicts):
                self._apart_until = time.monotonic() + AT_LEISURE
            return answers, claims

        try:
            return self._settling.carry(ask, self.carries)
        except (OutcomeUnknown, *ABOUT_ALL):
            raise
        except Exception as error:  # noqa: BLE001 - something about one of the verdicts, for the settling to find out
            self._apart_until = time.monotonic() + AT_LEISURE
            if isinstance(error, RowLocked):
                self._met_lock()
            return None
