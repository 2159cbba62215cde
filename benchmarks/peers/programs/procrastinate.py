"""procrastinate: its own PsycopgConnector, LISTEN on, rows kept as by default."""

from __future__ import annotations

import asyncio

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from peers.programs.program import Program

CHUNK = 5_000

program = Program()
concurrency = program.settings.get("concurrency", 10)
working = program.asked["do"] == "work"
app = App(
    connector=PsycopgConnector(conninfo=program.url, max_size=max(concurrency, 4))
    if working
    else SyncPsycopgConnector(conninfo=program.url)
)


@app.task(name="job")
async def job(number: int) -> None:
    program.run(number)


def enqueue() -> None:
    with app.open():
        app.check_connection()
        match program.asked["how"]:
            case "bulk":
                with program.clock():
                    for first in range(0, program.jobs, CHUNK):
                        numbers = range(first, min(first + CHUNK, program.jobs))
                        job.batch_defer(*({"number": number} for number in numbers))
            case "single":
                with program.clock():
                    for number in range(program.jobs):
                        job.defer(number=number)
            case "paced":
                program.paced(lambda number: job.defer(number=number))


async def work() -> None:
    async with app.open_async():
        await app.check_connection_async()
        await asyncio.to_thread(program.ready)
        worker = asyncio.create_task(
            app.run_worker_async(concurrency=concurrency, install_signal_handlers=False, shutdown_graceful_timeout=5)
        )
        await program.until_stopped(worker)
        worker.cancel()
        await asyncio.wait([worker])
    program.end()


match program.asked["do"]:
    case "prepare":
        with app.open():
            app.schema_manager.apply_schema()
    case "enqueue":
        enqueue()
    case "work":
        asyncio.run(work())
