"""The tasks of a run, beside the transfers of `examples/ledger.py`; around each run it is written down what it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from dibs import Backoff, CurrentJob, Dibs, Fail, current_job
from faults.book import Book

#: Faults may use up many attempts of a task that lives on the database; none is to fail for that.
PATIENT: dict[str, Any] = {"max_attempts": 50, "backoff": Backoff(first=0.2, factor=1.5, cap=3.0)}


def write_down(app: Dibs, book: Book) -> None:
    """Have each run of this app's jobs written down: its start, and that it returned or what it raised."""

    @app.around
    def told(job: CurrentJob) -> Iterator[None]:
        book.write("start", job=job.id, claims=job.claims, detail=job.task)
        try:
            yield
        except BaseException as error:
            book.write("raised", job=job.id, claims=job.claims, detail=type(error).__name__)
            raise
        book.write("end", job=job.id, claims=job.claims)


class Tasks:
    """The tasks, registered on an app. What they return or raise names the claim that it is of.

    `number` is what the producer calls the request; all jobs have one.
    """

    def __init__(self, app: Dibs) -> None:
        @app.task(name="faults.note", queue="notes", **PATIENT)
        def note(number: int) -> int:
            return current_job().claims

        @app.task(name="faults.nap", queue="naps", **PATIENT)
        def nap(number: int, seconds: float) -> int:
            time.sleep(seconds)
            return current_job().claims

        @app.task(name="faults.anap", queue="naps", **PATIENT)
        async def anap(number: int, seconds: float) -> int:
            await asyncio.sleep(seconds)
            return current_job().claims

        @app.task(name="faults.stumble", queue="notes", **PATIENT)
        def stumble(number: int, times: int) -> int:
            """Fail so many times, then succeed."""
            if current_job().attempts <= times:
                raise RuntimeError(f"claim {current_job().claims} stumbles")
            return current_job().claims

        @app.task(name="faults.fail", queue="notes", **PATIENT)
        def fail(number: int) -> None:
            raise Fail(f"claim {current_job().claims} fails")

        self.note, self.nap, self.anap, self.stumble, self.fail = note, nap, anap, stumble, fail
