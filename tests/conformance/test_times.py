"""Times: the database's clock, to the microsecond or as near as it goes, and aware UTC for whoever reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from conformance.hands import Queue, new_job, run_in
from conftest import wait_for
from dibs.errors import InvalidArgument
from dibs.ops import Execute
from dibs.states import State
from dibs.tasks import Task

#: How exactly each database keeps a time.
GRAIN = {"sqlite": timedelta(milliseconds=1)}


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()

    @queue.app.task(name="t", queue="q")
    def take() -> None: ...

    return take


def database_now(queue: Queue) -> datetime:
    """Ask the database for its time."""
    sql = {
        "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
        "postgres": "SELECT clock_timestamp()",
        "mysql": "SELECT UTC_TIMESTAMP(6)",
    }[queue.db.kind]
    return queue.dialect.moment(queue.fetch(sql)[0][0])


def test_every_time_is_aware_utc(queue: Queue) -> None:
    """On a row that has all of them."""
    claim = queue.running()
    queue.cancel(claim.id)
    running = queue.record(claim.id)
    queue.end(claim, State.DONE)
    record = queue.record(claim.id)
    times = [
        record.run_at,
        record.created_at,
        record.started_at,
        record.finished_at,
        record.expires_at,
        record.cancel_requested_at,
        running.lease_until,
        claim.created_at,
        claim.claimed_at,
    ]
    assert [time.tzinfo for time in times if time is not None] == [UTC] * len(times)


def test_by_the_databases_clock(queue: Queue) -> None:
    """Each between two moments that the database names."""
    before = database_now(queue)
    claim = queue.running()
    queue.end(claim, State.DONE)
    after = database_now(queue)
    record = queue.record(claim.id)
    assert record.started_at is not None
    assert record.finished_at is not None
    assert before <= record.created_at <= record.started_at <= record.finished_at <= after
    assert before <= record.run_at <= claim.claimed_at <= after


def test_run_at_is_exact(queue: Queue, task: Task[Any, Any]) -> None:
    """To the grain of the database, and never earlier than asked; whatever zone it was given in."""
    when = datetime.now(timezone(timedelta(hours=-9, minutes=-30))).replace(microsecond=123_456) + timedelta(days=200)
    record = queue.record(task.using(run_at=when).enqueue().id)
    assert timedelta(0) <= record.run_at - when < GRAIN.get(queue.db.kind, timedelta(microseconds=1))
    assert record.run_at.tzinfo is UTC


def test_a_past_run_at_means_now(queue: Queue, task: Task[Any, Any]) -> None:
    """Clamped by the database's clock, so that it stands behind the claimers' cursors; and due at once."""
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    before = database_now(queue)
    jobs = [task.using(run_at=when).enqueue() for when in (long_ago, yesterday)]
    jobs += queue.app.enqueue_many(task.using(run_at=when).call() for when in (long_ago, yesterday))
    after = database_now(queue)
    for job in jobs:
        assert before <= queue.record(job.id).run_at <= after
    assert [claim.id for claim in queue.claim()] == [job.id for job in jobs]


@pytest.mark.parametrize("delay", [0.25, 90, timedelta(hours=3), timedelta(days=3650)])
def test_a_delay_counts_from_the_databases_now(queue: Queue, task: Task[Any, Any], delay: Any) -> None:
    """Alone and in a bulk."""
    (one,), many = [task.using(delay=delay).enqueue()], queue.app.enqueue_many([task.using(delay=delay).call()] * 2)
    expected = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    for job in [one, *many]:
        record = queue.record(job.id)
        assert record.run_at - record.created_at == pytest.approx(expected, abs=timedelta(milliseconds=1))


def test_due_when_its_time_has_come(queue: Queue, task: Task[Any, Any]) -> None:
    """Not a moment before, and then at once."""
    job = task.using(delay=0.2).enqueue()
    run_at = queue.record(job.id).run_at
    (claim,) = wait_for(queue.claim, what="the delayed job", every=0.005)
    assert claim.id == job.id
    assert claim.claimed_at >= run_at


@pytest.mark.parametrize(
    "options",
    [
        {"run_at": datetime(2030, 1, 1)},
        {"run_at": datetime.now(UTC) + timedelta(days=3661)},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"run_at": "2030-01-01"},
        {"run_at": 5.0},
        {"delay": -1},
        {"delay": timedelta(seconds=-1)},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": 4_000 * 86_400},
        {"delay": "5"},
        {"delay": True},
        {"delay": 1, "run_at": datetime.now(UTC)},
    ],
    ids=lambda options: "-".join(f"{name} {type(value).__name__}" for name, value in options.items()),
)
def test_times_that_mean_nothing_are_refused(queue: Queue, task: Task[Any, Any], options: dict[str, Any]) -> None:
    """Naive, absurdly far, negative, of the wrong type, or two at once: refused at the call, by name."""
    with pytest.raises(InvalidArgument, match="run_at|delay"):
        task.using(**options)


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/New_York"])
def test_the_servers_time_zone_does_not_matter(queue: Queue, zone: str) -> None:
    """A session in another zone, as a user's own connection may be, writes the same moments."""
    if queue.db.kind == "sqlite":
        pytest.skip("it has no sessions")
    set_zone = f"SET TIME ZONE '{zone}'" if queue.db.kind == "postgres" else "SET time_zone = '-07:30'"
    when = datetime.now(UTC).replace(microsecond=0) + timedelta(days=100)
    before = database_now(queue)
    with queue.transaction(undone=False) as user:
        user.answer(Execute(set_zone, {}))
        scheduled, now = run_in(user, queue.dialect.enqueue([new_job(run_at=when), new_job(delay=60.0)], tell=False))
    assert queue.record(scheduled.id).run_at == when
    record = queue.record(now.id)
    assert before <= record.created_at <= database_now(queue)
    assert record.run_at - record.created_at == pytest.approx(timedelta(seconds=60), abs=timedelta(milliseconds=1))
