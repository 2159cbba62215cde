"""What a task that runs for long is told, and what it tells: in threads, on the loop and in processes alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import wait_for
from databases import Database
from worker.harness import LEASE, Site, holds
from worker.long_program import LongProgram

WHERE = pytest.mark.parametrize("where", ["thread", "loop", "process"])


@pytest.fixture
def site(db: Database, tmp_path: Path) -> Iterator[Site[LongProgram]]:
    with Site(db, tmp_path, LongProgram) as site:
        yield site


def starts(site: Site[LongProgram]) -> list[str]:
    """Return from which step each run began."""
    return [entry.detail for entry in site.diary.entries("start")]


# -- checkpoints -------------------------------------------------------------------------------------


@WHERE
def test_resumed_after_a_kill(site: Site[LongProgram], where: str) -> None:
    """A worker is killed (-9) in the midst of a job: another one goes on from the last checkpoint, all of which had
    been stored when `checkpoint` returned."""
    worker = site.start()
    job = site.program.steps[where].enqueue("go on", total=10, until=6)
    wait_for(lambda: site.diary.entries("waits"), what="the sixth step")
    assert site.job(job.id).checkpoint == {"step": 6}
    worker.kill()
    site.open("go on")
    site.start()
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.result, ended.attempts, ended.crashes) == ("done", [6, 10], 2, 1)
    assert ended.checkpoint == {"step": 10}
    assert starts(site) == ["0", "6"]


@WHERE
def test_a_checkpoint_of_a_lost_claim_is_refused(site: Site[LongProgram], where: str) -> None:
    """A worker that stood still for longer than its lease: what its task has to say is refused, and the checkpoint of
    the run that counts stays."""
    zombie = site.start()
    job = site.program.steps[where].enqueue("go on", total=10, until=6)
    wait_for(lambda: site.diary.entries("waits"), what="the sixth step")
    site.freeze(zombie)
    site.start()
    wait_for(lambda: len(site.diary.entries("waits")) == 2, within=2 * LEASE + 5, what="another worker to run the job")
    zombie.thaw()
    wait_for(lambda: zombie.lines("lease ran out"), within=5, what="the zombie to learn of it")
    site.open("go on")
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.result, ended.claims, ended.checkpoint) == ("done", [6, 10], 2, {"step": 10})


def test_a_person_requeues(site: Site[LongProgram]) -> None:
    """A cancelled job goes on from its checkpoint; one that was done begins anew. Progress is forgotten."""
    site.start()
    job = site.program.steps["process"].enqueue("go on", total=10, until=6)
    wait_for(lambda: site.diary.entries("waits"), what="the sixth step")
    site.app.cancel(job.id)
    assert site.wait_ended(job.id)[0].status == "cancelled"
    site.open("go on")
    site.app.requeue(job.id)
    assert site.wait_ended(job.id)[0].result == [6, 10]
    site.app.requeue(job.id, force=True)
    assert site.wait_ended(job.id)[0].result == [0, 10]


def test_a_checkpoint_that_is_too_big(site: Site[LongProgram]) -> None:
    """It is refused at the call, with what to do instead; nothing is stored."""
    site.start()
    job = site.program.too_big.enqueue()
    assert "70,002 bytes of JSON, the most is 65,536: keep the data elsewhere" in job.join(timeout=20)
    assert site.job(job.id).checkpoint is None


# -- progress ----------------------------------------------------------------------------------------


@WHERE
def test_progress_while_it_runs(site: Site[LongProgram], where: str) -> None:
    """A task that tells it as often as it can: the row has it within about a second, again and again, and the last
    one in the end."""
    site.start()
    job = site.program.loop[where].enqueue("end")
    seen: list[tuple[float, str]] = []

    def four_of_them() -> bool:
        progress = site.job(job.id).progress
        if progress is not None and (not seen or seen[-1][1] != progress["note"]):
            seen.append((time.monotonic(), progress["note"]))
            assert progress.keys() == {"done", "note", "at"}
            assert 0 < progress["done"] <= 0.5
        return len(seen) >= 4

    wait_for(four_of_them, within=20, what="progress")
    between = [later - earlier for (earlier, _), (later, _) in pairwise(seen[1:])]
    assert all(0.8 < seconds < 2.5 for seconds in between), "about once a second"
    turns = [int(note.removeprefix("turn ")) for _, note in seen]
    assert turns == sorted(turns)
    site.open("end")
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.progress["done"], ended.progress["note"]) == ("done", 1.0, "through")


def test_progress_of_a_row_that_is_locked(site: Site[LongProgram]) -> None:
    """A user's transaction holds the row: other jobs do not wait for it, and the progress comes later."""
    if not site.db.locks_rows:
        pytest.skip("one writer at a time: there are no row locks")
    worker = site.start(lease=30)
    job = site.program.loop["thread"].enqueue("end")
    site.wait_started(job.id)
    with site.locked(job.id):
        before = site.job(job.id).progress
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            assert site.program.note.enqueue(number=4).join(timeout=2) == 4
        assert site.job(job.id).progress == before
    wait_for(lambda: site.job(job.id).progress != before, within=3, what="progress")
    site.open("end")
    site.wait_ended(job.id)
    assert not worker.complaints()


