"""Events: each is told when it happened, once, with its facts, and never in the way of a job."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from conftest import wait_for
from databases import Database
from dibs import Backoff, Cancel, Dibs, Draft, Event, Release, Secret, current_job
from dibs.events import NAMES

AT_ONCE = Backoff(first=0, jitter=0)


class Heard:
    """An app that writes down its events."""

    def __init__(self, db: Database, **settings: Any) -> None:
        self.db = db
        self.app: Dibs = db.app(**settings)
        self.events: list[Event] = []
        self.app.on(*NAMES)(self.events.append)

    def names(self, *but: str) -> list[str]:
        assert self.app.events.flush()
        return [event.name for event in self.events if event.name not in but]

    def only(self, name: str) -> Event:
        """Return the one event of this name."""
        assert self.app.events.flush()
        (event,) = [event for event in self.events if event.name == name]
        return event

    def work(self, **settings: Any) -> None:
        self.app.worker(burst=True, **settings).run()

    def background(self, **settings: Any) -> tuple[Any, threading.Thread]:
        worker = self.app.worker(**settings)
        thread = threading.Thread(target=worker.run)
        thread.start()
        return worker, thread


def users_connection(db: Database) -> Any:
    """A driver's connection as a user opens it, not in autocommit mode."""
    if db.kind == "sqlite":
        return sqlite3.connect(db.app().url.database)
    if db.kind == "postgres":
        return psycopg.connect(db.url)
    url = urlsplit(db.url)
    return pymysql.connect(  # type: ignore[no-untyped-call]
        host=url.hostname,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.path.removeprefix("/"),
    )


def test_a_job_that_is_done(db: Database) -> None:
    """Enqueued, started, done; with its facts, by the database's clock while it is claimed."""
    heard = Heard(db)
    heard.app.on_enqueue(lambda draft: draft.meta.update(tenant=7))

    @heard.app.task(name="note")
    def note(secret: Secret[str]) -> str:
        return "result"

    job = note.using(key="k", queue="q").enqueue("hunter2")
    assert note.using(key="k").enqueue("hunter2").id == job.id
    heard.work()
    assert heard.names() == ["enqueued", "duplicate", "started", "done"]
    enqueued, duplicate, started, done = heard.events
    assert {event.job_id for event in heard.events} == {job.id}
    assert {event.task for event in heard.events} == {"note"}
    assert (enqueued.queue, enqueued.key, enqueued.worker, enqueued.attempts) == ("q", "k", None, 0)
    assert duplicate.meta == enqueued.meta == started.meta == done.meta == {"tenant": 7}
    record = heard.app.job(job.id)
    assert (started.worker, started.attempts, started.max_attempts) == (record.lease_owner, 1, 12)
    assert done.ran is not None
    assert 0 <= done.ran < 5
    assert (done.error, done.exception, done.delay) == (None, None, None)
    assert record.finished_at is not None
    assert abs(done.at - record.finished_at) < timedelta(seconds=5)
    assert "hunter2" not in repr(heard.events)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_that_fails(db: Database, kind: str) -> None:
    """Each retry is told as that, and the final failure once, with the error and the exception itself."""
    heard = Heard(db)
    raised: list[ValueError] = []

    def run(secret: str) -> None:
        raised.append(ValueError(f"no {secret}"))
        raise raised[-1]

    if kind == "sync":

        @heard.app.task(name="fails", max_attempts=3, backoff=AT_ONCE)
        def fails(secret: Secret[str]) -> None:
            run(secret)
    else:

        @heard.app.task(name="fails", max_attempts=3, backoff=AT_ONCE)
        async def afails(secret: Secret[str]) -> None:
            run(secret)

    heard.app.tasks["fails"].enqueue("hunter2")
    heard.work()
    assert heard.names("enqueued", "started") == ["retried", "retried", "failed"]
    first, second, final = [event for event in heard.events if event.name in ("retried", "failed")]
    assert [event.exception for event in (first, second, final)] == raised
    assert [event.attempts for event in (first, second, final)] == [1, 2, 3]
    assert (first.delay, final.delay) == (0.0, None)
    for event in (first, second, final):
        assert event.error is not None
        assert event.error.endswith("ValueError: no •••")


