"""A program of tasks that run for long: the same in a thread, on the loop, and in a process.

A process of its worker finds the app through the environment: `app.place` names the function that makes it there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from dibs import Backoff, Cancel, Dibs, Fail, Release, Retry, current_job
from dibs.settings import RunsIn
from worker.program import GLANCE, Program

VARIABLE = "DIBS_TEST_LONG_PROGRAM"


class Oops(ValueError):
    """An exception that a process of the worker's knows by its class, and the worker does not."""


class LongProgram(Program):
    """`steps_…` make a checkpoint at each step; `watch_…` write down what they learn; `loop_…` call `check()`."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        self.app.place = "worker.long_program:make_app"
        os.environ[VARIABLE] = json.dumps([url, str(folder), settings])
        app, diary = self.app, self.diary

        def is_open(name: str) -> bool:
            return (folder / name).exists()

        # -- in each kind of slot --------------------------------------------------------------------

        def steps(gate: str, total: int, until: int) -> list[int]:
            """Make a checkpoint at each step; wait for the gate at step `until`."""
            first = (current_job().last_checkpoint or {"step": 0})["step"]
            diary.write("start", str(first))
            for step in range(first, total):
                if step == until and not is_open(gate):
                    diary.write("waits")
                    while not is_open(gate):
                        time.sleep(GLANCE)
                current_job().checkpoint({"step": step + 1})
            return [first, total]

        async def asteps(gate: str, total: int, until: int) -> list[int]:
            first = (current_job().last_checkpoint or {"step": 0})["step"]
            diary.write("start", str(first))
            for step in range(first, total):
                if step == until and not is_open(gate):
                    diary.write("waits")
                    while not is_open(gate):
                        await asyncio.sleep(GLANCE)
                await current_job().acheckpoint({"step": step + 1})
            return [first, total]

        def loop(gate: str) -> str:
            """Go round, as fast as can be, until told to end or the gate opens."""
            with diary.run():
                turn = 0
                while not is_open(gate):
                    turn += 1
                    current_job().check()
                    current_job().progress(min(turn / 1e9, 0.5), note=f"turn {turn}")
                current_job().progress(1, note="through")
                return gate

        async def aloop(gate: str) -> str:
            with diary.run():
                turn = 0
                while not is_open(gate):
                    turn += 1
                    current_job().check()
                    current_job().progress(min(turn / 1e9, 0.5), note=f"turn {turn}")
                    await asyncio.sleep(0)
                current_job().progress(1, note="through")
                return gate

        def tidy() -> None:
            """Clean up, which takes a while, once told to end."""
            diary.write("start")
            try:
                while True:
                    current_job().check()
            finally:
                time.sleep(0.5)
                diary.write("tidied")

        async def atidy() -> None:
            diary.write("start")
            try:
                while True:
                    current_job().check()  # with no await: what cancels it otherwise comes when it cleans up
            finally:
                await asyncio.sleep(0.5)
                diary.write("tidied")

        def watch_in(gate: str) -> None:
            """Write down what it is told, and go on all the same until the gate opens."""
            with diary.run():
                seen: set[str] = set()
                while not is_open(gate):
                    job = current_job()
                    now = {word for word in ("lost", "cancel_requested", "stopping") if getattr(job, word)}
                    for news in sorted(now - seen):
                        diary.write(news)
                    seen |= now
                    time.sleep(GLANCE)

        def too_big() -> str:
            try:
                current_job().checkpoint("x" * 70_000)
            except ValueError as error:
                return str(error)
            return ""

        kinds: dict[RunsIn, tuple[Callable[..., Any], ...]] = {
            "thread": (steps, loop, watch_in, tidy),
            "loop": (asteps, aloop, watch_in, atidy),
            "process": (steps, loop, watch_in, tidy),
        }
        self.steps: dict[str, Any] = {}
        self.loop: dict[str, Any] = {}
        self.watches: dict[str, Any] = {}
        self.tidies: dict[str, Any] = {}
        for where, (stepping, looping, watching, tidying) in kinds.items():
            self.steps[where] = app.task(name=f"steps_{where}", runs_in=where)(stepping)
            self.loop[where] = app.task(name=f"loop_{where}", runs_in=where)(looping)
            self.tidies[where] = app.task(name=f"tidy_{where}", runs_in=where)(tidying)
            if where != "loop":
                self.watches[where] = app.task(name=f"watch_{where}", runs_in=where)(watching)
        self.too_big = app.task(name="too_big", runs_in="process")(too_big)

        # -- timeouts ----------------------------------------------------------------------------------

        def sleepy() -> None:
            with diary.run():
                time.sleep(60)

        def stubborn() -> None:
            diary.write("start")
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    time.sleep(60)
                except TimeoutError:
                    diary.write("told")

        async def astubborn(gate: str) -> str:
            diary.write("start")
            while not is_open(gate):
                try:
                    await asyncio.sleep(GLANCE)
                except asyncio.CancelledError:
                    diary.write("told")
            return gate

        async def asleepy() -> None:
            with diary.run():
                await asyncio.sleep(60)

        async def blocking() -> None:
            diary.write("start")
            time.sleep(60)

        def timed(function: Callable[..., Any], name: str, where: RunsIn) -> Any:
            return app.task(name=name, runs_in=where, timeout=0.5, max_attempts=1)(function)

        self.sleepy = timed(sleepy, "sleepy", "process")
        self.stubborn = timed(stubborn, "stubborn", "process")
        self.asleepy = timed(asleepy, "asleepy", "process")
        self.blocking = timed(blocking, "blocking", "process")
        self.astubborn = timed(astubborn, "astubborn", "loop")

        # -- only in processes -------------------------------------------------------------------------

        @app.task(name="spin", runs_in="process")
        def spin(gate: str) -> int:
            """Hold this process's GIL nearly all the time."""
            with diary.run():
                turns = 0
                while not is_open(gate):
                    turns += pow(7, 200_000) % 3
                return os.getpid()

        @app.task(name="deaf", runs_in="process")
        def deaf() -> None:
            """Hold this process's GIL for an hour: nothing in Python can interrupt it."""
            diary.write("start")
            sum(range(10**13))

        @app.task(name="pnote", runs_in="process")
        def pnote(number: int, when: timedelta | None = None) -> tuple[int, timedelta | None]:
            with diary.run():
                return number, when

        @app.task(name="apnote", runs_in="process")
        async def apnote(number: int) -> int:
            with diary.run():
                await asyncio.sleep(0)
                return number

        @app.task(name="dies", runs_in="process", max_attempts=2, backoff=Backoff(first=1.5, jitter=0))
        def dies(how: str) -> str:
            diary.write("start")
            if current_job().attempts > 1:
                return "came through"
            if how == "exit":
                os._exit(3)
            os.kill(os.getpid(), int(how))
            time.sleep(60)
            return "never"

        @app.task(name="raises", runs_in="process", fail_on=Oops, max_attempts=2)
        def raises(what: str) -> None:
            with diary.run():
                match what:
                    case "retry":
                        raise Retry("not yet", delay=timedelta(hours=1))
                    case "release":
                        raise Release("later", delay=3600)
                    case "cancel":
                        raise Cancel("no use")
                    case "fail":
                        raise Fail("hopeless")
                    case "fail_on":
                        raise Oops("a class of its own")
                    case "exit":
                        sys.exit(7)
                    case _:
                        raise KeyError(what)

        @app.task(name="araises", runs_in="process", max_attempts=1)
        async def araises() -> None:
            raise KeyError("deep")

        @app.task(name="starts_another", runs_in="process")
        def starts_another() -> None:
            """Run a program of another's, as ffmpeg is run."""
            with diary.run(), subprocess.Popen(["sleep", "600"]) as other:
                diary.write("another", str(other.pid))
                try:
                    other.wait()
                except BaseException:
                    other.kill()
                    raise

        @app.task(name="logs", runs_in="process")
        def logs() -> None:
            logging.getLogger("of.the.user").warning("said in %s", "a process")

        @app.task(name="files", runs_in="process")
        def files() -> list[str]:
            """Return what is open here, where the system tells."""
            return [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]

        @app.task(name="finishes", runs_in="process")
        def finishes() -> None:
            """Settle its own job on a connection that it opens itself."""
            with closing(sqlite3.connect(str(app.url.database))) as users:
                current_job().finish("by itself", connection=users)
                users.commit()

        self.finishes = finishes
        self.spin, self.deaf, self.pnote, self.apnote, self.dies = spin, deaf, pnote, apnote, dies
        self.raises, self.araises, self.starts_another = raises, araises, starts_another
        self.logs, self.files = logs, files


def make_app() -> Dibs:
    """Make the program again, in a process of a worker's."""
    url, folder, settings = json.loads(os.environ[VARIABLE])
    return LongProgram(url, Path(folder), **settings).app
