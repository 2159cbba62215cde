"""The bench's result for a person to read."""

from __future__ import annotations

from collections.abc import Iterator

from dibs.bench.figures import Enqueued, Machine, Result, Server
from dibs.bench.limits import Limit

MEASURED = ("enqueue", "bulk", "drain")

#: A measure that took less (seconds) is mostly beginning and end.
SHORT = 1.0

#: From this share of its CPU on a machine that others use is worth a word.
BUSY = 0.2


def head(server: Server, machine: Machine) -> Iterator[str]:
    """Yield what is to be known before any figure."""
    where = "on this machine" if machine.local else "elsewhere"
    yield f"{server.version} at {server.database}, {where}; {machine.cores} cores here"
    yield f"a round trip takes {server.round_trip_ms:.2f} ms, a commit {server.commit_ms:.2f} ms more ({server.settings})"
    if not server.durable:
        yield "NOT durable: with these settings a commit does not survive a power cut"
    if machine.busy_before is None:
        yield 'how busy this machine is can\'t be told, so no limit says it: pip install "dibs[bench]"'
    elif machine.busy_before >= BUSY:
        yield f"NOT quiet: this machine was {machine.busy_before * 100:.0f} % busy before anything was measured"
    yield ""


def lines(result: Result) -> Iterator[str]:
    """Yield the lines; the last one names the limit."""
    yield from head(result.server, result.machine)
    if result.enqueue is not None:
        yield from _enqueued("enqueue, one by one", result.enqueue)
        yield f"    each took {result.enqueue.times}"
    if result.bulk is not None:
        yield from _enqueued("enqueue in bulk", result.bulk)
    if (drain := result.drain) is not None:
        processes = "process" if drain.workers == 1 else "processes"
        yield f"drain: {drain.per_second:,.0f} jobs/s ({drain.jobs:,} {drain.tasks} jobs, {drain.workers} worker {processes}, {drain.seconds:.2f} s)"
        yield f"    every job was counted: {drain.done:,} done, {drain.lost:,} lost, {drain.doubled:,} run twice"
        yield f"    raw SQL, {round(drain.batch):,} a claim, one connection: {drain.raw_per_second:,.0f} jobs/s; dibs at {drain.ratio:.2f} of it"
        yield f"    {drain.statements_per_job:.3f} statements and {drain.commits_per_job:.3f} commits a job; limit: {drain.limit}"
    if (latency := result.latency) is not None:
        yield f"pick-up by an idle worker: {latency.times} (of {latency.samples}, from the enqueue call to the task's start)"
        yield f"    the enqueue in it: {latency.enqueue}; limit: {latency.limit}"
    if (idle := result.idle) is not None:
        yield f"an idle worker: {idle.statements_per_second:.2f} statements/s, {idle.cpu_share * 100:.2f} % of a core (over {idle.seconds:.0f} s)"
    if short := [name for name in MEASURED if 0 < getattr(getattr(result, name), "seconds", 0) < SHORT]:
        yield f"took less than a second, which says little: {', '.join(short)}; give it more --jobs"
    if result.limit is not None:
        yield f"limit of {last_word(result)[0]}: {result.limit}"


def _enqueued(name: str, enqueued: Enqueued) -> Iterator[str]:
    if enqueued.jobs < enqueued.asked:
        name = f"{name} (ended early: it takes long enough with {enqueued.jobs:,} of {enqueued.asked:,})"
    yield f"{name}: {enqueued.per_second:,.0f} jobs/s ({enqueued.jobs:,} jobs, one process, {enqueued.seconds:.2f} s)"
    yield f"    raw INSERT: {enqueued.raw_per_second:,.0f} jobs/s; dibs at {enqueued.ratio:.2f} of it; limit: {enqueued.limit}"


def last_word(result: Result) -> tuple[str, Limit | None]:
    """Return the measure whose limit the last line names, and that limit: draining is what a queue is for."""
    for name in ("drain", "bulk", "enqueue", "latency"):
        if (figures := getattr(result, name)) is not None:
            return name, figures.limit
    return "", None