def test_ends_without_an_exception(db: Database) -> None:
    """Arguments that do not fit, a timeout, a signal, a finish by the task itself."""
    heard = Heard(db)

    @heard.app.task(name="sleeps", timeout=0.05, max_attempts=1)
    async def sleeps() -> None:
        await asyncio.sleep(60)

    @heard.app.task(name="cancels")
    def cancels() -> None:
        raise Cancel("no need")

    @heard.app.task(name="releases")
    def releases() -> None:
        raise Release("later", delay=60)

    @heard.app.task(name="finishes")
    def finishes() -> None:
        with closing(users_connection(db)) as connection:
            current_job().finish(connection=connection)
            connection.commit()

    other = db.app()

    @other.task(name="cancels")
    def old(number: int) -> None: ...

    jobs = {
        "failed": sleeps.using(queue="slow").enqueue(),
        "cancelled": cancels.enqueue(),
        "released": releases.enqueue(),
    }
    finished, unfit = finishes.enqueue(), old.enqueue(1)
    heard.work()
    heard.names()
    told = {(event.name, event.job_id): event for event in heard.events}
    assert told["failed", jobs["failed"].id].error == "timed out after 0.05 s (attempt 1 of 1)"
    assert told["cancelled", jobs["cancelled"].id].error == "no need"
    assert told["released", jobs["released"].id].delay == 60
    assert ("done", finished.id) in told
    released = told["released", unfit.id]  # never begun, so never told as started
    assert ("started", unfit.id) not in told
    assert (released.delay, released.attempts) == (1.0, 0)
    assert "does not fit" in (released.error or "")
    ends = Counter(event.job_id for event in heard.events if event.name not in ("enqueued", "started"))
    assert set(ends.values()) == {1}


def test_a_cancellation_that_the_worker_did_not_know_of(db: Database) -> None:
    """A person cancels, the task returns a moment later: the database says cancelled, and so does the event."""
    heard = Heard(db)

    @heard.app.task(name="note")
    def note() -> str:
        heard.app.cancel(current_job().id)
        return "done"

    job = note.enqueue()
    heard.work()
    assert heard.app.job(job.id).status == "cancelled"
    assert heard.names() == ["enqueued", "started", "cancelled"]


def test_what_never_began_is_not_told_as_released(db: Database) -> None:
    """A worker that stops hands back what waits and what runs: the latter is told, since it was told as started."""
    heard = Heard(db)
    began = threading.Event()

    @heard.app.task(name="naps")
    async def naps(seconds: float) -> None:
        if seconds:
            began.set()
        await asyncio.sleep(seconds)

    heard.app.enqueue_many(naps.call(0) for _ in range(50))
    heard.work()  # it learns that they are quick
    heard.events.clear()
    heard.app.enqueue_many(naps.call(60) for _ in range(30))
    worker, thread = heard.background(concurrency=5, grace=0)
    assert began.wait(10)
    worker.stop()
    thread.join(20)
    counts = Counter(heard.names())
    assert counts["released"] == counts["started"] <= 5


@pytest.mark.parametrize("how", ["found when it is renewed", "found when it is settled"])
def test_a_claim_that_is_lost(db: Database, how: str) -> None:
    """Told once, whoever finds out first."""
    heard = Heard(db)
    began, gate = threading.Event(), threading.Event()

    @heard.app.task(name="waits")
    def waits() -> None:
        began.set()
        gate.wait(20)

    job = waits.enqueue()
    worker, thread = heard.background(lease=1.0 if "renewed" in how else 60.0)
    try:
        assert began.wait(10)
        db.execute(
            "UPDATE dibs_jobs SET claims = claims + 1, lease_owner = 'other', status = 'done' WHERE id = :id", id=job.id
        )
        if "renewed" in how:
            wait_for(lambda: "lost" in heard.names(), what="the lost claim to be told")
        gate.set()
        wait_for(lambda: "lost" in heard.names(), what="the lost claim to be told")
    finally:
        gate.set()
        worker.stop()
        thread.join(20)
    assert heard.names() == ["enqueued", "started", "lost"]
    assert heard.only("lost").worker == worker.name


@pytest.mark.parametrize(("attempts", "end"), [(1, None), (12, "failed")])
def test_a_claim_that_expires(db: Database, attempts: int, end: str | None) -> None:
    """Told by the upkeep that takes it back; where that was the job's last run, the failure is told, too."""
    heard = Heard(db)
    heard.app.on_enqueue(lambda draft: draft.meta.update(tenant=7))
    ran: list[int] = []

    @heard.app.task(name="note")
    def note() -> None:
        ran.append(1)

    job = note.enqueue()
    db.execute(
        "UPDATE dibs_jobs SET status = 'running', attempts = :attempts, claims = 1, lease = 0.1, lease_owner = 'gone', "
        "started_at = '2001-01-01 00:00:00.000', lease_until = '2001-01-01 00:00:00.000' WHERE id = :id",
        id=job.id,
        attempts=attempts,
    )
    heard.work(lease=1.0)
    # In whatever order: another thread may begin the job anew before this one tells that it was taken back.
    assert sorted(heard.names()) == sorted(["enqueued", "expired", *([end] if end else ["started", "done"])])
    expired = heard.only("expired")
    assert (expired.worker, expired.attempts, expired.max_attempts, expired.meta) == (
        "gone",
        attempts,
        12,
        {"tenant": 7},
    )
    assert "its lease ran out" in (expired.error or "")
    assert bool(ran) is (end is None)


