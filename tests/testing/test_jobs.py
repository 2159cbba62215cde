"""The jobs of a test: seen and run in its own transaction, by the rules of a worker, on every database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from databases import Database
from dibs import Backoff, Cancel, Dibs, DibsError, Fail, Release, Retry, State, current_job
from dibs.testing import Jobs
from testing.conftest import ASYNC_DRIVERS, sqlalchemy_url


class Shop:
    """An app whose tasks write notes over the test's session."""

    def __init__(self, db: Database, session: Any) -> None:
        self.app = app = db.app(connection=lambda: session)
        self.session = session

        @app.task(name="pay")
        def pay(amount: Decimal, due: datetime) -> Decimal:
            assert isinstance(amount, Decimal)
            session.execute(text("INSERT INTO notes VALUES ('paid')"))
            thank.using(queue="mail", priority=3, key="once").enqueue(name="Zoë")
            session.commit()
            return amount + 1

        @app.task(name="thank")
        async def thank(name: str) -> str:
            await asyncio.sleep(0)
            return f"thanks {name}"

        @app.task(name="steer", max_attempts=3, backoff=Backoff(first=60, jitter=0))
        def steer(how: str) -> str:
            job = current_job()
            if how == "raise":
                raise LookupError("no such order")
            if how == "retry" and job.attempts == 1:
                raise Retry("later", delay=3600)
            if how == "release":
                raise Release(delay=30)
            if how == "fail":
                raise Fail("gone")
            if how == "cancel":
                raise Cancel("not wanted")
            if how == "checkpoint":
                before = job.last_checkpoint
                job.checkpoint({"page": (before or {"page": 0})["page"] + 1})
                if before is None:
                    raise Retry(delay=0)
                return f"from page {before['page']}"
            if how == "finish":
                job.finish("finished", connection=session)
                session.commit()
            return "returned"

        self.pay, self.thank, self.steer = pay, thank, steer


@pytest.fixture
def shop(db: Database, session: Session) -> Iterator[Shop]:
    shop = Shop(db, session)
    yield shop
    shop.app.close()


def test_what_was_enqueued_is_seen_and_run(db: Database, shop: Shop) -> None:
    """Arguments come back as they are typed; a run sees the test's rows and enqueues on; nothing is ever committed."""
    due = datetime(2030, 1, 2, tzinfo=UTC)
    with Jobs(shop.app) as jobs:
        job = shop.pay.enqueue(Decimal("9.50"), due)  # the session has not begun
        shop.session.execute(text("INSERT INTO notes VALUES ('ordered')"))
        assert db.fetch("SELECT count(*) FROM dibs_jobs") == [(0,)]
        (seen,) = jobs.enqueued(shop.pay)
        assert seen.arguments == {"amount": Decimal("9.50"), "due": due}
        assert (seen.id, seen.queue, seen.key, seen.status, seen.attempts) == (job.id, "default", None, "ready", 0)
        assert jobs.enqueued(shop.thank) == []
        shop.session.commit()

        paid, thanked = jobs.run()
        assert (paid.id, paid.task, paid.result, paid.status) == (job.id, "pay", Decimal("10.50"), State.DONE)
        assert (thanked.task, thanked.arguments, thanked.result) == ("thank", {"name": "Zoë"}, "thanks Zoë")
        (mail,) = jobs.enqueued("thank")
        assert (mail.queue, mail.priority, mail.key, mail.status) == ("mail", 3, "once", State.DONE)
        assert [row[0] for row in shop.session.execute(text("SELECT text FROM notes"))] == ["ordered", "paid"]
        assert job.join(1) == Decimal("10.50")
        assert shop.app.job(job.id).attempts == 1
        assert jobs.run() == []
    assert db.fetch("SELECT count(*) FROM dibs_jobs") == [(0,)]


def test_a_rollback_takes_jobs_along(shop: Shop) -> None:
    """What the session rolls back is not enqueued; `own=True` outlives that, as it does outside of tests."""
    with Jobs(shop.app) as jobs:
        shop.session.execute(text("INSERT INTO notes VALUES ('ordered')"))
        shop.thank.enqueue("gone")
        shop.thank.using(own=True).enqueue("gone, too")  # part of the session's savepoint, which was there first
        shop.session.rollback()
        shop.thank.using(own=True).enqueue("kept")
        shop.session.rollback()
        assert [seen.arguments["name"] for seen in jobs.enqueued()] == ["kept"]
        shop.app.cancel(jobs.enqueued()[0].id)
        assert jobs.run() == []
        assert jobs.enqueued()[0].status == State.CANCELLED


