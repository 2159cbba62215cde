"""Enqueue in the user's own transaction, on every kind of connection: commit and there is a job, roll back and
there is none. The transaction stays the user's, and stays usable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from conformance.connections.kind import Connected, Kind, done
from conformance.connections.pairs import on_each
from conformance.hands import Queue
from dibs.states import State
from dibs.tasks import Task

#: What drivers, databases and JSON functions are known to change on the way.
PAYLOAD: dict[str, Any] = {
    "text": 'Zoë said: 100 %s of "that", it\'s {now} :name $1 ? \\ \n\t🍏',
    "huge": 2**64,
    "precise": 0.1 + 0.2,
    "list": [[], {}, None, True, "", -1],
    "long": "ü" * 3000,
}


def take(data: Any) -> None:
    """The task whose jobs are enqueued; nobody runs it here."""


@pytest.fixture
def task(queue: Queue) -> Task[Any, Any]:
    queue.app.tasks.clear()
    return queue.app.task(name="t", queue="q")(take)


@pytest.fixture
def theirs(queue: Queue) -> None:
    """A table of the user's own."""
    queue.execute("CREATE TABLE IF NOT EXISTS theirs (number INTEGER)")
    queue.execute("DELETE FROM theirs")


WRITE = "INSERT INTO theirs (number) VALUES (1)"


