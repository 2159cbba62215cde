"""A chaos run: producers and workers on one database, a storm over them, and at the end the books are compared.

    scripts/chaos                                      # five minutes on PostgreSQL, a throwaway server
    scripts/chaos --database mysql --minutes 2 --seed 7
    scripts/chaos --url postgresql://me@localhost/postgres --json

It runs `examples/ledger.py`, whose transfers settle their jobs in their own transactions, and some plain tasks beside it.
Everything that a task does it writes into a book of its own too, a file; what producers were told is in one as well.

A throwaway server is killed and restarted too, and in the middle a replica takes its place (PostgreSQL, MySQL). One that you name with --url is left alone but for sessions that are ended: a database dibs_faults_…
is made there, and dropped at the end. Its user must be allowed to.

What must hold: each committed job ends in one final state, that of its last claim; no success without its effect; a
transfer moves money exactly once; what was rolled back or refused left no job; nothing is left running; a job is taken
only from workers to which something was done; and no process needed a restart that was not killed or told to stop.
The seed makes the order of blows, the same each time. Exit code 1 where something was violated.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

from dibs import Dibs
from faults.blows import Kind, plan
from faults.book import entries
from faults.compare import ROWS, Comparison, Row, compare, row
from faults.crew import PATHS, Crew, Process
from faults.ground import Ground, ground
from faults.orders import ProducerOrders, WorkerOrders
from faults.storm import Storm

#: Seconds in which all jobs have ended once the storm is over and nobody enqueues any more.
DRAINED_WITHIN = 120.0

#: In which all processes have begun, before it.
THERE_WITHIN = 60.0

#: And in which each worker has begun a job of the last batch.
BACK_WITHIN = 30.0


class Settings(msgspec.Struct, frozen=True):
    """What a run is like; `lease` and `grace` in seconds, `rate` requests per second and producer."""

    database: str
    url: str | None = None
    minutes: float = 5.0
    blows: int = 110
    seed: int = 1
    workers: int = 4
    producers: int = 2
    lease: float = 3.0
    grace: float = 2.0
    rate: float = 8.0
    promote: bool = True


class Report(msgspec.Struct):
    """What was done, and what was found."""

    database: str
    seed: int
    seconds: float
    blows: dict[str, int]
    missed: dict[str, int]
    counts: dict[str, int]
    back_at_work: float | None  # seconds from the storm's end until each worker had begun a job, and all had ended
    violations: list[str]


def run(settings: Settings, say: Callable[[str], None], *, keep: Path | None = None) -> Report:
    """Run it; `say` is told each blow. What the processes wrote is left in `keep`, where that is given."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dibs-chaos-") as temporary:
        folder = keep or Path(temporary)
        lines = settings.workers + settings.producers
        with ground(settings.database, settings.url, lines=lines, replica=settings.promote) as place:
            return _run(settings, say, folder, place, began)


def _run(settings: Settings, say: Callable[[str], None], folder: Path, place: Ground, began: float) -> Report:
    book = folder / "book"
    book.mkdir(parents=True, exist_ok=True)
    say(f"on {place.title}: {settings.workers} workers, {settings.producers} producers, seed {settings.seed}")
    Dibs(place.url).migrate()
    open_ledger(place)

    def start_worker(line: int, generation: int) -> Process:
        log = folder / f"worker {line + 1}-{generation + 1}.log"
        return launch_worker(place.through(line), book, log, lease=settings.lease, grace=settings.grace)

    def start_producer(line: int, generation: int) -> Process:
        first = (line + 1) * 100_000_000 + generation * 1_000_000
        orders = ProducerOrders(str(book), settings.seed, first, settings.rate)
        log = folder / f"producer {line + 1}-{generation + 1}.log"
        return _process("producer", orders, place.through(settings.workers + line), log)

    blows = plan(
        settings.seed,
        number=settings.blows,
        minutes=settings.minutes,
        workers=settings.workers,
        producers=settings.producers,
        lease=settings.lease,
        network=place.lines is not None,
        server=place.server is not None,
        promote=place.replica is not None,
    )
    workers = Crew("worker", [partial(start_worker, line) for line in range(settings.workers)])
    producers = Crew("producer", [partial(start_producer, line) for line in range(settings.producers)])
    with workers, producers:
        _all_there(settings, workers, producers, book)
        storm = Storm(place, workers, producers, say)
        storm.rage(blows)
        over = time.monotonic()
        say(f"{over - began:6.1f} s  the storm is over")
        problems = _back_at_work(place, workers, producers, book, over)
        producers.stop()
        problems += drain(place, workers)
        calm = time.monotonic() - over
        workers.stop()
    found = _compare(settings, place, book, workers)
    found.violations[:0] = [*workers.problems, *producers.problems, *problems]
    return Report(
        database=place.title,
        seed=settings.seed,
        seconds=round(time.monotonic() - began, 1),
        blows={str(kind): storm.struck[kind] for kind in Kind if storm.struck[kind]},
        missed={str(kind): storm.missed[kind] for kind in Kind if storm.missed[kind]},
        counts=found.counts,
        back_at_work=round(calm, 1),
        violations=found.violations,
    )


