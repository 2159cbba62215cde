"""Producers of a scenario: several at a time, each with a connection and transactions of its own."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from commands import environment
from dibs import Dibs
from worker.users import of_driver

#: A producer as a process of its own: it enqueues so many jobs, each in a commit of its own, and says how long the longest
#: took.
SOURCE = """
import sys, time
from dibs import Dibs

app, number, longest = Dibs(sys.argv[1]), int(sys.argv[2]), 0.0

@app.task(name="note")
def note(number: int = 0) -> int: ...

for n in range(number):
    began = time.monotonic()
    note.enqueue(number=n)
    longest = max(longest, time.monotonic() - began)
print(longest)
"""


def in_processes(url: str, *, producers: int, jobs: int) -> list[subprocess.Popen[str]]:
    """Start producers that write `jobs` jobs of the task "note" each."""
    arguments = [sys.executable, "-c", SOURCE, url, str(jobs)]
    return [
        subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(producers)
    ]


def in_threads(number: int, work: Callable[[int], None], *, within: float) -> list[BaseException]:
    """Let so many threads do this work, each with its number; return what was raised."""
    raised: list[BaseException] = []

    def run(place: int) -> None:
        try:
            work(place)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + within
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    assert not any(thread.is_alive() for thread in threads), f"producers were not through after {within:g} s"
    return raised


def orders_and_jobs(app: Dibs, task: Any, place: int, *, number: int, isolation: str, keyed: bool) -> list[int]:
    """Write orders, each with a job in the same transaction: due now or soon, of any priority; return the jobs' ids."""
    dice = random.Random(place)
    ids: list[int] = []
    with closing(of_driver(app)) as connection:
        cursor = connection.cursor()
        session = "SESSION CHARACTERISTICS AS" if app.url.scheme == "postgresql" else "SESSION"
        cursor.execute(f"SET {session} TRANSACTION ISOLATION LEVEL {isolation}")
        connection.commit()
        for n in range(number):
            cursor.execute(f"INSERT INTO orders (number) VALUES ({place * number + n})")
            options: dict[str, Any] = {"priority": dice.randint(-2, 2), "delay": dice.choice([None, 0.05])}
            if keyed:
                options["key"] = f"order-{place}-{n}"
            ids.append(task.using(connection=connection, **options).enqueue(number=n).id)
            connection.commit()
    return ids
