"""Turns: who claims much in one lane waits for the others' claims, where that is better for all; see the dialect's `claim`."""

from __future__ import annotations

import time
from collections.abc import Callable

from dibs.jobs import Claim, Lane
from dibs.ops import Op
from dibs.store import RowLocked, Store

#: After a claim of so many, the next one in that lane waits for its turn, so long (seconds) at most. If it has not come by
#: then, since somebody stands still in the midst of a claim, there are no turns for a while (seconds).
MANY = 100
TURN = 1.0
WITHOUT_TURNS = 30.0

#: There are turns for so long (seconds) after something could not be settled at once since its row was locked: what others'
#: claims do. Without others, to ask for a turn makes a claim half as dear again.
CROWDED = 30.0


class Turns:
    """Of one claimer, for its thread alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._full: set[Lane] = set()  # the lanes whose last claim got many
        self._from = 0.0  # monotonic: no turns before
        self._until = 0.0  # nor after

    def met_lock(self) -> None:
        """A row of ours was found locked, so others may be claiming here. From any thread."""
        self._until = time.monotonic() + CROWDED

    def claim(self, lane: Lane, op: Callable[[float | None], Op[list[Claim]]]) -> list[Claim]:
        """Run a claim, which `op` makes: given how long to wait for its turn, or None. Raises what the store's `run` does."""
        claims: list[Claim] | None = None
        if lane in self._full and self._from <= time.monotonic() < self._until:
            try:
                claims = self._store.run(lambda: op(TURN), once=True, haste=True)
            except RowLocked:
                self._from = time.monotonic() + WITHOUT_TURNS
        if claims is None:
            claims = self._store.run(lambda: op(None), once=True)
        (self._full.add if len(claims) >= MANY else self._full.discard)(lane)
        return claims
