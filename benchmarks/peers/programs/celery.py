"""celery on Redis: results ignored, late acknowledgement, so that a job of a killed worker is not lost (as with dibs)."""

from __future__ import annotations

import os
from threading import Thread

from celery import Celery

from peers.programs.program import Program

program = Program()
app = Celery("peers", broker=program.url)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=program.settings.get("prefetch", 100),
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,  # the program tells there what it does
    broker_connection_retry_on_startup=True,
    task_serializer="json",
)


@app.task(name="job")
def job(number: int) -> None:
    program.run(number)


def enqueue() -> None:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        connection.ensure_connection()

        def one(number: int) -> None:
            job.apply_async((number,), producer=producer)

        if program.asked["how"] == "paced":
            program.paced(one)
            return
        with program.clock():
            for number in range(program.jobs):
                one(number)


def work() -> None:
    pool = program.settings.get("pool", "solo")
    worker = app.Worker(
        pool=pool,
        concurrency=program.settings.get("concurrency", 1),
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="ERROR",
        quiet=True,
    )
    program.ready()
    if pool == "prefork":
        program.watch()

    def account() -> None:
        program.stop.wait()
        program.account()
        os._exit(0)

    Thread(target=account, daemon=True).start()
    worker.start()


match program.asked["do"]:
    case "enqueue":
        enqueue()
    case "work":
        work()
