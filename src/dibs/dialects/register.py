"""The workers' register: each worker writes its own row, and people read all of them. Alike on every database.

What does not change is written once, so that the statement that comes every few seconds is a small one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from dibs.dialects.spelling import Spelling
from dibs.ops import Op, Row, execute, fetch
from dibs.register import QUIET, Entry, Seen, WorkerRecord, bounded

_COLUMNS = (
    "worker, host, pid, version, state, queues{as_text}, queues_left_out, tasks{as_text}, tasks_left_out, "
    "slots{as_text}, claims, done_rate, failed_rate, last_error, last_error_at, claimed_queue, claimed_at, "
    "polls{as_text}, detail{as_text}, started_at, seen_at"
)
_FIELDS = [name.strip().removesuffix("{as_text}") for name in _COLUMNS.split(",")]
_TIMES = ("last_error_at", "claimed_at", "started_at", "seen_at")
_JSON = ("queues", "tasks", "slots", "polls", "detail")


class Register(Spelling):
    """Ops on the workers' register."""

    # `soon` lies in the past: when it began, by the database's clock, also where the row is written a second time.
    ENTER_WORKER: ClassVar[str] = """
        {insert_new} INTO dibs_workers (worker, host, pid, version, state, queues, queues_left_out, tasks, tasks_left_out,
            slots, claims, started_at, seen_at)
        VALUES (:worker, :host, :pid, :version, :state, :queues, :queues_left_out, :tasks, :tasks_left_out,
            :slots, 0, {soon}, {now})
        {or_nothing}
    """

    def enter_worker(self, entry: Entry, seen: Seen, *, age: float) -> Op[None]:
        """Write the row of a worker that began `age` seconds ago, unless it is there."""
        queues, queues_left_out = (None, 0) if entry.queues is None else bounded(entry.queues)
        tasks, tasks_left_out = bounded(entry.tasks)
        yield from execute(
            self.ENTER_WORKER,
            worker=entry.worker,
            host=entry.host,
            pid=entry.pid,
            version=entry.version,
            state=seen.state,
            queues=_json(queues),
            queues_left_out=queues_left_out,
            tasks=_json(tasks),
            tasks_left_out=tasks_left_out,
            slots=_json(seen.slots),
            delay=-age,
        )
        yield from execute(self.NOTE_WORKER, **self._seen(entry.worker, seen))

    NOTE_WORKER: ClassVar[str] = """
        UPDATE dibs_workers SET seen_at = {now}, state = :state, slots = :slots, claims = :claims,
            done_rate = :done_rate, failed_rate = :failed_rate, last_error = :last_error, last_error_at = :last_error_at,
            claimed_queue = :claimed_queue, claimed_at = :claimed_at, polls = :polls, detail = :detail
        WHERE worker = :worker
    """

    def note_worker(self, worker: str, seen: Seen) -> Op[bool]:
        """Write what a worker says of itself now; return False where its row is gone."""
        return (yield from execute(self.NOTE_WORKER, alone=True, **self._seen(worker, seen))) > 0

    def _seen(self, worker: str, seen: Seen) -> dict[str, Any]:
        return {
            "worker": worker,
            "state": seen.state,
            "slots": _json(seen.slots),
            "claims": seen.claims,
            "done_rate": seen.done_rate,
            "failed_rate": seen.failed_rate,
            "last_error": seen.last_error,
            "last_error_at": None if seen.last_error_at is None else self.written(seen.last_error_at),
            "claimed_queue": seen.claimed_queue,
            "claimed_at": None if seen.claimed_at is None else self.written(seen.claimed_at),
            "polls": _json(seen.polls),
            "detail": _json(seen.detail),
        }

    LEAVE_WORKER: ClassVar[str] = "DELETE FROM dibs_workers WHERE worker = :worker"

    def leave_worker(self, worker: str) -> Op[None]:
        """Remove the row of a worker that has ended."""
        yield from execute(self.LEAVE_WORKER, alone=True, worker=worker)

    FIND_GONE: ClassVar[str] = "SELECT worker FROM dibs_workers WHERE seen_at < {soon}"
    REMOVE_GONE: ClassVar[str] = "DELETE FROM dibs_workers WHERE worker = :worker AND seen_at < {soon}"

    def find_gone(self, *, after: float) -> Op[list[str]]:
        """Return the workers that have not been seen for `after` seconds."""
        rows = yield from fetch(self.FIND_GONE, alone=True, delay=-after)
        return [row[0] for row in rows]

    def remove_gone(self, worker: str, *, after: float) -> Op[bool]:
        """Remove the row of a worker that has not been seen for `after` seconds; return False where it has been since."""
        return (yield from execute(self.REMOVE_GONE, alone=True, worker=worker, delay=-after)) > 0

    WORKERS: ClassVar[str] = f"SELECT {_COLUMNS}, {{now}} FROM dibs_workers ORDER BY host, pid, worker"

    def workers(self) -> Op[list[WorkerRecord]]:
        """Return all workers that are registered."""
        rows = yield from fetch(self.WORKERS, alone=True)
        return [self._worker(row) for row in rows]

    def _worker(self, row: Row) -> WorkerRecord:
        values: dict[str, Any] = dict(zip(_FIELDS, row[:-1], strict=True))
        for name in _TIMES:
            values[name] = self.moment_or_none(values[name])
        for name in _JSON:
            values[name] = None if values[name] is None else msgspec.json.decode(values[name])
        seen_ago = max((self.moment(row[-1]) - values["seen_at"]).total_seconds(), 0.0)
        state = "quiet" if seen_ago > QUIET else values["state"]
        return msgspec.convert({**values, "state": state, "seen_ago": round(seen_ago, 3)}, WorkerRecord)


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
