"""`why`: each situation gets its own name, and no state of a queue a wrong one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import pytest

from commands import Command
from conformance.hands import FUTURE, PAST, Queue, promptly, verdict
from databases import Database
from dibs import Dibs, Reason, State, Why
from dibs.dialects import Dialect
from dibs.ops import Execute, Fetch
from dibs.register import Entry, Seen


def register(
    queue: Queue,
    worker: str = "one",
    *,
    queues: Sequence[str] | None = ("q",),
    tasks: Sequence[str] = ("t",),
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
    return held(queue, queue.add(), queue.add(priority=3))


def _leased(queue: Queue) -> None:
    register(queue)
    rested(queue, queue.running().id)


def _expired(queue: Queue) -> None:
    register(queue, age=3600.0)
    queue.lapse(rested(queue, queue.running().id))


def _retrying(queue: Queue) -> None:
    register(queue)
    claim = queue.running()
    queue.settle(verdict(claim, State.READY, delay=3600.0, attempts=1, error="no"))
    rested(queue, claim.id)


def _failed(queue: Queue) -> None:
    register(queue)
    rested(queue, queue.job_in(State.FAILED))


def _paused(queue: Queue) -> None:
    queue.add()
    queue.app.pause("q", by="eve@night")


def _working(queue: Queue) -> None:
    register(queue)
    queue.running()


def _unknown(queue: Queue) -> None:
    register(queue, tasks=["other"])
    queue.add()


def _scheduled(queue: Queue) -> None:
    register(queue)
    queue.add(delay=3600.0)


#: Situation → what stages it, what the figures say, and words of the answer and of what to do next.
SITUATIONS: dict[Reason, tuple[Situation, dict[str, object], tuple[str, ...]]] = {
    Reason.PAUSED: (_paused, {"paused_by": "eve@night", "due": 1}, ("eve@night", "dibs resume q")),
    Reason.WORKING: (_working, {"running": 1}, ("worked on",)),
    Reason.UNSERVED: (
        lambda queue: (queue.add(), None)[1],
        {"serving": [], "due": 1},
        ("no worker", "dibs worker APP -q q"),
    ),
    Reason.UNKNOWN_TASK: (_unknown, {"unknown_tasks": ["t"], "serving": ["one"]}, ("tasks that no worker", ": t")),
    Reason.LOCKED: (
        _locked,
        {"locked": 2, "due": 2},
        ("of 2 jobs of q that may run now 2 are locked", "end that transaction"),
    ),
    Reason.EXPIRED: (_expired, {"expired": 1, "running": 0}, ("2001-01-01", "no upkeep is running", "start a worker")),
    Reason.LEASED: (_leased, {"running": 1, "owners": ["worker one"]}, ("leases until 20", "worker one", "dibs jobs")),
    Reason.RETRYING: (_retrying, {"retrying": 1, "scheduled": 0}, ("tried again, the next at 20",)),
    Reason.SCHEDULED: (_scheduled, {"scheduled": 1, "retrying": 0}, ("not due yet, the next at 20",)),
    Reason.FAILED: (_failed, {"failed": 1}, ("all that ended failed", "dibs failed -q q")),
    Reason.EMPTY: (register, {"due": 0, "workers": 1}, ("q is empty", "does the producer commit")),
}


@pytest.mark.parametrize("reason", SITUATIONS, ids=str)
def test_each_situation_has_its_name(queue: Queue, reason: Reason) -> None:
    """What is staged is what is answered, with the figures behind it, in words, and with the next step."""
    stage, figures, words = SITUATIONS[reason]
    with stage(queue) or nullcontext() as session, promptly(5):
        why = queue.app.why("q")
    said = " ".join([why.answer, *why.next])
    assert why.reason is reason, why
    assert {name: getattr(why.detail, name) for name in figures} == figures
    assert [word for word in words if word not in said] == [], said
    if reason is Reason.LOCKED and session is not None and why.detail.held_by:
        # MariaDB does not tell whose rows they are, only who holds some; its view may be a moment old.
        exactly = why.detail.held_by[0].rows is not None
        assert (session in {each.session for each in why.detail.held_by}) or not exactly
        assert exactly == (queue.db.kind == "postgres" or queue.db.name == "mysql")


def test_upkeep_that_runs_is_told_from_one_that_does_not(queue: Queue) -> None:
    """While somebody looks for leases that are over, one that is just over is nothing to be done about."""
    _expired(queue)
    queue.execute("UPDATE dibs_chores SET next_at = :soon", soon=FUTURE)
    why = queue.app.why("q")
    assert (why.reason, why.detail.upkeep_late) == (Reason.EXPIRED, None)
    assert "takes them back" in why.answer
    queue.execute("DELETE FROM dibs_workers")
    assert queue.app.why("q").also == [Reason.EXPIRED]


@pytest.fixture
def other(queue: Queue) -> Iterator[Dibs]:
    """Another queue's tables in the same database: in another schema where there are several, else under a prefix."""
    app = Dibs(queue.db.url, schema="other") if queue.db.kind == "postgres" else Dibs(queue.db.url, prefix="other_")
    app.migrate()
    yield app
    for table in ("dibs_jobs", "dibs_workers"):
        queue.execute(f"DELETE FROM {place_of(app)}{table}")
    app.close()


