"""What a fleet costs its database while there is nothing to do, and while everybody is busy with long jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anomaly.claiming import Claimer, busy
from anomaly.invariants import nothing_lost_nothing_twice
from databases import Database
from dibs.ops import Op
from worker.harness import Site, WorkerProcess, holds
from worker.program import Program

pytestmark = pytest.mark.slow

#: Idle ones, for so many seconds, and busy ones.
IDLE, DURING, BUSY = 20, 60.0, 10

#: Ops that are counted: those that look for work, and the one that says that somebody is alive.
LOOKING = ("claim", "lanes")
COUNTED = (*LOOKING, "renew")

LISTENING = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'
"""


class Counted(Program):
    """Each op that a worker runs is a line in a file of its own: how long (seconds) it took."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        self.folder = folder
        for name in COUNTED:
            self._count(name)

    def _count(self, name: str) -> None:
        op = getattr(self.app.dialect, name)

        def counted(*args: Any, **kwargs: Any) -> Op[Any]:
            began = time.monotonic()
            answer = yield from op(*args, **kwargs)
            self._note(name, time.monotonic() - began)
            return answer

        setattr(self.app.dialect, name, counted)

    def _note(self, name: str, took: float) -> None:
        with (self.folder / f"{name} of {os.getpid()}").open("ab", buffering=0) as file:
            file.write(f"{took}\n".encode())

    def took(self, *names: str) -> list[float]:
        """Return how long each such op took, of all workers."""
        files = [path for name in names for path in self.folder.glob(f"{name} of *")]
        return [float(line) for path in files for line in path.read_text().splitlines()]

    def number(self, *names: str) -> int:
        """Return how many such ops all workers have run."""
        return len(self.took(*names))


@pytest.fixture
def counted(db: Database, tmp_path: Path) -> Iterator[Site[Counted]]:
    with Site(db, tmp_path, Counted) as site:
        yield site


def processor(worker: WorkerProcess) -> float:
    """Return how many seconds of a processor a worker has used."""
    fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(site: Site[Counted], *names: str, during: float) -> float:
    """Return how many of these ops each worker runs in a second."""
    began, before = time.monotonic(), site.program.number(*names)
    holds(lambda: all(worker.alive for worker in site.workers), during=during)
    return (site.program.number(*names) - before) / (time.monotonic() - began) / len(site.workers)


def test_nothing_to_do(counted: Site[Counted]) -> None:
    """Workers with many slots each: one look for work in each poll's time, whatever the number of slots, and next to no
    processor; nor do they look more often when what wakes them is cut off."""
    workers = counted.start_many(IDLE, concurrency=10, lease=60.0)
    holds(lambda: True, during=5.0)
    poll = counted.app.dialect.idle_poll.total_seconds()
    used = [processor(worker) for worker in workers]
    usual = rate(counted, *LOOKING, during=DURING)
    used = [processor(worker) - before for worker, before in zip(workers, used, strict=True)]
    print(f"{counted.db.name}: {usual * poll:.2f} looks a poll, {max(used) / DURING:.2%} of a processor")
    assert usual <= 1.2 / poll
    assert max(used) / DURING < 0.02
    assert counted.program.number("claim") == 0, "there is no lane to claim from"
    if counted.app.dialect.channel is not None:
        counted.db.fetch(LISTENING)
        assert rate(counted, *LOOKING, during=DURING) <= 2 * usual
    assert counted.program.note.enqueue(number=7).join(timeout=10) == 7
    assert counted.logs().count("WARNING") == 0


def test_everybody_busy(counted: Site[Counted]) -> None:
    """Fifty long jobs in each worker: their leases are renewed by one statement each third of a lease, and nobody waits
    for anybody's rows."""
    lease = 6.0
    counted.start_many(BUSY, concurrency=50, lease=lease, queues=["default"])
    calls = (counted.program.anap.call(seconds=20.0) for _ in range(50 * BUSY))
    jobs = [job.id for job in counted.app.enqueue_many(calls)]
    counted.wait_started(*jobs)
    assert rate(counted, "renew", during=3 * lease) <= 1.2 * 3 / lease
    with Claimer(counted.db, queue="measured") as claimer:
        alone = claimer.p95(100)
    longest = max(counted.program.took("renew"))
    print(f"{counted.db.name}: the longest renewal {longest * 1e3:.0f} ms, a claim {alone * 1e3:.1f} ms")
    assert longest <= 0.5 * busy(alone)
    counted.wait_ended(jobs, within=60)
    nothing_lost_nothing_twice(counted, jobs, crashed=False)
    assert counted.diary.starts() == dict.fromkeys(jobs, 1)
