"""`dibs doctor` on a queue that works: it has nothing to say, and says so in words, as data and by its exit code."""

from __future__ import annotations

import msgspec
import pytest

from commands import Command
from conftest import wait_for
from dibs.findings import Report
from worker.harness import Site
from worker.program import Program


def test_healthy_queue(site: Site[Program], capsys: pytest.CaptureFixture[str]) -> None:
    """With a worker at work, jobs that were done, that run and that wait, on a server as the tests have it: no warning."""
    worker = site.start()
    done = [site.program.note.enqueue(number) for number in range(25)]
    wait_for(lambda: all(site.job(job.id).status == "done" for job in done), what="the jobs")
    site.program.gate.enqueue(name="gate")
    site.program.note.using(delay=3600).enqueue()
    wait_for(lambda: site.app.workers(), what="it to register")
    ended = Command(capsys)("doctor", "--url", site.db.url)
    assert (ended.code, ended.err) == (0, ""), ended.out
    assert "WARN" not in ended.out
    data = Command(capsys)("doctor", "--url", site.db.url, "--json")
    assert data.code == 0
    report = msgspec.convert(data.json, Report)
    assert [each.check for each in report.checks] == [line[9:24].strip() for line in ended.out.splitlines()]
    assert report.worst == "OK"
    assert {each.level.value for each in site.app.doctor().checks} <= {"OK", "SKIPPED"}
    site.open("gate")
    worker.terminate()
    assert worker.wait() == 0


def test_exit_codes(site: Site[Program], capsys: pytest.CaptureFixture[str]) -> None:
    """A failure leaves with 1, a warning alone with 5, and each is named on stderr; the fix is there to paste."""
    if site.db.locks_rows:
        pytest.skip("does not depend on the database")
    past = "2020-01-01 00:00:00.000"
    site.db.execute(
        "INSERT INTO dibs_jobs (queue, task, payload, run_at, created_at, status, expires_at) "
        "VALUES ('q', 't', '{}', :past, :past, 'done', :past)",
        past=past,
    )
    ended = Command(capsys)("doctor", "--url", site.db.url)
    assert (ended.code, ended.err) == (5, "dibs: 1 of 20 checks warned: retention\n")
    assert "fix: dibs prune\n" in ended.out
    site.db.execute("UPDATE dibs_jobs SET status = 'ready', expires_at = NULL")
    ended = Command(capsys)("doctor", "--url", site.db.url, "--json")
    assert (ended.code, ended.json["worst"]) == (1, "FAIL")
    assert "unserved queues" in ended.err
