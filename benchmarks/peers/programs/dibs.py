"""dibs itself: a plain worker, as `dibs worker` starts it, in a process of its own."""

from __future__ import annotations

from threading import Thread
from typing import Any

import psycopg

from dibs import Dibs
from dibs.worker import slots
from peers.programs.program import Program

#: Enqueues in one transaction, where they are measured in the user's own.
TOGETHER = 100

program = Program()
app = Dibs(program.url)


@app.task(name="job")
def job(number: int) -> None:
    program.run(number)


@app.task(name="async_job")
async def async_job(number: int) -> None:
    program.run(number)


def enqueue() -> None:
    task: Any = async_job if program.settings.get("tasks") == "async" else job
    match program.asked["how"]:
        case "bulk":
            app.enqueue_many([])  # connects
            with program.clock():
                app.enqueue_many(task.call(number) for number in range(program.jobs))
        case "single":
            app.store.run(app.dialect.paused)  # connects
            with program.clock():
                for number in range(program.jobs):
                    task.enqueue(number)
        case "transaction":
            with psycopg.connect(program.url) as connection, program.clock():
                for first in range(0, program.jobs, TOGETHER):
                    with connection.transaction():
                        for number in range(first, min(first + TOGETHER, program.jobs)):
                            task.using(connection=connection).enqueue(number)
        case "paced":
            app.store.run(app.dialect.paused)
            program.paced(task.enqueue)


def work() -> None:
    concurrency = program.settings.get("concurrency")
    if program.settings.get("ahead") == 0:
        slots.MOST_AHEAD = 0  # claim for free slots only: no job waits in memory while another runs
    worker = app.worker(concurrency=concurrency)
    thread = Thread(target=worker.run)
    program.ready()
    thread.start()
    program.stop.wait()
    worker.stop()
    thread.join()
    program.end()


match program.asked["do"]:
    case "prepare":
        app.migrate()
    case "enqueue":
        enqueue()
    case "work":
        work()