# -- being told --------------------------------------------------------------------------------------


@WHERE
def test_released_when_the_worker_stops(site: Site[LongProgram], where: str) -> None:
    """A task that calls `check()` ends as soon as its worker is told to stop: it is released at once, without counting
    an attempt, and the worker need not wait out its grace."""
    worker = site.start(grace=60)
    job = site.program.loop[where].enqueue("end")
    site.wait_started(job.id)
    told = time.monotonic()
    worker.terminate()
    assert worker.wait(10) == 0
    assert time.monotonic() - told < 5
    assert [entry.detail for entry in site.diary.entries("raised")] == ["Release"]
    released = site.job(job.id)
    assert (released.status, released.attempts, released.crashes, released.error) == ("ready", 0, 0, None)
    site.open("end")
    site.start()
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.attempts) == ("done", 1)


@WHERE
def test_cancelled_by_a_person(site: Site[LongProgram], where: str) -> None:
    """A task that calls `check()` ends within about a second of being cancelled."""
    site.start()
    job = site.program.loop[where].enqueue("never")
    site.wait_started(job.id)
    site.app.cancel(job.id)
    (ended,) = site.wait_ended(job.id, within=3)
    assert (ended.status, ended.attempts) == ("cancelled", 1)
    wait_for(lambda: site.diary.entries("raised"), what="its code to have heard of it")
    assert site.diary.entries("raised")[0].detail in ("Cancel", "CancelledError")


@WHERE
def test_told_once(site: Site[LongProgram], where: str) -> None:
    """Code that `check()` has told to end cleans up in peace: it is not told again amid that."""
    site.start()
    job = site.program.tidies[where].enqueue()
    site.wait_started(job.id)
    site.app.cancel(job.id)
    (ended,) = site.wait_ended(job.id, within=5)
    assert (ended.status, ended.attempts) == ("cancelled", 1)
    assert len(site.diary.entries("tidied")) == 1


@WHERE
def test_lost(site: Site[LongProgram], where: str) -> None:
    """A task that calls `check()` ends by itself when the claim is lost; the worker that has it now is not disturbed."""
    zombie = site.start()
    job = site.program.loop[where].enqueue("end")
    site.wait_started(job.id)
    site.freeze(zombie)
    site.start()
    wait_for(lambda: len(site.diary.entries("start")) == 2, within=2 * LEASE + 5, what="another worker to run the job")
    zombie.thaw()
    wait_for(lambda: [entry for entry in site.diary.entries("raised") if entry.claims == 1], within=15, what="its end")
    assert site.diary.entries("raised")[0].detail in ("LostClaim", "CancelledError")
    site.open("end")
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.attempts, ended.claims) == ("done", 2, 2)


@pytest.mark.parametrize("where", ["thread", "process"])
def test_told_and_left_alone(site: Site[LongProgram], where: str) -> None:
    """A task that does not call `check()` sees that the worker stops, and may go on within the grace."""
    worker = site.start(grace=60)
    job = site.program.watches[where].enqueue("end")
    site.wait_started(job.id)
    worker.terminate()
    wait_for(lambda: site.diary.entries("stopping"), within=3, what="the task to see it")
    holds(lambda: worker.alive and not site.diary.entries("raised"), during=0.5)
    site.open("end")
    assert worker.wait(10) == 0
    assert site.job(job.id).status == "done"


# -- out of time -------------------------------------------------------------------------------------


def test_an_async_task_that_swallows_its_cancellation(site: Site[LongProgram]) -> None:
    """Its time is up and it goes on: its attempt has failed, it keeps its slot, and what it gives later is dropped."""
    worker = site.start(concurrency=1)
    job = site.program.astubborn.enqueue("end")
    (failed,) = site.wait_ended(job.id, within=5)
    assert (failed.status, failed.error) == ("failed", "timed out after 0.5 s (attempt 1 of 1)")
    assert len(worker.lines("WARNING", "keeps its slot")) == 1
    waiting = site.program.anote.enqueue(number=3)
    holds(lambda: site.job(waiting.id).status == "ready", during=0.5)
    site.open("end")
    assert waiting.join(timeout=5) == 3
    assert len(worker.lines("WARNING", "came too late and was dropped")) == 1
    assert site.job(job.id).status == "failed"
