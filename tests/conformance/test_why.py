"""`why`: each situation gets its own name, and no state of a queue a wrong one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from commands import Command
from conformance.hands import FUTURE, PAST, Queue, promptly, verdict
from databases import Database, new_database
from dibs import Dibs, Reason, State, elsewhere
from dibs.dialects import Dialect
from dibs.ops import Execute, Fetch
from dibs.register import Entry, Seen

#: Other queues on the same server are looked at, too, so those of other tests must have other names.
Q, T = (f"{word}{uuid.uuid4().hex[:8]}" for word in "qt")


def register(
    queue: Queue,
    worker: str = "one",
    *,
    queues: Sequence[str] | None = (Q,),
    tasks: Sequence[str] = (T,),
    dialect: Dialect | None = None,
    age: float = 0.0,
) -> None:
    """Write the row of a worker, as it does itself."""
    entry = Entry(
        worker=worker,
        host="h",
        pid=1,
        version="1",
        queues=None if queues is None else tuple(queues),
        tasks=tuple(tasks),
    )
    nothing: dict[str, Any] = dict.fromkeys(Seen.__struct_fields__)
    seen = Seen(**{**nothing, "state": "working", "slots": [], "claims": 0, "done_rate": 0.0, "failed_rate": 0.0})
    queue.do(lambda: (dialect or queue.dialect).enter_worker(entry, seen, age=age))


def add(queue: Queue, **fields: Any) -> int:
    return queue.add(queue=Q, task=T, **fields)


def rested(queue: Queue, job_id: int) -> int:
    """Let the run of a job have begun long ago."""
    queue.write(job_id, started_at=PAST)
    return job_id


@contextmanager
def held(queue: Queue, *ids: int) -> Iterator[int | None]:
    """Hold rows as somebody's transaction does, or, with one writer at a time, the right to write; yield its session."""
    names = {"postgres": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
    with queue.transaction() as connection:
        marks = ", ".join(f":id{number}" for number in range(len(ids)))
        values = {f"id{number}": job_id for number, job_id in enumerate(ids)}
        if queue.db.locks_rows:
            connection.answer(Fetch(f"SELECT id FROM dibs_jobs WHERE id IN ({marks}) FOR UPDATE", values))
        asking = names.get(queue.db.kind)
        yield connection.answer(Fetch(asking, {}))[0][0] if asking else None


Situation = Callable[[Queue], AbstractContextManager[object] | None]


def _locked(queue: Queue) -> AbstractContextManager[object]:
    register(queue)
    return held(queue, add(queue), add(queue, priority=3))


def _leased(queue: Queue) -> None:
    register(queue)
    rested(queue, queue.running(queue=Q, task=T).id)


def _expired(queue: Queue) -> None:
    register(queue, age=3600.0)
    queue.lapse(rested(queue, queue.running(queue=Q, task=T).id))


def _retrying(queue: Queue) -> None:
    register(queue)
    claim = queue.running(queue=Q, task=T)
    queue.settle(verdict(claim, State.READY, delay=3600.0, attempts=1, error="no"))
    rested(queue, claim.id)


def _failed(queue: Queue) -> None:
    register(queue)
    rested(queue, queue.job_in(State.FAILED, queue=Q, task=T))


def _paused(queue: Queue) -> None:
    add(queue)
    queue.app.pause(Q, by="eve@night")


def _working(queue: Queue) -> None:
    register(queue)
    queue.running(queue=Q, task=T)


def _unknown(queue: Queue) -> None:
    register(queue, tasks=["other"])
    add(queue)


def _scheduled(queue: Queue) -> None:
    register(queue)
    add(queue, delay=3600.0)


#: Situation → what stages it, what the figures say, and words of the answer and of what to do next.
SITUATIONS: dict[Reason, tuple[Situation, dict[str, object], tuple[str, ...]]] = {
    Reason.PAUSED: (_paused, {"paused_by": "eve@night", "due": 1}, ("eve@night", f"dibs resume {Q}")),
    Reason.WORKING: (_working, {"running": 1}, ("worked on",)),
    Reason.UNSERVED: (
        lambda queue: (add(queue), None)[1],
        {"serving": [], "due": 1},
        ("no worker", f"dibs worker APP -q {Q}"),
    ),
    Reason.UNKNOWN_TASK: (_unknown, {"unknown_tasks": [T], "serving": ["one"]}, ("tasks that no worker", f": {T}")),
    Reason.LOCKED: (
        _locked,
        {"locked": 2, "due": 2},
        (f"of 2 jobs of {Q} that may run now 2 are locked", "end that transaction"),
    ),
    Reason.EXPIRED: (_expired, {"expired": 1, "running": 0}, ("2001-01-01", "no upkeep is running", "start a worker")),
    Reason.LEASED: (_leased, {"running": 1, "owners": ["worker one"]}, ("leases until 20", "worker one", "dibs jobs")),
    Reason.RETRYING: (_retrying, {"retrying": 1, "scheduled": 0}, ("tried again, the next at 20",)),
    Reason.SCHEDULED: (_scheduled, {"scheduled": 1, "retrying": 0}, ("not due yet, the next at 20",)),
    Reason.FAILED: (_failed, {"failed": 1}, ("all that ended failed", f"dibs failed -q {Q}")),
    Reason.EMPTY: (register, {"due": 0, "workers": 1}, (f"{Q} is empty", "does the producer commit")),
}


@pytest.mark.parametrize("reason", SITUATIONS, ids=str)
def test_each_situation_has_its_name(queue: Queue, reason: Reason) -> None:
    """What is staged is what is answered, with the figures behind it, in words, and with the next step."""
    stage, figures, words = SITUATIONS[reason]
    with stage(queue) or nullcontext() as session, promptly(15 if reason is Reason.LOCKED else 8):
        why = queue.app.why(Q)
    said = " ".join([why.answer, *why.next])
    assert why.reason is reason, why
    assert {name: getattr(why.detail, name) for name in figures} == figures
    assert [word for word in words if word not in said] == [], said
    if reason is Reason.LOCKED:
        (holder,) = why.detail.held_by
        assert holder.session == (session or os.getpid())
        assert holder.rows == (2 if session else None)
        assert str(holder.session) in why.answer
        assert f"dibs locks {Q} --kill {holder.session}" in said


def test_upkeep_that_runs_is_told_from_one_that_does_not(queue: Queue) -> None:
    """While somebody looks for leases that are over, one that is just over is nothing to be done about."""
    _expired(queue)
    queue.execute("UPDATE dibs_chores SET next_at = :soon", soon=FUTURE)
    why = queue.app.why(Q)
    assert (why.reason, why.detail.upkeep_late) == (Reason.EXPIRED, None)
    assert "takes them back" in why.answer
    queue.execute("DELETE FROM dibs_workers")
    assert queue.app.why(Q).also == [Reason.EXPIRED]


@pytest.fixture(params=["near by", "in another database"])
def other(request: pytest.FixtureRequest, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """Another queue on the same server: in another schema where there are several, else under a prefix; or in another
    database."""
    if request.param != "near by":
        if queue.db.kind == "sqlite":
            pytest.skip("there is no server that would know of another file")
        monkeypatch.setattr(elsewhere, "MOST_DATABASES", 100)  # other tests have theirs on this server
        monkeypatch.setattr(elsewhere, "MOST_PLACES", 500)
        monkeypatch.setattr(elsewhere, "LONGEST", 20.0)
        with new_database(queue.db.name) as url:
            there = Queue(Database(queue.db.name, url))
            there.app.migrate()
            yield there
            there.close()
            there.db.close()
        return
    with near_by(queue) as there:
        yield there


@contextmanager
def near_by(queue: Queue) -> Iterator[Queue]:
    """Another queue's tables in the same database."""
    there = Queue(queue.db)
    where = {"schema": "other"} if queue.db.kind == "postgres" else {"prefix": "other_"}
    there.app = Dibs(queue.db.url, schema=where.get("schema"), prefix=where.get("prefix", ""))
    there.dialect, there.store = there.app.dialect, there.app.store
    there.app.migrate()
    yield there
    clear(there)
    there.close()


def clear(queue: Queue) -> None:
    for table in ("dibs_jobs", "dibs_workers"):
        execute(queue, f"DELETE FROM {table}")


def execute(queue: Queue, sql: str, **values: Any) -> None:
    """Change something behind dibs' back, wherever that queue's tables are."""
    queue.execute(queue.dialect.qualify(sql), **values)


def test_producer_and_worker_in_different_places(queue: Queue, other: Queue) -> None:
    """It is seen from the place of the jobs, of the workers, and from one that has neither; and two queues of one name that
    have nothing to do with each other are not taken for halves of one."""
    assert queue.app.why(Q).reason is Reason.UNSERVED

    def reasons() -> tuple[Reason, Reason]:
        return queue.app.why(Q).reason, other.app.why(Q).reason

    job_id = add(queue)
    register(other)
    assert reasons() == (Reason.MISDIRECTED, Reason.MISDIRECTED)
    seen = queue.app.why(Q)
    (found,) = seen.detail.elsewhere
    assert (found.schema, found.prefix, found.waiting, found.workers) == (
        other.dialect.schema,
        other.dialect.prefix,
        0,
        1,
    )
    database = other.app.url.database
    assert found.database == (None if database == queue.app.url.database else database)
    assert (found.database or "other") in seen.answer
    execute(other, "UPDATE dibs_workers SET tasks = '[\"other\"]'")
    assert reasons() == (Reason.UNSERVED, Reason.EMPTY)
    execute(other, f"UPDATE dibs_workers SET tasks = '[\"{T}\"]'")
    other.job_in(State.DONE, queue=Q, task=T)  # it has a producer of its own: our workers are down
    execute(other, "UPDATE dibs_jobs SET started_at = :past", past=PAST)
    assert reasons() == (Reason.UNSERVED, Reason.EMPTY)
    execute(other, "DELETE FROM dibs_jobs")
    register(queue)
    queue.cancel(job_id)
    assert reasons() == (Reason.EMPTY, Reason.EMPTY)
    execute(other, "DELETE FROM dibs_workers")
    execute(queue, "DELETE FROM dibs_workers")
    add(queue)
    assert reasons() == (Reason.UNSERVED, Reason.MISDIRECTED)  # who asks there is in the wrong place


def test_server_that_takes_no_writes(db: Database) -> None:
    """It is an answer, and no error: the connection leads to a replica, or to what looks like one."""
    if db.kind != "postgres":
        pytest.skip("elsewhere the setting is the whole server's")
    name = db.fetch("SELECT current_database()")[0][0]
    db.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    app = db.app()
    try:
        why = app.why(Q)
        assert (why.reason, why.also) == (Reason.MISDIRECTED, [])
        assert "primary" in why.answer + why.next[0]
    finally:
        db.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        app.close()


def test_table_that_is_locked_as_a_whole(locking: Queue) -> None:
    """A LOCK TABLE that nobody has ended is named, and not waited for again and again; a worker that it keeps from starting is
    not missed."""
    postgres = locking.db.kind == "postgres"
    with locking.transaction() as connection:
        lock = "LOCK TABLE dibs_jobs IN ACCESS EXCLUSIVE MODE" if postgres else "LOCK TABLES dibs_jobs WRITE"
        connection.answer(Execute(lock, {}))
        with promptly(10):
            why = locking.app.why(Q)
        assert (why.reason, why.also, why.detail.serving) == (Reason.LOCKED, [], None)
        if locking.db.name.startswith(
            "mariadb"
        ):  # it does not tell whose it is, and `dibs locks` says what makes it tell
            assert "by whom, this user may not see or the database can't tell" in why.answer
        else:
            assert [holder.session for holder in why.detail.held_by] == [connection.session]


def test_a_lock_that_keeps_workers_from_the_register(queue: Queue) -> None:
    """With one writer at a time nobody can say that he is alive while a transaction is left open: then it is not said that
    nobody serves the queue, nor that it is empty."""
    if queue.db.locks_rows:
        pytest.skip("rows are locked one by one here")
    with held(queue):
        assert (queue.app.why(Q).reason, queue.app.why(Q).also) == (Reason.LOCKED, [])
    job_id = add(queue)
    with held(queue, job_id):
        why = queue.app.why(Q)
        assert (why.reason, why.also, why.detail.workers) == (Reason.LOCKED, [], None)
    assert queue.app.why(Q).reason is Reason.UNSERVED


def test_command(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """In words with the figures and the next step; as JSON with the reason, the figures and what else holds."""
    _paused(queue)
    command = Command(capsys)
    ended = command("why", Q, "--url", queue.db.url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0].startswith(f"paused: {Q} is paused since")
    assert ended.out.splitlines()[1] == "also: unserved"
    assert f"next: dibs resume {Q}" in ended.out
    found = command("why", Q, "--json", "--url", queue.db.url).json
    assert (found["reason"], found["also"], found["detail"]["due"]) == ("paused", ["unserved"], 1)
    assert command("why", Q * 300, "--url", queue.db.url).code == 2
