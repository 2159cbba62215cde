"""Jobs chosen by what a person knows of them, instead of by their ids."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from conformance.hands import PAST, Queue, new_job, promptly
from dibs import selections
from dibs.errors import InvalidArgument, KeyTaken
from dibs.states import State


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs are many: pages and transactions are small."""
    monkeypatch.setattr(selections, "ID_BATCH", 2)
    monkeypatch.setattr(selections, "PAGE", 3)


def failed(queue: Queue, error: str | None, /, **fields: Any) -> int:
    claim = queue.running(**fields)
    queue.end(claim, State.FAILED, error=error)
    return claim.id


def chosen(queue: Queue, /, **which: Any) -> set[int]:
    """Return the ids that a filter means, and see that it is counted and found alike."""
    listed = [job.id for job in queue.app.jobs(**which)]
    assert listed == sorted(listed, reverse=True)
    selection = queue.app.select(**which)
    assert selection.count() == len(listed)
    assert [job.id for job in selection.newest(100)] == listed
    assert queue.do(lambda: queue.dialect.find_chosen(selection.chosen, selection.edge, after=0, limit=100)) == sorted(
        listed
    )
    return set(listed)


def test_each_filter_and_all_together(queue: Queue) -> None:
    """Names and keys as a whole, letter by letter; all that are given must fit."""
    broken = failed(queue, "ValueError: bad", task="a", queue="y")
    late = failed(queue, "TimeoutError: late", task="a", queue="x")
    ready = queue.add(task="a", queue="x", key="K1")
    other = queue.add(task="A", queue="x", key="k1")
    done = queue.job_in(State.DONE, task="b", queue="y")
    assert chosen(queue) == {ready, other, broken, late, done}
    assert chosen(queue, task="a") == {ready, broken, late}
    assert chosen(queue, task="A") == {other}
    assert chosen(queue, queue="y") == {broken, done}
    assert chosen(queue, key="k1") == {other}
    assert chosen(queue, status="failed") == {broken, late}
    assert chosen(queue, status=["failed", State.DONE]) == {broken, late, done}
    assert chosen(queue, error="Error") == {broken, late}
    assert chosen(queue, task="a", queue="x", status="failed", error="TimeoutError", since=3600) == {late}
    assert chosen(queue, task="a", queue="x", status="failed", error="ValueError") == set()


def test_an_error_is_a_text_and_no_pattern(queue: Queue) -> None:
    """What means something in a pattern means itself, and letters are large or small."""
    quotes = "c:\\x 'quoted' \"so\" 🍏"
    texts = ["100% late", "100 late", "a_b", "aXb", quotes, "Late: ü", None]
    jobs = {text: failed(queue, text) for text in texts}
    for text, same in [("100%", ["100% late"]), ("a_b", ["a_b"]), (quotes, [quotes])]:
        assert chosen(queue, error=text) == {jobs[each] for each in same}
    assert chosen(queue, error="late") == {jobs["100% late"], jobs["100 late"]}
    assert chosen(queue, error="L") == {jobs["Late: ü"]}
    assert chosen(queue, error="ü") == {jobs["Late: ü"]}


def test_since(queue: Queue) -> None:
    """By when a job ended, or was enqueued where it has not; by the database's clock, or from a moment on."""
    old, fresh = queue.add(), queue.add()
    ended, ended_long_ago = failed(queue, "x", task="f"), failed(queue, "x", task="f")
    queue.write(old, created_at=PAST)
    queue.write(ended, created_at=PAST)
    queue.write(ended_long_ago, finished_at=PAST)
    assert chosen(queue, since=timedelta(hours=1)) == {fresh, ended}
    assert chosen(queue, since=3600) == {fresh, ended}
    assert chosen(queue, since=timedelta(days=30_000)) == {old, fresh, ended, ended_long_ago}
    assert chosen(queue, since=datetime(2001, 1, 1, tzinfo=UTC)) == {old, fresh, ended, ended_long_ago}
    assert chosen(queue, since=datetime(2001, 1, 1, 0, 0, 1, tzinfo=UTC)) == {fresh, ended}
    assert chosen(queue, since=datetime.now(UTC) + timedelta(hours=1)) == set()


