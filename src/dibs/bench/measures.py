"""The measures of `dibs bench`: each one a question, answered with real jobs in real processes."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import click

from dibs import ops
from dibs.bench.baseline import Baseline
from dibs.bench.crew import Crew
from dibs.bench.figures import Drained, Enqueued, Idle, Latency, times
from dibs.bench.limits import Limit, Seen, judge
from dibs.bench.machine import Stopwatch
from dibs.bench.meter import MeteredDibs, Reading
from dibs.bench.progress import progress
from dibs.bench.worker import QUEUE, Orders, Said, register
from dibs.bindings.binding import OwnConnection
from dibs.dialects.bench import measuring
from dibs.dialects.bench.measuring import BULK
from dibs.scratch import Place
from dibs.tasks import Call

T = TypeVar("T")

#: One by one only this share of the jobs is enqueued, and for at most so many seconds.
ONE_IN = 10
LONGEST = 20.0

#: Claims of raw SQL where the workers' own batch is not known.
USUAL_BATCH = 100

#: When no job has ended for so many seconds, something is wrong.
STUCK = 60.0

#: The pause (seconds) before each job whose pick-up is timed: by then its worker is idle again, and anywhere in its
#: wait.
SHORTEST_PAUSE = 0.3
LONGEST_PAUSE = 0.7

#: How long (seconds) a worker must have been idle before its idling is measured.
TO_CALM_DOWN = 3.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured, and how much of it."""

    jobs: int
    workers: int
    concurrency: int | None
    is_async: bool
    samples: int
    idle_seconds: float


