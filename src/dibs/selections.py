"""A selection: the jobs that a filter means, counted first and then gone through in small transactions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dibs.dialects.selecting import Edge
from dibs.filters import Filter
from dibs.jobs import Cancelled, JobRecord
from dibs.ops import Row
from dibs.settings import reason_of
from dibs.store import Store

#: Ids in one statement and one transaction, at most: beyond some thousands optimizers give up the index.
ID_BATCH = 1_000

#: Ids that are looked for at a time; they are small, and looking may mean to go over the table.
PAGE = 50_000


class Selection:
    """The jobs that a filter means at the moment this is made: what is enqueued later is not among them.

    A job may change while the others are gone through. So each is locked and looked at again before anything is done
    to it; what does not fit any more, and what somebody's transaction holds just then, is left as it is.
    """

    def __init__(self, store: Store, chosen: Filter) -> None:
        self._store = store
        self._dialect = store.dialect
        self.chosen = chosen
        self.edge: Edge = store.run(lambda: self._dialect.edge(chosen))

    def count(self) -> int:
        """Return how many they are now."""
        return self._store.run(lambda: self._dialect.count(self.chosen, self.edge))

    def newest(self, limit: int) -> list[JobRecord]:
        """Return the newest of them."""
        before = self.edge.last + 1
        return self._store.run(lambda: self._dialect.list_jobs(self.chosen, self.edge, before=before, limit=limit))

    def cancel(self, *, reason: str | None, by: str | None) -> Iterator[tuple[int, list[Cancelled]]]:
        """Cancel them, a transaction at a time; yield after each how many jobs it looked at, and what it did."""
        reason = reason_of(reason)
        for ids in self._batches():
            yield (
                len(ids),
                self._store.run(
                    partial(self._dialect.cancel_chosen, ids, self.chosen, self.edge, reason=reason, by=by)
                ),
            )

    def requeue(self, *, force: bool) -> Iterator[tuple[int, list[int], dict[int, int]]]:
        """Requeue them, a transaction at a time; yield after each how many jobs it looked at, the ids that it moved,
        and those that it refused with the holders of their keys."""
        for ids in self._batches():
            make = partial(self._dialect.requeue_chosen, ids, self.chosen, self.edge, force=force)
            moved, refused = self._store.run(make)
            yield len(ids), moved, refused

    def failures(self) -> Iterator[list[Row]]:
        """Yield in parts the id, task, end and last error of those that failed."""
        for ids in self._batches():
            yield self._store.run(partial(self._dialect.failures, ids, self.chosen, self.edge))

    def _batches(self) -> Iterator[list[int]]:
        """Yield their ids, the lowest first."""
        after = 0
        while ids := self._store.run(
            partial(self._dialect.find_chosen, self.chosen, self.edge, after=after, limit=PAGE)
        ):
            for start in range(0, len(ids), ID_BATCH):
                yield ids[start : start + ID_BATCH]
            if len(ids) < PAGE:
                return
            after = ids[-1]
