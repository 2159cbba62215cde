"""Hooks, events and secrets of tasks that run in processes: as of all others, though the worker is another program."""

from __future__ import annotations

import os

import pytest

from databases import Database
from dibs import Dibs, Event, State
from dibs.events import NAMES
from worker import hooked_program


@pytest.fixture
def app(db: Database, monkeypatch: pytest.MonkeyPatch) -> Dibs:
    monkeypatch.setenv(hooked_program.VARIABLE, db.url)
    monkeypatch.setenv("DIBS_TEST_PID", str(os.getpid()))
    return hooked_program.make_app()


def test_hooks_are_around_runs_in_processes(app: Dibs) -> None:
    """In the process, sync ones around both kinds of tasks, async ones around async tasks; a signal steers the job."""
    jobs = [app.tasks[name].enqueue() for name in ("names", "anames", "looks")]
    app.worker(burst=True, concurrency=2).run()
    names, anames, looks = (app.job(job.id) for job in jobs)
    assert names.result == "names 1 in another process: True"
    assert anames.result == "async anames 1 in another process: True"
    assert (looks.status, looks.attempts) == (State.FAILED, 1)
    assert "Fail: no such key for somebody" in (looks.error or "")
    app.close()


def test_their_events_are_told_by_the_worker(app: Dibs) -> None:
    """In its own process, with the text of an error; the exception itself has stayed where it was raised."""
    told: list[Event] = []
    app.on(*NAMES)(told.append)
    job = app.tasks["fails"].enqueue("hunter2")
    app.worker(burst=True).run()
    assert app.events.flush()
    assert [event.name for event in told] == ["enqueued", "started", "retried", "started", "failed"]
    assert {event.job_id for event in told} == {job.id}
    assert told[-1].exception is None
    assert "somebody is not let in" in (told[-1].error or "")
    app.close()


@pytest.mark.parametrize("task", ["fails", "asks"])
def test_their_errors_are_cleaned(app: Dibs, task: str, caplog: pytest.LogCaptureFixture) -> None:
    """Secrets are masked and `scrub` has seen the text, before it is cut, and before it is stored or logged."""
    job = app.tasks[task].enqueue("hunter2")
    app.worker(burst=True).run()
    record = app.job(job.id)
    assert record.status is State.FAILED
    for text in (record.error or "", str(record.errors), caplog.text):
        assert "hunter" not in text
        assert "unter2" not in text
        assert "Zoe" not in text
    assert "somebody" in (record.error or "")
    app.close()
