"""What is compared: the same worker on two shapes of a queue, or two ways to work on the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ours.fill import fill
from peers.process import Failed

from shapes.field import Field, Queue

MEGABYTE = 1e6


@dataclass(frozen=True)
class Size:
    """How much of it; what the flags say."""

    jobs: int
    few: int
    many: int
    failed: int
    queues: int
    priorities: int
    workers: int


#: Gives one figure; raises Failed where a job is not accounted for.
Side = Callable[[Field], float]


@dataclass(frozen=True)
class Measure:
    """Two sides, and what their figures must be to each other."""

    name: str
    title: str
    unit: str
    ours: str
    theirs: str
    #: Returns both figures of one pair. The second of a pair finds a machine that the first has warmed up or worn out,
    #: so with `swapped` they change places.
    pair: Callable[[Field, Size, bool], tuple[float, float]]
    #: The ratio is at least this, or (`most`) at most; of memory it is the difference.
    bound: float
    most: bool = False
    difference: bool = False

    def compared(self, ours: float, theirs: float) -> float:
        return ours - theirs if self.difference else ours / theirs

    def holds(self, compared: float) -> bool:
        return compared <= self.bound if self.most else compared >= self.bound


def in_turns(field: Field, ours: Side, theirs: Side, swapped: bool) -> tuple[float, float]:
    if swapped:
        second = theirs(field)
        return ours(field), second
    first = ours(field)
    return first, theirs(field)


def drain(field: Field, *, queue: Queue, workers: int = 1, tasks: str = "sync") -> float:
    """Return jobs a second, from the start of the workers to the last job's settling."""
    with field.game(queue) as game:
        game.crew.hire(workers, tasks=tasks)
        seconds = game.drained(queue.ready)
        game.account()
    return queue.ready / seconds


def watched_drain(field: Field, *, queue: Queue) -> float:
    """Return jobs a second while somebody asks the worker for probes and metrics."""
    with field.game(queue) as game:
        game.crew.hire(1, watched=True)
        with game.crew.watched():
            seconds = game.drained(queue.ready)
        if not game.crew.looks:
            raise Failed("nobody had an answer")
        game.account()
    return queue.ready / seconds


def claim_cost(field: Field, *, queue: Queue, jobs: int) -> float:
    """Return the microseconds that claims take for each job, over the first `jobs` of a queue."""
    with field.game(queue) as game:
        game.crew.hire(1)
        game.drained(jobs)
        ops = game.crew.account()
        game.account()
    claims = [ops[kind] for kind in ("claim", "full scan") if kind in ops]
    return sum(times.seconds for times in claims) / sum(times.rows for times in claims) * 1e6


def memory(field: Field, *, few: int) -> tuple[float, float]:
    """Return the megabytes of a worker after ten times as many jobs, and of the same one after these."""
    many = 10 * few
    with field.game(Queue(few), everyone=many) as game:
        game.crew.hire(1)
        game.drained(few)
        (before,) = game.crew.memory()
        fill(game.crew.url, many - few, first=few)
        game.queue = Queue(many)
        game.crew.wait(many)
        game.settled()
        (after,) = game.crew.memory()
        game.account()
    return after / MEGABYTE, before / MEGABYTE


def _async(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    queue = Queue(size.jobs)
    return in_turns(field, partial(drain, queue=queue, tasks="async"), partial(drain, queue=queue), swapped)


def _backlog(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    side = partial(claim_cost, jobs=size.few)
    return in_turns(field, partial(side, queue=Queue(size.many)), partial(side, queue=Queue(size.few)), swapped)


def _crowd(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    crowded = Queue(size.few, scheduled=size.many, done=size.many, failed=size.failed)
    return in_turns(field, partial(drain, queue=crowded), partial(drain, queue=Queue(size.few)), swapped)


def _lanes(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    lanes = Queue(size.jobs, queues=size.queues, priorities=size.priorities)
    return in_turns(field, partial(drain, queue=lanes), partial(drain, queue=Queue(size.jobs)), swapped)


def _workers(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    side = partial(drain, queue=Queue(5 * size.jobs))
    return in_turns(field, partial(side, workers=size.workers), partial(side, workers=2), swapped)


def _watched(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    queue = Queue(15 * size.jobs)
    return in_turns(field, partial(watched_drain, queue=queue), partial(drain, queue=queue), swapped)


def _memory(field: Field, size: Size, swapped: bool) -> tuple[float, float]:
    return memory(field, few=size.jobs)


MEASURES = (
    Measure("async", "async tasks beside sync ones", "jobs/s", "async", "sync", _async, 0.7),
    Measure(
        "backlog", "claims in a long queue beside a short one", "µs a job", "long", "short", _backlog, 1.2, most=True
    ),
    Measure("crowd", "due jobs beside many scheduled, done and failed", "jobs/s", "in the crowd", "alone", _crowd, 0.9),
    Measure("lanes", "many queues and priorities beside one lane", "jobs/s", "many lanes", "one lane", _lanes, 0.6),
    Measure("workers", "many worker processes beside two", "jobs/s", "many", "two", _workers, 0.8),
    Measure(
        "watched", "with probes and metrics asked for, and without", "jobs/s", "watched", "unwatched", _watched, 0.97
    ),
    Measure(
        "memory",
        "one worker after many jobs, and after few",
        "MB",
        "after many",
        "after few",
        _memory,
        5.0,
        most=True,
        difference=True,
    ),
)