def place_of(app: Dibs) -> str:
    """Return what comes before the names of an app's tables."""
    return f"{app.dialect.schema}." if app.dialect.schema == "other" else app.dialect.prefix


def test_producer_and_worker_in_different_places(queue: Queue, other: Dibs) -> None:
    """It is seen from the place of the jobs, of the workers, and from one that has neither; and two queues of one name that
    have nothing to do with each other are not taken for halves of one."""
    ours = queue.app
    assert ours.why("q").reason is Reason.UNSERVED

    def reasons() -> tuple[Reason, Reason]:
        return ours.why("q").reason, other.why("q").reason

    job_id = queue.add()
    register(queue, dialect=other.dialect)
    assert reasons() == (Reason.MISDIRECTED, Reason.MISDIRECTED)
    seen = ours.why("q")
    found = seen.detail.elsewhere[0]
    assert (found.schema, found.prefix) == (other.dialect.schema, other.dialect.prefix)
    assert (found.waiting, found.workers, len(seen.detail.elsewhere)) == (0, 1, 1)
    assert "other" in seen.answer
    place = place_of(other)
    queue.execute(f"UPDATE {place}dibs_workers SET tasks = '[\"other\"]'")
    assert reasons() == (Reason.UNSERVED, Reason.EMPTY)
    register(queue)
    queue.cancel(job_id)
    assert reasons() == (Reason.EMPTY, Reason.EMPTY)
    queue.execute(f"DELETE FROM {place}dibs_workers")
    queue.execute("DELETE FROM dibs_workers")
    queue.add()
    assert reasons() == (Reason.UNSERVED, Reason.MISDIRECTED)  # who asks there is in the wrong place


def test_server_that_takes_no_writes(db: Database) -> None:
    """It is an answer, and no error: the connection leads to a replica, or to what looks like one."""
    if db.kind != "postgres":
        pytest.skip("elsewhere the setting is the whole server's")
    name = db.fetch("SELECT current_database()")[0][0]
    db.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    app = db.app()
    try:
        why = app.why("q")
        assert (why.reason, why.also) == (Reason.MISDIRECTED, [])
        assert "primary" in why.answer + why.next[0]
    finally:
        db.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        app.close()


def test_table_that_is_locked_as_a_whole(locking: Queue) -> None:
    """An ALTER TABLE, or a LOCK TABLES, that nobody has ended is named, and not waited for again and again."""
    if locking.db.kind != "postgres":
        pytest.skip("there it takes ten seconds")
    register(locking)
    with locking.transaction() as connection:
        connection.answer(Execute("LOCK TABLE dibs_jobs IN ACCESS EXCLUSIVE MODE", {}))
        with promptly(12):
            assert locking.app.why("q").reason is Reason.LOCKED


