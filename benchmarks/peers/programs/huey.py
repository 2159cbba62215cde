"""huey on SQLite, each commit on the disk. It deletes a job when it takes it: a worker that is killed loses it."""

from __future__ import annotations

import logging

from huey import SqliteHuey
from huey.consumer import Consumer

from peers.programs.program import Program

program = Program()
logging.disable(logging.WARNING)
huey = SqliteHuey("peers", filename=program.url, fsync=program.settings["synchronous"] == "full", results=False)


@huey.task(name="job")
def job(number: int) -> None:
    program.run(number)


def enqueue() -> None:
    if program.asked["how"] == "paced":
        program.paced(job)
        return
    with program.clock():
        for number in range(program.jobs):
            job(number)


def work() -> None:
    consumer = Consumer(
        huey,
        workers=program.settings.get("workers", 1),
        periodic=False,
        initial_delay=0.01,
        max_delay=program.settings.get("poll", 0.2),
    )
    program.ready()
    consumer.start()
    program.stop.wait()
    program.end()


match program.asked["do"]:
    case "prepare":
        huey.storage.queue_size()
    case "enqueue":
        enqueue()
    case "work":
        work()
