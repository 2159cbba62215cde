"""Code that goes on when its time is up: nothing of it counts, it is seen, and others keep running."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from conftest import wait_for
from databases import Database
from worker.harness import Site
from worker.program import Program


class Deaf(Program):
    """Tasks of six seconds that may take one: of all kinds, and with all ways not to listen."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        diary = self.diary

        def stubborn() -> None:
            with diary.run():
                end = time.monotonic() + 6
                while time.monotonic() < end:
                    try:
                        time.sleep(0.05)
                    except BaseException as error:
                        diary.write("told", type(error).__name__)

        async def patient() -> None:
            with diary.run():
                await asyncio.sleep(6)

        async def swallows() -> None:
            with diary.run():
                end = time.monotonic() + 6
                while time.monotonic() < end:
                    try:
                        await asyncio.sleep(0.05)
                    except asyncio.CancelledError:
                        diary.write("told", "CancelledError")

        # The usual backoff: the second attempt comes when the first one's code may still run.
        limited: dict[str, Any] = {"timeout": 1.0, "max_attempts": 3}
        self.stubborn = self.app.task(name="stubborn", **limited)(stubborn)
        self.patient = self.app.task(name="patient", **limited)(patient)
        self.swallows = self.app.task(name="swallows", **limited)(swallows)


@pytest.fixture
def deaf(db: Database, tmp_path: Path) -> Iterator[Site[Deaf]]:
    with Site(db, tmp_path, Deaf) as site:
        yield site


@pytest.mark.slow
def test_code_that_ignores_the_end_of_its_time(deaf: Site[Deaf]) -> None:
    """A worker with two slots of each kind: what can be ended frees its slot within a second; what can't is named, keeps
    its slot and gives nothing; others flow all the while; and when it has really ended its slot is back."""
    worker = deaf.start(concurrency=2)
    jobs = {name: getattr(deaf.program, name).enqueue().id for name in ("stubborn", "patient", "swallows")}
    flowing: list[int] = []

    def all_have_ended() -> bool:
        notes = [deaf.program.note.enqueue(number=1), deaf.program.anote.enqueue(number=1)]
        flowing.extend(note.id for note in notes)
        for note in notes:
            note.join(timeout=5)
        return all(job.status == "failed" for job in deaf.jobs(jobs.values()))

    wait_for(all_have_ended, within=60, every=0.2, what="the last attempts to fail")
    for name, job_id in jobs.items():
        (job,) = deaf.jobs([job_id])
        assert (job.status, job.attempts) == ("failed", 3), name
        assert job.error == "timed out after 1 s (attempt 3 of 3)"
    for start, raised in zip(
        deaf.diary.entries("start", job=jobs["patient"]), deaf.diary.entries("raised", job=jobs["patient"]), strict=True
    ):
        assert 1.0 <= raised.at - start.at < 3.0
    for name in ("stubborn", "swallows"):
        wait_for(lambda: len(deaf.diary.entries("end", job=jobs[name])) == 3, what="the code to end")
        assert len(worker.lines("WARNING", f"job {jobs[name]}", "keeps its slot")) == 3
        assert len(worker.lines("WARNING", f"job {jobs[name]}", "too late")) == 3
    assert {entry.detail for entry in deaf.diary.entries("told")} == {"CancelledError"}
    both = [deaf.program.gate.enqueue("both").id, deaf.program.gate.enqueue("both").id]
    deaf.wait_started(*both, within=5)
    deaf.open("both")
    deaf.wait_ended(both)
    nothing_lost_nothing_twice(deaf, [*flowing, *both], crashed=False)
