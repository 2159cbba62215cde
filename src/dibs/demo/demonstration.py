"""The demo from its first job to its proof: enqueue, start workers, kill one, enqueue all again, wait, look.

Works on a queue of its own, under keys of its own; other jobs in the same database are none of its business.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import click

from dibs.app import Dibs
from dibs.demo import run_log
from dibs.demo.files import Listing, jobs_for
from dibs.demo.folder import Folder
from dibs.demo.kill import Kill, running, try_to_kill
from dibs.demo.looks import look_at, rows_of
from dibs.demo.processes import Processes
from dibs.demo.progress import Progress
from dibs.demo.proof import Evidence, Proof, judge
from dibs.demo.run_log import RunLog
from dibs.demo.tasks import register
from dibs.demo.worker import Orders
from dibs.tasks import Call, SyncTask

#: Seconds that a claim is good if its worker goes quiet: short, so that the killed worker's jobs come back soon.
LEASE = 2.0

#: Jobs that a worker runs at a time.
CONCURRENCY = 4

#: A worker is killed when this share of the files is done, those that all workers start with not counted.
KILL_AT = 0.15

#: How often it is first tried to kill a worker in a job that the database counts as started.
CHARGED_TRIES = 20

#: Each job also waits a moment, so that all of them take at least about this many seconds, however small the files.
LASTS = 3.0
LONGEST_PAUSE = 1.0

#: Jobs enqueued a second time by one transaction: the workers have to write, too.
AGAIN_AT_ONCE = 500

#: When to give up: after this many seconds, and one for so many bytes and so many jobs.
PATIENCE = 90.0
SLOWEST = 1_000_000
SLOWEST_JOBS = 50

#: How often (seconds) it looks how far things are.
LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Course:
    """What the demo did, for the report: no part of the proof."""

    queue: str
    kill: Kill | None
    back_after: float | None  # seconds from the kill until nothing was held by the killed worker any more
    seconds: float
    pause: float


class Demonstration:
    """One run of the demo on one directory and one database. `run()` it once."""

    def __init__(
        self, app: Dibs, url: str, listing: Listing, folder: Folder, *, workers: int, lease: float = LEASE
    ) -> None:
        """`url` is that of `app`, for the workers; `folder` has been taken."""
        token = secrets.token_hex(4)
        self.queue = f"demo-{token}"
        self.jobs = jobs_for(listing, folder.results, token=token)
        self._app = app
        self._url = url
        self._folder = folder
        self._workers = workers
        self._lease = lease
        self._pause = min(LASTS * workers * CONCURRENCY / len(self.jobs), LONGEST_PAUSE)
        self._task: SyncTask[[str, str], dict[str, int]] = register(
            app, queue=self.queue, unfinished=folder.unfinished, runs=RunLog(folder.runs, 0), pause=0.0
        )
        self._progress = Progress(len(self.jobs))
        size = sum(job.source.size for job in self.jobs)
        self._patience = PATIENCE + size / SLOWEST + len(self.jobs) / SLOWEST_JOBS
        self._began = time.monotonic()
        self._back_after: float | None = None

    def run(self) -> tuple[Proof, Course]:
        """Do it all; raise ClickException where it can't be done to the end. No worker is left running."""
        say = self._progress.say
        self._began = time.monotonic()
        self._app.enqueue_many(self._calls())
        say(f"enqueued {len(self.jobs):,} jobs in the queue {self.queue}")
        try:
            with self._processes() as processes:
                pids = ", ".join(str(worker.pid) for worker in processes.workers)
                say(f"started {self._workers} workers (pids {pids})")
                kill = self._kill_one(processes)
                if kill is not None:
                    say(f"killed worker {kill.worker} (pid {kill.pid}) while it held {count(len(kill.held), 'job')}")
                refused = self._enqueue_again(kill)
                say(f"enqueued all of it a second time: {refused:,} duplicates")
                self._wait(processes, kill)
                seconds = time.monotonic() - self._began
        finally:
            self._progress.end()
        say("checking every result against its source")
        return self._prove(kill), Course(self.queue, kill, self._back_after, seconds, self._pause)

    def _calls(self) -> Iterator[Call[dict[str, int]]]:
        for job in self.jobs:
            yield self._task.using(key=job.key).call(job.source.path, job.result)

    @contextmanager
    def _processes(self) -> Iterator[Processes]:
        with Processes() as processes:
            for number in range(1, self._workers + 1):
                orders = Orders(
                    url=self._url,
                    queue=self.queue,
                    number=number,
                    concurrency=CONCURRENCY,
                    lease=self._lease,
                    pause=self._pause,
                    unfinished=str(self._folder.unfinished),
                    runs=str(self._folder.runs),
                )
                processes.start(orders, logs=self._folder.logs)
            yield processes

    def _kill_one(self, processes: Processes) -> Kill | None:
        """Kill a worker as soon as enough is done and one is in the middle of something; None if it came too late."""
        beyond_the_first = max(len(self.jobs) - self._workers * CONCURRENCY, 0)
        tries = 0
        while self._unfinished():
            if self._look(processes) >= int(KILL_AT * beyond_the_first):
                charged = tries < CHARGED_TRIES
                kill = try_to_kill(self._app, self.queue, self._folder, processes, charged=charged)
                tries += 1
                if kill is not None:
                    return kill
            time.sleep(LOOK_EVERY / 5)
        return None

    def _enqueue_again(self, kill: Kill | None) -> int:
        refused = 0
        calls = self._calls()
        while batch := list(islice(calls, AGAIN_AT_ONCE)):
            refused += sum(not job.created for job in self._app.enqueue_many(batch))
            self._unfinished(kill)
        return refused

    def _wait(self, processes: Processes, kill: Kill | None) -> None:
        """Wait until every job has ended."""
        while self._unfinished(kill):
            self._look(processes)
            time.sleep(LOOK_EVERY)

    def _look(self, processes: Processes) -> int:
        """Return how many results there are. Raises ClickException when a worker has died or time is up."""
        processes.check()
        done = self._folder.done()
        self._progress.at(done)
        if time.monotonic() - self._began > self._patience:
            raise click.ClickException(
                f"gave up: {done:,} of {len(self.jobs):,} files were done after {self._patience:.0f} s; "
                f"what the workers said is in {self._folder.logs}"
            )
        return done

    def _unfinished(self, kill: Kill | None = None) -> bool:
        """Is there a job that has not ended? Also note when the killed worker's came back.

        Ready ones are asked for twice: one may come back in between.
        """
        ready = self._ready()
        held = running(self._app, self.queue)
        if kill is not None and self._back_after is None and kill.pid not in held:
            self._back_after = time.time() - kill.at
        return ready or bool(held) or self._ready()

    def _ready(self) -> bool:
        return bool(self._app.store.run(lambda: self._app.dialect.lanes([self.queue])))

    def _prove(self, kill: Kill | None) -> Proof:
        evidence = Evidence(
            jobs=self.jobs,
            looks={job.key: look_at(job) for job in self.jobs},
            rows=rows_of(self._app, self.queue),
            runs=run_log.read(self._folder.runs),
            kill=kill,
            results=frozenset(map(str, self._folder.results.iterdir())),
        )
        return judge(evidence)


def count(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> count(1, "job"), count(2_000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