@on_each()
def test_commit_makes_a_job(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """A job with exactly these arguments and options, that nobody sees before the commit."""
    when = datetime.now(UTC) + timedelta(hours=7)

    async def scenario() -> tuple[int, int]:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            using = task.using(connection=user.connection, priority=-3, max_attempts=4, queue="other")
            plain = await user.enqueue(using, data=PAYLOAD)
            keyed = await user.enqueue(task.using(connection=user.connection, key="k%s", run_at=when), data=[])
            assert (plain.created, keyed.created) == (True, True)
            assert queue.count("dibs_jobs") == 0
            await done(user.commit())
            return plain.id, keyed.id

    plain, keyed = map(queue.record, kind.run(scenario()))
    assert plain.payload == {"data": PAYLOAD}
    assert (plain.queue, plain.priority, plain.max_attempts, plain.task_key) == ("other", -3, 4, None)
    assert (keyed.task_key, keyed.status) == ("k%s", State.READY)
    assert abs(keyed.run_at - when) < timedelta(milliseconds=2)
    assert abs(plain.run_at - datetime.now(UTC)) < timedelta(seconds=60)
    assert queue.keys() == {"k%s": keyed.id}
    ((text,),) = queue.fetch("SELECT payload FROM dibs_jobs WHERE id = :id", id=plain.id)
    assert text == task.signature.dump((PAYLOAD,), {}), "the text is stored as it was written"


@on_each()
def test_roll_back_leaves_nothing(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """No job, no key, no duplicate counted; what had been there before is as it was."""
    held = queue.add(key="held")

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await user.enqueue(task.using(connection=user.connection), data=1)
            await user.enqueue(task.using(connection=user.connection, key="k"), data=1)
            await user.enqueue(task.using(connection=user.connection, key="held"), data=1)
            await user.enqueue_many(queue.app, [task.call(data=n) for n in range(3)])
            await done(user.rollback())

    kind.run(scenario())
    assert queue.statuses() == {held: State.READY}
    assert queue.keys() == {"held": held}
    assert queue.record(held).duplicates == 0


@on_each()
def test_a_duplicate_leaves_the_transaction_usable(
    queue: Queue, kind: Kind, task: Task[Any, Any], theirs: None
) -> None:
    """A key that is held is an answer, not an error: before and after it the user's own writes go on."""
    first = queue.add(key="k", payload={"data": 1})

    async def scenario() -> None:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await done(user.execute(WRITE))
            again = await user.enqueue(task.using(connection=user.connection, key="k"), data=1)
            assert (again.id, again.created) == (first, False)
            await done(user.execute(WRITE))
            mine = await user.enqueue(task.using(connection=user.connection, key="mine"), data=1)
            again = await user.enqueue(task.using(connection=user.connection, key="mine"), data=2)
            assert (again.id, again.created, mine.created) == (mine.id, False, True)
            await done(user.execute(WRITE))
            await done(user.commit())

    kind.run(scenario())
    assert queue.count("theirs") == 3
    assert queue.count("dibs_jobs") == 2
    assert queue.record(first).duplicates == 1


@on_each()
def test_bulk(queue: Queue, kind: Kind, task: Task[Any, Any], theirs: None) -> None:
    """Hundreds of jobs in one call: in order, equal keys once, all or nothing with the user's own writes."""
    held = queue.add(key="k7")

    async def scenario() -> list[Any]:
        async with kind.open(queue.db) as user:
            await done(user.begin())
            await done(user.execute(WRITE))
            calls = [(task.using(key=f"k{n % 200}") if n % 2 else task).call(data=[n, "ü%"]) for n in range(500)]
            jobs: list[Any] = await user.enqueue_many(queue.app, iter(calls))
            await done(user.commit())
            return jobs

    jobs = kind.run(scenario())
    assert [job.created for job in jobs] == [n % 2 == 0 or (n < 200 and n != 7) for n in range(500)]
    assert {job.id for n, job in enumerate(jobs) if n % 200 == 7} == {held}
    assert [job.id for job in jobs[201:400:2]] == [job.id for job in jobs[1:200:2]]
    payloads = {record.id: record.payload["data"] for record in queue.app.jobs(limit=1000) if record.id != held}
    assert [payloads[job.id] for job in jobs if job.created] == [[n, "ü%"] for n, job in enumerate(jobs) if job.created]
    assert len(payloads) == sum(job.created for job in jobs)
    unkeyed = [job.id for job in jobs[::2]]
    assert unkeyed == sorted(unkeyed)


@on_each(lambda kind: kind.oddly)
def test_a_users_habits_do_not_matter(queue: Queue, kind: Kind, task: Task[Any, Any]) -> None:
    """Rows as dicts, text as bytes, server-side cursors, codecs for JSON, another time zone: the same answers."""
    when = datetime.now(UTC).replace(microsecond=0) + timedelta(days=183)
    held = queue.add(key="held", payload={"data": "ü"})

    async def scenario() -> list[Any]:
        assert kind.oddly is not None
        async with kind.oddly(queue.db) as user:
            await done(user.begin())
            same = await user.enqueue(task.using(connection=user.connection, key="held"), data="ü")
            other = await user.enqueue(task.using(connection=user.connection, key="held"), data="u")
            plain = await user.enqueue(task.using(connection=user.connection, run_at=when), data=PAYLOAD)
            many = await user.enqueue_many(queue.app, [task.using(key=key).call(data=1) for key in "aab"])
            await done(user.commit())
            return [same, other, plain, *many]

    same, other, plain, *many = kind.run(scenario())
    assert (same.id, same.created, other.id, other.created) == (held, False, held, False)
    assert [job.created for job in many] == [True, False, True]
    record = queue.record(plain.id)
    assert (record.payload, record.run_at) == ({"data": PAYLOAD}, when)
    assert queue.keys() == {"held": held, "a": many[0].id, "b": many[2].id}


@on_each(lambda kind: kind.repeatable)
def test_a_duplicate_at_repeatable_read(queue: Queue, kind: Kind, task: Task[Any, Any], theirs: None) -> None:
    """A snapshot that is older than the key: the duplicate is told, or the database refuses the whole transaction,
    as it then does with any write, and begun anew it is told."""
    told: list[bool] = []

    async def scenario() -> int:
        assert kind.repeatable is not None
        async with kind.repeatable(queue.db) as user:
            await done(user.begin())
            await done(user.execute("SELECT count(*) FROM theirs"))  # the snapshot is of this moment
            taken = queue.add(key="k", payload={"data": 1})
            await done(user.execute(WRITE))
            try:
                told.append(await _is_duplicate(user, task, taken))
            except Exception as error:
                assert kind_of_refusal(error), error
                assert not any("migrate" in note for note in getattr(error, "__notes__", []))
                await done(user.rollback())
        async with kind.repeatable(queue.db) as user:
            await done(user.begin())
            await done(user.execute(WRITE))
            assert await _is_duplicate(user, task, taken)
            await user.enqueue(task.using(connection=user.connection, key="mine"), data=1)
            await done(user.commit())
            return taken

    taken = kind.run(scenario())
    assert told == ([] if queue.db.refuses_old_snapshots else [True])
    assert (queue.count("theirs"), queue.count("dibs_jobs")) == (1, 2)
    assert queue.record(taken).duplicates == 1


async def _is_duplicate(user: Connected, task: Task[Any, Any], first: int) -> bool:
    again = await user.enqueue(task.using(connection=user.connection, key="k"), data=1)
    return (again.id, again.created) == (first, False)


def kind_of_refusal(error: BaseException | None) -> str | None:
    """Return the code with which the database refuses an old snapshot, if that is what it does."""
    while error is not None:
        for said in (error, getattr(error, "orig", None)):
            code = getattr(said, "sqlstate", None) or getattr(said, "pgcode", None)
            if code == "40001" or "40001" in str(said) or getattr(said, "args", ())[:1] == (1020,):
                return str(code or 1020)
        error = error.__cause__ or error.__context__
    return None
