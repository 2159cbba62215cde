"""The program that the worker processes of these tests run: an app, and tasks that write down what they do.

    python -m worker.program '{"url": "sqlite:///…", "folder": "…", "worker": {"lease": 1}}'

The tests make the same program in their own process, to enqueue its tasks.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dibs import Dibs, current_job
from dibs.worker.child import die_with_holder_of
from worker.diary import Diary

#: How often (seconds) a task looks whether its gate is open.
GLANCE = 0.005


class Program:
    """An app on one database, with tasks that do little but write it into a diary.

    A gate is a file: a task that waits for one runs until the test opens it, for all or for one process.
    """

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        app = self.app = Dibs(url, **settings)
        diary = self.diary = Diary(folder / "diary")

        def is_open(name: str) -> bool:
            return (folder / name).exists() or (folder / f"{name} for {os.getpid()}").exists()

        @app.task(name="note")
        def note(number: int = 0) -> int:
            with diary.run():
                return number

        @app.task(name="anote")
        async def anote(number: int = 0) -> int:
            with diary.run():
                return number

        @app.task(name="nap")
        def nap(seconds: float) -> None:
            with diary.run():
                time.sleep(seconds)

        @app.task(name="anap")
        async def anap(seconds: float) -> None:
            with diary.run():
                await asyncio.sleep(seconds)

        @app.task(name="gate")
        def gate(name: str) -> str:
            with diary.run():
                while not is_open(name):
                    time.sleep(GLANCE)
                return name

        @app.task(name="agate")
        async def agate(name: str) -> str:
            with diary.run():
                while not is_open(name):
                    await asyncio.sleep(GLANCE)
                return name

        @app.task(name="watch")
        def watch(name: str) -> int:
            """Write down when the job learns that it is lost, or to be cancelled; go on until the gate opens."""
            with diary.run():
                seen: set[str] = set()
                while not is_open(name):
                    job = current_job()
                    now = {"lost"} if job.lost else set()
                    now |= {"cancel_requested"} if job.cancel_requested else set()
                    for news in now - seen:
                        diary.write(news)
                    seen |= now
                    time.sleep(GLANCE)
                return os.getpid()

        @app.task(name="crash")
        def crash() -> None:
            with diary.run():
                os.kill(os.getpid(), signal.SIGKILL)

        self.note, self.anote, self.nap, self.anap = note, anote, nap, anap
        self.gate, self.agate, self.watch, self.crash = gate, agate, watch, crash


def main(argument: str, leash: int) -> None:
    """Be a worker process, for as long as the tests run."""
    die_with_holder_of(leash)
    asked = json.loads(argument)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    module, _, name = asked["program"].partition(":")
    program: Program = getattr(importlib.import_module(module), name)(
        asked["url"], Path(asked["folder"]), **asked["app"]
    )
    program.app.worker(**asked["worker"]).run(signals=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
