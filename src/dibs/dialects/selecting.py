"""Finding jobs by what a person filters by. Alike on every database.

There is no index for most of the filters, and none is kept for them: it would make every enqueue dearer for the sake
of a rare order. Each statement goes over the table once, by id or by the index that fits best, page by page, and locks
nothing; what it found is locked by its ids afterwards, in small transactions, and looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from dibs.dialects.endings import Endings
from dibs.filters import Filter
from dibs.ops import Op, Row, Value, fetch
from dibs.states import State

#: Where a statement takes the conditions of a filter; as it stands there, it lets every row pass.
EVERY_ROW = "1 = 1"


#: The dear one last: databases look at conditions of one price in the order in which they are written.
_CONDITIONS = {
    "queue": "queue = :queue",
    "task": "task = :task",
    "key": "task_key = :key",
    "since": "coalesce(finished_at, created_at) >= {since}",
    "error": "{error_has}",
}


class Edge(NamedTuple):
    """What a filter's jobs end at, so that it means the same ones for as long as it is gone by: the newest job of
    then, and the moment that `since` meant, as the database gave it."""

    last: int
    since: Any = None


class Selecting(Endings):
    """Ops that find jobs by a filter."""

    def __init__(self, schema: str, prefix: str = "") -> None:
        super().__init__(schema, prefix)
        self._conditions = {name: self.spell(text) for name, text in _CONDITIONS.items()}
        self._narrowed: dict[tuple[str, tuple[State, ...], tuple[str, ...]], str] = {}

    def narrowed(self, text: str, chosen: Filter, edge: Edge) -> tuple[str, dict[str, Value]]:
        """Return a statement with the conditions of a filter, and their values.

        One text for each set of filters: a parameter that may be NULL would keep a planner from every index, and so
        would a status that is one.
        """
        values: dict[str, Value] = {
            "queue": chosen.queue,
            "task": chosen.task,
            "key": chosen.key,
            "since": edge.since if chosen.has_since else None,
            "error": chosen.error,
        }
        values = {name: value for name, value in values.items() if value is not None}
        which = (text, chosen.statuses, tuple(values))
        if which not in self._narrowed:
            conditions = [f"status {_literals(chosen.statuses)}"] if chosen.statuses else []
            conditions += [self._conditions[name] for name in values]
            self._narrowed[which] = text.replace(EVERY_ROW, " AND ".join(conditions) or EVERY_ROW)
        return self._narrowed[which], values

    EDGE: ClassVar[str] = "SELECT coalesce(max(id), 0), {soon} FROM dibs_jobs"

    def edge(self, chosen: Filter) -> Op[Edge]:
        """Return the newest job there is now, and the moment that the filter's `since` means now."""
        ((last, since),) = yield from fetch(self.EDGE, alone=True, delay=-(chosen.ago or 0.0))
        return Edge(last, self.written(chosen.since) if chosen.since is not None else since)

    COUNT: ClassVar[str] = f"SELECT count(*) FROM dibs_jobs WHERE id <= :last AND {EVERY_ROW}"

    def count(self, chosen: Filter, edge: Edge) -> Op[int]:
        """Return how many jobs a filter means."""
        text, values = self.narrowed(self.COUNT, chosen, edge)
        ((number,),) = yield from fetch(text, alone=True, last=edge.last, **values)
        return int(number)

    # The ids alone, in large pages. An optimizer that goes by an index and sorts does so once per page; with pages as
    # small as the transactions it would sort all that is left a thousand times.
    FIND_CHOSEN: ClassVar[str] = f"""
        SELECT id FROM dibs_jobs WHERE id > :after AND id <= :last AND {EVERY_ROW} ORDER BY id LIMIT :limit
    """

    def find_chosen(self, chosen: Filter, edge: Edge, *, after: int, limit: int) -> Op[list[int]]:
        """Return the lowest ids above `after` of the jobs that a filter means."""
        text, values = self.narrowed(self.FIND_CHOSEN, chosen, edge)
        rows = yield from fetch(text, alone=True, last=edge.last, after=after, limit=limit, **values)
        return [row[0] for row in rows]

    LOCK_CHOSEN: ClassVar[str] = f"""
        SELECT id FROM dibs_jobs WHERE id {{in_ids}} AND {EVERY_ROW} ORDER BY id {{for_update}} {{skip_locked}}
    """

    def lock_chosen(self, job_ids: Iterable[int], chosen: Filter, edge: Edge) -> Op[list[int]]:
        """Lock those of these jobs that the filter still means; what somebody's transaction holds is passed over."""
        text, values = self.narrowed(self.LOCK_CHOSEN, chosen, edge)
        rows = yield from fetch(text, alone=False, ids=self.ids(job_ids), **values)
        return [row[0] for row in rows]

    FAILURES: ClassVar[str] = f"""
        SELECT id, task, finished_at, error FROM dibs_jobs WHERE id {{in_ids}} AND status = 'failed' AND {EVERY_ROW}
    """

    def failures(self, job_ids: Sequence[int], chosen: Filter, edge: Edge) -> Op[list[Row]]:
        """Return of failed jobs the id, the task, when it ended and its last error."""
        text, values = self.narrowed(self.FAILURES, chosen, edge)
        rows = yield from fetch(text, alone=True, ids=self.ids(job_ids), **values)
        return [(job_id, task, self.moment_or_none(at), error) for job_id, task, at, error in rows]


def _literals(statuses: tuple[State, ...]) -> str:
    """Return what follows `status`, so that a planner knows which partial index holds them all.

    >>> _literals((State.READY,)), _literals((State.FAILED, State.CANCELLED))
    ("= 'ready'", "IN ('failed', 'cancelled')")
    """
    quoted = [f"'{state}'" for state in statuses]
    return f"= {quoted[0]}" if len(quoted) == 1 else f"IN ({', '.join(quoted)})"
