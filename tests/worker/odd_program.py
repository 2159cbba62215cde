"""A program of tasks for a process, of which each does something that a library would not think of."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from dibs import Cancel, Fail, LostClaim, Retry, current_job
from worker.long_program import LongProgram
from worker.program import GLANCE


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("unprintable")


#: What a file is called that no program could name.
NAME = os.fsdecode(b"caf\xe9.txt")


class OddProgram(LongProgram):
    """Tasks that are named after what they do; all run in processes."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        self.app.place = "worker.odd_program:make_app"

        @self.app.task(name="signals", runs_in="process", max_attempts=2)
        def signals(kind: str) -> None:
            raise {
                "fail with half a character": lambda: Fail(f"cannot read {NAME}"),
                "fail with an unprintable reason": lambda: Fail(Unprintable()),  # type: ignore[arg-type]
                "cancel with half a character": lambda: Cancel(f"no use: {NAME}"),
                "retry in ages": lambda: Retry(delay=10**30),
                "retry beyond numbers": lambda: Retry(delay=10**400),
                "retry in True": lambda: Retry(delay=True),
            }[kind]()

        @self.app.task(name="notes", runs_in="process")
        def notes() -> str:
            """Tell the worker of progress in words that can't be written, for long enough that it is told by the way."""
            current_job().progress(0.5, f"at {NAME}")
            time.sleep(0.7)
            current_job().checkpoint("told")
            return "done"

        @self.app.task(name="forks", runs_in="process")
        def forks(how: str) -> list[int]:
            """Return what the children came to, which all come back here from a fork."""
            codes = []
            for _ in range(3):
                pid = os.fork()
                if pid == 0:
                    if how == "returns":
                        return [-1]
                    if how == "exits":
                        raise SystemExit(3)
                    os.execvp("/there/is/no/such/program", ["program"])
                codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return codes

        @self.app.task(name="leaves_a_thread", runs_in="process")
        def leaves_a_thread(gate: str) -> None:
            """Leave a thread behind that makes a checkpoint later."""
            job = current_job()

            def checkpoint() -> None:
                while not (folder / gate).exists():
                    time.sleep(GLANCE)
                try:
                    job.checkpoint("of another job")
                except LostClaim:
                    (folder / "refused").touch()
                else:
                    (folder / "stored").touch()

            threading.Thread(target=checkpoint, daemon=True).start()

        @self.app.task(name="logs_amiss", runs_in="process")
        def logs_amiss() -> str:
            """Log what can't be put together, and what steers a terminal."""
            logging.getLogger("shop").warning("%d jobs", "no")
            logging.getLogger("shop").warning("red \x1b[31m")
            return "done"

        def pools() -> list[int | None]:
            """Compute in forks of one's own, and end one that would go on for a minute."""
            context = multiprocessing.get_context("fork")
            with context.Pool(2) as pool:
                found: list[int | None] = list(pool.map(abs, [-1, -2]))
            begun = context.Event()

            def go_on() -> None:
                begun.set()
                time.sleep(60)

            other = context.Process(target=go_on)
            other.start()
            begun.wait(20)
            other.terminate()
            other.join(20)
            return [*found, other.exitcode]

        def told_at_once() -> list[int]:
            """Fork many times, and tell each fork to end before it can have done anything. Return what they came to."""
            codes: set[int] = set()
            for number in [signal.SIGTERM, signal.SIGINT] * 20:
                pid = os.fork()
                if pid == 0:
                    time.sleep(10)
                    os._exit(0)
                os.kill(pid, number)
                codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return sorted(codes)

        self.told_at_once = [
            self.app.task(name=f"told_at_once_{where}", runs_in=where)(told_at_once) for where in ("process", "thread")
        ]
        self.pools = [self.app.task(name=f"pools_{where}", runs_in=where)(pools) for where in ("process", "thread")]
        self.logs_amiss = logs_amiss
        self.signals, self.notes, self.forks, self.leaves_a_thread = signals, notes, forks, leaves_a_thread


def make_app() -> Any:
    """Be asked for the app by a process of its worker."""
    import json

    from worker.long_program import VARIABLE

    url, folder, settings = json.loads(os.environ[VARIABLE])
    return OddProgram(url, Path(folder), **settings).app
