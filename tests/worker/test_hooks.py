"""Hooks as they are met by jobs that run: around each run, at each enqueue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from conftest import wait_for
from databases import Database
from dibs import (
    Backoff,
    Cancel,
    ConfigurationError,
    Dibs,
    Draft,
    Fail,
    Release,
    Retry,
    Secret,
    State,
    Tasks,
    current_job,
)

AT_ONCE = Backoff(first=0, jitter=0)


def work(app: Dibs) -> None:
    app.worker(burst=True).run()


# -- around each run -----------------------------------------------------------------------------------


class Runs:
    """An app with a sync and an async task that do what they are told, and a diary."""

    def __init__(self, db: Database, **settings: Any) -> None:
        self.app = db.app(**settings)
        self.tasks = Tasks()
        self.diary: list[str] = []

        @self.tasks.task(name="sync", max_attempts=2, backoff=AT_ONCE)
        def sync(error: str = "") -> str:
            return self.run(error)

        @self.tasks.task(name="async", max_attempts=2, backoff=AT_ONCE)
        async def asynchronous(error: str = "") -> str:
            await asyncio.sleep(0)
            return self.run(error)

        self.by_kind = {"sync": sync, "async": asynchronous}
        self.app.include(self.tasks)

    def run(self, error: str) -> str:
        self.diary.append(f"run {NAME.get()}" if NAME.get() else "run")
        if error:
            raise ValueError(error)
        return "returned"

    def note(self, name: str) -> Any:
        def around(job: Any) -> Iterator[None]:
            self.diary.append(f"{name} {job.id is not None} in")
            try:
                yield
            except BaseException as error:
                self.diary.append(f"{name} saw {error!r}")
                raise
            finally:
                self.diary.append(f"{name} out")

        return around

    def anote(self, name: str) -> Any:
        make = contextmanager(self.note(name))

        async def around(job: Any) -> AsyncIterator[None]:
            await asyncio.sleep(0)
            with make(job):
                yield

        return around

    def end(self, kind: str, error: str = "") -> Any:
        """Let one job run until it has ended, and return it."""
        job = self.by_kind[kind].enqueue(error)
        work(self.app)
        return self.app.job(job.id)


NAME: ContextVar[str] = ContextVar("name", default="")

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@KINDS
def test_hooks_nest_in_their_order(db: Database, kind: str) -> None:
    """Those of the app outside, those of the task's `Tasks` inside; async ones only around async tasks."""
    runs = Runs(db)
    runs.tasks.around(runs.note("of tasks"))
    runs.app.around(runs.note("first"))
    runs.app.around(runs.anote("async"))
    runs.app.around(contextmanager(runs.note("decorated")))
    job = runs.end(kind)
    assert (job.status, job.result) == (State.DONE, "returned")
    names = ["first", *(["async"] if kind == "async" else []), "decorated", "of tasks"]
    assert runs.diary == [*(f"{name} True in" for name in names), "run", *(f"{name} out" for name in reversed(names))]


def test_hooks_of_tasks_are_around_their_own(db: Database) -> None:
    """Around no other's runs, and an app's also around those that were registered before it."""
    runs = Runs(db)
    runs.tasks.around(runs.note("theirs"))

    @runs.app.task(name="other")
    def other() -> None:
        runs.diary.append("other")

    runs.app.around(runs.note("app"))
    other.enqueue()
    work(runs.app)
    assert runs.diary == ["app True in", "other", "app out"]


@KINDS
def test_context_variables_reach_the_task(db: Database, kind: str) -> None:
    """What a hook sets in the context is there in the task, and not in the next job."""
    runs = Runs(db)
    first: list[int] = []

    def around(job: Any) -> Iterator[None]:
        if not first:
            first.append(job.id)
            NAME.set("traced")
        yield

    runs.app.around(around)
    runs.end(kind)
    runs.end(kind)
    assert runs.diary == ["run traced", "run"]


