"""`Dibs(inline=True)`: a job is written, and run by whoever enqueues it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.orm import Session

from databases import Database
from dibs import Cancel, Dibs, JobCancelled, JobFailed, Release, Task, current_job


@pytest.fixture
def app(db: Database) -> Iterator[Dibs]:
    app = db.app(inline=True)
    yield app
    app.close()


def tasks_of(app: Dibs) -> tuple[Task[[int, Decimal], Decimal], Task[[int], int], Task[[str], None]]:
    @app.task(name="add")
    def add(a: int, b: Decimal) -> Decimal:
        current_job().checkpoint(a)
        return a + b

    @app.task(name="double")
    async def double(number: int) -> int:
        await current_job().acheckpoint(number)
        return number * 2

    @app.task(name="ends")
    def ends(how: str) -> None:
        if how == "cancel":
            raise Cancel("not wanted")
        if how == "release":
            raise Release(delay=10)
        raise LookupError("no such order")

    return add, double, ends


def test_it_runs_at_once(app: Dibs) -> None:
    """Scheduled or not, once; what it gave is on the row, and a duplicate is not run again."""
    add, double, _ = tasks_of(app)
    job = add.using(delay=timedelta(days=1), key="once").enqueue(1, Decimal("0.50"))
    assert job.join() == Decimal("1.50")
    again = add.using(key="once").enqueue(1, Decimal("0.50"))
    assert (again.created, again.id, again.join(1)) == (False, job.id, Decimal("1.50"))
    record = app.job(job.id)
    assert (record.status, record.attempts, record.claims, record.payload) == ("done", 1, 1, {"a": 1, "b": "0.50"})
    assert double.using(retention=0).enqueue(4).join() == 8  # without a row
    assert [each.join() for each in app.enqueue_many(double.call(number) for number in range(3))] == [0, 2, 4]


def test_its_failure_is_not_that_of_the_enqueue(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    """What the task raises fails the job, is logged, and comes out of `join`; nothing is left to be retried."""
    _, _, ends = tasks_of(app)
    for how in ("raise", "release"):
        with pytest.raises(JobFailed, match="no such order" if how == "raise" else "released"):
            ends.enqueue(how).join()
    with pytest.raises(JobCancelled, match="not wanted"):
        ends.enqueue("cancel").join()
    assert {job.status for job in app.jobs()} == {"failed", "cancelled"}
    assert [record.message for record in caplog.records if "LookupError: no such order" in record.message]


def test_in_async_code(app: Dibs) -> None:
    """Async tasks run on the loop of `aenqueue`; under `enqueue` and where there is none, on one of their own."""
    add, double, _ = tasks_of(app)
    loops: set[int] = set()

    @app.task(name="here")
    async def here() -> None:
        loops.add(id(asyncio.get_running_loop()))

    async def main() -> int:
        await here.aenqueue()
        assert await (await double.aenqueue(2)).ajoin() == 4
        assert double.enqueue(3).join() == 6
        assert await (await add.aenqueue(1, Decimal(1))).ajoin() == 2
        return id(asyncio.get_running_loop())

    assert loops == set()
    assert asyncio.run(main()) in loops


def test_in_a_transaction(app: Dibs, db: Database, engine: sqlalchemy.Engine) -> None:
    """The row is part of the transaction: run before it ends, gone if it is rolled back."""
    add, double, _ = tasks_of(app)
    with Session(engine) as session:
        session.execute(text("SELECT 1"))
        assert add.using(connection=session).enqueue(1, Decimal(1)).join() == 2
        assert double.using(connection=session).enqueue(2).join() == 4
        session.rollback()
        assert db.fetch("SELECT count(*) FROM dibs_jobs") == [(0,)]
        double.using(connection=session).enqueue(2)
        session.commit()
    assert db.fetch("SELECT status FROM dibs_jobs") == [("done",)]


def test_an_app_says_that_it_is_inline(db: Database) -> None:
    """So that `dibs check` can refuse it."""
    assert (db.app(inline=True).inline, db.app().inline) == (True, False)
