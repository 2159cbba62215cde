"""Calls of dibs' public face as people write them, right and wrong, to be read by type checkers. It is never run.

A line that ends with `# wrong` must be an error, to mypy --strict and to pyright in strict mode; every other line must
not be. `test_checkers` holds both to it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from dibs import (
    Backoff,
    Cancel,
    CurrentJob,
    Dibs,
    Draft,
    Event,
    Fail,
    Job,
    JobRecord,
    Release,
    Retry,
    Secret,
    Task,
    Tasks,
    Worker,
    current_job,
)


@asynccontextmanager
async def lifespan(app: Dibs) -> AsyncGenerator[dict[str, str]]:
    yield {"client": "…"}


async def plain_lifespan(app: Dibs) -> AsyncIterator[int]:
    yield 7


async def no_lifespan(app: Dibs) -> None: ...


Dibs(lifespan=plain_lifespan)
Dibs(lifespan=no_lifespan)  # wrong
app = Dibs("sqlite:///dibs.db", lifespan=lifespan, imports=["shop.tasks"], scrub=lambda text: text.lower())
Dibs(password=lambda: "token", schema="jobs", prefix="shop_", notify=False, max_payload=10_000)
Dibs(url="sqlite:///dibs.db", urll="")  # wrong
Dibs(notify="no")  # wrong
Dibs(scrub=lambda text: 7)  # wrong


# -- tasks: bare and with options, sync and async, in a class, in a registry ----------------------------------------


@dataclass
class Order:
    id: int
    total: Decimal


@app.task
def export(order: Order, copies: int = 1, *, draft: bool = False) -> str:
    return f"{order.id} {copies} {draft}"


@app.task()
def empty() -> None: ...


@app.task(
    name="mail",
    aliases=["send_mail"],
    queue="mail",
    priority=3,
    max_attempts=5,
    timeout=timedelta(minutes=2),
    retention=3600,
    key_until="finished",
    backoff=Backoff(first=1),
    retry_on=(OSError,),
    fail_on=ValueError,
    runs_in="loop",
)
async def mail(to: str, *, cc: list[str] | None = None) -> dict[str, int]:
    return {to: len(cc or [])}


@app.task
async def count(until: int) -> int:
    return until


@app.task
def log_in(user: str, password: Secret[str]) -> bool:
    return assert_type(password, str) == user


class Reports:
    @staticmethod
    @app.task
    def monthly(month: str) -> int:
        return len(month)


tasks = Tasks(prefix="billing.")


@tasks.task
def charge(order_id: int) -> Decimal:
    return Decimal(order_id)


@tasks.task(max_attempts=3)
async def refund(order_id: int, reason: str = "") -> Decimal:
    return Decimal(order_id)


@tasks.task
async def quote(order_id: int) -> Decimal:
    return Decimal(order_id)


app.include(tasks)
app.include(charge)  # wrong


@app.task(queues="mail")  # wrong
def unknown_option() -> None: ...


@app.task(max_attempts="5")  # wrong
def option_of_another_type() -> None: ...


@app.task(retry_on="OSError")  # wrong
def no_exception() -> None: ...


@app.task(backoff=5)  # wrong
def no_backoff() -> None: ...


@app.task(runs_in="threads")  # wrong
def no_such_place() -> None: ...


# -- a task is called as its function is ------------------------------------------------------------------------------

order = Order(7, Decimal("9.90"))
assert_type(export(order, 2, draft=True), str)
assert_type(Reports.monthly("2026-11"), int)
export(order, copies="two")  # wrong
export()  # wrong


async def called() -> None:
    assert_type(await mail("a@example.com"), dict[str, int])
    assert_type(await refund(7), Decimal)
    await mail(7)  # wrong


# -- enqueue: the same arguments, and a job that has the task's result ------------------------------------------------

assert_type(export.enqueue(order), Job[str])
assert_type(export.enqueue(order, 2, draft=True), Job[str])
assert_type(mail.enqueue("a@example.com", cc=["b@example.com"]), Job[dict[str, int]])
assert_type(empty.enqueue(), Job[None])
assert_type(charge.enqueue(7), Job[Decimal])
assert_type(refund.enqueue(order_id=7), Job[Decimal])
assert_type(Reports.monthly.enqueue("2026-11"), Job[int])
log_in.enqueue("zoe", password="geheim")

export.enqueue("order-7")  # wrong
export.enqueue()  # wrong
export.enqueue(order, 2, True)  # wrong
export.enqueue(order, copy=2)  # wrong
export.enqueue(order, draft="yes")  # wrong
mail.enqueue("a@example.com", cc="b@example.com")  # wrong
mail.enqueue(to=None)  # wrong
empty.enqueue(1)  # wrong
refund.enqueue("7")  # wrong
log_in.enqueue("zoe", password=7)  # wrong
Reports.monthly.enqueue(2026)  # wrong
export.delay(order)  # wrong

using = export.using(key="order-7", delay=timedelta(minutes=5), priority=1, queue="slow", max_attempts=1, retention=0)
assert_type(using.enqueue(order), Job[str])
assert_type(mail.using(run_at=datetime.now(UTC)).enqueue("a@example.com"), Job[dict[str, int]])
assert_type(mail.using(own=True, key_until="finished").enqueue(to="a@example.com"), Job[dict[str, int]])
export.using(key="order-7").enqueue()  # wrong
export.using(key="order-7").enqueue(order, 2, 3)  # wrong
mail.using(delay=5).enqueue(to=7)  # wrong
export.using(priority="high")  # wrong
export.using(key=7)  # wrong
export.using(run_at=1_700_000_000)  # wrong
export.using(key_until="for ever")  # wrong
export.using(eta=datetime.now(UTC))  # wrong
export.using("order-7")  # wrong


def in_transactions(session: Session) -> None:
    with app.transaction(session):
        export.enqueue(order)
    export.using(connection=session).enqueue(order)
    app.transaction()  # wrong


async def in_async_transactions(session: AsyncSession) -> None:
    async with app.transaction(session):
        await export.aenqueue(order)
    await mail.using(connection=session).aenqueue("a@example.com")


async def awaited() -> None:
    assert_type(await export.aenqueue(order), Job[str])
    assert_type(await mail.using(key="k").aenqueue("a@example.com"), Job[dict[str, int]])
    await export.aenqueue(7)  # wrong
    await mail.using(key="k").aenqueue()  # wrong
    await export.enqueue(order)  # wrong


# -- many at once -----------------------------------------------------------------------------------------------------

app.enqueue_many([export.call(order), mail.using(delay=5).call("a@example.com")])
app.enqueue_many(charge.call(number) for number in range(10))
app.enqueue_many([export.call(7)])  # wrong
app.enqueue_many([export.enqueue(order)])  # wrong
app.enqueue_many([export])  # wrong


# -- results ----------------------------------------------------------------------------------------------------------

assert_type(export.enqueue(order).join(timeout=5), str)
assert_type(count.enqueue(7).join(), int)
assert_type(empty.enqueue().join(timedelta(seconds=1)), None)
text: int = export.enqueue(order).join()  # wrong
count.enqueue(7).join(timeout="5")  # wrong
count.enqueue(7).join() + "7"  # wrong


async def results() -> None:
    job = await count.aenqueue(7)
    assert_type(await job.ajoin(timeout=5), int)
    assert_type((job.id, job.created), tuple[int, bool])
    number: str = await job.ajoin()  # wrong
    number.upper()


def either_kind(task: Task[[int], Any], sync: Task[[int], Decimal]) -> Job[Decimal]:
    """Sync and async tasks are passed on alike."""
    task.enqueue(7)
    task.enqueue("7")  # wrong
    return sync.enqueue(7)


either_kind(count, charge)
either_kind(count, quote)
either_kind(export, quote)  # wrong
either_kind(count, count)  # wrong


# -- what is asked and told, and its async twins ----------------------------------------------------------------------

assert_type(app.job(7), JobRecord)
assert_type(app.jobs(status="failed", queue="mail", limit=5), list[JobRecord])
assert_type(app.counts(), dict[str, dict[str, int]])
assert_type(app.cancel([7, 8], reason="sold out"), list[int])
assert_type(app.requeue(7), list[int])
assert_type(app.pause("mail"), bool)
assert_type(app.job(7).finished_at, datetime | None)
app.job("7")  # wrong
app.jobs("failed")  # wrong
app.jobs(state="failed")  # wrong
app.cancel("7")  # wrong
app.requeue(7, forced=True)  # wrong
app.pause()  # wrong
app.job(7).state  # wrong


async def orders() -> None:
    assert_type(await app.ajob(7), JobRecord)
    assert_type(await app.ajobs(status="failed"), list[JobRecord])
    assert_type(await app.acounts(), dict[str, dict[str, int]])
    assert_type(await app.acancel(7), list[int])
    assert_type(await app.arequeue([7], force=True), list[int])
    assert_type(await app.aenqueue_many([mail.call("a@example.com")]), list[Job[Any]])
    await app.ajob("7")  # wrong
    await app.ajobs(state="failed")  # wrong
    await app.job(7)  # wrong
    await app.acancel(["7"])  # wrong


# -- inside a task ----------------------------------------------------------------------------------------------------


def inside(session: Session) -> str:
    job = current_job()
    assert_type(job, CurrentJob)
    assert_type(job.key, str | None)
    assert_type(job.attempts, int)
    assert_type(job.stopping, bool)
    job.check()
    job.progress(0.5, note="half")
    job.checkpoint({"page": 7})
    job.finish({"sent": 7}, connection=session)
    job.progress("half")  # wrong
    job.finish({"sent": 7})  # wrong
    job.stopping()  # wrong
    job.attempts = 0  # wrong
    raise Release("not yet", delay=timedelta(seconds=3))


def signals(number: int) -> None:
    if number == 1:
        raise Retry("soon", delay=5)
    if number == 2:
        raise Retry(delay="5")  # wrong
    if number == 3:
        raise Release("later", delay=None)  # wrong
    if number == 4:
        raise Fail("no such order", delay=5)  # wrong
    raise Cancel(7)  # wrong


# -- hooks ------------------------------------------------------------------------------------------------------------


@app.around
def timed(job: CurrentJob) -> Iterator[None]:
    yield


@tasks.around
async def traced(job: CurrentJob) -> AsyncIterator[None]:
    yield


@app.on_enqueue
def remember(draft: Draft) -> None:
    draft.meta["tenant"] = "…"


@app.on("failed", "lost")
def tell(event: Event) -> None:
    assert_type((event.job_id, event.error), tuple[int, str | None])
    if event.name == "fialed":  # wrong
        pass


@app.on("done")
async def atell(event: Event) -> None: ...


@app.around  # wrong
def takes_no_job() -> Iterator[None]:
    yield


@app.around  # wrong
def has_no_yield(job: CurrentJob) -> None: ...


@app.on_enqueue  # wrong
def takes_an_event(draft: Event) -> None: ...


@app.on_enqueue  # wrong
async def is_awaited(draft: Draft) -> None: ...


@app.on("finished")  # wrong
def no_such_event(event: Event) -> None: ...


@app.on("failed")  # wrong
def takes_a_job(event: CurrentJob) -> None: ...


# -- workers ----------------------------------------------------------------------------------------------------------

assert_type(app.worker(queues=["mail"], concurrency=3, lease=timedelta(minutes=1), grace=20, burst=True), Worker)
app.worker().run(signals=True)
app.worker(queues="mail", concurrency=3)  # wrong
app.worker(threads=3)  # wrong
app.worker(lease="60")  # wrong