@KINDS
def test_a_hook_sees_an_exception_and_swallows_none(db: Database, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It comes out of the yield; whoever catches it and says nothing changes nothing, and is named in the log."""
    runs = Runs(db)

    def swallow(job: Any) -> Iterator[None]:
        try:
            yield
        except ValueError:
            runs.diary.append("caught")

    runs.app.around(runs.note("outer"))
    runs.app.around(swallow)
    job = runs.end(kind, "boom")
    assert (job.status, job.attempts) == (State.FAILED, 2)
    assert "ValueError: boom" in job.error
    assert "arounds.py" not in job.error
    assert "contextlib" not in job.error
    assert runs.diary[:5] == ["outer True in", "run", "caught", "outer saw ValueError('boom')", "outer out"]
    assert "swallow swallows no exception" in caplog.text


@KINDS
@pytest.mark.parametrize(
    ("signal", "status"),
    [
        (Fail("hopeless"), State.FAILED),
        (Cancel("no need"), State.CANCELLED),
        (Release("later", delay=60), State.READY),
        (Retry("again", delay=60), State.READY),
    ],
)
def test_a_signal_in_the_place_of_an_exception(db: Database, kind: str, signal: Exception, status: State) -> None:
    """A hook may say what an exception means for the job."""
    runs = Runs(db)

    def translate(job: Any) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise signal from error

    runs.app.around(runs.note("outer"))
    runs.app.around(translate)
    job = runs.end(kind, "boom")
    assert job.status is status
    assert job.attempts == (0 if isinstance(signal, Release) else 1)
    assert f"outer saw {signal!r}" in runs.diary


@KINDS
def test_another_error_of_a_hook_leaves_the_tasks(db: Database, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in what a hook does with an exception takes nothing from the exception: the task's own decides."""
    runs = Runs(db)

    def clumsy(job: Any) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise KeyError("a bug") from error

    runs.app.around(clumsy)
    job = runs.end(kind, "boom")
    assert job.error.endswith("ValueError: boom")
    assert "a bug" in caplog.text


@KINDS
def test_an_error_before_the_yield_is_retried(db: Database, kind: str) -> None:
    """Like one of the task's own, which is not called then; the hooks outside of it see it."""
    runs = Runs(db)

    def flaky(job: Any) -> Iterator[None]:
        if job.attempts == 1:
            raise OSError("not now")
        yield

    runs.app.around(runs.note("outer"))
    runs.app.around(flaky)
    job = runs.end(kind)
    assert (job.status, job.attempts) == (State.DONE, 2)
    assert "OSError: not now" in job.errors[0]["error"]
    assert runs.diary.count("run") == 1
    assert "outer saw OSError('not now')" in runs.diary


@KINDS
@pytest.mark.parametrize("late", [OSError("too late"), Retry("too late"), SystemExit("too late")])
def test_a_run_that_returned_is_done(
    db: Database, kind: str, late: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a hook raises after that is logged; the hooks outside of it are left as usual."""
    runs = Runs(db)

    def fails_late(job: Any) -> Iterator[None]:
        yield
        raise late

    runs.app.around(runs.note("outer"))
    runs.app.around(fails_late)
    job = runs.end(kind)
    assert (job.status, job.result, job.attempts) == (State.DONE, "returned", 1)
    assert "too late" in caplog.text
    assert runs.diary == ["outer True in", "run", "outer out"]


@KINDS
def test_hooks_with_too_many_or_too_few_yields(db: Database, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """One that yields twice harms nothing; one that does not come to its yield fails the run, and says so."""
    runs = Runs(db)

    def twice(job: Any) -> Iterator[None]:
        yield
        yield

    runs.app.around(twice)
    assert runs.end(kind).status is State.DONE
    assert "didn't stop" in caplog.text

    @runs.app.around
    def never(job: Any) -> Iterator[None]:
        if job is None:
            yield

    job = runs.end(kind)
    assert job.status is State.FAILED
    assert "didn't yield" in job.error


def test_what_is_no_hook_is_refused(db: Database) -> None:
    """A function without a yield, or a coroutine function, is told at registration what to write."""

    async def coroutine(job: Any) -> None: ...

    for wrong in (lambda job: None, coroutine, "around"):
        with pytest.raises(ConfigurationError, match="one yield"):
            db.app().around(wrong)  # type: ignore[type-var]


def test_a_cancelled_run_leaves_its_hooks(db: Database) -> None:
    """A timeout of an async task comes out of the yield as a cancellation, and the hooks clean up."""
    runs = Runs(db)
    runs.app.around(runs.anote("hook"))

    @runs.app.task(name="sleeps", timeout=0.1, max_attempts=1)
    async def sleeps() -> None:
        await asyncio.sleep(60)

    job = sleeps.enqueue()
    work(runs.app)
    assert "timed out after 0.1 s" in (runs.app.job(job.id).error or "")
    assert runs.diary == ["hook True in", "hook saw CancelledError()", "hook out"]


# -- at each enqueue -------------------------------------------------------------------------------------


def test_meta_goes_with_the_job(db: Database) -> None:
    """What the hooks add is stored with each job, however it is enqueued, and read where it runs and by its id."""
    app = db.app()
    seen: list[Any] = []
    drafts: list[Draft] = []

    @app.task(name="note", priority=3)
    def note(number: int) -> None:
        job = current_job()
        seen.append((number, job.meta, job.max_attempts))

    @app.on_enqueue
    def tenant(draft: Draft) -> None:
        drafts.append(draft)
        draft.meta["tenant"] = 7

    @app.on_enqueue
    def trace(draft: Draft) -> None:
        draft.meta["trace"] = {"id": "å", "parents": [draft.meta["tenant"], None]}

    meta = {"tenant": 7, "trace": {"id": "å", "parents": [7, None]}}
    jobs = [
        note.enqueue(1),
        note.using(key="k", queue="q", max_attempts=2).enqueue(2),
        *app.enqueue_many([note.call(3), note.using(delay=0).call(4)]),
        asyncio.run(note.aenqueue(5)),
    ]
    work(app)
    assert sorted(seen) == [(1, meta, 12), (2, meta, 2), (3, meta, 12), (4, meta, 12), (5, meta, 12)]
    assert [app.job(job.id).meta for job in jobs] == [meta] * 5
    assert [(draft.task, draft.queue, draft.key, draft.priority) for draft in drafts[:2]] == [
        ("note", "default", None, 3),
        ("note", "q", "k", 3),
    ]
    assert not any(hasattr(drafts[0], name) for name in ("args", "kwargs", "payload"))


def test_a_job_without_meta(db: Database) -> None:
    """Where no hook adds anything, nothing is stored, and the task finds an empty dict."""
    app = db.app()
    app.on_enqueue(lambda draft: None)
    seen: list[Any] = []

    @app.task(name="note")
    def note(password: Secret[str]) -> None:
        seen.append(current_job().meta)

    job = note.enqueue("hunter2")
    work(app)
    assert seen == [{}]
    assert app.job(job.id).meta is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda draft: draft.meta.update(request=object()), "meta['request']"),
        (lambda draft: draft.meta.update(big="x" * 8_192), "8,2"),
        (lambda draft: draft.meta.update(nan=float("nan")), "meta['nan']"),
        (lambda draft: draft.meta.update(nul="a\0b"), "meta['nul']"),
        (lambda draft: draft.meta.clear() or draft.nothing, "nothing"),
    ],
)
def test_no_error_of_a_hook_loses_an_enqueue(
    db: Database, wrong: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it adds is left out and that is logged; what others add is kept, and the job is there."""
    app = db.app()
    app.on_enqueue(lambda draft: draft.meta.update(tenant=7))
    app.on_enqueue(wrong)
    app.on_enqueue(lambda draft: draft.meta.update(after=True))
    app.task(name="noop")(lambda: None)
    job = app.tasks["noop"].enqueue()
    assert app.job(job.id).meta == {"tenant": 7, "after": True}
    assert "is left out" in caplog.text
    assert said in caplog.text


def test_an_async_hook_at_enqueue_is_refused(db: Database) -> None:
    """An enqueue from sync code could not await it."""

    async def later(draft: Draft) -> None: ...

    with pytest.raises(ConfigurationError, match="plain function"):
        db.app().on_enqueue(later)  # type: ignore[type-var]


def test_hooks_do_not_stop_a_worker_that_stops(db: Database) -> None:
    """A run that is interrupted at the end of the grace goes back unharmed, whatever its hooks do with that."""
    runs = Runs(db)
    began = threading.Event()

    @runs.app.task(name="sleeps")
    async def sleeps() -> None:
        began.set()
        await asyncio.sleep(60)

    @runs.app.around
    def clumsy(job: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            raise Fail("stopped?") from error

    job = sleeps.enqueue()
    worker = runs.app.worker(grace=0.1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert began.wait(10)
    start = time.monotonic()
    worker.stop()
    thread.join(10)
    assert time.monotonic() - start < 5
    wait_for(lambda: runs.app.job(job.id).status is State.READY)
    assert runs.app.job(job.id).attempts == 0
