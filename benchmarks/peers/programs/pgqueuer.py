"""pgqueuer: asyncpg's pool, uvloop, big batches; what failed would be held instead of deleted."""

from __future__ import annotations

import asyncio

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from peers.programs.program import Program

CHUNK = 5_000

program = Program()


async def main() -> None:
    pool = await asyncpg.create_pool(program.url, min_size=1, max_size=program.settings.get("pool", 4))
    driver = AsyncpgPoolDriver(pool)
    queries = Queries(driver)
    match program.asked["do"]:
        case "prepare":
            await queries.install()
        case "enqueue":
            await enqueue(queries)
        case "work":
            await work(queries)
    await pool.close()


async def enqueue(queries: Queries) -> None:
    match program.asked["how"]:
        case "bulk":
            with program.clock():
                for first in range(0, program.jobs, CHUNK):
                    numbers = range(first, min(first + CHUNK, program.jobs))
                    await queries.enqueue(["job"] * len(numbers), [payload(n) for n in numbers], [0] * len(numbers))
        case "single":
            with program.clock():
                for number in range(program.jobs):
                    await queries.enqueue("job", payload(number))
        case "paced":
            await program.apaced(lambda number: queries.enqueue("job", payload(number)))


def payload(number: int) -> bytes:
    return b'{"number":%d}' % number


async def work(queries: Queries) -> None:
    manager = QueueManager(queries)

    @manager.entrypoint("job", on_failure="hold")
    async def job(job: object) -> None:
        program.run(int(job.payload[10:-1]))  # type: ignore[attr-defined]

    await asyncio.to_thread(program.ready)
    worker = asyncio.create_task(manager.run(batch_size=program.settings.get("batch", 500)))
    await program.until_stopped(worker)
    manager.shutdown.set()
    await asyncio.wait([worker], timeout=5)
    program.end()


uvloop.run(main())