def launch_worker(url: str, book: Path, log: Path, *, lease: float, grace: float, concurrency: int = 4) -> Process:
    """Start a worker process; durations in seconds."""
    return _process("worker", WorkerOrders(str(book), lease, grace, concurrency), url, log)


def _process(module: str, orders: msgspec.Struct, url: str, log: Path) -> Process:
    return Process(f"faults.{module}", msgspec.json.encode(orders).decode(), url, log)


def open_ledger(place: Ground) -> None:
    """Make the ledger's tables. From then on this process has the ledger of this database."""
    _ledger(place).open_ledger()


def _ledger(place: Ground) -> ModuleType:
    if "ledger" not in sys.modules:
        os.environ["DATABASE_URL"] = place.through(0)  # which leads to the replica, once that was promoted
        sys.path[:0] = [path for path in PATHS if path not in sys.path]
    return import_module("ledger")


def _all_there(settings: Settings, workers: Crew, producers: Crew, book: Path) -> None:
    """Wait until all have begun, so that the storm meets them at work; who can't begin is found after it."""
    end = time.monotonic() + THERE_WITHIN
    while time.monotonic() < end:
        began = [entry.event for entry in entries(book) if entry.event in ("worker", "producer")]
        if len(began) >= settings.workers + settings.producers:
            return
        time.sleep(0.1)
        workers.tend()
        producers.tend()


# -- after the storm -----------------------------------------------------------------------------------------


def _back_at_work(place: Ground, workers: Crew, producers: Crew, book: Path, over: float) -> list[str]:
    """Wait until each worker has begun a job since the storm was over, while producers go on; return who has not."""
    while True:
        began = {entry.pid for entry in entries(book) if entry.event == "start" and entry.at > over}
        idle = [process.pid for process in workers.places if process.code is None and process.pid not in began]
        if not idle:
            return []
        if time.monotonic() > over + BACK_WITHIN:
            return [f"worker with pid {pid} has begun no job in {BACK_WITHIN:g} s after the storm" for pid in idle]
        time.sleep(0.2)
        workers.tend()
        producers.tend()


def drain(place: Ground, workers: Crew) -> list[str]:
    """Wait until no job is left to do; return what is wrong if that takes too long."""
    end = time.monotonic() + DRAINED_WITHIN
    while True:
        left = place.rows("SELECT status, count(*) FROM dibs_jobs WHERE status IN ('ready', 'running') GROUP BY status")
        if not left:
            return []
        if time.monotonic() > end:
            return [f"{DRAINED_WITHIN:g} s after the last enqueue there are still jobs to do: {dict(left)}"]
        time.sleep(0.2)
        workers.tend()


def _compare(settings: Settings, place: Ground, book: Path, workers: Crew) -> Comparison:
    harms = {process.pid: process.harms for process in workers.all}
    found = compare(read_rows(place), entries(book), harms=harms, lease=settings.lease)
    found.violations += ledger_problems(place)
    return found


def read_rows(place: Ground) -> list[Row]:
    """Return all jobs of the queue."""
    as_text = "::text" if place.kind == "postgres" else ""
    sql = ROWS.format(payload=f"payload{as_text}", result=f"result{as_text}")
    return [row(values) for values in place.rows(sql)]


def ledger_problems(place: Ground) -> list[str]:
    """Have the ledger compare its own tables."""
    ledger = _ledger(place)
    with ledger.engine.connect() as connection:
        found = [f"ledger: {problem}" for problem in ledger.problems(connection)]
    ledger.engine.dispose()
    return found
