"""The workers' register: who works, as each says of itself; and that no job depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Command
from conftest import wait_for
from databases import Database
from dibs import Dibs, WorkerRecord
from dibs.ops import Execute, execute
from dibs.register import MOST_NAMES, Entry, Seen, SlotsInUse
from dibs.worker import register
from dibs.worker.runs import Holdings
from dibs.worker.tally import Tally
from worker.harness import Site, WorkerProcess
from worker.program import Program

PAST = "2020-01-01 00:00:00"


def records(site: Site[Program], worker: WorkerProcess) -> list[WorkerRecord]:
    """Return what the register says of a worker process: one record, or none."""
    return [each for each in site.app.workers() if each.pid == worker.pid]


def registered(site: Site[Program], worker: WorkerProcess, within: float = 20.0) -> WorkerRecord:
    """Wait until the register has a worker process, and return what it says."""
    (found,) = wait_for(lambda: records(site, worker), within=within, what="it to register")
    return found


def test_worker_shows_itself(site: Site[Program]) -> None:
    """Who it is, what it serves and knows, how busy it is, what it held last and what went wrong; when it has ended its
    row is gone."""
    worker = site.start(queues=["default", "mail"], concurrency=3)
    gate = site.program.gate.enqueue(name="gate")
    bad = site.program.nap.using(max_attempts=1).enqueue(seconds=-1)
    site.program.anote.using(queue="mail").enqueue()

    def all_seen() -> list[WorkerRecord]:
        return [
            seen
            for seen in records(site, worker)
            if seen.last_error and seen.claims == 1 and seen.detail and seen.detail["ended"].get("done")
        ]

    (seen,) = wait_for(all_seen, what="the worker to show all of that")
    assert (seen.state, seen.queues, seen.claims) == ("working", ["default", "mail"], 1)
    assert {"note", "anote", "gate"} <= set(seen.tasks)
    assert (seen.serves("mail"), seen.serves("other"), seen.knows("note"), seen.knows("mystery")) == (
        True,
        False,
        True,
        False,
    )
    assert seen.slots == [
        SlotsInUse(kind="thread", size=3, busy=1, stuck=0),
        SlotsInUse(kind="loop", size=3, busy=0, stuck=0),
    ]
    assert seen.worker == site.job(gate.id).lease_owner
    assert (
        bool((seen.detail or {})["sessions"]) is site.db.locks_rows
    )  # by which the server knows it, where there is one
    assert seen.last_error is not None
    assert seen.last_error.startswith(f"job {bad.id}: nap: ValueError")
    assert seen.failed_rate > 0
    assert seen.claimed_queue in ("default", "mail")
    assert seen.claimed_at is not None
    assert seen.last_error_at is not None
    assert seen.started_at <= seen.claimed_at <= seen.seen_at
    assert seen.started_at <= seen.last_error_at <= seen.seen_at
    worker.terminate()
    wait_for(lambda: [each.state for each in records(site, worker)] == ["stopping"], what="it to say that it stops")
    site.open("gate")
    assert worker.wait() == 0
    assert site.app.workers() == []
    assert worker.complaints() == [line for line in worker.complaints() if "nap failed" in line]


def test_worker_that_was_killed(site: Site[Program], capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown as quiet for some minutes, and then another one removes its row."""
    killed = site.start()
    registered(site, killed)
    killed.kill()
    site.db.execute("UPDATE dibs_workers SET seen_at = :past WHERE pid = :pid", past=PAST, pid=killed.pid)
    site.db.execute("UPDATE dibs_chores SET next_at = :past WHERE chore = 'prune'", past=PAST)
    assert registered(site, killed).state == "quiet"
    ended = Command(capsys)("status", "--url", site.db.url, "--json")
    assert ended.json["workers"] == {"quiet": 1}
    site.start()
    wait_for(lambda: not records(site, killed), what="its row to be removed")
    wait_for(lambda: len(site.app.workers()) == 1, what="the other one's")


