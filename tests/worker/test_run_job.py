"""`dibs run`: one given job, now and here, as a worker runs it; or who has it instead."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from commands import JOBS, Command, write_jobs
from conftest import wait_for
from databases import Database
from dibs.ops import Execute
from dibs.worker.given import GivenWorker
from worker.harness import Site
from worker.program import Program

MORE = """

@app.task(name="loud", max_attempts=3)
def loud(n: int) -> dict[str, int]:
    print("working on", n)
    if n < 0:
        raise ValueError("the oven is cold")
    return {"rows": n}


@app.task(name="apart", runs_in="process")
def apart() -> int:
    print("far away", flush=True)
    return 3


@app.task(name="gone", retention=0)
async def gone() -> None: ...
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an app whose module is in the current directory."""
    monkeypatch.chdir(tmp_path)
    return f"{write_jobs(tmp_path, JOBS + MORE)}:app"


def test_runs_it_or_says_who_has_it(db: Database, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A job of a paused queue that is due tomorrow runs now; done it is not run again; and one whose row a transaction
    holds is not waited for: its holder is named."""
    dibs, app = Command(capsys), db.app()
    of = ("-A", place, "--url", db.url)
    dibs("enqueue", *of, "loud", "--args", '{"n": 3}', "--delay", "24h", "-q", "mail")
    dibs("enqueue", *of, "loud", "--args", '{"n": 4}')
    first, second = sorted(job.id for job in app.jobs())
    app.pause("mail")
    ended = dibs("run", first, *of)
    assert ended.code == 0
    assert ended.out.splitlines() == ["working on 3", f"done {first}, attempt 1 of 3", "{", '  "rows": 3', "}"]
    assert "mail is paused" in ended.err
    job = app.job(first)
    assert (job.status, job.attempts, job.claims, job.result, job.lease) == ("done", 1, 1, {"rows": 3}, 60.0)
    assert app.workers() == []
    again = dibs("run", first, *of)
    assert (again.code, again.out) == (2, "")
    assert f"dibs requeue {first} --force" in again.err
    with Site(db, Path(), Program) as site, site.transaction() as somebody:
        somebody.answer(execute(f"UPDATE dibs_jobs SET retention = 77 WHERE id = {second}"))
        held = dibs("run", second, *of, "--json")
        assert (held.code, held.json["taken"], held.json["reason"]) == (2, False, "locked")
        assert "To end it: " in held.err
        if db.locks_rows:
            (holder,) = held.json["holders"]
            assert (holder["session"], holder["jobs"]) == (somebody.session, [second])
    assert app.job(second).attempts == 0
    assert dibs("run", second, *of).code == 0


def execute(sql: str) -> Execute:
    return Execute(sql, {})


def test_worker_that_has_it_is_named(site: Site[Program], place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a running job its worker and its lease."""
    site.start()
    gate = site.program.gate.enqueue(name="gate")
    site.wait_started(gate.id)
    ended = Command(capsys)("run", gate.id, "-A", place, "--url", site.db.url, "--json")
    owner = site.job(gate.id).lease_owner
    assert (ended.code, ended.json["reason"], ended.json["worker"]) == (2, "running", owner)
    assert f"{owner} has it, lease until" in ended.err
    site.open("gate")
    site.wait_ended(gate.id)


def test_lease_is_renewed(site: Site[Program]) -> None:
    """A job that takes longer than its lease stays whose it is, as with any worker."""
    gate = site.program.gate.using(delay=3600).enqueue(name="gate")
    worker = GivenWorker(site.app, site.job(gate.id), lease=1.0)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        first = wait_for(lambda: site.job(gate.id).lease_until, what="it to begin")
        wait_for(lambda: site.job(gate.id).lease_until != first, what="its lease to be renewed")
    finally:
        site.open("gate")
        thread.join(20)
    assert (worker.taken, worker.ended, site.job(gate.id).status) == (True, "done", "done")
    second = GivenWorker(site.app, site.job(gate.id))
    second.run()
    assert (second.taken, second.locked) == (False, False)


def test_what_did_not_go_well(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A retry and a failure are 1, what can't be had is 2; with --json stdout has one value and nothing that a job printed."""
    dibs = Command(capsys)
    of = ("-A", place, "--url", f"sqlite:///{tmp_path / 'dibs.db'}")
    for task, arguments in (("loud", '{"n": -1}'), ("boom", "{}"), ("apart", "{}"), ("gone", "{}")):
        assert dibs("enqueue", *of, task, "--args", arguments, "--delay", "1h").code == 0
    retried = dibs("run", 1, *of, "--json")
    assert (retried.code, retried.json["ended"], retried.json["status"]) == (1, "retried", "ready")
    assert retried.json["error"].endswith("ValueError: the oven is cold")
    assert "working on -1" in retried.err
    failed = dibs("run", 2, *of)
    assert (failed.code, failed.out) == (1, "failed 2, attempt 1 of 1\n")
    assert "RuntimeError: the oven is cold" in failed.err
    assert dibs("run", 2, *of).code == 2
    assert dibs("run", 3, *of, "--json").json["result"] == 3
    assert dibs("run", 4, *of).out == "done 4, attempt 1 of 12\n"
    missing = dibs("run", 99, *of, "--json")
    assert (missing.code, missing.json["reason"]) == (2, "not_found")
