"""The lifespan: around all jobs of a worker, whatever goes wrong in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from databases import Database
from dibs import (
    ConfigurationError,
    Dibs,
    DibsError,
    State,
    current_job,
)


def work(app: Dibs) -> None:
    app.worker(burst=True).run()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_lifespan_is_around_all_jobs(db: Database, kind: str) -> None:
    """Entered once before the first job, left after the last, on the loop of async tasks; also where there are only
    sync ones. What it yields is the state, there and nowhere else."""
    diary: list[Any] = []

    @asynccontextmanager
    async def lifespan(app: Dibs) -> AsyncIterator[dict[str, str]]:
        diary.append(("enter", threading.current_thread().name))
        async with asyncio.TaskGroup():  # needs the same asyncio task on both ends
            yield {"client": "http"}
        diary.append(("leave", threading.current_thread().name))

    app = db.app(lifespan=lifespan)
    if kind == "sync":

        @app.task(name="look")
        def look() -> None:
            diary.append(current_job().state["client"] + app.state["client"])
    else:

        @app.task(name="look")
        async def alook() -> None:
            diary.append(current_job().state["client"] + app.state["client"])
            assert threading.current_thread().name == "dibs-loop"

    app.enqueue_many(app.tasks["look"].call() for _ in range(3))
    with pytest.raises(DibsError, match="no state here"):
        _ = app.state
    for _ in range(2):  # another worker has a lifespan of its own
        work(app)
    assert diary == [
        ("enter", "dibs-loop"),
        *["httphttp"] * 3,
        *[("leave", "dibs-loop"), ("enter", "dibs-loop")],
        diary[-1],
    ]
    assert app.counts() == {"default": {"done": 3}}
    with pytest.raises(DibsError, match="no state here"):
        _ = app.state


def test_an_error_in_entering_ends_the_worker(db: Database) -> None:
    """With that error, before it has claimed anything."""

    async def lifespan(app: Dibs) -> AsyncIterator[None]:
        raise OSError("no route to the other service")
        yield

    app = db.app(lifespan=lifespan)
    ran: list[int] = []
    app.task(name="note")(ran.append)
    app.task(name="noop")(lambda: None)
    job = app.tasks["noop"].enqueue()
    with pytest.raises(OSError, match="no route"):
        work(app)
    assert app.job(job.id).claims == 0


def test_an_error_in_leaving_is_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """The jobs are done, so the worker ends well."""

    async def lifespan(app: Dibs) -> AsyncIterator[None]:
        yield
        raise OSError("could not say goodbye")

    app = db.app(lifespan=lifespan)
    app.task(name="noop")(lambda: None)
    job = app.tasks["noop"].enqueue()
    work(app)
    assert app.job(job.id).status is State.DONE
    assert "could not say goodbye" in caplog.text


def test_a_lifespan_that_breaks_stops_the_worker(db: Database) -> None:
    """When it ends with an error while the worker works, what the tasks use is gone: the worker ends with the error."""

    async def breaks() -> None:
        await asyncio.sleep(0.1)
        raise OSError("the pool's keeper died")

    async def lifespan(app: Dibs) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(breaks())
            yield

    app = db.app(lifespan=lifespan)
    app.task(name="noop")(lambda: None)
    with pytest.raises(ExceptionGroup) as caught:
        app.worker().run()
    assert caught.group_contains(OSError, match="keeper died")


def test_a_worker_that_is_stopped_while_it_enters(db: Database) -> None:
    """The lifespan is cancelled, cleans up, and the worker ends."""
    entering, cleaned = threading.Event(), threading.Event()

    async def lifespan(app: Dibs) -> AsyncIterator[None]:
        entering.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()
        yield

    app = db.app(lifespan=lifespan)
    app.task(name="noop")(lambda: None)
    worker = app.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert entering.wait(10)
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert cleaned.is_set()


def test_what_is_no_lifespan_is_refused(db: Database) -> None:
    """At once where that can be told, else when the worker enters it; with a sentence."""

    async def coroutine(app: Dibs) -> None: ...

    def generator(app: Dibs) -> Iterator[None]:
        yield

    for wrong in (coroutine, generator, "lifespan"):
        with pytest.raises(ConfigurationError, match="lifespan"):
            db.app(lifespan=wrong)
    app = db.app(lifespan=lambda app: {"client": 1})
    app.task(name="noop")(lambda: None)
    with pytest.raises(ConfigurationError, match="dict, which is no async context manager"):
        work(app)
