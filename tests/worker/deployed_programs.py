"""Two versions of one program: the old one, and what a deploy makes of it, whose tasks have changed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from worker.program import Program

#: How long (seconds) arguments that do not fit are released: in pauses from 1/90 s on, growing to 2/3 s.
MISFIT_WAIT = 20.0

#: How long (seconds) a task takes.
WORK = 0.002


class Old(Program):
    """The version before."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder, misfit_wait=MISFIT_WAIT)
        app, diary = self.app, self.diary

        @app.task(name="mail")
        def mail(number: int) -> int:
            with diary.run():
                time.sleep(WORK)
                return number

        @app.task(name="charge")
        def charge(number: int) -> int:
            with diary.run():
                time.sleep(WORK)
                return number

        @app.task(name="refund")
        async def refund(number: int) -> int:
            with diary.run():
                await asyncio.sleep(WORK)
                return number

        self.calls = [lambda n: mail.call(number=n), lambda n: charge.call(number=n), lambda n: refund.call(number=n)]


class New(Program):
    """The version after: `mail` is called `deliver`, `charge` has another argument, `refund` one with a default."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder, misfit_wait=MISFIT_WAIT)
        app, diary = self.app, self.diary

        @app.task(name="deliver", aliases=("mail",))
        def deliver(number: int) -> int:
            with diary.run():
                time.sleep(WORK)
                return number

        @app.task(name="charge")
        def charge(number: int, currency: str) -> int:
            with diary.run():
                time.sleep(WORK)
                return number

        @app.task(name="refund")
        async def refund(number: int, reason: str = "") -> int:
            with diary.run():
                await asyncio.sleep(WORK)
                return number

        self.calls = [
            lambda n: deliver.call(number=n),
            lambda n: charge.call(number=n, currency="EUR"),
            lambda n: refund.call(number=n, reason="broken") if n % 2 else refund.call(number=n),
        ]