def test_row_that_somebody_holds(site: Site[Program]) -> None:
    """A transaction of a user's that locks a worker's row, or deletes it, holds up no job and no renewing of a lease; when
    it is over the worker is registered again, as the one that began when it did."""
    if not site.db.locks_rows:
        pytest.skip("there a transaction that writes holds up everything")
    worker = site.start()
    first = registered(site, worker)
    connection = site.db.connect()
    connection.begin()
    try:
        connection.answer(Execute("DELETE FROM dibs_workers", {}))
        gate = site.program.gate.enqueue(name="gate")
        site.wait_started(gate.id)
        before = site.job(gate.id).lease_until
        wait_for(lambda: site.job(gate.id).lease_until != before, what="its lease to be renewed")
        site.open("gate")
        site.wait_ended(gate.id)
        connection.commit()
    finally:
        connection.close()
    again = registered(site, worker, within=30)
    assert again.worker == first.worker
    assert abs((again.started_at - first.started_at).total_seconds()) < 2
    assert worker.complaints() == []


def test_long_lists_have_a_bound(db: Database) -> None:
    """Of thousands of queues and tasks the first thousand names are kept, and the others are counted."""
    app = db.app()
    names = tuple(f"{number:04}-{'é' * 5}" for number in range(3_000))
    long = tuple(f"{number:03}{'ü' * 190}" for number in range(300))
    seen = Seen(
        state="working",
        slots=[],
        claims=0,
        done_rate=0.5,
        failed_rate=0,
        last_error="naïve",
        last_error_at=None,
        claimed_queue=None,
        claimed_at=None,
        polls={"mail": {"empty": 3}},
        detail=None,
    )
    for worker, queues, tasks in (("w:1", None, names), ("w:2", long, ("t",))):
        entry = Entry(worker=worker, host="h", pid=2**22, version="1", queues=queues, tasks=tasks)
        for _ in range(2):  # written twice, it is there once
            app.store.run(lambda: app.dialect.enter_worker(entry, seen, age=90.0))
    many, few = app.workers()
    assert (many.tasks, many.tasks_left_out) == (list(names[:MOST_NAMES]), 2_000)
    assert (many.knows(names[0]), many.knows(names[-1])) == (True, None)
    assert (few.queues or [])[:1] == [long[0]]
    assert len(few.queues or []) + few.queues_left_out == 300
    assert few.queues_left_out > 100
    assert (few.serves("other"), few.polls, few.last_error) == (None, {"mail": {"empty": 3}}, "naïve")
    assert 89 < (few.seen_at - few.started_at).total_seconds() < 95


def test_idle_worker_writes_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that says nothing new is written every ten seconds, one that does at the next look."""
    app = Dibs(f"sqlite:///{tmp_path / 'dibs.db'}")
    app.task(name="t")(lambda: None)
    worker = app.worker()
    now = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    tally = Tally(app.dialect.moment)
    view = register.View(state=lambda: "working", slots=[], holdings=Holdings(), tally=tally, detail={})
    registration = register.Registration(app.store, register.entry_of(worker.name, None, ["t"]), view)
    written = []
    for step in range(16):  # half a minute
        app.store.run(lambda: execute("UPDATE dibs_workers SET seen_at = :past", past=PAST))
        registration.beat()
        written.append(any(each.seen_at.year > 2020 for each in app.workers()))
        now += register.LOOK_EVERY
        if step == 7:
            tally.ends["default", "t", "done"] = 1
    assert [step for step, wrote in enumerate(written) if wrote] == [0, 5, 8, 13]
    app.close()


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dibs workers` shows a line for each, and what went wrong last; with --json all there is."""
    dibs = Command(capsys)
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    app = Dibs(url)

    @app.task(name="boom", max_attempts=1)
    def boom() -> None:
        raise RuntimeError("the oven is cold")

    ended = dibs("workers", "--url", url)
    assert (ended.code, ended.out) == (0, "")
    assert "no workers in" in ended.err
    with app.worker(queues=[f"queue-{number}" for number in range(200)] + ["default"]) as worker:
        boom.enqueue()
        wait_for(lambda: any(each.last_error for each in app.workers()), what="the error to be shown")
        header, line, error = dibs("workers", "--url", url).out.splitlines()
        assert header.split()[:5] == ["WORKER", "STATE", "SEEN", "VERSION", "QUEUES"]
        assert line.split()[:2] == [worker.name, "working"]
        assert "queue-0, queue-1, queue-2, queue-3 and 197 more" in line
        assert "0/10 thread" in line
        assert error.startswith(f"{worker.name}: ")
        assert error.endswith("boom: RuntimeError: the oven is cold")
        (shown,) = dibs("workers", "--url", url, "--json").json
        assert (shown["worker"], shown["tasks"], len(shown["queues"])) == (worker.name, ["boom"], 201)
        assert "1 worker: 1 working" in dibs("status", "--url", url).out
    app.close()