class Bench:
    """Measures one database, in a place of its own there."""

    def __init__(self, place: Place, baseline: Baseline, asked: Asked) -> None:
        self._place = place
        self._baseline = baseline
        self._asked = asked
        self._app = MeteredDibs(place)
        self._task = register(self._app, is_async=asked.is_async, ran=lambda number: None)
        self._raw = measuring(self._app.dialect)

    def close(self) -> None:
        self._app.close()

    # -- enqueue -------------------------------------------------------------------------------------

    def enqueue(self) -> Enqueued:
        """Enqueue one job after the other, as a program does that has one to enqueue."""
        number = max(self._asked.jobs // ONE_IN, 1)
        self._empty()
        self._task.enqueue(number=-1)  # connects
        with progress("enqueue one by one", number) as step:
            before, watch = self._app.reading(), Stopwatch()
            took = list(self._for_a_while(number, lambda n: self._task.enqueue(number=n), step))
            seen = self._seen(watch, [self._app.reading().since(before)])
        self._expect(len(took) + 1)
        with progress("the same in raw SQL", len(took)) as step, self._connection() as connection:
            self._empty()
            raw = _timed(
                lambda: list(
                    self._for_a_while(
                        len(took), lambda n: ops.run(self._raw.raw_enqueue(_payload(n)), connection), step
                    )
                )
            )
        return self._enqueued(number, len(took), seen, raw, self._count(), took)

    def _for_a_while(self, number: int, call: Callable[[int], Any], step: Callable[[int], None]) -> Iterator[float]:
        end = time.monotonic() + LONGEST
        for each in range(number):
            if time.monotonic() > end:
                return
            start = time.perf_counter()
            call(each)
            yield time.perf_counter() - start
            step(1)

    def bulk(self) -> Enqueued:
        """Enqueue all jobs with one call."""
        number = self._asked.jobs
        self._empty()
        self._task.enqueue(number=-1)  # connects
        with progress("enqueue in bulk", number) as step:
            before, watch = self._app.reading(), Stopwatch()
            self._app.enqueue_many(self._calls(number, step))
            seen = self._seen(watch, [self._app.reading().since(before)])
        self._expect(number + 1)
        with progress("the same in raw SQL", number) as step, self._connection() as connection:
            self._empty()
            raw = _timed(lambda: self._insert(connection, number, step))
        return self._enqueued(number, number, seen, raw, self._count(), None)

    def _insert(self, connection: OwnConnection, number: int, step: Callable[[int], None]) -> None:
        """Write jobs with multi-row INSERTs in one transaction."""
        payloads = map(_payload, range(number))
        connection.begin()
        while batch := list(islice(payloads, BULK)):
            ops.run(self._raw.raw_bulk(batch), connection)
            step(len(batch))
        connection.commit()

    def _enqueued(
        self, asked: int, number: int, seen: Seen, raw: float, raw_number: int, took: list[float] | None
    ) -> Enqueued:
        rate, raw_rate = number / seen.seconds, raw_number / raw
        return Enqueued(
            asked=asked,
            jobs=number,
            seconds=round(seen.seconds, 3),
            per_second=round(rate, 1),
            raw_per_second=round(raw_rate, 1),
            ratio=round(rate / raw_rate, 3),
            times=None if took is None else times(took),
            cpu_share=_share(seen.cpus[0] / seen.seconds),
            limit=judge(seen),
        )

    # -- drain ---------------------------------------------------------------------------------------

    def drain(self) -> Drained:
        """Let worker processes empty a queue of jobs that do nothing. Raises ClickException when one dies."""
        asked = self._asked
        self._fill()
        orders = Orders(self._place, asked.concurrency, asked.is_async, burst=True)
        with Crew("worker", [orders] * asked.workers, Said) as crew:
            crew.hear_all()
            with progress(
                f"drain, {asked.workers} {'process' if asked.workers == 1 else 'processes'}", asked.jobs
            ) as step:
                watch = Stopwatch()
                crew.tell_all("go")
                ended = self._watch(crew, step)
                readings = [said.reading for said in ended.values() if said.reading is not None]
                seen = self._seen(watch, readings)
        counts = self._app.counts().get(QUEUE, {})
        done, ran = counts.get("done", 0), sum(said.ran for said in ended.values())
        claims = sum(reading.claims for reading in readings)
        batch = asked.jobs / claims if claims else USUAL_BATCH
        rate, raw = asked.jobs / seen.seconds, self._drain_raw(max(round(batch), 1))
        return Drained(
            jobs=asked.jobs,
            done=done,
            ran=ran,
            lost=asked.jobs - done,
            doubled=max(ran - done, 0),
            workers=asked.workers,
            tasks="async" if asked.is_async else "sync",
            seconds=round(seen.seconds, 3),
            per_second=round(rate, 1),
            batch=round(batch, 1),
            raw_per_second=round(raw, 1),
            ratio=round(rate / raw, 3),
            statements_per_job=round(seen.statements / asked.jobs, 4),
            commits_per_job=round(seen.commits / asked.jobs, 4),
            cpu_shares=[_share(cpu / seen.seconds) for cpu in seen.cpus],
            limit=judge(seen),
        )

    def _watch(self, crew: Crew[Said], step: Callable[[int], None]) -> dict[int, Said]:
        """Wait until all workers have ended; return the last word of each."""
        ran = dict.fromkeys(range(len(crew)), 0)
        ended: dict[int, Said] = {}
        moved = time.monotonic()
        while len(ended) < len(crew):
            heard = crew.hear(1.0)
            if heard is not None and (more := heard[1].ran - ran[heard[0]]) > 0:
                ran[heard[0]] = heard[1].ran
                step(more)
                moved = time.monotonic()
            if heard is not None and heard[1].what == "done":
                ended[heard[0]] = heard[1]
            if time.monotonic() - moved > STUCK:
                raise click.ClickException(
                    f"no job has ended for {STUCK:.0f} s: {sum(ran.values()):,} of {self._asked.jobs:,} have run"
                )
        return ended

    def _drain_raw(self, batch: int) -> float:
        """Claim and finish everything on one connection; return jobs per second."""
        self._fill()
        done = 0
        with progress("the same in raw SQL", self._asked.jobs) as step, self._connection() as connection:
            start = time.perf_counter()
            while ids := _in_transaction(connection, lambda: self._raw.raw_claim(batch)):
                done += ops.run(self._raw.raw_finish(ids), connection)
                step(len(ids))
            took = time.perf_counter() - start
        if done != self._asked.jobs:
            raise click.ClickException(f"raw SQL finished {done:,} of {self._asked.jobs:,} jobs")
        return done / took

    # -- an idle worker --------------------------------------------------------------------------------

    def idle_worker(self, *, latency: bool, idle: bool) -> tuple[Latency | None, Idle | None]:
        """Start a worker that has nothing to do; time how it picks jobs up, and see what it costs."""
        self._empty()
        orders = Orders(self._place, self._asked.concurrency, self._asked.is_async, burst=False)
        with Crew("worker", [orders], Said) as crew:
            crew.hear_all()
            crew.tell_all("go")
            self._task.enqueue(number=-1)
            self._hear(crew, "started", -1)
            found = self._latency(crew) if latency else None
            return found, self._idle(crew) if idle else None

    def _latency(self, crew: Crew[Said]) -> Latency:
        samples = self._asked.samples
        dice = random.Random()
        poll = self._app.dialect.idle_poll.total_seconds()
        took, enqueues = [], []
        with progress("pick-up by an idle worker", samples) as step:
            for number in range(samples):
                time.sleep(SHORTEST_PAUSE + dice.uniform(0, min(poll, LONGEST_PAUSE)))
                start = time.monotonic()
                self._task.enqueue(number=number)
                enqueues.append(time.monotonic() - start)
                took.append(self._hear(crew, "started", number).at - start)
                step(1)
        return Latency(samples, times(took), times(enqueues), self._limit_of_latency(took, enqueues, poll))

    def _limit_of_latency(self, took: list[float], enqueues: list[float], poll: float) -> Limit:
        whole, enqueue = statistics.median(took), statistics.median(enqueues)
        found = max(whole - enqueue, 0.0)
        told = self._app.dialect.channel is not None
        if found > max(0.1 * poll, 0.02):
            notes = ", and notifications do not seem to be heard" if told else ""
            why = f"{found * 1000:.0f} ms at the median after the enqueue returned; it looks at least every {poll:g} s{notes}"
            return Limit("the poll of an idle worker", min(found / whole, 1.0), why)
        share = min(enqueue / whole, 1.0)
        why = f"of {whole * 1000:.1f} ms at the median the enqueue took {enqueue * 1000:.1f}"
        rest = "the notification, the claim and the thread's start" if told else "the claim and the thread's start"
        return Limit("the enqueue and its commit" if share > 0.5 else rest, max(share, 1 - share), why)

    def _idle(self, crew: Crew[Said]) -> Idle:
        seconds = self._asked.idle_seconds
        with progress("an idle worker", round(seconds + TO_CALM_DOWN)) as step:
            _sleep(TO_CALM_DOWN, step)
            first = self._ask(crew)
            _sleep(seconds, step)
            last = self._ask(crew)
        assert first.reading is not None
        assert last.reading is not None
        spent, watched = last.reading.since(first.reading), last.at - first.at
        return Idle(round(watched, 3), round(spent.statements / watched, 3), round(spent.cpu / watched, 4))

    def _ask(self, crew: Crew[Said]) -> Said:
        crew.tell_all("reading")
        return self._hear(crew, "reading", -1)

    def _hear(self, crew: Crew[Said], what: str, number: int) -> Said:
        """Return what the worker says of this. Raises ClickException if it does not."""
        end = time.monotonic() + STUCK
        while heard := crew.hear(end - time.monotonic()):
            if heard[1].what == what and heard[1].number == number:
                return heard[1]
        raise click.ClickException(f"a job was not picked up within {STUCK:.0f} s")

    # -- all measures ----------------------------------------------------------------------------------

    def _calls(self, number: int, step: Callable[[int], None]) -> Iterator[Call[Any]]:
        for each in range(number):
            yield self._task.call(number=each)
            step(1)

    def _empty(self) -> None:
        self._on_a_connection(lambda connection: ops.run(self._raw.empty(), connection))

    def _fill(self) -> None:
        """Make the queue hold all jobs, and no others."""
        self._empty()
        with progress("fill the queue", self._asked.jobs) as step:
            self._app.enqueue_many(self._calls(self._asked.jobs, step))
        self._on_a_connection(lambda connection: ops.run(self._raw.take_statistics(), connection))
        self._expect(self._asked.jobs)

    def _count(self) -> int:
        return sum(self._app.counts().get(QUEUE, {}).values())

    def _expect(self, number: int) -> None:
        """Raise ClickException unless there are so many jobs: figures of others would be false."""
        if (found := self._count()) != number:
            raise click.ClickException(f"{number:,} jobs were enqueued, and {found:,} are there")

    def _connection(self) -> _Closing:
        return _Closing(self._app.store.open())

    def _on_a_connection(self, call: Callable[[OwnConnection], T]) -> T:
        with self._connection() as connection:
            connection.patience = None
            return call(connection)

    def _seen(self, watch: Stopwatch, readings: list[Reading]) -> Seen:
        return self._baseline.seen(watch, readings)


class _Closing:
    """A connection for a `with` statement."""

    def __init__(self, connection: OwnConnection) -> None:
        self._connection = connection

    def __enter__(self) -> OwnConnection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _in_transaction(connection: OwnConnection, make: Callable[[], ops.Op[T]]) -> T:
    """Run an op of raw SQL: by itself where it is one statement, else between BEGIN and COMMIT."""
    op = make()
    request = op.send(None)
    if request.alone:
        op.close()
        return ops.run(make(), connection)
    op.close()
    connection.begin()
    result = ops.run(make(), connection)
    connection.commit()
    return result


def _timed(call: Callable[[], Any], step: Callable[[int], None] | None = None) -> float:
    start = time.perf_counter()
    call()
    took = time.perf_counter() - start
    if step is not None:
        step(1)
    return took


def _sleep(seconds: float, step: Callable[[int], None]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))
        step(1)


def _payload(number: int) -> str:
    return f'{{"number":{number}}}'


def _share(share: float) -> float:
    return round(share, 3)