@pytest.mark.usefixtures("small")
def test_requeue_by_filter(queue: Queue) -> None:
    """Failed ones alone, however many; others where `status` says so, and nothing that does not fit."""
    jobs = [failed(queue, f"ValueError: {n}", task="a") for n in range(7)]
    other = failed(queue, "KeyError: 1", task="a")
    cancelled, done = queue.job_in(State.CANCELLED, task="a"), queue.job_in(State.DONE, task="a")
    assert queue.app.requeue(task="a", error="ValueError") == jobs
    assert queue.app.requeue(task="nothing") == []
    assert queue.app.requeue(task="a") == [other]
    assert {queue.status(job_id) for job_id in [*jobs, other]} == {State.READY}
    assert (queue.status(cancelled), queue.status(done)) == (State.CANCELLED, State.DONE)
    assert queue.app.requeue(status=["cancelled", "done"], force=True) == sorted([cancelled, done])


@pytest.mark.usefixtures("small")
def test_requeue_by_filter_where_a_key_is_taken(queue: Queue) -> None:
    """Those are refused with their holders, the others go on."""
    first = failed(queue, "x", key="k")
    holder = queue.add(key="k")
    others = [failed(queue, "x", task="f") for _ in range(3)]
    with pytest.raises(KeyTaken) as caught:
        queue.app.requeue(status="failed")
    assert (caught.value.holders, caught.value.moved) == ({first: holder}, others)


@pytest.mark.usefixtures("small")
def test_cancel_by_filter(queue: Queue) -> None:
    """Ready ones end, running ones are asked to; what has ended is not meant."""
    claim = queue.running(task="a")
    ready = [queue.add(task="a", key=f"k{n}") for n in range(5)]
    other, ended = queue.add(task="b"), failed(queue, "x", task="c")
    assert queue.app.cancel(task="a", status="running") == [claim.id]
    assert queue.app.cancel(task="a", reason="why", by="ann") == [claim.id, *ready]
    assert {(queue.record(job_id).error, queue.record(job_id).cancel_requested_by) for job_id in ready} == {
        ("why", "ann")
    }
    assert queue.record(claim.id).status is State.RUNNING
    assert queue.keys() == {}
    assert queue.app.cancel(since=3600) == [claim.id, other]
    assert queue.status(ended) is State.FAILED


def test_a_selection_ends_where_it_began(queue: Queue) -> None:
    """What is enqueued after the count is not among them, and what has changed since is left as it is."""
    jobs = [failed(queue, "ValueError: x", task="f") for _ in range(4)]
    selection = queue.app.to_requeue(task="f", error="ValueError", since=3600)
    assert selection.count() == 4
    later = failed(queue, "ValueError: x", task="f")
    found = queue.do(lambda: queue.dialect.find_chosen(selection.chosen, selection.edge, after=0, limit=9))
    assert found == jobs
    queue.write(jobs[1], error="another one")
    queue.requeue(jobs[2])
    chosen_now = (selection.chosen, selection.edge)
    moved, _ = queue.do(lambda: queue.dialect.requeue_chosen(found, *chosen_now, force=False))
    assert moved == [jobs[0], jobs[3]]
    assert selection.count() == 0
    assert {queue.status(job_id) for job_id in (later, jobs[1])} == {State.FAILED}


def test_what_somebody_holds_is_left(locking: Queue) -> None:
    """Nothing waits for it, and the others are done."""
    held, free = failed(locking, "x", task="f"), failed(locking, "x", task="f")
    waits, runs = locking.add(), locking.add()
    with locking.locked(held, waits), promptly():
        assert locking.app.requeue(task="f") == [free]
        assert locking.app.cancel(task="t") == [runs]
    assert locking.app.requeue(task="f") == [held]