def test_jobs_go_the_way_that_their_tasks_steer_them(shop: Shop) -> None:
    """Retries, releases, failures, cancellations, checkpoints and finish() are what they are in a worker."""
    with Jobs(shop.app) as jobs:
        for how in ("raise", "retry", "release", "fail", "cancel", "finish"):
            shop.steer.enqueue(how)
        with pytest.raises(LookupError, match="no such order") as caught:
            jobs.run()
        assert "attempt 1; it is ready now" in caught.value.__notes__[0]
        jobs.run()
        assert [(seen.status, seen.attempts) for seen in jobs.enqueued()] == [
            ("ready", 1), ("ready", 1), ("ready", 0), ("failed", 1), ("cancelled", 1), ("done", 1),
        ]  # fmt: skip
        assert jobs.enqueued()[5].result == "finished"
        assert "LookupError: no such order" in (jobs.enqueued()[0].error or "")

        jobs.clock.move(seconds=59)  # the release is due; the backoff is a minute
        assert [ran.arguments["how"] for ran in jobs.run()] == ["release"]
        jobs.clock.move(timedelta(minutes=3))
        ran = jobs.run(raise_errors=False)
        assert [one.arguments["how"] for one in ran] == ["raise", "release"]
        jobs.clock.move(hours=1)
        again = {one.arguments["how"]: one for one in jobs.run(raise_errors=False)}
        assert again["retry"].result == "returned"
        assert (again["raise"].status, again["raise"].attempt) == (State.FAILED, 3)
        assert isinstance(again["raise"].error, LookupError)

        shop.steer.enqueue("checkpoint")
        assert [one.result for one in jobs.run()] == [None, "from page 1"]


def test_the_clock_is_moved_for_what_is_scheduled(shop: Shop) -> None:
    """A delay is over when the clock has moved that far, also for what was enqueued after an earlier move."""
    with Jobs(shop.app) as jobs:
        shop.thank.using(delay=timedelta(days=1)).enqueue("tomorrow")
        assert jobs.run() == []
        jobs.clock.move(hours=23)
        shop.thank.using(delay=7200).enqueue("in two hours")
        assert jobs.run() == []
        left = [seen.run_at - jobs.clock.now() for seen in jobs.enqueued()]
        assert [round(each / timedelta(hours=1), 1) for each in left] == [1.0, 2.0]
        jobs.clock.move(hours=1.1)
        assert [ran.arguments["name"] for ran in jobs.run()] == ["tomorrow"]
        jobs.clock.move(hours=1)
        assert [ran.arguments["name"] for ran in jobs.run(shop.thank)] == ["in two hours"]
        with pytest.raises(ValueError, match="forward"):
            jobs.clock.move(hours=-1)


def test_a_task_that_rolls_back_is_settled_all_the_same(shop: Shop) -> None:
    """A claim that the task's own rollback undid is made anew; where the job itself is gone, the error says why."""
    app, session = shop.app, shop.session

    @app.task(name="undoes", max_attempts=1)
    def undoes() -> None:
        session.execute(text("INSERT INTO notes VALUES ('undone')"))
        session.rollback()

    with Jobs(app) as jobs:
        undoes.enqueue()
        session.execute(text("INSERT INTO notes VALUES ('open')"))
        (ran,) = jobs.run()
        assert (ran.status, jobs.enqueued()[0].attempts) == (State.DONE, 1)
        session.execute(text("INSERT INTO notes VALUES ('open')"))
        undoes.enqueue()
        with pytest.raises(DibsError) as caught:
            jobs.run()
        assert "commit before the jobs are run" in caught.value.__notes__[0]


def test_async_tests(db: Database) -> None:
    """The same with an async session, on the test's own loop: async tasks on it, sync ones in a thread meanwhile."""

    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(db, ASYNC_DRIVERS))
        async with engine.connect() as connection:
            transaction = await connection.begin()
            await connection.execute(text("SELECT 1"))
            app = db.app()
            async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:

                @app.task(name="aadd")
                async def aadd(a: int, b: Decimal) -> Decimal:
                    await current_job().acheckpoint([a])
                    await session.execute(text("SELECT 1"))
                    await session.commit()
                    return a + b

                @app.task(name="count")
                def count() -> int:
                    return len(app.jobs())

                with Jobs(app, connection=session) as jobs:
                    job = await aadd.aenqueue(1, Decimal(2))
                    await count.using(delay=60, connection=session).aenqueue()
                    await session.commit()
                    assert [seen.arguments for seen in await jobs.aenqueued(aadd)] == [{"a": 1, "b": Decimal(2)}]
                    with pytest.raises(DibsError, match="await arun"):
                        jobs.run()
                    assert [ran.result for ran in await jobs.arun()] == [Decimal(3)]
                    assert await job.ajoin(1) == Decimal(3)
                    await jobs.clock.amove(minutes=2)
                    assert [ran.result for ran in await jobs.arun()] == [2]
            await transaction.rollback()
        await engine.dispose()

    asyncio.run(main())
    assert db.fetch("SELECT count(*) FROM dibs_jobs") == [(0,)]


def test_without_a_connection_of_the_tests_own(db: Database) -> None:
    """Where there is no transaction around the test, jobs are committed, and run over dibs' own connections."""
    app: Dibs = db.app()

    @app.task(name="broken")
    def broken() -> None:
        raise ValueError("no")

    @app.task(name="circles", backoff=Backoff(first=0))
    def circles() -> None:
        circles.enqueue()

    with Jobs(app) as jobs:
        broken.using(max_attempts=1).enqueue()
        assert [(ran.status, ran.reason is not None) for ran in jobs.run(raise_errors=False)] == [("failed", True)]
        assert db.fetch("SELECT status FROM dibs_jobs") == [("failed",)]
        if db.kind == "sqlite":
            circles.enqueue()
            with pytest.raises(DibsError, match="does circles enqueue itself"):
                jobs.run()
    app.close()