def test_command(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """In words with the figures and the next step; as JSON with the reason, the figures and what else holds."""
    _paused(queue)
    command = Command(capsys)
    ended = command("why", "q", "--url", queue.db.url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0].startswith("paused: q is paused since")
    assert ended.out.splitlines()[1] == "also: unserved"
    assert "next: dibs resume q" in ended.out
    found = command("why", "q", "--json", "--url", queue.db.url).json
    assert (found["reason"], found["also"], found["detail"]["due"]) == ("paused", ["unserved"], 1)
    assert command("why", "q" * 300, "--url", queue.db.url).code == 2


# -- random states -----------------------------------------------------------------------------------

#: What a job is like: status, task, run_at, attempts, lease_until, started_at.
KINDS: dict[str, tuple[str, str, str, int, str | None, str | None]] = {
    "due": ("ready", "t", PAST, 0, None, None),
    "strange": ("ready", "x", PAST, 0, None, None),
    "later": ("ready", "t", FUTURE, 0, None, None),
    "again": ("ready", "x", FUTURE, 2, None, None),
    "runs": ("running", "t", PAST, 1, FUTURE, PAST),
    "began": ("running", "t", PAST, 1, FUTURE, FUTURE),
    "past": ("running", "t", PAST, 1, PAST, PAST),
    "bad": ("failed", "t", PAST, 3, None, PAST),
    "good": ("done", "t", PAST, 1, None, PAST),
}
WORKERS: list[tuple[list[str] | None, list[str]]] = [
    (["q"], ["t"]),
    (["q", "e"], ["t", "x"]),
    (None, ["t"]),
    (["e"], ["t", "x"]),
]


def write(queue: Queue, jobs: list[tuple[str, str, int]]) -> None:
    """Write jobs `(queue, kind, priority)` in one statement."""
    rows: list[str] = []
    values: dict[str, Any] = {}
    for number, (of, kind, priority) in enumerate(jobs):
        status, task, run_at, attempts, until, started = KINDS[kind]
        owner = "somebody" if until else None
        ended = PAST if status in ("done", "failed") else None
        columns = (of, task, priority, status, run_at, attempts, until, owner, started, ended, ended and FUTURE)
        names = [f"v{number}_{place}" for place in range(len(columns))]
        values |= dict(zip(names, columns, strict=True))
        rows.append(f"('{{}}', '{PAST}', {', '.join(':' + name for name in names)})")
    queue.execute(
        "INSERT INTO dibs_jobs (payload, created_at, queue, task, priority, status, run_at, attempts, lease_until, lease_owner, "
        f"started_at, finished_at, expires_at) VALUES {', '.join(rows)}",
        **values,
    )


def expected(
    kinds: list[str], locked: int, workers: list[tuple[list[str] | None, list[str]]], paused: bool
) -> list[str]:
    """Return all reasons that hold for a queue, by the issue's own words and order."""
    has = {kind: kinds.count(kind) for kind in KINDS}
    serving = [tasks for queues, tasks in workers if queues is None or "q" in queues]
    due = has["due"] + has["strange"]
    waits = due + has["later"] + has["again"]
    runs = has["runs"] + has["began"]
    strange = [task for task, kind in (("t", "due"), ("x", "strange")) if has[kind] and serving]
    reasons = []
    if paused:
        reasons.append("paused")
    if has["began"]:
        reasons.append("working")
    if not serving:
        reasons.append("unserved")
    if any(all(task not in known for known in serving) for task in strange):
        reasons.append("unknown_task")
    if locked:
        reasons.append("locked")
    if has["past"]:
        reasons.append("expired")
    if runs:
        reasons.append("leased")
    if due > locked and not reasons:
        reasons.append("working")  # about to be
    if has["again"]:
        reasons.append("retrying")
    if has["later"]:
        reasons.append("scheduled")
    if not waits and not runs and not has["past"]:
        reasons += ["failed"] * (has["bad"] > 0 and not has["good"]) + ["empty"]
    return reasons


def test_no_wrong_reason_in_random_states(queue: Queue) -> None:
    """Fifty states on each database: rows of all kinds in this queue and in another one, some held by somebody, workers that
    serve it, or know the tasks, or do not."""
    for seed in range(50):
        dice = random.Random(f"{queue.db.name} {seed}")
        queue.db.empty()
        kinds = [kind for kind in KINDS if dice.random() < 0.2 for _ in range(dice.randint(1, 2))]
        elsewhere = [kind for kind in KINDS if dice.random() < 0.3]
        workers = dice.sample(WORKERS, dice.randint(0, 2))
        paused, holds = dice.random() < 0.15, dice.random() < 0.5
        jobs = [("q", kind, dice.randint(0, 1)) for kind in kinds] + [("e", kind, 0) for kind in elsewhere]
        if jobs:
            write(queue, jobs)
        for number, (queues, tasks) in enumerate(workers):
            register(queue, f"worker {number}", queues=queues, tasks=tasks)
        if paused:
            queue.app.pause("q")
        due = [
            row[0]
            for row in queue.fetch(
                "SELECT id FROM dibs_jobs WHERE queue = 'q' AND status = 'ready' AND run_at < '2002-01-01'"
            )
        ]
        mine = dice.sample(due, dice.randint(1, len(due))) if holds and due and queue.db.locks_rows else []
        with ExitStack() as stack:
            if mine:
                stack.enter_context(held(queue, *mine))
            why: Why = queue.app.why("q")
        assert [why.reason, *why.also] == expected(kinds, len(mine), workers, paused), (seed, kinds, workers, mine, why)
