"""A queue in a test's hands: each op of its dialect in a line, and rows changed behind dibs' back.

Time is moved by writing it into the rows, so that no test waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec

from databases import Database
from dibs import ops
from dibs.bindings.binding import OwnConnection
from dibs.jobs import Claim, Enqueued, JobRecord, Lane, NewJob, Position, Renewal, Settled, Verdict, Wanted
from dibs.ops import Execute, Op
from dibs.states import State
from dibs.store import RowLocked
from dibs.worker.settling import HASTE

T = TypeVar("T")

PAST = "2001-01-01 00:00:00.000"
FUTURE = "2091-01-01 00:00:00.000"

#: Whose claims they are, where a test does not say.
WORKER = "worker one"


class Queue:
    """One migrated, empty database, and what can be done to it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.app = db.app()
        self.dialect = self.app.dialect
        self.store = self.app.store
        self.hasty = True

    def close(self) -> None:
        self.app.close()

    def do(self, make: Callable[[], Op[T]]) -> T:
        """Run an op in a transaction of its own."""
        return self.store.run(make)

    # -- ops ---------------------------------------------------------------------------------------

    def add(self, **fields: Any) -> int:
        """Enqueue one job and return its id."""
        (added,) = self.enqueue(new_job(**fields))
        return added.id

    def enqueue(self, *jobs: NewJob) -> list[Enqueued]:
        """Enqueue jobs, as many at a time as the dialect takes."""
        added: list[Enqueued] = []
        for start in range(0, len(jobs), self.dialect.chunk):
            chunk = jobs[start : start + self.dialect.chunk]
            added += self.do(lambda chunk=chunk: self.dialect.enqueue(chunk, tell=False))  # type: ignore[misc]
        return added

    def wanted(
        self,
        *,
        queue: str = "q",
        priority: int = 0,
        worker: str = WORKER,
        tasks: Sequence[str] = ("t",),
        lease: float = 60.0,
        limit: int = 100,
        start: int | None = None,
        since: Position | None = None,
    ) -> Wanted:
        """Return what a claim from one lane is to take; all of it is started unless `start` says otherwise."""
        started = limit if start is None else start
        return Wanted(Lane(queue, priority), since, self.dialect.names(tasks), worker, lease, started, limit)

    def claim(self, **wanted: Any) -> list[Claim]:
        """Claim what is `wanted`."""
        return self.do(lambda: self.dialect.claim(self.wanted(**wanted)))

    def settle_and_claim(self, *verdicts: Verdict, **wanted: Any) -> tuple[dict[int, Settled], list[Claim]]:
        """Settle and claim in one transaction, as a worker does."""
        asked = self.wanted(**wanted)
        return self.store.run(
            lambda: self.dialect.settle_and_claim(verdicts, asked, haste=HASTE), once=True, haste=True
        )

    def running(self, *, worker: str = WORKER, lease: float = 60.0, start: int | None = None, **fields: Any) -> Claim:
        """Return the claim of a new job, and of nothing else."""
        job_id = self.add(**fields)
        claims = self.claim(
            queue=fields.get("queue", "q"),
            priority=fields.get("priority", 0),
            tasks=[fields.get("task", "t")],
            worker=worker,
            lease=lease,
            start=start,
        )
        assert [claim.id for claim in claims] == [job_id]
        return claims[0]

    def settle(self, *verdicts: Verdict, worker: str = WORKER) -> list[Settled]:
        """Settle as a worker does: in haste, and where that meets a lock, at leisure."""
        answers: dict[int, Settled] | None = None
        if self.hasty:
            with suppress(RowLocked):
                answers = self.store.run(lambda: self.dialect.settle(verdicts, worker=worker, haste=HASTE), haste=True)
        if answers is None:
            answers = self.do(lambda: self.dialect.settle(verdicts, worker=worker))
        assert sorted(answers) == sorted({verdict.id for verdict in verdicts}), "every verdict has an answer"
        return [answers[verdict.id] for verdict in verdicts]

    def end(self, claim: Claim, status: State, *, worker: str = WORKER, **fields: Any) -> Settled:
        """Settle one claim."""
        return self.settle(verdict(claim, status, **fields), worker=worker)[0]

    def renew(self, *claims: Claim, worker: str = WORKER, lease: float = 60.0) -> Renewal:
        held = [(claim.id, claim.claims) for claim in claims]
        return self.do(lambda: self.dialect.renew(held, worker=worker, lease=lease))

    def expire(self, *, reachable: float = 1e9, limit: int = 100) -> dict[int, State]:
        """Take back what is past; return what each job is now."""
        expired = self.do(lambda: self.dialect.expire(reachable=reachable, limit=limit))
        return {job.id: job.status for job in expired}

    def cancel(self, *ids: int, reason: str | None = None) -> list[int]:
        return self.app.cancel(ids, reason=reason)

    def requeue(self, *ids: int, force: bool = False) -> list[int]:
        return self.app.requeue(ids, force=force)

    # -- jobs in a state ---------------------------------------------------------------------------

    def job_in(self, state: State, **fields: Any) -> int:
        """Return a job that came into this state as jobs do."""
        if state is State.READY:
            return self.add(**fields)
        claim = self.running(**fields)
        if state is not State.RUNNING:
            assert self.end(claim, state) is Settled.NOW
        return claim.id

    def record(self, job_id: int) -> JobRecord:
        return self.app.job(job_id)

    def status(self, job_id: int) -> State:
        return self.record(job_id).status

    def statuses(self) -> dict[int, State]:
        return {job_id: State(status) for job_id, status in self.fetch("SELECT id, status FROM dibs_jobs")}

    # -- behind dibs' back -------------------------------------------------------------------------

    def fetch(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.db.fetch(sql, **values)

    def execute(self, sql: str, **values: Any) -> int:
        return self.db.execute(sql, **values)

    def count(self, table: str) -> int:
        number: int = self.fetch(f"SELECT count(*) FROM {table}")[0][0]
        return number

    def write(self, job_id: int, **columns: Any) -> None:
        """Write into a job's row, such as a time that is past."""
        sets = ", ".join(f"{column} = :{column}" for column in columns)
        self.execute(f"UPDATE dibs_jobs SET {sets} WHERE id = :id", id=job_id, **columns)
        assert self.fetch("SELECT 1 FROM dibs_jobs WHERE id = :id", id=job_id)

    def lapse(self, *ids: int) -> None:
        """Let the leases of these jobs be past."""
        for job_id in ids:
            self.write(job_id, lease_until=PAST)

    def keys(self) -> dict[str, int]:
        """Return who holds which key (of the task "t")."""
        return dict(self.fetch("SELECT task_key, job_id FROM dibs_keys WHERE task = 't'"))

    @contextmanager
    def transaction(self, *, undone: bool = True) -> Iterator[OwnConnection]:
        """Hold a transaction open on a connection of its own, at dibs' isolation level; then undo it, or commit."""
        connection = self.db.connect()
        try:
            connection.begin()
            yield connection
            if undone:
                connection.rollback()
            else:
                connection.commit()
        finally:
            connection.close()

    @contextmanager
    def locked(self, *ids: int) -> Iterator[None]:
        """Lock rows, as a transaction of the user's does that changes something in them."""
        with self.transaction() as connection:
            for job_id in ids:
                connection.answer(Execute("UPDATE dibs_jobs SET retention = 12345 WHERE id = :id", {"id": job_id}))
            yield


def run_in(connection: OwnConnection, op: Op[T]) -> T:
    """Run an op in a transaction that is open on this connection."""
    return ops.run(op, connection)


def new_job(**fields: Any) -> NewJob:
    """Return a job of task "t" for queue "q", `key=` being its key; `payload` is a value."""
    payload = msgspec.Raw(msgspec.json.encode(fields.pop("payload", {})))
    if (key := fields.pop("key", None)) is not None:
        fields["task_key"] = key
    return NewJob(**{"queue": "q", "task": "t", "payload": payload, **fields})


def verdict(claim: Claim | JobRecord, status: State, **fields: Any) -> Verdict:
    """Return a verdict about a claim; a finished row is kept for an hour unless `keep` says otherwise."""
    if "result" in fields:
        fields["result"] = msgspec.Raw(fields["result"].encode())
    if "errors" in fields:
        fields["errors"] = msgspec.Raw(msgspec.json.encode(fields["errors"]))
    return Verdict(
        **{
            "id": claim.id,
            "claims": claim.claims,
            "status": status,
            "attempts": claim.attempts,
            "releases": claim.releases,
            "keep": 3600.0,
            **fields,
        }
    )


@contextmanager
def promptly(seconds: float = 2.5) -> Iterator[None]:
    """Fail if what is inside takes so long that it waited for a lock (which own connections do for 5 s)."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"took {took:.1f} s: it waited for somebody"
