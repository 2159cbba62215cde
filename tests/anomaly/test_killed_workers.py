"""Workers that are killed: what they had comes back soon, however much else has to, and nothing of it is stuck."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from anomaly.big import from_now, running
from anomaly.invariants import nothing_lost_nothing_twice
from conformance.hands import Queue, new_job
from conftest import wait_for
from databases import NAMES, Database, migrated
from dibs import Dibs
from dibs.worker import upkeep
from dibs.worker.outage import Outage
from worker.harness import LEASE, SOURCES, Site, WorkerProcess
from worker.program import Program

#: What a busy machine may add to a promise of seconds.
BUSY = 2.0


def kill(worker: WorkerProcess) -> float:
    """Kill a worker with all its processes; return when that was."""
    worker.end()
    return time.monotonic()


@pytest.mark.slow
def test_twenty_rounds(site: Site[Program]) -> None:
    """In each round thirty jobs, and one of two workers is killed at a random moment: what it had is started again within
    two leases and a second, once, and all is done."""
    dice, lease = random.Random(10), 2.0
    gone: list[WorkerProcess] = []
    everything: list[int] = []
    living = site.start_many(2, concurrency=10, lease=lease)
    for number in range(20):
        task = [site.program.nap, site.program.anap][number % 2]
        jobs = [job.id for job in site.app.enqueue_many(task.call(seconds=0.5) for _ in range(30))]
        time.sleep(dice.uniform(0.0, 1.0))
        victim = living.pop(dice.randrange(2))
        killed = kill(victim)
        gone.append(victim)
        living += site.start_many(1, concurrency=10, lease=lease)
        site.wait_ended(jobs, within=20)
        for job in jobs:
            starts = site.diary.entries("start", job=job)
            assert len(starts) <= 2
            assert len(starts) == 1 or starts[1].at - killed <= 2 * lease + 1 + BUSY
        everything += jobs
    done = nothing_lost_nothing_twice(site, everything, gone=gone)
    assert {job.status for job in done} == {"done"}
    assert site.diary.overlaps() == []


def test_what_nobody_can_take_back_hides_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """More leases that ran out than upkeep looks at in one go, whose rows somebody's transaction holds: one behind them
    is seen all the same."""
    if not db.locks_rows:
        pytest.skip("one writer at a time: a row that is held holds up everybody")
    monkeypatch.setattr(upkeep, "LOOK_BATCH", 5)
    queue = Queue(db)
    queue.enqueue(*[new_job() for _ in range(11)])
    claims = queue.claim(worker="gone")
    queue.lapse(*[claim.id for claim in claims])
    chore = upkeep.Upkeep(queue.store, Outage(), lease=60.0, woke=lambda: None)
    monkeypatch.setattr(queue.store, "reachable", lambda: 1e9)
    with queue.locked(*[claim.id for claim in claims[:-1]]):
        assert [past.id for past in chore._look_for_past()] == [claims[-1].id]
    assert len(chore._look_for_past()) == 11
    queue.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_behind_twenty_thousand_others(name: str, tmp_path: Path) -> None:
    """The leases of 20,000 jobs of a paused queue are past when a worker is killed: its job comes back within two leases
    and a second as if they were not there."""
    lease = 2.0
    for db in migrated(name, tmp_path):
        with Site(db, tmp_path, Program) as site:
            site.app.pause("paused")
            victim = site.start(concurrency=1, lease=lease)
            running(db, 20_000, until=from_now(db, 1), queue="'paused'", lease="2")
            job = site.program.gate.enqueue("later")
            site.wait_started(job.id)
            assert job.id > 20_000
            survivor = site.start(concurrency=1, lease=lease)
            killed = kill(victim)
            wait_for(lambda: site.diary.starts()[job.id] == 2, what="the job to run again")
            again = site.diary.entries("start", job=job.id)[-1]
            assert again.at - killed <= 2 * lease + 1 + BUSY
            site.open("later")
            site.wait_ended(job.id)
            wait_for(lambda: not site.running(), within=30, what="the others to be taken back")
            assert survivor.alive


def test_a_last_attempt_that_dies(site: Site[Program]) -> None:
    """A worker is killed in a job's last attempt: the job fails with that reason within two leases and a second of another
    one's start, and those behind it run, in order."""
    first = site.program.gate.using(max_attempts=1).enqueue("never")
    others = [site.program.note.enqueue(number=n).id for n in range(4)]
    victim = site.start(concurrency=1, ahead=0)
    site.wait_started(first.id)
    victim.end()
    site.start(concurrency=1, ahead=0)
    site.wait_ended(first.id, within=2 * LEASE + 1)
    site.wait_ended(others)
    jobs = nothing_lost_nothing_twice(site, [first.id, *others], gone=[victim])
    assert [job.status for job in jobs] == ["failed", *["done"] * 4]
    assert (jobs[0].error or "").startswith("its lease ran out in attempt 1 of 1")
    assert [entry.job for entry in site.diary.entries("start")] == [first.id, *others]


WRITES = """
import sys
from dibs import Dibs
app = Dibs(sys.argv[1])
task = app.task(name="note")(lambda text: None)

def calls():
    for number in range(1_000_000):
        if number == 30_000:
            print("amid", flush=True)
            sys.stdin.read()
        yield task.call("x" * 500)

app.enqueue_many(calls())
"""


def test_killed_inside_a_write(tmp_path: Path) -> None:
    """A program is killed inside a large transaction, part of which is on the disk already: the file opens clean, without
    any of it, and is written to at once."""
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    app = Dibs(url)
    task: Any = app.task(name="note")(lambda text: None)
    before = task.enqueue("before").id
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": SOURCES[0]},
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"amid\n"
    assert (tmp_path / "dibs.db-wal").stat().st_size > 1_000_000
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    db = Database("sqlite", url)
    assert db.fetch("PRAGMA integrity_check") == [("ok",)]
    after = task.enqueue("after").id
    assert [job.id for job in app.jobs()] == [after, before]
    db.close()
    app.close()
