"""How long finished jobs are kept, from the task's option to the row: run by a worker, each way to end."""

from __future__ import annotations

import pytest

from conformance.hands import Queue
from conformance.test_settle import kept_for
from dibs import Backoff, Cancel, Fail
from dibs.states import State


def test_each_end_has_its_time(queue: Queue) -> None:
    """Done a day, done with a key seven, cancelled seven, failed thirty; unless the task says otherwise."""
    app = queue.db.app()

    @app.task
    def returns() -> None: ...

    @app.task
    def cancels() -> None:
        raise Cancel("nothing to do")

    @app.task
    def fails() -> None:
        raise Fail("never")

    days = 86_400.0
    expected = {
        returns.enqueue(): (State.DONE, 1.0),
        returns.using(key="k").enqueue(): (State.DONE, 7.0),
        returns.using(retention=3 * days).enqueue(): (State.DONE, 3.0),
        returns.using(retention=3 * days, key="k3").enqueue(): (State.DONE, 3.0),
        cancels.enqueue(): (State.CANCELLED, 7.0),
        cancels.using(retention=3 * days).enqueue(): (State.CANCELLED, 3.0),
        fails.enqueue(): (State.FAILED, 30.0),
        fails.using(retention=3 * days).enqueue(): (State.FAILED, 30.0),
        fails.using(retention=60 * days).enqueue(): (State.FAILED, 60.0),
        fails.using(retention=0).enqueue(): (State.FAILED, 30.0),
    }
    gone = [returns.using(retention=0).enqueue(), cancels.using(retention=0, key="gone").enqueue()]
    app.worker(burst=True).run()
    app.close()
    for job, (status, kept) in expected.items():
        record = queue.record(job.id)
        assert record.status is status
        assert kept_for(record) == pytest.approx(kept, abs=0.001)
    left = queue.statuses()
    assert [job.id for job in gone if job.id in left] == []
    assert len(left) == len(expected)


def test_the_last_five_errors_are_kept(queue: Queue) -> None:
    """The list on the row holds five attempts; the last traceback is there in full."""
    app = queue.db.app()

    @app.task(name="t", queue="q", max_attempts=8, backoff=Backoff(first=0))
    def fails() -> None:
        raise ValueError("run %s of it")

    job = fails.enqueue()
    app.worker(burst=True).run()
    app.close()
    record = queue.record(job.id)
    assert (record.status, record.attempts) == (State.FAILED, 8)
    assert [entry["attempt"] for entry in record.errors] == [4, 5, 6, 7, 8]
    assert all("ValueError: run %s of it" in entry["error"] for entry in record.errors)
    assert all(entry["at"].startswith("20") and entry["at"].endswith("+00:00") for entry in record.errors)
    assert record.error is not None
    assert record.error.startswith("Traceback")
    assert record.error.endswith("ValueError: run %s of it")
