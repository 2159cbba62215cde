"""A program with hooks, a secret and a scrub, whose tasks run in processes; they find it through the environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

from dibs import Backoff, Dibs, Fail, Retry, Secret

VARIABLE = "DIBS_TEST_HOOKED_PROGRAM"

NAME: ContextVar[str] = ContextVar("name", default="nobody")


def make_app(**settings: Any) -> Dibs:
    app = Dibs(os.environ[VARIABLE], scrub=lambda text: text.replace("Zoe", "somebody"), **settings)
    app.place = "worker.hooked_program:make_app"
    options: dict[str, Any] = {"runs_in": "process", "max_attempts": 2, "backoff": Backoff(first=0, jitter=0)}

    @app.around
    def named(job: Any) -> Iterator[None]:
        token = NAME.set(f"{job.task} {job.attempts} in another process: {os.getpid() != TESTS}")
        try:
            yield
        except KeyError as error:
            raise Fail(f"no such key for Zoe: {error}") from error
        finally:
            NAME.reset(token)

    @app.around
    async def anamed(job: Any) -> AsyncIterator[None]:
        token = NAME.set(f"async {NAME.get()}")
        yield
        NAME.reset(token)

    @app.task(name="names", **options)
    def names() -> str:
        return NAME.get()

    @app.task(name="anames", **options)
    async def anames() -> str:
        await asyncio.sleep(0)
        return NAME.get()

    @app.task(name="fails", **options)
    def fails(password: Secret[str]) -> None:
        raise ValueError(f"Zoe is not let in with {password}" + 20_000 * password)

    @app.task(name="asks", **options)
    async def asks(password: Secret[str]) -> None:
        raise Retry(f"Zoe and {password}", delay=0)

    @app.task(name="looks", **options)
    def looks() -> None:
        raise KeyError("key")

    return app


TESTS = int(os.environ.get("DIBS_TEST_PID", "0"))