@pytest.mark.parametrize(
    "which",
    [
        {},
        {"task": None, "status": None},
        {"task": ""},
        {"queue": "a\0b"},
        {"status": "nonsense"},
        {"status": []},
        {"since": -1},
        {"since": "2h"},
        {"since": datetime(2026, 1, 1)},
        {"error": ""},
        {"key": 7},
        {"job_ids": [1], "task": "t"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(queue: Queue, which: dict[str, Any]) -> None:
    """At the call, and without a filter nobody means all jobs."""
    job_id = queue.add()
    for order in (queue.app.cancel, queue.app.requeue):
        with pytest.raises(InvalidArgument):
            order(**which)
    with pytest.raises(InvalidArgument, match="only ready and running"):
        queue.app.cancel(task="t", status="done")
    with pytest.raises(InvalidArgument, match="have ended"):
        queue.app.requeue(status="ready")
    with pytest.raises(InvalidArgument, match="force"):
        queue.app.requeue(status="done")
    with pytest.raises(TypeError):
        queue.app.cancel(tsak="t")  # type: ignore[call-arg]
    assert queue.status(job_id) is State.READY


def test_many_of_them(queue: Queue) -> None:
    """Several thousand jobs in several transactions; also for async code."""
    count = 2_500
    queue.enqueue(*[new_job(task="many") for _ in range(count)])
    assert len(queue.app.cancel(task="many")) == count
    assert len(asyncio.run(queue.app.arequeue(task="many", status="cancelled"))) == count
    assert len(asyncio.run(queue.app.ajobs(task="many", limit=5))) == 5
    assert len(asyncio.run(queue.app.acancel(task="many"))) == count


# -- why a job was cancelled -----------------------------------------------------------------------


@pytest.mark.parametrize("end", ["finish", "fail", "retry", "expire"])
def test_the_reason_of_a_cancelled_running_job(queue: Queue, end: str) -> None:
    """Whatever its task or its worker then do, it is the job's error; the first wish counts. Requeued, it is gone."""
    claim = queue.running()
    queue.app.cancel(claim.id, reason="wrong customer", by="ann")
    queue.app.cancel(claim.id, reason="too late", by="bob")
    running = queue.record(claim.id)
    assert (running.cancel_reason, running.cancel_requested_by, running.error) == ("wrong customer", "ann", None)
    if end == "expire":
        queue.lapse(claim.id)
        (expired,) = queue.do(lambda: queue.dialect.expire(reachable=1e9, limit=9))
        assert (expired.status, expired.error) == (State.CANCELLED, "wrong customer")
    else:
        verdicts: dict[str, dict[str, Any]] = {
            "finish": {"status": State.DONE, "result": "1"},
            "fail": {"status": State.FAILED, "error": "ValueError: x", "errors": [{"attempt": 1, "error": "x"}]},
            "retry": {"status": State.READY, "error": "ValueError: x", "errors": [{"attempt": 1, "error": "x"}]},
        }
        queue.end(claim, **verdicts[end])
    record = queue.record(claim.id)
    assert (record.status, record.error, record.cancel_requested_by) == (State.CANCELLED, "wrong customer", "ann")
    assert queue.do(lambda: queue.dialect.cancelled([claim.id])) == {claim.id: "wrong customer"}
    queue.requeue(claim.id)
    again = queue.record(claim.id)
    assert (again.error, again.cancel_reason, again.cancel_requested_by) == (None, None, None)
    assert again.cancel_requested_at is None


def test_who_cancelled_it(queue: Queue) -> None:
    """Where nobody says, it is whom the process runs as."""
    job_id = queue.add()
    queue.app.cancel(job_id)
    assert "@" in (queue.record(job_id).cancel_requested_by or "")
