"""The dry run before a deploy: does this code fit the jobs that wait?

It reads and decides, and changes nothing. Arguments are read by the tasks' own annotations, as a worker would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from dibs import migrations
from dibs.app import Dibs
from dibs.errors import InvalidArgument
from dibs.jobs import Waiting
from dibs.states import State
from dibs.worker.scrubbing import scrub_of

#: Jobs read at a time, at first and at most; and how many characters of arguments a batch should have.
FIRST_BATCH = 50
MOST_BATCH = 1_000
BATCH_SIZE = 4_000_000

#: Rows that one statement looks through, at most.
WIDEST = 100_000

#: Ids that are named for each finding, and findings that are told apart for each task. The others are counted.
NAMED = 5
MOST_REASONS = 20

OTHER_REASONS = "other reasons"


class Finding(msgspec.Struct, kw_only=True):
    """Jobs of one task that this code can't run for one `reason`, and the first few of their ids."""

    task: str
    reason: str
    count: int = 0
    ids: list[int] = msgspec.field(default_factory=list)

    def add(self, job_id: int) -> None:
        self.count += 1
        if len(self.ids) < NAMED:
            self.ids.append(job_id)


class Schema(msgspec.Struct, kw_only=True):
    """The number of the tables, the oldest code that they say may work on them, and the number this code was written for."""

    tables: int
    oldest_code: int
    code: int


class Checked(msgspec.Struct, kw_only=True):
    """What was found: of `jobs` that were looked at, those with arguments that don't fit (`misfits`) and those of
    tasks that this code does not know (`unknown`). `inline`: the app runs its tasks where they are enqueued."""

    fits: bool = True
    jobs: int = 0
    misfits: list[Finding] = msgspec.field(default_factory=list)
    unknown: list[Finding] = msgspec.field(default_factory=list)
    inline: bool = False
    schema: Schema | None = None


def check(app: Dibs, *, seen: Callable[[int], None] = lambda number: None) -> Checked:
    """Bind the payload of every job that has not ended to this app's tasks; `seen` is told how many were looked at.

    Those that run are among them: stopped by the deploy, they come back. The jobs are read in batches, each in a
    transaction of its own; what is enqueued meanwhile is not looked at. Raises SchemaError when this code can't work on
    the tables.
    """
    tables, oldest_code = app.store.run(lambda: migrations.recorded(app.dialect))
    checked = Checked(schema=Schema(tables=tables, oldest_code=oldest_code, code=migrations.SCHEMA))
    misfits: dict[tuple[str, str], Finding] = {}
    unknown: dict[str, Finding] = {}
    reasons: dict[str, int] = {}
    for batch in _batches(app):
        for job in batch:
            if app.task_named(job.task) is None:
                reason = "this code has no task of that name, nor one with such an alias"
                unknown.setdefault(job.task, Finding(task=job.task, reason=reason)).add(job.id)
            elif (problem := problem_of(app, job)) is not None:
                if (job.task, problem) not in misfits:
                    reasons[job.task] = reasons.get(job.task, 0) + 1
                    problem = OTHER_REASONS if reasons[job.task] > MOST_REASONS else problem
                misfits.setdefault((job.task, problem), Finding(task=job.task, reason=problem)).add(job.id)
        checked.jobs += len(batch)
        seen(len(batch))
    checked.misfits = [misfits[key] for key in sorted(misfits)]
    checked.unknown = [unknown[key] for key in sorted(unknown)]
    checked.inline = is_inline(app)
    checked.fits = not (misfits or unknown or checked.inline)
    return checked


def is_inline(app: Dibs) -> bool:
    """Does this app run its tasks where they are enqueued? That is for tests: in production nothing would be queued."""
    return bool(getattr(app, "inline", False))


def problem_of(app: Dibs, job: Waiting) -> str | None:
    """Return why a task can't be called with a job's payload, without secrets; None if it can."""
    task = app.task_named(job.task)
    assert task is not None
    try:
        task.signature.load(job.payload)
    except InvalidArgument as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a codec of the user's, or a validator
        problem = f"{type(error).__name__}: {error}"
    else:
        return None
    scrub = scrub_of(task, job)
    return problem if scrub is None else scrub(problem)


def _batches(app: Dibs) -> Iterator[list[Waiting]]:
    """Yield the jobs that have not ended. One that moves on from running to ready meanwhile comes only once."""
    running: set[int] = set()  # no more than all workers hold
    for batch in _in(State.RUNNING, app):
        running.update(job.id for job in batch)
        yield batch
    for batch in _in(State.READY, app):
        yield [job for job in batch if job.id not in running]


def _in(status: State, app: Dibs) -> Iterator[list[Waiting]]:
    """Yield the jobs that are in a status now, in batches."""
    number, first, last = app.store.run(lambda: app.dialect.span(status))
    by_id = number * number / MOST_BATCH > last - first
    after = first - 1
    limit = FIRST_BATCH
    while after < last:
        upto = min(after + WIDEST, last) if by_id else last
        read = partial(app.dialect.read, status, after=after, upto=upto, limit=limit, by_id=by_id)
        batch = app.store.run(read)
        after = batch[-1].id if len(batch) == limit else upto
        if batch:
            yield batch
            usual = sum(len(job.payload) for job in batch) / len(batch)
            limit = max(1, min(MOST_BATCH, int(BATCH_SIZE / max(usual, 1.0))))