def test_a_handler_that_hangs_holds_up_no_job(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on, drops what is too much, counts it, and ends."""
    from dibs import events

    monkeypatch.setattr(events, "MOST_WAITING", 10)
    monkeypatch.setattr(events, "LAST_WAIT", 0.1)
    app = db.app()
    gate = threading.Event()

    @app.task(name="noop")
    def noop(number: int) -> None: ...

    @app.on("done")
    def hangs(event: Event) -> None:
        gate.wait(30)

    app.enqueue_many(noop.call(number) for number in range(100))
    start = time.monotonic()
    app.worker(burst=True).run()
    assert time.monotonic() - start < 20
    assert app.counts() == {"default": {"done": 100}}
    assert app.events.dropped >= 100 - 11
    gate.set()


def test_async_handlers_run_on_the_loop_of_tasks(db: Database) -> None:
    """On the worker's, with its state, before the lifespan is left; on one of their own where no worker runs."""
    threads: list[Any] = []
    left: list[int] = []

    async def lifespan(app: Dibs) -> Any:
        yield asyncio.get_running_loop()
        left.append(len(threads))

    app = db.app(lifespan=lifespan)
    loops: list[Any] = []

    @app.task(name="look")
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    @app.on("enqueued", "done")
    async def handler(event: Event) -> None:
        await asyncio.sleep(0.1)
        threads.append((event.name, asyncio.get_running_loop()))

    look.enqueue()
    assert app.events.flush()
    app.worker(burst=True).run()
    assert [name for name, _ in threads] == ["enqueued", "done"]
    assert threads[1][1] is loops[0]
    assert threads[0][1] is not loops[0]
    assert left == [2]
    app.events.loop.close()


def test_an_enqueue_in_a_transaction_is_told_when_it_is_written(db: Database) -> None:
    """Also in bulk: one event for each job, duplicates as such."""
    heard = Heard(db)

    @heard.app.task(name="note")
    def note(number: int) -> None: ...

    jobs = heard.app.enqueue_many(note.using(key=f"k{number % 2}").call(number) for number in range(3))
    assert heard.names() == ["enqueued", "enqueued", "duplicate"]
    assert [event.job_id for event in heard.events] == [job.id for job in jobs]
    assert all(datetime.now(UTC) - event.at < timedelta(seconds=60) for event in heard.events)


def test_drafts_and_events_are_of_the_same_job(db: Database) -> None:
    """What an enqueue's hook learns of a job is what its event says."""
    heard = Heard(db)
    drafts: list[Draft] = []
    heard.app.on_enqueue(drafts.append)

    @heard.app.task(name="note")
    def note() -> None: ...

    note.using(queue="q", key="k", delay=60).enqueue()
    event, (draft,) = heard.only("enqueued"), drafts
    assert (event.task, event.queue, event.key, event.delay) == (draft.task, draft.queue, draft.key, draft.delay)


def test_a_waiting_job_that_is_cancelled(db: Database) -> None:
    """Told where it was cancelled, once, with the reason; of a running one its worker tells."""
    heard = Heard(db)
    heard.app.on_enqueue(lambda draft: draft.meta.update(tenant=7))

    @heard.app.task(name="note")
    def note() -> None: ...

    job = note.using(key="k", queue="x").enqueue()
    heard.app.cancel(job.id, reason="not needed")
    heard.app.cancel(task="note")
    event = heard.only("cancelled")
    assert (event.job_id, event.task, event.queue, event.key) == (job.id, "note", "x", "k")
    assert (event.error, event.worker, event.meta, event.attempts) == ("not needed", None, {"tenant": 7}, 0)

    @heard.app.task(name="asks")
    def asks() -> None:
        heard.app.cancel(current_job().id, reason="changed my mind")

    heard.events.clear()
    asks.enqueue()
    heard.work()
    event = heard.only("cancelled")
    assert (event.task, event.error) == ("asks", "changed my mind")
    assert event.worker is not None
