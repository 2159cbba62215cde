"""A worker that has run many jobs takes no more than one that has run a few: memory, threads, tasks, sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from databases import Database
from worker.harness import Site
from worker.program import Program

SESSIONS = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()",
}

#: Sessions of a worker, at most: its five parts, and five that its tasks' enqueues may open; and two of the test's.
MOST_SESSIONS = 12


class Many(Program):
    """Tasks that do nothing, of which some raise, and one that tells what its process has."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)

        @self.app.task(name="one", max_attempts=1)
        def one(number: int) -> int:
            if number % 20 == 7:
                raise ValueError(f"number {number}")
            return number

        @self.app.task(name="aone", max_attempts=1)
        async def aone(number: int) -> int:
            await asyncio.sleep(0)
            if number % 20 == 7:
                raise ValueError(f"number {number}")
            return number

        @self.app.task(name="has")
        async def has() -> list[int]:
            return [threading.active_count(), len(asyncio.all_tasks()), psutil.Process().memory_info().rss]

        self.one, self.aone, self.has = one, aone, has


@pytest.fixture
def many(db: Database, tmp_path: Path) -> Iterator[Site[Many]]:
    with Site(db, tmp_path, Many) as site:
        yield site


@pytest.mark.parametrize("number", [800, pytest.param(20_000, marks=pytest.mark.slow)])
def test_many_jobs(many: Site[Many], number: int) -> None:
    """Sync and async ones, some of which raise: threads, async tasks and sessions stay as many as they were, and less than
    a kilobyte of memory stays for each job."""
    if number == 800 and many.db.name != "sqlite":
        pytest.skip("in short on one database")
    program = many.program
    many.start(concurrency=10, lease=30.0)

    def some(first: int, last: int) -> list[int]:
        calls = [(program.aone if n % 2 else program.one).call(number=n // 2) for n in range(first, last)]
        many.wait_ended([job.id for job in many.app.enqueue_many(calls)], within=300)
        result: list[int] = program.has.enqueue().join(timeout=20)
        return result

    threads, tasks, memory = some(0, number // 3)
    for part in (1, 2):
        now = some(part * number // 3, (part + 1) * number // 3)
        assert now[0] <= max(threads, 30), "threads"
        assert now[1] == tasks, "async tasks"
        assert (now[2] - memory) / (part * number / 3) < (1024 if number > 10_000 else 4096), "bytes of memory a job"
        if many.db.kind in SESSIONS:
            assert many.db.fetch(SESSIONS[many.db.kind])[0][0] <= MOST_SESSIONS
    counts = dict(many.db.fetch("SELECT status, count(*) FROM dibs_jobs GROUP BY status"))
    assert counts["done"] + counts["failed"] == number + 3
    assert counts["failed"] == pytest.approx(number / 20, rel=0.1)
